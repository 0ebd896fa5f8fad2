"""How often two columns agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.schema import parameter
from quietmean.statistics import Axis, Columns, Estimates, OfCells, Released, SmoothTerm, SyntheticRecords

SAME = SmoothTerm("same", (0.0, 1.0))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SameLevel(OfCells):
    """How large a part of the records has the same level in both columns, from 0 to 1."""

    name = "same-level"
    summary = "the part of the records with the same level in two columns"
    by_place = ("first", "second")
    expects = ("proportion",)

    first: str = parameter(help="the first column")
    second: str = parameter(help="the second one, with the same levels in the same order")

    def axes(self, columns: Columns) -> tuple[Axis, ...]:
        return self.alike(columns, self.first, self.second)

    def synthesize(self, scenario: SyntheticRecords) -> None:
        part, values = scenario.expected("proportion"), scenario.values
        if part is not None:
            values[self.second] = np.where(scenario.chance < part, values[self.first], values[self.second])

    def decode(self, released: Released, columns: Columns) -> Estimates:
        cells = self.cells(released, columns)
        return Estimates.of(cells.estimated(_same).of([SAME])) if cells.known else self.nothing((SAME,))


def _same(counts: NDArray[Any]) -> NDArray[Any]:
    """From counts (points, levels, levels), which are complex for derivatives, to values (points, terms)."""
    return np.asarray(np.trace(counts, axis1=1, axis2=2) / counts.sum(axis=(1, 2)))[:, None]
