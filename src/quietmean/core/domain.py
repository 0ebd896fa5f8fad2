"""What is protected: the privacy unit and the neighbouring relation; and by which keys messages are."""

from __future__ import annotations

from enum import StrEnum

_CHANGE, _ADDING = "a change of one unit's value", "the addition or removal of one record"
# How protocols word what they promise, and what Gaussian noise promises.
REPLACED = f"(epsilon, delta)-differential privacy for {_CHANGE}"
GAUSSIAN_GUARANTEE = f"{REPLACED}, against any computing power"


class PrivacyUnit(StrEnum):
    """The unit whose change the guarantee hides: a whole party's value, one record of it, or all rows of one person."""

    PARTY = "party"
    RECORD = "record"
    PERSON = "person"

    @property
    def within_party(self) -> bool:
        """Has a party several of them, whose number is its weight?"""
        return self != PrivacyUnit.PARTY


# What a program that brings vectors can protect: whose rows they were made of only its author knows.
UNITS_OF_VECTORS = (PrivacyUnit.PARTY, PrivacyUnit.RECORD)
# Which of a person's rows count: their mean, or the one of the first or of the last date. Instead of these, a number: the sum of
# so many rows at most.
MEAN_OF_ROWS, FIRST_ROW, LAST_ROW = "mean", "first", "last"


def counted_text(unit: PrivacyUnit | str, rows: str | int | None = None) -> str:
    """What the public weights of a study count, in words."""
    if unit == PrivacyUnit.PERSON:
        return "rows" if isinstance(rows, int) else "persons"
    return "parties" if unit == PrivacyUnit.PARTY else "records"


def in_words_of(unit: PrivacyUnit | str, text: str, rows: str | int | None = None) -> str:
    """A text about records, where persons are the unit about these, or about rows where a person's rows are added up."""
    if unit != PrivacyUnit.PERSON:
        return text
    return text.replace("record", counted_text(unit, rows)[:-1])


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

    @property
    def text(self) -> str:
        """What is protected of a unit, as a clause behind it."""
        if self == Neighbouring.REPLACEMENT:
            return "others may know that it is there (replacement)"
        return "also whether it is there (add-remove)"

    def claim(self, guarantee: str) -> str:
        """Write a guarantee that is worded for replacement for this relation."""
        if self == Neighbouring.REPLACEMENT:
            return guarantee
        return guarantee.replace(_CHANGE, _ADDING)


def half_range(sensitivity: float) -> float:
    """Half the sensitivity: no value between two bounds that are so far apart has a larger standard deviation."""
    return sensitivity / 2.0
