"""What kind of file a source is, by its first bytes, and the reader for it; of JSON lines, which have no header, by its name."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from quietmean.core.cells import plain_name
from quietmean.core.columnar import ARROW, PARQUET
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra, loaded
from quietmean.core.file_kinds import FileKind, kind_of_file, refuse_other
from quietmean.core.foreign import KINDS as FOREIGN
from quietmean.studies.data.database import CLOSED, Listed, Tables, failing, literal, open_database, query_of, type_declared
from quietmean.studies.data.isolated import read_columnar, read_foreign, read_workbook
from quietmean.studies.data.location import Location, is_plain
from quietmean.studies.data.table import MOST_UNPACKED, Notify, Pieces
from quietmean.studies.data.text_files import read_delimited, read_json_lines

if TYPE_CHECKING:
    from quietmean.studies.data import postgresql
    from quietmean.studies.data import query as queries
else:
    from quietmean.core.lazy import LazyModule

    # Most sources are files without a query.
    postgresql, queries = map(LazyModule, ["quietmean.studies.data.postgresql", "quietmean.studies.data.query"])

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
        return queries.read_mixed(self._location, self, query, column_names)


def _types_of_parquet(location: Location) -> dict[str, str]:
    """The types that a file declares; of one that the database cannot open none, so that all cells are texts."""
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


# A reader of a file: of the wanted columns, or of all where none are named.
Reader: TypeAlias = Callable[[Location, Collection[str] | None], Pieces]

_SQLITE: Final = "sqlite"
_DUCKDB: Final = "duckdb"
_WORKBOOK: Final = "workbook"
_BZIP2, _XZ, _ZIP, _ODS = "compressed by bzip2", "compressed by xz", "a zip archive", "a table of OpenDocument"
# The first bytes of some kinds of files, whatever their names.
_BEGINNINGS = {
    b"SQLite format 3\0": _SQLITE,
    b"PAR1": PARQUET,
    b"ARROW1": ARROW,
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": _WORKBOOK,
    b"BZh91AY&SY": _BZIP2,
    b"\xfd7zXZ\0": _XZ,
    b"PK\x03\x04": _ZIP,
    **FOREIGN,
}
# What to do with a file that only a reader of another distribution reads.
_REMEDIES = dict.fromkeys((_BZIP2, _XZ, _ZIP), "Unpack it, and give the table in it") | {_ODS: "Save it as .xlsx, or as CSV"}
_DUCKDB_MARK, _DUCKDB_VERSION = slice(8, 12), slice(12, 20)
# Bytes of a file that are read to see what it is.
_LOOK = 4096
# Endings of binary files; one with other first bytes is damaged.
_BINARY = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".feather": "Feather",
    ".arrow": "Arrow",
    ".xlsx": "Excel",
    ".sav": "SPSS",
    ".dta": "Stata",
    ".sas7bdat": "SAS",
    ".xpt": "SAS",
}
# Endings of workbooks that are archives.
_WORKBOOKS = {".xlsx", ".xlsm", ".xlsb"}


def read_file(
    location: Location, column_names: Collection[str], tell: Notify, unit: PrivacyUnit | None = PrivacyUnit.RECORD
) -> Pieces:
    """The named columns of a file with settings, piece by piece.

    ``unit``: that of the study, by whose rules a query or view is checked; None where either will do. Raises :class:`InputError`
    where it cannot be read, for a column that is absent, for a query or view that is not on the list, and for a file that changes
    meanwhile.
    """
    with _opened(location, tell) as tables:
        query = _query(location, tables, column_names)
        if query and not location.mixes_rows:
            yield from queries.read_query(location, tables, query, column_names, unit, tell)
        elif written := query_of(location):
            yield from tables.selected(written, column_names)
        else:
            yield from tables.pieces(tables.chosen(column_names), column_names)


def digests_of_codes(location: Location, column_names: Collection[str], unit: PrivacyUnit) -> dict[str, str]:
    """Return the digest of each table of codes that a query joins, by its name; no row of data is read.

    Raises :class:`InputError` as :func:`read_file` does.
    """
    with _opened(location, lambda sentence: None) as tables:
        query = _query(location, tables, column_names)
        return queries.check_query(location, tables, query, unit) if query and not location.mixes_rows else {}


def _query(location: Location, tables: Tables, column_names: Collection[str]) -> str:
    """Return what is to be computed: the query that was named, or the view that was chosen; nothing where a table is read."""
    if query := query_of(location):
        return query
    chosen = tables.chosen(column_names)
    return "" if chosen.is_table else f"SELECT * FROM {chosen.called}"  # noqa: S608


@contextmanager
def _opened(location: Location, tell: Notify) -> Iterator[Tables]:
    """Yield the tables of a source.

    Raises :class:`InputError` where it cannot be read, and for a file that changes meanwhile.
    """
    if location.database:
        with postgresql.transaction(location) as tables:
            yield tables
        return
    if location.path.is_dir():
        raise InputError(f"{location.path} is a folder and cannot be read as a table. Give a file.")
    try:
        if not is_plain(location.path):
            raise InputError(f"{location.path} is a pipe or a device and cannot be read as a table. Give a file.")
        before = state_of(location.path)
        kind = "" if location.has_json_lines else _kind_of(location.path)
        if kind in (_SQLITE, _DUCKDB):
            # A database itself reads from one point in time.
            with open_database(location, kind) as base:
                yield base
            return
        reader = _reader(location, kind, tell)
        yield FileTables(location, kind, reader)
        if state_of(location.path) != before:
            raise InputError(f"{location.name} was changed while it was read. Wait until its program has written all of it.")
    except InputError:
        # Only now: what a row of a table has in it decides nothing.
        refuse_other(kind_of_file(location.path), f"file {location.path}", FileKind.DATA)
        raise
    except FileNotFoundError:
        raise InputError(f"file {location.path} does not exist. Check the path.") from None
    except OSError as error:
        raise InputError(f"file {location.path} cannot be read ({error.strerror or 'an input error'}). Check it.") from None


def state_of(path: Path) -> tuple[int, int, int]:
    """A state of a file that differs once it was written to or replaced."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _kind_of(path: Path) -> str:
    """By what it begins with; of a text, whose header begins anyhow, nothing. Raises :class:`InputError` for a damaged file."""
    with path.open("rb") as file:
        first = file.read(_LOOK)
    # In a heading, a text may have these letters there, but no zero byte of a number behind them.
    if first[_DUCKDB_MARK] == b"DUCK" and b"\0" in first[_DUCKDB_VERSION].ljust(8, b"\0"):
        return _DUCKDB
    for beginning, kind in _BEGINNINGS.items():
        if first.startswith(beginning):
            return _kind_of_archive(path) if kind == _ZIP else kind
    binary = _BINARY.get(path.suffix.lower())
    if binary is not None and b"\0" in first:
        raise InputError(f"file {path.name} cannot be read as a table: it is damaged or not a {binary} file. Export it again.")
    return ""


def _reader(location: Location, kind: str, tell: Notify) -> Reader:
    """Return the reader of a file of this kind. Raises :class:`InputError` where there is none."""
    if kind in (PARQUET, ARROW):
        return partial(read_columnar, kind=kind)
    if kind in FOREIGN.values():
        return partial(read_foreign, kind=kind)
    if kind == _WORKBOOK:
        return read_workbook
    name = location.path.name
    if added := next((reader for ending, reader in _added_readers().items() if name.lower().endswith(f".{ending}")), None):
        return added
    if kind in _REMEDIES:
        raise InputError(f"{name} is {kind}. {_REMEDIES[kind]}, or install a package that adds a reader of files that end so.")
    return partial(read_json_lines if location.has_json_lines else read_delimited, tell=tell)


@cache
def _added_readers() -> dict[str, Reader]:
    """Return the readers of other distributions, by the endings of files. Raises :class:`InputError` for one that is damaged."""
    return {entry.name.lower(): loaded(entry, "reader") for entry in entry_points(group="quietmean.readers")}


def _kind_of_archive(path: Path) -> str:
    """Return what a zip archive is. Raises :class:`InputError` for a workbook that is too large."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = set(archive.namelist())
            size = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        # A file that was cut off: the reader of what it is called reports it.
        return _WORKBOOK if path.suffix.lower() in _WORKBOOKS else _ZIP
    if not any(name.startswith("xl/") for name in inside):
        return _ODS if "content.xml" in inside else _ZIP
    if size > MOST_UNPACKED:
        raise InputError(
            f"{path.name} unpacks to more than {MOST_UNPACKED >> 30} GiB, the most that is read of a workbook. Save the table as "
            "CSV."
        )
    return _WORKBOOK
