"""Tables of SQLite and DuckDB files, opened for reading only."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra
from quietmean.core.schema import nearest
from quietmean.studies.data.location import Location, short_bytes
from quietmean.studies.data.table import MOST_CELLS, Table, of_rows, plain_name, too_many_cells
from quietmean.studies.data.text import text_of_bytes

_CHUNK = 65_536
# Types of DuckDB whose cells are all known to Python; any others are read as texts.
_PLAIN = re.compile(r"BOOLEAN|U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|VARCHAR|BLOB|DATE")
# A DuckDB file may have views over other files and addresses, and the library would fetch extensions for them.
_CLOSED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
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
        with closing(connect(location.path)) as base:
            chosen = query or _quoted(_chosen(base, kind, location, wanted))
            found = base.execute(f"SELECT * FROM {chosen} LIMIT 0").description  # noqa: S608
            heading = [column[0] for column in found]
            kept = [name for name in heading if plain_name(name) in {plain_name(one) for one in wanted}]
            types = {column[0]: str(column[1]) for column in found}
            listed = ", ".join(_handed_over(_quoted(name), types[name], kind) for name in kept) or "NULL"
            # Of columns with the same name none is read: the table refuses them.
            everything = f"SELECT {listed} FROM {chosen}"  # noqa: S608
            rows = _fetched(base.execute(everything), len(kept), location) if heading == _once(heading) else []
    # What the library says may quote a value.
    except failure:
        what = f"the query in {location.said['query']}" if query else "it"
        raise InputError(
            f"{location.name} cannot be read, {what} is refused by the database: check the query, that the file is whole, that "
            "no view reaches beyond the file, and that no other program has it open"
        ) from None
    if len(kept) == len(heading) or heading != _once(heading):
        return of_rows(location.name, heading, rows, range(1, len(rows) + 1))
    # Names of columns that were not read are kept for messages.
    places = {name: place for place, name in enumerate(kept)}
    table = of_rows(location.name, kept, rows, range(1, len(rows) + 1))
    names = tuple(plain_name(name) for name in heading)
    return Table(table.place, names, table.lines, lambda column: table.take(places[heading[column]]))


def _fetched(cursor: Any, width: int, location: Location) -> list[Any]:
    """All rows. Raises :class:`InputError` for more cells than are read: a view may have rows without an end."""
    rows: list[Any] = []
    while chunk := cursor.fetchmany(_CHUNK):
        rows += chunk
        if len(rows) * max(width, 1) > MOST_CELLS:
            raise too_many_cells(location.name)
    return rows


def _handed_over(column: str, kind: str, base: str) -> str:
    """A column as it is selected, so that no cell of it is more than Python can hold, or needs another library."""
    if base == "sqlite":
        return column
    if kind.startswith("TIMESTAMP"):
        return f"TRY_CAST({column} AS TIMESTAMP)"
    return column if _PLAIN.fullmatch(kind) else f"TRY_CAST({column} AS VARCHAR)"


def _once(heading: list[str]) -> list[str]:
    return list(dict.fromkeys(heading))


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
    said = location.said.get("query")
    if said is None:
        return ""
    if "table" in location.said:
        raise InputError(f"both #table= and #query= are said of {location.name}: leave one out")
    try:
        text = short_bytes(Path(said)).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"file {said} with the query for {location.name} cannot be read: check the path") from None
    return f"({text.strip().rstrip(';')})"


def _chosen(base: Any, kind: str, location: Location, wanted: Collection[str]) -> str:
    tables = sorted(str(row[0]) for row in base.execute(_TABLES[kind]).fetchall())
    said = location.said.get("table")
    if said is not None:
        if said not in tables:
            raise InputError(f"{location.name} has no table {said!r}{nearest(said, tables)}: check its name")
        return said
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
    found = base.execute(f"SELECT * FROM {_quoted(table)} LIMIT 0").description  # noqa: S608
    return {plain_name(column[0]) for column in found}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
