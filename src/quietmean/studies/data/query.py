"""Queries: DuckDB computes them in an empty database over tables that the reader of their source has read.

No row decides about others (:mod:`~quietmean.studies.data.query_levels`), and no value ends one: a cell that cannot be computed
is missing, and a person whose rows are too many to be multiplied with each other is left out. No query has an order or a place
to read from but these tables.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.cells import LONGEST_CELL, plain_name
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra
from quietmean.core.readable import count_of
from quietmean.studies.data.cells import text_of_cell
from quietmean.studies.data.database import (
    CLOSED,
    Listed,
    Tables,
    behind_from,
    failing,
    in_time,
    not_row_by_row,
    pieces_of,
    quoted,
    selected,
)
from quietmean.studies.data.location import Location
from quietmean.studies.data.persons import identifier
from quietmean.studies.data.query_expressions import Field, Relation
from quietmean.studies.data.query_grammar import Node, Query, nodes_of
from quietmean.studies.data.query_levels import Levels
from quietmean.studies.data.table import Cells, Notify, Pieces, Table, heading_absent, require_distinct

# A person whose rows would be more than these, once they are multiplied with each other, is left out.
MOST_ROWS_OF_A_PERSON = 2**22


@dataclass
class _Loaded:
    """A table of the query: where it comes from, what it is called here, and its columns with their types."""

    listed: Listed
    sql: str
    columns: list[tuple[str, str]]
    # Of codes: the places of the columns of their key.
    key: tuple[int, ...] | None = None
    used: set[int] = field(default_factory=set)

    def called(self, place: int) -> str:
        """A column here: by its place, where a query is written anew."""
        return quoted(self.columns[place][0]) if self.sql == "data" else f"c{place}"


class CheckedQuery:
    """A query that was checked and waits for its rows, in an empty database ``base``.

    ``unit``: that of the study; None where either will do. Raises :class:`InputError` for one that is not on the list.
    """

    def __init__(self, base: Any, location: Location, tables: Tables, text: str, unit: PrivacyUnit | None) -> None:
        self._base, self._location, self._tables = base, location, tables
        self._query = Query("the view" if location.query is None else f"the query in {location.query}")
        self._node = self._query.parse(base, text)
        person, refused = location.mapping.person, None
        for by in [person] if unit == PrivacyUnit.PERSON else [""] if unit is not None or not person else [person, ""]:
            try:
                self._compile(by)
            except InputError as error:
                # Of two ways the first one is meant.
                refused = refused or error
            else:
                return
        raise refused or AssertionError

    def _compile(self, person: str) -> None:
        self._loaded: dict[str, _Loaded] = {}
        self._person = person
        self._levels = Levels(self._query, self._base, self._find, person)
        self.relation = self._levels.top(self._node)

    # --- tables -------------------------------------------------------------------------------------------------------

    def _find(self, schema: str, name: str) -> Relation | Node | None:
        listed = self._tables.find(schema, name)
        if listed is None:
            return None
        if listed.reason:
            raise not_row_by_row(f"{listed.reason} {listed.name!r}", self._tables.place)
        if listed.definition:
            return Query(f"the view {listed.name!r}").parse(self._base, listed.definition)
        loaded = self._loaded.get(f"{listed.schema}.{listed.name}") or self._made(listed)
        is_data = loaded.key is None
        fields = tuple(
            Field(column, f"c{place}", kind, is_data and self._is_person(column), (loaded.sql, place))
            for place, (column, kind) in enumerate(loaded.columns)
        )
        counted = {loaded.sql: 1} if is_data else {}
        key = None if loaded.key is None else frozenset(loaded.key)
        return Relation(loaded.sql, fields, is_data, Counter(counted), Counter(counted), key)

    def _is_person(self, column: str) -> bool:
        return bool(self._person) and column.casefold() == self._person.casefold()

    def _made(self, listed: Listed) -> _Loaded:
        """An empty table of these columns."""
        columns = self._tables.columns(listed)
        if columns is None:
            columns = [(name, "VARCHAR") for name in _named_in(self._node)]
        columns = [(name, "VARCHAR" if self._is_person(name) else kind) for name, kind in columns]
        loaded = _Loaded(listed, f"table_{len(self._loaded)}", columns, self._key_of(listed, columns))
        made = ", ".join(f"c{place} {kind}" for place, (_, kind) in enumerate(columns))
        self._base.execute(f"CREATE OR REPLACE TABLE {loaded.sql} ({made})")
        self._loaded[f"{listed.schema}.{listed.name}"] = loaded
        return loaded

    def _key_of(self, listed: Listed, columns: Sequence[tuple[str, str]]) -> tuple[int, ...] | None:
        for name, key in self._location.codes.items():
            if name.casefold() in (listed.name.casefold(), f"{listed.schema}.{listed.name}".casefold()):
                names = [column.casefold() for column, _ in columns]
                absent = [column for column in key if column.casefold() not in names]
                if absent:
                    raise heading_absent(f"the codes {name!r}", absent, tuple(column for column, _ in columns))
                return tuple(names.index(column.casefold()) for column in key)
        return None

    # --- rows ---------------------------------------------------------------------------------------------------------

    def load_codes(self) -> dict[str, str]:
        """Reads the tables of codes: the digest of each, by its name.

        Raises :class:`InputError` for a key that is there twice.
        """
        digests = {}
        for loaded in self._loaded.values():
            if loaded.key is None:
                continue
            self._load(loaded, set(loaded.key))
            key = ", ".join(f"c{place}" for place in loaded.key)
            there = " AND ".join(f"c{place} IS NOT NULL" for place in loaded.key)
            twice = f"SELECT 1 FROM {loaded.sql} WHERE {there} GROUP BY {key} HAVING count(*) > 1 LIMIT 1"  # noqa: S608
            if self._base.execute(twice).fetchone():
                names = ", ".join(loaded.columns[place][0] for place in loaded.key)
                raise InputError(f"two rows of the codes {loaded.listed.name!r} have the same {names}. Declare their whole key")
            digests[loaded.listed.name] = self._digest(loaded)
        return digests

    def _digest(self, loaded: _Loaded) -> str:
        """SHA-256 of the columns that are read, hexadecimal; the order of rows decides nothing."""
        cells = ", ".join(f"coalesce('=' || c{place}, '-')" for place in sorted(loaded.used))
        rows = self._base.execute(f"SELECT sha256(concat_ws(chr(31), {cells})) AS h FROM {loaded.sql} ORDER BY h")  # noqa: S608
        content = hashlib.sha256("\x1f".join(loaded.columns[place][0] for place in sorted(loaded.used)).encode())
        while some := rows.fetchmany(2**16):
            content.update("".join(row[0] for row in some).encode())
        return content.hexdigest()

    def load_data(self, tell: Notify) -> None:
        """Reads the tables of data; persons whose rows are too many are left out, and ``tell`` says so to the owner."""
        for loaded in self._loaded.values():
            if loaded.key is None:
                self._load(loaded, {place for place, (name, _) in enumerate(loaded.columns) if self._is_person(name)})
        for product in self._levels.products:
            left_out = self._leave_out(product)
            if left_out:
                have = count_of(left_out, "person has", "persons have")
                tell(f"{self._location.name}: {have} more than {MOST_ROWS_OF_A_PERSON} joined rows. They are left out")

    def _leave_out(self, product: Mapping[str, int]) -> int:
        places = {
            one.sql: [self._is_person(name) for name, _ in one.columns].index(True)
            for one in self._loaded.values()
            if one.sql in product
        }
        counts = [
            f"SELECT c{place} AS p, count(*) AS n, {product[sql]} AS k FROM {sql} GROUP BY p"  # noqa: S608
            for sql, place in places.items()
        ]
        self._base.execute(
            f"CREATE OR REPLACE TABLE left_out AS SELECT p FROM ({' UNION ALL '.join(counts)}) GROUP BY p "  # noqa: S608
            f"HAVING sum(k * log2(n)) > log2({MOST_ROWS_OF_A_PERSON}) + 1e-6"
        )
        for sql, place in places.items():
            self._base.execute(f"DELETE FROM {sql} WHERE c{place} IN (SELECT p FROM left_out)")  # noqa: S608
        return int(self._base.execute("SELECT count(*) FROM left_out").fetchone()[0])

    def _load(self, loaded: _Loaded, also: Collection[int]) -> None:
        """The columns that the query reads; of rows that name nobody nothing, where persons are the unit."""
        loaded.used |= {place for sql, place in self._levels.used if sql == loaded.sql} | set(also)
        # A table of which no column is needed has rows all the same.
        places = sorted(loaded.used) or [0]
        persons = [place for place in places if loaded.key is None and self._is_person(loaded.columns[place][0])]
        for piece in self._tables.pieces(loaded.listed, [loaded.columns[place][0] for place in places]):
            if piece.height:
                _insert(self._base, loaded, piece, places, persons)

    def pieces(self, column_names: Collection[str]) -> Pieces:
        """The named columns of what the query says. Raises :class:`InputError` where one is absent."""
        needed = {plain_name(name) for name in column_names}
        names = [plain_name(one.name) for one in self.relation.fields]
        # What is not asked for may stand there twice, as a join has it.
        require_distinct(self._location.name, [name if name in needed else "" for name in names])
        if not needed <= set(names):
            raise heading_absent(self._location.name, needed, tuple(names))
        names = [name if name in needed or names.count(name) == 1 else "" for name in names]
        places = {place: self.relation.fields[place].type for place, name in enumerate(names) if name in needed}
        yield from pieces_of(
            self._base,
            "duckdb",
            self.relation.sql,
            self._location,
            tuple(names),
            {place: (f"c{place}", kind) for place, kind in places.items()},
        )


def _cast(column: str, kind: str) -> str:
    """A text as the type that its column declares; nothing where it is none of it."""
    if kind == "VARCHAR":
        return f"{column}::VARCHAR"
    if kind == "BIGINT":
        # A number with decimals is not rounded.
        return f"CASE WHEN regexp_full_match(trim({column}), '[+-]?[0-9]+') THEN TRY_CAST({column} AS BIGINT) END"
    return f"TRY_CAST({column} AS {kind}){' + 0::DOUBLE' if kind == 'DOUBLE' else ''}"


def _texts(cells: Cells, of_persons: bool) -> NDArray[np.object_]:
    """Cells as texts that DuckDB holds; identifiers of persons in one spelling."""
    texts = map(text_of_cell, cells.values)
    once = np.array(
        [None if text is None else _held(text) for text in (map(identifier, texts) if of_persons else texts)], dtype=object
    )
    return cells.spread(once)


def _held(text: str) -> str:
    return text[:LONGEST_CELL].encode(errors="backslashreplace").decode().replace("\0", "\\0")


def _named_in(node: Node) -> list[str]:
    """The columns of a source that has whatever is asked for: names that no expression of the query has been given.

    A name in the expression that it is given to is a column, too.
    """
    given, named = set[str](), dict[str, str]()
    for one in nodes_of(node):
        if one.get("alias") and "class" in one:
            within = {str(part["column_names"][-1]).casefold() for part in nodes_of(one) if part.get("type") == "COLUMN_REF"}
            given |= {str(one["alias"]).casefold()} - within
    for one in nodes_of(node):
        if one.get("type") == "STAR":
            raise InputError("* cannot be said of JSON lines, which have no heading. Name the columns")
        if one.get("type") == "COLUMN_REF" and str(one["column_names"][-1]).casefold() not in given:
            named.setdefault(str(one["column_names"][-1]).casefold(), plain_name(one["column_names"][-1]))
    return list(named.values())


@contextmanager
def empty_database(location: Location, *, optimized: bool = False) -> Iterator[Any]:
    """A DuckDB database in memory that reaches nothing.

    Unless it is ``optimized``, plans do not follow from statistics of rows, and no order from how these are shared out. Raises
    :class:`InputError` where the library fails or is not there.
    """
    duckdb = import_extra("duckdb", "sql", f"a query over {location.name}")
    later = {name: CLOSED[name] for name in ("lock_configuration",)}
    config = {name: value for name, value in CLOSED.items() if name not in later}
    if not optimized:
        config["threads"] = "1"
    with failing(location, duckdb.Error), closing(duckdb.connect(config=config)) as base, in_time(base):
        if not optimized:
            base.execute("PRAGMA disable_optimizer")
        for name, value in later.items():
            base.execute(f"SET {name} = {value}")
        yield base


def read_query(
    location: Location, tables: Tables, text: str, column_names: Collection[str], unit: PrivacyUnit | None, tell: Notify
) -> Pieces:
    """The named columns of what a query says of these tables.

    ``unit``: that of the study, by whose rules it is checked; None where either will do. Raises :class:`InputError` for a query
    that is not on the list, and where a table cannot be read.
    """
    with empty_database(location) as base:
        checked = CheckedQuery(base, location, tables, text, unit)
        checked.load_codes()
        checked.load_data(tell)
        yield from checked.pieces(column_names)


def read_mixed(location: Location, tables: Tables, text: str, column_names: Collection[str]) -> Pieces:
    """What the query makes of the table ``data`` of a file, where its owner declares that it lets rows decide about others."""
    with empty_database(location, optimized=True) as base:
        (listed,) = tables.all()
        columns = tables.columns(listed)
        loaded = _Loaded(
            listed, "data", columns or [(name, "VARCHAR") for name in _named_in(Query("the query").parse(base, text))]
        )
        listed_columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in loaded.columns)
        base.execute(f"CREATE TABLE data ({listed_columns})")
        for piece in tables.pieces(listed, [name for name, _ in loaded.columns]):
            if piece.height:
                _insert(base, loaded, piece, range(len(loaded.columns)), ())
        yield from selected(base, behind_from(text), "duckdb", location, column_names)


def _insert(base: Any, loaded: _Loaded, piece: Table, places: Sequence[int], persons: Collection[int]) -> None:
    """The rows of a piece, in these columns; of rows that name nobody nothing."""
    names = [loaded.columns[place][0] for place in places]
    texts: dict[str, NDArray[np.object_]] = {
        f"c{place}": _texts(piece.take(piece.names.index(plain_name(name))).distinct(), place in persons)
        for place, name in zip(places, names, strict=True)
    }
    cells = ", ".join(_cast(f"c{place}", loaded.columns[place][1]) for place in places)
    nobody = f" WHERE {' AND '.join(f'c{place} IS NOT NULL' for place in persons)}" if persons else ""
    base.register("piece", texts)
    called = ", ".join(loaded.called(place) for place in places)
    base.execute(f"INSERT INTO {loaded.sql} ({called}) SELECT {cells} FROM piece{nobody}")  # noqa: S608
    base.unregister("piece")


def check_query(location: Location, tables: Tables, text: str, unit: PrivacyUnit) -> dict[str, str]:
    """The digests of the codes that a query joins, before any row of data is read. Raises :class:`InputError` as that does."""
    with empty_database(location) as base:
        return CheckedQuery(base, location, tables, text, unit).load_codes()
