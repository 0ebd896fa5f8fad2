"""What is lost beyond bounds is told from cells in which the tail is seen."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.arrays import Array
from quietmean.statistics.long_tails import FittedTails, cut_points

RECORDS, MASS = 1e6, 0.4
EDGES = np.linspace(0.0, 8.0, 257)


def beyond(shape: float) -> Array:
    """Of scale 1, at the edges: an end, an exponential, a power."""
    return np.exp(-EDGES) if not shape else np.maximum(1 + shape * EDGES, 0.0) ** (-1 / shape)


@pytest.mark.parametrize("shape", [-0.6, 0.0, 0.4])
def test_tails_that_are_seen_lose_what_they_lose(shape: float) -> None:
    """With noise of 1e-5 in a cell the loss beyond 3 is right to a tenth of its size, or of 1e-4."""
    cuts = cut_points(EDGES, 0.7)
    at = beyond(shape)[cuts]
    parts = MASS * (at[:-1] - at[1:])
    tails = FittedTails.fitted(EDGES[cuts], parts, np.full(len(parts), 1e-5), MASS, 0.7, RECORDS)
    far = 3.0
    wanted = MASS * (np.exp(-far) if not shape else max(1 + shape * far, 0.0) ** (1 - 1 / shape) / (1 - shape))
    least, middle, most = tails.lost(np.array([0.0, 1.0, 2.0, far, 8.0]), (0.05, 0.5, 0.95))
    assert middle[3] == pytest.approx(wanted, rel=0.1, abs=1e-5)
    # Less with less of a chance, and less farther out.
    assert (least <= middle).all()
    assert (middle <= most).all()
    assert (np.diff(middle) <= 0).all()
    assert tails.weights.sum() == pytest.approx(1)


def test_more_noise_allows_longer_tails() -> None:
    cuts = cut_points(EDGES, 0.7)
    at = beyond(0.0)[cuts]
    parts = MASS * (at[:-1] - at[1:])
    lost = [
        FittedTails.fitted(EDGES[cuts], parts, np.full(len(parts), error), MASS, 0.7, RECORDS).lost(np.array([3.0]), (0.9,))[0, 0]
        for error in (1e-4, 1e-3, 1e-2)
    ]
    assert lost == sorted(lost)
    assert lost[2] > 1.4 * lost[0]


def test_cuts_rise_to_the_last_edge_and_are_no_finer_than_whole_numbers_need() -> None:
    cuts = cut_points(EDGES, 0.7)
    assert cuts[0] == 0
    assert cuts[-1] == len(EDGES) - 1
    widths = np.diff(EDGES[cuts])
    assert (widths > 0).all()
    assert widths[:8] == pytest.approx(0.25)
    # Where edges are farther apart than that, each is a cut.
    assert cut_points(np.array([0.0, 16.0, 32.0, 48.0]), 1.0) == [0, 1, 2, 3]
