"""Parameters of Muffliato and its graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.graphs import Schedule, make_schedule
from quietmean.graphs.schedule import SCHEDULES, STATIC_TOPOLOGIES
from quietmean.protocols.discrete import DiscreteNoise
from quietmean.randomness import Seed

EXPANDER = "expander"
GRAPHS = (*SCHEDULES, EXPANDER)
ACCELERATED = "chebyshev"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MuffliatoParameters(DiscreteNoise):
    """``sigma``: standard deviation of every party's noise, added once. ``schedule`` names a graph; exchanges go both ways.

    The static graphs and ``expander`` (random cycles) are the same in all rounds, as in the paper; the others are drawn anew each
    round. ``momentum`` is gamma of x(t+1) = gamma W x(t) + (1 - gamma) x(t-1): 1 is plain gossip, below 2; "chebyshev" is the
    paper's value for the graph.
    """

    sigma: float = parameter(
        help="standard deviation of every party's noise", at_least=0, remedy="a standard deviation is a finite number >= 0"
    )
    rounds: int = parameter(
        help="rounds of gossip", option=True, at_least=1, at_most=10_000, remedy="gossip needs at least 1 round: choose 1..10000"
    )
    schedule: str = parameter(help="the graph along which parties gossip", option=True, required=False, choices=GRAPHS)
    out_degree: int = parameter(
        help="to how many others each party sends in a round",
        option=True,
        flag="neighbours",
        required=False,
        at_least=1,
        remedy="choose 1 or more",
    )
    momentum: float | str = parameter(
        help="acceleration: 1 for plain gossip, chebyshev, or 1 <= momentum < 2",
        option=True,
        required=False,
        at_least=1,
        below=2,
        remedy=f"choose 1 for plain gossip, {ACCELERATED!r}, or 1 <= momentum < 2",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.momentum, str) and self.momentum != ACCELERATED:
            raise InputError(f"momentum is {self.momentum!r}: choose 1 for plain gossip, {ACCELERATED!r}, or 1 <= momentum < 2")

    @property
    def grid(self) -> float:
        """0: what is sent are mixtures of noisy values, and these are no multiples of the step any more."""
        return 0.0

    @property
    def own_deviation(self) -> float:
        return self.sigma

    @property
    def gamma(self) -> float:
        """The momentum of a complete value."""
        return float(self.momentum)

    def on_graph(self, parties: int) -> Self:
        """The parameters with graph and momentum filled in for this number of parties."""
        graph = self.filled(schedule=default_graph(parties))
        graph = graph.filled(out_degree=default_degree(graph.schedule, parties), momentum=1.0)
        if graph.momentum != ACCELERATED:
            return graph
        # The acceleration is for one fixed matrix; where the matrix changes, gossip is not accelerated.
        gap = spectral_gap(graph.schedule, parties, graph.out_degree) if _stays(graph.schedule) else 0.0
        return replace(graph, momentum=chebyshev_momentum(gap) if gap else 1.0)


def default_graph(parties: int) -> str:
    """A hypercube where there is one, else a random graph that mixes as fast."""
    return "hypercube" if parties & (parties - 1) == 0 else EXPANDER


def default_degree(schedule: str, parties: int) -> int:
    return min(parties - 1, max(2, math.ceil(math.log2(max(parties, 2)) / 2))) if schedule == EXPANDER else 1


def default_rounds(schedule: str, parties: int, out_degree: int) -> int:
    """ceil(ln n / sqrt(gap)): what the paper gives with acceleration, for a variance of at least 1.

    On graphs that change, gossip shrinks differences by about 1 / sqrt(degree + 1) a round: so many that they are 1/n.
    """
    if not _stays(schedule):
        return max(1, math.ceil(2.0 * math.log(parties) / math.log(2 * min(out_degree, parties - 1) + 1)))
    return max(1, math.ceil(math.log(parties) / math.sqrt(spectral_gap(schedule, parties, out_degree))))


def gossip_schedule(parameters: MuffliatoParameters, parties: int, seed: Seed) -> Schedule:
    """The graph, in both directions, for every round. ``expander`` is the union of ``out_degree`` random cycles."""
    out_degree, rounds = min(parameters.out_degree, parties - 1), parameters.rounds
    if not _stays(parameters.schedule):
        drawn = make_schedule(parameters.schedule, seed, parties, rounds, out_degree).neighbours
        return Schedule.from_lists([_both_ways(table, parties) for table in drawn], parties)
    if parameters.schedule == EXPANDER:
        table = np.concatenate(list(make_schedule("permutation", seed, parties, out_degree, 1).neighbours), axis=1)
    else:
        table = make_schedule(parameters.schedule, seed, parties, 1, out_degree).neighbours[0]
    return Schedule.from_lists([_both_ways(table, parties)] * rounds, parties)


def _stays(schedule: str) -> bool:
    return schedule == EXPANDER or schedule in STATIC_TOPOLOGIES


def _both_ways(table: NDArray[np.int32], parties: int) -> list[list[int]]:
    linked: list[set[int]] = [set() for _ in range(parties)]
    for party, neighbour in zip(np.repeat(np.arange(parties), table.shape[1]).tolist(), table.reshape(-1).tolist(), strict=True):
        linked[party].add(neighbour)
        linked[neighbour].add(party)
    return [sorted(row) for row in linked]


def spectral_gap(schedule: str, parties: int, out_degree: int) -> float:
    """1 - max |lambda| over all eigenvalues but the first of W = (I + A) / (degree + 1), without the graph's seed.

    Exact, but for ``expander``, of whose random graphs it is nearly always a lower bound in the limit (Friedman 2008):
    |lambda| <= (1 + 2 sqrt(degree - 1)) / (degree + 1).
    """
    if schedule == EXPANDER:
        degree = min(2 * out_degree, parties - 1)
        if degree >= parties - 1:
            return 1.0
        return max(1e-3, 1.0 - (1.0 + 2.0 * math.sqrt(degree - 1)) / (degree + 1))
    if schedule == "complete":
        return 1.0
    if schedule == "hypercube":
        bits = parties.bit_length() - 1
        return 1.0 - _second(np.array([(1 + bits - 2 * flipped) / (bits + 1) for flipped in range(1, bits + 1)]))
    # A ring with its nearest neighbours, in whatever order: eigenvalues of a circulant matrix.
    row = np.zeros(parties)
    steps = np.arange(1, min(out_degree, parties - 1) + 1)
    row[steps], row[-steps % parties], row[0] = 1.0, 1.0, 1.0
    return 1.0 - _second(np.fft.fft(row / row.sum()).real[1:])


def _second(eigenvalues: Array) -> float:
    return min(1.0 - 1e-12, float(np.abs(eigenvalues).max(initial=0.0)))


def chebyshev_momentum(gap: float) -> float:
    """gamma = 2 (1 - sqrt(gap (1 - gap / 4))) / (1 - gap / 2)^2: the paper's acceleration."""
    return 2.0 * (1.0 - math.sqrt(gap * (1.0 - gap / 4.0))) / (1.0 - gap / 2.0) ** 2
