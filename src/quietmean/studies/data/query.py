"""A query over any file: it is the only table, ``data``, of a DuckDB database in memory that reads nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.columnar import PARQUET
from quietmean.core.extras import import_extra
from quietmean.studies.data.cells import text_of_cell
from quietmean.studies.data.database import CLOSED, failing, in_time, query_of, quoted, selected
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import Cells, Pieces, Table

# Signs of a pattern in a path, as DuckDB has them.
_PATTERN = str.maketrans({sign: f"[{sign}]" for sign in "*?["})


def read_query(
    location: Location, kind: str, reader: Callable[[Location, Collection[str] | None], Pieces], column_names: Collection[str]
) -> Pieces:
    """The named columns of what the query says of a file of this ``kind``, whose ``reader`` reads all of its columns.

    A Parquet file is read by the database itself, with its types; of any other all cells are texts. Raises :class:`InputError` if
    the query cannot be computed, or its library is not there.
    """
    duckdb = import_extra("duckdb", "sql", f"a query over {location.name}")
    query = query_of(location)
    later = ("enable_external_access", "lock_configuration")
    config = {name: value for name, value in CLOSED.items() if name not in later}
    with failing(location, duckdb.Error), closing(duckdb.connect(config=config)) as base, in_time(base):
        if kind == PARQUET:
            path = str(location.path.absolute())
            as_read = path.translate(_PATTERN)
            # What is allowed is compared with the pattern, and with the file that it names.
            base.execute(f"SET allowed_paths = [{_literal(path)}, {_literal(as_read)}]")
        for name in later:
            base.execute(f"SET {name} = {CLOSED[name]}")
        if kind == PARQUET:
            source = f"read_parquet({_literal(as_read)}, hive_partitioning = false)"
            base.execute(f"CREATE VIEW data AS SELECT * FROM {source}")  # noqa: S608
        else:
            for piece in reader(location, None):
                _insert(base, piece)
        yield from selected(base, query, "duckdb", location, column_names)


def _insert(base: Any, piece: Table) -> None:
    """The rows of a piece, of which the first makes the table."""
    texts = {name: _texts(piece.take(index).distinct()) for index, name in enumerate(piece.names) if name}
    listed = ", ".join(f"{quoted(name)}::VARCHAR AS {quoted(name)}" for name in texts)
    base.register("piece", texts)
    base.execute(f"CREATE TABLE IF NOT EXISTS data AS SELECT {listed} FROM piece LIMIT 0")  # noqa: S608
    base.execute(f"INSERT INTO data SELECT {listed} FROM piece")  # noqa: S608
    base.unregister("piece")


def _texts(cells: Cells) -> NDArray[np.object_]:
    once: NDArray[np.object_] = np.array([text_of_cell(cell) for cell in cells.values], dtype=object)
    return cells.spread(once)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
