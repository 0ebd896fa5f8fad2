"""Where a party is in a study."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

# (phase, round): whatever comes later in a study is greater.
Position: TypeAlias = tuple[int, int]


class Phase(IntEnum):
    AGREEMENT = 0
    MIXING = 1
    DISSEMINATION = 2
    CLOSING = 3

    @property
    def label(self) -> str:
        """The name in files and on the screen."""
        return self.name.lower()
