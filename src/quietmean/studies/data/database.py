"""Tables of SQLite and DuckDB files, opened for reading only."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import quote

from quietmean.core.cells import LONGEST_CELL, plain_name, text_of_bytes
from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra
from quietmean.core.schema import nearest
from quietmean.studies.data.location import Location, short_bytes
from quietmean.studies.data.table import (
    MOST_CELLS,
    Cells,
    Table,
    heading_absent,
    require_distinct,
    too_many_cells,
)

_CHUNK = 65_536
# Types of DuckDB whose cells are all known to Python; any others are read as texts.
_PLAIN = re.compile(r"BOOLEAN|U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|DATE")
# The most seconds that a query may take; and the most characters of all cells.
MOST_SECONDS, MOST_TEXT = 1800.0, 2**32
# A DuckDB file may have views over other files and addresses, and the library would fetch extensions for them.
_CLOSED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
    # Memory and disk are limited, too.
    "memory_limit": "4GB",
    "temp_directory": "",
}
_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'",
    "duckdb": "SELECT table_name FROM information_schema.tables",
}


def read_database(location: Location, kind: str, wanted: Collection[str]) -> Table:
    """What the query says, the table that was named, or the only one with the ``wanted`` columns. ``kind``: sqlite or duckdb.

    Raises :class:`InputError` if the file or the query cannot be read, or if several tables have these columns.
    """
    location.only("a database", {"table", "query"})
    if kind == "duckdb":
        connect, failure = _duckdb(location)
    else:
        connect, failure = _sqlite, sqlite3.Error
    query = _query_of(location)
    try:
        with closing(connect(location.path)) as base, _in_time(base):
            chosen = query or _quoted(_chosen(base, kind, location, wanted))
            described = base.execute(f"SELECT * FROM {chosen} LIMIT 0").description  # noqa: S608
            names = tuple(plain_name(column[0]) for column in described)
            require_distinct(location.name, names)
            needed = {plain_name(name) for name in wanted}
            if not needed <= set(names):
                raise heading_absent(location.name, needed, names)
            kept = [(column[0], str(column[1])) for column in described if plain_name(column[0]) in needed]
            listed = ", ".join(_handed_over(_quoted(name), of_type, kind) for name, of_type in kept)
            columns = _fetched(base.execute(f"SELECT {listed} FROM {chosen}"), len(kept), location)  # noqa: S608
    # The library's message may quote a value, so it is dropped; names in a damaged file may not be valid text.
    except (failure, UnicodeError):
        what = f"the query in {location.settings['query']}" if query else "it"
        raise InputError(
            f"{location.name} cannot be read, {what} is refused by the database: check the query, that the file is whole, that "
            f"no view reaches beyond the file or takes {MOST_SECONDS / 60:g} minutes, and that no other program has it open"
        ) from None
    places = {plain_name(name): index for index, (name, _) in enumerate(kept)}
    return Table(location.name, names, range(1, len(columns[0]) + 1), lambda index: Cells(columns[places[names[index]]]))


def _fetched(cursor: Any, width: int, location: Location) -> list[list[Any]]:
    """All columns. Raises :class:`InputError` for more than is read: a view may have rows without an end."""
    columns: list[list[Any]] = [[] for _ in range(width)]
    size = 0
    while chunk := cursor.fetchmany(_CHUNK):
        for column, cells in zip(columns, zip(*chunk, strict=True), strict=True):
            column += cells
            size += sum(len(cell) for cell in cells if isinstance(cell, str | bytes))
        if len(columns[0]) * width > MOST_CELLS or size > MOST_TEXT:
            raise too_many_cells(location.name)
    return columns


@contextmanager
def _in_time(base: Any) -> Iterator[None]:
    """A view may compute without an end: it is interrupted, which the library reports as any other failure."""
    clock = Timer(MOST_SECONDS, base.interrupt)
    clock.daemon = True
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def _handed_over(column: str, kind: str, base: str) -> str:
    """A column as it is selected, so that no cell of it is more than Python can hold, or needs another library."""
    if base == "sqlite":
        return f"CASE WHEN typeof({column}) IN ('text', 'blob') THEN substr({column}, 1, {LONGEST_CELL}) ELSE {column} END"
    if kind == "TIMESTAMP WITH TIME ZONE":
        # An instant, of which no setting of this machine says on what day it was.
        return f"CASE WHEN isfinite({column}) THEN make_timestamp(epoch_us({column})) END"
    if kind.startswith("TIMESTAMP"):
        return f"TRY_CAST({column} AS TIMESTAMP)"
    if kind == "BLOB":
        return f"{column}[1:{LONGEST_CELL}]"
    return column if _PLAIN.fullmatch(kind) else f"left(TRY_CAST({column} AS VARCHAR), {LONGEST_CELL})"


def _sqlite(path: Path) -> Any:
    """A file with a write-ahead log needs to write beside itself, unless nobody else can: then it is taken as it stands."""
    log = path.with_name(f"{path.name}-wal")
    as_it_stands = not os.access(path.parent, os.W_OK) and not (log.exists() and log.stat().st_size)
    mode = "immutable=1" if as_it_stands else "mode=ro"
    base = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True)
    base.execute("PRAGMA trusted_schema = OFF")
    # A text may hold any bytes, whatever the file says of them.
    base.text_factory = text_of_bytes
    return base


def _duckdb(location: Location) -> tuple[Callable[[Path], Any], type[Exception]]:
    duckdb = import_extra("duckdb", "sql", f"{location.name} is a DuckDB file, and reading it")
    return lambda path: duckdb.connect(str(path), read_only=True, config=_CLOSED), duckdb.Error


def _query_of(location: Location) -> str:
    """The query in the file that was named, as it stands behind FROM."""
    path = location.settings.get("query")
    if path is None:
        return ""
    if "table" in location.settings:
        raise InputError(f"both #table= and #query= are said of {location.name}: leave one out")
    try:
        text = short_bytes(Path(path)).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"file {path} with the query for {location.name} cannot be read: check the path") from None
    return f"({text.strip().rstrip(';')})"


def _chosen(base: Any, kind: str, location: Location, wanted: Collection[str]) -> str:
    tables = sorted(str(row[0]) for row in base.execute(_TABLES[kind]).fetchall())
    named = location.settings.get("table")
    if named is not None:
        if named not in tables:
            raise InputError(f"{location.name} has no table {named!r}{nearest(named, tables)}: check its name")
        return named
    names = {plain_name(name) for name in wanted}
    fitting = [table for table in tables if names <= _columns(base, table)]
    if len(fitting) > 1 or not tables or (not fitting and len(tables) > 1):
        many = f"{len(fitting)} tables" if fitting else f"none of the {len(tables)} tables"
        raise InputError(
            f"{many} of {location.name} have the columns of the study: say which is meant, {location.name}#table=NAME, or give a "
            f"query in a file, {location.name}#query=FILE"
        )
    return (fitting or tables)[0]


def _columns(base: Any, table: str) -> set[str]:
    described = base.execute(f"SELECT * FROM {_quoted(table)} LIMIT 0").description  # noqa: S608
    return {plain_name(column[0]) for column in described}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
