"""Data frames of pandas, Polars and PyArrow, and the files that these read: Parquet, Arrow, Feather.

The type of a column may follow from its cells, as where pandas infers it, so it decides nothing: each cell is read by itself.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.extras import command_for, import_extra, is_installed
from quietmean.studies.data.cells import STRANGE, is_empty
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import Cells, Table, heading_absent, plain_name, require_distinct

# Whole numbers below this one are floats, exactly.
_EXACT = 2**53
# Days since 1970 that Python's dates hold, and its spans of time.
_EPOCH = datetime.date(1970, 1, 1)
_FIRST, _LAST = (datetime.date.min - _EPOCH).days, (datetime.date.max - _EPOCH).days
_MOST_DAYS = datetime.timedelta.max.days - 1
_A_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}

# The names of all columns, and a frame of those that were asked for.
_Read: TypeAlias = tuple[Sequence[str], Any]


def read_columnar(location: Location, kind: str, wanted: Collection[str]) -> Table:
    """The ``wanted`` columns of a file of ``kind`` parquet or arrow; it may have others of any type.

    Raises :class:`InputError` if it cannot be read, or if no library for it is there.
    """
    location.only(f"a {kind.capitalize()} file", ())
    if not is_installed("narwhals") or not (is_installed("polars") or is_installed("pyarrow")):
        raise InputError(
            f"{location.name} is a {kind.capitalize()} file, and reading it needs the extra 'tables', which is not installed: "
            f"{command_for('tables')}"
        )
    names = {plain_name(name) for name in wanted}
    # Each knows types that the other does not.
    readers = [reader for library, reader in (("polars", _by_polars), ("pyarrow", _by_pyarrow)) if is_installed(library)]
    found = next(filter(None, (_anyway(partial(reader, location.path, kind, names)) for reader in readers)), None)
    if found is None:
        raise InputError(f"file {location.name} cannot be read as a table: it is a damaged {kind.capitalize()} file")
    heading, frame = found
    read = table_of_frame(frame, location.name)
    return Table(location.name, tuple(map(plain_name, heading)), read.lines, lambda place: read.column(heading[place]))


def table_of_frame(frame: Any, place: str = "the data frame") -> Table:
    """A data frame of any library that narwhals knows. Raises :class:`InputError` for anything else."""
    narwhals = import_extra("narwhals", "tables", "reading a data frame")
    try:
        known = narwhals.from_native(frame)
        known = known.collect() if isinstance(known, narwhals.LazyFrame) else known
        names = tuple(plain_name(name) for name in known.columns)
    except TypeError:
        raise InputError(
            f"data of type {type(frame).__name__} are no table: give a path, or a data frame of pandas, Polars or PyArrow"
        ) from None
    except narwhals.exceptions.DuplicateError:
        raise InputError(f"two columns of {place} have the same name: give each column a name of its own") from None
    return Table(place, names, range(1, len(known) + 1), lambda column: Cells(_cells(known[:, column], narwhals)))


def _cells(series: Any, narwhals: Any) -> Sequence[Any] | NDArray[np.float64]:
    kind = series.dtype
    if kind.is_float():
        return _floats(series, narwhals)
    if kind.is_integer():
        # A library may refuse a number that float64 cannot hold exactly.
        numbers: NDArray[np.float64] | None = _anyway(lambda: _floats(series, narwhals))
        if numbers is not None and np.all(np.isnan(numbers) | (np.abs(numbers) < _EXACT)):
            return numbers
    if isinstance(kind, narwhals.Date | narwhals.Datetime | narwhals.Duration):
        return _of_what_python_holds(series, kind, narwhals)
    return _objects(series)


def _floats(series: Any, narwhals: Any) -> NDArray[np.float64]:
    """As float64, (rows,), rounded to the nearest; NaN where one is missing."""
    return np.asarray(series.cast(narwhals.Float64).fill_null(float("nan")).to_numpy(), dtype=np.float64)


def _of_what_python_holds(series: Any, kind: Any, narwhals: Any) -> list[Any]:
    """Dates, times or spans of time; what stands in a file may be too far away for Python, and no library says so in one way."""
    dates = isinstance(kind, narwhals.Date)
    unit = 1 if dates else _A_DAY[kind.time_unit]
    first, last = (-_MOST_DAYS, _MOST_DAYS) if isinstance(kind, narwhals.Duration) else (_FIRST, _LAST)
    counts = _anyway(lambda: series.cast(narwhals.Int32 if dates else narwhals.Int64).to_list())
    if counts is None or all(is_empty(count) or first <= count // unit <= last for count in counts):
        return _objects(series)
    # Where nothing is, some have a number that stands for it.
    empty = series.is_null().to_list()
    there = [place for place, count in enumerate(counts) if not empty[place] and first <= count // unit <= last]
    cells = [None if nothing else STRANGE for nothing in empty]
    for place, cell in zip(there, _objects(series[there]), strict=True):
        cells[place] = cell
    return cells


def _objects(series: Any) -> list[Any]:
    """What each cell is. One that its library cannot hand over is strange, and none but that one: it is found by halving."""
    cells = _anyway(series.to_list)
    if cells is not None:
        return [None if is_empty(cell) else cell for cell in cells]
    if len(series) == 1:
        return [STRANGE]
    half = len(series) // 2
    return _objects(series[:half]) + _objects(series[half:])


def _anyway(call: Callable[[], Any]) -> Any:
    """What it returns, or None if it fails: a panic of Polars is no Exception."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, GeneratorExit, InputError):
        raise
    except BaseException:
        return None


def _by_polars(path: Path, kind: str, wanted: Collection[str]) -> _Read:
    import polars

    heading = list(polars.read_parquet_schema(path) if kind == "parquet" else polars.read_ipc_schema(path))
    columns = _chosen(heading, wanted, path.name)
    return heading, polars.read_parquet(path, columns=columns) if kind == "parquet" else polars.read_ipc(path, columns=columns)


def _by_pyarrow(path: Path, kind: str, wanted: Collection[str]) -> _Read:
    if kind == "parquet":
        from pyarrow import parquet

        heading = parquet.read_schema(path).names
        return heading, parquet.read_table(path, columns=_chosen(heading, wanted, path.name), partitioning=None)
    from pyarrow import feather, ipc

    with ipc.open_file(path) as file:
        heading = file.schema.names
    return heading, feather.read_table(path, columns=_chosen(heading, wanted, path.name))


def _chosen(heading: Sequence[str], wanted: Collection[str], place: str) -> list[str]:
    """Of all columns those that are ``wanted``. Raises :class:`InputError` if one is not there, or if two have one name."""
    names = tuple(map(plain_name, heading))
    if not set(wanted) <= set(names):
        raise heading_absent(place, wanted, names)
    require_distinct(place, names)
    return [name for name in heading if plain_name(name) in wanted]
