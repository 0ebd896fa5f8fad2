"""Data frames of pandas, Polars and PyArrow, and the files that these read: Parquet, Arrow, Feather.

The type of a column may follow from its cells, as where pandas infers it, so it decides nothing: each cell is read by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any

from quietmean.core import columnar, foreign
from quietmean.core.cells import plain_name
from quietmean.core.codec import decode
from quietmean.core.columnar import ROWS, cells_of
from quietmean.core.errors import InputError
from quietmean.core.extras import command_for, import_extra, is_installed
from quietmean.core.keywords import python_class
from quietmean.studies.data.apart import MOST_SECONDS, EndedError, pieces_apart
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import MOST_CELLS, Cells, Pieces, Table, heading_absent, too_many_cells


def read_foreign(location: Location, column_names: Collection[str] | None, kind: str) -> Pieces:
    """The named columns, or all; codes are codes, whatever labels the file has for them.

    Raises :class:`InputError` if it cannot be read, or its library is not there.
    """
    location.only(f"a file of {kind}", ())
    import_extra("pyreadstat", "foreign", f"{location.name} is a file of {kind}, and reading it")
    return columns_apart(foreign, kind, f"a damaged file of {kind}", location, column_names)


@python_class
@dataclass(frozen=True, eq=False)
class GroupedFrame:
    """A table of Polars, DuckDB, Spark or PostgreSQL whose engine is to count groups of equal rows, instead of handing them over.

    ``data``: what ``polars.scan_parquet``, ``duckdb.table`` or ``spark.read.parquet`` return, or the address of a PostgreSQL
    database as ``--data`` takes it. The unit of the study has to be the record. Statistics of levels and bins need few groups,
    whatever the size; others as many as there are different values, and above a million of them rows are read, a piece at a time.
    """

    data: Any = field(repr=False)


def read_columnar(location: Location, column_names: Collection[str] | None, kind: str) -> Pieces:
    """The named columns of a file of ``kind`` parquet or arrow, or all of them; it may have others of any type.

    Raises :class:`InputError` if it cannot be read, or if no library for it is there.
    """
    location.only(f"a {kind.capitalize()} file", ())
    if not is_installed("narwhals") or not (is_installed("polars") or is_installed("pyarrow")):
        raise InputError(
            f"{location.name} is a {kind.capitalize()} file, and reading it needs the extra 'tables', which is not installed: "
            f"{command_for('tables')}"
        )
    return columns_apart(columnar, kind, f"a damaged {kind.capitalize()} file", location, column_names)


def columns_apart(
    module: ModuleType, kind: str, damaged: str, location: Location, column_names: Collection[str] | None
) -> Pieces:
    """Yield the named columns, read by a ``module`` that runs as a process; ``damaged``: what the file may be."""
    names = sorted({plain_name(name) for name in column_names or ()})
    unreadable = InputError(
        f"file {location.name} cannot be read as a table: it is {damaged}, or reading it takes more "
        f"than {columnar.MOST_MEMORY >> 30} GiB of memory or {MOST_SECONDS / 60:g} minutes"
    )
    contents = pieces_apart(module, [kind, str(location.path.absolute()), str(MOST_CELLS), *names])
    try:
        heading, places = decode(next(contents), tuple[list[str], list[int]], lambda reason: unreadable)
        if not set(names) <= set(map(plain_name, heading)):
            raise heading_absent(location.name, names, tuple(map(plain_name, heading)))
        table = Table(location.name, tuple(map(plain_name, heading)), (), lambda index: Cells(()))
        row = 1
        for content in contents:
            packed = decode(content, list[tuple[bytes | list[Any], bytes | None]], lambda reason: unreadable)
            columns = dict(zip(places, (Cells(*column) for column in columnar.unpacked(packed)), strict=True))
            height = len(columns[places[0]])
            yield replace(table, lines=range(row, row + height), take=columns.__getitem__)
            row += height
        if row == 1:
            yield table
    except EndedError as ended:
        raise too_many_cells(location.name) if ended.code == columnar.TOO_LARGE else unreadable from None
    except (StopIteration, ValueError):
        raise unreadable from None


def table_of_frame(frame: Any, column_names: Collection[str], source: str = "the data frame") -> Pieces:
    """The named columns of a data frame of any library that narwhals knows. Raises :class:`InputError` for anything else."""
    narwhals = import_extra("narwhals", "tables", "reading a data frame")
    try:
        wrapped = narwhals.from_native(frame)
        wrapped = wrapped.collect() if isinstance(wrapped, narwhals.LazyFrame) else wrapped
        names = tuple(plain_name(name) for name in wrapped.columns)
    except TypeError:
        raise InputError(
            f"data of type {type(frame).__name__} are no table: give a path, or a data frame of pandas, Polars or PyArrow"
        ) from None
    except narwhals.exceptions.DuplicateError:
        raise InputError(f"two columns of {source} have the same name: give each column a name of its own") from None
    for start in range(0, max(len(wrapped), 1), ROWS):
        piece = wrapped[start : start + ROWS]
        yield Table(source, names, range(start + 1, start + len(piece) + 1), partial(_cells_in, piece))


def _cells_in(piece: Any, index: int) -> Cells:
    import narwhals

    return Cells(cells_of(piece[:, index], narwhals))
