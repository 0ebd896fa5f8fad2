"""Encoding records and reading tables."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.core.domain import UNITS_OF_VECTORS, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import (
    Column,
    ColumnBlock,
    Columns,
    Estimates,
    Records,
    Released,
    Statistic,
    Workload,
    column_means,
    combined,
    get_statistic,
    parse_statistic,
    read_text,
    registry,
)
from quietmean.statistics.coding import what_did_not_fit
from quietmean.statistics.kinds.means import Mean
from quietmean.statistics.models import MODELS, model_named
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.data import read_columns
from quietmean.studies.data.sources import parties_of_table
from quietmean.testing import check_feature, check_statistic
from support.refusals import raised, refused, refused_rows

COLUMNS = Columns(
    [Column(name="age", low=0, high=100, missing="centre"), Column(name="weight", low=40, high=140, missing="centre")]
)
RECORDS = np.array([[50.0, 90.0], [0.0, 40.0], [100.0, 140.0], [30.0, 65.0]])


def means(unit: PrivacyUnit = PrivacyUnit.RECORD, shares: tuple[float, float] = (1.0, 1.0)) -> Workload:
    statistics = [Mean(column=name, share=share) for name, share in zip(COLUMNS.names, shares, strict=True)]
    return Workload(COLUMNS, tuple(statistics), unit)


def test_record_unit_sums_and_counts() -> None:
    encoded = means().encode(RECORDS)
    assert encoded.weight == 4
    # Of each column in a half: the indicator and x, half of the bounds scaled to 1.
    np.testing.assert_allclose(encoded.vector[[0, 1, 5, 6]], [1.65 * 2, (0 - 1 + 1 - 0.4) / 2, 1.65 * 2, (0 - 1 + 1 - 0.5) / 2])
    found = combined(means().decode(encoded.vector / encoded.weight, 0.0, 4.0))
    assert found.terms == COLUMNS.names
    np.testing.assert_allclose(found.value, RECORDS.mean(axis=0))
    np.testing.assert_array_equal([found.low, found.high], [[0, 40], [100, 140]])


def test_party_unit_means() -> None:
    encoded = means(PrivacyUnit.PARTY).encode(RECORDS)
    assert encoded.weight == 1
    np.testing.assert_allclose(combined(means().decode(encoded.vector, 0.0, 1.0)).value, RECORDS.mean(axis=0))


@pytest.mark.parametrize("shares", [(1.0, 1.0), (0.5, 4.0)])
@pytest.mark.parametrize("unit", UNITS_OF_VECTORS)
def test_sensitivity_bounds_every_replacement(unit: PrivacyUnit, shares: tuple[float, float]) -> None:
    one = means(unit, shares)
    extreme = RECORDS.copy()
    extreme[0] = [0.0, 40.0]
    replaced = RECORDS.copy()
    replaced[0] = [100.0, 140.0]
    change = float(np.linalg.norm(one.encode(replaced).vector - one.encode(extreme).vector))
    assert change <= one.sensitivity + 1e-12
    assert one.sensitivity == pytest.approx(sum(shares) ** 0.5)
    if unit == PrivacyUnit.RECORD:
        assert change == pytest.approx(one.sensitivity)


def test_errors_scale_with_the_columns_and_with_the_budget() -> None:
    found = combined(means().decode(means().encode(RECORDS).vector / 4, 0.1, 4.0))
    np.testing.assert_allclose(found.standard_error, [10.0, 10.0])
    shared = means(shares=(4.0, 1.0))
    dearer = combined(shared.decode(shared.encode(RECORDS).vector / 4, 0.1, 4.0))
    np.testing.assert_allclose(dearer.standard_error, [5.0, 10.0])
    np.testing.assert_allclose(dearer.value, found.value)


def test_features_that_statistics_share_are_released_once() -> None:
    class Again(Mean):
        """Another statistic that reads the same feature."""

        name = "again"

    both = Workload(COLUMNS, (Mean(column="age"), Again(column="age", share=3.0)), PrivacyUnit.RECORD)
    assert both.dimension == 5
    assert list(both.scales.values()) == [1.0]
    answers = both.decode(both.encode(RECORDS).vector / 4, 0.2, 4.0)
    assert combined(answers).terms == ("mean(age)", "again(age)")
    assert [answer.estimates.value[0] for answer in answers] == pytest.approx([45.0, 45.0])
    assert [answer.estimates.standard_error[0] for answer in answers] == pytest.approx([10.0, 10.0])
    assert [answer.budget_part for answer in answers] == pytest.approx([1.0, 1.0])


def test_answers_as_json() -> None:
    answers = means().decode(means().encode(RECORDS).vector / 4, 0.01, 4.0)
    told = answers[0].to_json()
    assert (told["name"], told["kind"], told["share"], told["records"]) == ("mean(age)", "mean", 1.0, 4.0)
    assert told["budget_part"] == pytest.approx(0.5)
    assert told["estimate"] == pytest.approx(45.0)
    assert told["standard_error"] == pytest.approx(1.0)
    assert told["interval_noise"] == pytest.approx([45 - 1.96, 45 + 1.96], abs=1e-3)
    low, high = told["interval_population"]
    assert 0 <= low < 45 - 1.96 < 45 + 1.96 < high <= 100
    assert (told["interval_level"], told["flags"]) == (0.95, ["filled-in"])
    assert list(column_means(answers)) == ["age", "weight"]


def test_cells_that_hold_no_level_are_missing_and_not_clamped() -> None:
    """They have no nearest bound: only numbers do."""
    columns = Columns(
        [Column(name="age", low=0, high=10), Column(name="sex", levels=("f", "m")), Column(name="ill", boolean=True)]
    )
    workload = Workload(columns, (parse_statistic(read_text("crosstab(sex, ill)")),), PrivacyUnit.RECORD)
    encoded = workload.encode(np.array([[12.0, -1, 1], [3, 0, -1], [4, 1, 0], [5, np.nan, 1]]))
    assert (encoded.clamped, encoded.missing) == (1, 3)
    assert what_did_not_fit([encoded])[0].startswith(
        "1 value lies outside its bounds and counts as the nearest bound and 3 cells count"
    )


def test_values_outside_are_clamped_and_missing_ones_are_the_centre() -> None:
    wild = np.array([[-5.0, 90.0], [50.0, 200.0], [np.nan, np.inf]])
    encoded = means().encode(wild)
    assert (encoded.clamped, encoded.missing) == (3, 1)
    found = combined(means().decode(encoded.vector / 3, 0.0, 3.0))
    np.testing.assert_allclose(found.value, [(0 + 50 + 50) / 3, (90 + 140 + 140) / 3])
    assert means().outside(wild).tolist() == [[True, False], [False, True], [False, True]]


def test_the_mean_of_present_values() -> None:
    columns = Columns([Column(name="age", low=0, high=100), Column(name="weight", low=50, high=150, missing="centre")])
    workload = Workload(columns, (Mean(column="age"), Mean(column="weight")), PrivacyUnit.RECORD)
    records = np.array([[20.0, 60.0], [np.nan, 80.0], [40.0, np.nan], [90.0, 100.0]])
    encoded = workload.encode(records)
    assert encoded.weight == 4.0
    assert workload.sensitivity == pytest.approx(2**0.5)
    answers = workload.decode(encoded.vector / 4, 0.0, 4.0)
    assert [answer.estimates.value[0] for answer in answers] == pytest.approx([50.0, 85.0])
    check_statistic(Mean(column="age", share=2.0), columns, records)
    empty = workload.encode(np.full((4, 2), np.nan))
    (unknown, _) = workload.decode(empty.vector / 4, 0.01, 4.0)
    assert np.isnan(unknown.estimates.value[0])
    assert unknown.estimates.of_noise.tolist() == [[0.0, 100.0]]
    assert "too few values" in unknown.estimates.reason
    assert unknown.estimates.standard_error[0] == np.inf


@pytest.mark.parametrize("rule", ["centre", "indicator"])
@given(cells=st.lists(st.floats(0, 100), min_size=2, max_size=6), row=st.integers(0, 5))
def test_emptying_a_cell_changes_nothing_public_and_moves_the_vector_within_the_sensitivity(
    rule: str, cells: list[float], row: int
) -> None:
    workload = Workload(Columns([Column(name="age", low=0, high=100, missing=rule)]), (Mean(column="age"),), PrivacyUnit.RECORD)
    full = np.array(cells)[:, None]
    holed = full.copy()
    holed[row % len(cells)] = np.nan
    before, after = workload.encode(full), workload.encode(holed)
    assert before.weight == after.weight
    assert np.linalg.norm(before.vector - after.vector) <= workload.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("rule", ["drop", "refuse"])
def test_rules_that_publish_who_is_complete_are_refused(rule: str) -> None:
    with pytest.raises(InputError, match=r"would publish how many records are incomplete.*Choose centre, or indicator"):
        Column(name="age", low=0, high=100, missing=rule)
    refused(r"'indicater' is unknown \(did you mean 'indicator'\?\)", Column, name="age", low=0, high=100, missing="indicater")


def test_of_no_records_at_all_nothing_is_known() -> None:
    workload = means()
    nothing = workload.encode(RECORDS[:0])
    assert not nothing.vector.any()
    for answer in workload.decode(nothing.vector, 0.5, nothing.weight):
        assert np.isnan(answer.estimates.value).all()
        assert answer.records == 0
        assert answer.estimates.flags[0].message == "No party has a record of this. Nothing is known."


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_bounds_that_are_none(bounds: tuple[float, float]) -> None:
    refused(r"two finite numbers in rising order", Column, name="age", low=bounds[0], high=bounds[1])


def test_columns_by_name() -> None:
    assert [COLUMNS[name].width for name in COLUMNS.names] == [100.0, 100.0]
    assert len(COLUMNS) == 2
    with pytest.raises(InputError, match=r"wheight has no bounds \(did you mean 'weight'\?\)"):
        COLUMNS["wheight"]
    refused("named twice in age, age", Columns, [COLUMNS["age"], COLUMNS["age"]])
    refused("no column is named", Columns, [])


# --- how statistics are written --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry())
def test_every_statistic_says_what_it_is(name: str) -> None:
    kind = get_statistic(name)
    assert issubclass(kind, Statistic)
    assert kind.summary
    assert set(kind.by_place) <= set(kind.__dataclass_fields__)


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("mean(age)", {"kind": "mean", "column": "age"}),
        (" mean ( age , share = 2 ) ", {"kind": "mean", "column": "age", "share": 2.0}),
        ("mean(column=age)", {"kind": "mean", "column": "age"}),
        ("mean(42)", {"kind": "mean", "column": "42"}),
    ],
)
def test_texts_of_the_command_line(text: str, raw: dict[str, object]) -> None:
    assert read_text(text) == raw
    statistic = parse_statistic(raw)
    assert parse_statistic(read_text(statistic.text)).text == statistic.text
    assert parse_statistic(statistic.describe()) == statistic


@refused_rows("misspelt_texts")
def test_misspelt_texts(text: str, words: str) -> None:
    refused(words, lambda: parse_statistic(read_text(text)))


def study(**fields: object) -> StudyTerms:
    columns = [{"name": column.name, "low": column.low, "high": column.high} for column in COLUMNS]
    return StudyTerms.parse({"column": columns, **fields})


def test_a_study_without_statistics_is_about_the_mean_of_every_column() -> None:
    default = study()
    assert [statistic.text for statistic in default.workload.statistics] == ["mean(age)", "mean(weight)"]
    assert set(default.context()) == {"study", "columns", "unit"}
    asked = study(statistic=[{"kind": "mean", "column": "age", "share": 2}])
    assert asked.context()["statistics"] == [{"kind": "mean", "column": "age", "share": 2.0}]
    assert asked.target(5).dimension == 5
    assert asked.target(5).sensitivity == pytest.approx(2**0.5)


@refused_rows("a_study_with_impossible_statistics")
def test_a_study_with_impossible_statistics(tables: list[dict[str, str]], words: str) -> None:
    refused(words, study, statistic=tables)


class Half(ColumnBlock):
    sensitivity = 0.5


class Neighbourly(ColumnBlock):
    def encode(self, records: Records) -> NDArray[np.float64]:
        encoded: NDArray[np.float64] = super().encode(records)
        return np.asarray(encoded - encoded.mean())


class Endless(ColumnBlock):
    def encode(self, records: Records) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            endless: NDArray[np.float64] = np.log(np.maximum(super().encode(records), 0.0))
            return endless


@pytest.mark.parametrize(
    ("feature", "words"), [(Half, "moves by 1.72.*, not 0.5"), (Neighbourly, "depends on other records"), (Endless, "not finite")]
)
def test_features_that_promise_too_much_are_found(feature: type[ColumnBlock], words: str) -> None:
    raised(AssertionError, words, check_feature, feature(COLUMNS["age"]), means().inside(RECORDS))


class Bold(Mean):
    """States a tenth of its error."""

    def decode(self, released: Released, columns: Columns) -> Estimates:
        found = super().decode(released, columns)
        return found.with_columns(noise=found.standard_error / 10)


class Wild(Mean):
    """Can be outside what it says that it can be."""

    def decode(self, released: Released, columns: Columns) -> Estimates:
        found = super().decode(released, columns)
        return found.with_columns(value=found.value + 1e6)


@pytest.mark.parametrize(("kind", "words"), [(Bold, "times as large as stated"), (Wild, "are not all from")])
def test_statistics_that_promise_too_much_are_found(kind: type[Mean], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry(), "mean", kind)
    raised(AssertionError, words, check_statistic, kind(column="age"), COLUMNS, RECORDS)


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_reading_tables(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{ending}"
    table = pl.DataFrame({"age": [1.0, None, 3.0, 4.0], "weight": [50, 60, 70, 80], "who": list("aabb")})
    table.write_csv(path) if ending == "csv" else table.write_parquet(path)
    values = read_columns(path, Columns([COLUMNS["weight"], COLUMNS["age"]]))
    np.testing.assert_allclose(values, np.array([[50.0, 1.0], [60.0, np.nan], [70.0, 3.0], [80.0, 4.0]]))
    names, parts = parties_of_table(path, Columns([COLUMNS["weight"]]), None, "who")
    assert names == ["a", "b"]
    np.testing.assert_allclose(parts[1], [[70], [80]])
    assert np.isnan(read_columns(path, Columns([Column(name="who", low=0, high=1)]))).all()
    assert read_columns(path, Columns([Column(name="who", levels=("b", "c"))])).ravel().tolist() == [-1, -1, 0, 0]


@pytest.mark.parametrize("cell", ["", "nan", "NA", "12 mg", "\xff", "1,500"])
def test_no_cell_decides_whether_a_table_is_accepted(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(f'age,weight\n1,2\n"{cell}",3\n 7 ,1e2\n'.encode("latin-1"))
    np.testing.assert_allclose(read_columns(path, COLUMNS), np.array([[1.0, 2.0], [np.nan, 3.0], [7.0, 100.0]]))


def test_rows_are_dealt_out_evenly(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("x\n" + "\n".join(map(str, range(10))))
    _, parts = parties_of_table(path, Columns([Column(name="x", low=0, high=9)]), 3, None)
    assert [part[:, 0].tolist() for part in parts] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_the_readme_names_every_statistic() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    asked = readme.partition("## What you can ask")[2].partition("\n## ")[0]
    models = {name for kind, model in MODELS.items() for name in (kind, *model.other_names)}
    named = set(re.findall(r"`([a-z0-9-]+)`", asked))
    assert named >= set(registry())
    assert {name for name in named - set(registry()) if name not in models} == set()
    assert {model_named(name) for name in named & models} == set(MODELS)
