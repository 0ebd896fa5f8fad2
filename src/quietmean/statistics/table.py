"""Reading columns from CSV and Parquet files.

Whether a table is accepted depends on its structure (is it a table, has it the columns, how many rows) and never on its values: a
refusal would answer a question about them. No message here has a cell or a list of headings, which in a file without a heading
are cells.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.schema import nearest
from quietmean.statistics.columns import TRUTH, Column, Columns, is_number
from quietmean.statistics.transforms import Transform

_EMPTY = ["", "NA", "nan", "NaN", "null"]


def read_columns(path: Path, columns: Columns) -> NDArray[np.float64]:
    """The declared columns of all rows as floats, shape (rows, columns).

    Of numbers, NaN where a cell is empty, holds none or one of the codes for missing; dates as days since the public day. Of
    levels their places, NaN where a cell is missing and -1 where it holds none of the declared ones. Transforms are computed.
    Raises :class:`InputError` for a file that is no table or has no rows, and for a column that is absent or of a type that
    holds no numbers (Parquet). The error contains no cell.
    """
    frame = read_table(path)
    for column in columns:
        if not column.origin:
            require_column(frame, column.name, path)
    if not frame.height:
        raise InputError(f"{path.name} has no rows: a party needs at least one record")
    found: dict[str, NDArray[np.float64]] = {}
    for column in columns:
        found[column.name] = _transformed(column, columns, found) if column.origin else _cells(frame[column.name], column, path)
    return np.column_stack(list(found.values()))


def _cells(cells: pl.Series, column: Column, path: Path) -> NDArray[np.float64]:
    """The values of one column of the file, (rows,)."""
    if not column.numeric:
        return _as_levels(cells, column)
    values = _as_days(cells, column, path) if column.since else _as_numbers(cells, path)
    if column.missing_codes:
        values[_coded(cells, values, column).to_numpy()] = np.nan
    return values


def _transformed(column: Column, columns: Columns, found: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """The values of a transform, (rows,), from those of the columns before it; what is no level of these is missing."""
    transform = Transform(column.origin)
    sources = {
        name: found[name] if columns[name].numeric else np.where(found[name] < 0, np.nan, found[name])
        for name in transform.sources
    }
    return transform.values(sources)


def require_column(frame: pl.DataFrame, column: str, path: Path) -> None:
    """Raises :class:`InputError` if the table has no such column."""
    if column not in frame.columns:
        raise InputError(
            f"column {column!r} is not among the {frame.width} columns of {path.name}{nearest(column, frame.columns)}: check its "
            "name, and that the first row of the file holds the names of its columns"
        )


def _coded(cells: pl.Series, values: NDArray[np.float64], column: Column) -> pl.Series:
    """Which cells hold a code for missing, as a text or as the same number."""
    codes = [float(code) for code in column.missing_codes if is_number(code)]
    texts = cells.cast(pl.String, strict=False).str.strip_chars()
    return texts.is_in(column.missing_codes).fill_null(value=False) | pl.Series(np.isin(values, codes))


def _as_days(cells: pl.Series, column: Column, path: Path) -> NDArray[np.float64]:
    """Dates as days since the column's public day; NaN for what is none. Times of the day are left out."""
    if cells.dtype == pl.String:
        cells = cells.str.strip_chars().str.slice(0, len("YYYY-MM-DD")).str.to_date("%Y-%m-%d", strict=False)
    elif cells.dtype in (pl.Date, pl.Datetime):
        cells = cells.cast(pl.Date)
    elif cells.dtype != pl.Null:
        raise InputError(f"column {cells.name!r} of {path.name} is of type {cells.dtype}: choose a column of dates")
    since = (datetime.date.fromisoformat(column.since) - datetime.date(1970, 1, 1)).days
    days = cells.cast(pl.Int32, strict=False).cast(pl.Float64)
    return days.fill_null(np.nan).to_numpy().astype(np.float64) - since


def _as_numbers(cells: pl.Series, path: Path) -> NDArray[np.float64]:
    if cells.dtype == pl.String:
        cells = cells.str.strip_chars()
    elif not (cells.dtype.is_numeric() or cells.dtype == pl.Null):
        raise InputError(f"column {cells.name!r} of {path.name} is of type {cells.dtype}: choose a column of numbers")
    return cells.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().astype(np.float64)


def _as_levels(cells: pl.Series, column: Column) -> NDArray[np.float64]:
    texts = cells.cast(pl.String, strict=False).str.strip_chars()
    if column.boolean:
        known = {text: float(place) for place, level in enumerate(column.categories) for text in TRUTH[level]}
        texts = texts.str.to_lowercase()
    else:
        known = {level: float(place) for place, level in enumerate(column.levels)}
    # An empty text in a Parquet file is an empty cell, too.
    missing = texts.is_null() | texts.is_in([*_EMPTY, *column.missing_codes])
    found = texts.replace_strict(known, default=-1.0, return_dtype=pl.Float64).to_numpy().astype(np.float64)
    return np.where(missing.to_numpy(), np.nan, found)


def read_table(path: Path) -> pl.DataFrame:
    """A CSV (every column as text) or Parquet file, by its ending. Raises :class:`InputError` if it is missing or no table."""
    if path.is_dir():
        raise InputError(f"{path} is a folder and cannot be read as a table: give a CSV or Parquet file")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return pl.read_parquet(path)
        return pl.read_csv(path, infer_schema=False, encoding="utf8-lossy", null_values=_EMPTY)
    except FileNotFoundError:
        raise InputError(f"file {path} does not exist: check the path") from None
    except OSError as error:
        raise InputError(f"file {path} cannot be read ({error.strerror or 'an input error'}): check it") from None
    except pl.exceptions.PolarsError:
        # What the library says may quote a cell.
        raise InputError(
            f"file {path} cannot be read as a table: give a Parquet file, or a CSV file with equally many fields in all rows"
        ) from None
