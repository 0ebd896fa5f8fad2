"""Tables that a query may name, and those of SQLite and DuckDB files, opened for reading only.

Types follow from declarations, never from cells.
"""

from __future__ import annotations

import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any, Final
from urllib.parse import quote

from quietmean.core.cells import LONGEST_CELL, plain_name, text_of_bytes
from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra
from quietmean.core.readable import count_of
from quietmean.core.schema import nearest
from quietmean.studies.data.location import Location, short_bytes
from quietmean.studies.data.table import ROWS, Cells, Pieces, Table, require_distinct, too_many_cells, wanted_places

# What a declared type is read as, by how it begins; any other is a text.
_TYPES: Final = (
    (re.compile(r"(TINY|SMALL|MEDIUM|BIG)?INT(EGER)?\b|INT[248]\b|U(TINYINT|SMALLINT|INTEGER)\b|(SMALL|BIG)?SERIAL\b"), "BIGINT"),
    (re.compile(r"FLOAT|REAL|DOUBLE|NUMERIC|DECIMAL|NUMBER|MONEY|U?HUGEINT|UBIGINT"), "DOUBLE"),
    (re.compile(r"DATE\b"), "DATE"),
    (re.compile(r"TIMESTAMP|DATETIME"), "TIMESTAMP"),
)
_NAME = r'(?:"(?:[^"]|"")+"|[\w$]+)'
_VIEW: Final = re.compile(
    rf"\s*CREATE\s+(?:TEMP\s+|TEMPORARY\s+)?VIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}(?:\s*\.\s*{_NAME})*\s+AS\b(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)


def type_declared(declaration: str) -> str:
    """VARCHAR, BIGINT, DOUBLE, DATE or TIMESTAMP."""
    word = declaration.strip().upper()
    return next((kind for begins, kind in _TYPES if begins.match(word) and not word.endswith("[]")), "VARCHAR")


@dataclass(frozen=True)
class Listed:
    """A table or view of a source. ``definition``: the SELECT of a view; ``reason``: what it is that is not read row by row."""

    schema: str
    name: str
    definition: str = field(default="", repr=False)
    reason: str = ""
    # Whether its name alone means it.
    visible: bool = True

    @property
    def called(self) -> str:
        """The name of a table as statements of its source call it."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def is_table(self) -> bool:
        return not (self.definition or self.reason)


class Tables(ABC):
    """The tables of one source."""

    # What messages call the source.
    place: str

    @abstractmethod
    def all(self) -> Collection[Listed]:
        """All tables and views."""

    @abstractmethod
    def chosen(self, column_names: Collection[str]) -> Listed:
        """Return the table that was named, or the only one with these columns. Raises :class:`InputError` if there is none."""

    @abstractmethod
    def selected(self, query: str, column_names: Collection[str]) -> Pieces:
        """Yield what the source itself makes of a query, whose owner declares that it lets rows decide about others."""

    @abstractmethod
    def columns(self, table: Listed) -> list[tuple[str, str]] | None:
        """Names and types (:func:`type_declared`); None where a table has whatever column is asked for."""

    @abstractmethod
    def pieces(self, table: Listed, column_names: Collection[str]) -> Pieces:
        """The rows in these columns."""

    def find(self, schema: str, name: str) -> Listed | None:
        """The table that a query means. Raises :class:`InputError` where it may be one of several."""
        same = [
            one
            for one in self.all()
            if one.name.casefold() == name.casefold() and (one.schema.casefold() == schema.casefold() if schema else one.visible)
        ]
        if len(same) > 1:
            raise InputError(f"{self.place} has {len(same)} tables {name!r}. Name one with its schema")
        return same[0] if same else None


def definition_of_view(statement: str) -> str | None:
    """The SELECT of CREATE VIEW; None where it names its columns or is none."""
    matched = _VIEW.fullmatch(statement)
    return matched["query"].strip().rstrip(";") if matched else None


def quoted(name: str) -> str:
    """A name as statements have it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as statements have it."""
    return "'" + text.replace("'", "''") + "'"


def not_row_by_row(what: str, place: str) -> InputError:
    """The error that it is not known how rows of a relation come about."""
    return InputError(f"{what} of {place} is not read row by row. Name a table, or declare query_mixes_rows = true")


# Types of DuckDB whose cells are all known to Python; any others are read as texts.
_PLAIN = re.compile(r"BOOLEAN|U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|DATE")
# What SQLite writes behind a name that a query has a second time.
_AGAIN = re.compile(r":\d+$")
# The most seconds that a query may take; and the most characters of the cells of a piece.
MOST_SECONDS, MOST_TEXT = 1800.0, 2**32
# A DuckDB file may have views over other files and addresses, and the library would fetch extensions for them.
CLOSED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # Nor does a name in a query mean a variable of this program.
    "python_enable_replacements": "false",
    "lock_configuration": "true",
    # Memory and disk are limited, too.
    "memory_limit": "4GB",
    "temp_directory": "",
}
# Schema, name, table or view, and the statement that made it.
_TABLES = {
    "sqlite": "SELECT 'main', name, type, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'",
    "duckdb": "SELECT schema_name, table_name, 'table', sql FROM duckdb_tables() WHERE database_name = 'source' UNION ALL "
    "SELECT schema_name, view_name, 'view', sql FROM duckdb_views() WHERE database_name = 'source' AND NOT internal",
}


@contextmanager
def open_database(location: Location, kind: str) -> Iterator[DatabaseTables]:
    """The tables of a file of this ``kind``, sqlite or duckdb. Raises :class:`InputError` where it cannot be read."""
    location.only("a database", {"table"})
    if kind == "duckdb":
        connect, failure = _duckdb(location)
    else:
        connect, failure = _sqlite, sqlite3.Error
    with failing(location, failure), closing(connect(location.path)) as base, in_time(base):
        yield DatabaseTables(base, kind, location)


class DatabaseTables(Tables):
    """The tables of an open database of this ``kind``."""

    def __init__(self, base: Any, kind: str, location: Location) -> None:
        self._base, self._kind, self._location = base, kind, location
        self.place = location.name

    def chosen(self, column_names: Collection[str]) -> Listed:
        tables = {one.name: one for one in self.all() if one.visible}
        named = self._location.settings.get("table")
        if named is not None:
            if named not in tables:
                raise InputError(f"{self.place} has no table {named!r}{nearest(named, tables)}. Check its name.")
            return tables[named]
        names = {plain_name(name) for name in column_names}
        fitting = [name for name, table in tables.items() if names <= self._names(table)]
        if len(fitting) > 1 or not tables or (not fitting and len(tables) > 1):
            many = f"{len(fitting)} tables" if fitting else f"none of the {count_of(len(tables), 'table')}"
            raise InputError(
                f"{many} of {self.place} have the columns of the study. Say which is meant, {self.place}#table=NAME, or give a "
                f"query in a file, {self.place}#query=FILE."
            )
        return tables[(fitting or sorted(tables))[0]]

    def all(self) -> Collection[Listed]:
        return [self._listed(*row) for row in self._base.execute(_TABLES[self._kind]).fetchall()]

    def columns(self, table: Listed) -> list[tuple[str, str]] | None:
        if self._kind == "sqlite":
            rows = self._base.execute(f"SELECT name, type FROM pragma_table_xinfo({literal(table.name)})")  # noqa: S608
        else:
            rows = self._base.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'source' AND schema_name = ? AND "
                "table_name = ? ORDER BY column_index",
                [table.schema, table.name],
            )
        return [(plain_name(name), type_declared(str(kind))) for name, kind in rows.fetchall()]

    def pieces(self, table: Listed, column_names: Collection[str]) -> Pieces:
        return selected(self._base, self._called(table), self._kind, self._location, column_names)

    def selected(self, query: str, column_names: Collection[str]) -> Pieces:
        return selected(self._base, behind_from(query), self._kind, self._location, column_names)

    def _listed(self, schema: str, name: str, kind: str, statement: str | None) -> Listed:
        if kind == "view":
            definition = definition_of_view(statement or "")
            return Listed(schema, name, definition or "", "" if definition else "the view", schema == "main")
        virtual = (statement or "").lstrip().upper().startswith("CREATE VIRTUAL")
        return Listed(schema, name, "", "the virtual table" if virtual else "", schema == "main")

    def _called(self, table: Listed) -> str:
        source = "source." if self._kind == "duckdb" else ""
        return f"{source}{table.called}"

    def _names(self, table: Listed) -> set[str]:
        described = self._base.execute(f"SELECT * FROM {self._called(table)} LIMIT 0").description  # noqa: S608
        return {plain_name(column[0]) for column in described}


@contextmanager
def failing(location: Location, failure: type[Exception]) -> Iterator[None]:
    """The context in which a library reads.

    Raises :class:`InputError` in the place of a ``failure``: the library's message may quote a value, so it is dropped.
    """
    try:
        yield
    # Names in a damaged file may not be valid text.
    except (failure, UnicodeError):
        subject = "it" if location.query is None else f"the query in {location.query}"
        raise InputError(
            f"{location.name} cannot be read, {subject} is refused by the database. Check the query, and that the file is whole. "
            f"Let no view reach beyond the file or take {MOST_SECONDS / 60:g} minutes. Close other programs that use the file."
        ) from None


def selected(base: Any, chosen: str, kind: str, location: Location, column_names: Collection[str]) -> Pieces:
    """The named columns of what is ``chosen`` in an open database. Raises :class:`InputError` where one is absent."""
    described = base.execute(f"SELECT * FROM {chosen} LIMIT 0").description  # noqa: S608
    names, places = wanted_places(location.name, [column[0] for column in described], column_names)
    if location.query is not None and location.mixes_rows:
        # What is not asked for may stand there twice, as a join has it: the database calls the second one otherwise.
        called, needed = _as_written(base, chosen, kind, names), {names[place] for place in places}
        require_distinct(location.name, [name if name in needed else "" for name in called])
    columns = {place: (quoted(described[place][0]), str(described[place][1])) for place in places}
    yield from pieces_of(base, kind, chosen, location, names, columns)


def pieces_of(
    base: Any, kind: str, chosen: str, location: Location, names: tuple[str, ...], columns: Mapping[int, tuple[str, str]]
) -> Pieces:
    """The rows of what is ``chosen``; ``columns``: how each is written and its type, by its index in ``names``."""
    listed, places = ", ".join(_handed_over(column, type_, kind) for column, type_ in columns.values()), list(columns)
    cursor, row = base.execute(f"SELECT {listed or 'NULL'} FROM {chosen}"), 1  # noqa: S608
    while True:
        rows = cursor.fetchmany(ROWS)
        cells = list(zip(*rows, strict=True)) or [()] * len(places)
        if sum(len(cell) for column in cells for cell in column if isinstance(cell, str | bytes)) > MOST_TEXT:
            raise too_many_cells(location.name)
        by_place = {place: Cells(column) for place, column in zip(places, cells, strict=False)}
        yield Table(location.name, names, range(row, row + len(rows)), by_place.__getitem__)
        row += len(rows)
        if len(rows) < ROWS:
            return


def _as_written(base: Any, query: str, kind: str, names: tuple[str, ...]) -> list[str]:
    """The names of a query's columns, of which two may be the same. ``names``: as the database calls them behind FROM."""
    if kind == "duckdb":
        return [plain_name(row[0]) for row in base.execute(f"DESCRIBE {query}").fetchall()]
    return [before if (before := _AGAIN.sub("", name)) in names else name for name in names]


@contextmanager
def in_time(base: Any) -> Iterator[None]:
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
    """Return what opens a database in memory with the file beside it, so that no name in that means a function of the library."""
    duckdb = import_extra("duckdb", "sql", f"{location.name} is a DuckDB file, and reading it")

    def connect(path: Path) -> Any:
        later = ("enable_external_access", "lock_configuration")
        base = duckdb.connect(config={name: value for name, value in CLOSED.items() if name not in later})
        base.execute(f"ATTACH {literal(str(path.absolute()))} AS source (READ_ONLY, TYPE duckdb)")
        if location.mixes_rows:
            base.execute("USE source")
        for name in later:
            base.execute(f"SET {name} = {CLOSED[name]}")
        return base

    return connect, duckdb.Error


def query_of(location: Location) -> str:
    """The query in the file that was named. Raises :class:`InputError` if it cannot be read."""
    path = location.query
    if path is None:
        return ""
    if "table" in location.settings:
        raise InputError(f"both #table= and #query= are said of {location.name}. Leave one out.")
    try:
        text = short_bytes(Path(path)).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"file {path} with the query for {location.name} cannot be read. Check the path.") from None
    return text.strip().rstrip(";")


def behind_from(query: str) -> str:
    """Return a query as it stands behind FROM; a comment may be the last thing in it."""
    return f"({query}\n)"
