"""The columns that a study declares, and their bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from quietmean.core.errors import InputError
from quietmean.core.schema import nearest, require_known

# What may stand for a value that is missing.
RULES = ("centre", "indicator")


class Column(BaseModel):
    """A numeric column and its public bounds, in its own units. Raises :class:`InputError` unless low < high, both finite.

    ``missing``: what stands for a cell without a number. ``centre``: the middle of the bounds, counted as present.
    ``indicator``: nothing, and how many are present is estimated under the same noise.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    low: float
    high: float
    missing: str = "centre"

    @model_validator(mode="after")
    def _check(self) -> Self:
        missing_rule(self.missing)
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(
                f"bounds {self.low:g} {self.high:g} are not two finite numbers in rising order: give --bounds LOW HIGH"
            )
        return self

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def centre(self) -> float:
        return self.low + self.width / 2

    def describe(self) -> dict[str, Any]:
        """Plain JSON data, as in a study file."""
        return self.model_dump(exclude_defaults=True)


def missing_rule(text: str) -> str:
    """What stands for a missing value. Raises :class:`InputError` for anything that is no rule."""
    if text in ("drop", "refuse"):
        raise InputError(
            f"missing {text!r} would publish how many records are incomplete, or whether one is: choose centre, or indicator for "
            "the mean of the values that are present"
        )
    return require_known("missing", text, RULES)


class Columns:
    """The declared columns in their order, and by name. Raises :class:`InputError` if there are none or two of one name."""

    def __init__(self, columns: Iterable[Column]) -> None:
        self._all = tuple(columns)
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
