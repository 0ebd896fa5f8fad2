"""Quantised messages confine a value ever more closely: the law of their cumulative leakage against simulated posteriors.

Monte Carlo means of 20 000 draws, compared within 5 standard errors; seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.party import Vector
from quietmean.privacy.mutual_information import (
    gaussian_entropy,
    of_equal_intervals,
    of_interval_intersection,
    of_noisy_value,
    of_sum,
    revealed_variance,
)
from quietmean.protocols.consensus import PROTOCOL
from quietmean.protocols.consensus.leakage import cumulative_leakage, honest_components, mutual_information
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed

DRAWS = 20_000


def simulated(widths: Vector) -> tuple[float, float]:
    """Mean logarithm of the intersection of the intervals that s + Uniform(w_k) leave for s, and its standard error."""
    units = BitStream(insecure_seed(2, "errors", len(widths))).uniform(DRAWS * len(widths)).reshape(DRAWS, -1) - 0.5
    errors = units * widths
    lengths = (errors + widths / 2).min(axis=1) - (errors - widths / 2).max(axis=1)
    logarithms = np.log(lengths)
    return float(logarithms.mean()), float(logarithms.std() / np.sqrt(DRAWS))


@pytest.mark.parametrize("messages", [1, 2, 8, 64])
def test_equal_cells(messages: int) -> None:
    mean, error = simulated(np.full(messages, 0.3))
    assert of_equal_intervals(0.0, 0.3, messages) == pytest.approx(-mean, abs=5 * error + 1e-12)


def test_any_cells() -> None:
    widths = np.maximum(0.9 ** np.arange(1, 81), 0.05)
    mean, error = simulated(widths)
    assert of_interval_intersection(0.0, widths) == pytest.approx(-mean, abs=5 * error + 0.02)


def test_twice_as_many_messages_reveal_ln_2_more() -> None:
    protocols = [
        PROTOCOL.parse(
            {"graph": "complete", "sigma_z": 1.0, "theta": 0.2, "c": 0.5, "bits": 2, "delta_0": 0.01, "delta_min": 0.01}
            | {"iterations": iterations},
            5,
        )
        for iterations in (400, 800)
    ]
    once, twice = (cumulative_leakage(each, 0, 1.0) for each in protocols)
    assert twice.nats - once.nats == pytest.approx(np.log(2), abs=1e-6)
    assert once.messages == 1600
    assert once.nats > once.largest_of_one + np.log(1000)
    width = (1 + 0.5 * 4) / (2 * 0.5 * 0.8) * 0.01
    assert once.nats == pytest.approx(of_equal_intervals(gaussian_entropy(1.0), width, 1600), abs=1e-3)


def test_nats_and_variance() -> None:
    np.testing.assert_allclose(revealed_variance([0.0, 0.5 * np.log(2), np.inf]), [0.0, 0.5, 1.0])
    assert of_sum(1) == np.inf
    assert of_sum(2) == pytest.approx(0.5 * np.log(2))
    assert of_noisy_value(2.0, 2.0) == pytest.approx(0.5 * np.log(2))


def test_a_thousand_parties_in_closed_form() -> None:
    protocol = PROTOCOL.parse({"graph": "geometric", "sigma_z": 10.0, "c": 0.2, "iterations": 200}, 1000)
    corrupt = range(0, 1000, 10)
    nats = mutual_information(protocol, corrupt, 1.0)
    assert nats.shape == (900,)
    assert len(honest_components(protocol, corrupt)) == 1
    assert of_sum(900) < nats.min() < nats.max() < 0.02
