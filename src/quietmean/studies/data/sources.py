"""Assignment of the rows of a table to parties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.statistics import Columns
from quietmean.studies.data import Source, Table, location_of, read_columns, read_table, text_of_cell, values_of
from quietmean.studies.data.table import MOST_NAMED, where
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
    table = read_table(source, wanted, tell)
    values = values_of(table, columns, location_of(source), tell)
    if parties is None or party_column is not None:
        return _by_column(table, party_column or "", values, tell)
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


def _by_column(table: Table, party_column: str, values: NDArray[np.float64], tell: Tell) -> Parts:
    rows: dict[str, list[int]] = {}
    nobody: list[int] = []
    for row, cell in enumerate(table.column(party_column)):
        text = text_of_cell(cell)
        (nobody if text is None else rows.setdefault(text, [])).append(row)
    if nobody:
        is_in = "rows name no party and are" if len(nobody) > 1 else "row names no party and is"
        stand = where(table.word, [table.lines[row] for row in nobody[:MOST_NAMED]], len(nobody))
        tell(f"{table.place}, column {party_column!r}: {len(nobody)} {is_in} in nobody's records ({stand})")
    if len(rows) < 2:
        raise InputError(f"column {party_column!r} names {'only one' if rows else 'no'} party: at least 2 are needed")
    return sorted(rows), [values[rows[name]] for name in sorted(rows)]
