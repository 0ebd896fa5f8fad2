"""Groups that an engine counts are, bit for bit, the rows one by one, for every statistic, whatever the cells are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import support.postgresql
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies.data import grouped, read_columns
from quietmean.studies.data import grouped as module
from quietmean.studies.data.grouped import GroupsOfFrame, GroupsOfPostgresql, records_of
from quietmean.studies.data.isolated import GroupedFrame
from quietmean.studies.data.postgresql import transaction
from support.engines import spark_session
from support.every_kind import COLUMNS, all_statistics
from support.refusals import refused

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


def by_postgresql(frame: Any) -> Any:
    address = support.postgresql.server()
    with support.postgresql.connection().cursor() as cursor:
        cursor.adbc_ingest("grouped", frame.to_arrow(compat_level=pl.CompatLevel.oldest()), mode="replace")
    return f"{address}#table=public.grouped"


def by_spark(frame: Any) -> Any:
    return spark_session().createDataFrame(frame.to_arrow(compat_level=pl.CompatLevel.oldest()))


ENGINES: list[Callable[[Any], Any]] = [by_polars, by_duckdb, by_postgresql, by_spark]


def same(workload: Workload, frame: Any, engine: Callable[[Any], Any], step: float = STEP) -> None:
    rows = workload.encode(read_columns(frame, workload.columns), step=step)
    groups = workload.encode(records_of(GroupedFrame(engine(frame)), workload.columns, print), step=step)
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


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_read_where_there_are_more_groups(engine: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cells are decides no study: of bins there are few groups, and of other statistics rows are read."""
    monkeypatch.setattr(module, "MOST_GROUPS", 60)
    ages = np.random.default_rng(1).random(500) * 120
    frame = pl.DataFrame({"age": ages, "day": [str(number) for number in range(500)], "sex": ["f", "m"] * 250})
    columns = Columns(
        [
            Column(name="age", low=0, high=100, missing="indicator"),
            Column(name="sex", levels=("f", "m")),
            # No statistic looks at it, and its owner is told of its cells.
            Column(name="day", low=0, high=400),
        ]
    )
    read = Counter[str]()
    for name in ("groups", "pieces", "count"):
        for each in (GroupsOfFrame, GroupsOfPostgresql):
            monkeypatch.setattr(each, name, _noted(getattr(each, name), name, read))
    bins, mean, table = (
        parse_statistic(read_text(text)) for text in ("histogram(age, bins=20)", "mean(age)", "group-means(age, by=sex)")
    )
    of_age = Columns([columns["age"]])
    same(Workload(of_age, (bins,), PrivacyUnit.RECORD), frame, engine)
    assert read == {"groups": 1}
    same(Workload(of_age, (mean,), PrivacyUnit.RECORD), frame, engine)
    # How many rows there are is asked only where groups have not said it.
    assert read == {"groups": 2, "pieces": 1, "count": 1}
    same(Workload(columns, (bins, mean, table), PrivacyUnit.RECORD), frame, engine)
    # However many statistics need them, rows are read once.
    assert read["pieces"] == 2
    same(Workload(columns, (bins,), PrivacyUnit.RECORD), frame, engine)
    assert read["pieces"] == 3


def test_all_questions_to_a_database_are_of_one_connection_and_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table()
    statistics = tuple(
        parse_statistic(read_text(text)) for text in ("histogram(age, bins=20)", "crosstab(sex, ended)", "mean(age)")
    )
    workload = Workload(COLUMNS, statistics, PrivacyUnit.RECORD)
    rows = workload.encode(read_columns(frame, COLUMNS), step=STEP)
    records = records_of(GroupedFrame(by_postgresql(frame)), COLUMNS, print)
    read, grows = Counter[str](), GroupsOfPostgresql.groups
    monkeypatch.setattr(grouped, "transaction", _noted(transaction, "transaction", read))

    def growing(*arguments: Any) -> Any:
        answer = grows(*arguments)
        with support.postgresql.connection().cursor() as cursor:
            cursor.execute("INSERT INTO grouped (age) VALUES (3)")
        return answer

    monkeypatch.setattr(GroupsOfPostgresql, "groups", growing)
    assert workload.encode(records, step=STEP).vector.tobytes() == rows.vector.tobytes()
    assert read == {"transaction": 1}
    # What was known before holds: another number of rows is no longer the same data.
    refused("the data were changed while their rows were counted", workload.encode, records, step=STEP)


def _noted(method: Callable[..., Any], name: str, read: Counter[str]) -> Callable[..., Any]:
    def noting(*arguments: Any) -> Any:
        read[name] += 1
        return method(*arguments)

    return noting


def test_what_cannot_be_grouped_is_said_in_one_sentence() -> None:
    columns = Columns([Column(name="age", low=0, high=100)])
    mean = (parse_statistic(read_text("mean(age)")),)
    lazy = pl.DataFrame({"age": [1.0, 2.0]}).lazy()
    for unit in (PrivacyUnit.PARTY, PrivacyUnit.PERSON):
        with pytest.raises(InputError, match=f"the unit is {unit}. Read the rows instead"):
            Workload(columns, mean, unit).encode(records_of(GroupedFrame(lazy), columns, print))
    refused("Data of type int are not a table", records_of, GroupedFrame(3), columns, print)
    with pytest.raises(InputError, match=r"column 'age' is not one of the 1 column of the data frame \(did you mean 'aeg'"):
        records_of(GroupedFrame(pl.DataFrame({"aeg": [1.0]}).lazy()), columns, print)
    assert len(records_of(GroupedFrame(lazy.filter(pl.lit(False))), columns, print)) == 0
    failing = pl.DataFrame({"age": ["sentinel"]}).lazy().with_columns(pl.col("age").cast(pl.Float64))
    with pytest.raises(InputError, match="the engine of the data frame cannot count") as told:
        Workload(columns, mean, PrivacyUnit.RECORD).encode(records_of(GroupedFrame(failing), columns, print))
    assert "sentinel" not in str(told.value)


def test_without_pyarrow_the_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [by(table()) for by in (by_polars, by_duckdb)]
    monkeypatch.setattr(grouped, "is_installed", lambda module: module != "pyarrow")
    with pytest.raises(InputError, match=r"rows of DuckDB needs PyArrow, which is not installed\. Run pip install pyarrow"):
        records_of(GroupedFrame(there[1]), COLUMNS, print)
    assert len(records_of(GroupedFrame(there[0]), COLUMNS, print)) == ROWS
