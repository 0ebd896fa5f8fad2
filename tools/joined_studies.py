"""The studies of :mod:`joined_errors`: real records, in unequal parts, and what plain libraries compute from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pooled_references as pooled
import real_data_bars as real
import statsmodels.api as sm
from numpy.typing import NDArray
from pooled_references import Table, Truth
from real_data_bars import Question, ask

from quietmean.statistics import Column, Columns, parse_statistic, read_text
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_file import study_text

Array = NDArray[np.float64]

EPSILON, RECORDS = 8.0, 2000
# Of all cells, as data have them.
MISSING = 0.03
# Sizes of parties are as these, in a random order: one has forty times the records of another.
SHARES = (1.0, 3.0, 10.0, 40.0, 20.0)


def count(table: Table, column: str) -> Truth:
    """How many say yes."""
    (x,) = pooled.complete(table, column)
    return {"": float(x.sum())}


def parts(table: Table, column: str, levels: Sequence[str]) -> Truth:
    """Of the records that have one; and how many of all have none."""
    return pooled.proportions(table, column, tuple(levels)) | {"missing": float(np.isnan(table[column]).mean())}


def cells(table: Table, row: str, column: str, rows: Sequence[str], columns: Sequence[str]) -> Truth:
    """The counts of a table, with those that have no level, and what follows from its four corners."""

    def of(name: str, place: int, levels: Sequence[str]) -> NDArray[np.bool_]:
        return np.isnan(table[name]) if place == len(levels) else table[name] == place

    found = {
        f"{one}:{other}": float((of(row, i, rows) & of(column, j, columns)).sum())
        for i, one in enumerate((*rows, "missing"))
        for j, other in enumerate((*columns, "missing"))
    }
    return found | pooled.odds(table, row, column)


def group_means(table: Table, column: str, by: str, levels: tuple[str, ...]) -> Truth:
    """Add both standardised differences: over the root of the mean of both variances, and over the pooled one."""
    x, group = pooled.complete(table, column, by)
    found = pooled.group_means(table, column, by, levels)
    within = sum(float(((x[group == place] - found[level]) ** 2).sum()) for place, level in enumerate(levels))
    spread = math.sqrt(np.mean([x[group == level].var(ddof=1) for level in np.unique(group)]))
    pooled_spread = math.sqrt(within / (len(x) - 2))
    return found | {"smd": found["difference"] / spread, "cohen-d": found["difference"] / pooled_spread}


def regression(table: Table, outcome: str, *covariates: str) -> Truth:
    y, *xs = pooled.complete(table, outcome, *covariates)
    fit = sm.OLS(y, sm.add_constant(np.column_stack(xs))).fit()
    return dict(zip(("(Intercept)", *covariates), fit.params.tolist(), strict=True))


def variances(table: Table, one: str, other: str) -> Truth:
    matrix = np.cov(np.vstack(pooled.complete(table, one, other)))
    return {f"{one}:{one}": float(matrix[0, 0]), f"{one}:{other}": float(matrix[0, 1]), f"{other}:{other}": float(matrix[1, 1])}


@dataclass(frozen=True, eq=False)
class Asked:
    """Questions about a data set: its columns that they use, and its records, (rows, columns)."""

    name: str
    columns: Columns
    records: Array
    questions: tuple[Question, ...]

    @classmethod
    def of(cls, data: real.DataSet, names: Sequence[str], *questions: Question) -> Asked:
        places = [data.columns.names.index(name) for name in names]
        return cls(data.name, Columns([data.columns[name] for name in names]), data.records[:, places], questions)

    def table(self, records: Array) -> Table:
        return dict(zip(self.columns.names, records.T, strict=True))

    def truths(self, records: Array) -> dict[str, Truth]:
        """By the name of the statistic: its terms for these records."""
        table = self.table(records)
        return {parse_statistic(read_text(question.text)).text: question.reference(table, ()) for question in self.questions}

    def study(self, protocol: str, dropouts: float) -> StudyTerms:
        """All options are the defaults but the protocol, epsilon, what may drop out, and what the columns are."""
        return StudyTerms.parse(
            {
                "name": "joined",
                "unit": "record",
                "epsilon": EPSILON,
                "protocol": protocol,
                "dropouts": dropouts,
                "column": [column.describe() for column in self.columns],
                "statistic": [parse_statistic(read_text(question.text)).describe() for question in self.questions],
            }
        )

    def text(self, protocol: str, dropouts: float) -> str:
        return study_text(self.study(protocol, dropouts))

    def drawn(self, rng: np.random.Generator) -> Array:
        """Records of the data set, with replacement, some of their cells missing."""
        found = self.records[rng.integers(0, len(self.records), RECORDS)].copy()
        found[rng.random(found.shape) < MISSING] = np.nan
        return found

    def csv(self, records: Array) -> str:
        """A file of these records, as an owner has it."""
        lines = [",".join(self.columns.names)]
        lines += [",".join(map(_cell, self.columns, row)) for row in records.tolist()]
        return "\n".join(lines) + "\n"


def split(records: Array, parties: int, rng: np.random.Generator) -> list[Array]:
    """Unequal parts, one for each party."""
    shares = rng.permutation(SHARES[:parties]) * rng.uniform(0.7, 1.3, parties)
    ends = np.round(np.cumsum(shares / shares.sum()) * len(records)).astype(int)[:-1]
    return np.split(records, ends)


def _cell(column: Column, value: float) -> str:
    if np.isnan(value):
        return ""
    return repr(value) if column.numeric else column.categories[int(value)]


def data_sets() -> tuple[Asked, ...]:
    """Means, sums, counts, parts, tables, variances, correlations, rates, means of groups and regressions, of six sets."""
    both, sexes, aids = ("no", "yes"), ("male", "female"), ("no aid", "aid")
    continents = ("Africa", "Americas", "Asia", "Europe", "Oceania")
    return (
        Asked.of(
            real.kidney(),
            ("days", "death", "age", "sex"),
            ask("mean(age)", pooled.mean, "age"),
            ask("mean(days)", pooled.mean, "days"),
            ask("crosstab(sex, death)", cells, "sex", "death", sexes, both),
            ask("rates(death, days, by=sex)", pooled.rates, "death", "days", "sex", sexes),
        ),
        Asked.of(
            real.rossi(),
            ("arrest", "aid", "age", "prior"),
            ask("mean(prior)", pooled.mean, "prior"),
            ask("crosstab(aid, arrest)", cells, "aid", "arrest", aids, both),
            ask("group-means(prior, by=arrest)", group_means, "prior", "arrest", both),
            ask("linear-regression(prior ~ age)", regression, "prior", "age"),
        ),
        Asked.of(
            real.regimes(),
            ("years", "democratic", "continent"),
            ask("mean(years)", pooled.mean, "years"),
            ask("proportion(continent)", parts, "continent", continents),
            ask("group-means(years, by=democratic)", group_means, "years", "democratic", both),
            ask("count(democratic)", count, "democratic"),
        ),
        Asked.of(
            real.elections(),
            ("income", "age", "vote", "left_right"),
            ask("mean(age)", pooled.mean, "age"),
            ask("variance(age)", pooled.variance, "age"),
            ask("correlation(income, left_right)", pooled.correlation, "income", "left_right"),
            ask("linear-regression(income ~ age + left_right)", regression, "income", "age", "left_right"),
            ask("proportion(vote)", pooled.mean, "vote"),
        ),
        Asked.of(
            real.tumours(),
            ("area", "texture", "malignant"),
            ask("mean(area)", pooled.mean, "area"),
            ask("sum(texture)", pooled.total, "texture"),
            ask("covariance(area, texture)", variances, "area", "texture"),
            ask("group-means(area, by=malignant)", group_means, "area", "malignant", both),
            ask("count(malignant)", count, "malignant"),
        ),
        Asked.of(
            real.wine(),
            ("alcohol", "proline", "magnesium", "cultivar"),
            ask("mean(alcohol)", pooled.mean, "alcohol"),
            ask("sum(proline)", pooled.total, "proline"),
            ask("proportion(cultivar)", parts, "cultivar", ("one", "two", "three")),
            ask("variance(magnesium)", pooled.variance, "magnesium"),
            ask("linear-regression(proline ~ alcohol)", regression, "proline", "alcohol"),
        ),
    )
