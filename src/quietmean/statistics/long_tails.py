"""How far values reach beyond what a histogram with noise shows: tails fitted to its cells, and what bounds lose of them.

Post-processing of released cells, without a charge. The part of the values beyond a start falls as a generalised Pareto tail
does (Pickands, Ann. Statist. 3, 1975): ended, exponential or a power. All tails of a grid are kept, each with the weight that
the cells and their noise give it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from quietmean.core.arrays import Array

# Shapes below 0 have an end, 0 is exponential, above 0 are powers. Few columns are far from exponential: the prior's deviation.
_SHAPES, _DEVIATION = np.array([-1, -0.8, -0.6, -0.45, -0.3, -0.2, -0.1, 1e-3, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]), 0.15
_SCALES = 40
# Scales from an eighth of the first cell to so many times the room that holds half of the tail.
_FINEST, _WIDEST = 1 / 8, 20.0
# So many rooms are equally wide, and each one after them is so many times as wide as the last.
_EQUAL, _WIDER = 9, 1.3
# Tails of less weight are left out.
_LEAST_WEIGHT = 1e-4


@dataclass(frozen=True, eq=False)
class FittedTails:
    """The tails that released cells allow: ``mass`` of the values is beyond ``start``; ``shapes``, ``scales`` and ``weights``
    are of each tail, (tails,), and weights add up to 1.
    """

    start: float
    mass: float
    shapes: Array
    scales: Array
    weights: Array

    @classmethod
    def fitted(cls, edges: Array, parts: Array, errors: Array, mass: float, half: float, records: float) -> Self:
        """The tails of rising ``edges`` (cells + 1,) from the start on, of parts in cells with ``errors`` of noise, (cells,).

        ``half``: the room beyond the start that holds half of ``mass``. ``records`` are those of all parts.
        """
        distances = edges - edges[0]
        grid = np.geomspace(float(distances[1]) * _FINEST, max(half * _WIDEST, float(distances[1])), _SCALES)
        shapes, scales = (each.ravel() for each in np.meshgrid(_SHAPES, grid, indexing="ij"))
        reach = np.maximum(1 + shapes[:, None] * distances / scales[:, None], 0.0)
        with np.errstate(divide="ignore"):
            beyond = np.where(reach > 0, reach ** (-1 / shapes[:, None]), 0.0)
        expected = mass * (beyond[:, :-1] - beyond[:, 1:])
        # A record more or less in a cell is chance, without noise too.
        variances = errors**2 + (expected + 1 / records) / records
        likely = -((parts - expected) ** 2 / variances + np.log(variances)).sum(axis=1) / 2
        likely -= (shapes / _DEVIATION) ** 2 / 2
        weights = np.exp(likely - likely.max())
        kept = weights > _LEAST_WEIGHT * weights.sum()
        return cls(float(edges[0]), mass, shapes[kept], scales[kept], weights[kept] / weights[kept].sum())

    def lost(self, bounds: Array, chances: Sequence[float]) -> Array:
        """By how much each upper bound lowers a mean, (chances, bounds): it is less with these chances, by the weights."""
        every = self._beyond(bounds)
        order = np.argsort(every, axis=0)
        before = np.cumsum(self.weights[order], axis=0)
        places = [np.minimum((before < chance).sum(axis=0), len(self.weights) - 1) for chance in chances]
        return np.asarray(np.take_along_axis(np.take_along_axis(every, order, 0), np.array(places), 0), dtype=np.float64)

    def _beyond(self, bounds: Array) -> Array:
        """By how much each bound lowers a mean with each tail, (tails, bounds)."""
        shapes, scales = self.shapes[:, None], self.scales[:, None]
        reach = np.maximum(1 + shapes * np.maximum(bounds - self.start, 0.0) / scales, 0.0)
        with np.errstate(divide="ignore"):
            powers = np.where(reach > 0, reach ** (1 - 1 / shapes), 0.0)
        return np.asarray(self.mass * scales / (1 - shapes) * powers, dtype=np.float64)


def cut_points(edges: Array, half: float) -> list[int]:
    """Which of rising edges part a tail: a few rooms of a quarter to half of ``half``, and then each wider than the last.

    Values that are few whole numbers would leave most finer cells empty, as no smooth tail does.
    """
    width = 2.0 ** math.floor(math.log2(half)) / 2
    ends, end, place = [0], 0.0, 0
    while place < len(edges) - 1:
        end += width * (1.0 if len(ends) < _EQUAL else _WIDER ** (len(ends) - _EQUAL + 1))
        place = max(min(int(np.searchsorted(edges, edges[0] + end * (1 - 1e-12))), len(edges) - 1), place + 1)
        ends.append(place)
    return ends
