"""Reading numeric columns from CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from quietmean.core.errors import InputError


def read_columns(path: Path, columns: Sequence[str], *, missing: str = "refuse") -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The named columns as floats, shape (rows, columns), and each row's number in the file, from 1 (the first row of data).

    ``missing`` is ``refuse`` (an empty or NaN cell is an error) or ``drop`` (its whole row is left out). Raises
    :class:`InputError` for a column that is absent or not numeric, for a refused cell, and if no row is left.
    """
    frame = read_table(path)
    absent = [column for column in columns if column not in frame.columns]
    if absent:
        raise InputError(f"column {absent[0]!r} is not in {path.name}: it has {', '.join(frame.columns[:20])}")
    for column in columns:
        if not frame.schema[column].is_numeric():
            raise InputError(
                f"column {column!r} of {path.name} is not numeric ({frame.schema[column]}): choose a column of numbers"
            )
    values = frame.select(pl.col(column).cast(pl.Float64) for column in columns).to_numpy().astype(np.float64)
    rows = np.arange(1, len(values) + 1)
    bad = ~np.isfinite(values)
    if bad.any() and missing != "drop":
        row, column_index = (int(index[0]) for index in np.nonzero(bad))
        raise InputError(
            f"row {row + 1}, column {columns[column_index]!r} of {path.name} is {values[row, column_index]:g}, no finite number: "
            "mend it or pass --missing drop"
        )
    keep = ~bad.any(axis=1)
    if not keep.any():
        raise InputError(f"{path.name} has no complete row of numbers in {', '.join(columns)}: nothing to average")
    return values[keep], rows[keep]


def read_table(path: Path) -> pl.DataFrame:
    """A CSV or Parquet file, by its ending. Raises :class:`InputError` if it is missing or cannot be read."""
    if path.is_dir():
        raise InputError(f"{path} is a folder and cannot be read as a table: give a CSV or Parquet file")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return pl.read_parquet(path)
        return pl.read_csv(path, infer_schema_length=None, null_values=["", "NA", "nan", "NaN", "null"])
    except FileNotFoundError:
        raise InputError(f"file {path} does not exist: check the path") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"file {path} cannot be read as a table ({reason}): give a CSV or Parquet file") from None
