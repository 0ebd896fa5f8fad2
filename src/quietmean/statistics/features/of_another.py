"""Features of part of the records, or of parts of each, of which all bounds are those of another feature."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from quietmean.statistics.statistic import Feature


@dataclass(frozen=True)
class OfAnother(Feature):
    """A feature whose encodings are mixtures of those of ``inner``: no two are further apart, and none is longer."""

    inner: Feature

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def sensitivity(self) -> float:
        return self.inner.sensitivity

    @property
    def length(self) -> float:
        return self.inner.length

    def for_private_count(self) -> Self:
        return replace(self, inner=self.inner.for_private_count())
