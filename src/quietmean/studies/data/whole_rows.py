"""Rows of a source over all of its columns, each as 128 bits: by what stands in them, whatever columns are called and whichever
program wrote them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.statistics import Columns
from quietmean.studies.data.cells import text_of_cell
from quietmean.studies.data.persons import DistinctPersons, Identities, identities_of
from quietmean.studies.data.reading import Source, read_all_columns
from quietmean.studies.data.table import Table


def whole_rows(source: Source, columns: Columns) -> tuple[Identities, int]:
    """The distinct rows, (distinct, 2), and how many there are in all; none of an array, which has no other columns.

    The order of columns makes no difference: the hash of a row is a sum over its cells.
    """
    if isinstance(source, np.ndarray):
        return np.empty((0, 2), dtype=np.uint64), 0
    distinct, rows = DistinctPersons(), 0
    for table in read_all_columns(source, [column.name for column in columns if not column.origin]):
        if table.height:
            distinct.add(_rows(table))
            rows += table.height
    return distinct.all(), rows


def _rows(table: Table) -> Identities:
    total: NDArray[np.uint64] = np.zeros((table.height, 2), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for place in (place for place, name in enumerate(table.names) if name):
            cells = table.take(place).distinct()
            # An empty cell adds nothing.
            total += cells.spread(identities_of(text_of_cell(cell) for cell in cells.values))
    return total
