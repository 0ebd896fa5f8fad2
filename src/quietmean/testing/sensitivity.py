"""A search for two records whose encodings are further apart than the sensitivity says."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean.statistics import Column, Workload

# Candidates for each column: evenly spaced numbers, random ones, and besides some outside the bounds and a missing cell.
_EVEN, _RANDOM = 17, 8
# Random pairs of which a search chooses its start.
_PAIRS = 256
# Rounding relative to the distance: encodings are computed in float64.
ROUNDING = 1e-9


def farthest_records(workload: Workload, *, restarts: int = 6, seed: int = 0, step: float = 0.0) -> tuple[float, Array]:
    """The largest L2 distance found between the vectors of two records, and these two, shape (2, columns).

    From the best of many random pairs, column by column: the two cells of a column are set to the best two of many
    candidates, as long as that helps. ``step``: of the grid to which records are rounded. A lower bound of the true sensitivity.
    """
    stream = BitStream(insecure_seed(seed, "farthest records"))
    choices = [candidates(column, stream) for column in workload.columns]
    best, farthest = 0.0, np.zeros((2, len(choices)))
    for _ in range(restarts):
        pair = _start(workload, choices, stream, step)
        distance, grown = -1.0, 0.0
        while grown > distance:
            distance = grown
            for column_index, values in enumerate(choices):
                grown, pair = _improved(workload, pair, column_index, values, step)
        if grown > best:
            best, farthest = grown, pair.copy()
    return best, farthest


def longest_record(workload: Workload, *, restarts: int = 6, seed: int = 0, step: float = 0.0) -> tuple[float, Array]:
    """The largest L2 norm found of the vector of a record, and that record, (columns,); the same search with one record.

    A lower bound of the true sensitivity where a record is added or removed.
    """
    stream = BitStream(insecure_seed(seed, "longest record"))
    choices = [candidates(column, stream) for column in workload.columns]
    best, longest = 0.0, np.zeros(len(choices))
    for _ in range(restarts):
        record, length = _start(workload, choices, stream, step)[0], -1.0
        grown = 0.0
        while grown > length:
            length = grown
            for column_index, values in enumerate(choices):
                varied = np.tile(record, (len(values), 1))
                varied[:, column_index] = values
                lengths = np.linalg.norm(workload.of_records(varied, step=step), axis=1)
                record, grown = varied[int(lengths.argmax())], float(lengths.max())
        if grown > best:
            best, longest = grown, record
    return best, longest


def check_sensitivity(workload: Workload, *, restarts: int = 6, seed: int = 0, step: float = 0.0) -> float:
    """How much of a workload's sensitivity a search reaches, at most 1: of two records, or where counts are private of one.

    Raises ``AssertionError`` with the records if it finds more than the sensitivity says.
    """
    claimed = workload.sensitivity
    if workload.hides_count:
        length, record = longest_record(workload, restarts=restarts, seed=seed, step=step)
        assert length <= claimed * (1 + ROUNDING), f"record {record.tolist()} is {length:.9g} long, not {claimed:.9g} at most"
        return length / claimed
    distance, records = farthest_records(workload, restarts=restarts, seed=seed, step=step)
    assert distance <= claimed * (1 + ROUNDING), f"records {records.tolist()} are {distance:.9g} apart, not {claimed:.9g} at most"
    return distance / claimed


def _start(workload: Workload, choices: list[Array], stream: BitStream, step: float) -> Array:
    """The farthest of random pairs of records, half of whose numbers lie on their bounds."""
    drawn = []
    for column, values in zip(workload.columns, choices, strict=True):
        cells = values[stream.integers(len(values), 2 * _PAIRS)]
        if column.numeric:
            ends = np.where(stream.integers(2, 2 * _PAIRS) == 1, column.high, column.low)
            cells = np.where(stream.integers(2, 2 * _PAIRS) == 1, ends, cells)
        drawn.append(cells)
    records = np.column_stack(drawn)
    vectors = workload.of_records(records, step=step)
    farthest = int(np.linalg.norm(vectors[:_PAIRS] - vectors[_PAIRS:], axis=1).argmax())
    return records[[farthest, _PAIRS + farthest]]


def _improved(workload: Workload, pair: Array, column: int, values: Array, step: float) -> tuple[float, Array]:
    """The best two of ``values`` for one column of the pair, and the distance that they give."""
    sides = []
    for record in pair:
        varied = np.tile(record, (len(values), 1))
        varied[:, column] = values
        sides.append(workload.of_records(varied, step=step))
    first_vectors, second_vectors = sides
    squares = (first_vectors**2).sum(axis=1)[:, None] + (second_vectors**2).sum(axis=1) - 2 * first_vectors @ second_vectors.T
    first, second = np.unravel_index(int(squares.argmax()), squares.shape)
    better = pair.copy()
    better[:, column] = values[first], values[second]
    # Once more without cancellation.
    return float(np.linalg.norm(first_vectors[first] - second_vectors[second])), better


def candidates(column: Column, stream: BitStream) -> Array:
    """Cells of a column: what it can be, what is outside, and none."""
    if not column.numeric:
        return np.array([*range(-1, len(column.categories) + 1), np.nan], dtype=np.float64)
    even = np.linspace(column.low, column.high, _EVEN)
    drawn = column.low + column.width * stream.uniform(_RANDOM)
    return np.array([column.low - column.width, *even, *drawn, column.high + column.width, np.nan])
