"""The columns that a study declares: bounds of numbers, levels of categories, and what stands for a missing cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import nearest, require_known

# What may stand for a value that is missing.
RULES = ("centre", "indicator")
# The levels of a column that is true or false, and how cells may be written, in small letters.
NO, YES = "no", "yes"
TRUTH = {NO: ("no", "n", "false", "f", "0", "0.0"), YES: ("yes", "y", "true", "t", "1", "1.0")}
# The level of a cell that is empty or holds none of the declared ones.
MISSING = "missing"


class Column(BaseModel):
    """A column and what is public about it: a number between bounds in its own units, one of ``levels``, or ``boolean``.

    ``missing``, of numbers: what stands for a cell without one. ``centre``: the middle of the bounds, counted as present.
    ``indicator``: nothing, and how many are present is estimated under the same noise. Of levels, missing is one more level.
    Raises :class:`InputError` unless exactly one of the three is declared, low < high are finite, and levels are distinct.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    # Of no meaning where the column has levels.
    low: float = 0.0
    high: float = 0.0
    missing: str = "centre"
    levels: tuple[str, ...] = ()
    boolean: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        missing_rule(self.missing)
        bounded = {"low", "high"} & self.model_fields_set
        if bool(bounded) + bool(self.levels) + self.boolean != 1:
            raise InputError(
                f"column {self.name!r} must have either bounds, levels or boolean: give --bounds LOW HIGH (in a study file low "
                'and high), --levels A B (levels = ["A", "B"]) or --boolean (boolean = true)'
            )
        if len(bounded) == 1:
            (lacking,) = {"low", "high"} - bounded
            raise InputError(f"column {self.name!r} has no {lacking}: give both bounds, low and high")
        if bounded and not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(
                f"bounds {self.low:g} {self.high:g} are not two finite numbers in rising order: give --bounds LOW HIGH"
            )
        if self.levels:
            self._check_levels()
        return self

    def _check_levels(self) -> None:
        if len(self.levels) < 2 or len(set(self.levels)) < len(self.levels):
            raise InputError(f"column {self.name!r} needs two or more different levels: name each value it can have once")
        if MISSING in self.levels:
            raise InputError(f"column {self.name!r} declares the level {MISSING!r}, which empty cells have already: leave it out")

    @property
    def numeric(self) -> bool:
        """Has it bounds?"""
        return not (self.levels or self.boolean)

    @property
    def categories(self) -> tuple[str, ...]:
        """Its levels without ``missing``; none of a column of numbers."""
        return (NO, YES) if self.boolean else self.levels

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def centre(self) -> float:
        return self.low + self.width / 2

    def describe(self) -> dict[str, Any]:
        """Plain JSON data, as in a study file."""
        if self.numeric:
            rule = {} if self.missing == "centre" else {"missing": self.missing}
            return {"name": self.name, "low": self.low, "high": self.high, **rule}
        return {"name": self.name, **({"boolean": True} if self.boolean else {"levels": list(self.levels)})}


def missing_rule(text: str) -> str:
    """What stands for a missing value. Raises :class:`InputError` for anything that is no rule."""
    if text in ("drop", "refuse"):
        raise InputError(
            f"missing {text!r} would publish how many records are incomplete, or whether one is: choose centre, or indicator for "
            "the mean of the values that are present"
        )
    return require_known("missing", text, RULES)


class Columns:
    """The declared columns in their order, and by name, and the ``unit`` that the study protects.

    Raises :class:`InputError` if there are none or two of one name.
    """

    def __init__(self, columns: Iterable[Column], unit: PrivacyUnit = PrivacyUnit.RECORD) -> None:
        self._all = tuple(columns)
        self.unit = unit
        if not self._all:
            raise InputError("no column is named: give at least one --column")
        if len(set(self.names)) != len(self._all):
            raise InputError(f"a column is named twice in {', '.join(self.names)}: name each once")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self._all)

    def __iter__(self) -> Iterator[Column]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, name: str) -> Column:
        """Raises :class:`InputError` for a column that is not declared, with the nearest one that is."""
        if name not in self.names:
            near, known = nearest(name, self.names), ", ".join(self.names)
            raise InputError(f"column {name!r} is not declared{near}: declare it with --column and --bounds beside {known}")
        return self._all[self.names.index(name)]

    def number(self, name: str) -> Column:
        """A column with bounds. Raises :class:`InputError` for any other."""
        column = self[name]
        if not column.numeric:
            raise InputError(f"column {name!r} has levels and no bounds: choose a column of numbers, or proportion({name})")
        return column

    def category(self, name: str) -> Column:
        """A column with levels, or a boolean one. Raises :class:`InputError` for any other."""
        column = self[name]
        if column.numeric:
            raise InputError(f"column {name!r} has bounds and no levels: choose one declared with levels or boolean")
        return column
