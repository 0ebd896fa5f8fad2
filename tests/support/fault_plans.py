"""Hypothesis strategies: random fault plans. A failing one shrinks to fewer crashes, a better network, shorter partitions."""

from __future__ import annotations

from hypothesis import strategies as st

from support.faults import Crash, FaultPlan
from support.network import NetworkConditions, Partition


def _probabilities(largest: float) -> st.SearchStrategy[float]:
    return st.one_of(st.just(0.0), st.floats(0.0, largest))


@st.composite
def network_conditions(draw: st.DrawFn, parties: int, silence_timeout: float) -> NetworkConditions:
    """Delays up to a third of ``patience`` seconds on average, partitions up to three times as long as that."""
    sides = st.frozensets(st.integers(0, parties - 1), min_size=1, max_size=parties - 1)
    spans = st.tuples(st.floats(0.0, 2 * silence_timeout), st.floats(0.0, 3 * silence_timeout))
    partitions = draw(st.lists(st.tuples(sides, spans), max_size=2))
    return NetworkConditions(
        seed=draw(st.integers(0, 2**31)),
        delay=draw(st.floats(0.001, silence_timeout / 3)),
        loss=draw(_probabilities(0.2)),
        answer_loss=draw(_probabilities(0.2)),
        duplicates=draw(_probabilities(0.3)),
        partitions=tuple(Partition(side, begin, begin + length) for side, (begin, length) in partitions),
    )


def crashes(writes: int, longest: float, for_good: bool = True) -> st.SearchStrategy[Crash]:
    """At one of the first ``writes`` durable writes or at any moment; away for up to ``longest`` seconds, or for good."""
    away = st.floats(0.0, longest)
    back = st.one_of(away, st.none()) if for_good else away
    moments = st.one_of(st.none(), st.floats(0.0, 8.0))
    return st.builds(Crash, write=st.integers(0, writes), committed=st.booleans(), after=moments, away=back)


@st.composite
def fault_plans(draw: st.DrawFn, parties: int, writes: int = 30, round_timeout: float = 4.0) -> FaultPlan:
    """Anything may happen."""
    lives = st.lists(crashes(writes, 2 * round_timeout), max_size=3)
    dying = draw(st.dictionaries(st.integers(0, parties - 1), lives, max_size=parties))
    return FaultPlan(draw(network_conditions(parties, round_timeout)), dying, round_timeout=round_timeout)


@st.composite
def short_fault_plans(draw: st.DrawFn, parties: int, writes: int = 30, round_timeout: float = 20.0) -> FaultPlan:
    """Nothing lasts as long as a time-out: everybody is back in time, so that nothing may be lost at all."""
    lives = st.lists(crashes(writes, 0.1 * round_timeout, for_good=False), max_size=2)
    dying = draw(st.dictionaries(st.integers(0, parties - 1), lives, max_size=parties))
    conditions = NetworkConditions(
        seed=draw(st.integers(0, 2**31)),
        delay=draw(st.floats(0.001, 0.02 * round_timeout)),
        loss=draw(_probabilities(0.1)),
        answer_loss=draw(_probabilities(0.1)),
        duplicates=draw(_probabilities(0.3)),
    )
    return FaultPlan(conditions, dying, round_timeout=round_timeout)
