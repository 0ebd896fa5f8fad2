"""What every reader makes of its source: named columns of cells, and where each row stands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.cells import plain_name
from quietmean.core.errors import InputError
from quietmean.core.schema import nearest

# The most cells of a workbook or a database: 128 million, some ten gigabytes as objects.
MOST_CELLS = 2**27
# The most rows that a message names.
_MOST_NAMED = 3


@dataclass(frozen=True)
class Cells:
    """The cells of one column: plain objects, or float64 of shape (rows,) with NaN for missing where all are numbers."""

    values: Sequence[Any] | NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True)
class Table:
    """``place``: its name in messages. ``take``: the cells of a column by its place. ``lines``: where each row begins.

    ``word``: what a place in it is called: ``line`` of a text as editors count, or ``row``. ``delimiter``: what is between the
    columns of a text.
    """

    place: str
    names: tuple[str, ...]
    lines: Sequence[int]
    take: Callable[[int], Cells] = field(repr=False)
    word: str = "row"
    delimiter: str = ""

    def __post_init__(self) -> None:
        """Raises :class:`InputError` if two columns have the same name."""
        require_distinct(self.place, self.names)

    @property
    def height(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> Cells:
        """Raises :class:`InputError` if there is none of that name."""
        require_column(self, name)
        return self.take(self.names.index(plain_name(name)))

    def where(self, rows: Sequence[int]) -> str:
        """Rows in words: ``line 4``, ``lines 4, 9, 12 and 7 more``."""
        shown = ", ".join(str(self.lines[row]) for row in rows[:_MOST_NAMED])
        more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
        return f"{self.word}{'s' if len(rows) > 1 else ''} {shown}{more}"


def require_distinct(source: str, names: Sequence[str]) -> None:
    """Raises :class:`InputError` if two columns of a source have the same name."""
    seen: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name and seen.setdefault(name, number) != number:
            raise InputError(
                f"columns {seen[name]} and {number} of {source} have the same name: give each column a name of its own in the "
                "first row"
            )


def require_column(table: Table, column: str) -> None:
    """Raises :class:`InputError` if the table has no such column."""
    if plain_name(column) not in table.names:
        raise heading_absent(table.place, {plain_name(column)}, table.names)


def heading_absent(source: str, wanted: Collection[str], names: Sequence[str]) -> InputError:
    """The first of the ``wanted`` columns is not there. Of the headings only one is shown that is nearly the same."""
    column = next(name for name in sorted(wanted) if name not in names)
    return InputError(
        f"column {column!r} is not among the {len(names)} columns of {source}{nearest(column, names)}: "
        "check its name, and that the first row of the file holds the names of its columns"
    )


def too_many_cells(source: str) -> InputError:
    """The error for a source with more cells than are read."""
    return InputError(
        f"{source} has more than {MOST_CELLS >> 20} million cells, the most that is read of it: give a Parquet file, or a query "
        "that chooses columns and rows"
    )


def of_rows(source: str, heading: Iterable[object], rows: Sequence[Sequence[Any]], lines: Sequence[int], **more: Any) -> Table:
    """The table of rows that have as many cells as the heading: each is a record, whatever is in it."""
    return Table(
        source,
        tuple(plain_name(name) for name in heading),
        lines,
        lambda column: Cells([row[column] for row in rows]),
        **more,
    )
