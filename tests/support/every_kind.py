"""Statistics of every registered kind, found by trying which columns each kind takes: a new kind needs no entry in tests.

But README names it, and :mod:`support.real_data` has a question that it answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import OPEN, Parameter, parameters_of
from quietmean.statistics import Column, Columns, Statistic, Workload, read_text, registry
from quietmean.statistics.scenario import EXPECT

# Columns of all kinds that any statistic asks for: numbers that may be missing or not, times, chances, levels, truth values.
COLUMNS = Columns(
    [
        Column(name="age", low=0, high=100, missing="indicator"),
        Column(name="weight", low=40, high=140),
        Column(name="chance", low=0, high=1),
        Column(name="sex", levels=("f", "m")),
        Column(name="ended", levels=("alive", "moved", "dead")),
        Column(name="smoker", boolean=True),
    ]
)
NAMES = [column.name for column in COLUMNS]
OF_RECORDS = "adds up records, but the unit is party"
_BINS = 4
# So many different statistics of a kind.
_EACH = 2


def statistics_of(kind: type[Statistic], unit: PrivacyUnit = PrivacyUnit.RECORD, columns: Columns = COLUMNS) -> list[Statistic]:
    """Some statistics of ``kind`` of these columns; perhaps none where whole parties are protected.

    Fails for a kind that takes none of what is tried: add a column that it takes.
    """
    wanted = parameters_of(kind).items()
    # A count has a column or a condition.
    required = [one for name, one in wanted if (one.default in (OPEN, ()) or name == "column") and name not in ("share", EXPECT)]
    optional = [one for one in parameters_of(kind).values() if one.default is None and str in one.kinds]
    # Some need what they call optional: both arms of a comparison.
    seen: set[str] = set()
    tried = itertools.chain(*(_possible(kind, unit, asked, columns, seen) for asked in (required, [*required, *optional])))
    found = list(itertools.islice(tried, _EACH))
    names = ", ".join(columns.names)
    assert found or unit == PrivacyUnit.PARTY, f"no statistic of kind {kind.name} was found for the columns {names}"
    return found


def with_every_kind(texts: Iterable[str], columns: Columns) -> list[str]:
    """These statistics, and some of each kind of which none is there."""
    given = list(texts)
    there = {read_text(text)["kind"] for text in given}
    others = [kind for name, kind in registry().items() if name not in there]
    return given + list(dict.fromkeys(one.text for kind in others for one in statistics_of(kind, columns=columns)))


def random_rows(rng: np.random.Generator, records: int, missing: float) -> NDArray[np.float64]:
    """Rows of COLUMNS, NaN for a missing cell where the column may have one."""
    table = np.empty((records, len(COLUMNS)))
    for place, column in enumerate(COLUMNS):
        if column.levels or column.boolean:
            table[:, place] = rng.integers(0, len(column.levels) or 2, records)
        else:
            table[:, place] = rng.uniform(column.low, column.high, records)
    table[rng.random(table.shape) < missing] = np.nan
    return table


def all_statistics(unit: PrivacyUnit = PrivacyUnit.RECORD) -> list[Statistic]:
    """Some of every registered kind, none twice."""
    return list(_found(unit))


@cache
def _found(unit: PrivacyUnit) -> tuple[Statistic, ...]:
    """To find them takes long, and many tests ask."""
    found = {one.text: one for kind in registry().values() for one in statistics_of(kind, unit)}
    return tuple(found.values())


def _possible(
    kind: type[Statistic], unit: PrivacyUnit, asked: list[Parameter], columns: Columns, seen: set[str]
) -> Iterator[Statistic]:
    usual = {"bins": _BINS} if "bins" in parameters_of(kind) else {}
    for values in itertools.product(*(_values(one, columns) for one in asked)):
        given = {one.key: value for one, value in zip(asked, values, strict=True) if value is not None}
        try:
            one = kind.parse(usual | given)
            _ = Workload(columns, (one,), unit).scales
        except InputError as error:
            if OF_RECORDS in str(error):
                # Whatever its columns, a kind that adds up records is refused where whole parties are protected.
                return
            continue
        # Another first column each time: a table of sexes and one of ages rather than two of ages.
        first = str(values[0]) if values else one.text
        if first not in seen:
            seen.add(first)
            yield one


def _values(parameter: Parameter, columns: Columns) -> list[str | list[str] | None]:
    names = columns.names
    if parameter.name == "of":
        numbers = [column.name for column in columns if column.numeric]
        levels = [column.name for column in columns if len(column.categories) == 2]
        return [f"mean({numbers[1]})", f"crosstab({levels[0]}, {levels[1]})"]
    if parameter.name == "formula":
        others = [[name for name in names if name != outcome] for outcome in names]
        each = zip(names, others, strict=True)
        return [f"{outcome} ~ {' + '.join(some)}" for outcome, rest in each for some in (rest[:2], rest[-2:])]
    if parameter.default == ():
        return [None, *(list(some) for some in itertools.combinations(names, 3)), *([name] for name in names)]
    return [None, *names] if parameter.optional else list(names)
