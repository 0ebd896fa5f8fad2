"""Assignment of the rows of a table to parties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.statistics import Columns
from quietmean.studies.data.cells import text_of_cell
from quietmean.studies.data.reading import Declared, Source, location_of, read_columns, read_pieces
from quietmean.studies.data.table import MOST_NAMED, Table, where
from quietmean.studies.data.text import Tell

Parts = tuple[list[str], list[NDArray[np.float64]]]


def parties_of_table(
    source: Source, columns: Columns, parties: int | None, party_column: str | None, tell: Tell | None = None
) -> Parts:
    """Names and records of each party; the records have shape (rows, columns), as in :func:`read_columns`.

    ``party_column`` names each row's party, or the rows are dealt out evenly to so many ``parties``: row r to party r mod n.
    A row that names no party is in nobody's records. ``tell`` gets sentences for the owner of the data. Raises
    :class:`InputError` unless exactly one of the two is given, and for less than two parties or more parties than rows.
    """
    if (parties is None) == (party_column is None):
        raise InputError("who holds which rows is not clear: give either --parties N or --party-column NAME")
    if parties is not None and parties < 2:
        have = "party has" if parties == 1 else "parties have"
        raise InputError(f"{parties} {have} nobody to compute with: at least 2 parties are needed")
    tell = tell or (lambda sentence: None)
    wanted = [column.name for column in columns if not column.origin] + ([party_column] if party_column else [])
    declared, belongs = Declared(columns, location_of(source)), _Parties(party_column or "")
    seen = belongs.add if party_column is not None else (lambda table: None)
    values, table = declared.all_records(read_pieces(source, wanted, tell), tell, seen)
    if parties is None:
        return belongs.parts(values, table, tell)
    if len(values) < parties:
        raise InputError(f"{len(values)} rows cannot be split over {parties} parties: choose at most {len(values)} parties")
    width = len(str(parties - 1))
    names = [f"party {party:0{width}d}" for party in range(parties)]
    return names, [values[party::parties] for party in range(parties)]


def parties_of_tables(sources: Sequence[Source], columns: Columns, tell: Tell | None = None) -> Parts:
    """The same from one table for each party. Raises :class:`InputError` for less than two."""
    if len(sources) < 2:
        raise InputError(f"{len(sources)} party has nobody to compute with: give at least 2 tables")
    width = len(str(len(sources) - 1))
    names = [f"party {party:0{width}d}" for party in range(len(sources))]
    return names, [read_columns(source, columns, tell or (lambda sentence: None)) for source in sources]


class _Parties:
    """Which rows belong to which party, from the pieces of a table."""

    def __init__(self, party_column: str) -> None:
        self._column = party_column
        self._rows: dict[str, list[int]] = {}
        self._seen = self._nobodys = 0
        # Where the first rows of nobody stand.
        self._lines: list[int] = []

    def add(self, table: Table) -> None:
        once = table.column(self._column).distinct()
        texts = [text_of_cell(cell) for cell in once.values]
        for row in range(table.height):
            text = texts[row if once.codes is None else once.codes[row]]
            if text is not None:
                self._rows.setdefault(text, []).append(self._seen + row)
                continue
            self._nobodys += 1
            if len(self._lines) < MOST_NAMED:
                self._lines.append(table.lines[row])
        self._seen += table.height

    def parts(self, values: NDArray[np.float64], table: Table, tell: Tell) -> Parts:
        """The parts of all records. Raises :class:`InputError` for less than two parties."""
        if self._nobodys:
            is_in = "rows name no party and are" if self._nobodys > 1 else "row names no party and is"
            stand = where(table.word, self._lines, self._nobodys)
            tell(f"{table.place}, column {self._column!r}: {self._nobodys} {is_in} in nobody's records ({stand})")
        if len(self._rows) < 2:
            raise InputError(f"column {self._column!r} names {'only one' if self._rows else 'no'} party: at least 2 are needed")
        return sorted(self._rows), [values[self._rows[name]] for name in sorted(self._rows)]
