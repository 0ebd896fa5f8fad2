"""Bins are part of the error: without noise the answer for the records as they are lies within the stated resolution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.statistics import Column, Columns, Estimates
from support.effort import examples
from support.workloads import exact_of, workload_of

Array = NDArray[np.float64]
CUTS: tuple[dict[str, object], ...] = ({}, {"scale": "log"}, {"whole": True}, {"edges": (0, 3, 10, 11, 60)}, {"edges": (5, 20)})
CLOSE = 1e-9


def answer(columns: list[Column], text: str, records: Array) -> Estimates:
    return exact_of(workload_of(Columns(columns), text), records)


@st.composite
def values(draw: st.DrawFn) -> Array:
    """Few values, many values, lumps and skew, some beyond the bounds."""
    count, rng = draw(st.integers(5, 300)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["lumps", "skewed", "even"]))
    if kind == "lumps":
        return rng.choice(rng.integers(0, 61, 4), count).astype(np.float64)
    return rng.lognormal(1, 1.5, count) if kind == "skewed" else rng.uniform(0, 60, count)


def assert_within(found: Estimates, exact: Array, places: slice | list[int] = slice(None)) -> None:
    assert found.resolution is not None
    assert found.of_population is not None
    low, high = found.value - found.resolution[:, 0], found.value + found.resolution[:, 1]
    assert (low[places] - CLOSE <= exact).all(), (low, exact)
    assert (exact <= high[places] + CLOSE).all(), (high, exact)
    for ends in (found.of_noise, found.of_population):
        assert (ends[places, 0] <= low[places] + CLOSE).all()
        assert (ends[places, 1] >= high[places] - CLOSE).all()


@settings(max_examples=examples(60), deadline=None)
@given(x=values(), cut=st.sampled_from(CUTS), bins=st.sampled_from([80, 7]))
def test_a_quantile_of_the_records_lies_in_the_bin_that_is_stated(x: Array, cut: dict[str, object], bins: int) -> None:
    column = Column.model_validate({"name": "x", "low": 0, "high": 60, **cut})
    kept = np.clip(np.rint(x) if column.whole else x, 0, 60)
    levels = (0.1, 0.5, 0.83)
    exact = np.quantile(kept, levels, method="inverted_cdf")
    # Where a sum of records is just the probability, rounding says which of two neighbours it is.
    assume(np.array_equal(exact, np.quantile(kept, [one - 1e-6 for one in levels], method="inverted_cdf")))
    found = answer([column], f"quantiles(x, 0.1 0.5 0.83, bins={bins})", x[:, None])
    assert_within(found, exact)
    if column.whole and bins == 80:
        assert found.value.tolist() == exact.tolist()


@pytest.mark.parametrize("cut", CUTS)
@settings(max_examples=20, deadline=None)
@given(x=values())
def test_a_cumulative_distribution_is_exact_at_its_edges(cut: dict[str, object], x: Array) -> None:
    """The part of values of at most the edge: no bin has a say."""
    column = Column.model_validate({"name": "x", "low": 0, "high": 60, **cut})
    kept = np.rint(x) if column.whole else x
    found = answer([column], "cdf(x, bins=60)", x[:, None])
    edges = np.array([float(term) for term in found.terms])
    # Terms have six digits.
    sure = [place for place, edge in enumerate(edges) if np.abs(kept - edge).min() > 1e-4 or float(edge).is_integer()]
    assert found.value[sure] == pytest.approx([(kept <= edge).mean() for edge in edges[sure]])


@settings(max_examples=examples(40), deadline=None)
@given(x=values(), cut=st.sampled_from(CUTS), bins=st.sampled_from([60, 5]), kind=st.sampled_from(["roc", "mann-whitney"]))
def test_the_area_of_the_values_is_within_half_of_the_tied_pairs(x: Array, cut: dict[str, object], bins: int, kind: str) -> None:
    """Whatever the order within bins is; of whole numbers, one a bin, it is the area itself."""
    column = Column.model_validate({"name": "x", "low": 0, "high": 60, **cut})
    second = np.arange(len(x)) % 3 == 0
    kept = np.rint(x) if column.whole else x
    inside = (kept >= 0) & (kept <= 60)
    assume(second[inside].sum() > 1 and (~second[inside]).sum() > 1)
    kept, second = kept[inside], second[inside]
    one, other = kept[~second][:, None], kept[second][None, :]
    exact = float(((other > one) + 0.5 * (other == one)).mean())
    found = answer([column, Column(name="y", boolean=True)], f"{kind}(x, y, bins={bins})", np.column_stack([kept, second]))
    if found.resolution is None:
        assert found.value[0] == pytest.approx(exact)
    else:
        assert_within(found, np.array([exact]), [0])
