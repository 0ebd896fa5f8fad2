"""The gate between real sessions under faults, in virtual time: nothing is published that could cost more than the target."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.node.session.gate import Gate
from quietmean.planning import Plan
from quietmean.planning.gate import GateRefused, mu_before_release
from support.fault_plans import fault_plans
from support.faults import Crash, FaultOutcome, FaultPlan, check_run, run_with_faults
from support.gated import check_gate, decided_once, facts, gated_plan, published_by
from support.network import NetworkConditions, Partition

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
MEMORY = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None


def values_of(parties: int) -> Vector:
    values: Vector = (1 + np.sin(np.arange(float(parties))).reshape(parties, 1)) / 2
    return values


@contextmanager
def told(plan: Plan, faults: FaultPlan) -> Iterator[tuple[FaultOutcome, list[Path]]]:
    """The outcome, and the stores of all parties."""
    parties = plan.target.parties
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory, pytest.MonkeyPatch.context() as patch, decided_once(patch):
        outcome = run_with_faults(plan, values_of(parties), faults, Path(directory))
        yield outcome, [Path(directory) / f"{party}.store" for party in range(parties)]


def ends(plan: Plan, faults: FaultPlan) -> str:
    """How a study ended, all that must hold checked."""
    with told(plan, faults) as (outcome, stores):
        try:
            check_run(plan, values_of(plan.target.parties), outcome)
            return check_gate(plan, outcome, stores)
        except AssertionError as error:
            raise AssertionError(f"{error}: {facts(outcome)}") from None


def test_a_study_without_faults_passes_and_all_have_the_same() -> None:
    plan = gated_plan(5, 6)
    with told(plan, FaultPlan()) as (outcome, stores):
        assert check_gate(plan, outcome, stores) == "published"
        assert sorted(outcome.results) == list(range(5))
        records = [result.gate for result in outcome.results.values()]
        assert {record.digest for record in records if record is not None} == {records[0].digest if records[0] else ""}
        for record in records:
            assert record is not None
            assert record.published
            assert record.incomplete == ()
            assert record.supporters > 2.5


def test_too_little_noise_is_refused_by_all_and_the_reason_is_kept() -> None:
    plan = gated_plan(5, 6, star=1.0, delta=2.0)
    with told(plan, FaultPlan()) as (outcome, stores):
        assert check_gate(plan, outcome, stores) == "refused"
        assert outcome.results == {}
        for error in outcome.failures.values():
            assert isinstance(error, GateRefused)
            assert "could cost a mu of" in str(error)
            assert error.record.before_release == pytest.approx(mu_before_release(plan.protocol, 1.0))
            assert len(error.record.votes) >= 3


def anything_may_happen(examples: int, parties: int, most: int, colluding: int = 1) -> None:
    found: Counter[str] = Counter()

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        number = data.draw(st.integers(parties, most))
        plan = gated_plan(number, data.draw(st.integers(2, 6)), data.draw(st.sampled_from([2.4, 3.0, 4.0])), colluding=colluding)
        found[ends(plan, data.draw(fault_plans(number)))] += 1

    holds()
    print(dict(found))
    # Both have come up often, or the test would show little.
    assert min(found["published"], found["refused"]) >= examples / 20


@pytest.mark.slow
@pytest.mark.parametrize(("examples", "parties", "most", "colluding"), [(20, 5, 8, 2), (400, 3, 7, 1), (80, 8, 12, 2)])
def test_nothing_beyond_the_target_is_published_whatever_happens(examples: int, parties: int, most: int, colluding: int) -> None:
    anything_may_happen(examples, parties, most, colluding)


# --- the attacks that the design is an answer to ----------------------------------------------------------------------------


def halves(seed: int) -> list[FaultPlan]:
    """Cut apart from some moment of the mixing rounds, or of the gate, until after the end; the sides are 2 and 3, or 3 and 2."""
    return [
        FaultPlan(NetworkConditions(seed, 0.1, partitions=(Partition(side, begin, begin + 300.0),)))
        for side in (frozenset({0, 1}), frozenset({0, 1, 2}))
        for begin in (0.8, 1.4, 2.0, 2.6, 3.2)
    ]


@pytest.mark.slow
def test_two_halves_never_publish_two_histories() -> None:
    plan = gated_plan(5, 6, star=6.0, delta=12.0)
    assert "published" in {ends(plan, faults) for faults in halves(1)}


def test_without_a_majority_two_histories_would_be_published(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = gated_plan(5, 6, star=6.0, delta=12.0)
    agreed = property(lambda self: self._votes[self._context.party][1])
    monkeypatch.setattr(Gate, "_agreed", agreed)
    assert "two histories were published" in [problem(plan, faults) for faults in halves(1)]


def problem(plan: Plan, faults: FaultPlan) -> str:
    """What a check says is wrong with how a study ended, without the details."""
    try:
        ends(plan, faults)
    except (AssertionError, InputError) as error:
        return str(error).split(":")[0]
    return ""


def gate_writes(plan: Plan) -> range:
    """The durable writes of party 0 from the last of mixing to its end."""
    with told(plan, FaultPlan()) as (quiet, _):
        return range(quiet.writes[0] - 17, quiet.writes[0])


def test_a_crash_between_any_two_writes_of_the_gate() -> None:
    """It comes back at once: nothing is lost, no vote is cast twice, and all get the result of all."""
    plan = gated_plan(3, 3, star=6.0, delta=12.0)
    for write in gate_writes(plan):
        for committed in (False, True):
            faults = FaultPlan(crashes={0: [Crash(write, committed)]}, round_timeout=20.0)
            with told(plan, faults) as (outcome, stores):
                assert check_gate(plan, outcome, stores) == "published", (write, committed)
                assert sorted(outcome.results) == [0, 1, 2], (write, committed)
                assert all(result.heard == (0, 1, 2) for result in outcome.results.values()), (write, committed)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("away", [None, 15.0])
def test_who_leaves_at_the_gate_takes_only_something_away(away: float | None) -> None:
    """Between vote and release, or before; for good, or until the others have ended."""
    plan, found = gated_plan(4, 3, star=8.0, delta=12.0), Counter[str]()
    for write in gate_writes(plan):
        found[ends(plan, FaultPlan(crashes={0: [Crash(write, away=away)]}))] += 1
    assert found["published"] >= 8


def test_a_share_that_comes_late_is_never_read_behind_the_gate() -> None:
    """A slow party is cut off before the logs are exchanged; what it sends later is seen by nobody."""
    plan = gated_plan(5, 4, star=6.0, delta=12.0)
    for seed in range(6):
        slow = (Partition(frozenset({1}), 0.6 + 0.3 * seed, 12.0 + seed),)
        with told(plan, FaultPlan(NetworkConditions(seed, 0.3, partitions=slow))) as (outcome, stores):
            check_gate(plan, outcome, stores)


def test_a_restart_after_a_refusal_says_the_same_again() -> None:
    plan = gated_plan(3, 3, star=1.0, delta=2.0)
    with told(plan, FaultPlan()) as (quiet, _):
        last = quiet.writes[0] - 1
    with told(plan, FaultPlan(crashes={0: [Crash(last, away=100.0)]})) as (outcome, _):
        assert isinstance(outcome.failures[0], GateRefused)
        assert "could cost a mu" in str(outcome.failures[0])
        assert published_by(outcome) == frozenset()
