"""Conformance checks for any statistic, on any columns and records."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean.statistics import Column, Columns, Estimates, Feature, Records, Statistic, Workload, parse_statistic, read_text

# Candidates for each column: evenly spaced numbers, random ones, and besides some outside the bounds and a missing cell.
_EVEN, _RANDOM = 17, 8
# Random pairs of which a search chooses its start.
_PAIRS = 256
# Rounding relative to the distance: encodings are computed in float64.
ROUNDING = 1e-9


def farthest_records(
    workload: Workload, *, restarts: int = 6, seed: int = 0, step: float = 0.0, order: int = 2
) -> tuple[float, Array]:
    """The largest distance found between the vectors of two records, and these two, shape (2, columns): L2, or L1 by ``order``.

    From the best of many random pairs, column by column: the two cells of a column are set to the best two of many
    candidates, as long as that helps. ``step``: of the grid to which records are rounded. A lower bound of the true sensitivity.
    """
    stream = BitStream(insecure_seed(seed, "farthest records"))
    choices = [candidates(column, stream) for column in workload.columns]
    best, farthest = 0.0, np.zeros((2, len(choices)))
    for _ in range(restarts):
        pair = _start(workload, choices, stream, step, order)
        distance, grown = -1.0, 0.0
        while grown > distance:
            distance = grown
            for column_index, values in enumerate(choices):
                grown, pair = _improved(workload, pair, column_index, values, step, order)
        if grown > best:
            best, farthest = grown, pair.copy()
    return best, farthest


def longest_record(
    workload: Workload, *, restarts: int = 6, seed: int = 0, step: float = 0.0, order: int = 2
) -> tuple[float, Array]:
    """The largest norm found of the vector of a record, and that record, (columns,); the same search with one record.

    A lower bound of the true sensitivity where a record is added or removed.
    """
    stream = BitStream(insecure_seed(seed, "longest record"))
    choices = [candidates(column, stream) for column in workload.columns]
    best, longest = 0.0, np.zeros(len(choices))
    for _ in range(restarts):
        record, length = _start(workload, choices, stream, step, order)[0], -1.0
        grown = 0.0
        while grown > length:
            length = grown
            for column_index, values in enumerate(choices):
                varied = np.tile(record, (len(values), 1))
                varied[:, column_index] = values
                lengths = np.linalg.norm(workload.of_records(varied, step=step), ord=order, axis=1)
                record, grown = varied[int(lengths.argmax())], float(lengths.max())
        if grown > best:
            best, longest = grown, record
    return best, longest


def check_sensitivity(workload: Workload, *, restarts: int = 6, seed: int = 0, step: float = 0.0, order: int = 2) -> float:
    """How much of a workload's sensitivity a search reaches, at most 1: of two records, or where counts are private of one.

    ``order``: 2, or 1 for :attr:`Workload.l1`, which rounding to a grid may exceed. Raises ``AssertionError`` with the records
    if it finds more than that says.
    """
    claimed = workload.l1 if order == 1 else workload.sensitivity
    if workload.hides_count:
        length, record = longest_record(workload, restarts=restarts, seed=seed, step=step, order=order)
        assert length <= claimed * (1 + ROUNDING), f"record {record.tolist()} is {length:.9g} long, not {claimed:.9g} at most"
        return length / claimed
    distance, records = farthest_records(workload, restarts=restarts, seed=seed, step=step, order=order)
    assert distance <= claimed * (1 + ROUNDING), f"records {records.tolist()} are {distance:.9g} apart, not {claimed:.9g} at most"
    return distance / claimed


def _start(workload: Workload, choices: list[Array], stream: BitStream, step: float, order: int) -> Array:
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
    farthest = int(np.linalg.norm(vectors[:_PAIRS] - vectors[_PAIRS:], ord=order, axis=1).argmax())
    return records[[farthest, _PAIRS + farthest]]


def _improved(workload: Workload, pair: Array, column: int, values: Array, step: float, order: int) -> tuple[float, Array]:
    """The best two of ``values`` for one column of the pair, and the distance that they give."""
    sides = []
    for record in pair:
        varied = np.tile(record, (len(values), 1))
        varied[:, column] = values
        sides.append(workload.of_records(varied, step=step))
    first_vectors, second_vectors = sides
    if order == 1:
        apart = np.array([np.abs(vector - second_vectors).sum(axis=1) for vector in first_vectors])
    else:
        squares = [(vectors**2).sum(axis=1) for vectors in sides]
        apart = squares[0][:, None] + squares[1] - 2 * first_vectors @ second_vectors.T
    first, second = np.unravel_index(int(apart.argmax()), apart.shape)
    better = pair.copy()
    better[:, column] = values[first], values[second]
    # Once more without cancellation.
    return float(np.linalg.norm(first_vectors[first] - second_vectors[second], ord=order)), better


def candidates(column: Column, stream: BitStream) -> Array:
    """Cells of a column: what it can be, what is outside, and none."""
    if not column.numeric:
        return np.array([*range(-1, len(column.categories) + 1), np.nan], dtype=np.float64)
    even = np.linspace(column.low, column.high, _EVEN)
    drawn = column.low + column.width * stream.uniform(_RANDOM)
    return np.array([column.low - column.width, *even, *drawn, column.high + column.width, np.nan])


# Relative to the largest number that takes part.
TOLERANCE = 1e-9
# Noise so small that what is not linear is nearly so, how often it is drawn, and how far its spread may be from what is stated.
_NOISE, _DRAWS, _SPREAD = 1e-5, 400, 0.25
# A grid as coarse as any that plans choose for few statistics.
_STEP = 2.0**-14


def check_statistic(statistic: Statistic, columns: Columns, records: Array, seed: int = 0) -> None:
    """All checks, on ``records`` of shape (rows, columns), the corners of their bounds, and some with missing values.

    Raises ``AssertionError`` with what differs. The statistic can be read back from what it writes. Its features are functions of
    one record, with the stated sensitivity, also after rounding to a grid and for what a search finds; sums of encodings lie in
    the stated domain. Estimates lie within their stated range. Without noise their standard error is 0;
    with noise it is as large as stated.
    """
    assert parse_statistic(statistic.describe()) == statistic, f"{statistic.text} is not what it writes in a study file"
    if statistic.share == 1:
        assert parse_statistic(read_text(statistic.text)) == statistic, f"{statistic.text} is not what its own text says"
    everybody = np.vstack([records, _corners(columns), _incomplete(records)])
    workload = Workload(columns, (statistic,), PrivacyUnit.RECORD)
    features = workload.with_columns(statistic).features
    assert features, f"{statistic.text} asks for no feature"
    assert features == workload.with_columns(statistic).features, (
        f"the features of {statistic.text} are others when asked for again"
    )
    for feature in features:
        check_feature(feature, workload.inside(everybody))
    for step in (0.0, _STEP):
        check_sensitivity(workload, restarts=2, seed=seed, step=step)
        _check_domain(workload, everybody, step)
    check_sensitivity(workload, restarts=2, seed=seed, order=1)
    _check_decoding(workload, everybody, seed)


def check_feature(feature: Feature, records: Records) -> None:
    """A feature is a function of each record by itself, and no two encodings are further apart than its sensitivity."""
    rows = len(next(iter(records.values())))
    encoded = feature.encode(records)
    assert encoded.shape == (rows, feature.size), f"{feature} has shape {encoded.shape}, not {(rows, feature.size)}"
    assert np.isfinite(encoded).all(), f"{feature} is not finite for a record inside the bounds"
    assert hash(feature) == hash(feature), f"{feature} cannot be distinguished from others"
    for row in range(rows):
        alone = feature.encode({name: values[row : row + 1] for name, values in records.items()})
        assert np.array_equal(alone[0], encoded[row]), f"{feature} of record {row} depends on other records"
        farthest = float(np.linalg.norm(encoded - encoded[row], axis=1).max())
        assert farthest <= feature.sensitivity * (1 + TOLERANCE), f"{feature} moves by {farthest:g}, not {feature.sensitivity:g}"
        most = int(np.count_nonzero(encoded[row]))
        assert most <= feature.most_nonzero, f"{feature} has {most} numbers that are not 0, and says {feature.most_nonzero}"


def _check_domain(workload: Workload, records: Array, step: float) -> None:
    encoded = workload.encode(records, step=step)
    moved = workload.domain.moved(encoded.vector, encoded.weight)
    apart = float(np.abs(moved - encoded.vector).max())
    assert apart <= TOLERANCE * encoded.weight, f"a sum of encodings lies outside the stated domain by {apart:g}"
    for row in workload.of_records(records, step=step):
        assert np.allclose(workload.domain.moved(row), row, rtol=0, atol=TOLERANCE), "an encoding lies outside the stated domain"


def _check_decoding(workload: Workload, records: Array, seed: int) -> None:
    encoded = workload.encode(records)
    mean = encoded.vector / encoded.weight
    exact = _decoded(workload, mean, 0.0, encoded.weight)
    there = ~np.isnan(exact.value)
    assert not np.nan_to_num(exact.standard_error[there]).any(), "an error is stated without noise"
    slack = TOLERANCE * (1 + np.abs(exact.high - exact.low))
    slack[~np.isfinite(slack)] = 0.0
    inside = (exact.low - slack <= exact.value) & (exact.value <= exact.high + slack) | ~there
    assert inside.all(), f"{exact.value} are not all from {exact.low} to {exact.high}"
    stated = _decoded(workload, mean, _NOISE, encoded.weight)
    assert len(set(stated.terms)) == len(stated.terms), f"terms are named twice in {stated.terms}"
    draws = BitStream(insecure_seed(seed, "statistic")).standard_normal((_DRAWS, mean.size)) * _NOISE
    noisy = np.array([_decoded(workload, mean + noise, _NOISE, encoded.weight).value for noise in draws])
    # Of what the records allow to estimate, also where little noise hides a count of none, and what is not public already.
    there &= ~np.isnan(stated.value)
    private = there & (stated.standard_error > 0)
    assert (noisy.std(axis=0)[there & ~private] <= TOLERANCE).all(), f"no error is stated for some of {stated.terms}"
    ratio = (noisy.std(axis=0) / np.where(private, stated.standard_error, 1.0))[private]
    assert (np.abs(ratio - 1) <= _SPREAD).all(), f"errors of {stated.terms} are {ratio} times as large as stated"


def _decoded(workload: Workload, mean: Array, noise: float, weight: float) -> Estimates:
    (statistic,) = workload.statistics
    estimates = workload.with_columns(statistic).as_released(workload.decoder().released(mean, noise, weight))
    for values in (estimates.value, estimates.standard_error, estimates.low, estimates.high):
        assert values.shape == (len(estimates.terms),), f"{len(estimates.terms)} terms have arrays of shape {values.shape}"
    return estimates


def _incomplete(records: Array) -> Array:
    """Records without any value, and without one of their values."""
    holes = np.where(np.eye(records.shape[1], dtype=np.bool_), np.nan, records[0])
    incomplete: Array = np.vstack([np.full(records.shape[1], np.nan), holes])
    return incomplete


def _corners(columns: Columns) -> Array:
    """All columns at one of their bounds: every way for few columns, each one alone for many."""
    low = np.array([column.low for column in columns])
    width = np.array([column.width if column.numeric else len(column.categories) - 1 for column in columns])
    few = len(columns) <= 10
    sides = np.indices((2,) * len(columns)).reshape(len(columns), -1).T if few else np.vstack([np.eye(len(columns)), low * 0])
    corners: Array = low + sides * width
    return corners
