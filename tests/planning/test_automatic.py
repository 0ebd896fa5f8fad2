"""What is taken where no protocol is named: packed secret sharing where it can be had; plan, run, join and Python agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quietmean as qm
from quietmean.core.errors import InputError
from quietmean.planning.automatic import AUTO, PREFERRED, choose, choose_from
from quietmean.planning.candidates import Candidate, Ranking
from quietmean.planning.explain import where_more_is_promised
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.spec import MOST_PARTIES
from quietmean.studies import StudyTerms

TARGET = qm.Target(parties=8, epsilon=1.0, delta=1e-6, colluding=1, dropouts=0.125)
# More leave than votes could be had of: packed secret sharing has no result.
MANY_LEAVE = qm.Target(parties=4, epsilon=1.0, delta=1e-6, colluding=1, dropouts=0.5)
GOLDEN = Path(__file__).parents[1] / "golden" / "plans"
RAW: dict[str, Any] = {"column": [{"name": "age", "low": 0, "high": 100}], "colluding": 1}


def names(target: qm.Target, options: dict[str, Any] | None = None) -> str:
    return choose(target, options).plan.protocol.name


def test_packed_secret_sharing_where_its_conditions_hold() -> None:
    found = choose(TARGET)
    assert found.plan.protocol.name == PREFERRED
    assert found.plan.digest == PackedSharing().calibrate(TARGET).digest
    assert found.why is not None
    assert found.why.startswith(
        "protocol packed-sharing, chosen automatically: no server, 1 of 8 parties may collude and 1 leave"
    )
    assert "that of a trusted curator" in found.why


@pytest.mark.slow
def test_else_the_least_predicted_error_among_equals() -> None:
    found, ranking = choose(MANY_LEAVE), qm.rank(MANY_LEAVE)
    assert PREFERRED not in {one.plan.protocol.name for one in ranking}
    assert found.plan.digest == ranking.best.digest
    assert found.why is not None
    assert found.why.startswith(f"protocol {ranking.best.protocol.name}, chosen automatically: ")
    assert "a decision needs 3 of 4 votes" in found.why
    assert "with 2 gone there are 2" in found.why


def test_what_promises_more_than_the_target_is_never_taken() -> None:
    """GOPA with a collector costs more than the target if its partners leave at the wrong moment."""
    above, kept = (
        Candidate(qm.Plan.from_json(json.loads((GOLDEN / f"{name}.json").read_text())["plan"]), 1.0, 1.0)
        for name in ("gopa", "muffliato")
    )
    assert above.plan.above_target is not None
    assert kept.plan.above_target is None
    assert above.mse < kept.mse
    place, why = choose_from(Ranking(MANY_LEAVE, (above, kept)), {})
    assert place == 1
    assert why.startswith("protocol muffliato, chosen automatically: ")
    with pytest.raises(InputError, match=r"gopa is left, a priori .* more than the target 1: .* never chosen automatically"):
        choose_from(Ranking(MANY_LEAVE, (above,)), {})


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.json")))
def test_a_plan_above_its_target_says_what_keeps_it(name: str) -> None:
    """Of every protocol; and whose figures are for colluders by chance says that the chance is no part of delta."""
    plan = qm.Plan.from_json(json.loads((GOLDEN / f"{name}.json").read_text())["plan"])
    sentences = where_more_is_promised(plan)
    if plan.above_target is None:
        assert sentences == []
        return
    kept = choose(plan.target).plan
    assert kept.above_target is None
    assert sentences[-1].startswith(
        f"{kept.protocol.name} promises epsilon {kept.epsilon_a_priori:.4f} a priori, whoever of as many colludes: "
    )
    simulated = "executions" in plan.prediction
    assert [plan.prediction["certificate"] in sentence for sentence in sentences] == [True] * simulated + [False]
    assert ["is no part of delta" in sentence for sentence in sentences] == [True] * simulated + [False]


def test_where_nothing_keeps_the_target_the_reason_is_said() -> None:
    raw = json.loads((GOLDEN / "gopa.json").read_text())["plan"]
    raw["target"] |= {"parties": 4, "dropouts": 0.5}
    raw["parameters"] |= {"partners": 3}
    sentences = where_more_is_promised(qm.Plan.from_json(raw))
    assert "packed-sharing does not keep the target either: a decision needs 3 of 4 votes" in sentences[-1]


def test_too_many_parties_for_everybody_to_be_connected() -> None:
    with pytest.raises(InputError, match=f"for up to {MOST_PARTIES} parties"):
        # Only packed secret sharing has this option.
        choose(qm.Target(parties=MOST_PARTIES + 1, epsilon=1.0, delta=1e-6), {"lies": 0})


@pytest.mark.slow
def test_only_protocols_with_the_options_are_taken() -> None:
    assert names(TARGET, {"ballots": 4}) == PREFERRED
    found = choose(TARGET, {"injection": "early", "rounds": 4})
    assert (found.plan.protocol.name, str(found.why).count("'injection'")) == ("inca", 1)
    with pytest.raises(InputError, match=r"option 'roundss' \(did you mean 'rounds'\?\)"):
        choose(TARGET, {"roundss": 4})
    with pytest.raises(InputError, match="no protocol has all of the options ballots, injection"):
        choose(TARGET, {"ballots": 4, "injection": "early"})


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "dropouts"), [(8, 0.125), (4, 0.5)])
def test_plan_and_study_and_python_agree(parties: int, dropouts: float, tmp_path: Path) -> None:
    """run, join and check make their plan by ``Study.choice``."""
    study = StudyTerms.parse({**RAW, "dropouts": dropouts, "unit": "party"})
    assert study.protocol == AUTO
    found = study.choice(parties)
    target = found.plan.target
    shape: dict[str, Any] = {
        "dimension": target.dimension,
        "sensitivity": target.sensitivity,
        "colluding": 1,
        "dropouts": dropouts,
    }
    asked = {"parties": parties, "epsilon": 1.0, "delta": 1e-6, **shape}
    arguments = [text for name, value in asked.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "quietmean.cli.main", "plan", *arguments, "--json", "--out", "plan.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True)
    document = json.loads(done.stdout)
    planned = qm.Plan.from_json(json.loads((tmp_path / "plan.json").read_text()))
    assert document["candidates"][document["chosen"]]["digest"] == planned.digest
    assert study.placed(planned).digest == found.plan.digest
    assert found.why is not None
    assert document["why"].startswith(found.why)
    assert qm.plan(parties=parties, epsilon=1.0, delta=1e-6, **shape).digest == planned.digest


def test_a_protocol_that_is_named_needs_no_reason() -> None:
    named = StudyTerms.parse({**RAW, "protocol": PREFERRED}).choice(8)
    assert named.why is None
    assert named.plan.digest == StudyTerms.parse(RAW).choice(8).plan.digest


def test_auto_is_not_one_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    from quietmean.cli.main import main

    with pytest.raises(SystemExit) as caught:
        main(["plan", "--parties", "8", "--protocol", "auto", "--protocol", "inca"])
    assert caught.value.code == 2
    assert "give it alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--protocol", "cordp-dme", "--trials", "3"), ["trials have no effect on cordp-dme: no history is refused"]),
        (
            ("--protocol", "adqsp", "--nats", "0.6", "--trials", "3"),
            ["trials have no effect on consensus: no history is refused"],
        ),
        (
            ("--protocol", "cordp-dme", "--calibration", "paper"),
            ["calibration paper has no effect on cordp-dme: the noise there"],
        ),
        (("--protocol", "cordp-dme"), []),
    ],
)
def test_an_option_that_changes_nothing_is_told(
    options: tuple[str, ...], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from quietmean.cli.main import main

    main(["plan", "--parties", "5", "--colluding", "1", *options, "--json"])
    warnings = [one for one in json.loads(capsys.readouterr().out)["warnings"] if "no effect" in one]
    assert len(warnings) == len(told)
    assert all(warning.startswith(begin) for warning, begin in zip(warnings, told, strict=True))
