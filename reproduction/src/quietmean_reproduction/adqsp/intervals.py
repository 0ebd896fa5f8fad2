"""Nats that an interval around it reveals of a value N(0, 1): of random place, and of known place."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import Vector

# Below this width a density N(0, 1) is flat over an interval, to parts in 10^6.
_NARROW = 1e-3


def of_uniform_noise(width: float) -> float:
    """I(S; S + U) in nats for S ~ N(0, 1) and U uniform of ``width``: h(S + U) - ln width, by integration to 1e-9."""
    from scipy.integrate import quad
    from scipy.special import ndtr

    def density(y: float) -> float:
        # On the side where the two are not both nearly 1.
        return float(ndtr(-abs(y) + width / 2) - ndtr(-abs(y) - width / 2)) / width

    def part(y: float) -> float:
        here = density(y)
        return -here * math.log(here) if here > 0 else 0.0

    end = width / 2 + 12
    middle = sorted({0.0, max(0.0, width / 2 - 6), width / 2, end})
    entropy = 2 * sum(quad(part, low, high, epsabs=1e-10, limit=200)[0] for low, high in pairwise(middle))
    return entropy - math.log(width)


def posterior_entropy(low: Vector, high: Vector) -> NDArray[np.float64]:
    """Entropy in nats of N(0, 1) given that it is between ``low`` and ``high``."""
    from scipy.special import ndtr

    width = high - low
    # The same by symmetry, where no difference of numbers close to 1 is taken.
    flip = low > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    mass = ndtr(high) - ndtr(low)
    density_low, density_high = (np.exp(-(side**2) / 2) / math.sqrt(2 * math.pi) for side in (low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.log(math.sqrt(2 * math.pi * math.e) * mass) + (low * density_low - high * density_high) / (2 * mass)
    return np.where(width < _NARROW, np.log(width), exact)
