"""Survey weights: records that represent several units of a population, and how they were drawn.

Record i represents w_i units, up to the public cap. A total is the sum of w y (Horvitz and Thompson), a mean or a part the ratio
of two of them; what their variances are is in :mod:`~quietmean.statistics.survey_design`.

The unit is the record, or the person; a weight decides nothing for others.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.readable import listed
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import CellIndicators, ColumnBlock
from quietmean.statistics.features.presence import AnyPresent
from quietmean.statistics.fields import names_field, numbers_field
from quietmean.statistics.influence_bounds import TermReading
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.survey_design import Part, SampleDesign, Score, estimates_of

METHOD = "weighted by design, with replacement; linearised variance with the noise"
# Public totals of several margins are of the same units, but for rounding.
_ALIKE = 1e-6
# Parts of the budget of what an estimate reads, of what its variance does, and of the sizes of strata.
_PARTS_OF_STRATA, _PARTS_OF_CLUSTERS, _PARTS_OF_BOTH = (0.75, 0.15, 0.1), (0.4, 0.6), (0.4, 0.5, 0.1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Weighable(Statistic, ABC):
    """A statistic whose records may count with a weight: what it reads is a total or a ratio of two."""

    weight: str | None = parameter(None, help="the column of survey weights, in 0..CAP: how many units each record counts as")
    strata: str | None = parameter(None, help="the column whose levels are the strata that records were drawn from")
    psu: str | None = parameter(None, help="the column whose levels are the clusters that were drawn, such as sites")
    population: tuple[float, ...] | None = numbers_field(
        None, "the public numbers of units to draw from: of all, of each stratum, or of clusters", "population"
    )

    margin: tuple[str, ...] | None = names_field(
        "the columns whose levels have known sizes, to which weights are calibrated", "margin", None
    )
    totals: tuple[float, ...] | None = numbers_field(
        None, "the public numbers of units that have each level of the margin, of one margin after the other", "totals"
    )

    def weight_column(self, columns: Columns) -> Column | None:
        """The column of weights; None where all records count alike. Raises :class:`InputError` for one that is none."""
        design = {name: getattr(self, name) for name in ("strata", "psu", "population", "margin", "totals")}
        if self.weight is None:
            for name in (name for name, value in design.items() if value):
                raise InputError(f"{self.text} has a field {name} and no weight. Name the column of weights, as in weight=w.")
            return None
        if getattr(self, "cluster", None) is not None:
            raise InputError(f"{self.text}: weight and cluster do not go together yet. Leave one of them out.")
        if columns.unit == PrivacyUnit.PARTY:
            raise InputError(f"{self.text} weighs records, but the unit is party. Leave weight out, or protect records.")
        column = columns.number(self.weight)
        if column.low != 0:
            raise InputError(f"column {column.name!r} is a weight, but its lower bound is {column.low:g}. Declare it from 0 on.")
        self._require_design(columns)
        self._require_margin(columns)
        return column

    def _require_margin(self, columns: Columns) -> None:
        if not self.margin and self.totals is None:
            return
        if not self.margin or self.totals is None:
            raise InputError(f"{self.text} has one of margin and totals. Give both, as in margin=sex, totals=4900 5100.")
        levels = [len(columns.category(name).categories) for name in self.margin]
        if len(self.totals) != sum(levels) or min(self.totals) <= 0:
            raise InputError(f"{self.text} has totals that do not fit. Give {sum(levels)} numbers > 0, one for each level.")
        sums = [math.fsum(part.tolist()) for part in np.split(np.array(self.totals), np.cumsum(levels)[:-1])]
        if not np.allclose(sums, sums[0], rtol=_ALIKE, atol=0):
            found = listed([f"{each:g}" for each in sums])
            raise InputError(f"{self.text} has totals of margins that add up to {found}. Make them equal.")
        if self.where:
            raise InputError(f"{self.text} has a condition, and totals are of all. Leave where or margin out.")

    def _require_design(self, columns: Columns) -> None:
        used = [getattr(self, name, None) for name in (*self.by_place, "by")]
        for named in (self.strata, self.psu, *(self.margin or ())):
            used.append(named)
            if named is not None and used.count(named) > 1:
                raise InputError(f"{self.text} has the column {named!r} twice. Name another one for the design.")
        count = 1 if self.strata is None else len(columns.category(self.strata).categories)
        if self.population is not None and (len(self.population) != count or min(self.population) <= 0):
            many = f"{count} numbers > 0, one for each stratum" if count > 1 else "one number > 0"
            raise InputError(f"{self.text} has a population that does not fit. Give {many}.")

    def design(self, columns: Columns) -> SampleDesign:
        """How records were drawn."""
        strata, psu = (None if name is None else columns.category(name) for name in (self.strata, self.psu))
        return SampleDesign(strata, psu, self.population)

    def weighted_features(self, columns: Columns, weight: Column) -> tuple[Feature, ...]:
        """What is released instead of the features: what the estimate reads, and with a design what its variance does.

        Raises :class:`InputError` where no term can be read.
        """
        scores = self.scores(columns, weight)
        if not scores:
            raise InputError(f"{self.text} asks for what has no value, which weights do not tell. Leave the weight out.")
        return tuple(dict.fromkeys((scores[0].feature, scores[0].divided)))

    def beside(self, columns: Columns) -> tuple[Feature, ...]:
        """What is known of all records, whatever its condition."""
        return self.design(columns).sizes

    @property
    def parts(self) -> tuple[float, ...]:
        """Which parts of its share these features have; none where there is one alone."""
        if self.strata is not None and self.psu is not None:
            return _PARTS_OF_BOTH
        return _PARTS_OF_STRATA if self.strata is not None else _PARTS_OF_CLUSTERS if self.psu is not None else ()

    def weighted_readings(self, columns: Columns, weight: Column) -> tuple[TermReading, ...]:
        """How terms are read from quantities of weighted records: all but those of records in which something is missing."""
        found = []
        for score in self.scores(columns, weight):
            (factor, top, bottom), *more = score.padded
            if more:
                continue
            feature, adds_up = score.feature, score.parts[0][2] is None
            top = feature.of_parts(top) * (factor * (weight.high if adds_up else 1.0))
            below = None if adds_up else feature.of_parts(bottom)
            found.append(TermReading(score.term, feature, top, below, adds_up, score.ends))
        return tuple(found)

    def _weighable(self, columns: Columns) -> list[TermReading]:
        return [reading for reading in self.readings(columns) if not _counts_nothing(reading)]

    def scores(self, columns: Columns, weight: Column) -> list[Score]:
        """Its terms, those that one sum or ratio tells first."""
        scores = [_score(reading, weight, self.design(columns)) for reading in self._weighable(columns)]
        if not self.margin or self.totals is None:
            return scores
        return [score.calibrated([columns.category(name) for name in self.margin], self.totals) for score in scores]

    def decode_weighted(self, released: Released, columns: Columns, weight: Column, records: float) -> Estimates:
        """The estimates of weighted records; ``records``: how many there are with those that a condition leaves out, NaN where
        that is not known."""
        rows, flags, _ = estimates_of(released, self.scores(columns, weight), records)
        return Estimates.of(rows, flags=flags, method=METHOD)


def _score(reading: TermReading, weight: Column, design: SampleDesign) -> Score:
    part: Part = (1.0, reading.top, reading.bottom)
    own, ends, counts = _plain(reading.feature), reading.ends, not isinstance(reading.feature, ColumnBlock)
    if reading.adds_up and isinstance(own, ColumnBlock) and not counts:
        ends = min(own.column.low, 0.0), max(own.column.high, 0.0)
    return Score(reading.term, ends, own, (part,), weight, design, counts)


def _plain(feature: Feature) -> Feature:
    """A feature that can be divided by groups, with the same first quantities."""
    single = isinstance(feature, AnyPresent) and len(feature.declared) == 1 and feature.declared[0].numeric
    return ColumnBlock(feature.declared[0]) if isinstance(feature, AnyPresent) and single else feature


def _counts_nothing(reading: TermReading) -> bool:
    """Is a record in which nothing is present in the term, as its value is missing?"""
    return isinstance(reading.feature, CellIndicators) and bool(reading.top[-1])


def weight_of(statistic: Statistic, columns: Columns) -> Column | None:
    """The column of weights of a statistic that has one."""
    return statistic.weight_column(columns) if isinstance(statistic, Weighable) else None
