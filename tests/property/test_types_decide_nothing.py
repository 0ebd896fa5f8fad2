"""The type that a source has for a column decides nothing: each cell is read as the same value by itself, in every library."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import feather, parquet

from quietmean.statistics import Column, Columns
from quietmean.studies.data import read_columns
from support.odd_cells import read_files_in_this_process

# What a cell may be read as: of the second kind of levels several are one number, so that only their spelling tells them apart.
KINDS = [
    Column(name="x", low=0, high=110, missing_codes=("-9", "9999")),
    Column(name="x", boolean=True),
    Column(name="x", levels=("a", "1", "0", "1.5", "7", "0.1", "2001-05-06", "0.00001", "12:30:00"), missing_codes=("88",)),
    Column(name="x", levels=("1", "01", "1.0", "1.50", "1.5", "7.10", "7.1", "true", "2001-05-06 00:00:00", "12:30:00")),
    Column.model_validate({"name": "x", "low": "2001-01-01", "high": "2001-12-31", "missing_codes": ["1900-01-01"]}),
]
UTC = dt.UTC
WHOLE = [0, 1, 7, None, 88, 100]
FLOATS = [0.0, -0.0, 1.0, 1.5, 0.1, 7.1, np.nan, np.inf, -np.inf, 1e-5, 9999.0, -9.0]
DECIMALS = [Decimal("0"), Decimal("1"), Decimal("7"), None, Decimal("1.5"), Decimal("7.1")]
DAYS = [dt.date(2001, 5, 6), dt.date(1900, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)]
TIMES = [
    dt.datetime(2001, 5, 6),
    dt.datetime(1900, 1, 1),
    None,
    dt.datetime(2001, 5, 6, 23, 59, 59),
    dt.datetime(2001, 5, 6, 0, 30),
]
TEXTS = [
    "a", "1", "1.0", "01", "7.10", "61.5", "61,5", "1.234", "1,234", None, "", "nan", "true", "2001-05-06", "20010506", "-9",
    "2001-05-06 00:00:00", "-9.0", "88", "NA", "0.00001", "1e-05", "é",
]  # fmt: skip


def columns_of_types() -> Iterator[pa.Array]:
    """One of each type that programs write, with the values that it holds."""
    yield from (
        pa.array(WHOLE, kind()) for kind in (pa.int8, pa.int16, pa.int32, pa.int64, pa.uint8, pa.uint16, pa.uint32, pa.uint64)
    )
    yield pa.array([20010506, 19000101, None, 7, 2**53 + 1, -9999], pa.int64())
    yield pa.array([20010506, 19000101, None, 7], pa.int32())
    yield pa.array([20010506.0, 19000101.0, None, 7.0], pa.float64())
    yield pa.array([0, 1, 2**64 - 1, None], pa.uint64())
    yield from (pa.array(np.array(FLOATS, kind), from_pandas=False) for kind in (np.float16, np.float32, np.float64))
    yield pa.array([1.0, None, 1.5, 88.0], pa.float64())
    yield from (pa.array(DECIMALS, pa.decimal128(*size)) for size in ((5, 1), (5, 2), (38, 10)))
    yield pa.array([Decimal(one) for one in (0, 1, 7, 88)], pa.decimal128(38, 0))
    yield from (pa.array(DAYS, kind()) for kind in (pa.date32, pa.date64))
    for unit in ("s", "ms", "us", "ns"):
        yield pa.array(TIMES, pa.timestamp(unit))
        for zone in ("UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York"):
            yield pa.array([None if one is None else one.replace(tzinfo=UTC) for one in TIMES], pa.timestamp(unit, zone))
        yield pa.array([dt.timedelta(days=3), None, dt.timedelta(0)], pa.duration(unit))
    yield pa.array([dt.time(12, 30), None, dt.time(0)], pa.time64("us"))
    yield from (pa.array(TEXTS, kind()) for kind in (pa.string, pa.large_string))
    yield pa.array([*(None if one is None else one.encode() for one in TEXTS), b"\xe4", b"7\x00"], pa.binary())
    yield pa.array([True, False, None])
    yield pa.nulls(3)
    yield from (pa.array(cells).dictionary_encode() for cells in (TEXTS, WHOLE))
    yield pa.array([[1], [], None])


def read(source: Any) -> NDArray[np.float64]:
    """A column of each of KINDS."""
    return np.column_stack([read_columns(source, Columns([kind])).ravel() for kind in KINDS])


def of_objects(cells: list[Any]) -> pd.DataFrame:
    """Each cell by itself, in a column that has no type."""
    held = np.empty(len(cells), dtype=object)
    for row, cell in enumerate(cells):
        held[row] = cell
    return pd.DataFrame({"x": pd.Series(held, dtype=object)})


def sources(table: pa.Table, cells: list[Any], folder: Path) -> dict[str, Any]:
    """The same column as every library has it."""
    parquet.write_table(table, folder / "t.parquet")
    feather.write_feather(table, folder / "t.feather")
    return {
        "PyArrow": table,
        "one row": table.slice(len(table) - 1),
        "Polars": pl.from_arrow(table),
        "Polars, objects": pl.DataFrame({"x": pl.Series(cells, dtype=pl.Object)}),
        "pandas": table.to_pandas(),
        "pandas, Arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "Parquet": folder / "t.parquet",
        "Feather": folder / "t.feather",
    }


TYPES = list(columns_of_types())


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    read_files_in_this_process(monkeypatch)


@pytest.mark.sampled(18)
@pytest.mark.parametrize("cells", TYPES, ids=[f"{place} {one.type}" for place, one in enumerate(TYPES)])
def test_a_cell_is_read_as_it_is_by_itself(cells: pa.Array, tmp_path: Path) -> None:
    expected = read(of_objects(cells.to_pylist()))
    for name, source in sources(pa.table({"x": cells}), cells.to_pylist(), tmp_path).items():
        found = read(source)
        np.testing.assert_array_equal(found, expected[-len(found) :], err_msg=name)
