"""Options without effect are refused with the nearest name that is known; budgets that promise nothing are warned of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.planning import Plan
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import require_privacy
from quietmean.protocols.target import budget_warnings
from quietmean.studies.agreement.study import StudyTerms
from quietmean.testing.examples import example_execution
from support.command_lines import fails
from support.refusals import refused, refused_rows

COLUMN = {"name": "age", "low": 0.0, "high": 100.0}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("age\n" + "\n".join(str(20 + row) for row in range(12)))
    example_execution("local-dp", 4, sigma=1.0).save(Path("execution.json"))
    qm.LocalDP().calibrate(qm.Target(parties=4, epsilon=1.0, delta=1e-6)).save(Path("plan.json"))


@refused_rows("what_has_no_effect_is_refused")
def test_what_has_no_effect_is_refused(line: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    fails(line, capsys, *words)


def changed(place: str, **more: Any) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(Path("plan.json").read_text())
    return raw | more if not place else raw | {place: raw[place] | more}


def test_unknown_entries_of_plan_files() -> None:
    for place, name, near in [
        ("", "contxt", "context"),
        ("target", "epsilom", "epsilon"),
        ("parameters", "sigms", "sigma"),
        ("dissemination", "knd", "kind"),
    ]:
        refused(rf"has no field '{name}' \(did you mean '{near}'\?\)", Plan.from_json, changed(place, **{name: 1}))


def test_unknown_entries_of_execution_files() -> None:
    raw = json.loads(Path("execution.json").read_text())
    assert isinstance(Execution.from_json(raw | {"certify": {}, "result": {}, "origin": {}}), Execution)
    with pytest.raises(InputError, match=r"an execution has no field 'wieghts' \(did you mean 'weights'\?\)"):
        Execution.from_json(raw | {"wieghts": [1, 2, 3, 4]})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"column": [COLUMN], "colludng": 2}, r"colludng is unknown \(did you mean 'colluding'\?\)"),
        ({"column": [COLUMN | {"mising": "centre"}]}, r"column.0.mising is unknown \(did you mean 'missing'\?\)"),
        ({"column": [COLUMN], "protocol": "local-dp", "options": {"round": 3}}, "local-dp has no option 'round'"),
        ({"column": [COLUMN], "protocol": "gossip"}, "gossip has no differential privacy"),
    ],
)
def test_unknown_entries_of_studies(raw: dict[str, Any], words: str) -> None:
    refused(words, lambda: StudyTerms.parse(raw).plan(4))


@pytest.mark.slow
def test_python_asks_for_no_privacy_too(tmp_path: Path) -> None:
    target = qm.Target(parties=4, epsilon=1.0, delta=1e-6)
    for call in (
        lambda: qm.Gossip(rounds=3).calibrate(target),
        lambda: qm.rank(target, ["gossip"]),
        lambda: qm.plan(parties=4, epsilon=1.0, delta=1e-6, protocol="gossip"),
    ):
        refused("no_privacy=True", call)
    plan = qm.Gossip(rounds=3).calibrate(target, no_privacy=True)
    assert len(qm.rank(target, ["gossip", "local-dp"], no_privacy=True)) == 2
    silent = Plan(target, qm.LocalDP(sigma=0.0))
    for protects_nothing in (plan, silent):
        refused("has no differential privacy", require_privacy, protects_nothing.protocol, no_privacy=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delta": 0.25}, "delta 0.25 is not below 1 / 4 parties"),
        ({"delta": 0.3}, "delta 0.3 is not below"),
        ({"epsilon": 10.5}, "epsilon 10.5 is above 10"),
        ({"epsilon": 25.0}, "protects next to nothing"),
    ],
)
def test_budgets_that_promise_nothing(changes: dict[str, float], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = {"epsilon": 1.0, "delta": 1e-6} | changes
    with pytest.warns(UserWarning, match=words):
        qm.plan(parties=4, colluding=1, protocol="local-dp", epsilon=wanted["epsilon"], delta=wanted["delta"])
    options = [part for name, value in wanted.items() for part in (f"--{name}", f"{value:g}")]
    main(["plan", "--parties", "4", "--protocol", "local-dp", "--json", *options])
    output = capsys.readouterr()
    (sentence,) = json.loads(output.out)["warnings"]
    assert words in sentence
    assert output.err == f"quietmean: {sentence}\n"


def test_records_are_counted_where_they_are_known() -> None:
    target = qm.Target(parties=4, epsilon=10.0, delta=1e-3, unit=PrivacyUnit.RECORD)
    assert budget_warnings(target) == []
    assert budget_warnings(target, 999.0) == []
    assert "1 / 1000 records" in budget_warnings(target, 1000.0)[0]
