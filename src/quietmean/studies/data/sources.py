"""Assignment of the rows of a table to parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.assumptions import QueryStatement
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, named
from quietmean.core.readable import count_of
from quietmean.statistics import Columns
from quietmean.statistics.persons import Grouped, PersonRows, Persons, joined
from quietmean.studies.data.cells import text_of_cell
from quietmean.studies.data.persons import Identities, PersonReader, require_persons
from quietmean.studies.data.reading import (
    Declared,
    Source,
    location_of,
    query_statement,
    read_columns,
    read_person_rows,
    read_pieces,
)
from quietmean.studies.data.table import NoticedRows, Notify, Table

# Names, and the records of each: rows of shape (rows, columns), or of persons where these are the unit.
Parts = tuple[list[str], list[Any]]


def parties_of_table(
    source: Source,
    columns: Columns,
    parties: int | None,
    party_column: str | None,
    tell: Notify | None = None,
    persons: Persons | None = None,
) -> Parts:
    """Names and records of each party; the records have shape (rows, columns), as in :func:`read_columns`.

    ``party_column`` names each row's party, or the rows are dealt out evenly to so many ``parties``: row r to party r mod n, or
    person r. A row that names no party is in nobody's records. ``persons``: where they are the unit; by the site's mapping.
    ``tell`` gets sentences for the owner of the data. Raises :class:`InputError` unless exactly one of the two is given, for less
    than two parties, for more parties than rows or persons, for a column that cannot be read, and for a person at more parties
    than the study says.
    """
    if (parties is None) == (party_column is None):
        raise InputError(
            f"who holds which rows is not clear. Give either {named('parties', 'N')} or {named('party-column', 'NAME')}."
        )
    if parties is not None and parties < 2:
        have = "party has" if parties == 1 else "parties have"
        raise InputError(f"{parties} {have} nobody to compute with. Give at least 2 parties.")
    tell = tell or (lambda sentence: None)
    column_names = [column.name for column in columns if not column.origin] + ([party_column] if party_column else [])
    declared, belongs = Declared(columns, location_of(source)), _Parties(party_column or "")
    whose = _Whose(source, persons)

    def seen(table: Table) -> None:
        if party_column is not None:
            belongs.add(table)
        whose.add(table)

    values, table = declared.all_records(read_pieces(source, column_names, tell, whose.columns, whose.unit), tell, seen)
    declared.require_readable(table.place)
    whose.tell(table, tell)
    if parties is None:
        names, all_rows = belongs.parts(table, tell)
        whose.require_few_sites(all_rows)
    else:
        all_rows = whose.dealt_out(len(values), parties)
        names = _names(parties)
    return names, [whose.part(values, rows) for rows in all_rows]


def parties_of_data(
    data: Any,
    columns: Columns,
    parties: int | None,
    party_column: str | None,
    tell: Notify | None = None,
    persons: Persons | None = None,
) -> Parts:
    """Return names and records of each party from one table (:func:`parties_of_table`), or one for each party.

    Those are a list, or by the parties' names.

    Raises :class:`InputError` for less than two parties, and for a choice of parties beside several tables.
    """
    if not isinstance(data, list | tuple | Mapping):
        return parties_of_table(data, columns, parties, party_column, tell, persons)
    if parties is not None or party_column is not None:
        kind = "dict" if isinstance(data, Mapping) else "list"
        raise InputError(f"a {kind} has one table for each party. Leave out parties and party_column, or give one table.")
    if not isinstance(data, Mapping):
        return _names(len(data)), _parts_of_tables(data, columns, tell, persons)
    for name, table in data.items():
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"{name!r} is not a name of a party. Give a dict with one table for each party, by its name.")
        if isinstance(table, list | tuple | np.ndarray):
            raise InputError(
                f"{name!r} is not a table. Give a dict with one table for each party, by its name; columns make a data frame."
            )
    return list(data), _parts_of_tables(list(data.values()), columns, tell, persons)


def query_of_data(data: Any, columns: Columns, unit: PrivacyUnit) -> QueryStatement:
    """What the owners of all these declare of their queries. Raises :class:`InputError` as :func:`query_statement` does."""
    sources = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, list | tuple) else [data]
    said = [query_statement(source, columns, unit) for source in sources]
    codes = {digest for one in said for digest in one.codes}
    return QueryStatement(any(one.mixes_rows for one in said), tuple(sorted(codes)))


def _parts_of_tables(sources: Sequence[Source], columns: Columns, tell: Notify | None, persons: Persons | None) -> list[Any]:
    if len(sources) < 2:
        raise InputError(f"{len(sources)} party has nobody to compute with. Give at least 2 tables.")
    tell = tell or (lambda sentence: None)
    if persons is None:
        return [read_columns(source, columns, tell) for source in sources]
    parts = []
    for source in sources:
        require_persons(location_of(source), persons.rows)
        pieces = read_person_rows(source, columns, tell, persons.rows)
        parts.append(_of_persons(joined([PersonRows.none(len(columns)), *pieces]), persons))
    return parts


def _names(parties: int) -> list[str]:
    width = len(str(parties - 1))
    return [f"party {party:0{width}d}" for party in range(parties)]


def _of_persons(rows: PersonRows, persons: Persons) -> Grouped:
    """The rows without those of nobody."""
    return rows.chosen(persons.rows)


class _Whose:
    """Whose each row of one table is, where persons are the unit."""

    def __init__(self, source: Source, persons: Persons | None) -> None:
        self._persons, self._name = persons, location_of(source).name
        self._reader = PersonReader(location_of(source))
        self._identities: list[Identities] = [np.empty((0, 2), dtype=np.uint64)]
        self._days: list[Array] = [np.empty(0)]
        if persons is not None:
            require_persons(location_of(source), persons.rows)

    @property
    def columns(self) -> list[str]:
        return [] if self._persons is None else self._reader.columns

    @property
    def unit(self) -> PrivacyUnit:
        return PrivacyUnit.RECORD if self._persons is None else PrivacyUnit.PERSON

    def add(self, table: Table) -> None:
        if self._persons is not None and table.height:
            self._identities.append(self._reader.identities(table))
            self._days.append(self._reader.days(table))

    def tell(self, table: Table, tell: Notify) -> None:
        if self._persons is not None:
            self._reader.tell(table.place, table.word, tell, self._persons.rows)

    def dealt_out(self, rows: int, parties: int) -> list[NDArray[np.intp]]:
        """The rows of each party. Raises :class:`InputError` for more parties than rows, or than persons."""
        places, units, nouns = np.arange(rows), rows, ("row", "rows")
        if self._persons is not None:
            places, units = self._numbers()
            nouns = "person", "persons"
        if units < parties:
            have, remedy = count_of(units, *nouns), f"Choose at most {units} parties."
            if units < 2:
                remedy = f"Give a file with more {nouns[1]}."
            raise InputError(f"{have} of {self._name} cannot be split over {parties} parties. {remedy}")
        return [np.flatnonzero((places % parties == party) & (places >= 0)) for party in range(parties)]

    def require_few_sites(self, all_rows: Sequence[NDArray[np.intp]]) -> None:
        if self._persons is None:
            return
        places, persons = self._numbers()
        sites = np.zeros(persons, dtype=np.int64)
        for rows in all_rows:
            mine = np.unique(places[rows])
            sites[mine[mine >= 0]] += 1
        if sites.max(initial=0) > self._persons.sites:
            raise InputError(
                f"a person has rows at more parties than sites_per_person = {self._persons.sites} says. State how many there can "
                "be, so that as much noise is added as that needs."
            )

    def part(self, values: Array, rows: NDArray[np.intp]) -> Array | Grouped:
        if self._persons is None:
            return values[rows]
        identities, days = np.vstack(self._identities), np.concatenate(self._days)
        return _of_persons(PersonRows(values[rows], identities[rows], days[rows]), self._persons)

    def _numbers(self) -> tuple[NDArray[np.intp], int]:
        """Return the number of each row's person, -1 for nobody; and how many persons there are."""
        identities = np.vstack(self._identities)
        _, places = np.unique(identities, axis=0, return_inverse=True)
        somebody = identities.any(axis=1)
        _, numbered = np.unique(places[somebody], return_inverse=True)
        numbers = np.full(len(identities), -1, dtype=np.intp)
        numbers[somebody] = numbered
        return numbers, int(numbered.max(initial=-1)) + 1


class _Parties:
    """Which rows belong to which party, from the pieces of a table."""

    def __init__(self, party_column: str) -> None:
        self._column = party_column
        self._rows: dict[str, list[int]] = {}
        self._seen, self._nobodys = 0, NoticedRows()

    def add(self, table: Table) -> None:
        once = table.column(self._column).distinct()
        texts = [text_of_cell(cell) for cell in once.values]
        for row in range(table.height):
            text = texts[row if once.codes is None else once.codes[row]]
            if text is not None:
                self._rows.setdefault(text, []).append(self._seen + row)
                continue
            self._nobodys.add(table.lines, [row])
        self._seen += table.height

    def parts(self, table: Table, tell: Notify) -> tuple[list[str], list[NDArray[np.intp]]]:
        """Their names, and the rows of each. Raises :class:`InputError` for less than two parties."""
        if many := self._nobodys.count:
            is_in = "rows name no party and are" if many > 1 else "row names no party and is"
            stand = self._nobodys.where(table.word)
            tell(f"{table.place}, column {self._column!r}: {many} {is_in} in nobody's records ({stand})")
        if len(self._rows) < 2:
            raise InputError(f"column {self._column!r} names {'only one' if self._rows else 'no'} party. Name at least 2.")
        return sorted(self._rows), [np.array(self._rows[name], dtype=np.intp) for name in sorted(self._rows)]
