"""Rows of persons from files and frames: whose they are, which of them count, and that nothing else decides."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.planning.plan import Plan
from quietmean.statistics import Workload
from quietmean.statistics.persons import PersonRows
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.data import FrameOfPersons, Records, read_columns, records
from quietmean.studies.data.location import Location, SiteMapping
from quietmean.studies.data.persons import DistinctPersons, KnownNumbers, PersonReader, identities_of
from quietmean.studies.data.sources import parties_of_data, parties_of_table
from quietmean.studies.data.table import Cells, Table

Array = NDArray[np.float64]
COLUMN = {"name": "sbp", "low": 0, "high": 200, "missing": "indicator"}
STUDY = {"column": [COLUMN], "statistic": [{"kind": "mean", "column": "sbp"}], "unit": "person", "epsilon": 4.0}
MAPPING = '[mapping]\nperson = "patient"\ndate = "visit"\n\n[mapping.columns]\nsbp = "RR"\n'
ROWS = [
    ("007", "2024-03-01", "100"),
    ("8", "2024-01-05", "140"),
    ("7.0", "2024-01-09", "120"),
    ("NA", "2024-01-01", "0"),
    ("9", "", "90"),
    ("7", "2023-12-24", "50"),
    ("8", "2024-02-05", ""),
]


def terms(**more: object) -> StudyTerms:
    return StudyTerms.parse({**STUDY, **more})


def written(folder: Path, rows: Sequence[tuple[str, ...]], mapping: str = MAPPING) -> Path:
    path = folder / "visits.csv"
    path.write_text("\n".join(["patient,visit,RR", *map(",".join, rows)]) + "\n", "utf-8")
    path.with_name("visits.format.toml").write_text(mapping, "utf-8")
    return path


def read(path: Path, study: StudyTerms, told: list[str] | None = None) -> Records:
    return Records(path, study.workload.columns, (told if told is not None else []).append, study.rows)


def mean_of(study: StudyTerms, data: Records) -> float:
    encoded = study.workload.encode(data)
    (answer,) = study.workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)
    return float(answer.estimates.value[0])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Patient 7 has 100, 120 and 50; patient 8 has 140 and a cell without a value, with half of its weight; patient 9 90.
        ("mean", (90 + 140 / 2 + 90) / 2.5),
        ("first", (50 + 140 + 90) / 3),
        ("last", (100 + 90) / 2),
    ],
)
def test_each_person_counts_once_whichever_rows_count(tmp_path: Path, rows: str, expected: float) -> None:
    study, told = terms(rows=rows), list[str]()
    path = written(tmp_path, ROWS)
    data = read(path, study, told)
    assert len(data) == 3
    assert study.workload.encode(data).weight == 3
    assert mean_of(study, data) == pytest.approx(expected)
    nobody = "visits.csv: 1 row names no person in the person column, and counts as empty (line 5)"
    undated = "1 row has no date in the date column. Rows of the same person with a date are taken first (line 6)"
    assert told == [nobody, *([] if rows == "mean" else [f"visits.csv: {undated}"])]
    for seed in range(3):
        shuffled = [ROWS[place] for place in np.random.default_rng(seed).permutation(len(ROWS))]
        assert mean_of(study, read(written(tmp_path, shuffled), study)) == pytest.approx(expected)


def test_an_identifier_is_one_person_whatever_type_its_column_has_and_stays_that_of_earlier_versions(tmp_path: Path) -> None:
    spelt = {
        "7": "7",
        "07": "7",
        "+7": "7",
        "7.50": "7.5",
        "-0": "-0",
        "1E3": "1E3",
        "P7": "P7",
        "²": "²",
        "2024-01-31": "2024-01-31",
    }
    spelt |= {"9" * 31: "9" * 31, "0": "0", "00": "0", "nan": "", "a.0": "a.0", " 8 ": "8", "x\ud800": "x\ud800"}

    def identity(same: str) -> list[int]:
        digest = hashlib.blake2b(same.encode(errors="surrogatepass"), digest_size=16, person=b"quietmean person").digest()
        return [0, 0] if not same else [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")]

    def identities(cells: Cells) -> list[list[int]]:
        reader = PersonReader(Location(Path("t"), mapping=SiteMapping(person="p")))
        tables = [Table("t", ("p",), range(len(cells)), lambda place: cells) for again in range(2)]
        first: list[list[int]]
        first, second = (reader.identities(table).tolist() for table in tables)
        assert first == second
        return first

    assert identities(Cells(list(spelt))) == list(map(identity, spelt.values()))
    numbers = {7.0: "7", 7.5: "7.5", -0.0: "0", 2.0**53 + 2: "9007199254740994", 2.0**53 - 1: "9007199254740991", -3.0: "-3"}
    numbers |= {np.nan: "", 1e22: "1" + 22 * "0", 0.1: "0.1", np.inf: "inf", 12.0: "12"}
    assert identities(Cells(np.array(list(numbers)))) == list(map(identity, numbers.values()))
    many = np.random.default_rng(1).integers(0, 10**6, 300).astype(float)
    assert identities(Cells(many)) == [identity(str(int(number))) for number in many]


def test_persons_whose_hashes_have_one_half_are_two() -> None:
    words = np.array([[5, 1], [5, 2], [4, 9], [5, 1], [5, 2], [5, 1]], dtype=np.uint64)
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(words))
        chosen = PersonRows(words[order][:, 1:].astype(np.float64), words[order], np.full(len(words), np.nan)).chosen("mean")
        assert chosen.counts.tolist() == [1, 3, 2]
        assert chosen.values[:, 0].tolist() == [9, 1, 1, 1, 2, 2]
        distinct = DistinctPersons()
        distinct.add(words[order])
        assert distinct.all().tolist() == [[4, 9], [5, 1], [5, 2]]


def test_persons_of_many_pieces_are_each_there_once() -> None:
    """Also who has half of another one's bits, whichever of the two was there before."""
    rng = np.random.default_rng(1)
    words = rng.integers(1, 2**63, (90_000, 2)).astype(np.uint64)
    words[40_000:, 0] = words[:50_000, 0]
    # Some again, among new ones, and rows of nobody.
    pieces = np.split(np.vstack([words, words[::3], np.zeros((9, 2), dtype=np.uint64)])[rng.permutation(120_009)], 3)
    distinct = DistinctPersons()
    for piece in pieces:
        distinct.add(piece)
    once = distinct.all()
    assert np.array_equal(once, words[np.lexsort((words[:, 1], words[:, 0]))])
    distinct.add(pieces[0])
    assert np.array_equal(distinct.all(), once)


def test_numbers_that_are_known_have_the_words_of_their_texts() -> None:
    rng, known = np.random.default_rng(1), KnownNumbers()
    for most in (10, 500, 100, 3000, 3000):
        numbers = np.unique(rng.integers(-most, most, 400)).astype(float)
        assert known.identities(numbers).tolist() == identities_of(str(int(number)) for number in numbers).tolist()


@pytest.mark.parametrize("rule", ["mean", "first", "last", 2])
def test_persons_in_pieces_are_the_same_in_the_same_order(rule: str | int) -> None:
    rng = np.random.default_rng(2)
    persons = np.vstack([np.zeros((1, 2), dtype=np.uint64), rng.integers(0, 2**64, (50, 2), dtype=np.uint64)])[
        rng.integers(0, 51, 400)
    ]
    rows = PersonRows(rng.random((400, 2)), persons, rng.integers(0, 3, 400).astype(float))
    whole, pieces = rows.chosen(rule), list(rows.chosen_in_pieces(rule, 30))
    assert np.array_equal(np.vstack([piece.values for piece in pieces]), whole.values)
    assert np.concatenate([piece.counts for piece in pieces]).tolist() == whole.counts.tolist()
    assert len(pieces) > 5
    assert max(len(piece.values) for piece in pieces) < 120
    nobody = PersonRows(np.zeros((0, 2)), np.zeros((0, 2), dtype=np.uint64), np.zeros(0))
    assert not list(nobody.chosen_in_pieces(rule, 30))


def test_of_sums_the_first_rows_by_date_count(tmp_path: Path) -> None:
    study = terms(rows=2, count="private", most_records=50, statistic=[{"kind": "sum", "column": "sbp"}])
    data = read(written(tmp_path, ROWS), study)
    encoded = study.workload.encode(data)
    assert encoded.weight == 50
    assert len(data) == 5
    (answer,) = study.workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)
    assert answer.estimates.value[0] == pytest.approx(50 + 120 + 140 + 90)
    assert answer.estimates.population is None
    (mean,) = terms(rows=2, count="private").workload.decode(encoded.vector / 50, 0.01, 50.0)
    assert mean.estimates.population is None
    assert "not independent" in mean.estimates.reason


@pytest.mark.parametrize("rows", ["mean", "first", "last", 2])
def test_rows_without_a_day_are_told_where_days_choose(rows: str | int, tmp_path: Path) -> None:
    """Else a column of dates that nobody can read would choose any row of a person, and nobody would know."""
    study, told = terms(rows=rows, **({"count": "private"} if rows == 2 else {})), list[str]()
    undated = [("7", "2024-02-30", "100"), ("7", "2024-01-01", "120"), ("8", "", "140"), ("9", "soon", "90")]
    data = read(written(tmp_path, undated), study, told)
    said = "visits.csv: 3 rows have no date in the date column. Rows of the same person with a date are taken first"
    assert told == ([] if rows == "mean" else [f"{said} (lines 2, 4, 5)"])
    if rows in ("first", "last"):
        # Also where the last one is asked for.
        assert mean_of(study, data) == pytest.approx((120 + 140 + 90) / 3)


@pytest.mark.slow
def test_among_rows_of_one_day_their_order_decides_nothing_and_no_value_is_preferred(tmp_path: Path) -> None:
    study, chosen = terms(rows="first"), list[float]()
    for person in range(200):
        rows = [(f"p{person}", "2024-01-01", value) for value in ("0", "200")]
        both = {mean_of(study, read(written(tmp_path, one), study)) for one in (rows, rows[::-1])}
        assert len(both) == 1
        chosen += both
    # Missed by a fair choice with a chance below 1e-6.
    assert 65 < sum(value == 200 for value in chosen) < 135


def test_a_source_that_is_not_kept_is_read_again_with_few_persons_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    rows = [(str(rng.integers(60)), f"2024-01-{rng.integers(1, 29):02d}", str(rng.integers(200))) for _ in range(800)]
    path = written(tmp_path, rows)
    for rule in ("mean", "first", "last"):
        study = terms(rows=rule)
        kept = study.workload.encode(read(path, study), step=2.0**-20)
        with monkeypatch.context() as patched:
            patched.setattr(records, "MOST_KEPT", 100)
            again = read(path, study)
            pieces = list(again)
            assert len(pieces) > 5
            assert sum(map(len, pieces)) == len(again) == 60
            assert max(len(piece.values if not isinstance(piece, np.ndarray) else piece) for piece in pieces) < 300
            np.testing.assert_array_equal(study.workload.encode(again, step=2.0**-20).vector, kept.vector)
            np.testing.assert_array_equal(np.vstack(list(again.in_order)), read_columns(path, study.workload.columns))


def test_what_the_site_does_not_say_is_asked_for_in_one_sentence(tmp_path: Path) -> None:
    def refused(mapping: str, **more: object) -> str:
        study = terms(**more)
        with pytest.raises(InputError) as error:
            read(written(tmp_path, ROWS, mapping), study)
        return str(error.value)

    without = '[mapping.columns]\nsbp = "RR"\n'
    assert 'Write person = "patient_id" in table [mapping] of visits.format.toml' in refused(without)
    assert 'Write date = "visit_date" in table [mapping]' in refused(MAPPING.replace('date = "visit"', ""), rows="last")
    assert "column 'ward' is not one of the 3 columns" in refused(MAPPING.replace("patient", "ward"))
    nobody = written(tmp_path, [ROWS[3]])
    assert len(read(nobody, terms())) == 0
    with pytest.raises(InputError, match="which column of the data frame tells them apart"):
        Records(pl.DataFrame({"sbp": [1.0]}), terms().workload.columns, print, "mean")


def test_frames_name_their_persons_and_parties_get_whole_ones() -> None:
    study = terms()
    frame = pl.DataFrame({"sbp": [100.0, 140.0, 120.0, 60.0], "id": [1, 2, 1, 3], "site": ["a", "b", "a", "b"]})
    named = FrameOfPersons(frame, person="id")
    assert "id" not in repr(named)
    assert mean_of(study, Records(named, study.workload.columns, print, "mean")) == pytest.approx((110 + 140 + 60) / 3)
    columns, persons = study.workload.columns, study.persons
    _, parts = parties_of_table(named, columns, 3, None, persons=persons)
    assert sorted(len(part.values) for part in parts) == [1, 1, 2]
    assert {len(part) for part in parts} == {1}
    names, parts = parties_of_table(named, columns, None, "site", persons=persons)
    assert names == ["a", "b"]
    assert [len(part) for part in parts] == [1, 2]
    _, parts = parties_of_data([named, named], columns, None, None, persons=persons)
    assert [len(part) for part in parts] == [3, 3]
    with pytest.raises(InputError, match=r"3 persons of .* cannot be split over 4 parties"):
        parties_of_table(named, columns, 4, None, persons=persons)
    moved = FrameOfPersons(frame.with_columns(site=pl.Series(["a", "b", "b", "b"])), person="id")
    with pytest.raises(InputError, match="more parties than sites_per_person = 1"):
        parties_of_table(moved, columns, None, "site", persons=persons)
    parties_of_table(moved, columns, None, "site", persons=terms(sites_per_person=2).persons)


def test_a_study_of_persons_says_so_and_one_of_records_stays_what_it_was() -> None:
    study = terms()
    assert study.rows == "mean"
    assert study.sites_per_person == 1
    assert {"rows": "mean", "sites_per_person": 1, "unit": "person"}.items() <= study.context().items()
    assert {'unit = "person"', 'rows = "mean"', "sites_per_person = 1"} <= set(study_text(study).splitlines())
    assert StudyTerms.from_tables(study.tables(), "study") == study
    record = terms(unit="record")
    assert not {"rows", "sites_per_person"} & {*record.context(), *record.tables()["study"]}
    assert study.workload.sensitivity == record.workload.sensitivity
    assert terms(sites_per_person=3).target(5).sensitivity == pytest.approx(3 * record.target(5).sensitivity)
    for wrong, said in (
        ({"unit": "record", "rows": "mean"}, "rows is about persons, and the unit is record"),
        ({"unit": "party", "sites_per_person": 2}, "sites_per_person is about persons"),
        ({"rows": "median"}, "rows"),
        ({"rows": 0, "count": "private"}, "rows"),
        ({"rows": 5}, "Give count private"),
    ):
        with pytest.raises(InputError, match=said):
            terms(**wrong)


def test_what_a_person_at_several_parties_costs_stands_among_the_assumptions() -> None:
    for sites, said in ((1, "at more than one party"), (3, "at more than 3 parties")):
        plan = terms(sites_per_person=sites).plan(4)
        (text,) = [one.text for one in plan.assumptions if one.key == "person"]
        assert said in text
        assert f"sites_per_person = {sites}" in text
        assert Plan.from_json(plan.to_json()).target.unit == PrivacyUnit.PERSON


def test_rows_of_persons_leave_no_tests_in_answers(tmp_path: Path) -> None:
    study = terms(statistic=[{"kind": "correlation", "columns": ["sbp", "age"]}], column=[COLUMN, {**COLUMN, "name": "age"}])
    rng = np.random.default_rng(1)
    records = Workload(study.workload.columns, study.workload.statistics, PrivacyUnit.RECORD)
    mean = records.of_records(rng.uniform(0.0, 200.0, (500, 2))).mean(axis=0)
    (of_persons,) = study.workload.decode(mean, 1e-6, 500.0)
    (of_records,) = records.decode(mean, 1e-6, 500.0)
    assert of_persons.estimates.p_value is None
    assert not of_persons.estimates.tests
    assert [flag.code for flag in of_persons.estimates.flags if flag.code == "untested"] == ["untested"]
    assert "untested" not in {flag.code for flag in of_records.estimates.flags}
    assert of_records.estimates.p_value is not None or of_records.estimates.tests
    np.testing.assert_array_equal(of_persons.estimates.value, of_records.estimates.value)
