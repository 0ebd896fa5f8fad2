"""Encoding programs of drawn studies, and drawn records: cells inside and outside the bounds, at them, and missing ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Statistic, Workload, registry
from quietmean.statistics.program import NoProgram, VectorProgram
from quietmean.studies.agreement.program import EncodingProgram
from support.every_kind import statistics_of

_ASKED = 3
_CONDITIONS = ("sex == 'f'", "age >= 30 and smoker", "ended in ('moved', 'dead') or not weight < 90")


@dataclass(frozen=True)
class DrawnProgram:
    """A program, its workload if it has one, and records (rows, columns) with the uniform numbers (rows, d) that round them."""

    program: EncodingProgram
    workload: Workload | None
    records: Any
    uniform: Any


def drawn_columns(drawn: np.random.Generator) -> Columns:
    """The columns that statistics of all kinds take, with other bounds, missing rules and levels."""
    low = float(drawn.normal() * 10.0 ** drawn.integers(-2, 4))
    width = float(np.exp(drawn.normal(0, 3)))
    rule = str(drawn.choice(["indicator", "centre"]))
    return Columns(
        [
            Column(name="age", low=0, high=float(drawn.integers(50, 120)), whole=bool(drawn.integers(2)), missing="indicator"),
            Column(name="weight", low=low, high=low + width, missing=rule),
            Column(name="chance", low=0, high=1),
            Column(name="sex", levels=("f", "m")),
            Column(name="ended", levels=("alive", "moved", "dead"), other=bool(drawn.integers(2))),
            Column(name="smoker", boolean=True),
        ]
    )


def drawn_records(drawn: np.random.Generator, columns: Columns, rows: int) -> Any:
    """Cells of records: numbers inside their bounds, at them, between and beyond, levels, and missing ones."""
    cells = np.empty((rows, len(columns)))
    for place, column in enumerate(columns):
        if column.numeric:
            inside = drawn.uniform(column.low - 0.1 * column.width, column.high + 0.1 * column.width, rows)
            special = drawn.choice([column.low, column.high, column.centre, -0.0, 0.5, 1.5], rows)
            cells[:, place] = np.where(drawn.random(rows) < 0.3, special, inside)
        else:
            cells[:, place] = drawn.integers(len(column.categories), size=rows)
    cells[drawn.random(cells.shape) < 0.1] = np.nan
    return cells


@cache
def _kinds() -> tuple[Statistic, ...]:
    """Statistics of all kinds that have a program by themselves."""
    found = []
    for kind in registry().values():
        for statistic in statistics_of(kind):
            try:
                VectorProgram.of(_workload(drawn_columns(np.random.default_rng(0)), (statistic,), PrivacyUnit.RECORD))
            except NoProgram:
                continue
            found.append(statistic)
    return tuple(found)


def _workload(columns: Columns, asked: tuple[Statistic, ...], unit: PrivacyUnit) -> Workload:
    return Workload(columns, asked, unit)


def drawn_programs(drawn: np.random.Generator, number: int, rows: int = 2) -> Iterator[DrawnProgram]:
    """So many programs of drawn workloads that have one."""
    return itertools.islice(_endless(drawn, rows), number)


def _endless(drawn: np.random.Generator, rows: int) -> Iterator[DrawnProgram]:
    kinds = _kinds()
    while True:
        columns = drawn_columns(drawn)
        asked = []
        for statistic in drawn.choice(np.array(kinds, dtype=object), drawn.integers(1, _ASKED + 1), replace=False).tolist():
            fields = {name: value for name, value in statistic.describe().items() if name != "kind"}
            condition = {"where": str(drawn.choice(_CONDITIONS))} if drawn.integers(2) else {}
            asked.append(type(statistic).parse({**fields, **condition}))
        try:
            workload = _workload(columns, tuple(asked), PrivacyUnit.RECORD)
            vector = VectorProgram.of(workload)
        except InputError:
            # A condition that its statistic does not take, or a pair that excludes each other.
            continue
        size, shift = len(vector.values), int(drawn.integers(4, 1 << 20))
        step, centre = float(np.exp(drawn.normal(-8, 2))), float(drawn.choice([0.0, drawn.normal()]))
        lows, highs = drawn.integers(0, shift, size), drawn.integers(shift, 2 * shift, size)
        program = EncodingProgram(vector, centre, step, float(shift), shift, 1, lows, highs, ())
        yield DrawnProgram(program, workload, drawn_records(drawn, columns, rows), drawn.random((rows, size)))
