"""Every printed epsilon is the certificate's, for the adversary that the words beside it name, before the start and after it.

For every protocol, unit and number of colluders, and for a committee: contract, contribution, result, report, privacy page,
tables, Python, receipt and session.
"""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import quietmean
from quietmean.cli.answers import write_privacy_page, write_report
from quietmean.cli.console import print_privacy
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.desk.views import in_short
from quietmean.graphs import ExecutionTrace
from quietmean.node import Roster
from quietmean.planning import Plan
from quietmean.planning.gate import kept_at_gate
from quietmean.protocols import registry
from quietmean.randomness import Seed
from quietmean.studies import StudyOutcome, conclude
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.first_screen import first_screen
from quietmean.studies.outcome.tables import tables_bytes
from quietmean.studies.party import Contract
from quietmean.studies.party.session_contract import SessionContract
from support.committee_study import soon
from support.outcomes import run_of
from support.promises import Printed, against_everybody, lines_of_page, numbers_of, printed_in, wrong_promises
from support.rosters import on_this_machine, write_roster

PARTIES, DELTA = 6, 1e-6
NAMES = ("north", "south", "east", "west", "inland", "coast")
# Noise that does not come from a plan of a study, and none at all.
WITHOUT = ("priv-unit-g",)
BARE = ("gossip", "secret-sharing")
CASES = [
    (name, unit, colluding, committee)
    for name in (*registry(), "committee")
    if name not in WITHOUT
    for unit in ("record", "party")
    for colluding in (0, 1, 3)
    for committee in (name == "committee",)
    if not committee or colluding == 1
]
QUICK = {("cordp-dme", "record", 1), ("local-dp", "party", 3), ("packed-sharing", "record", 1), ("committee", "record", 1)}


def planned(name: str, unit: str, colluding: int, committee: bool) -> tuple[StudyTerms, Plan]:
    fields = {"name": "ages", "epsilon": 0.7, "delta": DELTA, "unit": unit, "accept_wide": True}
    fields |= {"column": [{"name": "age", "low": 0, "high": 100}]}
    if committee:
        fields |= {"committee": {"members": 4, "contribute_by": soon(), "grace": 0.0}}
    else:
        fields |= {"protocol": name, "colluding": colluding}
        # One that has a result without all says what it costs where one is missing.
        fields |= {"dropouts": 0.0 if name in ("secret-sharing", "consensus") else 0.2}
    study = StudyTerms.parse(fields)
    return study, study.choice(PARTIES, no_privacy=name in BARE).plan


def outcome_of(study: StudyTerms, plan: Plan) -> StudyOutcome:
    """Of an execution that one party left, where that is planned for."""
    trace = ExecutionTrace.everyone(plan.protocol.rounds, PARTIES)
    weights = np.full(PARTIES, 40.0 if study.unit == "record" else 1.0)
    execution = plan.execution(Seed.public("promises"), trace, weights)
    if plan.gated:
        execution = kept_at_gate(plan.target, execution)
    if plan.target.dropouts and plan.protocol.traits.by_file:
        execution = execution.without(frozenset({PARTIES - 1}))
    return conclude(study.workload, plan.target, execution, np.full(study.workload.dimension, 0.5))


def pages_of(folder: Path, outcome: StudyOutcome) -> Iterator[str]:
    run = run_of("ages", outcome, NAMES)
    write_report(folder / "report.html", run)
    write_privacy_page(folder / "privacy.html", run)
    for page in ("report", "privacy"):
        yield lines_of_page((folder / f"{page}.html").read_text())


@pytest.mark.parametrize(
    ("name", "unit", "colluding", "committee"),
    [pytest.param(*case, marks=() if case[:3] in QUICK else pytest.mark.slow) for case in CASES],
)
def test_each_printed_epsilon_is_that_of_the_adversary_in_its_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, unit: str, colluding: int, committee: bool
) -> None:
    try:
        study, plan = planned(name, unit, colluding, committee)
    except InputError:
        pytest.skip("there is no such plan")
    write_roster(tmp_path, on_this_machine(NAMES, range(7001, 7001 + PARTIES)))
    choice = study.choice(PARTIES, no_privacy=name in BARE)
    contract = Contract.for_party("south", (study, Roster.load(tmp_path / "roster.toml")), choice)
    outcome = outcome_of(study, plan)
    outcome.save_receipt(tmp_path / "receipt.json")
    everybody = against_everybody(plan, contract.party)
    capsys.readouterr()
    print_privacy(outcome.to_json(), study.epsilon)
    printed = capsys.readouterr()
    if not plan.gated:
        # A receipt of a gate has its record, which an execution alone has not.
        main(["verify", "receipt", str(tmp_path / "receipt.json")])
    certified = capsys.readouterr().out or printed.out
    texts = {
        "contract": str(contract),
        "result": printed.out + printed.err,
        # What goes on below, under its word, is one sentence.
        "first screen": re.sub(r"\n {10,}", " ", "\n".join(first_screen(json.loads((tmp_path / "receipt.json").read_text())))),
        "certify": certified,
        "tables": tables_bytes(outcome.to_json(), tmp_path / "t.csv").decode(),
        "repr": f"{outcome!r}\n{outcome.certificate!r}",
        **dict(zip(("report", "privacy page"), pages_of(tmp_path, outcome), strict=True)),
    }
    wrong = {where: found for where, text in texts.items() if (found := wrong_promises(text, plan, outcome, everybody))}
    assert wrong == {}
    # Whoever is trusted is not among those who may collude.
    trusted = [contract.parties[party].name for party in plan.protocol.traits.trusted] if colluding else []
    assert all(f"without {party}, trusted" in texts["contract"] for party in trusted)
    # Each says what it costs, and, but for a line of Python and a footnote of a table, what all others learn together.
    for where, text in texts.items():
        assert any(each.whom == "planned" for each in printed_in(text)), where
        more = (
            "everybody" in {each.whom for each in printed_in(text)} or f"more than {study.colluding or 1} of the members" in text
        )
        assert more or where in ("tables", "repr", "first screen"), where
    assert (
        numbers_of(contract.to_json(), {"epsilon_a_priori": plan.epsilon_a_priori, "epsilon_if_all_others_collude": everybody})
        == []
    )
    result = {"epsilon_a_priori": plan.epsilon_a_priori, "everyone_else_epsilon": outcome.everyone_else_epsilon}
    assert numbers_of(json.loads(json.dumps(outcome.to_json())), result | {"epsilon": outcome.epsilon}) == []
    short = in_short(contract, "north", None)
    for shown, true in ((short["epsilon"], plan.epsilon_a_priori), (short["if_all_others"], everybody)):
        assert Printed(math.inf if shown is None else float(shown), 2, "", "", "").is_bound_of(true)


@pytest.mark.parametrize("protocol", ["local-dp", "cordp-dme"])
def test_what_a_contribution_says_that_it_costs_is_what_its_result_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """At the moment of the yes, and when files are added up."""
    monkeypatch.chdir(tmp_path)
    names = NAMES[:4]

    def told(line: str) -> str:
        capsys.readouterr()
        main(shlex.split(line))
        return capsys.readouterr().out

    asked = f"'mean(age in 0..100)' --colluding 1 --dropouts 0.25 --epsilon 0.7 --protocol {protocol}"
    told(f"study new --name ages {asked} --out study.toml")
    for name in names:
        told(f"key new --key {name}.key --name {name}")
    told("study invite study.toml --key north.key --out study.invitation")
    for name in names[1:]:
        told(f"accept study.invitation --key {name}.key --name {name}")
    if not Path("north.entry").exists():
        told("accept study.invitation --key north.key --name north")
    told(f"study seal study.invitation {' '.join(f'{name}.entry' for name in names)} --key north.key --out study.sealed")
    Path("ages.csv").write_text("age\n" + "50\n" * 50)
    study = StudyTerms.load(Path("study.toml"))
    plan = study.choice(4).plan
    everybody = against_everybody(plan, 0)
    for name in names[:3]:
        digest = json.loads(told(f"site contract study.sealed --key {name}.key --json"))["accept"]
        said = told(f"send study.sealed --key {name}.key --data ages.csv --no-ledger --accept {digest}")
        figures = {(each.whom, each.shown) for each in printed_in(said)}
        # A first screen has two digits, rounded up, and what it names under More has all.
        assert figures == {("planned", 0.7), ("everybody", math.ceil(everybody * 1e2 - 1e-9) / 1e2)}, said
        more = next(line for line in said.splitlines() if line.startswith("More "))
        details = told(more.partition("quietmean ")[2])
        figures = {(each.whom, each.shown) for each in printed_in(details)}
        assert figures == {("planned", 0.7), ("everybody", math.ceil(everybody * 1e4 - 1e-9) / 1e4)}, details
    combined = told(f"study combine study.sealed {' '.join(f'{name}.contribution' for name in names[:3])} --details")
    assert {each.shown for each in printed_in(combined) if each.whom == "everybody"} == {math.ceil(everybody * 1e4 - 1e-9) / 1e4}
    # Only under one of the two does everybody else learn no more than the planned number.
    assert (everybody > 0.7) is (protocol == "cordp-dme")


def test_a_session_promises_the_same_in_its_lines_and_its_data(tmp_path: Path) -> None:
    write_roster(tmp_path, on_this_machine(NAMES, range(7001, 7001 + PARTIES)))
    fields = {"name": "rounds", "dimension": 5, "rounds": 3, "epsilon": 0.7, "delta": 1e-5, "colluding": 1, "clip": 1.0}
    study = SessionStudy.parse({**fields, "protocol": "cordp-dme", "dropouts": 0.2})
    contract = SessionContract.for_party("north", (study, Roster.load(tmp_path / "roster.toml")))
    everybody = contract.everybody_else
    figures = {each.whom: each for each in printed_in(str(contract))}
    assert figures["planned"].is_bound_of(contract.epsilon_a_priori)
    assert figures["everybody"].is_bound_of(everybody)
    assert numbers_of(contract.to_json(), {"epsilon_if_all_others_collude": everybody}) == []


def test_no_epsilon_is_rounded_to_the_nearest() -> None:
    """What is computed is rounded up, in one place: a format with a precision would understate it half of the time."""
    nearest = re.compile(r"\.\d+[gf]$")
    formatted = [
        (path.name, ast.unparse(part.value), ast.unparse(part.format_spec).strip("f'\""))
        for path in Path(quietmean.__file__).parent.rglob("*.py")
        if "epsilon" in (text := path.read_text()) and re.search(r"\.\d+[gf]", text)
        for part in ast.walk(ast.parse(text))
        if isinstance(part, ast.FormattedValue) and part.format_spec is not None
    ]
    # A delta at an epsilon; and functions that round a bound in its direction.
    other = re.compile(r"additive|ceil|floor")
    found = {
        (name, value)
        for name, value, spec in formatted
        if nearest.search(spec) and "epsilon" in value and not other.search(value)
    }
    assert found == set()
