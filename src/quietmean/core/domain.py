"""What is protected: the privacy unit and the neighbouring relation."""

from __future__ import annotations

from enum import StrEnum


class PrivacyUnit(StrEnum):
    """Whose change the guarantee hides."""

    PARTY = "party"
    RECORD = "record"


class Neighbouring(StrEnum):
    """How two neighbouring data sets differ. Replacement: one unit's value becomes any other in the domain."""

    REPLACEMENT = "replacement"
