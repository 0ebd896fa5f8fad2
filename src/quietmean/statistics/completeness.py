"""How many records an answer is of, from quantities that its features release anyway."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimates import Completeness, Estimates
from quietmean.statistics.statistic import Feature, Released, Statistic

# Entries of summaries that are numbers of records; the first is of all that are complete.
_RECORDS = "records"
_COUNTS = (_RECORDS, "records_left_out", "events")


def counted(
    estimates: Estimates,
    statistic: Statistic,
    released: Released,
    columns: Columns,
    outside: tuple[float, float] | None = None,
) -> Estimates:
    """Add how many records have what it needs, and how many each term is of: those of its group, where it has one.

    ``outside``: how many are outside its condition, with the error of that; None without one.
    """
    complete = [feature for feature in statistic.features(columns) if feature.complete is not None]
    # A statistic of many features has stated of how many records each term is.
    if not complete or estimates.n is not None:
        return _beside(outside, estimates)
    feature = complete[0]
    assert feature.complete is not None  # noqa: S101
    present = records_of(released, feature, feature.complete)
    by = getattr(statistic, "by", None)
    groups: dict[str, tuple[float, float]] = {}
    if by is not None:
        own = feature.complete_in(by)
        # Where no feature counts the groups, the number of records of their terms is unknown.
        categories = columns.category(by).categories
        rows = [None] * len(categories) if own is None else list(own)
        groups = {
            level: (math.nan, math.nan) if row is None else records_of(released, feature, row)
            for level, row in zip(categories, rows, strict=True)
        }
    weights = np.zeros(len(released.quantities))
    weights[released.places[feature]] = feature.complete
    names = estimates.groups or [(term, "") for term in estimates.terms]
    each = [groups.get(_level_of(*name, groups), present) for name in names]
    completeness = completeness_of(released, present, weights)
    summary = {**_of_at_most(estimates.summary, present[0]), **({_RECORDS: present[0]} if _RECORDS in estimates.summary else {})}
    return _beside(outside, replace(estimates, completeness=completeness, summary=summary, n=np.array(each)))


def _of_at_most(summary: Mapping[str, Any], most: float, counts: bool = False) -> dict[str, Any]:
    """A summary whose numbers of records are of the ``most`` that there are; ``counts``: all that it holds is such a number."""
    kept = {}
    for name, value in summary.items():
        here = counts or name in _COUNTS
        if isinstance(value, Mapping):
            value = _of_at_most(value, most, here)
        elif here and isinstance(value, float):
            value = min(value, most)
        kept[name] = value
    return kept


def _beside(outside: tuple[float, float] | None, estimates: Estimates) -> Estimates:
    """Add how many records are outside its condition."""
    if outside is None or estimates.completeness is None:
        return estimates
    return replace(estimates, completeness=replace(estimates.completeness, outside=outside[0], outside_error=outside[1]))


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


def completeness_of(released: Released, present: tuple[float, float], weights: Array) -> Completeness:
    """Completeness with the rest of all records, whose number may be an estimate. ``weights``, (q,)."""
    if math.isnan(released.records):
        return Completeness(present[0], math.nan, present[1], math.nan)
    gradient = weights if released.whole is None else released.whole - weights
    error = math.sqrt(max(float(gradient @ released.deviations @ gradient), 0.0)) * released.weight
    return Completeness(present[0], whole_number(released.records - present[0], released.records), present[1], error)
