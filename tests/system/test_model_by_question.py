"""Models by rounds that a question asks for: run by parties on this machine, written as a session, and refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import quietmean as qm
from quietmean.cli.main import main
from quietmean.learning import GeneralizedLinearModel, ProportionalHazards, asked_model
from quietmean.learning.models.glm import model_of
from quietmean.statistics.models import MODELS, asks_model, model_text
from quietmean.statistics.questions import read_questions
from quietmean.studies.agreement.session_study import SessionStudy
from support.command_lines import fails

N = 4000
AGE, ARM = "age in 20..80", "arm in {a, b}"
# A question of each family, and the same model of all records by statsmodels.
QUESTIONS = {
    "binomial": f"glm(ill in yes/no ~ {AGE} + {ARM})",
    "gaussian": f"glm(weight in 0..300 ~ {AGE} * {ARM}, family=gaussian, rounds=8)",
    "poisson": f"glm(visits in 0..60 ~ {AGE} + {ARM}, family=poisson, exposure=years in 0.5..2)",
    "gamma": f"glm(cost in 1..5000 ~ log({AGE}) + {ARM}, family=gamma)",
}
# Little noise, as what is fitted is tested.
EPSILON = 9


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(5)
    age, arm, years = rng.uniform(20, 80, N).round(2), rng.choice(["a", "b"], N), rng.uniform(0.5, 2, N).round(3)
    b = arm == "b"
    records = {
        "age": age,
        "arm": arm,
        "years": years,
        "ill": rng.random(N) < 1 / (1 + np.exp(-0.05 * (age - 50) + 0.8 * b)),
        "weight": (60 + 0.2 * age + 5 * b + rng.normal(0, 9, N)).round(2),
        "visits": np.minimum(rng.poisson(years * np.exp(0.4 + 0.01 * age - 0.3 * b)), 60),
        "cost": (np.exp(3 + 0.5 * np.log(age) + 0.3 * b) * rng.gamma(2, 0.5, N)).clip(1, 5000).round(2),
        "site": [f"site {row % 5}" for row in range(N)],
    }
    path = tmp_path_factory.mktemp("models") / "people.csv"
    pd.DataFrame(records).to_csv(path, index=False)
    return path


def pooled(table: Path, family: str) -> dict[str, float]:
    """Maximum likelihood, or least squares, of all records by statsmodels."""
    data = pd.read_csv(table)
    data["ill"] = data.ill.astype(int)
    match family:
        case "binomial":
            fit = smf.logit("ill ~ age + arm", data).fit(disp=0)
        case "gaussian":
            fit = smf.ols("weight ~ age * arm", data).fit()
        case "poisson":
            fit = smf.poisson("visits ~ age + arm", data, exposure=data.years).fit(disp=0)
        case _:
            law = sm.families.Gamma(sm.families.links.Log())
            fit = smf.glm("cost ~ np.log(age) + arm", data, family=law).fit()
    return {name.replace("np.", "").replace("Intercept", "(Intercept)"): float(value) for name, value in fit.params.items()}


def ran(capsys: pytest.CaptureFixture[str], *line: str) -> dict[str, Any]:
    main([*line, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize("family", QUESTIONS)
def test_a_run_answers_with_the_model_of_all_records(
    table: Path, family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five deviations of noise: beside five terms, one run in 300,000 is further off."""
    target = ["--party-column", "site", "--epsilon", f"{EPSILON}", "--out", str(tmp_path / "run")]
    document = ran(capsys, "run", str(table), QUESTIONS[family], *target)
    answer = document["model"]["coefficients"]
    expected = {name.replace("(Intercept)", "Intercept"): value for name, value in pooled(table, family).items()}
    assert answer["true_value"].keys() == expected.keys()
    for term, value in expected.items():
        # Without noise it is the model itself.
        assert answer["true_value"][term] == pytest.approx(value, rel=1e-5, abs=1e-7), term
        if "cut" not in answer["flags"]:
            assert abs(answer["estimate"][term] - value) < 5 * answer["standard_error"][term] + 1e-6, term
    named = {"binomial": "odds ratios", "poisson": "rate ratios", "gamma": "ratios of means"}
    assert document["model"].get("are") == named.get(family)
    if family != "gaussian":
        ratios = document["model"]["ratios"]["true_value"]
        assert ratios == pytest.approx({term: np.exp(value) for term, value in expected.items()}, rel=1e-4)
    assert document["epsilon"] <= EPSILON
    # The receipt is checked by the command that it names.
    checked = ran(capsys, "verify", "receipt", document["receipt"])
    assert checked["epsilon"] == document["epsilon"]
    assert checked["rounds"] == document["rounds"]


def test_hazards_have_the_answer_of_the_same_model_in_python(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pd.read_csv(table)
    data["died"], data["months"] = data.ill.astype(int), (data.cost / 50).clip(0, 24)
    path = tmp_path / "people.csv"
    data.to_csv(path, index=False)
    question = f"proportional-hazards(~ {AGE} + {ARM}, time=months in 0..24, event=died in yes/no, edges=0 6 12 24)"
    document = ran(capsys, "run", str(path), question, "--parties", "5", "--epsilon", "9", "--out", str(tmp_path / "run"))
    columns: list[dict[str, Any]] = [
        {"name": "age", "low": 20, "high": 80, "missing": "indicator"},
        {"name": "arm", "levels": ["a", "b"]},
        {"name": "months", "low": 0, "high": 24, "missing": "indicator"},
        {"name": "died", "boolean": True},
    ]
    edges = [0.0, 6.0, 12.0, 24.0]
    same = ProportionalHazards("~ age + arm", columns, time="months", event="died", edges=edges, epsilon=9, delta=1e-6)
    exact = same.without_noise([same.read(path, print)])
    expected = exact.ratios.by_term(exact.ratios.value)
    assert document["model"]["ratios"]["true_value"] == pytest.approx(expected, rel=1e-9)


def test_who_leaves_is_in_the_receipt_and_named(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", str(table), QUESTIONS["binomial"], "--parties", "5", "--epsilon", "9", "--dropouts", "0.2"]
    main([*line, "--out", str(tmp_path / "run")])
    screen = capsys.readouterr().out
    counted = json.loads((tmp_path / "run" / "receipt.json").read_text())["rounds"]["counted"]
    # One of five leaves in each of six rounds, before or after its vector is in.
    missed = {name: count for name, count in counted.items() if count < 6}
    for name, count in missed.items():
        assert f"{name} ({count} of 6)" in " ".join(screen.split())
    assert 24 <= sum(counted.values()) <= 30


def test_the_screen_has_the_answer_first_and_keeps_to_its_width(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["run", str(table), QUESTIONS["gaussian"], "--parties", "5", "--epsilon", "9", "--out", str(tmp_path / "run")]
    main(line)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["statistic", "estimate"]
    assert "true (private)" in lines[0]
    assert any(row.lstrip().startswith("age") for row in lines[:8])
    assert any(row.startswith("Privacy   epsilon 9.00 (delta 1e-6) per record, guaranteed, against any 1 of 5") for row in lines)
    assert [row for row in lines if len(row) > 80 and str(tmp_path) not in row] == []


def test_a_session_that_is_written_is_that_of_the_same_model_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    question = QUESTIONS["gaussian"]
    main(["study", "new", question, "--epsilon", "3", "--dropouts", "0.1", "--out", "fit.toml"])
    screen = capsys.readouterr().out
    study = SessionStudy.load(Path("fit.toml"))
    asked_model([question], epsilon=3, delta=1e-6, dropouts=0.1).save_study("python.toml", parties=4)
    other = SessionStudy.load(Path("python.toml"))
    assert study.describe("name") == other.describe("name")
    model = model_of(study, 4)
    assert isinstance(model, GeneralizedLinearModel)
    # What it asks is shown as it is typed, and means the same.
    shown = " ".join(screen.partition("  asks ")[2].partition("  uses ")[0].split())
    assert shown == study.model == model.text
    assert read_questions([AGE, ARM, "weight in 0..300", shown])[1] == [
        {"kind": model.kind, "formula": "weight ~ age * arm", "family": "gaussian", "rounds": 8}
    ]
    # And the next steps can be typed.
    plan, step = [row.split("quietmean ")[1] for row in screen.splitlines() if row.startswith(("Next", "Then"))]
    main(shlex.split(plan.partition("  ")[0]))
    assert f"quietmean {step}" in capsys.readouterr().out
    main(["key", "new", "--key", "ada.key"])
    main([*shlex.split(step), "--key", "ada.key", "--out", "fit.invitation"])


@pytest.mark.parametrize("family", ["binomial", "gaussian"])
def test_a_plan_expects_what_made_up_records_show(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over 20 runs of each the widths are at most 1.06 times off (log odds), and 1.26 times (numbers)."""
    monkeypatch.chdir(tmp_path)
    main(["study", "new", QUESTIONS[family], "--epsilon", "4", "--out", "fit.toml"])
    main(["study", "mock", "fit.toml", "--rows", "8000", "--out", "mock.csv"])
    capsys.readouterr()
    expected = ran(capsys, "plan", "--study", "fit.toml", "--parties", "5", "--records", "8000")
    found = ran(capsys, "run", "mock.csv", QUESTIONS[family], "--parties", "5", "--epsilon", "4", "--out", "run")
    assert expected["epsilon_a_priori"] == found["epsilon"] <= 4
    planned, seen = expected["expected"], found["model"]["coefficients"]
    assert ["Intercept", *(each["term"] for each in planned)] == seen["terms"]
    for each in planned:
        low, high = seen["interval_population"][each["term"]]
        assert 2 / 3 < (high - low) / each["width_usual"] < 3 / 2, each["term"]
    (same,) = [asked_model([QUESTIONS[family]], epsilon=4, delta=1e-6).plan(5, records=8000)]
    assert same.document() == expected
    assert [row["term"] for row in same.rows()] == [each["term"] for each in planned]
    main(["site", "data", "mock.csv", "fit.toml"])
    assert "8,000 records" in capsys.readouterr().out
    main(["plan", "--study", "fit.toml", "--parties", "5", "--records", "40"])
    assert "Noise would most often hide all answers of this study." in capsys.readouterr().out
    main(["plan", "--study", "fit.toml", "--parties", "5"])
    assert "Give --records N." in " ".join(capsys.readouterr().err.split())


def test_what_a_width_is_said_to_need_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["study", "new", QUESTIONS["binomial"], "--epsilon", "4", "--out", "fit.toml"])
    capsys.readouterr()
    wanted = ["plan", "--study", "fit.toml", "--parties", "5", "--records", "8000", "--width", "0.01", "--power", "0.8"]
    width, power = ran(capsys, *wanted)["needed"]
    assert power["reason"] == "as no effect can be stated of a model by rounds"
    for more in (["--records", f"{width['records']}"], ["--records", "8000", "--epsilon", f"{width['epsilon']}"]):
        if "--epsilon" in more:
            main(["study", "new", QUESTIONS["binomial"], *more[2:], "--out", "more.toml"])
            capsys.readouterr()
        study = "more.toml" if "--epsilon" in more else "fit.toml"
        again = ran(capsys, "plan", "--study", study, "--parties", "5", *more[:2])
        assert again["expected"][0]["width_usual"] == pytest.approx(0.01, rel=0.1)


def test_fields_of_a_question_are_those_of_the_model() -> None:
    for kind in (GeneralizedLinearModel, ProportionalHazards):
        given = {"formula", "rounds", "family", "exposure", "dispersion", "time", "event", "edges", "baseline", "where"}
        assert {*MODELS[kind.kind].parameters} <= given
        example = f"{kind.kind}({MODELS[kind.kind].example})"
        model = asked_model([example], epsilon=1, delta=1e-6)
        assert type(model) is kind
        assert asks_model([model.text])
        assert model_text({"kind": kind.kind, **model.describe(), "rounds": model.rounds}) == model.text


LINEAR = f"glm(weight in 0..300 ~ {AGE})"
WRONG = {
    "nothing declared": (["glm(ill ~ age)"], "ill has no domain. Nothing is said of age either."),
    "a column more": ([f"glm(ill in yes/no ~ {AGE} + arm)"], "Write glm(ill in yes/no ~ age in 20..80 + arm in {A, B})."),
    "no formula": (["glm(age)"], "has no formula. Write generalized-linear-model("),
    "a field of another": ([f"glm(ill in yes/no ~ {AGE}, edges=0 1)"], "field 'edges' is unknown"),
    "no number": ([f"glm(ill in yes/no ~ {AGE}, rounds=many)"], "rounds is 'many'. Write it as in"),
    "a family": ([f"glm(ill in yes/no ~ {AGE}, family=normal)"], "family 'normal' is unknown"),
    "twice": ([f"glm(ill in yes/no ~ {AGE}, rounds=6, rounds=7)"], "gives rounds twice. Give it once."),
    "two models": ([QUESTIONS["binomial"], QUESTIONS["gaussian"]], "Ask for one model, and for nothing else."),
    "a statistic beside": ([QUESTIONS["binomial"], "mean(age)"], "Ask for one model, and for nothing else."),
    "no time": ([f"proportional-hazards(~ {AGE})"], "lacks time, event, edges. Write"),
    "levels as a number": ([f"glm(arm in {{a, b}} ~ {AGE}, family=gaussian)"], "arm"),
    "a unit": ([QUESTIONS["binomial"], "--unit", "party"], "--unit is not for models by rounds. Leave it out."),
    "private counts": ([QUESTIONS["binomial"], "--count", "private"], "--count is not for models by rounds. Leave it out."),
    "a committee": ([QUESTIONS["binomial"], "--committee", "3"], "--committee is not for models by rounds. Leave it out."),
    "processes": ([QUESTIONS["binomial"], "--processes"], "--processes is not for models by rounds. Leave it out."),
    "no privacy": ([QUESTIONS["binomial"], "--protocol", "gossip"], "Choose another protocol."),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_one_sentence_and_leaves_nothing(
    what: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, said = WRONG[what]
    out = tmp_path / "run"
    assert said in fails(["run", str(table), *line, "--parties", "4", "--out", str(out)], capsys)
    assert not out.exists()
    if what != "processes":
        written = tmp_path / "fit.toml"
        # Nothing tells there what the data hold.
        said = "for levels arm in {A, B}." if what == "a column more" else said
        assert said in fails(["study", "new", *line, "--out", str(written)], capsys)
        assert not written.exists()


@pytest.mark.parametrize("line", ["check fit.toml --data people.csv", "site data people.csv fit.toml"])
def test_a_model_beside_one_release_is_sent_to_its_own_command(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study file that asks for one by hand, wherever it is read."""
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("age,ill\n30,1\n")
    Path("fit.toml").write_text(f'[study]\nask = ["glm(ill in yes/no ~ {AGE})"]\n')
    assert "takes several rounds, which one release has not. Ask it alone" in fails(shlex.split(line), capsys)


def test_python_says_what_a_model_is() -> None:
    with pytest.raises(qm.InputError, match="takes several rounds, which one release has not"):
        qm.statistics.parse_statistic({"kind": "glm", "formula": "ill ~ age"})
