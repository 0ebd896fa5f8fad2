"""Of how many records an answer is, from quantities that its features release anyway."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Completeness, Estimates
from quietmean.statistics.statistic import Feature, Released, Statistic


def counted(
    estimates: Estimates,
    statistic: Statistic,
    released: Released,
    columns: Columns,
    outside: tuple[float, float] | None = None,
) -> Estimates:
    """The same with how many records have what it needs, and how many each term is of: those of its group, where it has one.

    ``outside``: how many are outside its condition, with the error of that; None without one.
    """
    complete = [feature for feature in statistic.features(columns) if feature.complete is not None]
    if not complete:
        return estimates
    feature = complete[0]
    assert feature.complete is not None  # noqa: S101
    present = records_of(released, feature, feature.complete)
    by = getattr(statistic, "by", None)
    groups: dict[str, tuple[float, float]] = {}
    if by is not None:
        weights = feature.complete_in(by)
        # Where no feature counts the groups, the number of records of their terms is unknown.
        categories = columns.category(by).categories
        rows = [None] * len(categories) if weights is None else list(weights)
        groups = {
            level: (math.nan, math.nan) if row is None else records_of(released, feature, row)
            for level, row in zip(categories, rows, strict=True)
        }
    names = estimates.groups or [(term, "") for term in estimates.terms]
    each = [groups.get(_level_of(*name, groups), present) for name in names]
    completeness = _completeness(released, feature, present)
    if outside is not None:
        completeness = replace(completeness, outside=outside[0], outside_error=outside[1])
    return replace(estimates, completeness=completeness, n=np.array(each))


def _level_of(group: str, own: str, levels: Collection[str]) -> str:
    """The level that a term is about, b of "b 5", "median b" or "b:heart 5"; "" where it is about several or none."""
    exact = next((name for name in (group, own) if name in levels), "")
    return exact or max((level for level in levels if group.startswith(f"{level}:")), key=len, default="")


def records_of(released: Released, feature: Feature, weights: Array) -> tuple[float, float]:
    """How many records the quantities with these weights, (size,), count, and the standard error of the noise in that.

    A whole number, of no more records than there are.
    """
    part, error = released.weighted(feature, weights)
    most = released.weight if math.isnan(released.records) else released.records
    return whole_number(part * released.weight, most), error * released.weight


def whole_number(number: float, most: float) -> float:
    """The nearest number of records that is possible."""
    return float(min(max(round(number), 0), math.floor(most + 0.5)))


def _completeness(released: Released, feature: Feature, present: tuple[float, float]) -> Completeness:
    assert feature.complete is not None  # noqa: S101
    if math.isnan(released.records):
        return Completeness(present[0], math.nan, present[1], math.nan)
    # The others are the rest of all records, whose number may be an estimate.
    gradient = np.zeros(len(released.quantities)) if released.whole is None else released.whole.copy()
    gradient[released.places[feature]] -= feature.complete
    error = math.sqrt(max(float(gradient @ released.deviations @ gradient), 0.0)) * released.weight
    return Completeness(present[0], whole_number(released.records - present[0], released.records), present[1], error)
