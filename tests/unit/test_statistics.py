"""Encoding records and reading tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from quietmean.core.domain import Box, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import ColumnMeans, read_columns
from quietmean.studies.sources import parties_of_table


def query(unit: PrivacyUnit = PrivacyUnit.RECORD) -> ColumnMeans:
    return ColumnMeans(("age", "weight"), Box(np.array([0.0, 40.0]), np.array([100.0, 140.0])), unit)


RECORDS = np.array([[50.0, 90.0], [0.0, 40.0], [100.0, 140.0], [30.0, 65.0]])


def test_record_unit_sums_and_counts() -> None:
    encoded = query().encode(RECORDS)
    assert encoded.weight == 4
    np.testing.assert_allclose(encoded.vector, [0.5 + 0 + 1 + 0.3, 0.5 + 0 + 1 + 0.25])
    np.testing.assert_allclose(query().decode(encoded.vector / encoded.weight), RECORDS.mean(axis=0))


def test_party_unit_means() -> None:
    encoded = query(PrivacyUnit.PARTY).encode(RECORDS)
    assert encoded.weight == 1
    np.testing.assert_allclose(query().decode(encoded.vector), RECORDS.mean(axis=0))


@pytest.mark.parametrize("unit", list(PrivacyUnit))
def test_sensitivity_bounds_every_replacement(unit: PrivacyUnit) -> None:
    one = query(unit)
    extreme = RECORDS.copy()
    extreme[0] = [0.0, 40.0]
    replaced = RECORDS.copy()
    replaced[0] = [100.0, 140.0]
    change = float(np.linalg.norm(one.encode(replaced).vector - one.encode(extreme).vector))
    assert change <= one.sensitivity + 1e-12
    if unit == PrivacyUnit.RECORD:
        assert change == pytest.approx(one.sensitivity)


def test_errors_scale_with_the_columns() -> None:
    np.testing.assert_allclose(query().decode_error(0.1), [10.0, 10.0])


def test_clipping_is_counted() -> None:
    wild = np.array([[-5.0, 90.0], [50.0, 200.0]])
    with pytest.raises(InputError, match=r"row 1, column 'age' is -5, outside"):
        query().encode(wild)
    encoded = query().encode(wild, clip=True)
    assert encoded.clipped == 2
    np.testing.assert_allclose(encoded.vector, [0.5, 1.5])


def test_empty_party_is_refused() -> None:
    with pytest.raises(InputError, match="no records"):
        query().encode(RECORDS[:0])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_reading_tables(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{ending}"
    table = pl.DataFrame({"age": [1.0, None, 3.0, 4.0], "weight": [50, 60, 70, 80], "who": list("aabb")})
    table.write_csv(path) if ending == "csv" else table.write_parquet(path)
    values, rows = read_columns(path, ["weight", "age"], missing="drop")
    np.testing.assert_allclose(values, [[50, 1], [70, 3], [80, 4]])
    assert rows.tolist() == [1, 3, 4]
    names, parts, kept = parties_of_table(path, ["weight"], None, "who", "refuse")
    assert names == ["a", "b"]
    np.testing.assert_allclose(parts[1], [[70], [80]])
    assert kept[1].tolist() == [3, 4]


def test_rows_are_dealt_out_evenly(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("x\n" + "\n".join(map(str, range(10))))
    _, parts, _ = parties_of_table(path, ["x"], 3, None, "refuse")
    assert [part[:, 0].tolist() for part in parts] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
