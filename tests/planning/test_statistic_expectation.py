"""Widths before a study: what linear theory says, from public numbers; hopeless questions with what would do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.statistics.allocation import made_up, noise_over_sampling, principal
from quietmean.statistics.expectation import Expectation
from quietmean.statistics.flags_and_tests import Z
from quietmean.studies import StudyTerms
from quietmean.studies.outcome.forecast import Forecast

COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "low": 0, "high": 100, "guess": [40, 15]},
    {"name": "bmi", "low": 10, "high": 60},
    {"name": "sex", "levels": ["f", "m"], "guess": [0.3, 0.7]},
]


def study(*statistics: dict[str, Any], **more: Any) -> StudyTerms:
    return StudyTerms.parse({"column": COLUMNS, "statistic": list(statistics), "protocol": "local-dp", **more})


def test_a_public_table_has_the_guessed_moments() -> None:
    records = made_up(study().workload.columns, 0.25)
    assert records[:, 0].mean() == pytest.approx(40, abs=0.1)
    assert records[:, 0].std() == pytest.approx(15, rel=0.01)
    assert records[:, 1].std() == pytest.approx(12.5, rel=0.01)
    assert records[:, 2].mean() == pytest.approx(0.7, abs=0.001)
    together = np.asarray(np.corrcoef(records.T))
    assert abs(together[0, 1]) < 0.08


@pytest.mark.slow
def test_columns_go_together_where_that_is_the_question() -> None:
    columns = study().workload.columns
    alone, related = made_up(columns, 0.25), made_up(columns, 0.25, 0.5)
    np.testing.assert_array_equal(np.sort(related, axis=0), np.sort(alone, axis=0))
    assert np.asarray(np.corrcoef(alone.T))[0, 1] == pytest.approx(0, abs=0.005)
    assert np.asarray(np.corrcoef(related.T))[0, 1] == pytest.approx(0.5, abs=0.02)
    # Of independent columns no direction is the first, and nothing tells cases from the rest, however little the noise.
    for asked in ({"kind": "pca", "columns": ["age", "bmi"]}, {"kind": "logistic-regression", "formula": "sex ~ age + bmi"}):
        boolean = [*COLUMNS[:2], {"name": "sex", "boolean": True}]
        workload = StudyTerms.parse({"column": boolean, "statistic": [asked], "protocol": "local-dp"}).workload
        one, many = (Expectation(workload, noise, 1000.0).expected[0] for noise in (1e4, 1e-3))
        assert one.hopeless
        assert not many.hopeless


def test_the_widths_of_a_mean_are_those_of_the_formulas() -> None:
    workload = study({"kind": "mean", "column": "age"}).workload
    noise, records = 2.0, 1000.0
    (found,) = Expectation(workload, noise, records).expected
    # Half a width of the bounds is 1 there; the column's block has the factor 1/2 in the vector.
    error = noise / records * 50 * workload.sensitivity * 2
    assert found.noise[0] == pytest.approx(2 * Z * error, rel=1e-9)
    assert found.population is not None
    assert found.population[0] == pytest.approx(2 * Z * math.sqrt(error**2 + 15**2 / records), rel=0.01)
    assert found.ratio[0] == pytest.approx(error / (15 / math.sqrt(records)), rel=0.01)
    assert not found.hopeless


def test_without_a_guess_there_is_a_range() -> None:
    (found,) = Expectation(study({"kind": "mean", "column": "bmi"}).workload, 2.0, 1000.0).expected
    assert found.ratio[1] / found.ratio[0] == pytest.approx(10 / 3, rel=0.02)


@pytest.mark.slow
def test_what_is_hopeless_is_refused_with_what_would_do() -> None:
    asked = study({"kind": "correlation", "columns": ["age", "bmi"]}, {"kind": "mean", "column": "age"})
    plan = asked.plan(10)
    forecast = Forecast(asked, plan, 300.0)
    correlation, mean = forecast.expected
    assert correlation.hopeless
    assert not mean.hopeless
    with pytest.raises(
        InputError, match=r"correlation\(age, bmi, robust=false\) is hopeless: .* records or .* parties of this size or epsilon"
    ) as told:
        forecast.require_hope()
    assert "mean" not in str(told.value)
    # What is said to do does, and half of it does not.
    enough = forecast.to_json()[0]
    assert not Forecast(asked, plan, enough["records_needed"]).expected[0].hopeless
    assert Forecast(asked, plan, enough["records_needed"] / 2).expected[0].hopeless
    larger = asked.model_copy(update={"epsilon": enough["epsilon_needed"]})
    assert not Forecast(larger, larger.plan(10), 300.0).expected[0].hopeless
    Forecast(asked.model_copy(update={"accept_wide": True}), plan, 300.0).require_hope()


def test_allocation_by_widths_has_the_least_sum_of_squared_relative_widths() -> None:
    statistics = [
        {"kind": "mean", "column": "age"},
        {"kind": "histogram", "column": "bmi"},
        {"kind": "proportion", "column": "sex"},
    ]

    def total(shares: list[float] | None) -> float:
        given = [one | {"share": share} for one, share in zip(statistics, shares or [1.0] * 3, strict=True)]
        asked = study(*given, allocate="shares" if shares else "widths")
        workload, rows = asked.workload, 1e6
        mean = workload.of_records(made_up(workload.columns, 0.25)).mean(axis=0)
        found = [one.estimates for one in workload.decode(mean, 1e-6 * workload.sensitivity, rows)]
        return float(sum(noise_over_sampling(one)[principal(one)] ** 2 for one in found))

    best = total(None)
    assert best < total([1.0, 1.0, 1.0])
    allocated = study(*statistics, allocate="widths").workload.allocated
    assert allocated is not None
    # Features of different columns: the optimum is that of the formula, and every other division is worse.
    for place in range(3):
        for factor in (0.7, 1.4):
            moved = [share * (factor if other == place else 1.0) for other, share in enumerate(allocated)]
            assert total(moved) > best * (1 - 1e-9)


def test_an_unknown_allocation_is_refused() -> None:
    with pytest.raises(InputError, match="allocate"):
        _ = study({"kind": "mean", "column": "age"}, allocate="width").workload


def test_what_is_agreed_on_names_the_allocated_shares() -> None:
    asked = study({"kind": "mean", "column": "age"}, {"kind": "variance", "column": "bmi"}, allocate="widths")
    assert asked.context()["allocated"] == list(asked.workload.allocated or ())
    assert "allocated" not in study({"kind": "mean", "column": "age"}).context()


@pytest.mark.parametrize("count", [{}, {"count": "private", "most_records": 400}])
def test_a_statistic_alone_reads_what_it_reads_of_the_whole_vector(count: dict[str, Any]) -> None:
    """Equalities tie it to others' features: to the quantities that are kept they still tell all that they know."""
    workload = study(
        {"kind": "crosstab", "row": "sex", "column": "sex2"},
        {"kind": "group-means", "column": "age", "by": "sex"},
        {"kind": "quantiles", "column": "bmi"},
        {"kind": "proportion", "column": "sex"},
        column=[*COLUMNS, {"name": "sex2", "levels": ["a", "b"]}],
        **count,
    ).workload
    records = made_up(workload.columns, 0.25)[:300]
    vectors = workload.of_records(records)
    whole, rng = workload.decoder(), np.random.default_rng(5)
    mean = vectors.mean(axis=0) + 0.05 * rng.standard_normal(workload.dimension)
    places = {feature: whole.places[feature] for feature in workload.scales}
    apart, tied = 0, 0
    for statistic in workload.statistics:
        asked = workload.with_columns(statistic)
        part = whole.of_features(asked.features)
        for decoder in (whole, part):
            assert decoder.read.shape[1] == workload.dimension
        first, second = (asked.decode(decoder.released(mean, 0.05, 300.0)) for decoder in (whole, part))
        np.testing.assert_allclose(second.value, first.value, rtol=1e-12)
        np.testing.assert_allclose(second.standard_error, first.standard_error, rtol=1e-12)
        read = part.features_read(places)
        others = [feature for feature in workload.scales if feature not in read]
        apart += len(others)
        tied += len(set(read) - {workload.whole(feature) for feature in asked.features})
        kept = np.concatenate([places[feature] for feature in read])
        np.testing.assert_array_equal(workload.of_records(records, features=read), vectors[:, kept])
        changed = mean.copy()
        for feature in others:
            changed[places[feature]] += 1.0
        np.testing.assert_allclose(part.read @ changed, part.read @ mean, atol=1e-10)
    assert apart
    # The table of both knows how many are of each sex, as well as what asks for that alone.
    assert tied
