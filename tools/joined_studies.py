"""The studies of :mod:`joined_errors`: real records, in unequal parts, and what plain libraries compute from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import real_data_bars as real
from exact_intervals import Array
from pooled_references import Pooled, Truth

from quietmean.statistics import Column, Columns, parse_statistic, read_text
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.agreement.study import StudyTerms

EPSILON, RECORDS = 8.0, 2000
# The share of all cells that are missing, as data have them.
MISSING = 0.03
# Sizes of parties are as these, in a random order: one has forty times the records of another.
SHARES = (1.0, 3.0, 10.0, 40.0, 20.0)


@dataclass(frozen=True, eq=False)
class Asked(real.DataSet):
    """Questions about a data set: its columns that they use, and its records, (rows, columns)."""

    @classmethod
    def of(cls, data: real.DataSet, names: str, *questions: str) -> Asked:
        used = names.split()
        places = [data.columns.names.index(name) for name in used]
        return cls(data.name, Columns([data.columns[name] for name in used]), data.records[:, places], questions)

    def truths(self, records: Array) -> dict[str, Truth]:
        """Return by the name of the statistic its terms for these records."""
        pooled = Pooled(self.columns, records)
        return {parse_statistic(read_text(text)).text: pooled.truth(text) for text in self.questions}

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
                "statistic": [parse_statistic(read_text(text)).describe() for text in self.questions],
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
    return (
        Asked.of(
            real.kidney(),
            "days death age sex",
            "mean(age)",
            "mean(days)",
            "crosstab(sex, death)",
            "rates(death, days, by=sex)",
        ),
        Asked.of(
            real.rossi(),
            "arrest aid age prior",
            "mean(prior)",
            "crosstab(aid, arrest)",
            "group-means(prior, by=arrest)",
            "linear-regression(prior ~ age)",
        ),
        Asked.of(
            real.regimes(),
            "years democratic continent",
            "mean(years)",
            "proportion(continent)",
            "group-means(years, by=democratic)",
            "count(democratic)",
        ),
        Asked.of(
            real.elections(),
            "income age vote left_right",
            "mean(age)",
            "variance(age)",
            "correlation(income, left_right)",
            "linear-regression(income ~ age + left_right)",
            "proportion(vote)",
        ),
        Asked.of(
            real.tumours(),
            "area texture malignant",
            "mean(area)",
            "sum(texture)",
            "covariance(area, texture)",
            "group-means(area, by=malignant)",
            "count(malignant)",
        ),
        Asked.of(
            real.wine(),
            "alcohol proline magnesium cultivar",
            "mean(alcohol)",
            "sum(proline)",
            "proportion(cultivar)",
            "variance(magnesium)",
            "linear-regression(proline ~ alcohol)",
        ),
    )
