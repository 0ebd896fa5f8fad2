"""What is said, and written down, of how far one party can move a result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.console import print_influence
from quietmean.core.domain import PrivacyUnit
from quietmean.core.readable import bound_text
from quietmean.graphs import ExecutionTrace
from quietmean.node import Roster
from quietmean.planning.calibrate import calibrate
from quietmean.planning.influence import Checked, influence_of, planned_influence
from quietmean.protocols import Target, configure
from quietmean.protocols.execution import Execution
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.randomness import Seed
from quietmean.report import ReportFacts, StudyReport
from quietmean.report.officer import OfficerPage, render_officer_page
from quietmean.statistics import Column, Columns, Workload
from quietmean.statistics.kinds.means import Mean
from quietmean.studies import conclude
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.outcome.influence import (
    Move,
    StudyInfluence,
    checked_text,
    coordinate_json,
    coordinate_text,
    stated_influence,
)
from quietmean.studies.party.session_contract import SessionContract
from quietmean.testing import example_execution
from support.rosters import on_this_machine, write_roster

MOVES = (
    Move("mean(age)", "", 3.124),
    Move("kappa(a, b)", "kappa", 2.0, (-1.0, 1.0)),
    *(
        Move("table-1()", f"all {name}", most)
        for name, most in (("age mean", 1.0), ("age sd", 2.0), ("age smd", float("inf")), ("n", 0.5))
    ),
)
TOLD = StudyInfluence(Checked.RESULT, 0.25, MOVES)


def test_a_bound_is_rounded_up_a_range_is_named_and_what_has_none_too() -> None:
    mean, kappa, table, endless, how = TOLD.sentences()
    assert mean == "mean(age) by at most 3.13"
    assert kappa == "kappa(a, b) kappa to any number from -1 to 1, and to impossible ones outside"
    assert table == "any term of table-1() by at most 2, but all age smd by any amount"
    assert endless == "what moves by any amount is one number divided by another, which a lie can bring near 0"
    assert endless not in replace(TOLD, checked=Checked.NOTHING).sentences()
    assert how.endswith("the largest party counts 25 %")


def test_what_is_written_down_is_read_again_and_what_has_another_form_is_not() -> None:
    assert StudyInfluence.from_json(TOLD.to_json()) == TOLD
    receipt = {"result": {"certificate": {"influence": TOLD.to_json()}}}
    assert stated_influence(receipt) == tuple(TOLD.sentences())
    for raw in ({}, {"result": None}, {"result": {"certificate": {"influence": {"moves": 3}}}}):
        assert stated_influence(raw) == ()


NOT_CHECKED = "nobody checks whether parties send true values; the report says how far a false one can move each answer"
ENDLESS = Move("mean(pay)", "", float("inf"))


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        (MOVES[:1], "false values of one party can move mean(age) by at most 3.13"),
        (MOVES[:4], "false values of one party can move the answers; the report says how far each"),
        (
            (*MOVES[:1], ENDLESS),
            "nobody checks whether parties send true values; the report says how far a false one can move each answer",
        ),
        ((), NOT_CHECKED),
    ],
)
def test_the_first_screen_has_one_short_sentence_without_an_alarm(
    moves: tuple[Move, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the report lists: as many statistics as there are, and answers without a bound."""
    told = replace(TOLD, moves=moves, unnoticed=("nobody notices",))
    print_influence({"influence": told.to_json()})
    assert " ".join(capsys.readouterr().out.split()) == said
    assert "any amount" not in said
    assert len(said.split()) <= 20


@pytest.mark.parametrize(
    ("protocol", "options", "said"),
    [
        ("secagg", {}, ["can count as one within"]),
        ("packed-sharing", {"secrets": 3}, ["can count as one within", "the result needs the sums of all 4 members"]),
        ("packed-sharing", {"secrets": 2}, ["can count as one within"]),
        ("cordp-dme", {}, []),
    ],
)
def test_what_nobody_notices_of_a_lie_is_stated(protocol: str, options: dict[str, Any], said: list[str]) -> None:
    target = Target(epsilon=8.0, delta=1e-6, colluding=1, parties=4, dimension=2)
    plan = calibrate(target, configure(protocol, options))
    stated = planned_influence(plan)
    assert stated is not None
    assert len(stated.unnoticed) == len(said)
    assert all(part in sentence for part, sentence in zip(said, stated.unnoticed, strict=True))
    assert coordinate_json(stated, 1.0).get("unnoticed", []) == list(stated.unnoticed)
    assert all(one in coordinate_text(stated, 1.0) for one in stated.unnoticed)
    told = replace(TOLD, unnoticed=stated.unnoticed)
    assert StudyInfluence.from_json(told.to_json()) == told
    assert set(stated.unnoticed) <= set(told.sentences())


@pytest.mark.parametrize("lies", [0, 1])
def test_of_the_sums_of_a_result_one_sentence_is_said_at_one_place(lies: int, capsys: pytest.CaptureFixture[str]) -> None:
    """How a result was checked, or that nobody could, stands with how far one party can move it."""
    workload = Workload(Columns([Column(name="age", low=0, high=1)]), (Mean(column="age"),), PrivacyUnit.PARTY)
    target = Target(4, 8.0, 1e-6, workload.dimension, workload.sensitivity, colluding=1, unit=PrivacyUnit.PARTY)
    plan = calibrate(target, configure("packed-sharing", {"secrets": 3 - lies}))
    schedule = plan.schedule(Seed.public("sums"))
    assert isinstance(plan.protocol, PackedSharing)
    protocol = replace(plan.protocol, sums=4)
    execution = Execution(protocol, schedule, ExecutionTrace.everyone(schedule.rounds, 4), workload.sensitivity, np.ones(4))
    outcome = conclude(workload, target, execution, np.full(workload.dimension, 0.5), influence=influence_of(plan, execution))
    sentence = checked_text(outcome.certificate_json()["checked_by"])
    assert [flag for answer in outcome.answers for flag in answer.estimates.flags if flag.code == "unchecked"] == []
    report = StudyReport.of_outcome("ages", outcome, [*"abcd"], messages=1, bytes=1, seconds=1.0)
    print_influence(outcome.certificate_json())
    for told in (" ".join(report.influence), " ".join(capsys.readouterr().out.split())):
        assert told.count(sentence) == 1
        assert "needs the sums of all" not in told
    # Pages without the answers have it in either case.
    assert outcome.influence_sentences.count(sentence) == 1


@pytest.mark.parametrize("clip", [1.0, 2.5])
def test_the_contract_of_a_session_states_it_in_the_units_of_vectors(clip: float, tmp_path: Path) -> None:
    names = ("north", "south", "east")
    write_roster(tmp_path, on_this_machine(names, [7001, 7002, 7003]))
    fields = {"name": "rounds", "dimension": 5, "rounds": 2, "epsilon": 8.0, "delta": 1e-5, "colluding": 1, "clip": clip}
    study = SessionStudy.parse({**fields, "protocol": "cordp-dme", "dropouts": 0.4})
    contract = SessionContract.for_party("north", (study, Roster.load(tmp_path / "roster.toml")))
    stated = contract.to_json()["influence"]
    assert stated["checked"] == "each release"
    # A third of two half widths, and the noise.
    assert stated["largest"] > clip * 2 / 3
    assert contract.influence is not None
    assert stated["largest"] == pytest.approx(clip * contract.influence.largest)
    (line,) = [text for name, text in contract.lines() if name == "one party can move"]
    assert f"by at most {bound_text(stated['largest'])} if all are there" in line


def test_the_page_of_who_answers_for_the_data_has_it() -> None:
    execution = example_execution("inca", 8, rounds=4, sigma_star=2.0, sigma_delta=4.0)
    privacy = execution.privacy(1e-6)
    page = OfficerPage(execution, privacy, privacy.coalitions(1), ReportFacts(influence=tuple(TOLD.sentences())))
    assert "kappa(a, b) kappa to any number from -1 to 1" in render_officer_page(page)
    assert "one party can have moved" not in render_officer_page(OfficerPage(execution, privacy, privacy.coalitions(1)))
