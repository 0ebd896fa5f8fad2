"""Schedules: for every round, the out-neighbours of every party, from a public seed; and how their messages mix rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.schema import require_known
from quietmean.randomness import BitStream, Seed

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def _ring(stream: BitStream, parties: int, out_degree: int) -> NDArray[np.int32]:
    # The k nearest clockwise.
    return ((np.arange(parties)[:, None] + np.arange(1, out_degree + 1)) % parties).astype(np.int32)


def _complete(stream: BitStream, parties: int, out_degree: int) -> NDArray[np.int32]:
    return _ring(stream, parties, parties - 1)


def _hypercube(stream: BitStream, parties: int, out_degree: int) -> NDArray[np.int32]:
    bits = parties.bit_length() - 1
    if parties != 1 << bits:
        raise InputError(f"a hypercube has a power of two of parties, not {parties}. Choose {1 << bits} or another graph.")
    return (np.arange(parties)[:, None] ^ (1 << np.arange(bits))[None, :]).astype(np.int32)


def _random_static(stream: BitStream, parties: int, out_degree: int) -> NDArray[np.int32]:
    # On a random ring the k nearest are k uniformly chosen neighbours that stay.
    cycle = stream.permutation(parties)
    table = np.empty((parties, out_degree), dtype=np.int32)
    for power in range(out_degree):
        table[cycle, power] = np.roll(cycle, -(power + 1))
    return table


STATIC_TOPOLOGIES: dict[str, Callable[[BitStream, int, int], NDArray[np.int32]]] = {
    "ring": _ring,
    "complete": _complete,
    "hypercube": _hypercube,
    "random-static": _random_static,
}


NOBODY = -1


@dataclass(frozen=True, eq=False)
class Schedule:
    """Out-neighbours, shape (T, n, k_max), padded with -1. Row ``t - 1`` belongs to round t = 1..T.

    A party divides what it holds evenly between itself and its out-neighbours: every share is 1 / (out-degree + 1).
    ``pairs``, shape (M, 2), smaller number first, in rising order: the parties that share a secret, where a protocol needs that.
    Raises :class:`InputError` for neighbours or pairs that are not as described.
    """

    neighbours: NDArray[np.int32]
    pairs: Ints = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))

    def __post_init__(self) -> None:
        self._check_pairs()
        table = np.sort(self.neighbours, axis=2)
        own = np.arange(self.parties)[None, :, None]
        if np.any(table >= self.parties) or np.any(table < NOBODY):
            raise _outside(self.parties)
        if np.any(table == own):
            raise InputError("a party is its own neighbour. Remove it, its own share stays with it anyway.")
        if np.any((table[:, :, 1:] == table[:, :, :-1]) & (table[:, :, 1:] != NOBODY)):
            raise InputError("a party has the same neighbour twice in one round. List each neighbour once.")

    def _check_pairs(self) -> None:
        pairs = self.pairs
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InputError(f"pairs have shape {pairs.shape}. Give two parties for each pair.")
        if pairs.size and (pairs.min() < 0 or pairs.max() >= self.parties or (pairs[:, 0] >= pairs[:, 1]).any()):
            raise InputError(f"a pair is not two parties of 0..{self.parties - 1}, the smaller number first. Correct it.")
        if (np.diff(pairs[:, 0] * self.parties + pairs[:, 1]) <= 0).any():
            raise InputError("pairs are listed twice or out of order. List each pair once, in rising order.")

    @property
    def partner_counts(self) -> Array:
        """With how many others each party shares a secret, shape (n,)."""
        return np.bincount(self.pairs.ravel(), minlength=self.parties).astype(np.float64)

    def partners(self, party: PartyId) -> tuple[PartyId, ...]:
        """The parties that share a secret with ``party``, in rising order."""
        if self.all_paired:
            # Lists of all partners would be larger than all else that a party holds.
            return (*range(party), *range(party + 1, self.parties))
        return self._partners[party]

    @property
    def all_paired(self) -> bool:
        """Does every party share a secret with every other? No pair occurs twice, so their number decides."""
        return self.parties > 1 and len(self.pairs) == self.parties * (self.parties - 1) // 2

    @cached_property
    def _partners(self) -> tuple[tuple[PartyId, ...], ...]:
        partners: list[list[PartyId]] = [[] for _ in range(self.parties)]
        for first, second in self.pairs.tolist():
            partners[first].append(second)
            partners[second].append(first)
        return tuple(tuple(sorted(row)) for row in partners)

    @property
    def rounds(self) -> int:
        return int(self.neighbours.shape[0])

    @property
    def parties(self) -> int:
        return int(self.neighbours.shape[1])

    @cached_property
    def out_degree(self) -> Ints:
        """The number of out-neighbours, shape (T, n)."""
        degree: Ints = (self.neighbours != NOBODY).sum(axis=2)
        return degree

    def recipients(self, round_: int, party: PartyId) -> tuple[PartyId, ...]:
        """The parties that ``party`` sends to in a round 1..T."""
        row = self.neighbours[round_ - 1, party]
        return tuple(int(other) for other in row if other != NOBODY)

    def senders(self, round_: int, party: PartyId) -> frozenset[PartyId]:
        """The parties that send to ``party`` in a round 1..T."""
        return frozenset(int(sender) for sender in np.nonzero((self.neighbours[round_ - 1] == party).any(axis=1))[0])

    def to_lists(self) -> list[list[list[PartyId]]]:
        """One list of out-neighbours for each round and party, as execution files have them."""
        return [[list(self.recipients(t, i)) for i in range(self.parties)] for t in range(1, self.rounds + 1)]

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[Sequence[PartyId]]], parties: int, pairs: Ints | None = None) -> Schedule:
        """Make a schedule from one list of out-neighbours per party per round; lists may differ in length.

        ``pairs`` has shape (M, 2).

        Raises :class:`InputError` if a round does not have one list per party, and for neighbours that are no parties.
        """
        widest = max((len(row) for round_ in lists for row in round_), default=0)
        table = np.full((len(lists), parties, widest), NOBODY, dtype=np.int32)
        for t, round_ in enumerate(lists):
            if len(round_) != parties:
                raise InputError(
                    f"round {t + 1} lists neighbours of {len(round_)} parties, not {parties}. Give one list per party."
                )
            for i, row in enumerate(round_):
                if row and not 0 <= min(row) <= max(row) < parties:
                    raise _outside(parties)
                table[t, i, : len(row)] = row
        return cls(table) if pairs is None else cls(table, pairs)

    @classmethod
    def silent(cls, rounds: int, parties: int) -> Schedule:
        """Rounds in which no party sends anything."""
        return cls(np.empty((rounds, parties, 0), dtype=np.int32))


def _outside(parties: int) -> InputError:
    return InputError(f"a neighbour is outside 0..{parties - 1}. Number parties from 0.")


def everybody(parties: int) -> NDArray[np.int32]:
    """All others of each party in rising order, shape (n, n - 1): a round in which everybody sends to everybody."""
    own = np.arange(parties)[:, None]
    others = np.arange(parties - 1)[None, :]
    table: NDArray[np.int32] = (others + (others >= own)).astype(np.int32)
    return table


def complete_pairs(parties: int) -> Ints:
    """All pairs in rising order, shape (n (n-1) / 2, 2): 8 n^2 bytes."""
    pairs = np.empty((parties * (parties - 1) // 2, 2), dtype=np.int64)
    pairs[:, 0] = np.repeat(np.arange(parties), np.arange(parties - 1, -1, -1))
    # The number within a row, plus the first partner of the row.
    row = pairs[:, 0]
    begin = row * (2 * parties - row - 1) // 2
    pairs[:, 1] = np.arange(len(pairs)) - begin + row + 1
    return pairs


def _distinct_others(stream: BitStream, parties: int, count: int) -> NDArray[np.int32]:
    """Draw for each party ``count`` distinct others in uniform random order, shape (n, count)."""
    own = np.arange(parties)[:, None]
    excluded = own
    picks = np.empty((parties, count), dtype=np.int32)
    for position in range(count):
        pick = stream.integers(parties - 1 - position, parties)
        # The pick counts only free parties: step over the taken ones, in rising order.
        for occupied in np.sort(excluded, axis=1).T:
            pick = pick + (pick >= occupied)
        picks[:, position] = pick
        excluded = np.hstack([excluded, pick[:, None]])
    return picks


def _uniform(stream: BitStream, parties: int, rounds: int, out_degree: int) -> NDArray[np.int32]:
    return np.stack([_distinct_others(stream, parties, out_degree) for _ in range(rounds)])


def _permutation(stream: BitStream, parties: int, rounds: int, out_degree: int) -> NDArray[np.int32]:
    # A uniform n-cycle and its first k powers: no party is its own neighbour, and each receives exactly k messages.
    table = np.empty((rounds, parties, out_degree), dtype=np.int32)
    for t in range(rounds):
        cycle = stream.permutation(parties)
        for power in range(out_degree):
            table[t, cycle, power] = np.roll(cycle, -(power + 1))
    return table


def _circulant(stream: BitStream, parties: int, rounds: int, out_degree: int) -> NDArray[np.int32]:
    # On public random positions in a ring, every round uses k shifts that were not used before; once all are used up the
    # shifts start over.
    position = stream.permutation(parties)
    party_at = np.argsort(position)
    epochs = -(-rounds * out_degree // (parties - 1))
    shifts = np.concatenate([stream.permutation(parties - 1) + 1 for _ in range(epochs)])
    table = np.empty((rounds, parties, out_degree), dtype=np.int32)
    for t in range(rounds):
        chosen = _next_distinct(shifts, t * out_degree, out_degree)
        table[t] = party_at[(position[:, None] + chosen[None, :]) % parties]
    return table


def _next_distinct(shifts: Ints, begin: int, count: int) -> Ints:
    # Where one pass over the shifts ends within a round, the next pass could repeat one of them: swap it with a later one.
    for position in range(begin, begin + count):
        later = position
        while shifts[later] in shifts[begin:position]:
            later += 1
        shifts[[position, later]] = shifts[[later, position]]
    return shifts[begin : begin + count]


def _never_same(stream: BitStream, parties: int, rounds: int, out_degree: int) -> NDArray[np.int32]:
    if rounds * out_degree > parties - 1:
        raise InputError(
            f"{rounds} rounds with {out_degree} new neighbours each need more than the {parties - 1} other parties. "
            "Take fewer rounds, fewer neighbours or schedule = circulant."
        )
    everyone = _distinct_others(stream, parties, rounds * out_degree)
    return everyone.reshape(parties, rounds, out_degree).transpose(1, 0, 2)


ScheduleMaker = Callable[[BitStream, int, int, int], NDArray[np.int32]]
_DYNAMIC: dict[str, ScheduleMaker] = {
    "uniform": _uniform,
    "permutation": _permutation,
    "circulant": _circulant,
    "never-same": _never_same,
}
SCHEDULES = (*_DYNAMIC, *STATIC_TOPOLOGIES)


def check_others(name: str, number: int, parties: int) -> None:
    """Raises :class:`InputError` where an option asks for more others than there are."""
    if not 1 <= number < parties:
        raise InputError(f"{name} is {number} with {parties} parties. Choose 1..{parties - 1}.")


def make_schedule(kind: str, seed: Seed, parties: int, rounds: int, out_degree: int = 1) -> Schedule:
    """The schedule of a kind under a public seed.

    Kinds: ``uniform`` (k distinct others, drawn anew each round, as in the papers), ``permutation`` (a random cycle each round,
    so that each party also receives k messages), ``circulant`` (random ring, shifts without repetition), ``never-same`` (no party
    sends to the same party twice), and static graphs: ``ring``, ``complete``, ``hypercube``, ``random-static``. ``out_degree`` is
    k. Raises :class:`InputError` for an unknown kind, and for numbers of parties, rounds or neighbours that the kind cannot have.
    """
    require_known("schedule", kind, SCHEDULES)
    if parties < 2:
        raise InputError(f"{parties} party cannot exchange anything. Give at least 2 parties.")
    if rounds < 1:
        raise InputError(f"rounds is {rounds}. Choose at least 1 mixing round.")
    check_others("neighbours", out_degree, parties)
    stream = BitStream(seed.derive("schedule", kind, parties, rounds, out_degree))
    if kind in _DYNAMIC:
        return Schedule(_DYNAMIC[kind](stream, parties, rounds, out_degree).astype(np.int32))
    table = STATIC_TOPOLOGIES[kind](stream, parties, out_degree)
    return Schedule(np.broadcast_to(table, (rounds, *table.shape)).copy())


@dataclass(frozen=True, eq=False)
class Flow:
    """A sparse matrix as triplets: row ``to[e]`` gets ``weight[e]`` times row ``source[e]``. Repeated entries add up.

    ``shape`` is (rows, columns); ``to``, ``source`` and ``weight`` have one entry for each of the matrix, in any order.
    """

    shape: tuple[int, int]
    to: Ints
    source: Ints
    weight: Array

    @classmethod
    def of(
        cls, shape: tuple[int, int], to: NDArray[np.integer], source: NDArray[np.integer], weight: Array | float = 1.0
    ) -> Flow:
        """Make a flow from any whole numbers; one weight may be that of all."""
        rows = to.astype(np.int64, copy=False)
        return cls(shape, rows, source.astype(np.int64, copy=False), np.broadcast_to(np.asarray(weight, float), rows.shape))

    @cached_property
    def matrix(self) -> csr_array[np.float64]:
        """The flow as a sparse matrix in compressed rows, with columns in rising order."""
        # A node never mixes whole populations: it starts without this import.
        from scipy.sparse import csr_array

        return csr_array((self.weight, (self.to, self.source)), shape=self.shape)

    def numbers(self, vector: Array) -> Array:
        """The product with a vector of shape (columns,): shape (rows,)."""
        # Without any entry bincount counts, in whole numbers.
        product = np.bincount(self.to, weights=self.weight * vector[self.source], minlength=self.shape[0])
        return product.astype(np.float64, copy=False)


def arrivals(schedule: Schedule, delivered: Mask, round_: int) -> tuple[Ints, Ints]:
    """The senders and receivers of the messages of a round that arrived, one entry for each in both arrays.

    ``delivered``, shape (T, n, k_max), is :meth:`ExecutionTrace.delivered` of the schedule.
    """
    table = schedule.neighbours[round_ - 1]
    # With flat indices numpy is several times faster than with one for each axis.
    message = delivered[round_ - 1].reshape(-1).nonzero()[0]
    return message // max(table.shape[1], 1), table.ravel()[message].astype(np.int64)


def share_flow(schedule: Schedule, arrived: tuple[Ints, Ints], acknowledged: Mask, round_: int) -> Flow:
    """What every party holds after a round, in shares, as a matrix of shape (n, n).

    Each party starts with (out-degree + 1) equal shares of its own. It keeps one, and those whose arrival it does not know of.
    ``arrived`` is the result of :func:`arrivals`; ``acknowledged``, shape (T, n, k_max), is the second of
    :meth:`ExecutionTrace.deliveries`. With each column divided by the number of its shares this is W_t of IncA, Algorithm 2: its
    columns sum to 1, unless a sender did not know that a share arrived.
    """
    parties, (sender, receiver) = schedule.parties, arrived
    everyone, weight = np.arange(parties), np.ones(parties + sender.size)
    weight[:parties] += schedule.out_degree[round_ - 1] - acknowledged[round_ - 1].sum(axis=1)
    return Flow((parties, parties), np.concatenate([everyone, receiver]), np.concatenate([everyone, sender]), weight)
