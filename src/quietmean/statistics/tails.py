"""How far noise reaches: quantiles of the law that was drawn, in standard deviations.

Laplace noise reaches further than normal noise of the same variance: 95 % of it lies within 2.12 standard deviations, and not
within 1.96; what is beyond four is 50 times as frequent. A linear estimate adds up noises of several coordinates, each with its
weight, and sampling errors count as normal beside them. Where weights are not known, all noise counts as that of one coordinate:
no weighted sum of several reaches further, so that intervals are too wide rather than too narrow, by 8 % at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.lazy import special
from quietmean.core.noise_law import NoiseKind, NoiseLaw

LEVEL = 0.95
# The two-sided quantile of the normal distribution at that level.
Z = 1.959963984540054
# Weights, falling, of coordinates in units of the root of their squares' sum, and how many are alike.
Weights = tuple[tuple[float, int], ...]

_ALONE: Weights = ((1.0, 1),)
# Sizes that differ by less than 2 % are one; what is below a thousandth of the largest moves no quantile.
_SIZES, _SMALL = 32, 1e-3
# A sum is tabulated in so many steps of a standard deviation, up to 32 of them on each side, and smoothed by two steps.
_STEPS, _TABLE, _SMOOTH = 2048, 1 << 17, 2.0
# Smaller steps than this part of the scale make no difference.
_FINEST = 2.0**-12
# From this part of the scale on, steps are few.
_COARSE = 0.1
# A table tells no smaller chance from none.
_LEAST_CHANCE = 1e-14
# Shares of the noise in a variance are rounded up to whole parts of this.
_SHARES = 256


@dataclass(frozen=True)
class Tails:
    """The law of one estimate's noise: of ``shape`` and ``step`` per scale as :class:`NoiseLaw` has them; infinite: normal.

    ``weights``: of the coordinates in it; None where they are not known.
    """

    shape: float = math.inf
    step: float = 0.0
    weights: Weights | None = None

    @classmethod
    def of(cls, law: NoiseLaw | None, weights: Array | None = None) -> Tails:
        """Those of a linear estimate with these ``weights`` of coordinates that have independent noise of the ``law``."""
        if law is None or law.kind == NoiseKind.GAUSSIAN:
            return cls()
        return cls(law.shape, law.step / law.scale, None if weights is None else _grouped(weights))

    @property
    def normal(self) -> bool:
        return math.isinf(self.shape)

    def quantile(self, noise: float = 1.0, sampling: float = 0.0) -> float:
        """How many standard deviations hold 95 % of noise and normal sampling errors together, from their variances."""
        if self.normal or not (noise > 0 and math.isfinite(noise + sampling)):
            return Z
        share = _share(noise / (noise + max(sampling, 0.0)))
        return max(_quantile(*law, share) for law in self._laws)

    def deviations(self, normal: float) -> float:
        """Beyond how many standard deviations noise is as seldom as normal noise is beyond so many."""
        if self.normal:
            return normal
        chance = 2 * float(special.ndtr(-normal))
        return max(normal, *(_beyond(*law, chance) for law in self._laws))

    def p_value(self, normal: float, share: float = 1.0) -> float:
        """What a p-value under normal errors is at most if this share of the variance is noise of this law."""
        if self.normal or not 0 <= normal < 1 or not share > 0:
            return normal
        away = -float(special.ndtri(normal / 2))
        return max(normal, *(_chance(*law, away, _share(min(share, 1.0))) for law in self._laws))

    @property
    def _laws(self) -> list[tuple[float, float, Weights]]:
        if self.weights is not None:
            return [(self.shape, self.step, self.weights)]
        # Of few steps one coordinate can be nearer than a sum of several is, which is nearly continuous.
        few = [((1 / math.sqrt(count), count),) for count in (1, 2, 3) if count == 1 or self.step > _COARSE]
        return [(self.shape, 0.0, _ALONE), *((self.shape, self.step, weights) for weights in few)]


def about_noise(quantile: float) -> str:
    """Which noise it is, where the quantile is not that of normal noise; else nothing."""
    return "" if quantile == Z else f"The privacy noise is Laplace noise: 95 % of it lies within {quantile:.3g} standard errors."


_CURRENT: ContextVar[Tails] = ContextVar("tails", default=Tails())  # noqa: B039


def tails() -> Tails:
    """Those of the noise in what is being decoded, whatever is read of it; normal ones elsewhere."""
    return _CURRENT.get()


@contextmanager
def decoded_with(law: NoiseLaw | None) -> Iterator[None]:
    """What is decoded inside has noise of this law."""
    token = _CURRENT.set(Tails.of(law))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def t_quantile(degrees: float) -> float:
    """The two-sided quantile of Student's distribution at the level of all intervals."""
    return Z if math.isinf(degrees) else float(special.stdtrit(degrees, (1 + LEVEL) / 2))


def quantile_of_both(noise: float, sampling: float, degrees: float = math.inf, own: Tails | None = None) -> float:
    """How many standard errors hold 95 % of noise and sampling errors, from their variances and degrees of freedom.

    Where noise is not normal, Student's quantile grows in the same ratio as the normal one.
    """
    return t_quantile(degrees) * ((own or tails()).quantile(noise, sampling) / Z)


def _grouped(weights: Array) -> Weights:
    sizes = np.abs(weights)
    sizes = sizes[sizes > _SMALL * sizes.max(initial=0.0)]
    if not len(sizes):
        return _ALONE
    classes, counts = np.unique(np.rint(_SIZES * np.log2(sizes / sizes.max())), return_counts=True)
    alike = 2.0 ** (classes[::-1] / _SIZES)
    total = math.sqrt(float(counts[::-1] @ alike**2))
    return tuple(zip((alike / total).tolist(), counts[::-1].tolist(), strict=True))


@lru_cache(maxsize=64)
def _tail(shape: float, step: float, weights: Weights, share: float) -> tuple[float, Array]:
    """The distance of points, in standard deviations, and the chance to be farther than each of 0, 1, 2 ... of them.

    One coordinate alone has the points that it can be at; a sum is tabulated.
    """
    step = max(step, _FINEST)
    exact = share == 1 and weights == _ALONE
    if exact:
        points = 1 << math.ceil(math.log2(64 / step + 64 * shape))
        angles: Array = np.linspace(0.0, math.pi, points // 2 + 1)
        # The variance is shape / (2 sinh(step / 2)^2) steps.
        distance = math.sinh(step / 2) * math.sqrt(2 / shape)
        transformed = _transform(angles, 1.0, shape, step)
    else:
        points, distance = _TABLE, 1 / _STEPS
        angles = np.linspace(0.0, math.pi / distance, points // 2 + 1)
        unit = math.sinh(step / 2) * math.sqrt(2 * share / shape)
        transformed = np.exp(-(angles**2) * (1 - share + (_SMOOTH * distance) ** 2) / 2).astype(np.float64)
        for weight, count in weights:
            transformed *= _transform(angles, weight * unit, shape * count, step)
    at = np.maximum(np.fft.irfft(transformed, points), 0.0)[: points // 2]
    inside = 2 * np.cumsum(at) - at[0]
    if not exact:
        inside -= at
    return distance, np.clip(1 - inside, _LEAST_CHANCE, 1.0)


def _transform(angles: Array, unit: float, shape: float, step: float) -> Array:
    """The characteristic function of X - Y in units of this size."""
    transformed: Array = (1 + (np.sin(angles * unit / 2) / math.sinh(step / 2)) ** 2) ** -shape
    return transformed


def _beyond(shape: float, step: float, weights: Weights, chance: float, share: float = 1.0) -> float:
    """The distance that is exceeded with this chance at most."""
    distance, tail = _tail(shape, step, weights, share)
    place = int(np.searchsorted(-tail, -max(chance, 2 * _LEAST_CHANCE)))
    # What a table holds of points that a sum can be at is smoothed.
    smoothed = 0.0 if weights == _ALONE or share < 1 else 3 * _SMOOTH
    return (min(place, len(tail) - 1) + smoothed) * distance


@lru_cache(maxsize=4096)
def _quantile(shape: float, step: float, weights: Weights, share: float) -> float:
    return _beyond(shape, step, weights, 1 - LEVEL, share)


def _share(share: float) -> float:
    return math.ceil(_SHARES * share - 1e-9) / _SHARES


def _chance(shape: float, step: float, weights: Weights, away: float, share: float) -> float:
    """The chance to be as far away as that, or farther."""
    distance, tail = _tail(shape, step, weights, share)
    place = math.ceil(away / distance - 1e-9) - 1 if math.isfinite(away) else len(tail)
    return 1.0 if place < 0 else float(tail[min(place, len(tail) - 1)])
