"""What is protected: the privacy unit and the neighbouring relation."""

from __future__ import annotations

from enum import StrEnum


class PrivacyUnit(StrEnum):
    """The unit whose change the guarantee hides: a whole party's value, or one record of it."""

    PARTY = "party"
    RECORD = "record"


class Neighbouring(StrEnum):
    """How two neighbouring data sets differ. Replacement: one unit's value becomes any other in the domain."""

    REPLACEMENT = "replacement"
