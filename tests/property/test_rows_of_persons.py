"""Persons with any number of rows: how far a vector moves when one of them changes, for every kind of statistic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.grid import on_grid
from quietmean.statistics import Statistic, Workload
from quietmean.statistics.persons import Grouped, PersonRows
from quietmean.testing.statistic_conformance import ROUNDING, farthest_records, longest_record
from support.every_kind import COLUMNS, all_statistics

Array = NDArray[np.float64]
# A grid as coarse as any that plans choose for few statistics, and none.
STEPS = (0.0, 2.0**-14)
MOST, PERSONS = 5, 120
ALL = all_statistics()
SEVERAL = [one for one in ALL if not one.one_row]
FEW = [one for one in SEVERAL if one.name in ("mean", "variance", "crosstab", "linear-regression", "quantiles")]


def of_rows(statistic: Statistic, rows: str | int, **more: Any) -> Workload:
    count = CountVisibility.PRIVATE if isinstance(rows, int) else CountVisibility.PUBLIC
    return Workload(COLUMNS, (statistic,), PrivacyUnit.PERSON, None, count, 40, rows=rows, **more)


def as_records(workload: Workload) -> Workload:
    return Workload(COLUMNS, workload.statistics, PrivacyUnit.RECORD, None, workload.count, workload.most_records)


def candidates(workload: Workload, step: float) -> Array:
    """Rows that are far from each other, or long, and some at random with missing cells and values out of bounds."""
    records = as_records(workload)
    if workload.hides_count:
        far = longest_record(records, restarts=1, step=step)[1][None]
    else:
        far = farthest_records(records, restarts=1, step=step)[1]
    rng = np.random.default_rng(5)
    width = np.array([column.width if column.numeric else len(column.categories) for column in COLUMNS])
    low = np.array([column.low if column.numeric else 0.0 for column in COLUMNS])
    drawn = low + width * rng.uniform(-0.2, 1.2, (40, len(low)))
    for index, column in enumerate(COLUMNS):
        if not column.numeric:
            drawn[:, index] = np.floor(drawn[:, index])
    drawn[rng.random(drawn.shape) < 0.2] = np.nan
    return np.vstack([far, far, far, far, drawn])


def persons(rows: Array, fewest: int) -> list[Array]:
    """Persons of so many rows at least, five at most: each of the far rows alone and repeated, and mixtures of all."""
    rng = np.random.default_rng(6)
    repeated = [np.tile(row, (count, 1)) for row in rows[:2] for count in range(max(fewest, 1), MOST + 1)]
    mixed = [rows[rng.integers(len(rows), size=rng.integers(max(fewest, 1), MOST + 1))] for _ in range(PERSONS)]
    return [*repeated, *mixed, *([rows[:0]] if fewest == 0 else [])]


def vectors(workload: Workload, everybody: list[Array], step: float) -> Array:
    """Of each person: what it adds to its party's vector, whose public weight is the same whatever the number of its rows."""
    others = [everybody[0][:1], everybody[1][:1]]
    for person in (
        everybody[0][:1],
        everybody[MOST - 1],
        everybody[-1][:2] if workload.rows in ("mean", MOST) else everybody[-1],
    ):
        encoded = workload.encode(grouped([*others, person]), step=step)
        assert encoded.weight == (workload.most_records if workload.hides_count else 3)
        np.testing.assert_allclose(
            encoded.vector, workload.of_person(grouped([*others, person]), step=step).sum(axis=0), atol=1e-9
        )
    there = [person for person in everybody if len(person)]
    found = workload.of_person(grouped(there), step=step)
    return np.vstack([found, np.zeros((len(everybody) - len(there), found.shape[1]))])


def grouped(parts: list[Array]) -> Grouped:
    there = [part for part in parts if len(part)]
    counts = np.array([len(part) for part in there])
    return Grouped(np.vstack(there), np.cumsum(counts) - counts)


def farthest(found: Array) -> float:
    squares = (found**2).sum(axis=1)
    first, second = np.unravel_index(int((squares[:, None] + squares - 2 * found @ found.T).argmax()), (len(found), len(found)))
    return float(np.linalg.norm(found[first] - found[second]))


def check_mean(statistic: Statistic, step: float) -> None:
    """No two persons are further apart than two records may be, and some are as far as the farthest records that were found."""
    workload = of_rows(statistic, "mean")
    rows = candidates(workload, step)
    found = vectors(workload, persons(rows, 1), step)
    assert workload.sensitivity == as_records(workload).sensitivity
    assert farthest(found) <= workload.sensitivity * (1 + 2 * ROUNDING), f"{statistic.text}: {farthest(found)} of {step}"
    assert farthest(found) >= 0.99 * farthest(as_records(workload).of_records(rows[:2], step=step))
    assert not step or all(on_grid(one, step) for one in found), f"{statistic.text} is not rounded after the mean of rows"
    if not step:
        for person, vector in list(zip(persons(rows, 1), found, strict=True))[::5]:
            np.testing.assert_allclose(vector, as_records(workload).of_records(person).mean(axis=0), atol=1e-9)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("statistic", SEVERAL, ids=lambda one: one.text)
def test_a_person_of_any_number_of_rows_moves_a_vector_as_far_as_a_record(statistic: Statistic) -> None:
    for step in STEPS:
        check_mean(statistic, step)


@pytest.mark.parametrize("statistic", SEVERAL, ids=lambda one: one.text)
def test_the_sum_of_five_rows_moves_it_five_times_as_far_and_no_rows_are_possible(statistic: Statistic) -> None:
    for step in STEPS:
        workload = of_rows(statistic, MOST)
        try:
            _ = workload.sensitivity
        except InputError:
            # A statistic that has no answer where counts are private has none here either.
            with pytest.raises(InputError, match="private counts"):
                _ = as_records(workload).sensitivity
            return
        rows = candidates(workload, step)
        found = vectors(workload, persons(rows, 0), step)
        record = float(np.linalg.norm(as_records(workload).of_records(rows[:1], step=step)))
        assert workload.sensitivity == pytest.approx(MOST * as_records(workload).sensitivity)
        lengths = np.linalg.norm(found, axis=1)
        assert lengths.max() <= workload.sensitivity * (1 + 2 * ROUNDING)
        assert lengths.max() >= 0.99 * MOST * record > 0
        assert farthest(found) <= 2 * workload.sensitivity * (1 + 2 * ROUNDING)
        assert not step or all(on_grid(one, step) for one in found)


@pytest.mark.parametrize("statistic", FEW, ids=lambda one: one.text)
@pytest.mark.parametrize("rows", ["first", "last"])
def test_of_one_row_a_person_moves_it_as_far_as_a_record(statistic: Statistic, rows: str) -> None:
    workload = of_rows(statistic, rows)
    far = candidates(workload, STEPS[1])
    rng = np.random.default_rng(7)
    everybody = []
    for person in persons(far, 1):
        identity = np.tile(rng.integers(1, 2**63, 2).astype(np.uint64), (len(person), 1))
        everybody.append(PersonRows(person, identity, rng.integers(0, 3, len(person)).astype(np.float64)).chosen(rows).values)
    assert {len(person) for person in everybody} == {1}
    found = vectors(workload, everybody, STEPS[1])
    assert 0.9 * farthest(as_records(workload).of_records(far[:2], step=STEPS[1])) <= farthest(found)
    assert farthest(found) <= workload.sensitivity * (1 + ROUNDING)


def test_persons_at_several_parties_are_counted_as_often() -> None:
    once, thrice = (of_rows(FEW[0], "mean", sites_per_person=sites) for sites in (1, 3))
    assert thrice.sensitivity == pytest.approx(3 * once.sensitivity)
    assert thrice.scales == once.scales
    assert of_rows(FEW[0], 2, sites_per_person=3).l1 == pytest.approx(6 * as_records(of_rows(FEW[0], 2)).l1)
    assert of_rows(FEW[0], 2, sites_per_person=3).sensitivity == pytest.approx(6 * as_records(of_rows(FEW[0], 2)).sensitivity)
    assert thrice.budget_part(FEW[0]) == pytest.approx(1)


def _rows_as_weight(grouped: Grouped, of_rows: Array) -> Array:
    return np.add.reduceat(of_rows, grouped.starts, axis=0)


def _first_row(grouped: Grouped, of_rows: Array) -> Array:
    return of_rows[grouped.starts]


def _halved(grouped: Grouped, of_rows: Array) -> Array:
    return np.add.reduceat(of_rows, grouped.starts, axis=0) / np.maximum(grouped.counts[:, None] - 1, 1)


def _of_mean_record(workload: Workload, grouped: Grouped, *, step: float = 0.0) -> Array:
    """Averaged before the features: a mean of squares becomes a square of a mean."""
    filled = np.nan_to_num(grouped.values, nan=0.5)
    return as_records(workload).of_records(np.add.reduceat(filled, grouped.starts, axis=0) / grouped.counts[:, None], step=step)


def _rounded_first(workload: Workload, grouped: Grouped, *, step: float = 0.0) -> Array:
    return grouped.means(as_records(workload).of_records(grouped.values, step=step))


def _rows_in_weight(workload: Workload, records: Array | Grouped) -> int:
    return len(records.values) if isinstance(records, Grouped) else len(records)


def _check_few() -> None:
    for statistic in FEW:
        for step in STEPS:
            check_mean(statistic, step)


@pytest.mark.parametrize(
    ("where", "name", "mutant"),
    [
        (Grouped, "means", _rows_as_weight),
        (Grouped, "means", _first_row),
        (Grouped, "means", _halved),
        (Workload, "of_person", _of_mean_record),
        (Workload, "of_person", _rounded_first),
        (Workload, "units_in", _rows_in_weight),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_wrong_means_of_rows_are_found(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, mutant: Callable[..., object]
) -> None:
    monkeypatch.setattr(where, name, mutant)
    with pytest.raises(AssertionError):
        _check_few()


def test_sums_of_rows_need_private_counts_and_times_to_events_one_row() -> None:
    with pytest.raises(InputError, match=r"adds up a person's rows.*Give count private"):
        Workload(COLUMNS, (FEW[0],), PrivacyUnit.PERSON, rows=3)
    one_row = [one for one in ALL if one.one_row]
    assert {one.name for one in one_row} == {
        "survival",
        "restricted-mean",
        "hazard-ratio",
        "cumulative-incidence",
        "roc",
        "calibration",
        "mann-whitney",
    }
    for statistic in one_row:
        with pytest.raises(InputError, match=r"holds for one row a person.*first or last"):
            of_rows(statistic, "mean")
        assert of_rows(statistic, "last").sensitivity == as_records(of_rows(statistic, "last")).sensitivity
    with pytest.raises(InputError, match="more rows than rows = first lets count"):
        of_rows(FEW[0], "first").encode(grouped([np.zeros((2, len(COLUMNS)))]))
    with pytest.raises(InputError, match="known by person"):
        of_rows(FEW[0], "mean").encode(np.zeros((2, len(COLUMNS))))
