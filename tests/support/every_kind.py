"""Statistics of every registered kind, found by trying which columns each kind takes: a new kind needs no entry anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import OPEN, Parameter, parameters_of
from quietmean.statistics import Column, Columns, Statistic, Workload, registry

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
_BINS = 4
# So many different statistics of a kind.
_EACH = 2


def statistics_of(kind: type[Statistic], unit: PrivacyUnit = PrivacyUnit.RECORD) -> list[Statistic]:
    """Some statistics of ``kind`` of COLUMNS; perhaps none where whole parties are protected.

    Fails for a kind that takes none of what is tried: add a column that it takes.
    """
    wanted = parameters_of(kind).items()
    # A count has a column or a condition.
    required = [one for name, one in wanted if (one.default in (OPEN, ()) or name == "column") and name != "share"]
    optional = [one for one in parameters_of(kind).values() if one.default is None and str in one.kinds]
    # Some need what they call optional: both arms of a comparison.
    tried = itertools.chain(_possible(kind, unit, required), _possible(kind, unit, [*required, *optional]))
    found = list(itertools.islice(tried, _EACH))
    assert found or unit == PrivacyUnit.PARTY, f"no statistic of kind {kind.name} was found for the columns {', '.join(NAMES)}"
    return found


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


def _possible(kind: type[Statistic], unit: PrivacyUnit, asked: list[Parameter]) -> Iterator[Statistic]:
    usual = {"bins": _BINS} if "bins" in parameters_of(kind) else {}
    seen: set[str] = set()
    for values in itertools.product(*map(_values, asked)):
        given = {one.key: value for one, value in zip(asked, values, strict=True) if value is not None}
        try:
            one = kind.parse(usual | given)
            _ = Workload(COLUMNS, (one,), unit).scales
        except InputError:
            continue
        # Another first column each time: a table of sexes and one of ages rather than two of ages.
        first = str(values[0]) if values else one.text
        if first not in seen:
            seen.add(first)
            yield one


def _values(parameter: Parameter) -> list[str | list[str] | None]:
    if parameter.name == "of":
        return ["mean(weight)", "crosstab(sex, smoker)"]
    if parameter.name == "formula":
        return [f"{outcome} ~ {' + '.join(others)}" for outcome in NAMES for others in _several(outcome)]
    if parameter.default == ():
        return [None, *(list(names) for names in itertools.combinations(NAMES, 3)), *([name] for name in NAMES)]
    return [None, *NAMES] if parameter.optional else list(NAMES)


def _several(outcome: str) -> list[list[str]]:
    others = [name for name in NAMES if name != outcome]
    return [others[:2], others[-2:]]
