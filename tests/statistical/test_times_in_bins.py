"""Times of events in bins (a, b]: without noise, and against lifelines and the records themselves.

A bin of one whole number gives what the records give, exactly. From any other the records' own answer may differ, and lies
within the resolution: of random tables, none is outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.datasets import load_gbsg2, load_lung
from lifelines.statistics import logrank_test
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from support.workloads import workload_of

Array = NDArray[np.float64]

HORIZON = 10.0


def columns_of(*, high: float = HORIZON, **time: Any) -> Columns:
    return Columns(
        [
            Column(name="time", low=0, high=high, **time),
            Column(name="died", boolean=True),
            Column(name="arm", levels=("a", "b")),
            Column(name="cause", levels=("none", "heart", "other")),
        ]
    )


def exact(columns: Columns, records: Array, *texts: str) -> list[Estimates]:
    """What the statistics say without noise."""
    workload = workload_of(columns, *texts)
    mean = workload.of_records(records).mean(axis=0)
    return [answer.estimates for answer in workload.decode(mean, 0.0, float(len(records)))]


def records_of(time: Array, died: NDArray[Any], arm: NDArray[Any] | None = None) -> Array:
    arms = np.zeros(len(time)) if arm is None else arm
    return np.column_stack([time, died, arms, died * (1 + (np.arange(len(time)) % 3 > 1))]).astype(np.float64)


def drawn(rng: np.random.Generator, count: int, *, whole: bool) -> Array:
    """Of a random shape: clumps, early or late events, and a study that ends for all who are left, or does not."""
    shape, scale = rng.uniform(0.4, 3.0), rng.uniform(2.0, 15.0)
    event, leaves = scale * rng.weibull(shape, count), rng.uniform(0.0, rng.uniform(2.0, 30.0), count)
    if rng.random() < 0.5:
        leaves = np.minimum(leaves, HORIZON)
    time = np.minimum(event, leaves)
    if whole or rng.random() < 0.3:
        time = np.floor(time)
    return records_of(time, event <= leaves, rng.random(count) < 0.4)


def value(found: Estimates, term: str) -> float:
    return float(found.value[found.terms.index(term)])


def limits(found: Estimates, term: str) -> Array:
    """Between which the answer for the records themselves lies."""
    place = found.terms.index(term)
    assert found.resolution is not None
    below, above = found.resolution[place]
    return np.array([found.value[place] - below, found.value[place] + above])


def area_under(fitted: KaplanMeierFitter) -> float:
    """The area under the steps of a curve of lifelines, up to the horizon."""
    steps = fitted.survival_function_.iloc[:, 0]
    times = np.minimum(np.append(steps.index.to_numpy(float), HORIZON), HORIZON)
    return float(np.diff(times) @ steps.to_numpy())


def falls_to(fitted: KaplanMeierFitter, level: float) -> float:
    """When a curve of lifelines first is at the level or below; infinite if it never is."""
    steps = fitted.survival_function_.iloc[:, 0]
    reached = steps.index[steps.to_numpy() <= level + 1e-12]
    return float(reached[0]) if len(reached) else np.inf


def incidence(records: Array, place: int, at: float) -> float:
    """Aalen and Johansen's of the records as they are, by its definition."""
    time, cause = records[:, 0], records[:, 3]
    total, free = 0.0, 1.0
    for now in np.unique(time[time <= at]):
        risk, here = (time >= now).sum(), time == now
        total += free * (here & (cause == place)).sum() / risk
        free *= 1 - (here & (cause > 0)).sum() / risk
    return total


# --- one whole number in each bin ------------------------------------------------------------------------------------


def test_events_belong_to_the_end_of_their_bin() -> None:
    """100 deaths at 5, and 100 who are seen alive at 10."""
    died = np.repeat([1.0, 0.0], 100)
    for columns, bins in ((columns_of(whole=True), 10), (columns_of(), 10), (columns_of(), 4)):
        found, mean = exact(columns, records_of(np.where(died > 0, 5.0, 10.0), died), f"survival(time, died, bins={bins})",
                            f"restricted-mean(time, died, bins={bins})")  # fmt: skip
        assert value(found, "all 5") == pytest.approx(0.5, rel=1e-12)
        assert value(found, "all 10") == pytest.approx(0.5, rel=1e-12)
        before = 4 if bins == 10 else 2.5
        assert value(found, f"all {before:g}") == pytest.approx(1.0, rel=1e-12)
        low, high = limits(mean, "all")
        assert low - 1e-9 <= 7.5 <= high + 1e-9
        if columns["time"].whole:
            assert value(mean, "all") == pytest.approx(7.5, rel=1e-12)
            assert value(found, "median all") == 5.0


@pytest.mark.parametrize("seed", range(20))
def test_whole_times_give_what_the_records_give(seed: int) -> None:
    """Events and withdrawals at 0, ties of both, times beyond the bound, and an end for all who are left."""
    rng = np.random.default_rng(seed)
    records = drawn(rng, int(rng.integers(20, 300)), whole=True)
    columns = columns_of(whole=True)
    texts = (
        "survival(time, died, bins=10)",
        "restricted-mean(time, died, bins=10)",
        "cumulative-incidence(time, cause, bins=10)",
    )
    survival, mean, competing = exact(columns, records, *texts)
    fitted = KaplanMeierFitter().fit(records[:, 0], records[:, 1])
    curve = survival.value[:10]
    known = np.isfinite(curve)
    expected = fitted.survival_function_at_times(np.arange(1.0, 11.0)).to_numpy()
    np.testing.assert_allclose(curve[known], expected[known], rtol=1e-9, atol=1e-12)
    # Nobody is at risk after what is not known.
    assert all((records[:, 0] >= year).sum() == 0 for year in np.arange(1, 11)[~known])
    assert survival.resolution is not None
    np.testing.assert_allclose(survival.resolution, 0.0, atol=1e-12)
    if known.all():
        assert value(mean, "all") == pytest.approx(area_under(fitted), rel=1e-9)
        assert np.allclose(mean.resolution if mean.resolution is not None else 0.0, 0.0, atol=1e-9)
    for name, level in (("lower-quartile", 0.75), ("median", 0.5), ("upper-quartile", 0.25)):
        right = falls_to(fitted, level)
        if right <= HORIZON:
            assert value(survival, f"{name} all") == right
        else:
            assert np.isnan(value(survival, f"{name} all"))
            assert any(f"{name} all" in flag.terms for flag in survival.flags if flag.code == "not-reached")
    for place, event in ((1, "heart"), (2, "other")):
        for year in np.arange(1, 11)[known]:
            assert value(competing, f"{event} {year}") == pytest.approx(incidence(records, place, year), rel=1e-9, abs=1e-12)
    assert "coarse-bins" not in [flag.code for found in (survival, mean, competing) for flag in found.flags]


def test_the_log_rank_test_of_whole_times_is_that_of_the_records() -> None:
    rng = np.random.default_rng(3)
    records = drawn(rng, 300, whole=True)
    (found,) = exact(columns_of(whole=True), records, "survival(time, died, by=arm, bins=10)")
    arms = [np.minimum(records[records[:, 2] == arm], [11.0, 1, 1, 2]) for arm in (0, 1)]
    for own in arms:
        own[own[:, 0] > HORIZON, 1] = 0
    oracle = logrank_test(arms[0][:, 0], arms[1][:, 0], arms[0][:, 1], arms[1][:, 1])
    assert found.tests["log-rank"].statistic == pytest.approx(oracle.test_statistic, rel=1e-9)
    told = found.summary["log-rank"]
    assert told["resolution"] == 0.0
    assert told["events"] == {"a": pytest.approx(arms[0][:, 1].sum()), "b": pytest.approx(arms[1][:, 1].sum())}


# --- many times in a bin ---------------------------------------------------------------------------------------------


@pytest.mark.sampled(23)
@pytest.mark.parametrize("seed", range(150))
def test_the_records_own_answer_is_within_what_bins_leave_open(seed: int) -> None:
    """Whatever the shape, whole numbers that nobody declared, and an end of the study for all who are left."""
    rng = np.random.default_rng((7, seed))
    records = drawn(rng, int(rng.integers(10, 200)), whole=False)
    bins = int(rng.integers(2, 14))
    texts = (f"survival(time, died, bins={bins})", f"restricted-mean(time, died, bins={bins})",
             f"cumulative-incidence(time, cause, bins={bins})")  # fmt: skip
    survival, mean, competing = exact(columns_of(), records, *texts)
    fitted = KaplanMeierFitter().fit(records[:, 0], records[:, 1])
    for edge in (HORIZON * np.arange(1, bins + 1) / bins).tolist():
        known = value(survival, f"all {edge:g}")
        if np.isnan(known):
            continue
        low, high = limits(survival, f"all {edge:g}")
        assert low - 1e-9 <= float(fitted.survival_function_at_times(edge).iloc[0]) <= high + 1e-9
        for place, event in ((1, "heart"), (2, "other")):
            low, high = limits(competing, f"{event} {edge:g}")
            assert low - 1e-9 <= incidence(records, place, edge) <= high + 1e-9
    for name, level in (("lower-quartile", 0.75), ("median", 0.5), ("upper-quartile", 0.25)):
        if np.isfinite(value(survival, f"{name} all")):
            low, high = limits(survival, f"{name} all")
            assert low - 1e-9 <= falls_to(fitted, level) <= high + 1e-9
    if np.isfinite(value(mean, "all")):
        low, high = limits(mean, "all")
        assert low - 1e-9 <= area_under(fitted) <= high + 1e-9


def test_a_study_that_ends_for_all_leaves_nothing_open_there() -> None:
    """Whoever is seen alive on the last day is at risk for all events of the last bin."""
    rng = np.random.default_rng(5)
    event = rng.exponential(8.0, 500)
    (found,) = exact(columns_of(), records_of(np.minimum(event, HORIZON), event <= HORIZON), "survival(time, died, bins=5)")
    assert value(found, "all 10") == pytest.approx((event > HORIZON).mean(), rel=1e-9)
    assert found.resolution is not None
    np.testing.assert_allclose(found.resolution[:5], 0.0, atol=1e-12)


def test_both_intervals_contain_what_bins_leave_open_and_answers_say_how_much() -> None:
    rng = np.random.default_rng(6)
    arm = (rng.random(5000) < 0.4).astype(float)
    event, leaves = rng.exponential(8.0 + 4.0 * arm), rng.uniform(0.0, 30.0, 5000)
    records = records_of(np.minimum(event, leaves), event <= leaves, arm)
    for text in ("survival(time, died, by=arm)", "restricted-mean(time, died, by=arm)", "hazard-ratio(time, died, by=arm)",
                 "cumulative-incidence(time, cause, by=arm)"):  # fmt: skip
        (found,) = exact(columns_of(), records, text)
        population = found.of_population
        assert found.resolution is not None
        assert population is not None
        known = np.isfinite(found.value)
        for ends in (found.of_noise, population):
            assert (ends[known, 0] <= (found.value - found.resolution[:, 0])[known] + 1e-9).all()
            assert (ends[known, 1] >= (found.value + found.resolution[:, 1])[known] - 1e-9).all()
        told = found.to_json()
        flat = [told["resolution"][group][name] for group, name in found.groups] if found.groups else told["resolution"].values()
        np.testing.assert_array_equal(np.array(list(flat)), found.resolution)


@pytest.mark.parametrize("estimated", [False, True])
@pytest.mark.parametrize(("open_", "much"), [(0.3, False), (0.4, True), (1e-12, False)])
def test_what_half_as_many_bins_tell_is_flagged_where_it_is_much_and_a_bound_is_not(
    estimated: bool, open_: float, much: bool
) -> None:
    """An interval of 2 without bins, to which twice the resolution is added."""
    row = Estimate("x", 1.0, 0.5, 0.5, -9.0, 9.0, (0.0, 2.0), (0.0, 2.0)).widened(open_, open_, estimated)
    flags = Estimates.of([row]).flags
    assert [(flag.code, flag.terms) for flag in flags] == ([("coarse-bins", ("x",))] if much and estimated else [])


@pytest.mark.parametrize("when", [0.01, 0.5, 0.99])
def test_the_difference_of_areas_holds_that_of_the_records_where_times_are_heaped_in_all_bins_alike(when: float) -> None:
    """Just after edges, in the middle and before edges, where no number of bins says which."""
    rng = np.random.default_rng(12)
    arm = (rng.random(4000) < 0.5).astype(float)
    event, leaves = (np.floor(one) + when for one in (rng.exponential(6.0 + 4.0 * arm), rng.uniform(3.0, 30.0, 4000)))
    records = records_of(np.minimum(event, leaves), event <= leaves, arm)
    (found,) = exact(columns_of(), records, "restricted-mean(time, died, by=arm, bins=10)")
    areas = [area_under(KaplanMeierFitter().fit(own[:, 0], own[:, 1])) for own in (records[arm == 0], records[arm == 1])]
    low, high = limits(found, "difference")
    assert low <= areas[1] - areas[0] <= high


# --- where the bins come from ----------------------------------------------------------------------------------------


def test_edges_of_the_statistic_or_of_the_column() -> None:
    records = drawn(np.random.default_rng(8), 400, whole=False)
    (given,) = exact(columns_of(), records, "survival(time, died, edges=0 1 2.5 7)")
    (declared,) = exact(columns_of(edges=(0.0, 1.0, 2.5, 7.0)), records, "survival(time, died)")
    assert given.terms[:3] == declared.terms[:3] == ("all 1", "all 2.5", "all 7")
    np.testing.assert_array_equal(given.value, declared.value)
    (horizon,) = exact(columns_of(), records, "survival(time, died, edges=0 1 2.5 7, horizon=5)")
    assert horizon.terms[:3] == ("all 1", "all 2.5", "all 5")
    np.testing.assert_allclose(horizon.value[:2], given.value[:2], rtol=1e-12)
    (from_one,) = exact(columns_of(), records, "survival(time, died, edges=1 2.5 7)")
    np.testing.assert_array_equal(from_one.value, given.value)
    with pytest.raises(InputError, match="edges that rise from 0 on"):
        exact(columns_of(), records, "survival(time, died, edges=-1 2 7)")
    with pytest.raises(InputError, match="edges that rise from 0 on"):
        exact(columns_of(), records, "hazard-ratio(time, died, by=arm, edges=3 2 7)")
    with pytest.raises(InputError, match="times from 0 to the horizon 12"):
        exact(columns_of(), records, "restricted-mean(time, died, edges=0 2 12)")


def test_equal_fields_share_one_table() -> None:
    fields = "time, died, by=arm, edges=0 1 2 4 8"
    workload = workload_of(columns_of(), *(f"{kind}({fields})" for kind in ("survival", "hazard-ratio", "restricted-mean")))
    assert len(workload.scales) == 1
    assert workload.sensitivity == pytest.approx(3**0.5)


def test_negative_times_count_as_0_and_later_ones_as_observed_after_the_horizon() -> None:
    time, died = np.array([-1.0, 0.0, 3.0, 11.0, 50.0, 10.0]), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    for columns in (columns_of(whole=True), columns_of()):
        (found,) = exact(columns, records_of(time, died), "survival(time, died, bins=10)")
        np.testing.assert_allclose(found.value[:10], np.where(np.arange(1, 11) < 3, 4 / 6, 3 / 6), rtol=1e-12)


# --- comparisons -----------------------------------------------------------------------------------------------------


def test_comparisons_with_few_bins_are_refused_with_a_reason() -> None:
    records = drawn(np.random.default_rng(9), 400, whole=False)
    survival, ratio = exact(
        columns_of(), records, "survival(time, died, by=arm, bins=11)", "hazard-ratio(time, died, by=arm, bins=11)"
    )
    assert np.isnan(survival.tests["log-rank"].p_value)
    assert np.isnan(ratio.value).all()
    for found, terms in ((survival, ()), (ratio, ("b/a",))):
        (flag,) = [flag for flag in found.flags if flag.code == "few-bins"]
        assert flag.terms == terms
        assert "bins=12" in flag.message


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "when",
    [
        pytest.param(lambda hazard: 5 * hazard, id="exponential"),
        pytest.param(lambda hazard: 3 * hazard**2, id="early"),
        pytest.param(lambda hazard: 6 * hazard ** (1 / 3), id="late"),
        pytest.param(lambda hazard: np.floor(12 * hazard) * (10 / 12) + 0.01, id="just after edges"),
        pytest.param(lambda hazard: np.ceil(4 * hazard) * 2.5, id="heaps at the ends of every third bin"),
    ],
)
@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_hazard_ratios_do_not_depend_on_where_in_its_bins_the_hazard_is(when: Callable[[Array], Array], ratio: float) -> None:
    """Of proportional hazards, the same part in each bin whatever the baseline is: a population by its levels, no chance."""
    levels = -np.log((np.arange(10_000) + 0.5) / 10_000)
    arm = np.repeat([0.0, 1.0], len(levels))
    time = np.concatenate([when(levels), when(levels / ratio)])
    records = records_of(np.minimum(time, HORIZON), time <= HORIZON, arm)
    (found,) = exact(columns_of(), records, "hazard-ratio(time, died, by=arm)")
    assert value(found, "b/a") == pytest.approx(ratio, rel=1e-3)
    assert "coarse-bins" not in [flag.code for flag in found.flags]
    assert found.resolution is not None
    assert float(found.resolution.max()) < 1e-3 * ratio


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0])
def test_areas_are_those_of_the_population_where_hazards_are_powers_of_time(shape: float) -> None:
    """Of Weibull's distributions, seen to the end: without an error that a study of thousands could see."""
    levels = -np.log((np.arange(10_000) + 0.5) / 10_000)
    time = 4 * levels ** (1 / shape)
    records = records_of(np.minimum(time, HORIZON), time <= HORIZON, np.zeros(len(time)))
    (found,) = exact(columns_of(), records, "restricted-mean(time, died)")
    assert value(found, "all") == pytest.approx(np.minimum(time, HORIZON).mean(), rel=5e-4)


def rows_of(data: Any, time: str, died: str, arm: Any) -> Array:
    return records_of(data[time].to_numpy(float), data[died].to_numpy(float), np.asarray(arm, dtype=float))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bins", [12, 18, 24])
def test_comparisons_of_real_studies_are_near_those_of_the_records(bins: int) -> None:
    """Cox regression and the log-rank test of lifelines. They look at all events; what is left out is told."""
    lung, breast = load_lung(), load_gbsg2()
    for records, high in (
        (rows_of(lung, "time", "status", lung["sex"] == lung["sex"].max()), 1080.0),
        (rows_of(breast, "time", "cens", breast["horTh"] == "yes"), 2700.0),
    ):
        survival, ratio = exact(
            columns_of(high=high),
            records,
            f"survival(time, died, by=arm, bins={bins})",
            f"hazard-ratio(time, died, by=arm, bins={bins})",
        )
        frame = pd.DataFrame(records[:, :3], columns=["t", "e", "arm"])
        cox = float(np.exp(CoxPHFitter().fit(frame, "t", "e").params_["arm"]))
        arms = [records[records[:, 2] == arm] for arm in (0, 1)]
        oracle = logrank_test(arms[0][:, 0], arms[1][:, 0], arms[0][:, 1], arms[1][:, 1])
        assert value(ratio, "b/a") == pytest.approx(cox, rel=0.015)
        # A chi-squared of 10 moves by 0.8 where z moves by an eighth.
        assert survival.tests["log-rank"].statistic ** 0.5 == pytest.approx(oracle.test_statistic**0.5, abs=0.13)
        for told in (survival.summary["log-rank"], ratio.summary):
            assert told["events"] == {name: pytest.approx(own[:, 1].sum()) for name, own in zip("ab", arms, strict=True)}
            assert told["until"] > 0.85 * high
            assert told["records_left_out"] < 3
