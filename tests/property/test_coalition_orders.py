"""Bounds for groups and for orders three and four, and before the first message."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from numpy.polynomial.polynomial import polyder, polyval2d
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA, groups
from quietmean.protocols.inca.groups import groups_bound
from quietmean.protocols.inca.hidden_shares import HiddenShares
from quietmean.protocols.inca.worst_case import Stars
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.statistics.features import Moments
from quietmean.statistics.features.moments import PART_IF_PRIVATE
from quietmean.testing import check_sensitivity, example_execution
from support.random_inca import least_over_exact

# -- The bound of IncA by disjoint groups: never below any coalition, close where it should be, and wrong variants are found
# out.
Array = NDArray[np.float64]
TOLERANCE = 1e-6
SEED = 20_261_125


def bounds(execution: Execution, size: int) -> Iterator[Array]:
    """Also with so few groups that each has several parties."""
    shares = HiddenShares(cast("IncA", execution.protocol), execution.schedule, execution.trace)
    for effort in (1e3, 1e6):
        yield np.array([groups_bound(shares, party, size, effort) for party in range(execution.parties)])


def attack(number: int, seed: int, sizes: tuple[int, int] = (6, 13)) -> float:
    return least_over_exact(bounds, number, seed, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("histories", [(10_000, SEED + 1), (40, SEED + 2, (14, 40))], ids=["ten thousand", "up to forty parties"])
def test_never_below_any_coalition(histories: Any) -> None:
    assert attack(*histories) >= 1 - TOLERANCE


def test_groups_that_share_a_party_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that hides twice as much as it can: its noise is counted in two groups."""

    def overlapping(shares: HiddenShares, party: int, others: list[int], count: int, number: int = 0) -> list[list[int]]:
        return [[one, others[(place + 1) % len(others)]] for place, one in enumerate(others)][: max(count, 1)]

    monkeypatch.setattr(groups, "divide", overlapping)
    # Ways of one party alone are then in the last group that has it: its costs are not, so two groups pay with one noise.
    monkeypatch.setattr(groups, "_groups_of_ways", _of_any)
    assert attack(15, SEED) < 1 - 1e-3


def _of_any(shares: HiddenShares, party: int, divided: list[list[int]]) -> NDArray[np.int64]:
    """The first group that holds all members of a way, whoever else does."""
    chosen = np.full(len(shares.members), -1, dtype=np.int64)
    for way, row in enumerate(shares.members.tolist()):
        members = {one for one in row if one >= 0 and one != party}
        chosen[way] = next((number for number, group in enumerate(divided) if members and members <= set(group)), -1)
    return chosen


def test_a_coalition_that_takes_one_group_less_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    worst = groups.GroupProducts.worst
    monkeypatch.setattr(groups.GroupProducts, "worst", lambda columns, size: worst(columns, size - 1))
    assert attack(15, SEED) < 1 - 1e-3


def test_shares_that_cost_their_receivers_nothing_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = HiddenShares.__init__

    def free(shares: HiddenShares, *given: object) -> None:
        made(shares, *given)  # type: ignore[arg-type]
        shares.costs = [np.zeros_like(cost) for cost in shares.costs]

    monkeypatch.setattr(HiddenShares, "__init__", free)
    assert attack(15, SEED) < 1 - 1e-3


@pytest.mark.parametrize(("parties", "colluding", "times"), [(40, 4, 3.5), (60, 6, 2.5), (100, 5, 5.0)])
def test_closer_than_the_stars(parties: int, colluding: int, times: float) -> None:
    """In mu squared; the worst of three parties that finish, seed 1."""
    noise: dict[str, Any] = {"sigma_star": 6.0, "sigma_delta": 8.0, "schedule": "circulant"}
    execution = example_execution("inca", parties, 1, permanent=0.1, rounds=parties // 2, **noise)
    protocol = cast("IncA", execution.protocol)
    shares, stars = (kind(protocol, execution.schedule, execution.trace) for kind in (HiddenShares, Stars))
    chosen = np.nonzero(execution.trace.finished)[0][:3].tolist()
    by_groups = max(groups_bound(cast("HiddenShares", shares), party, colluding, 1e6) for party in chosen)
    by_stars = max(cast("Stars", stars).of(party).worst_information(colluding, parties) for party in chosen)
    assert by_groups * times < by_stars


# -- Products of orders three and four are free: no two records are further apart with them than without, wherever they lie.
COLUMNS = Columns(
    [
        Column(name="x", low=-1, high=1, missing="indicator"),
        Column(name="y", low=0, high=10, missing="indicator"),
        Column(name="arm", levels=("a", "b")),
    ]
)
# Of one level, x is at a bound.
ROBUST = {"linear-regression(y ~ x)": False, "linear-regression(x ~ y)": False, "correlation(x, y)": False}
ROBUST |= {"linear-regression(y ~ arm)": True}


def moments(text: str, *others: str, count: CountVisibility = CountVisibility.PUBLIC) -> Moments:
    """The feature that is released for these statistics together."""
    statistics = tuple(parse_statistic(read_text(one)) for one in (text, *others))
    (found,) = Workload(COLUMNS, statistics, PrivacyUnit.RECORD, count=count).scales
    assert isinstance(found, Moments)
    assert found.higher
    return found


@dataclass(frozen=True)
class Forms:
    """The coordinates of a record as polynomials in the columns, coefficients (coordinates, 5, 5) by the powers of both."""

    coefficients: Array

    @classmethod
    def of(cls, feature: Moments) -> Forms:
        """From encodings at 25 points, which polynomials of degree four in each column are determined by."""
        points = np.array(list(itertools.product(np.linspace(-1, 1, 5), repeat=2)))
        encoded = np.array([_encoded(feature, *point) for point in points])
        powers = np.array([[x**i * y**j for i, j in itertools.product(range(5), repeat=2)] for x, y in points])
        return cls(np.linalg.solve(powers, encoded).T.reshape(-1, 5, 5))

    def at(self, x: Array, y: Array) -> Array:
        """Shape (coordinates, points)."""
        return np.asarray(polyval2d(x, y, self.coefficients.transpose(1, 2, 0)))

    def derived(self, *axes: int) -> Forms:
        found = self.coefficients
        for axis in axes:
            lower = polyder(found, axis=1 + axis)
            found = np.zeros_like(found)
            found[(slice(None), *(slice(0, size) for size in lower.shape[1:]))] = lower
        return Forms(found)

    @property
    def bounds(self) -> Array:
        """No coordinate is further from 0, shape (coordinates,)."""
        return np.asarray(np.abs(self.coefficients).sum(axis=(1, 2)))


def _encoded(feature: Moments, x: float, y: float) -> Array:
    """As ``Moments.encode`` has it, of columns scaled to [-1, 1]; a level may be any number there."""
    first, second = feature.vertices
    columns = {first: np.array([x]), second: np.array([y])}
    products = [np.prod([columns[vertex] for vertex in edge if vertex is not None], axis=0) for edge in feature.edges]
    squares = [columns[vertex] ** 2 - 1 for vertex in feature.numbers]
    higher = [one.values(columns) for one in feature.higher]
    return np.concatenate([np.ones(1), *products, *squares, *higher]) * feature.factors


class Pairs:
    """The squared distance of two records (x, y) and (u, v), at many such pairs at once, shape (4, pairs)."""

    def __init__(self, forms: Forms) -> None:
        self.forms = forms
        self.first = [forms.derived(axis) for axis in (0, 1)]
        bounds = np.array([one.bounds for one in self.first] * 2)
        second = np.array([[forms.derived(i, j).bounds for j in (0, 1)] for i in (0, 1)])
        # Second derivatives of the squared distance are no larger: |d| <= 2 of the coordinate's bound.
        curved = np.zeros((4, 4))
        for i, j in itertools.product(range(4), repeat=2):
            curved[i, j] = 2 * (bounds[i] * bounds[j]).sum()
            if i // 2 == j // 2:
                curved[i, j] += 2 * (2 * forms.bounds * second[i % 2, j % 2]).sum()
        self.curved = curved

    def squares(self, pairs: Array) -> Array:
        return np.asarray(((self.forms.at(*pairs[:2]) - self.forms.at(*pairs[2:])) ** 2).sum(axis=0))

    def slopes(self, pairs: Array) -> Array:
        apart = 2 * (self.forms.at(*pairs[:2]) - self.forms.at(*pairs[2:]))
        ends = [(apart * one.at(*pairs[:2])).sum(axis=0) for one in self.first]
        others = [-(apart * one.at(*pairs[2:])).sum(axis=0) for one in self.first]
        return np.array([*ends, *others])


def largest_is_within(pairs: Pairs, limit: float, level: bool) -> bool:
    """A proof by branch and bound that no pair is further apart, or False where it finds none.

    Cells are boxes around points. In one where a derivative keeps its sign, the largest distance is on a face; there, and
    anywhere, it is at most what Taylor's formula says.
    """
    steps = 8
    middles = np.linspace(-1, 1, steps + 1)[:-1] + 1 / steps
    # Changing the sign of a column in both records leaves all distances as they are.
    positive = middles[middles > 0]
    first, other = (np.ones(1), np.array([-1.0, 1.0])) if level else (positive, middles)
    cells = np.array(list(itertools.product(first, positive, other, middles))).T
    half = np.array([0.0, 1, 0, 1] if level else [1.0] * 4)[:, None] / steps
    free = [place for place in range(4) if half[place, 0] > 0]
    while cells.shape[1]:
        if half.max() < 1e-4:
            return False
        slopes = pairs.slopes(cells)
        one_sided = np.abs(slopes) >= pairs.curved @ half
        faces = np.where(one_sided, cells + np.sign(slopes) * half, cells)
        left = np.where(one_sided, 0.0, half)
        most = pairs.squares(faces) + (np.abs(pairs.slopes(faces)) * left).sum(axis=0)
        most += np.einsum("ip,ij,jp->p", left, pairs.curved, left) / 2
        cells, half = cells[:, most > limit * (1 + 1e-12)], half / 2
        moves = np.zeros((2 ** len(free), 4, 1))
        moves[:, free, 0] = np.array(list(itertools.product([-1, 1], repeat=len(free)))) * half[free, 0]
        cells = np.concatenate([cells + move for move in moves], axis=1)
    return True


def heavier(feature: Moments, factor: float) -> Moments:
    """With so much more weight on what is said to be free."""
    return replace(feature, higher_weights=tuple(factor * weight for weight in feature.higher_weights))


@pytest.mark.slow
@pytest.mark.parametrize("text", ROBUST)
def test_no_two_records_are_further_apart_than_without(text: str) -> None:
    feature = moments(text)
    assert feature.proven is not None
    assert largest_is_within(Pairs(Forms.of(feature)), feature.proven, ROBUST[text])


def test_the_same_where_the_first_column_is_a_level() -> None:
    feature = moments("linear-regression(y ~ arm)")
    assert feature.proven is not None
    assert largest_is_within(Pairs(Forms.of(feature)), feature.proven, level=True)


@pytest.mark.parametrize("text", ROBUST)
def test_weights_are_not_far_from_what_is_free(text: str) -> None:
    """A search finds records that are further apart with half as much weight again."""
    feature = heavier(moments(text), 1.5)
    axis = np.linspace(-1, 1, 17)
    first = np.array([-1.0, 1.0]) if ROBUST[text] else axis
    points = np.array(list(itertools.product(first, axis))).T
    there = Forms.of(feature).at(*points)
    squares = (there**2).sum(axis=0)
    assert feature.proven is not None
    assert (squares[:, None] + squares - 2 * there.T @ there).max() > feature.proven * (1 + 1e-6)


@pytest.mark.parametrize("text", ROBUST)
def test_lengths_and_missing_values(text: str) -> None:
    """A record beside a missing one under public counts, and any record under private ones, on a grid of 20,000 points.

    Both are polynomials that reach their largest value at the corners or 0, where products of a higher order vanish.
    """
    axis = np.linspace(-1, 1, 201)
    first = np.array([-1.0, 1.0]) if ROBUST[text] else np.linspace(0, 1, 101)
    points = np.array(np.meshgrid(first, axis)).reshape(2, -1)
    public, private = moments(text), moments(text, count=CountVisibility.PRIVATE)
    assert private.higher_weights == public.higher_weights
    assert public.proven is not None
    assert float((Forms.of(public).at(*points) ** 2).sum(axis=0).max()) <= public.proven * 0.99
    lengths = (Forms.of(private).at(*points) ** 2).sum(axis=0)
    assert float(lengths.max()) <= private.length**2 * (1 + 1e-9)
    assert PART_IF_PRIVATE < 1


OTHERS: Mapping[str, tuple[str, ...]] = {
    "both ways": ("linear-regression(y ~ x)", "linear-regression(x ~ y)"),
    "with all kinds": ("correlation(x, y)", "linear-regression(y ~ x)", "covariance(x, y)", "pca(x, y)"),
    "with one of before": ("correlation(x, y)", "linear-regression(y ~ x, robust=false)"),
}


@pytest.mark.parametrize("texts", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("count", CountVisibility)
def test_several_statistics_of_a_pair_together(texts: tuple[str, ...], count: CountVisibility) -> None:
    statistics = tuple(parse_statistic(read_text(text)) for text in texts)
    workload = Workload(COLUMNS, statistics, PrivacyUnit.RECORD, count=count)
    assert len(workload.scales) == 1
    assert check_sensitivity(workload, restarts=4, seed=3) > 0.9
    if count == CountVisibility.PUBLIC:
        assert workload.sensitivity <= len(texts) ** 0.5 * (1 + 1e-12)


def test_robust_errors_cost_nothing_in_the_noise_of_anything_else() -> None:
    """The squared sensitivity is that without them, and so is the noise of each quantity that both release."""
    for text in ROBUST:
        plain = parse_statistic(read_text(text[:-1] + ", robust=false)"))
        workloads = [Workload(COLUMNS, (one,), PrivacyUnit.RECORD) for one in (parse_statistic(read_text(text)), plain)]
        features = [workload.statistics[0].features(workload.declared)[0] for workload in workloads]
        assert features[0].sensitivity == pytest.approx(features[1].sensitivity, rel=1e-12)
        reads = [workload.decoder().read for workload in workloads]
        spreads = [read.gram(np.arange(read.shape[0]), np.arange(read.shape[0])) for read in reads]
        size = len(spreads[1])
        assert len(spreads[0]) > size
        np.testing.assert_allclose(spreads[0][:size, :size], spreads[1], rtol=1e-9)
