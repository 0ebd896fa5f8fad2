"""Who shares noise with whom."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.errors import InputError
from quietmean.graphs import complete_pairs
from quietmean.randomness import BitStream, Seed

Pairs = Ints

# The list of all pairs takes 8 n^2 bytes, and every one of them is a noise term in the account.
_MOST_COMPLETE = 20_000
_DRAWS = 64


def all_pairs(parties: int) -> Pairs:
    """All pairs, shape (n (n-1) / 2, 2). Raises :class:`InputError` for more than 20 000 parties."""
    if parties > _MOST_COMPLETE:
        raise InputError(f"{parties} parties have too many pairs to share noise in all of them: choose partners, for example 30")
    return complete_pairs(parties)


@lru_cache(maxsize=8)
def place_pairs(places: int, partners: int) -> Pairs:
    """A regular graph on places 0..n-1, the same for all parties: shape (n k / 2, 2).

    Every place is joined to those k/2 given steps further on in a ring, in both directions. Random steps of about log n make an
    expander with high probability (Alon and Roichman 1994): it stays connected when random places are removed. Of several public
    draws the one with the largest spectral gap is taken.
    """
    stream = BitStream(Seed.public("cordp-dme places", places, partners))
    drawn = [stream.permutation((places - 1) // 2)[: partners // 2] + 1 for _ in range(_DRAWS)]
    steps = max(drawn, key=lambda steps: _spectral_gap(places, steps))
    ring = np.arange(places)
    ends = np.concatenate([np.stack([ring, (ring + step) % places], axis=1) for step in steps])
    pairs = _in_order(ends, places)
    # One array for all callers.
    pairs.flags.writeable = False
    return pairs


def _spectral_gap(places: int, steps: Ints) -> int:
    """The least positive eigenvalue of the graph's Laplacian, in units of 2**-20: the same on every machine."""
    waves = np.arange(1, places)[:, None] * steps[None, :]
    return int(np.round((2 - 2 * np.cos(2 * np.pi * waves / places)).sum(axis=1).min() * 2**20))


def sparse_pairs(parties: int, partners: int, seed: Seed) -> Pairs:
    """The graph of :func:`place_pairs`, with the parties at places that the public ``seed`` draws."""
    party_at = BitStream(seed.derive("cordp-dme pairs", parties, partners)).permutation(parties)
    return _in_order(party_at[place_pairs(parties, partners)], parties)


def _in_order(ends: Ints, parties: int) -> Pairs:
    ends = np.sort(ends, axis=1)
    numbers = np.unique(ends[:, 0] * parties + ends[:, 1])
    return np.stack([numbers // parties, numbers % parties], axis=1).astype(np.int64)
