"""The answers of a study: the estimates of its statistics, one by one and as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.statistics.kinds.mean import Mean
from quietmean.statistics.statistic import WHOLE, Estimates, Statistic


@dataclass(frozen=True, eq=False)
class Answer:
    """A statistic and its estimates, from so many ``records`` (or parties, if they are the unit)."""

    statistic: Statistic
    estimates: Estimates
    records: float

    @property
    def labels(self) -> list[str]:
        """The name of each term in reports."""
        text = self.statistic.text
        return [text if term == WHOLE else f"{text} {term}" for term in self.estimates.terms]

    def to_json(self) -> dict[str, Any]:
        found = self.estimates
        return {
            "name": self.statistic.text,
            "kind": self.statistic.name,
            "estimate": found.by_term(found.value),
            "standard_error": found.by_term(found.standard_error),
            "share": self.statistic.share,
            "records": self.records,
        }


def column_means(answers: Sequence[Answer]) -> dict[str, Estimates]:
    """The means of columns among the answers, by column."""
    return {one.statistic.column: one.estimates for one in answers if isinstance(one.statistic, Mean)}


def combined(answers: Sequence[Answer]) -> Estimates:
    """All terms of all answers in one table. Means are named by their columns where nothing else was asked for."""
    means = column_means(answers)
    terms = tuple(means) if len(means) == len(answers) else tuple(label for one in answers for label in one.labels)
    parts = [(one.value, one.standard_error, one.low, one.high) for one in (answer.estimates for answer in answers)]
    return Estimates(terms, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
