"""What well-known libraries compute from the pooled records: the truth that statistics of released sums are held against.

Nothing here knows of bins, noise or budgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
import statsmodels.api as sm
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.utils import restricted_mean_survival_time
from numpy.typing import NDArray
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

Array = NDArray[np.float64]
# Columns by name: numbers, or the places of levels; NaN where a cell is missing.
Table = Mapping[str, Array]
# The names of the terms of an answer, and what they are for these records.
Truth = dict[str, float]


def complete(table: Table, *names: str) -> list[Array]:
    """The columns, of the records that have all of them."""
    there = np.all([~np.isnan(table[name]) for name in names], axis=0)
    return [table[name][there] for name in names]


def mean(table: Table, column: str) -> Truth:
    (x,) = complete(table, column)
    return {"": float(x.mean())}


def total(table: Table, column: str) -> Truth:
    (x,) = complete(table, column)
    return {"": float(x.sum())}


def variance(table: Table, column: str) -> Truth:
    (x,) = complete(table, column)
    return {"variance": float(x.var(ddof=1)), "sd": float(x.std(ddof=1))}


def proportions(table: Table, column: str, levels: tuple[str, ...]) -> Truth:
    (x,) = complete(table, column)
    return {level: float((x == place).mean()) for place, level in enumerate(levels)}


def quantiles(table: Table, column: str) -> Truth:
    """The smallest value at or below which at least that part of the records is."""
    (x,) = complete(table, column)
    return {f"{level:g}": float(np.quantile(x, level, method="inverted_cdf")) for level in (0.25, 0.5, 0.75)}


def group_means(table: Table, column: str, by: str, levels: tuple[str, ...]) -> Truth:
    x, group = complete(table, column, by)
    means = {level: float(x[group == place].mean()) for place, level in enumerate(levels)}
    return means | ({"difference": means[levels[1]] - means[levels[0]]} if len(levels) == 2 else {})


def odds(table: Table, row: str, column: str) -> Truth:
    """Of two boolean or two-level columns."""
    a, b = complete(table, row, column)
    counts = np.array([[((a == i) & (b == j)).sum() for j in (0, 1)] for i in (0, 1)], dtype=float)
    parts = counts[:, 1] / counts.sum(axis=1)
    return {
        "odds-ratio": float(stats.contingency.odds_ratio(counts.astype(int), kind="sample").statistic),
        "risk-ratio": float(parts[1] / parts[0]),
        "risk-difference": float(parts[1] - parts[0]),
    }


def mann_whitney(table: Table, column: str, by: str) -> Truth:
    x, group = complete(table, column, by)
    first, second = x[group == 0], x[group == 1]
    return {"probability": float(stats.mannwhitneyu(second, first).statistic) / (len(first) * len(second))}


def covariance(table: Table, one: str, other: str) -> Truth:
    matrix = np.cov(np.vstack(complete(table, one, other)))
    return {f"{one}:{other}": float(matrix[0, 1])}


def correlation(table: Table, one: str, other: str) -> Truth:
    return {f"{one}:{other}": float(stats.pearsonr(*complete(table, one, other)).statistic)}


def first_component(table: Table, *columns: str) -> Truth:
    """The largest eigenvalue of the correlations."""
    x = np.column_stack(complete(table, *columns))
    standard = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
    return {"PC1": float(PCA().fit(standard).explained_variance_[0])}


def regression(table: Table, outcome: str, *covariates: str, terms: tuple[str, ...] | None = None) -> Truth:
    y, *xs = complete(table, outcome, *covariates)
    fit = sm.OLS(y, sm.add_constant(np.column_stack(xs))).fit()
    return dict(zip(terms or covariates, fit.params[1:].tolist(), strict=True))


def times_of(terms: Iterable[str], level: str) -> list[str]:
    """The times in terms such as "drug 12"."""
    return [term.removeprefix(f"{level} ") for term in terms if term.startswith(f"{level} ")]


def survival(table: Table, time: str, event: str, by: str, levels: tuple[str, ...], terms: Iterable[str]) -> Truth:
    t, e, group = complete(table, time, event, by)
    truth: Truth = {}
    for place, level in enumerate(levels):
        fit = KaplanMeierFitter().fit(t[group == place], e[group == place])
        truth |= {f"{level} {at}": float(fit.survival_function_at_times(float(at)).iloc[0]) for at in times_of(terms, level)}
    return truth


def restricted_mean(table: Table, time: str, event: str, by: str, levels: tuple[str, ...], horizon: float) -> Truth:
    t, e, group = complete(table, time, event, by)
    own = [KaplanMeierFitter().fit(t[group == place], e[group == place]) for place in range(len(levels))]
    areas = [float(restricted_mean_survival_time(fit, horizon)) for fit in own]
    return {**dict(zip(levels, areas, strict=True)), "difference": areas[1] - areas[0]}


def hazard_ratio(table: Table, time: str, event: str, by: str, term: str) -> Truth:
    t, e, group = complete(table, time, event, by)
    fit = CoxPHFitter().fit(pd.DataFrame({"t": t, "e": e, "g": group}), "t", "e")
    return {term: float(np.exp(fit.params_["g"]))}


def incidence(table: Table, time: str, cause: str, levels: tuple[str, ...], terms: Iterable[str]) -> Truth:
    """Aalen and Johansen's, ``cause`` being 0 for none."""
    t, c = complete(table, time, cause)
    at_risk = {at: float((t >= at).sum()) for at in np.unique(t).tolist()}
    truth: Truth = {}
    for place, level in enumerate(levels, start=1):
        value, left, steps = 0.0, 1.0, {0.0: 0.0}
        for at, risk in at_risk.items():
            value += left * float(((t == at) & (c == place)).sum()) / risk
            left *= 1 - float(((t == at) & (c > 0)).sum()) / risk
            steps[at] = value
        ends = np.array(list(steps))
        for at_text in times_of(terms, level):
            truth[f"{level} {at_text}"] = steps[float(ends[ends <= float(at_text) * (1 + 1e-9)][-1])]
    return truth


def rates(table: Table, events: str, time: str, by: str, levels: tuple[str, ...]) -> Truth:
    e, t, group = complete(table, events, time, by)
    each = [float(e[group == place].sum() / t[group == place].sum()) for place in range(len(levels))]
    return {**dict(zip(levels, each, strict=True)), "rate-ratio": each[1] / each[0], "rate-difference": each[1] - each[0]}


def area(table: Table, score: str, outcome: str) -> Truth:
    p, y = complete(table, score, outcome)
    return {"auc": float(roc_auc_score(y, p))}


def calibration(table: Table, predicted: str, outcome: str) -> Truth:
    p, y = complete(table, predicted, outcome)
    return {"brier": float(((p - y) ** 2).mean()), "in-the-large": float((y - p).mean())}
