"""What was handed over was seen: whatever a party that told its log was handed is in the record of all who told theirs.

Also what it refused, what came too late, what was taken back, and what came before its round and was lost again; and if the
sender died and told nothing. The network says what was handed over.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quietmean.core.party import PartyId, Vector
from quietmean.node.phase import Phase
from quietmean.node.session.rounds import PhaseRunner
from quietmean.node.storage import Store
from quietmean.planning import Plan, Target
from quietmean.protocols import get_protocol
from quietmean.protocols.gopa import GOPA
from support.fault_plans import fault_plans
from support.faults import Crash, FaultOutcome, FaultPlan, run_with_faults
from support.network import NetworkConditions, Partition

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
MEMORY = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None


def outcome_of(plan: Plan, faults: FaultPlan) -> FaultOutcome:
    values: Vector = (1 + np.sin(np.arange(float(plan.target.parties))).reshape(-1, 1)) / 2
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        return run_with_faults(plan, values, faults, Path(directory))


def unrecorded(outcome: FaultOutcome) -> set[tuple[int, PartyId, PartyId]]:
    """(round, sender, receiver) of mixing messages handed to a party that told its log, which some result has as unseen.

    What came while its receiver was telling its log need be in the receiver's own result only: the others may have left.
    """
    missing = set()
    for party, result in outcome.results.items():
        schedule, handed = result.execution.schedule, result.execution.trace.handed(result.execution.schedule)
        for phase, round_, sender, receiver in outcome.handed:
            too_late = (phase, round_, sender, receiver) in outcome.handed_late and party != receiver
            if phase != Phase.MIXING or receiver in result.silent or too_late:
                continue
            slots = schedule.neighbours[round_ - 1, sender] == receiver
            if not handed[round_ - 1, sender, slots].any():
                missing.add((round_, sender, receiver))
    return missing


def gopa(parties: int) -> Plan:
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=1)
    return Plan(target, GOPA(sigma_star=0.7, sigma_delta=2.0, partners=parties - 1, aggregator=0))


def late_and_dead(sender: PartyId = 2) -> FaultPlan:
    """What it publishes is on its way for longer than anybody waits; it dies before it could tell its log."""
    disconnect = Partition(frozenset({sender}), 0.3, 7.0)
    return FaultPlan(NetworkConditions(6, 0.05, partitions=(disconnect,)), {sender: [Crash(after=3.0, away=None)]})


def test_a_value_that_came_too_late_from_a_party_that_died_is_seen() -> None:
    """Its partners take out what hides it, so that little is left: it must not be accounted as if nobody had it."""
    outcome = outcome_of(gopa(4), late_and_dead())
    assert (int(Phase.MIXING), 1, 2, 0) in outcome.handed, sorted(outcome.handed)
    assert sorted(outcome.results) == [0, 1, 3]
    for result in outcome.results.values():
        assert result.silent == (2,)
        assert not result.execution.contributors()[2]
        assert (1, 2, 0) in result.execution.trace.unused(result.execution.schedule)
        # The collector and another one know all that hides it but its own noise.
        mu = result.execution.privacy(1e-6).against([0, 1]).mu_upper[0]
        assert mu == pytest.approx(1 / 0.7, rel=0.05)
    assert unrecorded(outcome) == set()


def test_without_what_receivers_log_it_would_count_as_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "seen_here", lambda store, phase: ())
    outcome = outcome_of(gopa(4), late_and_dead())
    assert unrecorded(outcome) == {(1, 2, 0)}
    assert all(result.execution.privacy(1e-6).against([0, 1]).mu_upper[0] == 0.0 for result in outcome.results.values())


def plans(parties: int) -> dict[str, Plan]:
    """One for each way in which parties talk: all to one, to one and back, to some in every round, to neighbours."""
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=1)
    some: dict[str, dict[str, Any]] = {
        "gopa": {"sigma_star": 0.7, "sigma_delta": 2.0, "partners": parties - 1, "aggregator": 0},
        "cordp-dme": {"sigma_own": 0.6, "sigma_pair": 1.5, "aggregator": 0},
        "inca": {"rounds": 3, "sigma_star": 0.7, "sigma_delta": 1.8},
        "muffliato": {"sigma": 0.9, "rounds": 3},
    }
    return {name: Plan(target, get_protocol(name).read(options).resolved(parties)) for name, options in some.items()}


def holds_under_faults(name: str, examples: int) -> int:
    """In how many of the stories something was seen and not used."""
    late = 0

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        nonlocal late
        parties = data.draw(st.integers(3, 5))
        plan, faults = plans(parties)[name], data.draw(fault_plans(parties))
        outcome = outcome_of(plan, faults)
        assert unrecorded(outcome) == set(), faults
        late += any(result.execution.trace.unused(result.execution.schedule) for result in outcome.results.values())

    holds()
    print(f"{name}: {examples} fault plans, in {late} something was seen and not used")
    return late


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", sorted(plans(3)))
def test_whatever_was_handed_over_is_on_record(name: str) -> None:
    holds_under_faults(name, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(plans(3)))
def test_whatever_was_handed_over_is_on_record_in_many_stories(name: str) -> None:
    assert holds_under_faults(name, 400) >= 10


def released_unrecorded(outcome: FaultOutcome) -> set[tuple[PartyId, PartyId]]:
    """(sender, receiver) of releases handed to a party that told its log, of senders that some result does not count."""
    missing = set()
    for result in outcome.results.values():
        counted = result.execution.contributors()
        missing |= {
            (sender, receiver)
            for phase, _, sender, receiver in outcome.handed
            if phase == Phase.DISSEMINATION and not counted[sender] and receiver not in result.silent
        }
    # What comes after its receiver told its log is refused, and in no result that was made by then.
    missing -= {(sender, receiver) for _, _, sender, receiver in outcome.handed_late}
    return missing


def local_dp(parties: int) -> Plan:
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=1)
    return Plan(target, get_protocol("local-dp").read({"sigma": 0.8}).resolved(parties))


def lost_as_they_were_written() -> list[FaultPlan]:
    """Party 0 dies as it writes something down, one of them a release, and is back when all others have left."""
    writes = range(8, 18)
    return [FaultPlan(NetworkConditions(3, 0.05), {0: [Crash(write, committed=False, away=40.0)]}) for write in writes]


def lost_before_its_round() -> list[FaultPlan]:
    """Party 0 was started again, and still asks who is where, as party 2 publishes; both die. Party 1 is cut off till then."""
    disconnect = Partition(frozenset({1}), 0.97, 3.98)
    crashes = {0: [Crash(after=0.13, away=0.1), Crash(after=2.45, away=1.0)]}
    return [FaultPlan(NetworkConditions(18, 0.3, partitions=(disconnect,)), {**crashes, 2: [Crash(after=3.35, away=None)]})]


@pytest.mark.parametrize(("parties", "stories"), [(4, lost_as_they_were_written()), (3, lost_before_its_round())])
def test_a_release_that_came_to_a_process_that_died_is_seen(
    parties: int, stories: list[FaultPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = [outcome_of(local_dp(parties), faults) for faults in stories]
    assert [released_unrecorded(outcome) for outcome in outcomes] == [set()] * len(stories)
    # Without what may have come to a process that died, it would count as never published.
    monkeypatch.setattr(PhaseRunner, "_may_have_come", lambda runner, first: [])
    lost = [released_unrecorded(outcome_of(local_dp(parties), faults)) for faults in stories]
    assert any(lost)
    for outcome, of_story in zip(outcomes, lost, strict=True):
        totals = {party: result.heard for party, result in outcome.results.items()}
        assert not [(sender, receiver) for sender, receiver in of_story if sender in totals.get(receiver, ())], (
            "it is in no total"
        )
    print(lost)


def releases_hold_under_faults(name: str, examples: int) -> int:
    """In how many of the stories somebody was not counted."""
    away = 0
    options = {"cordp-dme": {"sigma_own": 0.6, "sigma_pair": 1.5}, "local-dp": {"sigma": 0.8}}[name]

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        nonlocal away
        parties = data.draw(st.integers(3, 5))
        target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=1)
        faults = data.draw(fault_plans(parties))
        outcome = outcome_of(Plan(target, get_protocol(name).read(options).resolved(parties)), faults)
        assert released_unrecorded(outcome) == set(), faults
        away += any(not result.execution.contributors().all() for result in outcome.results.values())

    holds()
    print(f"{name}: {examples} fault plans, in {away} somebody was not counted")
    return away


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["cordp-dme", "local-dp"])
def test_whoever_published_is_on_record(name: str) -> None:
    """Where each party publishes its own noisy value, there is nothing else to record."""
    releases_hold_under_faults(name, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cordp-dme", "local-dp"])
def test_whoever_published_is_on_record_in_many_stories(name: str) -> None:
    # Who is late is waited for, so that few are left out: in one story of thirty.
    assert releases_hold_under_faults(name, 400) >= 10
