"""Nothing that is printed is impossible, whatever the noise: ranges, curves, intervals, sums, and numbers of records.

Of every kind, on records of several shapes, with noise up to half of the records: in the data of an answer, from which all
tables, files and pages are made, and in the texts of its terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.statistics import Answer, Workload
from support.degenerate import KINDS, RECORDS, SEED, TABLES
from support.every_kind import COLUMNS, NAMES
from support.possible import impossible

Array = NDArray[np.float64]
# So many records, where their number is private and there is room for more.
MOST = 120_000.0
# So large a part of the records is the noise of a count; the largest is half of them.
NOISES = (0.0, 0.003, 0.02, 0.08, 0.5)
# Of all cases, those that are always tried.
SOME = (
    ("usual", 0.02, CountVisibility.PUBLIC),
    ("usual", 0.5, CountVisibility.PRIVATE),
    ("rare", 0.003, CountVisibility.PRIVATE),
    ("same", 0.08, CountVisibility.PUBLIC),
    ("empty", 0.0, CountVisibility.PUBLIC),
)
EVERY = tuple(itertools.product(TABLES, NOISES, CountVisibility))


def answers(text: str, table: str, noise: float, draws: int, count: CountVisibility) -> Iterator[Answer]:
    (statistic,) = [one for one in KINDS if one.text == text]
    workload = Workload(COLUMNS, (statistic,), PrivacyUnit.RECORD, count=count, most_records=RECORDS)
    encoded = workload.encode(TABLES[table])
    rng = np.random.default_rng([SEED, len(text), sum(map(ord, text))])
    for _ in range(draws):
        # The noise of a count is that of a coordinate over its scale, and so many records of all.
        level = noise * min(workload.scales.values())
        mean = encoded.vector / encoded.weight + level * rng.standard_normal(encoded.vector.size)
        with np.errstate(all="ignore"):
            yield from workload.decode(mean, level, encoded.weight)


def found(text: str, draws: int, cases: Iterable[tuple[str, float, CountVisibility]]) -> list[str]:
    return [
        f"{table}, noise {noise}, {count.value}: {fault}"
        for table, noise, count in cases
        for answer in answers(text, table, noise, 1 if noise == 0 else draws, count)
        for fault in impossible(answer, MOST)
    ]


@pytest.mark.parametrize(("draws", "cases"), [(1, SOME), pytest.param(12, EVERY, marks=pytest.mark.slow)], ids=["some", "every"])
@pytest.mark.parametrize("text", [one.text for one in KINDS])
def test_nothing_is_impossible(text: str, draws: int, cases: Iterable[tuple[str, float, CountVisibility]]) -> None:
    faults = found(text, draws, cases)
    assert not faults, f"{len(faults)}: " + "; ".join(faults[:5])


def test_all_columns_are_asked_for() -> None:
    asked = " ".join(one.text for one in KINDS)
    assert all(name in asked for name in NAMES)
