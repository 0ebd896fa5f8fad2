"""Parameters of GOPA, its graph of pairs, and the aggregator's list."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.party import PartyId
from quietmean.core.schema import parameter
from quietmean.graphs import Schedule, complete_pairs, make_schedule
from quietmean.graphs.schedule import NOBODY
from quietmean.graphs.undirected import neighbour_table
from quietmean.protocols.discrete import DiscreteNoise
from quietmean.randomness import Seed

# The rounds with a collector.
PUBLISH, ANNOUNCE, ROLL_BACK = 1, 2, 3
ROUNDS = 3
# The rounds without one: what is rolled back is known before anything is published.
EXCHANGE, RELEASE = 1, 2
PEER_ROUNDS = 2
# Up to this many parties share noise in all pairs by default, where no collector has to hear of every pair.
_MOST_COMPLETE, _MANY = 1000, 200
_DEVIATION = "a standard deviation is a finite number >= 0"


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
        remedy="each party needs at least 1 other to share noise with",
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
    """Without a collector: in the first round every party sends to its partners, in the second it publishes."""
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
