"""How one round of a session is carried out where all parties are in this process, with real noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from quietmean.core.arrays import Mask
from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import PartyId, PopulationNoise, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.planning.accuracy import stated_variance
from quietmean.planning.gate import decide
from quietmean.planning.plan import Plan
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.randomness.stacked import StackedNoise


@dataclass(frozen=True, eq=False)
class RoundRelease:
    """What a round released: the mean (d,) of the vectors counted, and the execution that says what happened."""

    mean: Vector
    execution: Execution

    @property
    def counted(self) -> Mask:
        """The parties whose vectors are in the mean, shape (n,)."""
        return self.execution.contributors()

    @property
    def variance(self) -> float:
        """The variance of the noise in each coordinate of the mean."""
        return stated_variance(self.execution)


class Engine(Protocol):
    """Carries out rounds of all parties in this process; of one party between machines see :mod:`.joined`."""

    def exchange(
        self, plan: Plan, round_: int, values: Mapping[PartyId, Vector], weights: Vector, leaves: Mapping[PartyId, int]
    ) -> RoundRelease:
        """One round of a session. ``values``: of the parties that are there, each (d,); ``weights``, (n,), are public.

        ``leaves``: parties that are gone for the rest of this round after so many steps of the protocol. Raises
        :class:`ProtocolFailure` if the round has no result.
        """


class MemoryEngine:
    """All parties in this process: the same programs as between machines, each with noise of its own.

    ``noise``: of the n parties in a round, fresh from the operating system by default.
    """

    def __init__(self, noise: Callable[[int, int], PopulationNoise] | None = None) -> None:
        self._noise = noise

    def exchange(
        self, plan: Plan, round_: int, values: Mapping[PartyId, Vector], weights: Vector, leaves: Mapping[PartyId, int]
    ) -> RoundRelease:
        parties, dimension, protocol = plan.target.parties, plan.target.dimension, plan.protocol
        rows = np.zeros((parties, dimension))
        for party, value in values.items():
            rows[party] = value
        trace = ExecutionTrace.everyone(protocol.rounds, parties)
        for party in range(parties):
            last = leaves.get(party, protocol.rounds) if party in values else 0
            trace.online[last + 1 :, party] = False
        execution = plan.execution(Seed.from_os(), trace, weights)
        if plan.gated and not decide(plan.target, execution).passes:
            raise ProtocolFailure("the round has no result: what was seen of it would be more than the session allows")
        noise = StackedNoise.from_os(parties) if self._noise is None else self._noise(round_, parties)
        releases = protocol.batch(execution.schedule, trace, rows, weights, noise)
        by = releases.by
        if not protocol.traits.releases_are_public:
            # Every party has the result; that of the first is taken for all.
            by = by & (by.cumsum() == 1)
        weight = float(releases.weight[by].sum())
        if not weight > 0:
            there = len(values)
            raise ProtocolFailure(
                f"the round has no result: {there} of {parties} parties were there, of whom {len(leaves)} left; wait for more"
            )
        return RoundRelease(execution.decode(releases.vector[by].sum(axis=0), weight), execution)
