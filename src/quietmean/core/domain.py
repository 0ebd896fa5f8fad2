"""What is protected: the privacy unit and the neighbouring relation; and by which keys messages are."""

from __future__ import annotations

from enum import StrEnum

_ADDING = "the addition or removal of one record"


class PrivacyUnit(StrEnum):
    """The unit whose change the guarantee hides: a whole party's value, or one record of it."""

    PARTY = "party"
    RECORD = "record"


class CountVisibility(StrEnum):
    """Is it public how many records each party has, or private, as the records themselves are?"""

    PUBLIC = "public"
    PRIVATE = "private"


class Links(StrEnum):
    """Which keys protect the messages between two parties, and the noise that they share.

    Hybrid: of ML-KEM-768 besides those of X25519, so that who records messages today and has a quantum computer later reads
    nothing. X25519 alone is what it was in documents that do not say.
    """

    X25519 = "x25519"
    HYBRID = "hybrid"

    @property
    def text(self) -> str:
        """The text for people."""
        if self == Links.HYBRID:
            return "ML-KEM-768 and X25519 together (hybrid): who records messages now has to break both to read them later"
        return "X25519 alone: who records messages now can read them once it is broken, as large quantum computers would"


class Neighbouring(StrEnum):
    """How two neighbouring data sets differ.

    Replacement: one unit's value becomes any other in the domain. Add-remove: one unit is there or not. The second twice
    is the first, so twice the mu of add-remove holds for replacement. Nothing follows the other way: under replacement counts are
    public.
    """

    REPLACEMENT = "replacement"
    ADD_REMOVE = "add-remove"

    def claim(self, guarantee: str) -> str:
        """A guarantee that is worded for replacement, under this relation."""
        if self == Neighbouring.REPLACEMENT:
            return guarantee
        return guarantee.replace("replacement of one unit's value", _ADDING).replace("under replacement", f"under {_ADDING}")


def half_range(sensitivity: float) -> float:
    """Half the sensitivity: no value between two bounds that are so far apart has a larger standard deviation."""
    return sensitivity / 2.0
