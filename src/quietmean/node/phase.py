"""The phases of a study, and the position of a party in them."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

# (phase, round), ordered: later positions of a study are greater.
Position: TypeAlias = tuple[int, int]


class Phase(IntEnum):
    """The phases of a study, in order."""

    AGREEMENT = 0
    MIXING = 1
    GATE = 2
    DISSEMINATION = 3
    FINALIZATION = 4

    @property
    def label(self) -> str:
        """The name in files, events and on the screen."""
        return _LABELS[self]

    @classmethod
    def from_label(cls, label: str) -> Phase:
        """The inverse of :attr:`label`. Raises ValueError for any other text."""
        return cls(_LABELS.index(label))


# The waits at a gate before the release: until all mixing is over, for logs, for the logs of others, and for votes.
GATE_STAGES = 4
_LABELS = ("agreement", "mixing", "gate", "dissemination", "closing")
