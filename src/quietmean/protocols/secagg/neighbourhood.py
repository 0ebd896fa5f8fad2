"""The number of neighbours and the threshold: tails of the hypergeometric distribution (Bell et al. 2020, section 3).

Neighbours are the k / 2 parties on either side on a random ring. Bounds over the random graph, summed over all parties:

* secrecy of shares: no party has ``threshold`` colluding neighbours;
* connectivity: no k / 2 consecutive parties of the ring are all colluding or dropped out, so that the honest parties that
  remain are connected by masks;
* correctness: every party keeps ``threshold`` neighbours that answer, so that its masks can be removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from quietmean.core.errors import InputError


@dataclass(frozen=True)
class Neighbourhood:
    """The neighbours of each client, and the bounds that hold for them.

    ``security_bits`` and ``correctness_bits``: minus log2 of the bounds on the chance that secrecy or the run fails.
    """

    neighbours: int
    threshold: int
    security_bits: float
    correctness_bits: float


def assess(parties: int, colluding: int, dropped: int, neighbours: int, threshold: int) -> Neighbourhood:
    """The bounds for given numbers: ``colluding`` parties against secrecy, ``dropped`` parties absent at the end."""
    leak = parties * upper_tail(parties - 1, colluding, neighbours, threshold)
    missing = min(parties - 1, colluding + dropped)
    apart = 0.0 if neighbours == parties - 1 else parties * _all_from(parties, missing, neighbours // 2)
    # An online party gives its own share, too: with ``threshold`` of k + 1 shares, k + 1 - threshold neighbours may be absent.
    lost = parties * upper_tail(parties - 1, dropped, neighbours, neighbours + 2 - threshold)
    return Neighbourhood(neighbours, threshold, _bits(leak + apart), _bits(lost))


def choose_neighbourhood(
    parties: int, colluding: int, dropouts: float, security_bits: float = 40.0, correctness_bits: float = 40.0
) -> Neighbourhood:
    """The fewest neighbours, and for them the threshold of most correctness, that keep both bounds.

    All other parties if no smaller number suffices. Raises :class:`InputError` if even they do not.
    """
    dropped = math.floor(dropouts * parties + 1e-9)
    for neighbours in [*range(2, parties - 1, 2), parties - 1]:
        for threshold in range((neighbours + 1) // 2 + 1, neighbours + 2):
            neighbourhood = assess(parties, colluding, dropped, neighbours, threshold)
            if neighbourhood.security_bits >= security_bits and neighbourhood.correctness_bits >= correctness_bits:
                return neighbourhood
            if neighbourhood.correctness_bits < correctness_bits:
                break
    raise InputError(
        f"{parties} parties of which {colluding} collude and {dropped} drop out cannot keep failures below 2^-{security_bits:g} "
        f"(security) and 2^-{correctness_bits:g} (correctness): lower colluding or dropouts, or give degree and threshold"
    )


def upper_tail(population: int, marked: int, drawn: int, at_least: int) -> float:
    """P(X >= at_least) for the number X of marked ones of ``drawn`` of a ``population``, without replacement."""
    if at_least <= 0:
        return 1.0
    total = math.comb(population, drawn)
    ways = sum(
        math.comb(marked, count) * math.comb(population - marked, drawn - count)
        for count in range(at_least, min(marked, drawn) + 1)
        if drawn - count <= population - marked
    )
    return ways / total if ways else 0.0


def _all_from(population: int, marked: int, drawn: int) -> float:
    """The chance that all of ``drawn`` different parties are marked."""
    return math.comb(marked, drawn) / math.comb(population, drawn)


def _bits(chance: float) -> float:
    return math.inf if chance == 0 else max(0.0, -math.log2(chance))
