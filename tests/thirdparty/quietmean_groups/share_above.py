"""The share of records above a threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics import Column, Columns, Estimates, Feature, Records, Released, Statistic


@dataclass(frozen=True)
class Above(Feature):
    """1 for a record above the threshold, else 0: replacing a record moves it by 1 at most."""

    column: Column
    threshold: float
    size = 1
    sensitivity = 1.0

    def encode(self, records: Records) -> NDArray[np.float64]:
        above: NDArray[np.float64] = (records[self.column.name] > self.threshold).astype(np.float64)
        return above[:, None]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ShareAbove(Statistic):
    """How large a part of the records lies above a threshold, from 0 to 1."""

    name = "share-above"
    summary = "the share of records above a threshold"
    by_place = ("column", "threshold")

    column: str = parameter(help="the column")
    threshold: float = parameter(help="what a value has to exceed, in the column's units")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        column = columns[self.column]
        if not column.low <= self.threshold < column.high:
            raise InputError(
                f"threshold {self.threshold:g} is outside the bounds {column.low:g} to {column.high:g} of column "
                f"{column.name!r}. Choose one between them"
            )
        return (Above(column, self.threshold),)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        feature = Above(columns[self.column], self.threshold)
        return Estimates.number(float(released.mean(feature)[0]), float(released.covariance(feature)[0, 0]) ** 0.5, 0.0, 1.0)
