"""Data frames of pandas, Polars and PyArrow, and the files that these read: Parquet, Arrow, Feather."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.extras import command_for, import_extra, is_installed
from quietmean.studies.data.cells import is_empty
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import Cells, Stored, Table, plain_name


def read_columnar(location: Location, kind: str) -> Table:
    """A file of ``kind`` parquet or arrow. Raises :class:`InputError` if it cannot be read, or if no library for it is there."""
    location.only(f"a {kind.capitalize()} file", ())
    if not is_installed("narwhals") or not (is_installed("polars") or is_installed("pyarrow")):
        raise InputError(
            f"{location.name} is a {kind.capitalize()} file, and reading it needs the extra 'tables', which is not installed: "
            f"{command_for('tables')}"
        )
    reader = _by_polars if is_installed("polars") else _by_pyarrow
    try:
        frame = reader(location.path, kind)
    # What the libraries say may quote a cell; a damaged file may raise anything.
    except Exception:
        raise InputError(f"file {location.name} cannot be read as a table: it is a damaged {kind.capitalize()} file") from None
    return table_of_frame(frame, location.name)


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
    return Table(place, names, range(1, len(known) + 1), lambda column: _cells(known[:, column], narwhals))


def _cells(series: Any, narwhals: Any) -> Cells:
    kind = series.dtype
    name = str(kind)
    if kind.is_numeric():
        return Cells(_numbers(series, narwhals), Stored.NUMBERS, name)
    if kind == narwhals.Boolean:
        return Cells(series.to_list(), Stored.TRUTH, name)
    if kind in (narwhals.Date, narwhals.Datetime):
        return Cells([None if is_empty(day) else day for day in series.to_list()], Stored.DATES, name)
    if kind in (narwhals.Categorical, narwhals.Enum):
        return Cells(series.cast(narwhals.String).to_list(), Stored.MIXED, name)
    if kind in (narwhals.String, narwhals.Object, narwhals.Unknown):
        # Also a column without a single value; pandas has NaN for missing among texts.
        return Cells([None if is_empty(cell) else cell for cell in series.to_list()], Stored.MIXED, name)
    return Cells(series.to_list(), Stored.OTHER, name)


def _numbers(series: Any, narwhals: Any) -> Any:
    """As float64, (rows,), rounded to the nearest; NaN where one is missing."""
    try:
        return np.asarray(series.cast(narwhals.Float64).fill_null(float("nan")).to_numpy(), dtype=np.float64)
    # A library may refuse a number that float64 cannot hold exactly, and quote it.
    except Exception:
        return np.array([math.nan if is_empty(cell) else float(cell) for cell in series.to_list()], dtype=np.float64)


def _by_polars(path: Path, kind: str) -> Any:
    import polars

    return polars.read_parquet(path) if kind == "parquet" else polars.read_ipc(path)


def _by_pyarrow(path: Path, kind: str) -> Any:
    if kind == "parquet":
        from pyarrow import parquet

        return parquet.read_table(path)
    from pyarrow import feather

    return feather.read_table(path)
