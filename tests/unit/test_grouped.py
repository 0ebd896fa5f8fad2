"""Groups that an engine counts are, bit for bit, the rows one by one, for every statistic, whatever the cells are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies.data import grouped as module
from quietmean.studies.data import read_columns
from quietmean.studies.data.frames import GroupedFrame
from quietmean.studies.data.grouped import GroupedRows
from support.every_kind import COLUMNS, all_statistics

pl = pytest.importorskip("polars")
ROWS, STEP = 800, 2.0**-20
STATISTICS = all_statistics()


def table(seed: int = 5) -> Any:
    """With numbers at and around bounds and edges, without end, and no numbers; levels and texts of any kind."""
    rng = np.random.default_rng(seed)
    odd = np.array([0.0, 25.0, np.nextafter(25.0, 0), 50.0, 100.0, 100.5, -3.0, np.inf, -np.inf, np.nan, -9.0])
    age = np.where(rng.random(ROWS) < 0.5, rng.choice(odd, ROWS), rng.integers(0, 101, ROWS))
    weight = rng.integers(30, 150, ROWS)
    chance = rng.integers(0, 41, ROWS) / 40
    texts = {
        "sex": rng.choice(["f", "m", "M ", "other", ""], ROWS),
        "ended": rng.choice(["alive", "moved", "dead", "NA"], ROWS),
        "smoker": rng.choice(["yes", "no", "ja", "1", "?"], ROWS),
    }
    frame = pl.DataFrame({"age": age, "weight": weight, "chance": chance, **texts, "rows": rng.random(ROWS)})
    empty = rng.random(ROWS) < 0.1
    return frame.with_columns(
        *(
            pl.when(pl.Series(np.roll(empty, shift))).then(None).otherwise(pl.col(name)).alias(name)
            for shift, name in enumerate(frame.columns)
        )
    )


def by_polars(frame: Any) -> Any:
    return frame.lazy()


def by_duckdb(frame: Any) -> Any:
    duckdb = pytest.importorskip("duckdb")
    frame = frame.to_arrow()
    # The connection lives as long as the table.
    return duckdb.connect().from_arrow(frame)


ENGINES: list[Callable[[Any], Any]] = [by_polars, by_duckdb]


def same(workload: Workload, frame: Any, engine: Callable[[Any], Any], step: float = STEP) -> None:
    rows = workload.encode(read_columns(frame, workload.columns), step=step)
    groups = workload.encode(GroupedRows(GroupedFrame(engine(frame)), workload.columns), step=step)
    assert groups.vector.tobytes() == rows.vector.tobytes(), workload.statistics[0].text
    counts = [(each.weight, each.clamped, each.missing, each.beyond) for each in (groups, rows)]
    assert counts[0] == counts[1]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda one: one.text)
def test_a_statistic_of_groups_is_that_of_rows(statistic: Any, engine: Callable[[Any], Any]) -> None:
    frame = table()
    same(Workload(COLUMNS, (statistic,), PrivacyUnit.RECORD), frame, engine)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_columns_of_any_kind(engine: Callable[[Any], Any]) -> None:
    """Codes for missing among numbers, whole numbers, dates, transforms, conditions, private counts."""
    rng = np.random.default_rng(7)
    columns = Columns(
        [
            Column(name="age", low=0, high=100, missing="indicator", missing_codes=("-9", "999")),
            Column(name="visits", low=0, high=12, whole=True),
            Column(name="weight", low=40, high=140),
            Column(name="height", low=1.0, high=2.2),
            Column.model_validate({"name": "bmi", "from": "weight / height ** 2", "low": 10, "high": 60}),
            Column(name="sex", levels=("f", "m")),
        ]
    )
    frame = pl.DataFrame(
        {
            "age": rng.choice([-9.0, 999.0, 0.0, 41.0, 41.5, 100.0, 120.0, np.nan], 500),
            "visits": rng.choice([-0.5, 0.5, 1.5, 2.5, 3.0, 11.5, 12.5, 7.0], 500),
            "weight": rng.integers(40, 60, 500),
            "height": rng.choice([1.6, 1.7, 1.8], 500),
            "sex": rng.choice(["f", "m", "x"], 500),
        }
    )
    texts = (
        "histogram(age, bins=7)",
        "quantiles(visits, bins=12)",
        "mean(bmi)",
        "group-means(age, by=sex)",
        "histogram(age, bins=3, where=visits >= 2.5)",
        "proportion(sex, where=age >= 41.2)",
        "cdf(visits, bins=5)",
        "histogram(age, edges=20 40 60)",
    )
    statistics = tuple(parse_statistic(read_text(text)) for text in texts)
    for one in (*((each,) for each in statistics), statistics):
        same(Workload(columns, one, PrivacyUnit.RECORD), frame, engine)
    same(Workload(columns, statistics[:4], PrivacyUnit.RECORD, count=CountVisibility.PRIVATE, most_records=400), frame, engine)


def test_bins_need_few_groups_whatever_the_numbers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 60)
    frame = pl.DataFrame({"age": np.random.default_rng(1).random(5000) * 100})
    columns = Columns([Column(name="age", low=0, high=100, missing="indicator")])
    same(Workload(columns, (parse_statistic(read_text("histogram(age, bins=20)")),), PrivacyUnit.RECORD), frame, by_polars)
    with pytest.raises(InputError, match=r"^a statistic of this study needs more than 60 groups of equal rows"):
        same(Workload(columns, (parse_statistic(read_text("mean(age)")),), PrivacyUnit.RECORD), frame, by_polars)


def test_what_cannot_be_grouped_is_said_in_one_sentence() -> None:
    columns = Columns([Column(name="age", low=0, high=100)])
    mean = (parse_statistic(read_text("mean(age)")),)
    lazy = pl.DataFrame({"age": [1.0, 2.0]}).lazy()
    for unit in (PrivacyUnit.PARTY, PrivacyUnit.PERSON):
        with pytest.raises(InputError, match=f"the unit is {unit}: read the rows instead"):
            Workload(columns, mean, unit).encode(GroupedRows(GroupedFrame(lazy), columns))
    with pytest.raises(InputError, match="data of type int are no table"):
        GroupedRows(GroupedFrame(3), columns)
    with pytest.raises(InputError, match=r"column 'age' is not among the 1 columns of the data frame \(did you mean 'aeg'"):
        GroupedRows(GroupedFrame(pl.DataFrame({"aeg": [1.0]}).lazy()), columns)
    with pytest.raises(InputError, match="the data frame has no rows"):
        len(GroupedRows(GroupedFrame(lazy.filter(pl.lit(False))), columns))
    failing = pl.DataFrame({"age": ["sentinel"]}).lazy().with_columns(pl.col("age").cast(pl.Float64))
    with pytest.raises(InputError, match="the engine of the data frame cannot count") as told:
        Workload(columns, mean, PrivacyUnit.RECORD).encode(GroupedRows(GroupedFrame(failing), columns))
    assert "sentinel" not in str(told.value)
