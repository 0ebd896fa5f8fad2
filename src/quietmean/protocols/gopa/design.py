"""Noise levels of GOPA without a collector, by formula: the least error that keeps a target in every history.

A party publishes only where at least m partners are there. Of these h = m - c are honest, and each hides its value by
v b / (v + b) or, if it published nothing or without their noise, by b (v, b: variances of own and of pair noise). So with s the
variance of the Gaussian mechanism, privacy is kept in every history if

    v + h v b / (v + b) = s,    solved by    v = s (1 + e) / (h + 1),    b = s (h - e) (1 + e) / (h + 1)^2 / e,    0 < e <= h.

Of N parties that stay, each holds in the mean w terms that it shares with parties that left after the exchange. The error
(v + w b) / N is least at e^2 = w h / (h + 1 - w), or without pair noise (e = h) where w is h + 1 or more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.lazy_modules import special
from quietmean.protocols.gopa.party import pair_chance
from quietmean.protocols.target import Target

# Where no pair noise is left over, the error falls towards an infimum as pair noise grows: the design stops this close.
EXCESS = 0.008
# The chance that some party has too few partners with dropouts as planned, and so publishes nothing.
_TOO_FEW = 1e-3
# One partner in this many may be missing though no dropouts are planned.
_SPARE = 10


@dataclass(frozen=True)
class PeerDesign:
    """``own`` = v and ``pair`` = b: variances per coordinate, in the units of s."""

    own: float
    pair: float


def peer_design(honest: int, left_over: float, unit: float) -> PeerDesign:
    """v and b for ``honest`` = h partners at least, ``left_over`` = w, and ``unit`` = s."""
    h, w = honest, left_over
    if h <= 0:
        return PeerDesign(unit, 0.0)
    excess = h if w >= h + 1 else min(max(math.sqrt(w * h / (h + 1 - w)), EXCESS), h)
    own = unit * (1 + excess) / (h + 1)
    return PeerDesign(own, own * (h - excess) / (h + 1) / excess)


def kept_information(own: float, pair: float, honest: int) -> float:
    """A bound, in every history, for a party with so many honest partners at least: 1 / (v + h v b / (v + b))."""
    hidden = own + max(honest, 0) * own * pair / (own + pair) if own else 0.0
    return 1.0 / hidden if hidden else math.inf


def least_present(target: Target, partners: int) -> int:
    """With how few partners a party publishes: as many as are there if all dropouts are early, and some may be missing anyhow.

    At least 1, so that a party that missed the exchange publishes nothing.
    """
    leaving = target.parties - target.responding
    missing = leaving if partners == target.parties - 1 else _missing(target.parties, leaving, partners)
    return max(partners - max(missing, partners // _SPARE), 1)


def expected_left_over(target: Target, partners: int) -> float:
    """w: with how many parties that leave between exchange and publishing, half of all, a party that stays shares noise."""
    return (target.parties - target.responding) / 2 * pair_chance(target.parties, partners)


def check_partners(partners: int, least_partners: int, parties: int) -> None:
    """Raises :class:`InputError` if a party cannot have as many partners as it must have."""
    most_partners = min(partners, parties - 1)
    if least_partners > most_partners:
        raise InputError(
            f"least_partners is {least_partners} but a party has only {most_partners} for sure: choose {most_partners} or "
            "fewer, or more partners"
        )


def _missing(parties: int, leaving: int, partners: int) -> int:
    """How many of a party's partners may be in ``leaving`` random parties: of no party more, but with a small chance."""
    counts = np.arange(min(leaving, partners) + 1)

    def choices(of: int, some: Ints | int) -> Array:
        # Impossible ones have no logarithm that is finite.
        return np.asarray(special.gammaln(of + 1) - special.gammaln(some + 1.0) - special.gammaln(of - some + 1.0))

    # Hypergeometric: which of the others are partners, and which of these leave.
    ways = choices(leaving, counts) + choices(parties - 1 - leaving, partners - counts) - choices(parties - 1, partners)
    more = np.cumsum(np.exp(ways)[::-1])[::-1] - np.exp(ways)
    return int(np.argmax(more <= _TOO_FEW / parties))
