"""Where a party left in mid-run and counts in part, every answer says so, wherever answers are shown; and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import quietmean as qm
from quietmean.api.result import StudyResult
from quietmean.cli.answers import print_answers
from quietmean.cli.main import main
from quietmean.node import Identity, NodeResult, NodeSettings, Roster, RosterEntry
from quietmean.node.driver import monitor_of, remarked
from quietmean.node.monitor import status_path
from quietmean.planning import Plan
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilentPopulation
from quietmean.sessions import MemoryEngine
from quietmean.studies import StudyOutcome, conclude
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.tables import write_tables
from support.leaving import LEAVER, PARTIES, PASSING_ON, RECORDS, flagged, leaving, studied
from support.virtual_time import run_virtually

NAMES = tuple("abcde")
SAYS = "not all records count alike"


def outcome_of(study: StudyTerms, plan: Plan, last: int) -> StudyOutcome:
    """What comes of a study that one party leaves after so many rounds."""
    execution = plan.execution(Seed.public("in part"), leaving(plan, LEAVER, last), RECORDS)
    tables = [np.full((int(size), 1), 20.0 + 10 * party) for party, size in enumerate(RECORDS)]
    values = np.array([study.workload.encode(one, step=plan.value_step).vector for one in tables])
    releases = execution.run_batch(values, InsecurePopulationNoise(last, PARTIES))
    return conclude(study.workload, plan.target, execution, execution.estimate(releases))


def in_the_middle(study: StudyTerms, plan: Plan) -> StudyOutcome:
    found = (outcome_of(study, plan, last) for last in range(1, plan.protocol.rounds))
    return next(one for one in found if 0.05 < one.execution.parts[LEAVER] < 0.95)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("protocol", PASSING_ON)
def test_every_answer_is_flagged_where_a_party_counts_in_part(protocol: str) -> None:
    study, plan = studied(protocol, "mean(age)", "sum(age)", "count(age)")
    flags = 0
    for last in range(plan.protocol.rounds + 1):
        outcome = outcome_of(study, plan, last)
        parts = outcome.execution.parts
        expected = bool(((parts > 0) & (parts < 0.999)).any())
        assert list(flagged(outcome)) == [expected] * 3, f"left after round {last} of {plan.protocol.rounds}: {parts}"
        flags += expected
    assert 0 < flags <= plan.protocol.rounds


def test_the_flag_says_how_many_and_how_much() -> None:
    study, plan = studied("muffliato", "sum(age)")
    outcome = in_the_middle(study, plan)
    parts = outcome.execution.in_part
    (flag,) = [one for one in outcome.answers[0].estimates.flags if one.code == "in-part"]
    assert f"{100 * min(parts.values()):.2g}" in flag.message
    assert f"{len(parts)} of {PARTIES} parties count" in flag.message
    assert flag.terms == ()


def test_others_count_whole_or_not_at_all() -> None:
    for protocol in ("local-dp", "packed-sharing", "secagg"):
        study, plan = studied(protocol, "mean(age)")
        execution = plan.execution(Seed.public("in part"), leaving(plan, LEAVER, plan.protocol.rounds), RECORDS)
        assert execution.in_part == {}
        assert not any(flagged(conclude(study.workload, plan.target, execution, np.full(plan.target.dimension, 0.5))))


@pytest.mark.parametrize("statistics", [(), ("mean(age)", "sum(age)")], ids=["means alone", "statistics"])
def test_wherever_answers_are_shown(
    statistics: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("quietmean.cli.answers.out", Console(width=400, soft_wrap=True, highlight=False))
    study, plan = studied("muffliato", *statistics)
    outcome = in_the_middle(study, plan)
    result = StudyResult(study, outcome, NAMES, 1, 1, 1.0)
    # In Python: each term, as an object and as a row of a frame, and the file of these.
    assert all("in-part" in row["flag"] for row in result.rows())
    result.to_csv(tmp_path / "terms.csv")
    assert (tmp_path / "terms.csv").read_text().count("in-part") == len(result.rows())
    # A command, once for all answers.
    print_answers(outcome.answers, outcome.to_json())
    assert capsys.readouterr().out.count(SAYS) == 1
    # Tables for people, and the page, with the number of parties on its first screen.
    for ending in ("csv", "html", "tex"):
        write_tables(outcome.to_json(), tmp_path / f"table.{ending}", False)
        assert SAYS[1:] in (tmp_path / f"table.{ending}").read_text()
    result.save_report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert SAYS[1:] in page
    assert f"{PARTIES} of {PARTIES} parties ({len(outcome.execution.in_part)} in part)" in page


@pytest.mark.slow
def test_a_session_says_who_counts_in_part() -> None:
    session = qm.Session(
        parties=PARTIES,
        dimension=2,
        epsilon=4.0,
        delta=1e-6,
        rounds=9,
        colluding=0,
        dropouts=0.2,
        protocol="inca",
        options={"rounds": 4},
        engine=MemoryEngine(lambda _, parties: InsecureSilentPopulation(parties)),
    )
    seen = set()
    for last in range(1, 5):
        found = session.mean([[0.1 * party, -0.1] for party in range(PARTIES)], leaves={LEAVER: last})
        parts = found.execution.parts
        assert np.allclose(found.mean, [parts @ np.arange(PARTIES) * 0.1 / parts.sum(), -0.1], atol=0.02)
        assert (" in part" in repr(found)) == bool(found.in_part)
        seen |= set(found.in_part)
    assert LEAVER in seen


def test_the_status_of_a_node_that_is_done_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, plan = studied("muffliato", "mean(age)")
    execution = in_the_middle(study, plan).execution
    nothing: dict[str, Any] = dict.fromkeys(("late", "refusals", "remarks", "silent", "unresolved", "known_until"), ())
    zero: dict[str, Any] = dict.fromkeys(("transfers", "bytes_sent", "bytes_received", "seconds"), 0)
    result = NodeResult(np.zeros(1), 1.0, (0,), execution, public_seed="", **nothing, **zero)
    identities = [Identity.generate() for _ in NAMES]
    entries = [
        RosterEntry(name, ("127.0.0.1", port), identity.public_key)
        for port, (name, identity) in enumerate(zip(NAMES, identities, strict=True), 1)
    ]
    store = tmp_path / "my.store"
    settings = NodeSettings(
        identities[0], Roster(tuple(entries)), plan, plan.admit(np.zeros(plan.target.dimension)), store, status=status_path(store)
    )

    async def run() -> None:
        with monitor_of(settings) as monitor:
            assert remarked(result, settings, monitor) is result

    run_virtually(run())
    main(["status", str(store)])
    told = " ".join(capsys.readouterr().out.split())
    assert f"a party left in between, and {SAYS}: " in told
    assert f"{NAMES[LEAVER]} {100 * execution.parts[LEAVER]:.2g} %" in told
