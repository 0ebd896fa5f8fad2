"""The populations of ``coverage_bars.py``: not as models have them, or as they are and hard for bins."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import exact_intervals as exact
import numpy as np
from coverage_bars import Population
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from quietmean.statistics import Column, Columns
from quietmean.statistics.random_effects import Pooled

Array = NDArray[np.float64]

SEED = 20_732
# Of a table that stands for a population.
ROWS = 20_000
_LEVELS = (np.arange(ROWS) + 0.5) / ROWS
_QUARTILES = ("0.25", "0.5", "0.75")
_ARMS = ("a", "b")


def _numbers(*columns: ArrayLike) -> Array:
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])


def _shuffled(seed: int, values: Array) -> Array:
    return np.random.default_rng((SEED, seed)).permutation(values)


def all_of_them() -> Iterator[Population]:
    yield from costs()
    yield from whole_numbers()
    yield from rare_events()
    yield from times()
    yield from other_times()
    yield from counts()
    yield from means()
    yield from slopes()
    yield from sites()


def costs() -> Iterator[Population]:
    table = _numbers(np.minimum(np.exp(stats.norm.ppf(_LEVELS) * 1.5 + math.log(3000)), 1e6))
    for scale, reason in (("log", ""), ("linear", "a bin of 1024 is 977 wide where the median is 3000: it is the wrong scale")):
        columns = Columns([Column(name="cost", low=0, high=1e6, scale=scale)])
        yield Population(
            f"lognormal costs, {scale} scale", columns, "quantiles(cost)", lambda rows: exact.quantiles(rows[:, 0]), _QUARTILES,
            table=table, reason=reason,
        )  # fmt: skip


def whole_numbers() -> Iterator[Population]:
    from statsmodels.datasets import randhie

    days = _numbers(np.clip(np.ceil(stats.lognorm.ppf(_LEVELS, 0.9, scale=3.0)), 0, 60))
    visits = np.asarray(randhie.load_pandas().data["mdvis"], dtype=np.float64)[:, None]
    for what, table, high in (("whole days 0 to 60", days, 60.0), ("visits, randhie", visits, 80.0)):
        columns = Columns([Column(name="x", low=0, high=high, whole=True)])
        yield Population(what, columns, "quantiles(x)", lambda rows: exact.quantiles(rows[:, 0]), _QUARTILES, table=table)
        yield Population(what, columns, "mean(x)", lambda rows: exact.mean(rows[:, 0]), ("",), table=table)


def rare_events() -> Iterator[Population]:
    columns = Columns([Column(name="p", low=0, high=1), Column(name="y", boolean=True)])
    for share, middle in (("1.8 %", -4.5), ("7 %", -3.0)):
        # Each prediction stands there with and without the outcome, as often as it says.
        p = 1 / (1 + np.exp(-(middle + stats.norm.ppf(_LEVELS))))
        y = (np.random.default_rng((SEED, 3)).random(ROWS) < p).astype(np.float64)
        what = f"rare events, {share}"
        table = _numbers(p, y)
        yield Population(what, columns, "roc(p, y)", lambda rows: exact.area(rows[:, 0], rows[:, 1]), ("auc",), table=table)
        terms = ("brier", "in-the-large", "intercept", "slope")
        yield Population(
            what, columns, "calibration(p, y)", lambda rows: exact.calibration(rows[:, 0], rows[:, 1]), terms, table=table
        )


def times() -> Iterator[Population]:
    """With 12 bins, the default, and events that are known up to the last time."""

    def columns(high: float) -> Columns:
        return Columns([Column(name="t", low=0, high=high), Column(name="e", boolean=True), Column(name="arm", levels=_ARMS)])

    def seen(event: Array, arm: Array, high: float, seed: int) -> Array:
        leaves = np.minimum(_shuffled(seed, 200 + 2800 * _LEVELS), high)
        return _numbers(np.minimum(event, leaves), event <= leaves, arm)

    arm = _shuffled(10, (np.arange(ROWS) % 2).astype(np.float64))
    ends = tuple(f"{name} {arm}" for arm in _ARMS for name in ("lower-quartile", "median"))
    falls = _shuffled(11, -np.log(_LEVELS))
    exponential = seen(falls * 500 / math.log(2) / np.where(arm > 0, 0.7, 1.0), arm, 1800.0, 12)
    weibull = seen(400 * (falls / np.where(arm > 0, 0.5, 1.0)) ** 2, arm, 1825.0, 13)
    for what, table, high in (("exponential times", exponential, 1800.0), ("Weibull times of shape 1/2", weibull, 1825.0)):
        yield Population(
            what,
            columns(high),
            "survival(t, e, by=arm)",
            lambda rows: exact.survival(rows[:, 0], rows[:, 1], rows[:, 2], _ARMS),
            ends,
            table=table,
        )
        yield Population(
            what, columns(high), "restricted-mean(t, e, by=arm)",
            partial(_means_until, high=high),
            (*_ARMS, "difference"), table=table,
        )  # fmt: skip
        yield Population(
            what, columns(high), "hazard-ratio(t, e, by=arm)",
            lambda rows: exact.hazard_ratio(rows[:, 0], rows[:, 1], rows[:, 2], "b/a"), ("b/a",),
            table=table,
        )  # fmt: skip


def _means_until(rows: Array, high: float) -> exact.Intervals:
    return exact.restricted_means(rows[:, 0], rows[:, 1], rows[:, 2], _ARMS, high)


def other_times() -> Iterator[Population]:
    """Whole years, one a bin, and patients of lifelines."""
    from lifelines.datasets import load_stanford_heart_transplants, load_waltons

    years = np.random.default_rng((SEED, 14)).permuted(np.tile(_LEVELS, (2, 1)), axis=1)
    event, leaves = np.ceil(-9 * np.log(years[0])), np.minimum(np.ceil(19 * years[1]), 12.0)
    waltons, heart = load_waltons(), load_stanford_heart_transplants()
    last = heart.sort_values(["id", "stop"]).groupby("id").last()
    for what, table, high, whole in (
        ("whole years, one a bin", _numbers(np.minimum(event, leaves), event <= leaves), 12.0, True),
        ("waltons (lifelines)", _numbers(waltons["T"], waltons["E"]), 80.0, False),
        ("stanford_heart_transplants (lifelines)", _numbers(last["stop"], last["event"]), 1800.0, False),
    ):
        columns = Columns([Column(name="t", low=0, high=high, whole=whole), Column(name="e", boolean=True)])
        edges = (high / 4, high / 2)

        def curve(rows: Array, edges: tuple[float, ...] = edges) -> exact.Intervals:
            return exact.survival(rows[:, 0], rows[:, 1], np.zeros(len(rows)), ("all",), edges)

        yield Population(
            what, columns, "survival(t, e)", curve, ("median all", *(f"all {edge:g}" for edge in edges)), table=table
        )


def counts() -> Iterator[Population]:
    from statsmodels.datasets import anes96, randhie

    columns = Columns([Column(name="n", low=0, high=80), Column(name="t", low=0, high=1), Column(name="arm", levels=_ARMS)])
    visits = np.asarray(randhie.load_pandas().data["mdvis"], dtype=np.float64)
    news = np.repeat(np.asarray(anes96.load_pandas().data["TVnews"], dtype=np.float64), 20)
    wide = stats.nbinom.ppf(_LEVELS, 0.5, 0.2)
    for what, values in (("negative binomial counts", wide), ("visits, randhie", visits), ("days of news, anes96", news)):
        arm = _shuffled(20, (np.arange(len(values)) % 2).astype(np.float64))
        table = _numbers(np.minimum(_shuffled(21, values), 80), np.ones(len(values)), arm)
        yield Population(
            what,
            columns,
            "rates(n, t, by=arm)",
            lambda rows: exact.rates(rows[:, 0], rows[:, 1], rows[:, 2], _ARMS),
            (*_ARMS, "rate-ratio"),
            table=table,
        )


def means() -> Iterator[Population]:
    columns = Columns([Column(name="y", low=-20, high=20), Column(name="arm", levels=_ARMS)])
    arm = _shuffled(30, (np.arange(ROWS) % 5 == 0).astype(np.float64))
    table = _numbers(np.where(arm > 0, 5.0, 1.0) * _shuffled(31, stats.norm.ppf(_LEVELS)), arm)
    yield Population(
        "deviations 1 and 5", columns, "group-means(y, by=arm)", lambda rows: exact.group_means(rows[:, 0], rows[:, 1], _ARMS),
        (*_ARMS, "difference"), table=table,
    )  # fmt: skip


def slopes() -> Iterator[Population]:
    from statsmodels.datasets import engel

    rng = np.random.default_rng((SEED, 40))
    pair = Columns([Column(name="x", low=-6, high=6), Column(name="y", low=-6, high=6)])
    heavy = np.clip(rng.normal(0, 1, (ROWS, 2)) / np.sqrt(rng.chisquare(4, (ROWS, 1)) / 4), -6, 6)
    cone = rng.normal(0, 1, ROWS)
    cone = np.clip(_numbers(cone, rng.normal(0, 1, ROWS) * np.abs(cone)), -6, 6)
    even = rng.normal(0, 1, ROWS)
    even = np.clip(_numbers(even, 0.5 * even + rng.normal(0, 1, ROWS)), -6, 6)
    for what, table in (("t4", heavy), ("errors that grow with x", cone), ("errors of one variance", even)):
        yield Population(
            what, pair, "linear-regression(y ~ x)", lambda rows: exact.slope(rows[:, 0], rows[:, 1], "x"), ("x",), table=table
        )
        yield Population(
            what, pair, "correlation(x, y)", lambda rows: exact.correlation(rows[:, 0], rows[:, 1], "x:y"), ("x:y",), table=table
        )
    bought = engel.load_pandas().data
    homes = Columns([Column(name="income", low=0, high=5000), Column(name="food", low=0, high=2500)])
    yield Population(
        "Engel's households", homes, "linear-regression(food ~ income)",
        lambda rows: exact.slope(rows[:, 0], rows[:, 1], "income"),
        ("income",), table=_numbers(bought["income"], bought["foodexp"]),
    )  # fmt: skip


def sites() -> Iterator[Population]:
    """Six of them, drawn anew for each study: the answer is for all sites like these."""
    names = tuple("uvwxyz")
    columns = Columns([Column(name="y", low=0, high=100), Column(name="site", levels=names)])

    def draw(rng: np.random.Generator, size: int) -> Array:
        site = rng.integers(0, 6, size)
        return _numbers(50 + rng.normal(0, 3, 6)[site] + rng.normal(0, 10, size), site)

    def pooled(rows: Array, term: str) -> exact.Intervals:
        own = [rows[rows[:, 1] == place, 0] for place in range(6)]
        found = Pooled.of(np.array([x.mean() for x in own]), np.array([x.var(ddof=1) / len(x) for x in own]))
        return {term: exact.normal(found.random, math.sqrt(found.random_variance), found.degrees)}

    for text, term in (("mean(y, cluster=site)", ""), ("site-effects(y, by=site)", "random")):
        yield Population(
            "six sites, deviation 3 between, 10 within", columns, text, partial(pooled, term=term), (term,),
            draw=draw, truth={term: 50.0},
        )  # fmt: skip
