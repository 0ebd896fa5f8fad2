"""Whatever cells a table has, the groups that an engine counts of it are its rows, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import support.postgresql
from quietmean.studies.data import read_columns
from quietmean.studies.data.grouped import records_of
from quietmean.studies.data.isolated import GroupedFrame
from support.engines import spark_session
from support.odd_cells import CELLS, COLUMNS, USUAL, arrow_table
from support.workloads import workload_of

TABLES, SOME = 300, 8
STEP = 2.0**-20
TEXTS = (
    "mean(age)",
    "histogram(age, edges=0 7.25 40 61.5 99)",
    "quantiles(visits, bins=12)",
    "variance(visits)",
    "crosstab(ill, arm)",
    "mean(day)",
    "histogram(day, bins=4)",
    "mean(root)",
    "proportion(often)",
    "histogram(share, bins=4)",
    "mean(age, where=visits >= 3)",
)
WORKLOAD = workload_of(COLUMNS, *TEXTS)
# Zeros of both signs, and what is nearly an edge.
ALSO = [-0.0, 0.0, 61.5, 61.50000000000001, 61.49999999999999, 2**53 + 1, -9.0, 9999, None]


def polars_of(table: pa.Table) -> Any:
    return pl.from_arrow(table).lazy()  # type: ignore[union-attr]


def duckdb_of(table: pa.Table) -> Any:
    return duckdb.connect().from_arrow(table)


def postgresql_of(table: pa.Table) -> Any:
    with support.postgresql.connection().cursor() as cursor:
        cursor.adbc_ingest("odd", table, mode="replace")
    return f"{support.postgresql.server()}#table=public.odd"


def spark_of(table: pa.Table) -> Any:
    return spark_session().createDataFrame(table)


ENGINES: dict[str, Callable[[pa.Table], Any]] = {
    "Polars": polars_of,
    "DuckDB": duckdb_of,
    "postgresql": postgresql_of,
    "spark": spark_of,
}


def odd_table(rng: random.Random) -> pa.Table:
    """Each column has one odd cell, which may decide about its type, in some rows; and usual ones."""
    cells = {}
    for name, usual in USUAL.items():
        odd = rng.choice(CELLS + 3 * ALSO)
        cells[name] = [odd if rng.random() < 0.2 else rng.choice(usual) for _ in range(12)]
    return arrow_table(cells)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("count", [pytest.param(TABLES, marks=pytest.mark.slow), SOME])
@pytest.mark.parametrize("engine", ENGINES)
def test_groups_of_any_cells_are_their_rows(engine: str, count: int) -> None:
    done, seed = 0, 0
    while done < count:
        seed += 1
        try:
            held = ENGINES[engine](odd_table(random.Random(seed)))
            rows = WORKLOAD.encode(read_columns(held, COLUMNS), step=STEP)
        # What the engine cannot hold, of Arrow's types.
        except (AssertionError, pytest.skip.Exception):
            raise
        except BaseException:  # noqa: S112
            continue
        groups = WORKLOAD.encode(records_of(GroupedFrame(held), COLUMNS, print), step=STEP)
        assert groups.vector.tobytes() == rows.vector.tobytes(), f"{engine}, seed {seed}"
        assert (groups.clamped, groups.missing) == (rows.clamped, rows.missing), f"{engine}, seed {seed}"
        done += 1
