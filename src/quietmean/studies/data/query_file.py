"""The one table, ``data``, that a file is for a query: all cells are texts, but in Parquet, which declares types."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing

from quietmean.core.cells import plain_name
from quietmean.core.columnar import PARQUET
from quietmean.core.extras import import_extra
from quietmean.studies.data.database import CLOSED, Listed, Tables, failing, literal, type_declared
from quietmean.studies.data.location import Location
from quietmean.studies.data.query import read_mixed
from quietmean.studies.data.table import Pieces

# Signs of a pattern in a path, as DuckDB has them.
_PATTERN = str.maketrans({sign: f"[{sign}]" for sign in "*?["})


class FileTables(Tables):
    """The table of a file of this ``kind``, whose ``reader`` reads the named columns, or all."""

    def __init__(self, location: Location, kind: str, reader: Callable[[Location, Collection[str] | None], Pieces]) -> None:
        self._location, self._kind, self._reader = location, kind, reader
        self.place = location.name

    def all(self) -> Collection[Listed]:
        return [Listed("main", "data")]

    def columns(self, table: Listed) -> list[tuple[str, str]] | None:
        if self._location.has_json_lines and not self._kind:
            return None
        pieces = self._reader(self._location, None)
        names = [name for name in next(pieces).names if name]
        del pieces
        types = _types_of_parquet(self._location) if self._kind == PARQUET else {}
        return [(name, types.get(name, "VARCHAR")) for name in names]

    def pieces(self, table: Listed, column_names: Collection[str]) -> Pieces:
        return self._reader(self._location, column_names)

    def chosen(self, column_names: Collection[str]) -> Listed:
        return Listed("main", "data")

    def selected(self, query: str, column_names: Collection[str]) -> Pieces:
        return read_mixed(self._location, self, query, column_names)


def _types_of_parquet(location: Location) -> dict[str, str]:
    """As the file declares them; of one that the database cannot open none, so that all cells are texts."""
    duckdb = import_extra("duckdb", "sql", f"a query over {location.name}")
    path = str(location.path.absolute())
    with failing(location, duckdb.Error), closing(duckdb.connect()) as base:
        as_read = literal(path.translate(_PATTERN))
        # What is allowed is compared with the pattern, and with the file that it names.
        base.execute(f"SET allowed_paths = [{literal(path)}, {as_read}]")
        for name in ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access"):
            base.execute(f"SET {name} = {CLOSED[name]}")
        described = base.execute(f"DESCRIBE SELECT * FROM read_parquet({as_read}, hive_partitioning = false)").fetchall()  # noqa: S608
    return {plain_name(row[0]): type_declared(str(row[1])) for row in described}
