"""The populations of ``coverage_bars.py``: not as models have them, or as they are and hard for bins."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import exact_intervals as exact
import numpy as np
from coverage_bars import Population
from exact_intervals import Array
from numpy.typing import ArrayLike
from scipy import stats

from quietmean.statistics import Column, Columns
from quietmean.statistics.random_effects import Pooled

SEED = 20_732
# Of a table that is a population.
ROWS = 20_000
_LEVELS = (np.arange(ROWS) + 0.5) / ROWS
_QUARTILES = ("0.25", "0.5", "0.75")
_ARMS = ("a", "b")


def _numbers(*columns: ArrayLike) -> Array:
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])


def _columns(*columns: Column | tuple[str, float, float]) -> Columns:
    return Columns([one if isinstance(one, Column) else Column(name=one[0], low=one[1], high=one[2]) for one in columns])


def _shuffled(seed: int, values: Array) -> Array:
    return np.random.default_rng((SEED, seed)).permutation(values)


def _visits() -> Array:
    from statsmodels.datasets import randhie

    return np.asarray(randhie.load_pandas().data["mdvis"], dtype=np.float64)


_ARM, _EVENT = Column(name="arm", levels=_ARMS), Column(name="e", boolean=True)


def all_of_them() -> Iterator[Population]:
    for some in (costs, whole_numbers, rare_events, times, other_times, counts, means, slopes, sites):
        yield from some()


def costs() -> Iterator[Population]:
    table = _numbers(np.minimum(np.exp(stats.norm.ppf(_LEVELS) * 1.5 + math.log(3000)), 1e6))
    # A bin of 1024 on the linear scale is 977 wide where the median is 3000: it is the wrong scale.
    for scale in ("log", "linear"):
        columns = _columns(Column(name="cost", low=0, high=1e6, scale=scale))
        yield Population(f"lognormal costs, {scale} scale", columns, "quantiles(cost)", exact.quantiles, _QUARTILES, table)


def whole_numbers() -> Iterator[Population]:
    days = np.clip(np.ceil(stats.lognorm.ppf(_LEVELS, 0.9, scale=3.0)), 0, 60)
    for what, values, high in (("whole days 0 to 60", days, 60.0), ("visits, randhie", _visits(), 80.0)):
        columns = _columns(Column(name="x", low=0, high=high, whole=True))
        for text, reference, terms in (("quantiles(x)", exact.quantiles, _QUARTILES), ("mean(x)", exact.mean, ("",))):
            yield Population(what, columns, text, reference, terms, _numbers(values))


def rare_events() -> Iterator[Population]:
    columns = _columns(("p", 0, 1), Column(name="y", boolean=True))
    for share, middle in (("1.8 %", -4.5), ("7 %", -3.0)):
        # Each prediction is there with and without the outcome, as often as it says.
        p = 1 / (1 + np.exp(-(middle + stats.norm.ppf(_LEVELS))))
        table = _numbers(p, np.random.default_rng((SEED, 3)).random(ROWS) < p)
        what, terms = f"rare events, {share}", ("brier", "in-the-large", "intercept", "slope")
        yield Population(what, columns, "roc(p, y)", exact.area, ("auc",), table)
        yield Population(what, columns, "calibration(p, y)", exact.calibration, terms, table)


def times() -> Iterator[Population]:
    """With 12 bins, the default, and events that are known up to the last time."""

    def seen(event: Array, high: float, seed: int) -> Array:
        leaves = np.minimum(_shuffled(seed, 200 + 2800 * _LEVELS), high)
        return _numbers(np.minimum(event, leaves), event <= leaves, arm)

    arm = _shuffled(10, (np.arange(ROWS) % 2).astype(np.float64))
    ends = tuple(f"{name} {arm}" for arm in _ARMS for name in ("lower-quartile", "median"))
    falls = _shuffled(11, -np.log(_LEVELS))
    exponential = seen(falls * 500 / math.log(2) / np.where(arm > 0, 0.7, 1.0), 1800.0, 12)
    weibull = seen(400 * (falls / np.where(arm > 0, 0.5, 1.0)) ** 2, 1825.0, 13)
    for what, table, high in (("exponential times", exponential, 1800.0), ("Weibull times of shape 1/2", weibull, 1825.0)):
        for name, reference, terms in (
            ("survival", partial(exact.survival, arms=_ARMS), ends),
            ("restricted-mean", partial(exact.restricted_means, arms=_ARMS, horizon=high), (*_ARMS, "difference")),
            ("hazard-ratio", partial(exact.hazard_ratio, term="b/a"), ("b/a",)),
        ):
            yield Population(what, _columns(("t", 0, high), _EVENT, _ARM), f"{name}(t, e, by=arm)", reference, terms, table)


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
        edges = (high / 4, high / 2)
        terms = ("median all", *(f"all {edge:g}" for edge in edges))
        columns = _columns(Column(name="t", low=0, high=high, whole=whole), _EVENT)
        yield Population(what, columns, "survival(t, e)", partial(exact.one_survival, edges=edges), terms, table)


def counts() -> Iterator[Population]:
    from statsmodels.datasets import anes96

    news = np.repeat(np.asarray(anes96.load_pandas().data["TVnews"], dtype=np.float64), 20)
    wide = stats.nbinom.ppf(_LEVELS, 0.5, 0.2)
    columns, terms = _columns(("n", 0, 80), ("t", 0, 1), _ARM), (*_ARMS, "rate-ratio")
    for what, values in (("negative binomial counts", wide), ("visits, randhie", _visits()), ("days of news, anes96", news)):
        arm = _shuffled(20, (np.arange(len(values)) % 2).astype(np.float64))
        table = _numbers(np.minimum(_shuffled(21, values), 80), np.ones(len(values)), arm)
        yield Population(what, columns, "rates(n, t, by=arm)", partial(exact.rates, levels=_ARMS), terms, table)


def means() -> Iterator[Population]:
    arm = _shuffled(30, (np.arange(ROWS) % 5 == 0).astype(np.float64))
    table = _numbers(np.where(arm > 0, 5.0, 1.0) * _shuffled(31, stats.norm.ppf(_LEVELS)), arm)
    reference = partial(exact.group_means, levels=_ARMS)
    columns, text = _columns(("y", -20, 20), _ARM), "group-means(y, by=arm)"
    yield Population("deviations 1 and 5", columns, text, reference, (*_ARMS, "difference"), table)


def slopes() -> Iterator[Population]:
    from statsmodels.datasets import engel

    rng = np.random.default_rng((SEED, 40))
    pair = _columns(("x", -6, 6), ("y", -6, 6))
    heavy = np.clip(rng.normal(0, 1, (ROWS, 2)) / np.sqrt(rng.chisquare(4, (ROWS, 1)) / 4), -6, 6)
    cone = rng.normal(0, 1, ROWS)
    cone = np.clip(_numbers(cone, rng.normal(0, 1, ROWS) * np.abs(cone)), -6, 6)
    even = rng.normal(0, 1, ROWS)
    even = np.clip(_numbers(even, 0.5 * even + rng.normal(0, 1, ROWS)), -6, 6)
    for what, table in (("t4", heavy), ("errors that grow with x", cone), ("errors of one variance", even)):
        yield Population(what, pair, "linear-regression(y ~ x)", partial(exact.slope, term="x"), ("x",), table)
        yield Population(what, pair, "correlation(x, y)", partial(exact.correlation, term="x:y"), ("x:y",), table)
    bought = engel.load_pandas().data
    homes, text = _columns(("income", 0, 5000), ("food", 0, 2500)), "linear-regression(food ~ income)"
    table, reference = _numbers(bought["income"], bought["foodexp"]), partial(exact.slope, term="income")
    yield Population("Engel's households", homes, text, reference, ("income",), table)


def sites() -> Iterator[Population]:
    """Six of them, drawn anew for each study: the answer is for all sites like these."""
    columns = _columns(("y", 0, 100), Column(name="site", levels=tuple("uvwxyz")))

    def draw(rng: np.random.Generator, size: int) -> Array:
        site = rng.integers(0, 6, size)
        return _numbers(50 + rng.normal(0, 3, 6)[site] + rng.normal(0, 10, size), site)

    def pooled(y: Array, site: Array, term: str) -> exact.Intervals:
        own = [y[site == place] for place in range(6)]
        found = Pooled.of(np.array([x.mean() for x in own]), np.array([x.var(ddof=1) / len(x) for x in own]))
        return {term: exact.normal(found.random, math.sqrt(found.random_variance), found.degrees)}

    for text, term in (("mean(y, cluster=site)", ""), ("site-effects(y, by=site)", "random")):
        reference = partial(pooled, term=term)
        yield Population("six sites, deviation 3 between, 10 within", columns, text, reference, (term,), draw, {term: 50.0})
