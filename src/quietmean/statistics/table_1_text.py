"""Table 1 as it is printed: mean (SD), median [quartiles], n (%), p-values and standardised differences, with what the noise adds
below it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from quietmean.core.readable import HIDDEN, decimals_for, error_text, fixed, p_text
from quietmean.core.readable_days import day_text
from quietmean.statistics.columns import MISSING, YES, Column
from quietmean.statistics.compared import WITHOUT_SIGN
from quietmean.statistics.estimate import FEW, Estimate, Flag, HypothesisTest

MEDIAN, QUARTILES = "median", ("lower quartile", "upper quartile")
_SMD = "smd"
_DIFFERENCE = "SMD, the standardised mean difference: second group minus first, over the root of the mean of both variances"
_DISTANCE = "; of more than 2 levels a distance, without sign"


@dataclass(frozen=True, eq=False)
class Table1Text:
    """What is printed: ``groups``, how many records each has, and the lines.

    A line is plain JSON data: ``row``, the ``cells`` by group, perhaps ``p`` and ``smd``, and the ``terms`` that it shows.
    """

    groups: Sequence[str]
    rows: Sequence[Estimate]
    tests: Mapping[str, HypothesisTest]
    flags: Sequence[Flag]

    def summary(self, columns: Iterable[Column], by: Column | None) -> dict[str, Any]:
        """The table as plain JSON data.

        ``table``, its lines; ``without_sign``, the columns whose standardised difference is a distance of all levels; the
        ``groups`` in their order; and ``heads``, what stands above the column of each. ``by``: of which the groups are, whose
        name stands before a yes or a no.
        """
        described = list(columns)
        unsigned = [column.name for column in described if len(column.categories) > 2 and (_SMD, column.name) in self._known]
        of = f"{by.name} " if by is not None and by.boolean else ""
        heads = {group: f"{of}{group} (n {_size(self._known[group, 'n'])})" for group in self.groups}
        return {
            "groups": list(self.groups),
            "heads": heads,
            "table": [line for column in described for line in self._lines(column)],
            **({WITHOUT_SIGN: unsigned} if unsigned else {}),
        }

    @cached_property
    def _known(self) -> dict[tuple[str, str], Estimate]:
        return {(row.group, row.term): row for row in self.rows}

    @cached_property
    def _below(self) -> dict[str, str]:
        """The number that counts are below, for terms that noise hides."""
        few = [flag for flag in self.flags if flag.code == FEW]
        return {term: f"< {fixed(flag.upper, 0)}" for flag in few if flag.upper for term in flag.terms}

    def _lines(self, column: Column) -> list[dict[str, Any]]:
        lines = self._of_numbers(column) if column.numeric else self._of_levels(column)
        if not column.numeric and not column.boolean:
            # What is said of all levels together stands above them.
            lines.insert(0, self._line(f"{column.name}, n (%)", (), {}))
        test, smd = self.tests.get(column.name), self._known.get((_SMD, column.name))
        if test is not None:
            lines[0]["p"] = p_text(test.p_value)
        if smd is not None:
            lines[0]["smd"] = HIDDEN if math.isnan(smd.value) else fixed(smd.value, 2)
        absent = f"{column.name} {MISSING}"
        if any((group, absent) in self._known for group in self.groups):
            lines.append(self._parts(f"{column.name}, missing, n (%)", absent, None))
        return lines

    def _decimals(self, term: str, scale: float = 1.0) -> int:
        """Decimals of a term in all groups: as the largest standard error allows, or by the size where none is known."""
        rows = [row for group in self.groups if (row := self._known.get((group, term))) and not math.isnan(row.value)]
        errors = [row.error for row in rows if _is_error(row.error)] or [abs(row.value) / 100 for row in rows if row.value]
        return decimals_for(max(errors) * scale) if errors else 0

    def _line(self, row: str, terms: Sequence[str], cells: Mapping[str, str]) -> dict[str, Any]:
        return {"row": row, "terms": [f"{group} {term}" for group in self.groups for term in terms], "cells": dict(cells)}

    def _of_numbers(self, column: Column) -> list[dict[str, Any]]:
        name, values = column.name, self._known
        terms = (f"{name} mean", f"{name} sd")
        decimals = self._decimals(terms[0])
        cells = {group: _mean(values[group, terms[0]], values[group, terms[1]], decimals, column.since) for group in self.groups}
        lines = [self._line(f"{name}, mean (SD)", terms, cells)]
        quantiles = [f"{name} {quantile}" for quantile in (MEDIAN, *QUARTILES)]
        if any((group, quantiles[0]) in values for group in self.groups):
            decimals = self._decimals(quantiles[0])
            cells = {group: _median([values[group, term] for term in quantiles], decimals, column.since) for group in self.groups}
            lines.append(self._line(f"{name}, median [quartiles]", quantiles, cells))
        return lines

    def _of_levels(self, column: Column) -> list[dict[str, Any]]:
        return [
            self._parts(
                f"{column.name} = {level}, n (%)" if column.boolean else f"  {column.name} = {level}",
                f"{column.name}:{level}",
                f"{column.name} {MISSING}",
            )
            for level in ((YES,) if column.boolean else column.categories)
        ]

    def _parts(self, row: str, term: str, missing: str | None) -> dict[str, Any]:
        """Numbers and percentages: of the present values, or of all records."""
        values, below, cells = self._known, self._below, {}
        decimals = self._decimals(term, 100.0)
        for group in self.groups:
            part = values.get((group, term))
            absent = None if missing is None else values.get((group, missing))
            shown = "" if part is None else _percent(part, values[group, "n"].value, absent, min(max(decimals, 0), 1))
            cells[group] = below.get(f"{group} {term}", shown)
        return self._line(row, [term], cells)


def footnote(columns: Sequence[Column], rows: Sequence[Estimate], compared: bool, *, tested: bool) -> str:
    """What the noise adds to a mean, to a percentage and to a number of records."""
    phrases = []
    for column in columns:
        noise = max((row.noise for row in rows if row.term == f"{column.name} mean" and _is_error(row.noise)), default=0.0)
        phrases += [f"of the {column.name} mean {error_text(noise)}{' days' if column.since else ''}"] if noise else []
    levelled = [column for column in columns if len(column.categories) > 2]
    levels = {f"{column.name}:{level}" for column in columns for level in column.categories}
    parts = max((row.noise for row in rows if row.term in levels and _is_error(row.noise)), default=0.0)
    phrases += [f"of a percentage {error_text(100 * parts)} points"] if parts else []
    sizes = max((row.noise for row in rows if row.term == "n" and _is_error(row.noise)), default=0.0)
    phrases += [f"of a number of records {error_text(sizes)}"] if sizes else []
    noise_of_all = f"Privacy noise has a standard deviation of at most: {'; '.join(phrases)}." if phrases else ""
    tests = " P-values and intervals count it in; nothing is corrected for the number of tests." if tested else ""
    return noise_of_all + tests + (f" {_DIFFERENCE}{_DISTANCE if levelled else ''}." if compared else "")


def _is_error(noise: float) -> bool:
    return 0 < noise < math.inf


def _size(row: Estimate) -> str:
    """How many records a group has, or what their number is below where the noise hides it."""
    if math.isnan(row.value):
        return HIDDEN
    if row.noise > 0 and row.value < 2 * row.noise:
        return f"< {fixed(max(math.ceil(row.of_population[1]), 1), 0)}"
    return f"= {fixed(max(row.value, 0.0), 0)}"


def _mean(mean: Estimate, deviation: Estimate, decimals: int, since: str) -> str:
    """Both with two digits of the mean's standard error; of dates a day, and days."""
    if math.isnan(mean.value):
        return HIDDEN
    spread = HIDDEN if math.isnan(deviation.value) else fixed(deviation.value, decimals)
    return f"{day_text(mean.value, since)} ({spread} days)" if since else f"{fixed(mean.value, decimals)} ({spread})"


def _median(rows: Sequence[Estimate], decimals: int, since: str) -> str:
    """The median with its quartiles, rounded as the median's standard error allows."""
    if any(math.isnan(row.value) for row in rows):
        return HIDDEN
    median, low, high = (day_text(row.value, since) if since else fixed(row.value, decimals) for row in rows)
    return f"{median} [{low} to {high}]"


def _percent(part: Estimate, size: float, missing: Estimate | None, decimals: int) -> str:
    """A part of the present values of a group, or of all its records."""
    if math.isnan(part.value) or math.isnan(size):
        return HIDDEN
    counted = size * (1.0 - missing.value) if missing is not None and not math.isnan(missing.value) else size
    value = min(max(part.value, 0.0), 1.0)
    return f"{fixed(max(counted * value, 0.0), 0)} ({fixed(100 * value, decimals)})"
