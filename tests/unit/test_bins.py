"""Where columns are cut: from what they declare, for every kind of bin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.statistics.features import Axis
from quietmean.statistics.features.table import edges_of
from quietmean.statistics.statistic import raw
from support.refusals import refused, refused_rows

BINNED = ("histogram(x{})", "quantiles(x{})", "cdf(x{})", "roc(x, y{})", "mann-whitney(x, y{})")


def column(**declared: object) -> Column:
    return Column.model_validate({"name": "x", "low": 0, "high": 60, **declared})


def test_equal_widths_and_equal_factors_and_equal_log_odds() -> None:
    assert edges_of(column(), 3) == (0, 20, 40, 60)
    assert edges_of(column(low=1, high=1000, scale="log"), 3) == pytest.approx((1, 10, 100, 1000))
    # From 0 on: six decades, and one bin for what is below.
    assert edges_of(column(high=1e6, scale="log"), 7) == pytest.approx((0, 1, 10, 100, 1e3, 1e4, 1e5, 1e6))
    assert edges_of(column(low=-5, high=1e6, scale="log"), 3) == pytest.approx((-5, 1, 1e3, 1e6))
    odds = np.array(edges_of(column(high=1, scale="log-odds"), 8))
    assert (odds[0], odds[4], odds[-1]) == pytest.approx((0, 0.5, 1))
    assert np.diff(np.log(odds[1:-1] / (1 - odds[1:-1]))) == pytest.approx(2 * math.log(999) / 8)
    assert edges_of(column(edges=(0, 10, 50)), 3) == (0, 10, 50)


@given(low=st.integers(-30, 30), more=st.integers(1, 200), bins=st.integers(1, 300), closed=st.sampled_from(["left", "right"]))
def test_whole_numbers_are_in_equal_groups_one_each_where_bins_allow_it(low: int, more: int, bins: int, closed: str) -> None:
    """No group is larger than another by more than one, none is split, and every number has a cell that is not beyond."""
    known = column(low=low, high=low + more, whole=True)
    axis = Axis.of(known, None, bins, 10, closed=closed)
    numbers = np.arange(low, low + more + 1, dtype=float)
    cells = axis.place({raw("x"): numbers})
    assert (np.diff(cells) >= 0).all()
    first = 0 if closed == "right" else 1
    assert (cells[0], cells[-1]) == (first, len(axis.labels) - 3)
    counted = np.bincount(cells)[1:]
    assert counted.max() - counted.min() <= 1
    assert len(counted) == min(bins, more if closed == "right" else more + 1)
    assert axis.single[1:-2].tolist() == [one == 1 for one in counted]


@pytest.mark.parametrize("text", BINNED)
def test_a_statistic_takes_its_bins_from_the_column_unless_it_has_its_own(text: str) -> None:
    """More edges, fewer coordinates: the vector's length tells which bins were taken."""

    def dimension(more: str, **declared: object) -> int:
        columns = Columns([column(**declared), Column(name="y", boolean=True)])
        return Workload(columns, (parse_statistic(read_text(text.format(more))),), PrivacyUnit.RECORD).dimension

    assert dimension("", edges=(0, 5, 10, 60)) == dimension(", bins=3") == dimension(", edges=0 1 2 3", edges=(0, 5, 60))
    assert dimension(", bins=3", edges=(0, 5, 60)) == dimension(", bins=3")
    assert dimension(", bins=2", whole=True) == dimension(", bins=2") == dimension(", bins=2", scale="log")


@pytest.mark.parametrize("closed", ["left", "right"])
@given(values=st.lists(st.floats(-10, 70), min_size=1, max_size=20))
def test_a_bin_holds_what_its_label_says(closed: str, values: list[float]) -> None:
    edges = (0.0, 10.0, 25.0, 60.0)
    cells = Axis(column(), edges, closed).place({raw("x"): np.array(values)})
    for value, cell in zip(values, cells.tolist(), strict=True):
        below = [edge for edge in edges if (edge < value if closed == "right" else edge <= value)]
        assert cell == (len(edges) - 1 if closed == "left" and value == edges[-1] else len(below))


@refused_rows("bins_that_nobody_can_make_are_refused")
def test_bins_that_nobody_can_make_are_refused(declared: dict[str, object], said: str) -> None:
    refused(said, column, **declared)
