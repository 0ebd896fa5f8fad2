"""Bars of intervals where the data are not as a model has them: part of ``statistics_bars.py``.

Default options, 2000 and 10,000 records, epsilon 4. Rows of real data are drawn anew with replacement: they are the population.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.privacy import mu_of_budget
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]

EPSILON, DELTA, SEED = 4.0, 1e-6, 20_531
SIZES = (2000, 10_000)


@dataclass(frozen=True)
class Question:
    """A statistic of a population, a term and its true value."""

    what: str
    columns: Columns
    draw: Draw
    text: str
    term: str
    truth: float
    reason: str = ""


def measured(question: Question, size: int, seeds: int) -> tuple[float, float, float]:
    """Parts of the studies: whose interval of the population holds, whose test rejects at 5 %, that are flagged or unknown."""
    workload = Workload(question.columns, (parse_statistic(read_text(question.text)),), PrivacyUnit.RECORD)
    noise = math.sqrt(1.2) * workload.sensitivity / mu_of_budget(EPSILON, DELTA) / size
    held, rejected, flagged = 0, 0, 0
    for seed in range(seeds):
        rng = np.random.default_rng((SEED, size, seed))
        mean = workload.of_records(question.draw(rng, size)).mean(axis=0)
        found = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, size)[0].estimates
        place, ends = found.terms.index(question.term), found.of_population
        about = [flag for flag in found.flags if question.term in flag.terms]
        if ends is None or about or not math.isfinite(float(found.value[place])):
            flagged += 1
            continue
        held += bool(ends[place, 0] <= question.truth <= ends[place, 1])
        rejected += found.p_value is not None and bool(found.p_value[place] < 0.05)
    known = max(seeds - flagged, 1)
    return held / known, rejected / known, flagged / seeds


def questions() -> Iterator[Question]:
    from statsmodels.datasets import anes96, engel, randhie

    events = Columns([Column(name="n", low=0, high=80), Column(name="t", low=0, high=1), Column(name="arm", levels=("a", "b"))])

    def counts(draw: Callable[[np.random.Generator, int], Array]) -> Draw:
        return lambda rng, size: np.column_stack([np.minimum(draw(rng, size), 80), np.ones(size), rng.random(size) < 0.5])

    def rows(table: Array) -> Draw:
        return lambda rng, size: table[rng.integers(0, len(table), size)]

    visits = np.asarray(randhie.load_pandas().data["mdvis"], dtype=np.float64)
    wide = counts(lambda rng, size: rng.poisson(rng.gamma(0.5, 4.0, size)).astype(np.float64))
    doctors = counts(lambda rng, size: rng.choice(visits, size))
    for name, draw, mean in (("negative binomial", wide, 2.0), ("visits, randhie", doctors, float(visits.mean()))):
        yield Question(f"rate, {name}", events, draw, "rates(n, t, by=arm)", "a", mean)
        yield Question(f"rate ratio, {name}", events, draw, "rates(n, t, by=arm)", "rate-ratio", 1.0)
    groups = Columns([Column(name="y", low=-20, high=20), Column(name="arm", levels=("a", "b"))])

    def unequal(rng: np.random.Generator, size: int) -> Array:
        arm = rng.random(size) < 0.2
        return np.column_stack([rng.normal(0, np.where(arm, 5.0, 1.0)), arm])

    yield Question("difference, deviations 1 and 5", groups, unequal, "group-means(y, by=arm)", "difference", 0.0)
    pair = Columns([Column(name="x", low=-6, high=6), Column(name="y", low=-6, high=6)])

    def heavy(rng: np.random.Generator, size: int) -> Array:
        return rng.normal(0, 1, (size, 2)) / np.sqrt(rng.chisquare(4, (size, 1)) / 4)

    constant = "errors of constant variance are assumed; the moments that would tell are not released"
    for text, term in (("linear-regression(y ~ x)", "x"), ("correlation(x, y)", "x:y")):
        yield Question(f"{text}, both t4, unrelated", pair, heavy, text, term, 0.0, constant)
    sites = Columns([Column(name="y", low=0, high=100), Column(name="site", levels=tuple("uvwxyz"))])

    def six(rng: np.random.Generator, size: int) -> Array:
        site = rng.integers(0, 6, size)
        return np.column_stack([50 + rng.normal(0, 3, 6)[site] + rng.normal(0, 10, size), site])

    for text, term in (("mean(y, cluster=site)", ""), ("site-effects(y, by=site)", "random")):
        yield Question(f"{text}, six sites, deviation 3 between, 10 within", sites, six, text, term, 50.0)
    bought = engel.load_pandas().data
    table = np.column_stack([bought["income"], bought["foodexp"]]).astype(np.float64)
    slope = float(np.cov(table.T)[0, 1] / table[:, 0].var(ddof=1))
    homes = Columns([Column(name="income", low=0, high=5000), Column(name="food", low=0, high=2500)])
    yield Question("slope, Engel's households", homes, rows(table), "linear-regression(food ~ income)", "income", slope, constant)
    watched = np.asarray(anes96.load_pandas().data["TVnews"], dtype=np.float64)
    news = counts(lambda rng, size: rng.choice(watched, size))
    yield Question("rate, days of news, anes96", events, news, "rates(n, t, by=arm)", "a", float(watched.mean()))
