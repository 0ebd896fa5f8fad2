"""What making a plan takes, said before it is made."""

from __future__ import annotations

from dataclasses import dataclass

# Of 8 bytes; with what is there anyway these are a gigabyte.
_MOST_NUMBERS, _MOST_SECONDS = 1.1e8, 20.0


@dataclass(frozen=True)
class PlanningCost:
    """Memory and time of one core that making a plan takes besides what every plan does."""

    numbers: float = 0.0
    seconds: float = 0.0

    @property
    def within(self) -> bool:
        """Whether a plan is made where nobody asked for the protocol by its name: in a gigabyte, and in twenty seconds."""
        return self.numbers <= _MOST_NUMBERS and self.seconds <= _MOST_SECONDS

    def __str__(self) -> str:
        needed = [f"{8 * self.numbers / 1e9:.2g} GB"] * (self.numbers > _MOST_NUMBERS)
        return " and ".join(needed + [f"{self.seconds:.2g} s of one core"] * (self.seconds > _MOST_SECONDS))
