"""Figure 2 for many runs at once: when honest parties are connected, all fractions of corrupt parties on one schedule.

Sets of fractions are bits: the corrupt parties of a smaller fraction are some of those of a larger one, so the bits of a party,
of an exchange and of what a party has had so far are always the lowest ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.randomness import BitStream

Bits = NDArray[np.uint8]
Ints = NDArray[np.int64]

# Parties of all runs together that are followed at a time: their tables stay in the processor's cache.
_TOGETHER = 5000
# Rounds that are drawn first: more are hardly ever needed.
_USUAL = 13


def connected_rounds(stream: BitStream, parties: int, corrupt: Sequence[int], runs: int, limit: int) -> Ints:
    """The first T with which each run is connected for each number of ``corrupt`` parties, in rising order: (runs, numbers).

    ``limit`` + 1 for more than ``limit`` rounds. Every party sends to a new receiver each round. The corrupt parties are the
    first ones: schedules do not distinguish parties, so the law is that of a random coalition.
    """
    together = max(1, _TOGETHER // parties)
    parts = [min(together, runs - first) for first in range(0, runs, together)]
    return np.concatenate([_batch(stream, parties, corrupt, count, limit) for count in parts])


def _batch(stream: BitStream, parties: int, corrupt: Sequence[int], runs: int, limit: int) -> Ints:
    receivers = distinct_receivers(stream, parties, runs, min(_USUAL, limit))
    rounds = first_rounds(receivers, parties, corrupt)
    if not rounds.all():
        rounds = first_rounds(distinct_receivers(stream, parties, runs, limit, receivers), parties, corrupt)
        rounds[rounds == 0] = limit + 1
    return rounds


def distinct_receivers(stream: BitStream, parties: int, runs: int, rounds: int, begun: Ints | None = None) -> Ints:
    """For each party of each run ``rounds`` distinct others, in uniform random order: shape (rounds, runs * n).

    A draw that a party has had is drawn again, which gives the law of the schedule never-same. ``begun``: rounds drawn before.
    """
    own = np.tile(np.arange(parties, dtype=np.int16), runs)
    first = np.repeat(np.arange(runs) * parties, parties)
    picks = np.empty((rounds, own.size), dtype=np.int16)
    known = 0 if begun is None else len(begun)
    if begun is not None:
        picks[:known] = begun - first
    picks[known:] = _others(stream, parties, np.tile(own, rounds - known)).reshape(-1, own.size)
    for position in range(known, rounds):
        again = np.flatnonzero((picks[:position] == picks[position]).any(axis=0))
        while again.size:
            picks[position, again] = _others(stream, parties, own[again])
            again = again[(picks[:position, again] == picks[position, again]).any(axis=0)]
    return picks + first


def _others(stream: BitStream, parties: int, own: NDArray[np.int16]) -> NDArray[np.int16]:
    """A uniform party other than ``own`` each, by multiply-shift of 32 bits."""
    high = stream.ring(32, own.size).astype(np.uint64)
    pick = ((high * np.uint64(parties - 1)) >> np.uint64(32)).astype(np.int16)
    return pick + (pick >= own)


def first_rounds(receivers: Ints, parties: int, corrupt: Sequence[int]) -> Ints:
    """As :func:`connected_rounds`, for given ``receivers``; 0 where all these rounds do not connect a run."""
    exchanges = _Exchanges.of(receivers, parties, corrupt)
    # No run is connected while somebody is isolated; hardly ever more is missing.
    within = np.vstack([np.full((1, exchanges.runs), exchanges.all_fractions, dtype=np.uint8), exchanges.isolated()])
    reached, open_ = exchanges.start(), within[0]
    while open_.any():
        apart = exchanges.unreached(reached, within[:-1], open_)
        # These rounds do not connect such fractions: each takes the next one.
        within[1:] |= within[:-1] & ~within[1:] & apart
        open_ = apart & ~within[-1]
    places = np.arange(len(corrupt), dtype=np.uint8)
    rounds: Ints = (within[:-1, :, None] >> places & 1).sum(axis=0, dtype=np.int64)
    rounds[(within[-1][:, None] >> places & 1).astype(np.bool_)] = 0
    return rounds


@dataclass(frozen=True, eq=False)
class _Exchanges:
    """``honest`` (runs * n,): for which fractions a party is; ``unseen`` (T, runs * n): for which nobody sees its message."""

    receivers: Ints
    parties: int
    honest: Bits
    unseen: Bits
    all_fractions: int

    @property
    def runs(self) -> int:
        return self.honest.size // self.parties

    @classmethod
    def of(cls, receivers: Ints, parties: int, corrupt: Sequence[int]) -> _Exchanges:
        fractions = (np.arange(parties)[:, None] >= np.asarray(corrupt)).sum(axis=1)
        honest = np.tile(((1 << fractions) - 1).astype(np.uint8), receivers.shape[1] // parties)
        return cls(receivers, parties, honest, honest & honest.take(receivers), (1 << len(corrupt)) - 1)

    def isolated(self) -> Bits:
        """For which fractions somebody honest has had no unseen exchange after each round, shape (T, runs)."""
        rounds, size = self.receivers.shape
        had = self.unseen.copy()
        places = self.receivers + np.arange(rounds)[:, None] * size
        # The larger of two sets of lowest bits is both of them.
        np.maximum.at(had.reshape(-1), places.reshape(-1), self.unseen.reshape(-1))
        missing = self.honest & ~np.maximum.accumulate(had, axis=0)
        blocked: Bits = np.bitwise_or.reduce(missing.reshape(rounds, -1, self.parties), axis=2)
        return blocked

    def start(self) -> Bits:
        """For which fractions a path from the last party of the run is known: it is honest for all of them."""
        reached = np.zeros_like(self.honest)
        reached[self.parties - 1 :: self.parties] = self.all_fractions
        return reached

    def unreached(self, reached: Bits, within: Bits, open_: Bits) -> Bits:
        """For which of the fractions ``open_`` (runs,) the rounds ``within`` (T, runs) do not connect everybody, shape (runs,).

        ``reached`` is brought up to date.
        """
        rounds = np.flatnonzero((within & open_).any(axis=1))
        usable = self.unseen[rounds] & np.repeat(within[rounds] & open_, self.parties, axis=1)
        receivers = self.receivers[rounds]
        grew = True
        while grew:
            for receiver, use in zip(receivers, usable, strict=True):
                reached |= reached.take(receiver) & use
            there = reached.take(receivers)
            row, sender = np.divmod(np.flatnonzero((usable & (reached ^ there)) != 0), reached.size)
            receiver = receivers[row, sender]
            # Where a receiver occurs twice, what the other message adds is left to the next turn.
            reached[receiver] |= reached[sender] & usable[row, sender]
            grew = bool(row.size)
        missing: Bits = np.bitwise_or.reduce((self.honest & ~reached).reshape(-1, self.parties), axis=1)
        return missing & open_
