"""The parties of GOPA: those that send to a collector, the party that collects, and those of a study without one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.party import Message, NoiseGroup, PartyId, Release, Step, Vector, total_weight
from quietmean.core.schema import parameter
from quietmean.graphs import ExecutionTrace, Schedule, arrivals, complete_pairs, make_schedule, neighbour_table
from quietmean.graphs.schedule import NOBODY
from quietmean.protocols.discrete import DiscreteNoise
from quietmean.protocols.publishing import PrivateValue
from quietmean.randomness import Seed

# The rounds with a collector.
PUBLISH, ANNOUNCE, ROLL_BACK = 1, 2, 3
ROUNDS = 3
# The rounds without one: what is rolled back is known before anything is published.
EXCHANGE, RELEASE = 1, 2
PEER_ROUNDS = 2
# Up to this many parties share noise in all pairs by default, where no collector has to hear of every pair.
_MOST_COMPLETE, _MANY = 1000, 200
_DEVIATION = "choose a finite number >= 0"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GopaParameters(DiscreteNoise):
    """``sigma_star``: standard deviation of every party's own noise; ``sigma_delta``: of every pair's noise, which cancels.

    Each party chooses ``partners`` others at random, and the pairs are the union of all choices; n - 1 and more give the complete
    graph. With fewer than ``least_partners`` others that are there to share noise, a party publishes nothing. ``aggregator``: the
    party that collects what the others send, and learns no more than any colluding party may learn; without one all publish.
    """

    sigma_star: float = parameter(help="standard deviation of every party's own noise", at_least=0, remedy=_DEVIATION)
    sigma_delta: float = parameter(help="standard deviation of every pair's noise", at_least=0, remedy=_DEVIATION)
    partners: int = parameter(
        help="with how many others each party chooses to share noise",
        option=True,
        required=False,
        at_least=1,
        remedy="choose 1 or more",
    )
    least_partners: int = parameter(
        help="with how few others that are there a party still publishes; without a collector",
        option=True,
        required=False,
        at_least=0,
        remedy="choose 0 or more",
        written=lambda parameters: bool(parameters.least_partners),
    )
    aggregator: PartyId | None = parameter(
        None, help="the party that collects what the others send; by default all publish", option=True
    )

    @property
    def own_deviation(self) -> float:
        return self.sigma_star

    @property
    def collector(self) -> PartyId:
        """The aggregator, where there is one."""
        if self.aggregator is None:
            raise TypeError("without a collector every party publishes")
        return self.aggregator


def default_partners(parties: int, colluding: int = 0) -> int:
    """Enough partners that the honest parties that stay are connected, whichever parties collude.

    Colluders may be all the partners that one party chose: with twice as many, half of its partners are honest.
    """
    return min(parties - 1, 2 * colluding + math.ceil(math.log2(parties)) + 3)


def default_peers(parties: int, colluding: int) -> int:
    """Partners where nobody collects: all others while these are few, since what is exchanged is one byte for each."""
    return parties - 1 if parties <= _MOST_COMPLETE else min(parties - 1, max(_MANY, default_partners(parties, colluding)))


def pair_chance(parties: int, partners: int) -> float:
    """How likely two parties are a pair: at least one chose the other."""
    return 1.0 - max(0.0, 1.0 - partners / (parties - 1)) ** 2


def draw_pairs(parties: int, partners: int, seed: Seed) -> Ints:
    """The pairs, shape (M, 2), smaller number first, in rising order: the union of all parties' random choices."""
    if partners >= parties - 1:
        return complete_pairs(parties)
    chosen = make_schedule("uniform", seed.derive("pairs"), parties, 1, partners).neighbours[0]
    ends = np.column_stack([np.repeat(np.arange(parties), partners), chosen.reshape(-1)])
    pairs: Ints = np.unique(np.sort(ends, axis=1), axis=0).astype(np.int64)
    return pairs


def exchange_schedule(parties: int, pairs: Ints) -> Schedule:
    """The schedule without a collector: in the first round every party sends to its partners, in the second it publishes."""
    partners = neighbour_table(pairs, parties)
    return Schedule(np.stack([partners, np.full_like(partners, NOBODY)]), pairs)


def sign(party: PartyId, other: PartyId) -> float:
    """The larger number adds what the pair shares, the smaller subtracts it."""
    return 1.0 if party > other else -1.0


def list_bytes(parties: int) -> int:
    """Bytes of a list of parties."""
    return -(-parties // 8)


def write_list(arrived: Collection[PartyId], parties: int) -> bytes:
    """One bit for each party."""
    present = np.zeros(parties, dtype=np.bool_)
    present[list(arrived)] = True
    return np.packbits(present).tobytes()


def read_list(content: bytes, parties: int) -> frozenset[PartyId] | None:
    """The parties on the list; None if it is not a valid list for so many parties."""
    if len(content) != list_bytes(parties):
        return None
    present = np.unpackbits(np.frombuffer(content, dtype=np.uint8))
    return None if present[parties:].any() else frozenset(np.nonzero(present)[0].tolist())


class MaskedValue(PrivateValue[GopaParameters]):
    """One party's value under its own noise and that of its partners by the schedule."""

    @cached_property
    def _partners(self) -> tuple[PartyId, ...]:
        return self._schedule.partners(self._party)

    def _masked(self, partners: Iterable[PartyId]) -> Vector:
        """Value, own noise and the noise shared with each of these partners."""
        size, sigma = self._value.size, self._parameters.sigma_star
        own = self._numbers.noise(self._noise, NoiseGroup.INDEPENDENT, 0, sigma, size)
        return self._numbers.total([self._value, own, *map(self._shared, partners)])

    def _shared(self, other: PartyId) -> Vector:
        size, sigma = self._value.size, self._parameters.sigma_delta
        shared = self._numbers.noise(self._noise, NoiseGroup.CANCELLING, 0, sigma, size, shared_with=other)
        return shared * sign(self._party, other)


class _Collected(MaskedValue):
    """What a party is asked for by the collector: the noise to remove again."""

    rounds = ROUNDS

    @property
    def _aggregator(self) -> PartyId:
        return self._parameters.collector

    def _rollback(self, absent: Iterable[PartyId]) -> Vector | None:
        """The negative of the noise shared with absent partners; None where there is none."""
        terms = [self._shared(other) * -1.0 for other in absent]
        return self._numbers.total(terms) if terms else None

    def _absent_partners(self, party: PartyId, arrived: frozenset[PartyId]) -> list[PartyId]:
        return [other for other in self._schedule.partners(party) if other not in arrived]


@dataclass(frozen=True, slots=True)
class GopaState:
    """``published``: this party's masked value reached the aggregator, as far as it knows."""

    round: int
    published: bool = False


class GopaParty(_Collected):
    """Publishes its masked value. Once it has the list of those that did, it removes the noise shared with the others."""

    state_type = GopaState

    def start(self) -> Step[GopaState]:
        return Step(GopaState(PUBLISH), (self._to_aggregator(PUBLISH, self._masked(self._partners), self._weight),))

    def end_round(self, state: GopaState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[GopaState]:
        later = GopaState(state.round + 1, state.published or (state.round == PUBLISH and self._aggregator in delivered))
        if state.round != ANNOUNCE or not state.published:
            return Step(later)
        arrived = self._read_arrived(received)
        if arrived is None or self._party not in arrived:
            return Step(later)
        rollback = self._rollback(self._absent_partners(self._party, arrived))
        return Step(later) if rollback is None else Step(later, (self._to_aggregator(ROLL_BACK, rollback, 0.0),))

    def miss_round(self, state: GopaState) -> Step[GopaState]:
        return Step(replace(state, round=state.round + 1))

    def expects(self, state: GopaState) -> frozenset[PartyId]:
        return frozenset({self._aggregator}) if state.round == ANNOUNCE and state.published else frozenset()

    def _read_arrived(self, received: Sequence[Message]) -> frozenset[PartyId] | None:
        lists = [read_list(message.content, self._schedule.parties) for message in received if message.sender == self._aggregator]
        return lists[0] if len(lists) == 1 else None

    def _to_aggregator(self, round_: int, vector: Vector, weight: float) -> Message:
        return Message(self._party, (self._aggregator,), round_, vector, weight)


@dataclass(frozen=True, slots=True)
class GopaAggregatorState:
    """``total`` (d,) and ``weight`` of all that ``arrived``, in rising order; empty before the first round is over."""

    round: int
    total: Vector
    weight: float
    arrived: tuple[PartyId, ...]


class GopaAggregator(_Collected):
    """Adds up what is published and its own masked value; sends the list of those that published; adds the rollbacks."""

    state_type = GopaAggregatorState

    def start(self) -> Step[GopaAggregatorState]:
        return Step(GopaAggregatorState(PUBLISH, np.zeros(0), 0.0, ()))

    def end_round(
        self, state: GopaAggregatorState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[GopaAggregatorState]:
        vectors = sorted((message for message in received if self._is_vector(message)), key=lambda message: message.sender)
        if state.round == PUBLISH:
            return self._collect(vectors)
        later = replace(state, round=state.round + 1)
        return self._release(later, vectors) if state.round == ROLL_BACK and state.arrived else Step(later)

    def miss_round(self, state: GopaAggregatorState) -> Step[GopaAggregatorState]:
        return Step(replace(state, round=state.round + 1))

    def expects(self, state: GopaAggregatorState) -> frozenset[PartyId]:
        if state.round == PUBLISH:
            return frozenset(range(self._schedule.parties)) - {self._party}
        if state.round != ROLL_BACK:
            return frozenset()
        arrived = frozenset(state.arrived)
        return frozenset(party for party in arrived - {self._party} if self._absent_partners(party, arrived))

    def _collect(self, messages: Sequence[Message]) -> Step[GopaAggregatorState]:
        total = self._numbers.total([self._masked(self._partners), *(message.vector for message in messages)])
        weight = total_weight(self._weight, messages)
        others = tuple(message.sender for message in messages)
        arrived = tuple(sorted((self._party, *others)))
        state = GopaAggregatorState(ANNOUNCE, total, weight, arrived)
        if not others:
            return Step(state)
        content = write_list(arrived, self._schedule.parties)
        return Step(state, (Message(self._party, others, ANNOUNCE, np.zeros(0), 0.0, content),))

    def _release(self, state: GopaAggregatorState, messages: Sequence[Message]) -> Step[GopaAggregatorState]:
        own = self._rollback(self._absent_partners(self._party, frozenset(state.arrived)))
        rollbacks = [message.vector for message in messages] + ([] if own is None else [own])
        return Step(state, release=Release(self._numbers.total([state.total, *rollbacks]), state.weight))

    def _is_vector(self, message: Message) -> bool:
        # Messages may come without a vector: only the aggregator's own list does.
        return message.vector.size == self._value.size


# The message of a party to its partners: it is online, and adds their shared noise.
HERE = b"\x01"


@dataclass(frozen=True, slots=True)
class GopaPeerState:
    """``sharing``: the partners whose noise is on what this party publishes; empty before the first round is over."""

    round: int
    sharing: tuple[PartyId, ...] = ()


class GopaPeer(MaskedValue):
    """Tells its partners that it is there; then publishes its value under the noise that it shares with those that are.

    A partner counts if each heard the other, as far as this party knows. What others would have had to roll back is so left out
    before anything is published: nobody learns it. A party that leaves after the first round leaves its noise with its partners.
    """

    rounds = PEER_ROUNDS
    state_type = GopaPeerState

    def start(self) -> Step[GopaPeerState]:
        recipients = self._schedule.recipients(EXCHANGE, self._party)
        if not recipients:
            return Step(GopaPeerState(EXCHANGE))
        return Step(GopaPeerState(EXCHANGE), (Message(self._party, recipients, EXCHANGE, np.zeros(0), 0.0, HERE),))

    def end_round(self, state: GopaPeerState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[GopaPeerState]:
        later = replace(state, round=state.round + 1)
        if state.round == EXCHANGE:
            heard = {message.sender for message in received if message.content == HERE and not message.vector.size}
            return Step(replace(later, sharing=tuple(other for other in self._partners if other in heard & delivered)))
        if state.round != RELEASE or len(state.sharing) < self._parameters.least_partners:
            return Step(later)
        return Step(later, release=Release(self._masked(state.sharing), self._weight))

    def miss_round(self, state: GopaPeerState) -> Step[GopaPeerState]:
        return Step(replace(state, round=state.round + 1))

    def expects(self, state: GopaPeerState) -> frozenset[PartyId]:
        return self._schedule.senders(state.round, self._party)


@dataclass(frozen=True, eq=False)
class GopaOutcome:
    """Masks of shape (n,): the parties whose masked value ``arrived``, those ``informed`` of it, and those that ``rolled_back``.

    Who is informed received the aggregator's list with its own name, and sends its rollback; who has rolled back is informed, and
    its message reached the aggregator in time. ``released``: the aggregator stayed to the end and had something to release.
    """

    arrived: Mask
    informed: Mask
    rolled_back: Mask
    released: bool

    @classmethod
    def of(cls, aggregator: PartyId, schedule: Schedule, trace: ExecutionTrace) -> GopaOutcome:
        reached = trace.delivered(schedule)
        to_aggregator = (reached & (schedule.neighbours == aggregator)).any(axis=2)
        arrived = to_aggregator[PUBLISH - 1].copy()
        arrived[aggregator] = trace.online[PUBLISH, aggregator]
        informed = np.zeros(schedule.parties, dtype=np.bool_)
        informed[schedule.neighbours[ANNOUNCE - 1, aggregator][reached[ANNOUNCE - 1, aggregator]]] = True
        informed &= arrived
        rolled_back = informed & to_aggregator[ROLL_BACK - 1]
        released = bool(trace.finished[aggregator] and arrived[aggregator])
        rolled_back[aggregator] = released
        return cls(arrived, informed, rolled_back, released)


@dataclass(frozen=True, eq=False)
class PeerOutcome:
    """The outcome without a collector: ``sharing``, (M, 2), says of which pairs the smaller and the larger party add the noise.

    ``published``, shape (n,): the parties that stayed and have as many such partners as they must have.
    """

    pairs: Ints
    sharing: Mask
    published: Mask

    @classmethod
    def of(cls, least_partners: int, schedule: Schedule, trace: ExecutionTrace) -> PeerOutcome:
        heard, acknowledged = (_table(schedule, table) for table in trace.deliveries(schedule))
        # A party counts on a partner whose message it received, and which acknowledged its own.
        counts_on = heard.T & acknowledged
        low, high = schedule.pairs.T
        sharing = np.column_stack([counts_on[low, high], counts_on[high, low]])
        partners = np.bincount(schedule.pairs[sharing], minlength=schedule.parties)
        return cls(schedule.pairs, sharing, trace.online[RELEASE] & (partners >= least_partners))

    @property
    def added(self) -> Mask:
        """Which ends of the pairs have published what they share, shape (M, 2)."""
        added: Mask = self.sharing & self.published[self.pairs]
        return added

    @property
    def left_over(self) -> int:
        """How many terms are in the sum of all that was published from one end only, and so do not cancel."""
        return int((self.added.sum(axis=1) == 1).sum())


def _table(schedule: Schedule, messages: Mask) -> Mask:
    """Whose message of the exchange (row) is marked for which recipient (column), shape (n, n)."""
    table = np.zeros((schedule.parties, schedule.parties), dtype=np.bool_)
    table[arrivals(schedule, messages, EXCHANGE)] = True
    return table
