"""The sensitivity of any study is never below what a search for two distant records finds, and hardly above."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from quietmean.core import column_blocks
from quietmean.core.column_blocks import BLOCK_NORM, CUBE, FOURTH, SQUARE, SQUARE_CENTRE, Blocks
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.input_domain import InputDomain
from quietmean.core.mixtures import prefix_diameter, prefix_root
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean.statistics import Column, ColumnBlock, Columns, PrefixTable, Statistic, Workload, parse_statistic, read_text
from quietmean.statistics.features import Axis, CellIndicators, Moments, Vertex
from quietmean.statistics.features.moments import maximum_cut
from quietmean.statistics.features.presence import Indicator
from quietmean.statistics.subgroups import Within
from quietmean.testing import check_sensitivity
from quietmean.testing import statistic_conformance as searches

Array = NDArray[np.float64]

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=100, missing="indicator"),
        Column(name="bmi", low=10, high=60),
        Column(name="glu", low=-3, high=7, missing="indicator"),
        Column(name="sex", levels=("f", "m")),
        Column(name="race", levels=("a", "b", "c")),
        Column(name="smoker", boolean=True),
        Column(name="days", low=0, high=30),
    ]
)
MENU = [
    "mean(age)",
    "mean(bmi)",
    "variance(bmi)",
    "variance(glu)",
    "proportion(race)",
    "proportion(smoker)",
    "count(age)",
    "histogram(age, edges=20 40 60)",
    "histogram(bmi, bins=4)",
    "quantiles(glu, 0.5, bins=7)",
    "cdf(bmi, bins=5)",
    "crosstab(sex, smoker)",
    "crosstab(race, sex)",
    "group-means(age, by=race)",
    "group-means(bmi, by=sex)",
    "correlation(age, bmi)",
    "correlation(bmi, glu, age)",
    "covariance(bmi, glu)",
    "linear-regression(bmi ~ age + sex)",
    "linear-regression(glu ~ age)",
    "linear-regression(bmi ~ smoker)",
    "linear-regression(glu ~ bmi + race)",
    "survival(age, smoker, by=sex, bins=4)",
    "survival(age, smoker, by=sex, bins=3, strata=race)",
    "survival(age, smoker, by=sex, entry=bmi, bins=4)",
    "cumulative-incidence(days, race, entry=age, start=5, bins=3)",
    "table-1(by=sex)",
    "table-1(age, glu, by=race)",
    "table-1(age, race, smoker)",
    "rates(smoker, days)",
    "rates(smoker, days, by=race)",
    "rates(days, age, by=sex)",
    "logistic-regression(smoker ~ age + bmi)",
    "pca(age, bmi, glu)",
    "roc(bmi, smoker, bins=4)",
    "mann-whitney(bmi, by=sex, bins=6)",
    "hazard-ratio(age, smoker, by=sex, bins=4)",
    "restricted-mean(age, smoker, bins=5)",
    "cumulative-incidence(days, race, by=sex, bins=3)",
    "site-effects(bmi, by=race)",
    "spearman(age, bmi, bins=5)",
    "kruskal-wallis(bmi, by=race, bins=6)",
    "meta-analysis(group-means(bmi, by=sex), by=race)",
    "meta-analysis(crosstab(sex, smoker), by=race)",
    "meta-analysis(correlation(age, bmi), by=race)",
    "bland-altman(age, bmi)",
    "mcnemar(sex, smoker)",
    "kappa(sex, smoker)",
    "trend(smoker, by=race)",
    "mantel-haenszel(sex, smoker, by=race)",
    "group-means(bmi, by=sex, cluster=race)",
    "rates(smoker, days, by=sex, cluster=race)",
    "mean(bmi, weight=age)",
    "sum(glu, weight=days)",
    "mean(bmi, weight=age, strata=race)",
    "quantiles(glu, 0.5, bins=7, weight=days)",
    "mean(bmi, weight=age, strata=race, psu=sex)",
    "mean(glu, weight=age, margin=race, totals=1 2 3)",
    "mean(glu, weight=age, margin=race smoker, totals=1 2 3 2 4)",
    "group-means(bmi, by=race, weight=age, psu=sex)",
    "linear-regression(bmi ~ age, weight=days)",
    "linear-regression(glu ~ bmi + race, weight=days, psu=sex)",
    "logistic-regression(smoker ~ age + bmi, weight=days)",
    "proportion(smoker, weight=days, strata=race, psu=sex)",
    "proportion(race, weight=age, psu=sex, where=smoker)",
    "proportion(race, weight=age)",
    "count(age, weight=days)",
    "crosstab(race, sex, weight=age, where=smoker)",
    "mean(bmi, where=age >= 50 and sex == 'f')",
    "crosstab(race, sex, where=days > 10 or not smoker)",
    "quantiles(glu, 0.5, bins=7, where=smoker)",
    "table-1(age, race, where=smoker)",
    "synthetic-table(age, race, smoker, bins=3)",
    "first-look(age)",
    "synthetic-table(race, smoker, sex, pairs=sex:race, where=age >= 50)",
]
# Rows of a table have a share each.
ROWS = {
    "table-1(by=sex)": 6,
    "table-1(age, glu, by=race)": 3,
    "table-1(age, race, smoker)": 3,
    "table-1(age, race, where=smoker)": 3,
    "synthetic-table(age, race, smoker, bins=3)": 6,
    # With the condition, how many records it holds for.
    "synthetic-table(race, smoker, sex, pairs=sex:race, where=age >= 50)": 5,
}


def study(texts: list[str], shares: list[float] | None = None, count: CountVisibility = CountVisibility.PUBLIC) -> Workload:
    statistics = [parse_statistic(read_text(text)) for text in texts]
    given_shares = shares or [1.0] * len(statistics)
    shared: tuple[Statistic, ...] = tuple(replace(one, share=share) for one, share in zip(statistics, given_shares, strict=True))
    return Workload(COLUMNS, shared, PrivacyUnit.RECORD, count=count, most_records=1000)


@settings(max_examples=25)
@given(
    texts=st.lists(st.sampled_from(MENU), min_size=1, max_size=5, unique=True),
    shares=st.lists(st.sampled_from([0.3, 1.0, 4.0]), min_size=5, max_size=5),
    # Tables of prefixes by groups refuse a coarser grid.
    step=st.sampled_from([0.0, 2.0**-16, 2.0**-13]),
    seed=st.integers(0, 100),
    count=st.sampled_from(CountVisibility),
)
def test_no_two_records_are_further_apart_than_the_sensitivity(
    texts: list[str], shares: list[float], step: float, seed: int, count: CountVisibility
) -> None:
    workload = study(texts, shares[: len(texts)], count)
    reached = check_sensitivity(workload, restarts=3, seed=seed, step=step)
    assert reached > 0.7
    total = sum(share * ROWS.get(text, 1) for text, share in zip(texts, shares[: len(texts)], strict=True))
    assert workload.sensitivity <= math.sqrt(total) * (1 + 1e-9)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("text", MENU)
def test_each_sensitivity_is_reached(text: str) -> None:
    assert check_sensitivity(study([text]), restarts=8) >= 0.99


@pytest.mark.sampled(33)
@pytest.mark.parametrize("text", MENU)
def test_each_length_is_reached_where_counts_are_private(text: str) -> None:
    assert check_sensitivity(study([text], count=CountVisibility.PRIVATE), restarts=8) >= 0.99


# Of indicators and cells alone the L1 change is known exactly; of powers, products and prefixes by a bound.
_EXACT = (CellIndicators, Indicator)


@pytest.mark.sampled(44)
@pytest.mark.parametrize("count", CountVisibility)
@pytest.mark.parametrize("text", MENU)
def test_no_l1_change_is_above_what_is_stated_and_that_of_cells_is_reached(text: str, count: CountVisibility) -> None:
    workload = study([text], count=count)
    reached = check_sensitivity(workload, restarts=8, order=1)
    features = [feature.inner if isinstance(feature, Within) else feature for feature in workload.scales]
    assert reached > (0.999 if len(features) == 1 and isinstance(features[0], _EXACT) else 0.35)


@pytest.mark.parametrize(
    ("text", "replaced", "added"),
    [("histogram(bmi, bins=4)", math.sqrt(2), 1.0), ("count(where=age >= 50)", 1.0, 1.0), ("mean(age)", math.sqrt(5), None)],
)
def test_l1_changes_beside_l2_changes(text: str, replaced: float, added: float | None) -> None:
    """A record leaves a cell and enters another, 2 apart for a distance of sqrt(2); one number has one change."""
    assert study([text]).l1 / study([text]).sensitivity == pytest.approx(replaced)
    alone = study([text], count=CountVisibility.PRIVATE)
    assert added is None or alone.l1 / alone.sensitivity == pytest.approx(added)


@pytest.mark.parametrize("count", CountVisibility)
def test_an_l1_change_that_is_too_small_is_found(count: CountVisibility, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two cells change by one together."""
    workload = study(["crosstab(race, sex)"], count=count)
    monkeypatch.setattr(CellIndicators, "l1", 1.99)
    monkeypatch.setattr(CellIndicators, "l1_length", 0.99)
    with pytest.raises(AssertionError, match=r"apart, not|long, not"):
        check_sensitivity(workload, order=1)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("mean(age)", math.sqrt(0.73**2 + BLOCK_NORM)),
        ("count(age)", 1.0),
        ("histogram(bmi, bins=4)", 1.0),
        ("quantiles(glu, 0.5, bins=13)", 1.394),
    ],
)
def test_lengths_where_counts_are_private(text: str, length: float) -> None:
    """Of the details' table: 1 for tables, 1.394 for 16 cells of prefixes, which three of 13 bins are outside of the edges."""
    (feature,) = study([text], count=CountVisibility.PRIVATE).scales
    assert feature.length == pytest.approx(length, abs=5e-4)


def test_the_length_of_moments_where_counts_are_private() -> None:
    """All weights, and their mean for the count: sqrt(1 + d (d + 1) / 2) where all are 1, as in the details' table."""
    (joined,) = study(["correlation(age, bmi)"], count=CountVisibility.PRIVATE).scales
    assert isinstance(joined, Moments)
    assert joined.length / joined.weights[0] == pytest.approx(math.sqrt(1 + 2 * 3 / 2))


@settings(max_examples=25)
@given(
    texts=st.lists(st.sampled_from(MENU), min_size=1, max_size=3, unique=True),
    rows=st.integers(0, 40),
    step=st.sampled_from([0.0, 2.0**-16]),
    seed=st.integers(0, 10**6),
)
def test_one_record_more_changes_what_enters_by_the_sensitivity_at_most(
    texts: list[str], rows: int, step: float, seed: int
) -> None:
    """Even of a party that has more records than there is room for, whose sums are cut."""
    statistics = tuple(parse_statistic(read_text(text)) for text in texts)
    workload = Workload(COLUMNS, statistics, PrivacyUnit.RECORD, count=CountVisibility.PRIVATE, most_records=20)
    rng = np.random.default_rng(seed)
    cells = [searches.candidates(column, BitStream(insecure_seed(seed, "cells"))) for column in COLUMNS]
    records = np.column_stack([rng.choice(values, rows + 1) for values in cells])
    # One direction for all of them, so that sums grow.
    records[1:] = records[1] if rows else records[1:]
    vectors = [workload.encode(some, step=step).vector for some in (records[:-1], records)]
    entered = [workload.domain.moved(vector, 20.0) for vector in vectors]
    assert np.linalg.norm(entered[1] - entered[0]) <= workload.sensitivity * (1 + 1e-9)
    assert workload.encode(records[:-1], step=step).weight == 20.0


@dataclass(frozen=True)
class Short(ColumnBlock):
    """Says that a record is a hundredth shorter than it is."""

    @property
    def length(self) -> float:
        return 0.99 * super().length

    def for_private_count(self) -> ColumnBlock:
        return self


def test_a_length_that_is_too_small_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = study(["mean(age)"], count=CountVisibility.PRIVATE)
    monkeypatch.setattr(type(workload.statistics[0]), "features", lambda *_: (Short(COLUMNS["age"]),))
    with pytest.raises(AssertionError, match="long, not"):
        check_sensitivity(workload)


@dataclass(frozen=True)
class Hopeful(ColumnBlock):
    """Says that it needs one in a hundred less than it does."""

    @property
    def sensitivity(self) -> float:
        return 0.99 * super().sensitivity

    @property
    def domain(self) -> InputDomain:
        return InputDomain.box(self.size, 0.0, 1e-3)


@dataclass(frozen=True)
class Naive(ColumnBlock):
    """Powers around 0 beside an indicator: 2.17 where 2 is claimed."""

    def _block(self, x: Array, present: Array) -> Array:
        return np.column_stack([present, present * x, 1.65 * present * x**2, 0 * x, 0 * x])


@dataclass(frozen=True)
class Squares(ColumnBlock):
    """Powers around 0 in groups: 3.07 where 2 is claimed."""

    def _block(self, x: Array, present: Array) -> Array:
        return np.column_stack([present, present * x, 1.65 * present * x**2, 0 * x, 0 * x])


@pytest.mark.parametrize(
    ("feature", "distance"),
    [
        (Hopeful(COLUMNS["age"]), 2.0),
        (Naive(COLUMNS["age"]), 2.17),
        (Squares(COLUMNS["age"], COLUMNS["sex"]), 3.07),
    ],
)
def test_a_sensitivity_that_is_too_small_is_found(feature: ColumnBlock, distance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = study(["mean(age)"])
    monkeypatch.setattr(type(workload.statistics[0]), "features", lambda *_: (feature,))
    with pytest.raises(AssertionError, match="apart, not"):
        check_sensitivity(workload)
    found, _ = searches.farthest_records(workload)
    assert found * feature.sensitivity / workload.sensitivity == pytest.approx(distance, abs=0.005)


def test_two_blocks_of_a_group_are_two_apart_at_most() -> None:
    """Part (i) of the proof: the grid of 4001 points, with the Lipschitz bound for what lies between."""
    x = np.linspace(-1, 1, 4001)
    block = np.column_stack([x, SQUARE * (x**2 - SQUARE_CENTRE), CUBE * (x**3 - x), FOURTH * (x**4 - x**2)])
    lengths = (block**2).sum(axis=1)
    z = Polynomial([0.0, 1.0])
    length = z**2 + SQUARE**2 * (z**2 - SQUARE_CENTRE) ** 2 + CUBE**2 * (z**3 - z) ** 2 + FOURTH**2 * (z**4 - z**2) ** 2
    critical = length.deriv().roots()
    real = critical[np.abs(critical.imag) < 1e-6].real
    assert max(float(length(point)) for point in [-1.0, 1.0, *real[np.abs(real) <= 1]]) <= BLOCK_NORM
    corner = (1 - np.abs(x))[:, None] + (1 - np.abs(x)) <= 0.02
    opposite = (x[:, None] * x < 0) & corner
    worst = 0.0
    for begin in range(0, len(x), 500):
        part = slice(begin, begin + 500)
        squares = lengths[part, None] + lengths - 2 * block[part] @ block.T
        worst = max(worst, float(squares[~opposite[part]].max()))
    assert worst + 20.8 * 2 * 0.00025 < 4
    # Near opposite corners, t = (1 - |x|) + (1 - |y|): 4 - 4 t + 26.84 t^2 <= 4.
    assert 26.84 * 0.02 <= 4


def test_two_blocks_of_joint_groups_are_farthest_at_equal_bounds() -> None:
    """The squared distance is 2 (w^2 + corner + k) at most: on the grid of 4001 points, and between them no more."""
    x = np.linspace(-1, 1, 4001)
    lengths = x**2 + SQUARE**2 * (x**2 - SQUARE_CENTRE) ** 2 + CUBE**2 * (x**3 - x) ** 2 + FOURTH**2 * (x**4 - x**2) ** 2
    opposed = 2 * column_blocks.OPPOSED / (column_blocks.OPPOSED**2 + 1)
    corner = 2 * (column_blocks.BLOCK_CORNER + opposed)
    near = (1 - np.abs(x))[:, None] + (1 - np.abs(x)) <= 0.02
    worst = 0.0
    for begin in range(0, len(x), 500):
        part = slice(begin, begin + 500)
        squares = lengths[part, None] + lengths + 2 * opposed * x[part, None] * x
        assert squares.max() <= corner * (1 + 1e-12)
        worst = max(worst, float(squares[~near[part] | (x[part, None] * x < 0)].max()))
    # Both derivatives are below 9.
    assert worst + 9 * 2 * 0.00025 < corner
    # Near equal bounds it rises with both values.
    inside = Polynomial([0.0, 1.0])
    length = inside**2 + SQUARE**2 * (inside**2 - SQUARE_CENTRE) ** 2 + CUBE**2 * (inside**3 - inside) ** 2
    length += FOURTH**2 * (inside**4 - inside**2) ** 2
    assert min(float(length.deriv()(point)) for point in np.linspace(0.98, 1.0, 201)) > 0


@pytest.mark.parametrize("groups", range(2, column_blocks.MOST_JOINT + 1))
def test_joint_groups_are_as_wide_as_said(groups: int) -> None:
    """All corners and middles of all groups, and a missing value: 2 is reached, and nothing is above."""
    by = Column(name="by", levels=tuple("abcdefgh"[:groups]))
    workload = Workload(
        Columns([COLUMNS["age"], by]), (parse_statistic(read_text("group-means(age, by=by)")),), PrivacyUnit.RECORD
    )
    (feature,) = workload.scales
    assert isinstance(feature, ColumnBlock)
    assert feature.joint
    assert feature.sensitivity == pytest.approx(2.0)
    values = np.linspace(0, 100, 101)
    records = np.array([[value, group] for group in [*range(groups), np.nan] for value in [*values, np.nan]])
    encoded = feature.encode(workload.inside(records))
    squares = (encoded**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * encoded @ encoded.T, 0.0))
    assert 1.999 < distances.max() <= 2 + 1e-9
    # What is left in other groups is whole multiples: a record is told apart from them exactly.
    rounded = feature.to_grid(encoded, 1.0, 2.0**-12)
    assert all(feature.domain.holds(row, 1.0) for row in rounded)


@pytest.mark.parametrize(("name", "value"), [("WEIGHT_OF_TWO", 0.83), ("WEIGHT_JOINT", 0.95)])
def test_a_weight_of_joint_groups_that_is_too_large_costs(name: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"quietmean.statistics.features.block.{name}", value)
    by = COLUMNS["sex"] if name == "WEIGHT_OF_TWO" else COLUMNS["race"]
    assert ColumnBlock(COLUMNS["age"], by, compared=True).sensitivity > 2.01


@pytest.mark.parametrize("by", ["sex", "race"])
@given(data=st.data())
def test_means_of_records_in_joint_groups_stay_mixtures_on_a_grid(by: str, data: st.DataObject) -> None:
    """Also parts of a group, as a person's rows or a party's records have."""
    feature = ColumnBlock(COLUMNS["age"], COLUMNS[by], compared=True)
    rows = data.draw(st.integers(1, 7))
    step = data.draw(st.sampled_from([2.0**-20, 2.0**-13, 2.0**-10]))
    cell = st.one_of(st.sampled_from([0.0, 50.0, 100.0]), st.floats(0, 100), st.just(math.nan))
    ages = data.draw(st.lists(cell, min_size=rows, max_size=rows))
    groups = data.draw(st.lists(st.sampled_from([0.0, 1.0, math.nan]), min_size=rows, max_size=rows))
    workload = Workload(COLUMNS, (parse_statistic(read_text(f"group-means(age, by={by})")),), PrivacyUnit.RECORD)
    records = np.full((rows, len(COLUMNS)), np.nan)
    names = [column.name for column in COLUMNS]
    records[:, names.index("age")], records[:, names.index(by)] = ages, groups
    mean = feature.encode(workload.inside(records)).mean(axis=0, keepdims=True)
    (rounded,) = feature.to_grid(mean * 0.7, 0.7, step)
    assert feature.domain.times(0.7).holds(rounded, 1.0)
    assert (rounded == np.rint(rounded / step) * step).all()


@given(
    squares=st.lists(st.floats(0, 9), min_size=10, max_size=10),
    weights=st.lists(st.floats(0, 1), min_size=4, max_size=4),
)
def test_moments_in_groups_are_no_wider_than_in_one(squares: list[float], weights: list[float]) -> None:
    """A cut of half of all weight exists, so that D^2 / 2 - sum w^2 is what is left for the indicator of a group."""
    graph = np.zeros((5, 5))
    graph[np.triu_indices(5, 1)] = squares
    cut = maximum_cut(graph + graph.T)
    assert 4 * cut / 2 - sum(squares) >= -1e-9
    # The longest record, squares of columns free: each edge counts once at most.
    t, alone, pairs = np.array(weights), (graph + graph.T)[0, 1:], (graph + graph.T)[1:, 1:]
    length = alone @ t + (np.triu(pairs) * np.outer(t, t)).sum() + (alone + pairs.sum(axis=1) / 2) @ (1 - t) ** 2
    assert length <= sum(squares) * (1 + 1e-12) + 1e-12


@given(st.lists(st.floats(0, 3), min_size=15, max_size=15), st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_four_maximum_cuts_bound_moments(weights: list[float], parts: list[float]) -> None:
    """F(a) of the theorem, squares at their bound, never exceeds the cut."""
    squares = np.zeros((6, 6))
    squares[np.triu_indices(6, 1)] = np.array(weights) ** 2
    squares += squares.T
    a, alone, pairs = np.array(parts), squares[0, 1:], squares[1:, 1:]
    own = alone + pairs.sum(axis=1) / 2
    total = alone @ a**2 + 4 * own @ (a**2 * (1 - a) ** 2)
    total += (np.triu(pairs) * (a[:, None] + a - 2 * np.outer(a, a)) ** 2).sum()
    assert total <= maximum_cut(squares) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("columns", "expected"), [(2, 8**0.5), (3, 4.0), (4, 24**0.5), (5, 6.0)])
def test_moments_of_equal_weights(columns: int, expected: float) -> None:
    vertices = [Vertex(Column(name=f"x{place}", low=-1, high=1)) for place in range(columns)]
    edges = [(None, one) for one in vertices] + [(a, b) for place, b in enumerate(vertices) for a in vertices[:place]]
    assert Moments(tuple(edges), (1.0,) * len(edges)).sensitivity == pytest.approx(expected)


@pytest.mark.parametrize(("cells", "diameter"), [(16, 1.663), (64, 1.912), (256, 2.131), (1024, 2.329)])
def test_prefix_tables(cells: int, diameter: float) -> None:
    assert prefix_diameter(cells) == pytest.approx(diameter, abs=5e-4)
    root = np.array([np.concatenate([np.zeros(place), prefix_root(cells)[: cells - place]]) for place in range(cells)])
    np.testing.assert_allclose(np.tril(np.ones((cells, cells))), (root @ root).T, atol=1e-9)
    gram = root @ root.T
    squares = np.diag(gram)[:, None] + np.diag(gram) - 2 * gram
    assert prefix_diameter(cells) == pytest.approx(float(squares.max()) ** 0.5)


def test_parts_of_the_budget_add_up_and_no_question_is_asked_twice() -> None:
    separate = study(["correlation(age, glu)", "covariance(age, glu)"])
    assert len(separate.scales) == 1
    assert separate.sensitivity == pytest.approx(2**0.5)
    table = study(["quantiles(bmi, 0.5, bins=5)", "cdf(bmi, bins=5)"])
    assert list(table.scales) == [PrefixTable(Axis.of(COLUMNS["bmi"], None, 5, closed="right"))]
    assert isinstance(table.domain.parts[0], type(PrefixTable(Axis.of(COLUMNS["bmi"], None, 5, closed="right")).domain.parts[0]))
    assert isinstance(study(["mean(age)"]).domain.parts[0], Blocks)
