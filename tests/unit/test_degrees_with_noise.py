"""Intervals and tests of means count that noise makes the estimated variance uncertain, as few records do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text
from quietmean.statistics.estimate import HypothesisTest, chi_squared_test, f_test, sentences_of_tests
from quietmean.statistics.features.block import Summary
from quietmean.statistics.kinds.group_means import welch_anova
from quietmean.statistics.tails import t_quantile

COLUMNS = Columns([Column(name="x", low=-1, high=1), Column(name="group", levels=("a", "b"))])
MEANS = {"mean(x)": "", "group-means(x, by=group)": "b", "table-1(x, by=group)": "b x mean", "site-effects(x, by=group)": "b"}
RECORDS = 1000


def found(text: str, noise: float, deviation: float) -> Estimates:
    """The estimates where noise happens to be 0, but is as large as said."""
    rows = np.column_stack([np.tile([-0.8 - deviation, -0.8 + deviation], RECORDS // 2), np.arange(RECORDS) % 4 >= 2])
    workload = Workload(COLUMNS, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)
    mean = workload.of_records(rows.astype(np.float64)).mean(axis=0)
    return workload.decode(mean, noise * workload.sensitivity, RECORDS)[0].estimates


@pytest.mark.parametrize(("text", "term"), MEANS.items())
def test_reach_of_a_mean(text: str, term: str) -> None:
    """Where noise hides half of the variance, Student's distribution has few degrees; without noise as many as records."""
    reaches = []
    for noise, deviation in ((0.0, 0.05), (1e-3, 0.05)):
        one = found(text, noise, deviation)
        place = one.terms.index(term)
        assert one.of_population is not None
        assert one.population is not None
        low, high = one.of_population[place]
        reaches.append((high - low) / 2 / one.population[place])
    records = RECORDS if term == "" else RECORDS / 2
    assert reaches[0] == pytest.approx(t_quantile(records - 1), rel=1e-3)
    assert reaches[1] > 1.01 * reaches[0]


def test_a_variance_that_noise_cut_to_nothing_is_not_certain() -> None:
    one = Summary(
        present=100, mean=0.0, noise_of_mean=1e-4, variance_estimate=-0.1, variance=0.0, noise_of_variance=0.01, fourth=0.0
    )
    assert one.sampling_of_mean == 0
    assert 1 <= one.degrees < 5


def test_without_noise_degrees_are_those_of_the_records() -> None:
    one = Summary(present=30, mean=0.0, noise_of_mean=0.0, variance_estimate=2.0, variance=2.0, noise_of_variance=0.0, fourth=9.0)
    assert one.degrees == pytest.approx(29)
    constant = Summary(present=30, mean=0.0, noise_of_mean=0.0, variance_estimate=0, variance=0, noise_of_variance=0, fourth=0)
    assert math.isinf(constant.degrees)


# By the mean, in half widths of the bounds, and the part of the second group: the noise of its mean and of the difference over
# that of one coordinate, as docs/proofs/statistics.md has it.
ONE_COORDINATE = {
    (0.0, 0.5): (1.03, 1.28),
    (0.5, 0.5): (1.14, 1.04),
    (0.8, 0.5): (1.29, 1.06),
    (0.0, 0.1): (1.03, 1.01),
    (0.5, 0.1): (1.14, 1.14),
    (0.8, 0.1): (1.29, 1.31),
}


def over_one_coordinate(text: str, columns: Columns, rows: NDArray[np.float64], moves: dict[str, list[float]]) -> list[float]:
    """The noise of some terms over a curator's Gaussian noise on this answer alone, which a record moves by that range."""
    workload = Workload(columns, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)
    mean = workload.of_records(rows).mean(axis=0)
    noisy = workload.decode(mean, 1e-6 * workload.sensitivity, RECORDS)[0].estimates
    assert noisy.standard_error is not None
    errors = dict(zip(noisy.terms, noisy.standard_error.tolist(), strict=True))
    return [errors[term] / 1e-6 / (max(ends) - min(ends)) for term, ends in moves.items()]


@pytest.mark.parametrize(("middle", "part"), ONE_COORDINATE)
def test_noise_of_means_over_one_coordinate(middle: float, part: float) -> None:
    """At bounds of 10 sd: where all counts are public a mean costs nothing more, and groups and their difference hardly do."""
    second = np.arange(RECORDS) % 100 >= 100 * (1 - part)
    rows = np.column_stack([np.tile([middle - 0.2, middle + 0.2], RECORDS // 2), second]).astype(np.float64)
    filled, told = (
        Columns([Column(name="x", low=-1, high=1, missing=rule), COLUMNS["group"]]) for rule in ("centre", "indicator")
    )
    ends = [-1 - middle, 1 - middle]
    assert over_one_coordinate("mean(x)", filled, rows, {"": ends}) == pytest.approx([1.0], abs=1e-3)
    assert over_one_coordinate("mean(x)", told, rows, {"": [*ends, 0.0]})[0] <= 1.15
    # A record counts the more the fewer are in its group; a difference has those of the other group with the other sign.
    of_second = [end / part for end in ends] + [0.0]
    of_both = of_second + [-end / (1 - part) for end in ends]
    found = over_one_coordinate("group-means(x, by=group)", filled, rows, {"b": of_second, "difference": of_both})
    assert found == pytest.approx(ONE_COORDINATE[middle, part], abs=0.006)


def test_a_paired_difference_has_the_noise_of_one_coordinate() -> None:
    """The products beside both columns are free: a derived column of the difference, within its own bounds, is no better."""
    columns = Columns([Column(name=name, low=-1, high=1, missing="centre") for name in ("x", "y")])
    first = np.tile([0.3, 0.7], RECORDS // 2)
    rows = np.column_stack([first, first + np.tile([0.1, 0.1, -0.02, -0.02], RECORDS // 4)])
    found = over_one_coordinate("paired-difference(x, y)", columns, rows, {"difference": [-2.0, 2.0]})
    assert found == pytest.approx([1.0], abs=1e-3)


@pytest.mark.parametrize("statistic", [0.3, 2.0, 11.0])
def test_a_variance_that_is_known_has_endless_degrees(statistic: float) -> None:
    """An F test is then one of chi-squared, and no sentence has a number that stands for endless."""
    found = f_test(statistic, 3.0, math.inf)
    assert found.p_value == pytest.approx(chi_squared_test(3 * statistic, 3.0).p_value, rel=1e-12)
    assert found.p_value == pytest.approx(f_test(statistic, 3.0, 1e9).p_value, rel=1e-6)
    assert "df 3," in found.sentence("F")


def test_groups_whose_variances_are_all_noise() -> None:
    """Where no value differs within its group, nothing but the known noise is in the test."""
    each = [
        Summary(present=50, mean=mean, noise_of_mean=0.01, variance_estimate=0.0, variance=0.0, noise_of_variance=0.0, fourth=0.0)
        for mean in (0.1, 0.2, 0.4)
    ]
    found = welch_anova(each)
    assert found.degrees == (2.0, math.inf)
    middle = np.mean([0.1, 0.2, 0.4])
    assert found.p_value == pytest.approx(
        chi_squared_test(float(sum((one.mean - middle) ** 2 for one in each)) / 0.01, 2.0).p_value
    )


def test_degrees_above_the_number_of_records_are_right_where_noise_is_most() -> None:
    """The noise's variance is known. 4000 samples of 12 values, seed 6, with noise twice as uncertain as their mean: intervals
    hold the truth in 95 %, but for three standard errors (1 %), and those with a degree for each value in more than 95 %."""
    rng, count, noise = np.random.default_rng(6), 12, 1 / 3
    rows = rng.standard_normal((4000, count))
    noisy = rows.mean(axis=1) + math.sqrt(noise) * rng.standard_normal(len(rows))
    held, capped, above = 0, 0, 0
    for mean, variance in zip(noisy.tolist(), rows.var(axis=1, ddof=1).tolist(), strict=True):
        one = Summary(
            present=count,
            mean=mean,
            noise_of_mean=noise,
            variance_estimate=variance,
            variance=variance,
            noise_of_variance=0.0,
            fourth=3.0,
        )
        error = math.sqrt(one.noise_of_mean + one.sampling_of_mean)
        held += abs(mean) <= t_quantile(one.degrees) * error
        capped += abs(mean) <= t_quantile(count - 1) * error
        above += one.degrees > count
    print(f"seed 6: {held} and {capped} of 4000 hold")
    assert above > 3900
    assert abs(held / 4000 - 0.95) <= 3 * math.sqrt(0.05 * 0.95 / 4000)
    assert capped / 4000 > 0.95 + 3 * math.sqrt(0.05 * 0.95 / 4000)


@pytest.mark.parametrize(
    ("degrees", "n", "marked"),
    [
        ([(1.0, 12_445.0), (1.0, 12_445.0)], [300.0, math.nan], [True, False]),
        ([(298.0,), (301.0,)], [300.0], [False, True]),
        ([(math.inf,)], [300.0], [False]),
        # Without noise, or where n is not known, nothing is said.
        ([(1.0, 12_445.0)], [], [False]),
        ([(1.0, 12_445.0)], [math.nan], [False]),
    ],
)
def test_more_degrees_than_records_are_explained_once(
    degrees: list[tuple[float, ...]], n: list[float], marked: list[bool]
) -> None:
    lines = sentences_of_tests([("F test", HypothesisTest(3.1, each, 0.078, symbol="F")) for each in degrees], n)
    assert [line.endswith(" (noise counts in)") for line in lines] == marked


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.01])
@pytest.mark.parametrize("missing", ["centre", "indicator"])
def test_of_two_groups_both_tests_are_one(missing: str, noise: float) -> None:
    """Welch's F of two groups is the square of his t, with its degrees: noise that both means have in common moves neither."""
    rng = np.random.default_rng(5)
    columns = Columns([Column(name="x", low=-1, high=1, missing=missing), COLUMNS["group"]])
    rows = np.column_stack([rng.uniform(-1, 1, RECORDS), rng.random(RECORDS) < 0.3]).astype(np.float64)
    workload = Workload(columns, (parse_statistic(read_text("group-means(x, by=group)")),), PrivacyUnit.RECORD)
    tests = workload.decode(workload.of_records(rows).mean(axis=0), noise, RECORDS)[0].estimates.tests
    t, f = tests["t-test"], tests["anova"]
    assert f.statistic == pytest.approx(t.statistic**2, rel=1e-9)
    assert f.degrees == pytest.approx((1.0, t.degrees[0]), rel=1e-9)
    assert f.p_value == pytest.approx(t.p_value, rel=1e-6)
