"""Statistics of every kind, and tables of which most are hard to say anything about: of rare values, without any, all alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from quietmean.statistics import parse_statistic, read_text
from support.every_kind import COLUMNS, all_statistics, random_rows

Array = NDArray[np.float64]
SEED, RECORDS = 20261128, 400
# With arms, causes and cut points beside those of every kind, and enough bins for curves to be wrong.
MORE = (
    "survival(age, smoker, by=sex, bins=20)",
    "cumulative-incidence(age, ended, by=sex, bins=12)",
    "cdf(weight, bins=32)",
    "roc(chance, smoker, bins=16)",
    "histogram(weight, bins=20)",
    "quantiles(weight, 0.05 0.1 0.25 0.5 0.75 0.9 0.95)",
    "table-1(by=sex, medians=true)",
    "rates(smoker, age, by=sex, standard=1 2)",
    "covariance(age, weight, chance)",
    "pca(age, weight, chance, scale=false)",
    "proportion(ended)",
    "count(sex, level=missing)",
    "survival(age, smoker, by=sex, entry=weight, bins=12)",
    "quantiles(weight, 0.25 0.5, bins=12, weight=age)",
    "mean(weight, weight=age, strata=sex)",
    "sum(weight, weight=age, margin=sex, totals=40 60)",
    "sum(weight, weight=age, margin=sex smoker, totals=40 60 70 30)",
    "group-means(chance, by=sex, weight=age)",
    "linear-regression(weight ~ chance, weight=age)",
    "linear-regression(weight ~ chance + sex, weight=age, psu=ended)",
    "logistic-regression(smoker ~ chance, weight=age)",
    "mean(weight, weight=age, strata=sex, psu=ended)",
    "histogram(ended, weight=age, psu=sex)",
)
KINDS = list({one.text: one for one in (*all_statistics(), *(parse_statistic(read_text(text)) for text in MORE))}.values())


def tables() -> Iterator[tuple[str, Array]]:
    rng = np.random.default_rng(SEED)
    yield "usual", random_rows(rng, RECORDS, 0.1)
    yield "rare", rare_rows(rng)
    yield "empty", np.full((RECORDS, len(COLUMNS)), np.nan)
    same = random_rows(rng, RECORDS, 0.0)
    same[:] = same[0]
    yield "same", same


def rare_rows(rng: np.random.Generator) -> Array:
    """All at an end of their bounds but a few."""
    rows = random_rows(rng, RECORDS, 0.0)
    for place, column in enumerate(COLUMNS):
        rows[6:, place] = column.low if column.numeric else 0.0
    return rows


TABLES = dict(tables())
