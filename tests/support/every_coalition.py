"""All coalitions of a size, one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from quietmean.privacy import PrivacyAnalysis

# So many coalitions are tried one by one; of more, so many random ones, and so many more in search of the worst.
_EVERY, _RANDOM, _SEARCHED = 1000, 150, 150


def worst_mu(privacy: PrivacyAnalysis, size: int) -> NDArray[np.float64]:
    """mu of each party, (n,), against the worst of all coalitions of ``size``, without what a certificate adds for rounding."""
    return _worst_of(privacy, itertools.combinations(range(privacy.transcript.parties), size))


def worst_tried_mu(privacy: PrivacyAnalysis, size: int, seed: int) -> NDArray[np.float64]:
    """The same of all coalitions while these are few; else a lower bound: random ones, and the worst that a search finds."""
    parties = privacy.transcript.parties
    if math.comb(parties, size) <= _EVERY:
        return worst_mu(privacy, size)
    rng = np.random.default_rng(seed)
    drawn = [tuple(sorted(rng.choice(parties, size, replace=False).tolist())) for _ in range(_RANDOM)]
    return _worst_of(privacy, [*drawn, sorted(privacy.search(size, limit=_SEARCHED).worst)])


def _worst_of(privacy: PrivacyAnalysis, coalitions: Iterable[Collection[int]]) -> NDArray[np.float64]:
    worst = np.zeros(privacy.transcript.parties)
    for certificate in privacy.each(coalitions):
        honest = list(certificate.honest)
        worst[honest] = np.maximum(worst[honest], certificate.mu)
    return worst
