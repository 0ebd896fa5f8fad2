"""Who declares a person pays by person: what one person's rows change in a study of records, and who changes nothing any more."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.site_options import PaymentOptions
from quietmean.ledger import Ledger
from quietmean.planning import Plan
from quietmean.studies import StudyTerms
from quietmean.studies.data import Records
from quietmean.studies.data.persons import identities_of
from quietmean.studies.data.records import RowLimit
from quietmean.studies.party.accounts import People, records_for
from quietmean.studies.party.payment import StudyCost, payer_for
from quietmean.studies.party.policy import Policy

COLUMNS = [{"name": "sbp", "low": 0, "high": 300, "missing": "indicator"}, {"name": "sex", "levels": ["f", "m"]}]
MOST = 2
Row = tuple[str, str, str]


def study(unit: str, rows: str | int | None = None, *, private: bool = False) -> StudyTerms:
    statistics = [{"kind": "mean", "column": "sbp"}, {"kind": "proportion", "column": "sex"}]
    terms: dict[str, Any] = {"column": COLUMNS, "statistic": statistics, "epsilon": 1.0, "protocol": "local-dp", "unit": unit}
    terms |= {"count": "private", "most_records": 50} if private else {}
    return StudyTerms.parse(terms | ({} if rows is None else {"rows": rows}))


def written(folder: Path, rows: list[Row], limit: int | None = MOST) -> str:
    path = folder / "visits.csv"
    path.write_text("pid,sbp,sex\n" + "".join(f"{','.join(row)}\n" for row in rows))
    said = "" if limit is None else f"rows_per_person = {limit}\n"
    path.with_name("visits.format.toml").write_text(f'[mapping]\nperson = "pid"\n{said}')
    return str(path)


def encoded(folder: Path, terms: StudyTerms, rows: list[Row], silent: str = "") -> tuple[np.ndarray, float]:
    """The vector of a site, and the weight that others see; ``silent``: who takes part without a value."""
    records = records_for(terms, written(folder, rows), lambda sentence: None)
    people = People(records, records.source, folder)
    named = [] if records.persons is None else records.persons.tolist()
    digests = people._digests[[one in identities_of([silent]).tolist() for one in named]] if silent else np.empty(0, np.uint64)
    made = terms.workload.encode(people.without_value(digests), step=2.0**-20)
    return made.vector, made.weight


OTHERS: list[Row] = [
    ("a", "120", "f"),
    ("b", "130", "m"),
    ("a", "140", "f"),
    ("c", "90", "m"),
    ("c", "90", "m"),
    ("c", "90", "m"),
]
UNITS = [
    ("record", None, False),
    ("record", None, True),
    ("person", "mean", False),
    ("person", "mean", True),
    ("person", 2, True),
]


@pytest.mark.parametrize(("unit", "rows", "private"), UNITS)
def test_who_has_no_room_changes_nothing(tmp_path: Path, unit: str, rows: str | int | None, private: bool) -> None:
    """Neither by what the rows say, nor, where it is private, by how many there are or whether there is one."""
    terms = study(unit, rows, private=private)
    mine = [[("p", "300", "m"), ("p", "0", "f")], [("p", "", ""), ("p", "17", "m")], [("p", "300", "m"), ("p", "300", "m")]]
    if unit == "person" or private:
        mine += [[("p", "1", "f")], [("p", "250", "m")] * 5]
    if private:
        mine.append([])
    made = [encoded(tmp_path, terms, [*own, *OTHERS], silent="p") for own in mine]
    for vector, weight in made[1:]:
        assert np.array_equal(vector, made[0][0])
        assert weight == made[0][1]
    # Others do.
    assert not np.array_equal(encoded(tmp_path, terms, [*mine[0], *OTHERS[1:], ("a", "0", "m")], silent="p")[0], made[0][0])


@pytest.mark.parametrize("private", [False, True])
def test_a_person_changes_a_study_of_records_by_its_rows_at_most(tmp_path: Path, private: bool) -> None:
    """Neighbours with one person's rows replaced: of the same number where that is public, of any number where it is private."""
    terms, rng = study("record", private=private), np.random.default_rng(2)
    bound = MOST * terms.workload.sensitivity * (2 if private else 1)
    largest = 0.0
    for _ in range(60):
        counts = (4, 4) if not private else tuple(int(count) for count in rng.integers(0, 6, 2))
        both = []
        for count in counts:
            own = [("p", rng.choice(["0", "300", "150", "", "x"]), rng.choice(["f", "m", "", "z"])) for _ in range(count)]
            both.append(encoded(tmp_path, terms, [*own, *OTHERS]))
        assert both[0][1] == both[1][1]
        largest = max(largest, float(np.linalg.norm(both[0][0] - both[1][0])))
    print(f"largest distance {largest / bound:.6f} of what is charged")
    assert largest <= bound * 1.000001
    assert largest > bound / MOST / 2


def test_which_rows_stay_is_decided_by_the_persons_rows_alone_and_not_by_their_places(tmp_path: Path) -> None:
    terms, rng = study("record"), np.random.default_rng(3)
    rows = [*OTHERS, *[("p", str(value), "fm"[value % 2]) for value in (10, 20, 20, 20, 50)], ("", "99", "f")]
    first = encoded(tmp_path, terms, rows)
    for _ in range(10):
        rng.shuffle(rows)
        assert np.array_equal(encoded(tmp_path, terms, rows)[0], first[0])
    # Somebody else's rows, and those of nobody, decide about no row of p; nobody's rows have no value.
    limits = []
    for others in (OTHERS, [], [("", "1", "m")] * 9):
        data = written(tmp_path, [*others, *(row for row in rows if row[0] == "p")])
        records = records_for(terms, data, lambda sentence: None)
        assert isinstance(records, Records)
        limits.append(records._row_limit)
    mine = [{p: (last, equal) for p, last, equal in zip(one.persons, one.last, one.equal, strict=True)} for one in limits if one]
    (person,) = mine[1]
    assert {one[person] for one in mine} == {mine[1][person]}
    empty = [row for row in rows if row[0]]
    assert np.array_equal(encoded(tmp_path, terms, [*empty, ("", "", "")])[0], first[0])


def test_rows_of_one_content_are_counted_by_their_occurrence() -> None:
    from quietmean.statistics.persons import PersonRows

    def rows(values: list[float]) -> PersonRows:
        return PersonRows(np.array(values)[:, None], np.ones((len(values), 2), dtype=np.uint64), np.full(len(values), np.nan))

    for values in ([1.0] * 5, [1.0, 1.0, 2.0, 2.0, 3.0], [3.0, 1.0, 2.0], [1.0]):
        for most in (1, 2, 4):
            limit = RowLimit.of([rows(values[:2]), rows(values[2:])], most)
            seen: dict[int, int] = {}
            gone = np.concatenate([limit.beyond(rows(part), seen) for part in (values[:2], values[2:])])
            assert (~gone).sum() == min(most, len(values))


def paying(folder: Path, terms: StudyTerms, plan: Plan, data: str, **options: Any) -> Any:
    payer = payer_for(Policy.load(None), terms.unit, "visits", PaymentOptions(**options), lambda sentence: None)
    assert payer is not None
    records = records_for(terms, data, lambda sentence: None)
    return payer.of(records.in_order, People(records, data, folder), StudyCost("s", plan))


def test_a_study_of_records_is_charged_by_the_rows_of_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quietmean.studies.party.policy.data_folder", lambda: tmp_path)
    records, persons = study("record"), study("person", "mean")
    plans = {"record": records.plan(3), "person": persons.plan(3)}
    data = written(tmp_path, OTHERS, limit=None)
    # Of the largest number of rows of a person, which the owner alone sees.
    said = r"one record.* It costs epsilon 1\.0\d* for one record, 3\.\d* for the person with most rows, 3\..*rows_per_person = 3"
    with pytest.raises(InputError, match=said):
        paying(tmp_path, records, plans["record"], data)
    assert not (tmp_path / "ledger").exists()
    data = written(tmp_path, OTHERS)
    for name, terms, options in (("record", records, {}), ("person", persons, {}), ("record", records, {"group": 3})):
        study_name = f"{name} {options}"
        payer = paying(tmp_path, terms, plans[name], data, **options)
        payer.reserve(StudyCost("s", plans[name]), partial(str, study_name), content=study_name.encode())
    with Ledger.open(tmp_path / "ledger") as book:
        (account,) = book.accounts()
    assert account.unit == PrivacyUnit.PERSON
    assert [entry.factor for entry in account.entries] == [MOST, 1, 3 * MOST]
    assert account.entries[0].mu == pytest.approx(MOST * plans["record"].charge.mu, rel=1e-12)


def test_private_numbers_leave_out_what_public_ones_leave_empty() -> None:
    assert study("record", private=True).count == CountVisibility.PRIVATE
    for raw in (0, -1, 1001, 1.5, True, "2"):
        from quietmean.studies.data.location import SiteMapping

        with pytest.raises(InputError, match=r"rows_per_person in \[mapping\] of x is not a whole number from 1 to 1000\. Write"):
            SiteMapping.parse({"person": "pid", "rows_per_person": raw}, "x")
