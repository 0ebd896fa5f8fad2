"""Smooth functions of released means: values without what noise adds by their curvature, errors by their slopes.

Everything here reads a function of points, (points, q) to (points, terms), which may be complex: an imaginary step gives slopes
to the last digit. Terms are named, with what each can be and the scale of its intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.statistics.estimate import ANYTHING, Estimate, Interval

Function = Callable[[NDArray[Any]], NDArray[Any]]

# An imaginary step of a derivative loses no digits; the other is in deviations of the noise, to see curvature.
_TINY, _STEP = 1e-30, 0.1
# The relative step of a central difference quotient.
_NUDGE = 1e-6


@dataclass(frozen=True)
class SmoothTerm:
    """A named number that a statistic asks for: what it can be, and the ``scale`` on which its intervals are.

    On the scale "log" it is a ratio, and what is computed is its logarithm; "fisher" is for correlations.
    """

    name: str
    limits: Interval = ANYTHING
    scale: Literal["plain", "log", "fisher"] = "plain"

    @property
    def unknown(self) -> Estimate:
        return Estimate.unknown(self.name, self.limits)

    def estimate(self, value: float, noise: float, sampling: float, degrees: float = math.inf) -> Estimate:
        """Make its estimate from the variances of noise and of sampling, and the degrees of freedom of their sum."""
        if self.scale == "log":
            return Estimate.ratio(self.name, value, noise, sampling, degrees)
        if self.scale == "fisher":
            return Estimate.correlation(self.name, min(max(value, -1.0), 1.0), noise, sampling, degrees)
        return Estimate.normal(self.name, value, noise, sampling, self.limits, degrees)


def ratio(name: str) -> SmoothTerm:
    """A term that is a ratio, computed as its logarithm."""
    return SmoothTerm(name, (0.0, math.inf), "log")


@dataclass(frozen=True, eq=False)
class Smooth:
    """Values of a smooth function, (terms,), its slopes by quantities, (terms, q), and the covariance of their noise, (q, q)."""

    values: Array
    slopes: Array
    covariance: Array

    @cached_property
    def noise(self) -> Array:
        """The variances that noise gives the values, (terms,)."""
        return np.array([spread(slopes, self.covariance) for slopes in self.slopes])

    @property
    def errors(self) -> Array:
        """The standard deviations of the noise in the values, (terms,)."""
        return np.sqrt(self.noise)


@dataclass(frozen=True, eq=False)
class Estimated:
    """Values (terms,), the variances of noise and of sampling, and the degrees of freedom of their sum."""

    values: Array
    noise: Array
    sampling: Array
    degrees: Array

    def __getitem__(self, part: slice) -> Estimated:
        return Estimated(self.values[part], self.noise[part], self.sampling[part], self.degrees[part])

    def of(self, terms: Iterable[SmoothTerm]) -> list[Estimate]:
        """The estimates of as many terms as there are values."""
        parts = zip(self.values, self.noise, self.sampling, self.degrees, strict=True)
        return [term.estimate(*map(float, part)) for term, part in zip(terms, parts, strict=True)]


def smooth(function: Function, at: Array, covariance: Array, *, corrected: bool = True) -> Smooth:
    """The values of a function at quantities (q,) and its slopes; ``corrected``: without what noise adds on average."""
    with np.errstate(all="ignore"):
        here = function(at[None])[0].real
        slopes = slopes_of(function, at)
        if corrected and covariance.any():
            steps = _STEP * _root(covariance).T
            ends = [function(at + sign * steps).real for sign in (1.0, -1.0)]
            here = here - (ends[0] + ends[1] - 2 * here).sum(axis=0) / _STEP**2 / 2
    return Smooth(here, slopes, covariance)


def slopes_of(function: Function, at: Array) -> Array:
    """The derivatives (terms, q) of an analytic function."""
    slopes: Array = function(at + 1j * _TINY * np.eye(len(at))).imag.T / _TINY
    return slopes


def numerical_slopes(function: Callable[[Array], Array], at: Array) -> Array:
    """The derivatives (terms, q) of a function of one point that no complex number goes through, as where it iterates."""
    steps = np.diag(_NUDGE * np.maximum(np.abs(at), 1e-3))
    return np.column_stack([(function(at + step) - function(at - step)) / (2 * step.sum()) for step in steps])


def by_point(function: Callable[[Array], Array]) -> Function:
    """A function of points from one of a single point."""
    return lambda points: np.array([function(point) for point in points])


def _root(covariance: Array) -> Array:
    """A matrix whose product with its transpose is the covariance."""
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def spread(gradient: Array, covariance: Array) -> float:
    """The variance of a function with this gradient, (q,), of quantities with noise of this covariance, (q, q)."""
    return max(float(gradient @ covariance @ gradient), 0.0)


def multinomial(gradient: Array, counts: Array) -> float:
    """The variance of sampling of a function of counts with this gradient, (cells,): sum n g^2 - (sum n g)^2 / N."""
    # Of counts as they are: cut at 0 one by one, their noise would add to the sum.
    total = float(counts.sum())
    return max(float(counts @ gradient**2) - float(counts @ gradient) ** 2 / total, 0.0) if total > 0 else 0.0
