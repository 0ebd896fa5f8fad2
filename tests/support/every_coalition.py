"""All coalitions of a size, one by one."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from quietmean.privacy import PrivacyAnalysis


def worst_mu(privacy: PrivacyAnalysis, size: int) -> NDArray[np.float64]:
    """mu of each party, (n,), against the worst of all coalitions of ``size``, without what a certificate adds for rounding."""
    parties = privacy.transcript.parties
    worst = np.zeros(parties)
    for certificate in privacy.each(itertools.combinations(range(parties), size)):
        honest = list(certificate.honest)
        worst[honest] = np.maximum(worst[honest], certificate.mu)
    return worst
