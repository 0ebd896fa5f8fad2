"""One party of Muffliato, as a state machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.party import Message, NoiseGroup, PartyId, Release, Step, Vector
from quietmean.core.schema import filled, parameter
from quietmean.graphs import ExecutionTrace, Flow, Schedule, arrivals, make_schedule
from quietmean.graphs.schedule import NOBODY, SCHEDULES, STATIC_TOPOLOGIES
from quietmean.protocols.discrete import DiscreteNoise
from quietmean.protocols.publishing import PrivateValue
from quietmean.randomness import Seed
from quietmean.transcript.numbers import NoTerms, NumericReading
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

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

    sigma: float = parameter(help="standard deviation of every party's noise", at_least=0, remedy="choose a finite number >= 0")
    rounds: int = parameter(help="rounds of gossip", option=True, at_least=1, at_most=10_000, remedy="choose 1..10000")
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
            raise InputError(f"momentum is {self.momentum!r}. Choose 1 for plain gossip, {ACCELERATED!r}, or 1 <= momentum < 2.")

    @property
    def own_deviation(self) -> float:
        return self.sigma

    @property
    def gamma(self) -> float:
        """The momentum of a complete value."""
        return float(self.momentum)

    def on_graph(self, parties: int) -> Self:
        """The parameters with graph and momentum filled in for this number of parties."""
        graph = filled(self, schedule=default_graph(parties))
        graph = filled(graph, out_degree=default_degree(graph.schedule, parties), momentum=1.0)
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


class Exchanges(NamedTuple):
    """Parties and others that send to each other in a round, as ordered pairs by party; all with one entry for each pair.

    ``weight`` is 1 / (larger of both degrees + 1). ``sent`` is the place of the message from party to other in the flattened
    table of neighbours (n, k_max), ``received`` that of the message from other to party.
    """

    party: Ints
    other: Ints
    weight: Array
    sent: Ints
    received: Ints


def planned_exchanges(schedule: Schedule, round_: int) -> Exchanges:
    """The exchanges of a round in which every message arrives."""
    table = schedule.neighbours[round_ - 1]
    message = (table != NOBODY).ravel().nonzero()[0]
    party, other = message // max(table.shape[1], 1), table.ravel()[message].astype(np.int64)
    # In the order of unordered pairs, the two messages of an exchange are next to each other.
    pair = np.minimum(party, other) * schedule.parties + np.maximum(party, other)
    order = pair.argsort(kind="stable")
    first = (pair[order[1:]] == pair[order[:-1]]).nonzero()[0]
    back = np.full(message.size, NOBODY)
    back[order[first]], back[order[first + 1]] = order[first + 1], order[first]
    mutual = (back != NOBODY).nonzero()[0]
    party, other = party[mutual], other[mutual]
    degree = np.bincount(party, minlength=schedule.parties)
    weight = 1.0 / (np.maximum(degree[party], degree[other]) + 1.0)
    return Exchanges(party, other, weight, message[mutual], message[back[mutual]])


# For party machines, one after the other; a batch of many executions is too large to keep.
_kept_exchanges = lru_cache(maxsize=64)(planned_exchanges)


def shares(schedule: Schedule, round_: int, party: PartyId) -> dict[PartyId, float]:
    """The parties that ``party`` exchanges with in a round, and the weight of each exchange."""
    parties, others, weights, *_ = _kept_exchanges(schedule, round_)
    own = slice(*np.searchsorted(parties, [party, party + 1]).tolist())
    return dict(zip(others[own].tolist(), weights[own].tolist(), strict=True))


def gossip_flows(schedule: Schedule, delivered: Mask, acknowledged: Mask) -> Iterator[Flow]:
    """W of each round as it took place, shape (n, n): rows sum to 1; symmetric where all senders know what arrived.

    A party uses a message if it knows that its own reached the other party. ``delivered`` and ``acknowledged``, shape
    (T, n, k_max), are those of the trace.
    """
    everyone, shape = np.arange(schedule.parties), (schedule.parties, schedule.parties)
    for index, table in enumerate(schedule.neighbours):
        # A graph that stays the same has the same exchanges.
        if index == 0 or not np.array_equal(table, schedule.neighbours[index - 1]):
            planned = planned_exchanges(schedule, index + 1)
        used = delivered[index].ravel()[planned.received] & acknowledged[index].ravel()[planned.sent]
        party, other, weight = planned.party[used], planned.other[used], planned.weight[used]
        kept = 1.0 - np.bincount(party, weights=weight, minlength=schedule.parties)
        to, source = np.concatenate([party, everyone]), np.concatenate([other, everyone])
        yield Flow(shape, to, source, np.concatenate([weight, kept]))


@dataclass(frozen=True, slots=True)
class MuffliatoState:
    """``held`` is x(t), shape (d,), with its weight; ``previous`` is x(t-1)."""

    round: int
    held: Vector
    weight: float
    previous: Vector
    previous_weight: float


class MuffliatoParty(PrivateValue[MuffliatoParameters]):
    """Adds noise once, then sends what it holds to its neighbours, round after round, and averages with theirs.

    An exchange counts for a party if it knows that both messages arrived. If both parties know, the exchange does not change the
    sum over all parties. If only one of the two messages arrived, neither party uses it, though its receiver has seen it. If one
    party does not know that its own message arrived, only the other one uses the exchange.
    """

    state_type = MuffliatoState

    @property
    def rounds(self) -> int:
        return self._parameters.rounds

    def start(self) -> Step[MuffliatoState]:
        numbers, sigma = self._numbers, self._parameters.sigma
        own = numbers.noise(self._noise, NoiseGroup.INDEPENDENT, 0, sigma, self._value.size)
        noisy = numbers.total([self._value, own])
        return self._proceed(MuffliatoState(1, noisy, self._weight, noisy, self._weight))

    def end_round(
        self, state: MuffliatoState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[MuffliatoState]:
        planned = shares(self._schedule, state.round, self._party)
        exchanged = [message for message in received if message.sender in delivered and message.sender in planned]
        # In a fixed order, so that a restarted party gets the same sum to the last bit.
        exchanged.sort(key=lambda message: message.sender)
        kept = 1.0 - sum(planned[message.sender] for message in exchanged)
        mixed, weight = state.held * kept, state.weight * kept
        for message in exchanged:
            share = planned[message.sender]
            mixed, weight = mixed + message.vector * share, weight + message.weight * share
        return self._proceed(self._accelerated(state, mixed, weight))

    def miss_round(self, state: MuffliatoState) -> Step[MuffliatoState]:
        later = self._accelerated(state, state.held, state.weight)
        return Step(later) if later.round > self.rounds else self._proceed(later)

    def expects(self, state: MuffliatoState) -> frozenset[PartyId]:
        return self._schedule.senders(state.round, self._party)

    def _accelerated(self, state: MuffliatoState, mixed: Vector, weight: float) -> MuffliatoState:
        momentum = self._parameters.gamma
        held = mixed * momentum + state.previous * (1.0 - momentum)
        its_weight = momentum * weight + (1.0 - momentum) * state.previous_weight
        return MuffliatoState(state.round + 1, held, its_weight, state.held, state.weight)

    def _proceed(self, state: MuffliatoState) -> Step[MuffliatoState]:
        if state.round > self.rounds:
            return Step(state, release=Release(state.held, state.weight))
        recipients = self._schedule.recipients(state.round, self._party)
        if not recipients:
            return Step(state)
        return Step(state, (Message(self._party, recipients, state.round, state.held, state.weight),))


def population(
    parameters: MuffliatoParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """What party i holds after round t is sent in round t + 1 to its neighbours. Nothing is released.

    ``values`` have n rows (d,), ``weights`` the shape (n,).
    """
    everyone, momentum = np.ones(schedule.parties, dtype=np.bool_), parameters.gamma
    delivered, acknowledged = trace.deliveries(schedule)
    held = previous = values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma)
    weight = before = weights.astype(np.float64)
    for round_, mixing in enumerate(gossip_flows(schedule, delivered, acknowledged), 1):
        held = out.send(held, everyone, round_, arrivals(schedule, delivered, round_))
        previous = held if round_ == 1 else previous
        held, previous = _accelerated(mixing @ held, previous, momentum), held
        weight, before = momentum * mixing.numbers(weight) + (1.0 - momentum) * before, weight
    return Results(out.keep(held, everyone, schedule.rounds + 1), weight, trace.finished)


def mixed(parameters: MuffliatoParameters, schedule: Schedule, trace: ExecutionTrace, start: Vector) -> Vector:
    """What every party holds after all rounds, shape (n, m), if it starts with its row of ``start`` (n, m) and without noise."""
    reading, weights = NumericReading(start), np.ones(schedule.parties)
    return reading.vectors(population(parameters, schedule, trace, reading.values, weights, NoTerms(*start.shape), reading).rows)


def _accelerated(mixed: Rows, previous: Rows, momentum: float) -> Rows:
    return mixed if momentum == 1.0 else mixed * momentum + previous * (1.0 - momentum)
