"""A model that a session fits: written, sealed, joined by real processes with a file each, one of them killed in mid-fit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import Popen

import numpy as np
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.learning import GeneralizedLinearModel
from quietmean.learning.models.glm import model_of
from quietmean.learning.models.model import VERSION
from quietmean.ledger import Ledger
from quietmean.statistics import Column
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from support.command_lines import command, ending, fails
from support.consent import accept as yes_of

NAMES = ("ada", "north", "east")
DOMAINS = ("age in 20..80", "arm in {a, b}", "ill in yes/no")
COLUMNS = (
    Column(name="age", low=20, high=80, missing="indicator"),
    Column(name="arm", levels=("a", "b")),
    Column(name="ill", boolean=True),
)
# A family whose rounds release the same, and one whose rounds differ, each with what it fits.
FORMULAS = {"binomial": "ill ~ age + arm", "gaussian": "age ~ ill + arm", "poisson": "ill ~ age + arm"}
of_each_family = pytest.mark.parametrize("family", FORMULAS)


def made(rounds: int, dropouts: float = 0.0, protocol: str = "auto", family: str = "binomial") -> GeneralizedLinearModel:
    formula = FORMULAS[family]
    return GeneralizedLinearModel(
        formula, COLUMNS, family=family, rounds=rounds, epsilon=9, delta=1e-4, dropouts=dropouts, protocol=protocol
    )


def write_records(name: str, seed: int, n: int = 2000) -> None:
    rng = np.random.default_rng(seed)
    age, arm = rng.uniform(20, 80, n), rng.integers(0, 2, n)
    ill = rng.random(n) < 1 / (1 + np.exp(-0.05 * (age - 50) + 0.8 * arm))
    rows = [f"{a:.2f},{'ab'[b]},{int(c)}" for a, b, c in zip(age, arm, ill, strict=True)]
    Path(f"{name}.csv").write_text("age,arm,ill\n" + "\n".join(rows) + "\n")


def seal(model: GeneralizedLinearModel, free_ports: Callable[[int], list[int]], timeout: float = 60.0) -> None:
    """Seal the session that a question writes. ``timeout``: by default who was killed is waited for."""
    same = model.session_study(3)
    budget = ["--epsilon", "9", "--delta", "1e-4", "--dropouts", f"{same.dropouts}", "--protocol", same.protocol]
    main(["study", "new", *DOMAINS, model.text, *budget, "--name", "fit", "--out", "fit.toml"])
    assert SessionStudy.load(Path("fit.toml")).describe("name") == same.describe("name")
    study = Path("fit.toml")
    study.write_text(study.read_text().replace("round_timeout = 10.0", f"round_timeout = {timeout}"))
    main(["key", "new", "--key", "ada.key"])
    main(["study", "invite", "fit.toml", "--key", "ada.key", "--out", "fit.invitation"])
    for name, port in zip(NAMES, free_ports(3), strict=True):
        place = ["--name", name, "--address", f"127.0.0.1:{port}", "--out", f"{name}.entry"]
        main(["accept", "fit.invitation", "--key", f"{name}.key", *place])
        write_records(name, port)
    main(["study", "seal", "fit.invitation", *(f"{name}.entry" for name in NAMES), "--key", "ada.key", "--out", "fit.sealed"])


def join(name: str) -> Popen[str]:
    line = ["join", "fit.sealed", "--key", f"{name}.key", "--data", f"{name}.csv", "--account", name]
    return command(Path(), *line, "--accept", yes_of(name, "fit.sealed"), "--json")


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("_here")
@of_each_family
def test_three_processes_fit_a_model_under_one_charge(free_ports: Callable[[int], list[int]], family: str) -> None:
    rounds = {"binomial": 4, "gaussian": 6, "poisson": 8}[family]
    seal(made(rounds, family=family), free_ports)
    ended = [ending(process) for process in [join(name) for name in NAMES]]
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    documents = [json.loads(output) for _, output, _ in ended]
    first = documents[0]["model"]["coefficients"]
    assert all(document["model"]["coefficients"] == first for document in documents)
    assert documents[0]["rounds"] == {"agreed": rounds, "begun": rounds}
    assert documents[0]["epsilon"] <= 9
    pooled = pooled_fit(family=family)
    for term, value in pooled.items():
        assert abs(first["estimate"][term] - value) < 5 * first["standard_error"][term] + 1e-6, term
    for name in NAMES:
        # Each is a user of its own.
        with Ledger.open(Path(os.environ["XDG_DATA_HOME"]) / name / "quietmean" / "ledger") as book:
            (entry,) = book.account(name).entries
            assert entry.status == "spent"
            assert entry.charged.epsilon(1e-4) <= 9


def pooled_fit(names: Sequence[str] = NAMES, family: str = "binomial") -> dict[str, float]:
    """Maximum likelihood of all records of these parties, by statsmodels."""
    import pandas as pd
    import statsmodels.formula.api as smf

    table = pd.concat([pd.read_csv(f"{name}.csv") for name in names])
    params = (
        getattr(smf, {"binomial": "logit", "gaussian": "ols", "poisson": "poisson"}[family])(FORMULAS[family], table)
        .fit(disp=0)
        .params
    )
    return {name: float(value) for name, value in params.items()}


def kill_after_a_round(east: Popen[str]) -> None:
    """However long a busy machine takes to its first round."""
    while not Path("fit-east.model.npz").exists():
        assert east.poll() is None, east.communicate()
        time.sleep(0.02)
    east.send_signal(signal.SIGKILL)
    east.communicate()


@pytest.mark.slow
@pytest.mark.usefixtures("_here")
@of_each_family
def test_a_party_that_is_killed_in_a_round_goes_on(free_ports: Callable[[int], list[int]], family: str) -> None:
    seal(made(12, 0.34, "cordp-dme", family), free_ports)
    running = {name: join(name) for name in NAMES}
    try:
        kill_after_a_round(running["east"])
        running["east"] = join("east")
        ended = {name: ending(running[name], 480) for name in ("ada", "north")}
        code, output, errors = ending(running["east"], 480)
        in_time = code == 0
        if not in_time:
            # It was away in whole rounds, perhaps in all: what was released in them is public, and another party has it.
            assert "Copy the file of" in errors, errors
            shutil.copy("fit-north.model.npz", "fit-east.model.npz")
            code, output, errors = ending(join("east"), 480)
    finally:
        for process in running.values():
            process.kill()
            process.communicate()
    assert {name: one[0] for name, one in ended.items()} == {"ada": 0, "north": 0}, ended
    assert code == 0, errors
    answers = [json.loads(one)["model"]["coefficients"]["estimate"] for one in (ended["north"][1], output)]
    assert answers[0] == answers[1]
    document = json.loads(output)
    assert 1 + in_time <= document["rounds"]["begun"] <= 12
    assert document["epsilon"] <= 9
    pooled = pooled_fit(family=family)
    whole = json.loads(ended["north"][1])["model"]["coefficients"]
    # Where the third comes back in the last round only, its records may move a term by more than its error: it is not printed.
    printed = {term: value for term, value in answers[0].items() if value is not None}
    assert printed.keys() == pooled.keys() or (printed and {*whole["flags"]} - {"changing-sites"} == {"not-settled"}), whole
    errors_by_term = whole["standard_error_population"]
    for term, value in printed.items():
        # Not all records are in the last round where the third was away: within sampling, too.
        assert abs(value - pooled[term]) < 5 * errors_by_term[term], term


def gone_after_a_round() -> dict[str, tuple[int, str, str]]:
    """How the fit ends for the others when one is killed after the first round and never comes back."""
    running = {name: join(name) for name in NAMES}
    try:
        kill_after_a_round(running["east"])
        return {name: ending(running[name]) for name in ("ada", "north")}
    finally:
        for process in running.values():
            process.kill()
            process.communicate()


@pytest.mark.slow
@pytest.mark.usefixtures("_here")
def test_whole_rounds_without_a_party_go_on_with_who_is_there(free_ports: Callable[[int], list[int]]) -> None:
    seal(made(5, 0.34, "cordp-dme"), free_ports, 6.0)
    ended = gone_after_a_round()
    assert {name: one[0] for name, one in ended.items()} == {"ada": 0, "north": 0}, ended
    document, other = (json.loads(ended[name][1]) for name in ("ada", "north"))
    assert document["model"]["coefficients"] == other["model"]["coefficients"]
    assert document["rounds"] == {"agreed": 5, "begun": 5}
    assert document["epsilon"] <= 9
    answer, pooled = document["model"]["coefficients"], pooled_fit(("ada", "north"))
    for term, value in pooled.items():
        assert abs(answer["estimate"][term] - value) < 5 * answer["standard_error_population"][term], term


@pytest.mark.slow
@pytest.mark.usefixtures("_here")
def test_who_comes_back_after_the_end_has_the_answer_of_who_stayed(free_ports: Callable[[int], list[int]]) -> None:
    seal(made(4, 0.34, "cordp-dme"), free_ports, 6.0)
    ended = gone_after_a_round()
    assert {name: one[0] for name, one in ended.items()} == {"ada": 0, "north": 0}, ended
    code, _, errors = ending(join("east"))
    assert code == 3, errors
    assert "Copy the file of one of them, *.model.npz, to " in errors
    shutil.copy("fit-north.model.npz", "fit-east.model.npz")
    code, output, errors = ending(join("east"), 480)
    assert code == 0, errors
    document, other = json.loads(output), json.loads(ended["north"][1])
    assert document["model"]["coefficients"] == other["model"]["coefficients"]
    # It has paid for what it took part in.
    assert document["rounds"]["begun"] < other["rounds"]["begun"]
    assert document["epsilon"] < other["epsilon"]


@pytest.mark.slow
@pytest.mark.usefixtures("_here")
def test_a_round_that_the_contract_has_all_parties_in_is_refused_without_one(free_ports: Callable[[int], list[int]]) -> None:
    seal(made(5), free_ports, 6.0)
    ended = gone_after_a_round()
    for code, output, errors in ended.values():
        assert code == 3, (output, errors)
        assert "Traceback" not in errors
        assert errors.count("no result: ") == 1, errors
        assert "without east" in errors


@pytest.mark.usefixtures("_here")
def test_what_cannot_be_is_refused(free_ports: Callable[[int], list[int]], capsys: pytest.CaptureFixture[str]) -> None:
    seal(made(4), free_ports)
    Path("train.py").write_text("")
    line = ["join", "fit.sealed", "--key", "north.key", "--account", "north", "--accept", yes_of("north", "fit.sealed")]
    capsys.readouterr()
    assert "Give --data FILE" in fails(line, capsys)
    assert "Leave --program out" in fails([*line, "--program", "train.py"], capsys)
    Path("other.csv").write_text("age,ill\n50,1\n")
    assert "arm" in fails([*line, "--data", "other.csv"], capsys)
    study = Sealed.load(Path("fit.sealed")).terms
    assert isinstance(study, SessionStudy)
    with pytest.raises(qm.InputError, match="does not know"):
        model_of(study.model_copy(update={"purpose": {"kind": "model", "model": "of-tomorrow"}}), 3)
    assert study.purpose["version"] == VERSION
    with pytest.raises(qm.InputError, match=f"by version {VERSION + 1} of its rounds, and this program by version {VERSION}"):
        model_of(study.model_copy(update={"purpose": {**study.purpose, "version": VERSION + 1}}), 3)
    earlier = {name: value for name, value in study.purpose.items() if name != "version"}
    with pytest.raises(qm.InputError, match="by version 1 of its rounds"):
        model_of(study.model_copy(update={"purpose": earlier}), 3)
