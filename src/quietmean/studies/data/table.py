"""What every reader makes of its source: named columns of cells, and where each row stands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.cells import plain_name
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of
from quietmean.core.schema import nearest
from quietmean.studies.data.location import FRAME

# The most cells of a source that are kept at a time: 128 million, some ten gigabytes as objects.
MOST_CELLS = 2**27
# The rows of a piece of a source that is read row by row.
ROWS = 2**16
# The most rows that a message names.
MOST_NAMED = 3


class Cells:
    """The cells of one column: plain objects, or float64 of shape (rows,) with NaN for missing where all are numbers.

    ``codes``: where ``values`` are the distinct ones, which of them stands in each row, (rows,).
    """

    def __init__(self, values: Sequence[Any] | Array, codes: NDArray[np.integer[Any]] | None = None) -> None:
        self.values, self.codes = values, codes

    def __len__(self) -> int:
        return len(self.values) if self.codes is None else len(self.codes)

    def __getitem__(self, row: int) -> Any:
        return self.values[row if self.codes is None else self.codes[row]]

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def spread(self, of_values: NDArray[Any]) -> NDArray[Any]:
        """Return what is known of each of ``values``, for each row."""
        return of_values if self.codes is None else of_values[self.codes]

    def numbers(self, mark: str) -> Array | None:
        """Return the values of cells that are plainly numbers, (rows,), with no ``mark`` but the decimal one; NaN for any other.

        None where that is not quickly known of texts.
        """
        return None

    def distinct(self, rows: NDArray[np.intp] | None = None) -> Cells:
        """Return the cells of these ``rows``, by default of all: each once where that is quickly known."""
        if rows is not None:
            return Cells([self[int(row)] for row in rows])
        if self.codes is not None or not isinstance(self.values, np.ndarray):
            return self
        values, codes = np.unique(self.values, return_inverse=True)
        return Cells(values, codes)

    def joined(self, others: Sequence[Cells]) -> Cells:
        """Return these cells and those of ``others`` behind them."""
        parts = [self, *others]
        if all(isinstance(part.values, np.ndarray) and part.codes is None for part in parts):
            return Cells(np.concatenate([part.values for part in parts]))
        parts = [part.distinct() for part in parts]
        starts = itertools.accumulate((len(part.values) for part in parts), initial=0)
        codes = [
            start + (np.arange(len(part)) if part.codes is None else part.codes)
            for start, part in zip(starts, parts, strict=False)
        ]
        return Cells(list(itertools.chain.from_iterable(part.values for part in parts)), np.concatenate(codes))


@dataclass(frozen=True)
class Table:
    """A piece of a source: named columns of cells, and where each row stands.

    ``place``: its name in messages. ``take``: the cells of a column by its place. ``lines``: where each row begins.

    ``word``: what a place in it is called: ``line`` of a text as editors count, or ``row``. ``delimiter``: what is between the
    columns of a text. ``called``: what the study's columns are called here, where that differs.
    """

    place: str
    names: tuple[str, ...]
    lines: Sequence[int]
    take: Callable[[int], Cells] = field(repr=False)
    word: str = "row"
    delimiter: str = ""
    called: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises :class:`InputError` if two columns have the same name."""
        require_distinct(self.place, self.names)

    @property
    def height(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> Cells:
        """The cells of a column of the study. Raises :class:`InputError` if the study's column of that name is not there."""
        return self.headed(self.name_of(name))

    def headed(self, name: str) -> Cells:
        """The cells of the column that is called so here. Raises :class:`InputError` if there is none."""
        require_heading(self, name)
        return self.take(self.names.index(plain_name(name)))

    def name_of(self, column: str) -> str:
        """What a column of the study is called here."""
        return self.called.get(plain_name(column), plain_name(column))


# The table of a source, one piece after the other, with the same columns: one at least, with no rows perhaps.
Pieces: TypeAlias = Iterator[Table]


@dataclass
class NoticedRows:
    """Rows of which something is said to their owner: how many these are, and where the first ones stand."""

    count: int = 0
    _lines: list[int] = field(default_factory=list)

    def add(self, lines: Sequence[int], rows: Sequence[int] | NDArray[np.intp] = (0,)) -> None:
        """Notice these ``rows`` of a piece whose rows stand on these ``lines``."""
        self.count += len(rows)
        self._lines += [lines[int(row)] for row in rows[: MOST_NAMED - len(self._lines)]]

    def where(self, word: str) -> str:
        """Return where they stand: ``line 4``, ``lines 4, 9, 12 and 7 more``."""
        more = f" and {self.count - MOST_NAMED} more" if self.count > MOST_NAMED else ""
        return f"{word}{'s' if self.count > 1 else ''} {', '.join(map(str, self._lines))}{more}"


def joined(pieces: Pieces, width: int) -> Table:
    """All pieces as one table. Raises :class:`InputError` where its ``width`` columns have more cells than are kept."""
    all_pieces: list[Table] = []
    cells = 0
    for piece in pieces:
        all_pieces.append(piece)
        cells += piece.height * max(width, 1)
        if cells > MOST_CELLS:
            raise too_many_cells(piece.place)
    first = all_pieces[0]
    if len(all_pieces) == 1:
        return first
    lines = list(itertools.chain.from_iterable(piece.lines for piece in all_pieces))
    return replace(
        first, lines=lines, take=lambda index: first.take(index).joined([piece.take(index) for piece in all_pieces[1:]])
    )


def wanted_places(source: str, heading: Iterable[str], column_names: Collection[str]) -> tuple[tuple[str, ...], list[int]]:
    """The plain names of all columns, and where the named ones are, in the order of the source.

    Raises :class:`InputError` where two have one name, and for a column that is absent.
    """
    names, needed = tuple(map(plain_name, heading)), {plain_name(name) for name in column_names}
    require_distinct(source, names)
    if not needed <= set(names):
        raise heading_absent(source, needed, names)
    return names, [place for place, name in enumerate(names) if name in needed]


def require_distinct(source: str, names: Sequence[str]) -> None:
    """Raises :class:`InputError` if two columns of a source have the same name."""
    seen: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name and seen.setdefault(name, number) != number:
            raise InputError(
                f"columns {seen[name]} and {number} of {source} have the same name: give each column a name of its own in the "
                "first row, or in the query"
            )


def require_column(table: Table, column: str) -> None:
    """Raises :class:`InputError` if the table has no such column."""
    require_heading(table, table.name_of(column))


def require_heading(table: Table, name: str) -> None:
    """Raises :class:`InputError` if the table has no column that is called so here."""
    if plain_name(name) not in table.names:
        raise heading_absent(table.place, {plain_name(name)}, table.names)


def heading_absent(source: str, column_names: Collection[str], names: Sequence[str]) -> InputError:
    """The first of the named columns is not there. Of the headings only one is shown that is nearly the same."""
    column = next(name for name in sorted(column_names) if name not in names)
    heading = "" if source == str(FRAME) else ", and that the first row of the file holds the names of its columns"
    return InputError(
        f"column {column!r} is not one of the {count_of(len(names), 'column')} of {source}{nearest(column, names)}: "
        f"check its name{heading}"
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
