"""How far each term of every kind of statistic moves where its vector does is never more than is stated.

Searched are corners of the box in which the vector may lie: random ones, and those in the direction in which a term rises most.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Answer, Statistic, Workload, registry
from quietmean.statistics.influence_bounds import Around, Shift
from quietmean.statistics.kinds.linear_regression import LinearRegression
from quietmean.statistics.statistic import Feature
from quietmean.studies.outcome.influence import Move, moves
from support.every_kind import COLUMNS, random_rows, statistics_of

Array = NDArray[np.float64]
RECORDS = 4000.0
# The size of the box and of the noise, relative to the vector of a record.
SIZES = ((0.002, 1e-4), (0.02, 1e-4), (0.3, 1e-3))
# Of kinds whose terms are bounded by more than their ranges: the least part of a bound that the search reaches.
REACHED = {
    "correlation": 0.5,
    "covariance": 0.7,
    "group-means": 0.5,
    "linear-regression": 0.2,
    "mean": 0.9,
    "quantiles": 0.5,
    "rates": 0.5,
    "table-1": 0.5,
    "variance": 0.7,
}
_CORNERS, _NUDGE = 12, 1e-7


class Case:
    """A statistic, a released mean vector, and the box of a size around it."""

    def __init__(self, statistic: Statistic, size: float, noise: float, missing: float = 0.1) -> None:
        self.workload = Workload(COLUMNS, (statistic,), PrivacyUnit.RECORD)
        self.rng = np.random.default_rng(33)
        records = random_rows(self.rng, 300, missing)
        # What a regression and a correlation find.
        records[:, 1] = 0.5 * records[:, 1] + 0.5 * np.nan_to_num(records[:, 0], nan=50.0)
        scale = self.workload.sensitivity
        self.mean = self.workload.of_records(records).mean(axis=0)
        self.box = size * scale * self.rng.uniform(0.5, 1.0, self.mean.size)
        self.noise = noise * scale
        self.shift = Shift(self.box, RECORDS * self.box, 0.0, self.noise, RECORDS, self.noise)

        self.corners = tuple(self.others())

    def answer(self, mean: Array) -> Answer:
        return self.workload.decode(mean, self.noise, RECORDS)[0]

    def stated(self, *, before: bool) -> tuple[Move, ...]:
        if before:
            return moves(self.workload, self.shift, 0.0)
        return moves(self.workload, self.shift, 0.0, self.mean, (self.answer(self.mean),))

    def others(self) -> Iterator[Array]:
        """Where the vector may be: corners of the box."""
        size, here = self.mean.size, self.answer(self.mean).estimates.value
        for _ in range(_CORNERS):
            yield self.mean + self.box * self.rng.choice([-1.0, 1.0], size)
        if size > 120:
            return
        slopes = np.array([self.answer(self.mean + _NUDGE * one).estimates.value - here for one in np.eye(size)])
        for slope in slopes.T:
            sign = np.sign(np.nan_to_num(slope))
            yield from (self.mean + self.box * sign, self.mean - self.box * sign)


def worst(case: Case, *, before: bool = False) -> tuple[float, float]:
    """The largest part of a stated bound that is reached: of all, and of those that are less than the whole range."""
    stated = {move.term: move for move in case.stated(before=before)}
    first = case.answer(case.mean).estimates
    reached, of_bounds = 0.0, 0.0
    for other in case.corners:
        estimates = case.answer(other).estimates
        for term, before_it, after in zip(first.terms, first.value.tolist(), estimates.value.tolist(), strict=True):
            move = stated[term]
            assert move.most is not None
            values = np.array([before_it, after]) if move.range is None else np.clip([before_it, after], *move.range)
            part = abs(values[1] - values[0]) / max(move.most, 1e-300)
            if np.isnan(part) or np.isinf(move.most):
                continue
            reached = max(reached, part)
            of_bounds = max(of_bounds, part if move.range is None else 0.0)
    return reached, of_bounds


def cases(kind: str, sizes: tuple[tuple[float, float], ...] = SIZES, missing: float = 0.1) -> Iterator[Case]:
    for size, noise in sizes:
        yield Case(statistics_of(registry()[kind])[0], size, noise, missing)


# Of the others the range is stated, which takes no search to find out.
def of(kinds: Iterable[str]) -> list[Any]:
    quick = set(REACHED) - {"table-1"}
    return [pytest.param(kind, marks=() if kind in quick else pytest.mark.slow) for kind in sorted(kinds)]


KINDS = of(registry())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_moves_a_term_of_a_result_by_more_than_is_stated(kind: str) -> None:
    parts = [worst(case) for case in cases(kind)]
    assert max(reached for reached, _ in parts) <= 1 + 1e-6
    assert max(of_bounds for _, of_bounds in parts) >= REACHED.get(kind, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_moves_a_term_by_more_than_is_stated_before_the_start(kind: str) -> None:
    """As if no cell were missing, and whatever the values."""
    for case in cases(kind, SIZES[1:], missing=0.0):
        assert worst(case, before=True)[0] <= 1 + 1e-6


@pytest.mark.parametrize("kind", of(set(REACHED) - {"mean"}))
def test_a_bound_of_less_than_half_is_found_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Around.moved

    def part(around: Around, feature: Feature, weights: Array) -> Array:
        return 0.4 * REACHED[kind] * own(around, feature, weights)

    monkeypatch.setattr(Around, "moved", part)
    assert max(worst(case)[0] for case in cases(kind, SIZES[:2])) > 1


def test_a_bound_that_forgets_the_noise_is_found_out() -> None:
    """Of a variance noise takes its own part out: with more noise in the other result, less is left."""
    case = Case(statistics_of(registry()["variance"])[0], 0.0, 0.02, 0.0)
    (stated,) = [one for one in case.stated(before=False) if one.term == "variance"]
    louder = replace(case.shift, most_noise=2 * case.noise)
    (bound,) = [one for one in moves(case.workload, louder, 0.0, case.mean, (case.answer(case.mean),)) if one.term == "variance"]
    values = [
        float(case.workload.decode(case.mean, noise, RECORDS)[0].estimates.value[0]) for noise in (case.noise, 2 * case.noise)
    ]
    assert stated.most is not None
    assert bound.most is not None
    assert abs(values[1] - values[0]) <= bound.most
    assert abs(values[1] - values[0]) > stated.most / 2


@pytest.mark.parametrize("text", ["mean", "variance", "count"])
def test_of_a_subgroup_no_more_than_the_range_is_known_beforehand(text: str) -> None:
    """How many records it has is not: with few of them one party moves its mean as far as it likes."""
    asked = registry()[text].parse({"column": "weight", "where": "age >= 80"})
    case = Case(asked, 0.002, 1e-4)
    before, of_result = case.stated(before=True), case.stated(before=False)
    if text == "count":
        assert before[0].most == pytest.approx(of_result[0].most)
    else:
        # A mean is a ratio that is released as it comes out: with few records it may lie anywhere.
        assert (before[0].range is None) == (text == "mean")
        assert before[0].most is not None
        assert of_result[0].most is not None
        assert of_result[0].most < before[0].most
    assert worst(case)[0] <= 1 + 1e-6


@pytest.mark.parametrize("kind", sorted(registry()))
@pytest.mark.parametrize("before", [False, True])
def test_where_nothing_bounds_a_release_nothing_but_a_range_bounds_a_term(kind: str, before: bool) -> None:
    """A sum reads some coordinates and not others: of no part of an unbounded one, no number is made up."""
    case = Case(statistics_of(registry()[kind])[0], 0.002, 1e-4)
    case.shift = replace(case.shift, mean=np.full_like(case.box, np.inf), total=np.full_like(case.box, np.inf))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for move in case.stated(before=before):
            least = np.inf if move.range is None else move.range[1] - move.range[0]
            assert move.most is not None
            assert move.most >= least * (1 - 1e-9)


def test_a_level_that_the_noise_may_hide_leaves_a_regression_without_a_bound() -> None:
    """Then the other result may have another coefficient by the same name."""
    asked = LinearRegression(formula="age ~ weight + sex")
    bounds = {}
    for size in (0.002, 0.2):
        case = Case(asked, size, 1e-4)
        bounds[size] = {one.term: one.most for one in case.stated(before=False)}
    assert all(most is not None and np.isfinite(most) for most in bounds[0.002].values())
    assert all(most == np.inf for most in bounds[0.2].values())
    assert worst(Case(asked, 0.002, 1e-4))[0] <= 1
