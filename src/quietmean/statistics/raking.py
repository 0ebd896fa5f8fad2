"""Raking: weights whose sums are the public totals of the levels of several margins (Deming and Stephan 1940)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Sweeps end where a factor moves by less than this part.
_MOST_SWEEPS, _ENOUGH = 500, 1e-13


def raked(every: NDArray[Any], totals: Sequence[Sequence[float]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """What each cell's records are compared with, and the factors of their weights, (points, cells) both.

    ``every``: the sums on top and below of each cell of all margins, (points, cells, 2 or more), the last margin running
    fastest. The first are the fit of one number for each level of each margin, by least squares with the weights as they were
    (Deville and Sarndal 1992). Sums of cells may be below 0 by noise: only those of levels are divided by.
    """
    shape = [len(each) for each in totals]
    below, grid = every[..., 1].reshape(-1, *shape), np.indices(shape).reshape(len(shape), -1)
    factors: list[NDArray[Any]] = [np.ones((1, *_along(axis, shape))) for axis in range(len(shape))]
    for _ in range(_MOST_SWEEPS):
        before = factors[-1]
        for axis, each in enumerate(totals):
            others = math.prod((factor for place, factor in enumerate(factors) if place != axis), start=below)
            sums = others.sum(axis=tuple(1 + one for one in range(len(shape)) if one != axis), keepdims=True)
            factors[axis] = np.reshape(each, (1, *_along(axis, shape))) / sums
        if np.abs(factors[-1] / before - 1).max() < _ENOUGH:
            break
    sizes = np.broadcast_to(math.prod(factors[1:], start=factors[0]), below.shape).reshape(every.shape[:2])
    # The last level of each margin but the first follows from the others.
    kept = [np.arange(levels - (axis > 0)) for axis, levels in enumerate(shape)]
    design = np.hstack([np.equal.outer(own, levels) for own, levels in zip(grid, kept, strict=True)]).astype(np.float64)
    inner = np.einsum("pi,np,pj->nij", design, every[..., 1], design)
    found = np.linalg.solve(inner, np.einsum("pi,np->ni", design, every[..., 0])[..., None])
    return np.asarray((design @ found)[..., 0]), np.asarray(sizes)


def _along(axis: int, shape: Sequence[int]) -> list[int]:
    return [levels if one == axis else 1 for one, levels in enumerate(shape)]
