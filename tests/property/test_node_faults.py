"""Studies of real sessions under random faults, in virtual time: no mass is lost, none is doubled, and all know the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quietmean.core.party import Message, PartyId, Vector
from quietmean.core.schema import options_of
from quietmean.node.storage import Store
from quietmean.planning import Plan, Target
from quietmean.protocols import Mechanism, configure, registry
from quietmean.protocols.inca import IncA
from quietmean.protocols.mechanism import template_of
from quietmean.protocols.result_broadcast import ResultBroadcast
from quietmean.protocols.traits import ANY_DOMAIN
from support.fault_plans import fault_plans, short_fault_plans
from support.faults import Crash, FaultOutcome, FaultPlan, check_run, run_with_faults
from support.network import NetworkConditions, Partition

# Durable writes cost nothing on a memory file system.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
MEMORY = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None


def inca(parties: int, rounds: int, out_degree: int = 1, dimension: int = 2) -> Plan:
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=dimension)
    # Cancelled noise on: what is drawn anew after a restart, or settled wrongly, shows.
    protocol = IncA(rounds=rounds, sigma_star=0.0, sigma_delta=1.0, out_degree=out_degree)
    return Plan(target, protocol, ResultBroadcast())


def values_of(parties: int, dimension: int = 2) -> Vector:
    """In the plan's cube, of diameter 1."""
    waves = np.sin(np.arange(float(dimension * parties))).reshape(parties, dimension)
    values: Vector = (1 + waves) / (2 * np.sqrt(dimension))
    return values


def tell(plan: Plan, faults: FaultPlan) -> FaultOutcome:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        return run_with_faults(plan, values_of(plan.target.parties, plan.target.dimension), faults, Path(directory))


@st.composite
def settings_of_inca(draw: st.DrawFn) -> Plan:
    parties = draw(st.integers(2, 5))
    out_degree = draw(st.integers(1, min(2, parties - 1)))
    return inca(parties, draw(st.integers(1, 5)), out_degree)


def anything_may_happen(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data(), settings_of_inca())
    def holds(data: st.DataObject, plan: Plan) -> None:
        faults = data.draw(fault_plans(plan.target.parties))
        check_run(plan, values_of(plan.target.parties), tell(plan, faults))

    holds()


def nothing_lasts(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data(), settings_of_inca())
    def holds(data: st.DataObject, plan: Plan) -> None:
        assert_faultless(plan, tell(plan, data.draw(short_fault_plans(plan.target.parties))))

    holds()


def assert_faultless(plan: Plan, outcome: FaultOutcome) -> None:
    """Everybody finished with everybody's value in, once."""
    parties, dimension = plan.target.parties, plan.target.dimension
    assert sorted(outcome.results) == list(range(parties)), outcome.failures
    for result in outcome.results.values():
        assert result.heard == tuple(range(parties))
        assert result.execution.trace.online.all()
        assert (result.counted_twice, result.unresolved) == ((), ())
        np.testing.assert_allclose(result.mean, values_of(parties, dimension).mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("examples", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_invariant_under_any_faults(examples: int) -> None:
    anything_may_happen(examples)


@pytest.mark.slow
def test_nothing_is_lost_if_all_return_in_time() -> None:
    nothing_lasts(500)


def test_a_crash_between_any_two_durable_writes() -> None:
    """Every point of every party, before and after the write, not a sample of them."""
    plan = inca(3, 3)
    fault_free = tell(plan, FaultPlan())
    assert_faultless(plan, fault_free)
    assert min(fault_free.writes) > 15
    for party, writes in enumerate(fault_free.writes):
        for write in range(writes):
            for committed in (False, True):
                faults = FaultPlan(crashes={party: [Crash(write, committed)]}, round_timeout=20.0)
                assert_faultless(plan, tell(plan, faults))


def test_a_crash_between_durable_writes_of_large_vectors() -> None:
    """They are in a file of their own beside the database."""
    plan = inca(3, 2, dimension=10_000)
    (writes, *_) = tell(plan, FaultPlan()).writes
    for write in range(writes):
        faults = FaultPlan(crashes={0: [Crash(write, committed=write % 2 == 0)]}, round_timeout=20.0)
        assert_faultless(plan, tell(plan, faults))


def test_a_story_is_the_same_each_time() -> None:
    plan = inca(4, 4)
    faults = FaultPlan(
        NetworkConditions(5, 0.3, 0.1, 0.1, 0.1, [Partition(frozenset({1}), 0.5, 6.0)]), {2: [Crash(8), Crash(after=2.0)]}
    )
    first, second = tell(plan, faults), tell(plan, faults)
    assert (first.writes, first.seconds) == (second.writes, second.seconds)
    assert {party: result.to_json() for party, result in first.results.items()} == {
        party: result.to_json() for party, result in second.results.items()
    }


def partitions_mid_round() -> list[FaultPlan]:
    """What was told before the partition is used; the answers come only when the senders have taken their shares back."""
    split = Partition(frozenset({1, 2}), 2.5, 8.5)
    return [FaultPlan(NetworkConditions(seed, 0.2, 0.05, 0.1, partitions=[split])) for seed in range(8)]


def test_settlements_happen_and_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them the same plans count shares twice."""
    plan = inca(4, 6)
    settled = 0
    for faults in partitions_mid_round():
        outcome = tell(plan, faults)
        check_run(plan, values_of(4), outcome)
        settled += any(len(result.execution.trace.settled) > 0 for result in outcome.results.values())
        assert not any(result.counted_twice for result in outcome.results.values())
    assert settled >= 4

    def forget(self: Store, phase: int, party: PartyId) -> list[Message]:
        return []

    monkeypatch.setattr(Store, "unsettled", forget)
    outcomes = [tell(plan, faults) for faults in partitions_mid_round()]
    assert sum(any(result.counted_twice for result in outcome.results.values()) for outcome in outcomes) >= 4


def test_a_receiver_that_counts_what_was_taken_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer says that it forgot the share, its store does not: the check sees it."""
    monkeypatch.setattr(Store, "forget", lambda self, phase, round_, sender: None)
    plan, wrong = inca(4, 6), 0
    split = [Partition(frozenset({1, 2}), 2.5, 7.0)]
    for seed in range(20):
        crash = {1: [Crash(after=3.0, away=3.0)]}
        outcome = tell(plan, FaultPlan(NetworkConditions(seed, 0.3, 0.1, 0.2, partitions=split), crash))
        try:
            check_run(plan, values_of(4), outcome)
        except AssertionError:
            wrong += 1
        wrong += any(result.counted_twice for result in outcome.results.values())
    assert wrong > 0


_MASKED = {"threshold": 3, "minimum": 3, "granularity": 2.0**-10, "sigma": 1.0, "clip": 0.5}
# Of protocols that make no template for a target: they find their noise by themselves.
_PACKED = {"members": 4, "colluding": 1, "colluding_members": 1, "secrets": 1, "minimum": 2, "gone": 1, "ballots": 3}
_SHARED = {**_PACKED, "step": 2.0**-10, "sigma": 1.0, "clip": 0.5, "dimension": 2}
PARAMETERS = {
    "priv-unit-g": {"epsilon": 1.0},
    "secagg": _MASKED,
    "secagg-plus": {"degree": 3, **_MASKED},
    "packed-sharing": _SHARED,
}


def plan_of(protocol: type[Mechanism], parties: int) -> Plan:
    """Any protocol with some noise and values that it accepts; few rounds where it mixes."""
    options: dict[str, Any] = {"rounds": 4} if "rounds" in options_of(protocol) else {}
    if protocol.name == "consensus":
        options = {"graph": "ring", "iterations": 4}
    # The unit sphere is as wide as that; others hold no more than the smaller one.
    sensitivity = 2.0 if protocol.TRAITS.domain != ANY_DOMAIN else 0.5
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=2, sensitivity=sensitivity)
    if protocol.name in PARAMETERS:
        return Plan(target, protocol.read(PARAMETERS[protocol.name]).resolved(parties))
    return Plan(target, template_of(configure(protocol.name, options), target))


def accepted_values(plan: Plan, parties: int) -> Vector:
    return plan.protocol.TRAITS.inputs.fitted(plan.protocol, values_of(parties) / 4, np.ones(parties))


def every_protocol(protocol: type[Mechanism], examples: int) -> None:
    parties = 4
    plan = plan_of(protocol, parties)
    values = accepted_values(plan, parties)

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(fault_plans(parties))
    def holds(faults: FaultPlan) -> None:
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            check_run(plan, values, run_with_faults(plan, values, faults, Path(directory)))

    holds()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("protocol", registry().values(), ids=lambda protocol: protocol.name)
def test_the_invariant_for_every_protocol(protocol: type[Mechanism]) -> None:
    every_protocol(protocol, 6)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", registry().values(), ids=lambda protocol: protocol.name)
def test_the_invariant_for_every_protocol_at_length(protocol: type[Mechanism]) -> None:
    every_protocol(protocol, 80)
