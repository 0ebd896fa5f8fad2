"""A number with certain bounds on both sides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """An interval that is certain to hold the true value, with the best single guess inside it.

    ``lower`` and ``upper`` are bounds, ``estimate`` is not. Reports about privacy loss use ``upper``.
    """

    lower: float
    estimate: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError(f"not ordered: {self.lower} <= {self.estimate} <= {self.upper}")

    @property
    def relative_width(self) -> float:
        """Width of the interval over its estimate; 0 for an exact (also an infinite) number."""
        if self.lower == self.upper:
            return 0.0
        return (self.upper - self.lower) / self.estimate

    @classmethod
    def exact(cls, value: float) -> Bound:
        return cls(value, value, value)
