"""A table that nobody's data are in, as a study describes them: to write and try programs before anybody is asked for data.

From the study's file alone, the same on every machine: it costs no privacy.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError, named
from quietmean.core.extensions import import_extra
from quietmean.core.lazy import parquet
from quietmean.core.readable_days import day_text
from quietmean.core.tables import Rows, Tabular, csv_bytes
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.columns import Column
from quietmean.statistics.expectation import columns_of
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Statistic
from quietmean.studies.agreement.any_study import AnyStudy, columns_in
from quietmean.studies.agreement.study import StudyTerms

# The part of each column's cells that is missing, where no question says what to expect.
USUALLY_MISSING = 0.02
# Digits of numbers, of the width of their bounds.
_DIGITS = 3
# How many rows one person has after the other, and the most of these that are drawn.
_ROWS_OF_PERSONS = (1, 2, 1, 3)
PERSON, DAY = "person", "visit_date"
_FIRST_DAY = "2025-01-01"
MOST_ROWS = 1 << 20
# How the name of a file may end.
ENDS = (".csv", ".parquet")
NOTE = (
    "Made up from the study alone. No row is of a person, though one may equal a real one by chance. It shows the study's "
    "guesses and expectations, which are public."
)


class MadeUpRows(Tabular):
    """Rows that are made up; of persons, with the columns that say whose a row is and of which day.

    ``heads``: the columns of a file. ``note``: what a Parquet file says of all rows, and of each column.
    """

    def __init__(self, cells: dict[str, list[Any]], note: str) -> None:
        self.heads, self.note = tuple(cells), note
        self._rows: Rows = [dict(zip(self.heads, row, strict=True)) for row in zip(*cells.values(), strict=True)]

    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self._rows]

    def csv(self) -> bytes:
        """The rows as CSV, an empty cell for a missing one."""
        return csv_bytes(self._rows, self.heads)

    def parquet(self) -> bytes:
        """The rows as Parquet, with the note in its metadata. Raises :class:`InputError` where pyarrow is not installed."""
        arrow = import_extra("pyarrow", "tables", "writing Parquet")
        table = arrow.table({head: [row[head] for row in self._rows] for head in self.heads})
        noted = arrow.schema([field.with_metadata({"note": self.note}) for field in table.schema], {"note": self.note})
        table = table.cast(noted)
        content = io.BytesIO()
        parquet.write_table(table, content)
        return content.getvalue()

    @property
    def format_text(self) -> str:
        """What stands beside the file in FILE.format.toml, for a study of persons; empty for others."""
        lines = [f'{key} = "{name}"' for key, name in (("person", PERSON), ("date", DAY)) if name in self.heads]
        return "\n".join(["[mapping]", *lines, ""]) if PERSON in self.heads else ""


def mock_rows(study: AnyStudy, rows: int) -> MadeUpRows:
    """Make up so many rows of a study: within its bounds and levels, as its guesses and expectations say, some cells missing.

    The rows of one person are as different as those of several. Raises :class:`InputError` for an impossible number of rows, and
    for a session without columns.
    """
    require_rows(rows)
    columns, asked = columns_in(study), tuple[Statistic, ...]()
    cells, missing_parts = dict[str, list[Any]](), dict[str, float]()
    if isinstance(study, StudyTerms):
        asked = study.workload.statistics
        cells = _of_persons(study, columns.names, rows)
        for statistic in asked:
            part = max((part for name, part in statistic.expect if name == "missing"), default=0.0)
            for name in columns_of(statistic, study.workload) if part else ():
                missing_parts[name] = max(part, missing_parts.get(name, 0.0))
    scenario = SyntheticRecords.of_study(columns, asked, USUAL_SPREAD, rows)
    for column in columns:
        if not column.origin:
            missing = scenario.missing(column.name, missing_parts.get(column.name, USUALLY_MISSING))
            cells[column.name] = _cells(column, np.where(missing, np.nan, scenario.values[column.name])[:rows])
    return MadeUpRows(cells, NOTE)


def is_mock(study: AnyStudy, path: Path, rows: int) -> bool:
    """Whether a file of so many rows is the made-up table of a study as CSV, which is the same for everybody."""
    if path.suffix != ENDS[0]:
        return False
    with suppress(InputError, OSError), path.open("rb") as file:
        # Data have other columns most often: then no table as long as theirs is made up to be compared.
        heading = file.readline()
        return mock_rows(study, 1).csv().startswith(heading) and mock_rows(study, rows).csv() == heading + file.read()
    return False


def require_rows(rows: int) -> None:
    """Raises :class:`InputError` for a number of rows that no made-up table has."""
    if not 1 <= rows <= MOST_ROWS:
        raise InputError(f"rows is {rows}, and a made-up table has 1 to {MOST_ROWS:,}. Give for example {named('rows', '500')}.")


def _of_persons(study: StudyTerms, names: Collection[str], rows: int) -> dict[str, list[Any]]:
    """Whose each row is, and its day, where persons are the unit. Raises :class:`InputError` for a study's column so named."""
    if study.persons is None:
        return {}
    if taken := {PERSON, DAY} & set(names):
        raise InputError(f"column {taken.pop()!r} is in the study, and the table needs one of that name. Rename it there.")
    sizes = [_ROWS_OF_PERSONS[index % len(_ROWS_OF_PERSONS)] for index in range(rows)]
    persons = np.repeat(np.arange(1, rows + 1), sizes)[:rows].tolist()
    days = [day_text(float(index % 365), _FIRST_DAY) for index in range(rows)]
    return {PERSON: persons, DAY: days}


def _cells(column: Column, values: Array) -> list[Any]:
    """The values as a file has them; for a missing one the study's code, None without any."""
    missing = column.missing_codes[0] if column.missing_codes else None
    return [missing if math.isnan(value) else cell_of(column, value) for value in values.tolist()]


def cell_of(column: Column, value: float) -> Any:
    """A value as a file has it: a level, a day, a whole number, or three digits of the width of the bounds."""
    if not column.numeric:
        return column.categories[int(value)]
    if column.since:
        return day_text(value, column.since)
    if column.whole:
        return round(value)
    digits = max(_DIGITS - 1 - math.floor(math.log10(column.width)), 0)
    rounded = round(value, digits) if digits else round(value)
    return rounded if column.low <= rounded <= column.high else value
