"""The answers of a study: the estimates of its statistics, one by one and as one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.statistics.estimate import WHOLE, Flag, known
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.kinds.means import Mean
from quietmean.statistics.statistic import Statistic


@dataclass(frozen=True, eq=False)
class Answer:
    """A statistic and its estimates, from ``records`` records (or parties, if they are the unit); NaN where nothing tells.

    ``counted``: what is counted, in words, where it is not records.
    ``budget_part``: which part of the study's privacy budget its features use, from 0 to 1.
    """

    statistic: Statistic
    estimates: Estimates
    records: float
    budget_part: float = 1.0
    counted: str = "records"

    @property
    def labels(self) -> list[str]:
        """The name of each term in reports."""
        text = self.statistic.text
        return [text if term == WHOLE else f"{text} {term}" for term in self.estimates.terms]

    def unknown(self, why: Flag) -> Answer:
        """Say nothing about any term, as there are no records."""
        own = self.estimates
        entries = tuple(replace(entry.hidden(), noise=math.nan, resolution=None) for entry in own.entries)
        n, these = np.zeros((len(entries), 2)), own.these_records
        estimates = Estimates(entries, True, own.since, headline=own.headline, n=n, reason=why.message, these_records=these)
        return replace(self, estimates=estimates, records=0.0).flagged(why)

    def flagged(self, flag: Flag) -> Answer:
        """Put a flag before its own."""
        worded = replace(flag, message=flag.message.replace("records", self.counted))
        return replace(self, estimates=replace(self.estimates, flags=(worded, *self.estimates.flags)))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.statistic.text,
            "kind": self.statistic.name,
            **self.estimates.to_json(),
            "share": self.statistic.share,
            "budget_part": self.budget_part,
            "records": known(self.records),
        }


def column_means(answers: Sequence[Answer]) -> dict[str, Estimates]:
    """The means of columns of all records, by column."""
    return {
        answer.statistic.column: answer.estimates
        for answer in answers
        if isinstance(answer.statistic, Mean) and not answer.statistic.where
    }


def combined(answers: Sequence[Answer]) -> Estimates:
    """All terms of all answers in one table. Means are named by their columns where nothing else was asked for."""
    means = column_means(answers)
    labels = list(means) if len(means) == len(answers) else [label for answer in answers for label in answer.labels]
    entries = [
        # Where nothing is said about a population, the interval is unknown.
        replace(entry, of_population=(math.nan, math.nan)) if answer.estimates.noise_only else entry
        for answer in answers
        for entry in answer.estimates.entries
    ]
    named = tuple(replace(entry, term=label, group="") for label, entry in zip(labels, entries, strict=True))
    return Estimates(named, law=next((answer.estimates.law for answer in answers), None))
