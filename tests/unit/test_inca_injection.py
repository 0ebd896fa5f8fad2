"""IncA's injections: which (c, Z) are valid, what is cancelled after how many rounds, and what files may say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.protocols.inca import Injection, PushSumParameters
from quietmean.testing.strategies import injections
from support.refusals import refused


def read(raw: object, rounds: int) -> Injection:
    """As files have it, for so many rounds."""
    return PushSumParameters.read({"injection": raw, "rounds": rounds}).injections


def dense(terms: tuple[tuple[tuple[int, float], ...], ...], columns: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    matrix = np.zeros((len(terms), columns))
    for row, entries in enumerate(terms):
        for index, coefficient in entries:
            matrix[row, index - 1] = coefficient
    return matrix


def test_incremental_is_example_3_2() -> None:
    injection = Injection.incremental(3)
    assert injection.portion.tolist() == [0.25] * 4
    assert injection.noise.tolist() == [[1, 0, 0], [-1, 1, 0], [0, -1, 1], [0, 0, -1]]


def test_early_is_example_3_1() -> None:
    injection = Injection.early(2)
    assert injection.portion.tolist() == [1, 0, 0]
    assert injection.noise.tolist() == [[1, 1], [-1, 0], [0, -1]]


@given(st.integers(1, 8).flatmap(lambda rounds: st.tuples(st.just(rounds), injections(rounds))))
def test_valid_injections_and_their_cancellations(drawn: tuple[int, Any]) -> None:
    rounds, raw = drawn
    injection = read(raw, rounds)
    assert injection.rounds == rounds
    assert injection.portion.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(injection.noise.sum(axis=0), 0.0, atol=1e-9)
    rows, cancellations = dense(injection.rows, rounds), dense(injection.cancellations, rounds)
    np.testing.assert_array_equal(rows, injection.noise)
    assert len(cancellations) == rounds + 2
    for used in range(rounds + 1):
        np.testing.assert_allclose(cancellations[used] + rows[:used].sum(axis=0), 0.0, atol=1e-12 * np.abs(rows).max() * rounds)
    # After all rounds but the last, what cancels is the last row of Z.
    np.testing.assert_allclose(cancellations[rounds], rows[rounds], atol=1e-9)
    again = read(injection.describe(), rounds)
    np.testing.assert_array_equal(again.noise, injection.noise)
    np.testing.assert_array_equal(again.portion, injection.portion)


Z2 = [[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("late", "'late' is unknown"),
        (None, "is unknown"),
        ({"c": [0.5, 0.5, 0.0]}, "is unknown"),
        ({"c": [0.5, 0.5, 0.0], "Z": Z2, "rho": 1}, "is unknown"),
        ({"c": [0.5, 0.4, 0.0], "Z": Z2}, "c sums to 0.9"),
        ({"c": [0.5, 0.5], "Z": Z2}, "Give 3 portions"),
        ({"c": [0.5, 0.5, 0.0], "Z": [[1.0, 0.0], [-1.0, 1.0], [0.0, 0.0]]}, "column 1 of Z sums to 1"),
        ({"c": [0.5, 0.5, 0.0], "Z": [[1.0], [-1.0], [0.0]]}, "Give Z the shape"),
        ({"c": [0.5, 0.5, 0.0], "Z": [[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]}, "singular"),
        ({"c": [0.5, 0.5, 0.0], "Z": [[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]}, "singular"),
        ({"c": [0.5, 0.5, 0.0], "Z": [["a", 0.0], [-1.0, 1.0], [0.0, -1.0]]}, "not an array of numbers"),
        ({"c": [0.5, 0.5, 0.0], "Z": Z2, "sigma": [1.0, 0.0]}, "singular"),
        ({"c": [0.5, 0.5, 0.0], "Z": Z2, "sigma": [1.0, 2.0, 3.0]}, "not an array of numbers"),
        ({"c": [float("inf"), 0.5, 0.0], "Z": Z2}, "infinite or no number"),
    ],
)
def test_invalid_injections_are_refused(raw: object, message: str) -> None:
    refused(message, read, raw, 2)


def test_relative_scales_multiply_columns() -> None:
    injection = read({"c": [0.5, 0.5, 0.0], "Z": Z2, "sigma": [2.0, 3.0]}, 2)
    assert injection.noise.tolist() == [[2, 0], [-2, 3], [0, -3]]


@pytest.mark.parametrize("sigma", [-1.0, float("nan"), float("inf")])
def test_impossible_noise_levels_are_refused(sigma: float) -> None:
    refused("sigma_star is", PushSumParameters, rounds=2, sigma_star=sigma, sigma_delta=1.0)
    refused("sigma_delta is", PushSumParameters, rounds=2, sigma_star=1.0, sigma_delta=sigma)
