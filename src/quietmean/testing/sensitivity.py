"""A search for two records whose encodings are further apart than the sensitivity says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean.statistics import Column, Workload

Array = NDArray[np.float64]

# Numbers tried for each column: so many evenly between the bounds, so many at random, and what is outside or missing.
_EVEN, _RANDOM = 17, 8
# Relative to the distance: encodings are computed in float64.
ROUNDING = 1e-9


def farthest_records(workload: Workload, *, restarts: int = 6, seed: int = 0, step: float = 0.0) -> tuple[float, Array]:
    """The largest L2 distance found between the vectors of two records, and these two, shape (2, columns).

    From random pairs, or one record twice, column by column: the two cells of a column are set to the best two of many
    candidates, as long as that helps. ``step``: of the grid to which records are rounded. A lower bound of the true sensitivity.
    """
    stream = BitStream(insecure_seed(seed, "farthest records"))
    choices = [_candidates(column, stream) for column in workload.columns]
    best, found = 0.0, np.zeros((2, len(choices)))
    for restart in range(restarts):
        pair = np.array([[values[int(stream.integers(len(values), 1)[0])] for values in choices] for _ in range(2)])
        if restart % 2:
            # Of the same levels: where these differ, other cells are not at their ends.
            pair[1] = pair[0]
        distance, grown = -1.0, 0.0
        while grown > distance:
            distance = grown
            for place, values in enumerate(choices):
                grown, pair = _improved(workload, pair, place, values, step)
        if grown > best:
            best, found = grown, pair.copy()
    return best, found


def check_sensitivity(workload: Workload, *, restarts: int = 6, seed: int = 0, step: float = 0.0) -> float:
    """How much of a workload's sensitivity a search reaches, at most 1.

    Raises ``AssertionError`` with the two records if it finds more than the sensitivity says.
    """
    distance, records = farthest_records(workload, restarts=restarts, seed=seed, step=step)
    claimed = workload.sensitivity
    assert distance <= claimed * (1 + ROUNDING), f"records {records.tolist()} are {distance:.9g} apart, not {claimed:.9g} at most"
    return distance / claimed


def _improved(workload: Workload, pair: Array, place: int, values: Array, step: float) -> tuple[float, Array]:
    """The best two of ``values`` for one column of the pair, and the distance that they give."""
    sides = []
    for record in pair:
        varied = np.tile(record, (len(values), 1))
        varied[:, place] = values
        sides.append(workload.of_records(varied, step=step))
    one, other = sides
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    first, second = np.unravel_index(int(squares.argmax()), squares.shape)
    better = pair.copy()
    better[:, place] = values[first], values[second]
    # Once more without cancellation.
    return float(np.linalg.norm(one[first] - other[second])), better


def _candidates(column: Column, stream: BitStream) -> Array:
    """Cells of a column: what it can be, what is outside, and none."""
    if not column.numeric:
        return np.array([*range(-1, len(column.categories) + 1), np.nan], dtype=np.float64)
    even = np.linspace(column.low, column.high, _EVEN)
    drawn = column.low + column.width * stream.uniform(_RANDOM)
    return np.array([column.low - column.width, *even, *drawn, column.high + column.width, np.nan])
