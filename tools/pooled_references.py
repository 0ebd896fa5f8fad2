"""What well-known libraries compute from the pooled records: the truth that statistics of released sums are held against.

Nothing here knows of bins, noise or budgets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import exact_intervals as exact
import numpy as np
import statsmodels.api as sm
from exact_intervals import Array, Intervals
from numpy.typing import NDArray
from scipy import stats
from sklearn.decomposition import PCA

from quietmean.statistics import Columns, read_text

# The names of the terms of an answer, and what they are for these records.
Truth = dict[str, float]


@dataclass(frozen=True, eq=False)
class Pooled:
    """Records, (rows, columns): numbers, or the places of levels; NaN where a cell is missing.

    ``terms`` of the answer, where its times are to be known.
    """

    columns: Columns
    records: Array
    terms: Sequence[str] = ()

    def truth(self, text: str) -> Truth:
        """What a statistic is for these records."""
        fields = read_text(text)
        kind = fields.pop("kind")
        fields.pop("robust", None)
        return REFERENCES[kind](self, **fields)

    def column(self, name: str) -> Array:
        found: Array = self.records[:, self.columns.names.index(name)]
        return found

    def levels(self, name: str) -> tuple[str, ...]:
        return tuple(self.columns[name].categories)

    def complete(self, *names: str) -> list[Array]:
        """The columns, of the records that have all of them."""
        found = [self.column(name) for name in names]
        there = ~np.isnan(found).any(axis=0)
        return [one[there] for one in found]

    def groups(self, by: str, *names: str) -> dict[str, list[Array]]:
        """The columns of each level."""
        *found, group = self.complete(*names, by)
        return {level: [one[group == place] for one in found] for place, level in enumerate(self.levels(by))}

    def times(self, level: str) -> list[str]:
        """The times in terms such as "drug 12"."""
        return [term.removeprefix(f"{level} ") for term in self.terms if term.startswith(f"{level} ")]


def points(found: Intervals) -> Truth:
    """The estimates, without intervals."""
    return {term: value for term, (value, _, _) in found.items()}


def mean(data: Pooled, column: str) -> Truth:
    return points(exact.mean(*data.complete(column)))


def total(data: Pooled, column: str) -> Truth:
    (x,) = data.complete(column)
    return {"": float(x.sum())}


def variance(data: Pooled, column: str) -> Truth:
    (x,) = data.complete(column)
    return {"variance": float(x.var(ddof=1)), "sd": float(x.std(ddof=1))}


def proportions(data: Pooled, column: str) -> Truth:
    """Shares of the records that have one; and how many of all have none."""
    (x,) = data.complete(column)
    if data.columns[column].boolean:
        return {"": float(x.mean())}
    shares = {level: float((x == place).mean()) for place, level in enumerate(data.levels(column))}
    return shares | {"missing": float(np.isnan(data.column(column)).mean())}


def quantiles(data: Pooled, column: str) -> Truth:
    """The smallest value at or below which at least that part of the records is."""
    return points(exact.quantiles(*data.complete(column)))


def group_means(data: Pooled, column: str, by: str) -> Truth:
    """Means; of two also standardised differences: over the root of the mean of both variances, and over the pooled one."""
    found = points(exact.group_means(*data.complete(column, by), levels=data.levels(by)))
    if "difference" not in found:
        return found
    (low,), (high,) = data.groups(by, column).values()
    spread = math.sqrt((low.var(ddof=1) + high.var(ddof=1)) / 2)
    pooled = (len(low) * low.var() + len(high) * high.var()) / (len(low) + len(high) - 2)
    return found | {"smd": found["difference"] / spread, "cohen-d": found["difference"] / math.sqrt(pooled)}


def crosstab(data: Pooled, row: str, column: str) -> Truth:
    """The counts of a table, with those that have no level, and what follows from its four corners."""

    def cells(name: str) -> dict[str, NDArray[np.bool_]]:
        values = data.column(name)
        return {level: values == place for place, level in enumerate(data.levels(name))} | {"missing": np.isnan(values)}

    found = {f"{i}:{j}": float((x & y).sum()) for i, x in cells(row).items() for j, y in cells(column).items()}
    a, b = data.complete(row, column)
    counts = np.array([[((a == i) & (b == j)).sum() for j in (0, 1)] for i in (0, 1)], dtype=float)
    parts = counts[:, 1] / counts.sum(axis=1)
    return found | {
        "odds-ratio": float(stats.contingency.odds_ratio(counts.astype(int), kind="sample").statistic),
        "risk-ratio": float(parts[1] / parts[0]),
        "risk-difference": float(parts[1] - parts[0]),
    }


def mann_whitney(data: Pooled, column: str, by: str) -> Truth:
    (first,), (second,) = data.groups(by, column).values()
    return {"probability": float(stats.mannwhitneyu(second, first).statistic) / (len(first) * len(second))}


def covariance(data: Pooled, columns: Sequence[str]) -> Truth:
    matrix = np.cov(np.vstack(data.complete(*columns)))
    one, other = columns
    return {f"{one}:{one}": float(matrix[0, 0]), f"{one}:{other}": float(matrix[0, 1]), f"{other}:{other}": float(matrix[1, 1])}


def correlation(data: Pooled, columns: Sequence[str]) -> Truth:
    return points(exact.correlation(*data.complete(*columns), term=":".join(columns)))


def first_component(data: Pooled, columns: Sequence[str]) -> Truth:
    """The largest eigenvalue of the correlations."""
    x = np.column_stack(data.complete(*columns))
    standard = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
    return {"PC1": float(PCA().fit(standard).explained_variance_[0])}


def regression(data: Pooled, formula: str) -> Truth:
    outcome, right = formula.split(" ~ ")
    covariates = right.split(" + ")
    y, *xs = data.complete(outcome, *covariates)
    fit = sm.OLS(y, sm.add_constant(np.column_stack(xs))).fit()
    return dict(zip(("(Intercept)", *covariates), fit.params.tolist(), strict=True))


def survival(data: Pooled, time: str, event: str, by: str) -> Truth:
    curves = {level: exact.Curve(*own) for level, own in data.groups(by, time, event).items()}
    return {f"{level} {at}": curve.at(float(at))[0] for level, curve in curves.items() for at in data.times(level)}


def restricted_mean(data: Pooled, time: str, event: str, by: str, horizon: float | None = None) -> Truth:
    until = data.columns[time].high if horizon is None else horizon
    return points(exact.restricted_means(*data.complete(time, event, by), arms=data.levels(by), horizon=until))


def hazard_ratio(data: Pooled, time: str, event: str, by: str) -> Truth:
    low, high = data.levels(by)
    return points(exact.hazard_ratio(*data.complete(time, event, by), term=f"{high}/{low}"))


def incidence(data: Pooled, time: str, cause: str) -> Truth:
    """Aalen and Johansen's, the first level of ``cause`` being none."""
    t, c = data.complete(time, cause)
    at_risk = {at: float((t >= at).sum()) for at in np.unique(t).tolist()}
    truth: Truth = {}
    for place, level in enumerate(data.levels(cause)[1:], start=1):
        value, left, steps = 0.0, 1.0, {0.0: 0.0}
        for at, risk in at_risk.items():
            value += left * float(((t == at) & (c == place)).sum()) / risk
            left *= 1 - float(((t == at) & (c > 0)).sum()) / risk
            steps[at] = value
        ends = np.array(list(steps))
        for at_text in data.times(level):
            truth[f"{level} {at_text}"] = steps[float(ends[ends <= float(at_text) * (1 + 1e-9)][-1])]
    return truth


def rates(data: Pooled, events: str, time: str, by: str) -> Truth:
    found, (low, high) = points(exact.rates(*data.complete(events, time, by), levels=data.levels(by))), data.levels(by)
    return {**found, "rate-difference": found[high] - found[low]}


def area(data: Pooled, score: str, outcome: str) -> Truth:
    return points(exact.area(*data.complete(score, outcome)))


def calibration(data: Pooled, score: str, outcome: str) -> Truth:
    p, y = data.complete(score, outcome)
    return {"brier": float(((p - y) ** 2).mean()), "in-the-large": float((y - p).mean())}


# By kind of statistic; each takes the fields of the statistic.
REFERENCES: dict[str, Callable[..., Truth]] = {
    "mean": mean,
    "sum": total,
    "count": total,
    "variance": variance,
    "proportion": proportions,
    "quantiles": quantiles,
    "group-means": group_means,
    "site-effects": group_means,
    "crosstab": crosstab,
    "mann-whitney": mann_whitney,
    "covariance": covariance,
    "correlation": correlation,
    "pca": first_component,
    "linear-regression": regression,
    "survival": survival,
    "restricted-mean": restricted_mean,
    "hazard-ratio": hazard_ratio,
    "cumulative-incidence": incidence,
    "rates": rates,
    "roc": area,
    "calibration": calibration,
}
