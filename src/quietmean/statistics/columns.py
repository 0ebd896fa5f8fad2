"""The columns that a study declares, and their bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from quietmean.core.errors import InputError
from quietmean.core.schema import nearest


class Column(BaseModel):
    """A numeric column and its public bounds, in its own units. Raises :class:`InputError` unless low < high, both finite."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    low: float
    high: float

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(
                f"bounds {self.low:g} {self.high:g} are not two finite numbers in rising order: give --bounds LOW HIGH"
            )
        return self

    @property
    def width(self) -> float:
        return self.high - self.low


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
