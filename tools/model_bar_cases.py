"""Statistics of one exchange on data that fit and on data that do not, for ``model_bars.py``: what is drawn, and what is true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from exact_intervals import Array
from held_intervals import Draw, decoded, workload_of
from numpy.typing import NDArray

from quietmean.statistics import Column, Columns

# The test of a term itself.
OF_TERM = "term"
LEVELS = Columns(
    [
        Column(name="first", boolean=True),
        Column(name="second", boolean=True),
        Column(name="group", levels=tuple("ABCD")),
        Column(name="x", low=-4, high=4),
        Column(name="y", low=-4, high=4),
    ]
)
COLUMNS = Columns(
    [
        Column(name="x", low=-6, high=8),
        Column(name="y", low=-6, high=8),
        Column(name="site", levels=tuple("ABCD")),
        Column(name="arm", levels=("control", "drug")),
        Column(name="time", low=0, high=10),
        Column(name="died", boolean=True),
        Column(name="first", boolean=True),
        Column(name="second", boolean=True),
    ]
)
# Records that the truth is taken from where nobody knows it.
_POPULATION = 400_000
# Sites of other sizes, of which the drug is given to other parts.
_SITES, _DRUG = (0.4, 0.3, 0.2, 0.1), (0.3, 0.45, 0.6, 0.75)


@dataclass(frozen=True)
class Case:
    """A statistic of records that are drawn; ``data``: what is drawn, in words.

    ``test``: one whose hypothesis is true, or "term" for that of the term itself; ``truth``: of the term, by default what it is
    of very many records.
    """

    text: str
    term: str
    data: str
    draw: Draw
    test: str = ""
    truth: float | None = None
    columns: Columns = COLUMNS

    def true_value(self) -> float:
        if self.truth is not None:
            return self.truth
        workload, rng = workload_of(self.columns, self.text), np.random.default_rng(1)
        parts = [workload.encode(self.draw(rng, _POPULATION // 40)).vector for _ in range(40)]
        answer = decoded(workload, np.sum(parts, axis=0) / _POPULATION, 0.0, float(_POPULATION))
        return float(answer.value[answer.terms.index(self.term)])


def _table(rng: np.random.Generator, n: int, x: Array, y: Array, site: NDArray[np.int64] | None = None) -> Array:
    sites = rng.choice(4, n, p=_SITES) if site is None else site
    columns = [np.clip(x, -6, 8), np.clip(y, -6, 8), sites, *np.zeros((5, n))]
    return np.column_stack(columns).astype(np.float64)


def _rated(rng: np.random.Generator, first: NDArray[np.bool_], second: NDArray[np.bool_], site: NDArray[np.int64]) -> Array:
    columns = [np.zeros(len(first))] * 2 + [site, np.zeros(len(first)), np.zeros(len(first)), np.zeros(len(first)), first, second]
    return np.column_stack(columns).astype(np.float64)


def normal(rng: np.random.Generator, n: int) -> Array:
    """Two columns that are alike and go with nothing."""
    return _table(rng, n, rng.standard_normal(n), rng.standard_normal(n))


def other_spreads(rng: np.random.Generator, n: int) -> Array:
    """One median at all sites, deviations from 0.5 to 2."""
    site = rng.choice(4, n, p=_SITES)
    return _table(rng, n, rng.standard_normal(n) * (0.5 + 0.5 * site), rng.standard_normal(n), site)


def measured_twice(rng: np.random.Generator, n: int) -> Array:
    """By two methods with normal errors."""
    common = 1.5 * rng.standard_normal(n)
    return _table(rng, n, common + rng.standard_normal(n), common + 0.2 + rng.standard_normal(n))


def skewed_twice(rng: np.random.Generator, n: int) -> Array:
    """By two methods, the second with skewed errors that grow with what is measured."""
    common = rng.exponential(1.0, n)
    return _table(rng, n, common + 0.3 * rng.standard_normal(n), common + 0.5 * rng.exponential(1.0, n) * (0.5 + common))


def uncorrelated(rng: np.random.Generator, n: int) -> Array:
    """Without a correlation, but the spread of one grows with the other."""
    x = rng.standard_normal(n)
    return _table(rng, n, x, rng.standard_normal(n) * np.abs(x))


def other_sites(rng: np.random.Generator, n: int) -> Array:
    """Skewed records at sites that differ, by skewed differences drawn anew in each study."""
    site, differences = rng.choice(4, n, p=_SITES), 0.5 * (rng.exponential(1.0, 4) - 1)
    return _table(rng, n, differences[site] + rng.exponential(1.0, n) - 1, np.zeros(n), site)


def lived(rng: np.random.Generator, n: int) -> Array:
    """Sites of other hazards, at which other parts have the drug, which does nothing."""
    site = rng.choice(4, n, p=_SITES)
    arm = (rng.random(n) < np.array(_DRUG)[site]).astype(float)
    event = rng.weibull(1.0, n) * (4.0 + 4.0 * site)
    leaves = rng.uniform(2.0, 14.0, n)
    time, died = np.minimum(event, np.minimum(leaves, 9.99)), event < np.minimum(leaves, 9.99)
    return np.column_stack([site, site, site, arm, time, died, *np.zeros((2, n))]).astype(np.float64)


def rarely_yes(rng: np.random.Generator, n: int) -> Array:
    """Two raters of a property that one record in 25 has, who overlook it and see it where it is not."""
    has, site = rng.random(n) < 0.04, rng.choice(4, n, p=_SITES)
    seen = [np.where(has, rng.random(n) < 0.7, rng.random(n) < 0.01) for _ in range(2)]
    return _rated(rng, seen[0], seen[1], site)


def rises_and_falls(rng: np.random.Generator, n: int) -> Array:
    """Proportions that rise and fall again from group to group, and odds ratios of other signs in them."""
    site = rng.choice(4, n, p=(0.25, 0.25, 0.25, 0.25))
    first = rng.random(n) < np.array((0.1, 0.4, 0.4, 0.1))[site]
    odds = np.array((-0.8, 0.4, 0.4, 1.2))[site] * first - 0.5
    return _rated(rng, first, rng.random(n) < 1 / (1 + np.exp(-odds)), site)


def skewed_differences(rng: np.random.Generator, n: int) -> Array:
    """Measured twice, with differences that are skewed and seldom long."""
    x = rng.standard_normal(n)
    return _table(rng, n, x, x + rng.choice([0.0, 1.0], n, p=(0.8, 0.2)) * rng.exponential(1.5, n) - 0.3)


def unrelated(rng: np.random.Generator, n: int) -> Array:
    """Columns of which none goes with another."""
    both = rng.random((n, 2)) < 0.3
    return np.column_stack([both, rng.integers(0, 4, n), np.clip(rng.standard_normal((n, 2)), -4, 4)]).astype(np.float64)


# Statistics of records of which their null hypothesis is true.
LEVEL_QUESTIONS = tuple(
    Case(text, term, "", unrelated, test, truth, LEVELS)
    for text, term, truth, test in (
        ("kappa(first, second)", "kappa", 0.0, "kappa"),
        ("mcnemar(first, second)", "difference", 0.0, "mcnemar"),
        ("trend(first, by=group)", "slope", 0.0, "trend"),
        ("mantel-haenszel(first, second, by=group)", "odds-ratio", 1.0, "mantel-haenszel"),
        ("spearman(x, y)", "", 0.0, "spearman"),
        ("paired-difference(x, y)", "difference", 0.0, "paired-t"),
        ("icc(x, y)", "agreement", 0.0, ""),
    )
)
_RANKS, _LIMIT, _SITES_OF = "kruskal-wallis(x, by=site)", "bland-altman(x, y)", "meta-analysis(mean(x), by=site)"
_STRATA = "survival(time, died, by=arm, strata=site)"
_MH, _ICC = "mantel-haenszel(first, second, by=site)", "icc(x, y)"
CASES = (
    Case(_RANKS, "A", "alike at all sites", normal, "kruskal-wallis", 0.5),
    Case(_RANKS, "A", "one median, deviations 0.5 to 2", other_spreads, "kruskal-wallis", 0.5),
    Case(_LIMIT, "upper-limit", "normal errors", measured_twice),
    Case(_LIMIT, "upper-limit", "skewed errors that grow", skewed_twice),
    Case("correlation(x, y)", "x:y", "both normal", normal, "term", 0.0),
    Case("correlation(x, y)", "x:y", "the spread of y grows with x", uncorrelated, "term", 0.0),
    Case(_SITES_OF, "random", "alike at all sites", normal, "Q", 0.0),
    Case(_SITES_OF, "random", "sites differ, skewed", other_sites, "", 0.0),
    Case(_STRATA, "", "sites of other hazards", lived, "log-rank"),
    Case("kappa(first, second)", "kappa", "4 % have it, raters err", rarely_yes),
    Case("mcnemar(first, second)", "difference", "4 % have it, raters err", rarely_yes, "mcnemar", 0.0),
    Case("trend(first, by=site)", "slope", "rises and falls", rises_and_falls, "trend", 0.0),
    Case(_MH, "odds-ratio", "odds ratios differ by group", rises_and_falls),
    Case("paired-difference(x, y)", "difference", "skewed, mostly none", skewed_differences, "paired-t", 0.0),
    Case("spearman(x, y)", "", "the spread of y grows with x", uncorrelated, "spearman", 0.0),
    # Of four million records, without bins, by scipy.
    Case("spearman(x, y)", "", "skewed errors that grow", skewed_twice, "", 0.8117),
    Case(_ICC, "agreement", "normal errors", measured_twice),
    Case(_ICC, "agreement", "skewed errors that grow", skewed_twice),
)
