"""Assignment of the rows of a table to parties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.statistics import Columns
from quietmean.statistics.table import read_columns, read_table, require_column

Parts = tuple[list[str], list[NDArray[np.float64]]]


def parties_of_table(path: Path, columns: Columns, parties: int | None, party_column: str | None) -> Parts:
    """Names and records of each party; the records have shape (rows, columns), as in :func:`read_columns`.

    ``party_column`` names each row's party, or the rows are dealt out evenly to so many ``parties``: row r to party r mod n.
    Raises :class:`InputError` unless exactly one of the two is given, and for less than two parties or more parties than rows.
    """
    if (parties is None) == (party_column is None):
        raise InputError("who holds which rows is not clear: give either --parties N or --party-column NAME")
    values = read_columns(path, columns)
    if party_column is not None:
        return _by_column(path, party_column, values)
    if parties is None or parties < 2:
        raise InputError(f"{parties} party has nobody to compute with: at least 2 parties are needed")
    if len(values) < parties:
        raise InputError(f"{len(values)} rows cannot be split over {parties} parties: choose at most {len(values)} parties")
    width = len(str(parties - 1))
    names = [f"party {party:0{width}d}" for party in range(parties)]
    return names, [values[party::parties] for party in range(parties)]


def _by_column(path: Path, party_column: str, values: NDArray[np.float64]) -> Parts:
    table = read_table(path)
    require_column(table, party_column, path)
    holder = np.array([str(name) for name in table[party_column].to_list()])
    names = sorted(set(holder.tolist()))
    if len(names) < 2:
        raise InputError(f"column {party_column!r} names only one party: at least 2 are needed")
    return names, [values[holder == name] for name in names]
