"""Data frames of pandas, Polars and PyArrow, and the files that these read: Parquet, Arrow, Feather.

The type of a column may follow from its cells, as where pandas infers it, so it decides nothing: each cell is read by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from quietmean.core import columnar
from quietmean.core.cells import plain_name
from quietmean.core.codec import decode
from quietmean.core.columnar import cells_of
from quietmean.core.errors import InputError
from quietmean.core.extras import command_for, import_extra, is_installed
from quietmean.studies.data.apart import MOST_SECONDS, read_apart
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import MOST_CELLS, Cells, Table, heading_absent, too_many_cells


def read_columnar(location: Location, kind: str, wanted: Collection[str]) -> Table:
    """The ``wanted`` columns of a file of ``kind`` parquet or arrow; it may have others of any type.

    Raises :class:`InputError` if it cannot be read, or if no library for it is there.
    """
    location.only(f"a {kind.capitalize()} file", ())
    if not is_installed("narwhals") or not (is_installed("polars") or is_installed("pyarrow")):
        raise InputError(
            f"{location.name} is a {kind.capitalize()} file, and reading it needs the extra 'tables', which is not installed: "
            f"{command_for('tables')}"
        )
    names = sorted({plain_name(name) for name in wanted})
    ended, content = read_apart(columnar, [kind, str(location.path.absolute()), str(MOST_CELLS), *names])
    if ended == columnar.TOO_LARGE:
        raise too_many_cells(location.name)
    damaged = InputError(
        f"file {location.name} cannot be read as a table: it is a damaged {kind.capitalize()} file, or reading it takes more "
        f"than {columnar.MOST_MEMORY >> 30} GiB of memory or {MOST_SECONDS / 60:g} minutes"
    )
    if ended:
        raise damaged
    heading, columns = columnar.unpacked(*decode(content, tuple[list[str], dict[int, bytes | list[Any]]], lambda reason: damaged))
    height = len(next(iter(columns.values()), ()))
    table = Table(location.name, tuple(map(plain_name, heading)), range(1, height + 1), lambda index: Cells(columns[index]))
    if not set(names) <= set(table.names):
        raise heading_absent(location.name, names, table.names)
    return table


def table_of_frame(frame: Any, source: str = "the data frame") -> Table:
    """A data frame of any library that narwhals knows. Raises :class:`InputError` for anything else."""
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
    return Table(source, names, range(1, len(wrapped) + 1), lambda column: Cells(cells_of(wrapped[:, column], narwhals)))
