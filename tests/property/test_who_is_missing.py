"""What an answer says of its records: each number is within its error of the truth, or unknown, and never of somebody else's.

Every kind, with and without a condition, with public and private counts, alone and beside statistics that know more. The truth is
what the records inside the condition give by themselves, without noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.statistics import Answer, Statistic, Workload, parse_statistic, read_text
from quietmean.statistics.kinds.first_look import HIGH, LOW, OUTSIDE, FirstLook
from support.every_kind import COLUMNS, all_statistics, random_rows

Array = NDArray[np.float64]
SEED, RECORDS, ROOM = 20261129, 3000, 40_000
CONDITION = "ended == 'dead' and chance < 0.7"
# Small beside the records, so that errors are what slopes say; far above rounding.
NOISE = 2e-4
# Two-sided 7e-6 each: of some 4000 numbers one in 30 draws would fail by chance; the seed is fixed.
MOST = 4.5
MORE = ("count(sex, level=missing)", "proportion(sex, level=missing)", "proportion(smoker)", "count(age)", "table-1(weight)")
KINDS = {one.text: one for one in (*all_statistics(), *(parse_statistic(read_text(text)) for text in MORE))}
ALONE, TOLD = "alone", "count(where={where})"
BESIDE = (ALONE, TOLD, "count(weight)", "table-1(weight, where={where})", "proportion(smoker, where={where})")


def records() -> Array:
    return random_rows(np.random.default_rng(SEED), RECORDS, 0.15)


def inside(rows: Array) -> NDArray[np.bool_]:
    names = list(COLUMNS.names)
    return np.asarray((rows[:, names.index("ended")] == 2) & (rows[:, names.index("chance")] < 0.7))


@cache
def truth(text: str, where: bool) -> Answer:
    rows = records()
    rows = rows[inside(rows)] if where else rows
    workload = Workload(COLUMNS, (KINDS[text],), PrivacyUnit.RECORD)
    encoded = workload.encode(rows)
    with np.errstate(all="ignore"):
        return workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)[0]


def answer(text: str, where: bool, count: CountVisibility, beside: str) -> Answer:
    statistic: Statistic = KINDS[text]
    condition = CONDITION if where else ""
    asked = [replace(statistic, where=condition)]
    if beside != ALONE:
        other = parse_statistic(read_text(beside.format(where=CONDITION)))
        asked += [other] if other.text != asked[0].text else []
    workload = Workload(COLUMNS, tuple(asked), PrivacyUnit.RECORD, count=count, most_records=ROOM)
    encoded = workload.encode(records())
    rng = np.random.default_rng([SEED, sum(map(ord, text)), where, len(beside)])
    noise = NOISE * RECORDS / encoded.weight
    mean = encoded.vector / encoded.weight + noise * rng.standard_normal(encoded.vector.size)
    with np.errstate(all="ignore"):
        return workload.decode(mean, noise, encoded.weight)[0]


def left_out(found: Answer, where: bool) -> float:
    """Return the part of all values that lies outside of the bounds that a look proposes."""
    assert isinstance(found.statistic, FirstLook)
    rows, column = records(), COLUMNS[found.statistic.column]
    values = (rows[inside(rows)] if where else rows)[:, COLUMNS.names.index(column.name)]
    values = np.clip(values[np.isfinite(values)], column.low, column.high)
    low, high = (found.estimates.value[found.estimates.terms.index(end)] for end in (LOW, HIGH))
    return float(((values < low) | (values > high)).mean())


def untrue(found: Answer, right: Answer, where: bool) -> Iterator[str]:
    stated, true = found.estimates, right.estimates
    for name, value, error, exact in zip(
        stated.terms, stated.value.tolist(), stated.standard_error.tolist(), true.value.tolist(), strict=True
    ):
        # The sign of a component is nobody's.
        value, exact = (abs(value), abs(exact)) if right.statistic.name == "pca" else (value, exact)
        # Of the bounds that are proposed with this noise: without noise there may be others.
        exact = left_out(found, where) if name == OUTSIDE else exact
        if not math.isnan(value) and not (math.isnan(exact) or abs(value - exact) <= MOST * error + 1e-6 * max(1.0, abs(exact))):
            yield f"{name} is {value} ± {error}, right is {exact}"
    if stated.n is not None and true.n is not None:
        for name, (n, error), (exact, _) in zip(stated.terms, stated.n.tolist(), true.n.tolist(), strict=True):
            if not math.isnan(n) and abs(n - exact) > MOST * error + 1:
                yield f"{name} is of {n} ± {error} records, right is {exact}"
    complete, exactly = stated.completeness, true.completeness
    if complete is not None and exactly is not None:
        pairs = [("present", complete.present, complete.present_error, exactly.present)]
        pairs.append(("missing", complete.missing, complete.missing_error, exactly.missing))
        if where:
            assert complete.outside is not None
            assert complete.outside_error is not None
            pairs.append(("outside", complete.outside, complete.outside_error, RECORDS - right.records))
        for name, value, error, exact in pairs:
            if not math.isnan(value) and abs(value - exact) > MOST * error + 1:
                yield f"{value} ± {error} records are {name}, right is {exact}"
    if not math.isnan(found.records) and not where and abs(found.records - RECORDS) > MOST * NOISE * RECORDS * 20:
        yield f"{found.records} records, right is {RECORDS}"


def faults(text: str, where: bool, cases: Iterable[tuple[CountVisibility, str]]) -> list[str]:
    right = truth(text, where)
    return [
        f"{count.value}, beside {beside}: {fault}"
        for count, beside in cases
        for fault in untrue(answer(text, where, count, beside), right, where)
    ]


# A meta-analysis has no condition.
CASES = [(text, where) for text, one in KINDS.items() for where in (False, True) if not (where and one.name == "meta-analysis")]


@pytest.mark.parametrize(
    "studies",
    [
        ((CountVisibility.PUBLIC, TOLD), (CountVisibility.PRIVATE, ALONE)),
        pytest.param(tuple(itertools.product(CountVisibility, BESIDE)), marks=pytest.mark.slow),
    ],
    ids=["usual", "beside others"],
)
@pytest.mark.parametrize(("text", "where"), CASES)
def test_each_number_of_records_is_theirs_or_unknown(text: str, where: bool, studies: Any) -> None:
    found = faults(text, where, studies)
    assert not found, f"{len(found)}: " + "; ".join(found[:6])


def test_who_is_outside_is_told_where_the_number_inside_is() -> None:
    told = answer("proportion(sex)", True, CountVisibility.PUBLIC, TOLD).estimates
    assert not np.isnan(told.value).any()
    assert told.completeness is not None
    assert not math.isnan(told.completeness.missing)
    alone = answer("proportion(sex)", True, CountVisibility.PUBLIC, ALONE).estimates
    assert np.isnan(alone.value[alone.terms.index("missing")])
    assert not np.isnan(alone.value[: alone.terms.index("missing")]).any()
    assert alone.completeness is not None
    assert math.isnan(alone.completeness.missing)
    assert [flag.code for flag in alone.flags] == ["not-told"]
