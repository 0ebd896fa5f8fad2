"""Tables of a PostgreSQL database, read in one transaction that writes nothing, a piece of rows at a time.

The password is where libpq looks for it: ``~/.pgpass``, a file of services, the environment. No message of the driver is shown:
it may have a value, a user or an address in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from quietmean.core.cells import LONGEST_CELL, STRANGE, plain_name
from quietmean.core.columnar import cells_of
from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra
from quietmean.core.lazy import narwhals, pyarrow
from quietmean.core.readable import count_of
from quietmean.core.schema import nearest
from quietmean.studies.data.database import MOST_SECONDS, Listed, Tables, behind_from, quoted, type_declared
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import Cells, Pieces, Table, wanted_places

# Seconds in which a server has to answer.
_CONNECT_SECONDS = 20
# The driver asks the server for no list of all its types, which takes it 30 ms of 31: built-in ones alone are handed over.
_BUILT_IN_TYPES = {"adbc.postgresql.type_resolver_mode": "builtin"}
# What a session is set to: texts of dates and times are then the same on every machine, and a query ends.
_SETTINGS = {
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "iso_8601",
    "statement_timeout": f"{MOST_SECONDS:.0f}s",
    "client_encoding": "UTF8",
}
_TABLES = """
SELECT format('%I.%I', n.nspname, c.relname) AS name, c.relname::text AS short,
  (SELECT array_to_string(array_agg(a.attname), chr(31)) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
   AND NOT a.attisdropped) AS columns,
  n.nspname::text AS schema, CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END AS definition,
  CASE WHEN c.relkind = 'm' THEN 'the materialized view' WHEN c.relkind = 'f' THEN 'the foreign table'
   WHEN c.relrowsecurity THEN 'the table with row security' ELSE '' END AS reason, pg_table_is_visible(c.oid)::int AS visible
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname NOT LIKE 'pg_toast%' AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1
"""
# The name of a column's type, or of what it is a domain of.
_TYPE_OF = """
(SELECT format_type(CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END, NULL) FROM pg_type t WHERE t.oid = pg_typeof({}))
"""
# Types that are handed over as they are.
_NUMBERS = {"smallint", "integer", "bigint", "real", "double precision"}
_AS_IT_IS = {*_NUMBERS, "boolean"}
# Types that are handed over as floats.
_DIGITS = {"numeric", "money"}
# Where numbers of any digits become floats: beyond these, the server would refuse the whole query for one of them.
_LARGEST, _SMALLEST = "1e308", "1e-307"


class PostgresqlTables(Tables):
    """The tables: those of a database, of which ``rows`` hold what is known; ``cursor``: in a transaction that writes nothing."""

    def __init__(self, cursor: Any, location: Location) -> None:
        self.cursor, self._location, self._rows = cursor, location, _rows(cursor, _TABLES)
        self.place = location.name

    def chosen(self, column_names: Collection[str]) -> Listed:
        called = _chosen([row[:3] for row in self._rows], self._location, column_names)
        return next(self._listed(row) for row in self._rows if row[0] == called)

    def all(self) -> Collection[Listed]:
        return [self._listed(row) for row in self._rows]

    def columns(self, table: Listed) -> list[tuple[str, str]] | None:
        selection = _asked(self.cursor, table.called, self._location, None)
        return [(name, type_declared(selection.kinds[place])) for place, name in enumerate(selection.names)]

    def pieces(self, table: Listed, column_names: Collection[str]) -> Pieces:
        return selected_rows(self.cursor, self.asked(table.called, column_names), self._location)

    def selected(self, query: str, column_names: Collection[str]) -> Pieces:
        return selected_rows(self.cursor, self.asked(behind_from(query), column_names), self._location)

    def asked(self, chosen: str, column_names: Collection[str]) -> SelectedColumns:
        """What the server is asked of a table, view or query."""
        return _asked(self.cursor, chosen, self._location, column_names)

    def _listed(self, row: tuple[Any, ...]) -> Listed:
        _, name, _, schema, definition, reason, visible = row
        return Listed(str(schema), str(name), str(definition or "").strip().rstrip(";"), str(reason or ""), bool(visible))


@dataclass(frozen=True)
class SelectedColumns:
    """The columns that are read of a table of PostgreSQL.

    ``chosen``: the table, view or query; ``names`` of all its columns; of the wanted ones, by their places, how they are
    selected and the names of their types."""

    chosen: str
    names: tuple[str, ...]
    selected: Mapping[int, str]
    kinds: Mapping[int, str]


@contextmanager
def transaction(location: Location) -> Iterator[PostgresqlTables]:
    """Yield the tables, in a transaction that writes nothing. Raises :class:`InputError` where anything fails."""
    location.only("a database", {"table", "grouped"})
    subject = f"{location.name} is of PostgreSQL, and reading it"
    driver, arrow = (import_extra(module, "postgresql", subject) for module in ("adbc_driver_postgresql.dbapi", "pyarrow"))
    try:
        connection = driver.connect(_with_timeout(location.database), _BUILT_IN_TYPES, autocommit=True)
    except driver.Error:
        raise InputError(
            f"{location.name} cannot be reached, or does not let this user in. Check the address, and that the server runs. "
            "Check the password where libpq looks for it, in ~/.pgpass, a file of services or PGPASSWORD."
        ) from None
    try:
        with closing(connection), closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for name, value in _SETTINGS.items():
                cursor.execute(f"SET LOCAL {name} = '{value}'")
            yield PostgresqlTables(cursor, location)
    # Arrow's where the server fails on a later row.
    except (driver.Error, arrow.ArrowException, OSError):
        which = "a table of it" if location.query is None else f"the query in {location.query}"
        raise InputError(
            f"{which} cannot be read from {location.name}. Check the query, what this user may read, and that it takes no more "
            f"than {MOST_SECONDS / 60:g} minutes."
        ) from None


def _with_timeout(address: str) -> str:
    if "connect_timeout" in address:
        return address
    return f"{address}{'&' if urlsplit(address).query else '?'}connect_timeout={_CONNECT_SECONDS}"


def _rows(cursor: Any, statement: str) -> list[tuple[Any, ...]]:
    cursor.execute(statement)
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _chosen(tables: list[tuple[Any, ...]], location: Location, column_names: Collection[str]) -> str:
    """The table or view that was named, or the only one with these columns, as a query names it."""
    named, hint = location.settings.get("table"), "#table=SCHEMA.NAME behind the address, or a query in a file, #query=FILE"
    if named is not None:
        same = [full for full, short, _ in tables if named in (full, short, full.replace('"', ""))]
        if len(same) == 1:
            return str(same[0])
        known = [full for full, _, _ in tables]
        many = f"{len(same)} tables" if same else "no table"
        raise InputError(f"{location.name} has {many} {named!r}{nearest(named, known)} that this user may read. Say {hint}.")
    needed = {plain_name(name) for name in column_names}
    fitting = [full for full, _, columns in tables if needed <= {plain_name(name) for name in (columns or "").split("\x1f")}]
    if len(fitting) != 1:
        many = f"{len(fitting)} tables" if fitting else f"none of the {count_of(len(tables), 'table')}"
        raise InputError(f"{many} of {location.name} have the columns of the study. Say which is meant, {hint}.")
    return str(fitting[0])


def _asked(cursor: Any, chosen: str, location: Location, column_names: Collection[str] | None) -> SelectedColumns:
    """``column_names``: all where none are named."""
    cursor.execute(f"SELECT * FROM {chosen} AS q LIMIT 0")  # noqa: S608
    described = [str(column[0]) for column in cursor.description]
    names, places = wanted_places(location.name, described, described if column_names is None else column_names)
    columns = [f"q.{quoted(described[place])}" for place in places]
    selection = ", ".join(map(_TYPE_OF.format, columns))
    kinds = _rows(cursor, f"SELECT {selection} FROM (SELECT 1) one LEFT JOIN {chosen} AS q ON false")[0] if columns else ()  # noqa: S608
    return SelectedColumns(
        chosen, names, dict(zip(places, map(_handed_over, columns, kinds), strict=True)), dict(zip(places, kinds, strict=True))
    )


def selected_rows(cursor: Any, selection: SelectedColumns, location: Location) -> Pieces:
    """All rows, a piece at a time."""
    listed = ", ".join(f"{column} AS c{place}" for place, column in selection.selected.items())
    cursor.execute(f"SELECT {listed} FROM {selection.chosen} AS q")  # noqa: S608
    row = 1
    for batch in cursor.fetch_record_batch():
        yield table_of(batch, selection, location, row)
        row += batch.num_rows
    if row == 1:
        yield Table(location.name, selection.names, (), lambda index: Cells(()))


def table_of(batch: Any, selection: SelectedColumns, location: Location, row: int) -> Table:
    """Rows from ``row`` on, of a batch of Arrow that begins with the selected columns."""
    cells = {place: _cells(batch.column(index)) for index, place in enumerate(selection.selected)}
    return Table(location.name, selection.names, range(row, row + batch.num_rows), cells.__getitem__)


def _handed_over(column: str, kind: str) -> str:
    """A column as it is selected: as floats, whole numbers, truth values, bytes, or a text of bounded length."""
    if kind in _AS_IT_IS:
        return column
    if kind in _DIGITS:
        number = f"{column}::numeric"
        return (
            f"CASE WHEN {number} = 'NaN' THEN NULL WHEN {number} > {_LARGEST} THEN 'Infinity'::float8 "
            f"WHEN {number} < -{_LARGEST} THEN '-Infinity'::float8 WHEN abs({number}) < {_SMALLEST} THEN 0 "
            f"ELSE {number}::float8 END"
        )
    if kind == "bytea":
        return f"substring({column}::bytea from 1 for {LONGEST_CELL})"
    text = f"left({column}::text, {LONGEST_CELL})"
    if kind == "date" or kind.startswith("timestamp"):
        # What cannot be a day is none that is written otherwise.
        return f"CASE WHEN NOT isfinite({column}) OR {column} < '0001-01-01' THEN '{STRANGE}' ELSE {text} END"
    return text


def compares(kind: str) -> bool:
    """Are these numbers, compared with floats as floats are? Whole numbers beyond 2^53 are rounded to the nearest float."""
    return kind in _NUMBERS or kind in _DIGITS


def is_text(kind: str) -> bool:
    """Is such a column handed over as a text?"""
    return not compares(kind) and kind not in _AS_IT_IS and kind != "bytea"


def _cells(column: Any) -> Cells:
    """The cells of a column of Arrow: each text once."""
    if not pyarrow.types.is_string(column.type):
        return Cells(cells_of(narwhals.from_native(pyarrow.chunked_array([column]), series_only=True)))
    once = column.dictionary_encode()
    texts = once.dictionary.to_pylist()
    return Cells([*texts, None], once.indices.fill_null(len(texts)).to_numpy())
