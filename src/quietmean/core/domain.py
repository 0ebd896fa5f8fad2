"""What is protected: the privacy unit and the neighbouring relation."""

from __future__ import annotations

from enum import StrEnum


class PrivacyUnit(StrEnum):
    """The unit whose change the guarantee hides: a whole party's value, or one record of it."""

    PARTY = "party"
    RECORD = "record"


class Neighbouring(StrEnum):
    """How two neighbouring data sets differ.

    Replacement: one unit's value becomes any other in the domain. Add-remove: one unit is there or not. The second twice
    is the first, so twice the mu of add-remove holds for replacement. Nothing follows the other way: under replacement counts are
    public.
    """

    REPLACEMENT = "replacement"
    ADD_REMOVE = "add-remove"
