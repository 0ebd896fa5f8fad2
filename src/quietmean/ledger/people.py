"""Whose data an account is about, without keeping anybody: keyed digests of persons, cut to 64 bits.

Of persons all digests are kept, 8 bytes each, so that who is known is found for certain: one digest in common is one person. The
key is in a file of its own and never in the ledger: who has both can test whether somebody with a known identifier is one of
the persons.

Who names no persons is known by whole rows, and only where nearly all of them differ. These are thinned out above a size, by a
threshold that is a power of two: a part of a data set is found in the whole and the other way round. That suggests an account to
a person, and proves nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array

Identities = NDArray[np.uint64]

PERSONS, ROWS = "person", "row"
# Persons of other accounts who took part in studies for which this one was named.
GUESTS = "guest"
# All digests are kept of so many rows; of more, between half as many and these.
MOST_KEPT: Final = 100_000
# From this part of the smaller data set on, and so many of its digests, an overlap of rows is reported.
LEAST_PART, LEAST_COMMON = 0.01, 3
# Rows tell data sets apart where at least this part of them is distinct.
DISTINCT_ROWS = 0.99
_LABELS = {PERSONS: b"quietmean-people-1", ROWS: b"quietmean-rows-1"}
_BYTES = 8
_KEY_LABEL = b"quietmean-people-key-1"


@dataclass(frozen=True, eq=False)
class Sketch:
    """A sketch of the people or rows of a data set, by which overlaps of data sets are estimated.

    ``kind``: of persons or of rows. ``key``: the name of the key, not the key. ``level``: digests below 2^(64 - level) are
    kept. ``members``: these, sorted and each once, (kept,). ``count``: about how many there are in all. ``identifier``: of which
    column under which key the digests are; empty where that is not known, and then nobody is proven to be absent.
    """

    kind: str
    key: bytes
    level: int
    members: Identities = field(repr=False)
    count: int
    identifier: bytes = b""

    @classmethod
    def of(cls, identities: Identities, kind: str, key: bytes, column: str = "") -> Sketch:
        """Make a sketch of persons or rows, given by 128 bits each, (units, 2). ``column``: the one that tells persons apart."""
        members = np.unique(digests_of(identities, kind, key))
        return cls(kind, name_of_key(key), 0, members, len(identities), name_of_key(key, column) if column else b"")._thinned()

    def joined(self, other: Sketch) -> Sketch:
        """Return a sketch of the persons of either: what an account is about after both were charged to it."""
        level = max(self.level, other.level)
        members = np.union1d(self.at(level), other.at(level))
        count = max(len(members) << level, self.count, other.count) if level else len(members)
        return Sketch(self.kind, self.key, level, members, count, self.identifier)._thinned()

    def common(self, other: Sketch) -> tuple[int, float]:
        """How many kept digests both have, and which part of the data set of which more is found in the other.

        Nothing in common with one of another kind or key: then nobody knows.
        """
        if not self.comparable(other):
            return 0, 0.0
        level = max(self.level, other.level)
        mine, others = self.at(level), other.at(level)
        both = len(in_both(mine, others))
        return both, both / max(min(len(mine), len(others)), 1)

    def overlaps(self, other: Sketch) -> bool:
        """Is a person in both? Or are so many rows that these are probably the same data, or a part of them?"""
        both, part = self.common(other)
        if self.kind == PERSONS:
            return both > 0
        return both >= LEAST_COMMON and part >= LEAST_PART

    def comparable(self, other: Sketch) -> bool:
        return (self.kind, self.key) == (other.kind, other.key)

    def at(self, level: int) -> Identities:
        """The digests that are kept at that level, at least this one's."""
        return self.members if not level else self.members[self.members < np.uint64(1 << (64 - level))]

    def _thinned(self) -> Sketch:
        if self.kind != ROWS:
            return self
        level = self.level
        while len(self.at(level)) > MOST_KEPT:
            level += 1
        return Sketch(self.kind, self.key, level, self.at(level), self.count)


def digests_of(identities: Identities, kind: str, key: bytes) -> Identities:
    """Return 64 bits for each person or row, (units,), from its 128 bits, (units, 2)."""
    words = np.ascontiguousarray(identities, dtype="<u8").tobytes()
    inputs = (words[start : start + 16] for start in range(0, len(words), 16))
    label = _LABELS[kind]
    digests = b"".join(hmac.digest(key, label + identity, hashlib.sha256)[:_BYTES] for identity in inputs)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def in_both(one: Identities, other: Identities) -> Identities:
    """Return what is in both of two sorted arrays of distinct digests."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    if not len(few):
        return few
    places = np.minimum(np.searchsorted(many, few), len(many) - 1)
    common: Identities = few[many[places] == few]
    return common


def name_of_key(key: bytes, column: str = "") -> bytes:
    """By which digests under the same key, of the same column, know each other; it says nothing about the key."""
    return hmac.digest(key, _KEY_LABEL + column.encode(errors="surrogatepass"), hashlib.sha256)[:_BYTES]


class Inputs:
    """The columns that a study uses, as pieces of shape (records, columns), one below the other; gone over once for each key."""

    def __init__(self, pieces: Iterable[Array] = ()) -> None:
        self._pieces = pieces
        self._digests: dict[bytes, tuple[bytes, ...]] = {}

    def digests(self, key: bytes) -> tuple[bytes, ...]:
        """HMAC-SHA256 of each column, without its name: one that was renamed is found, one that was sorted is not.

        A column of one value only is left out: many data sets have it.
        """
        if key not in self._digests:
            self._digests[key] = self._computed(key)
        return self._digests[key]

    def _computed(self, key: bytes) -> tuple[bytes, ...]:
        codes: list[hmac.HMAC] = []
        first, same = np.empty(0), np.empty(0, dtype=bool)
        for piece in self._pieces:
            if not len(piece):
                continue
            if not codes:
                codes = [hmac.new(key, b"quietmean-input-1", hashlib.sha256) for _ in piece.T]
                first, same = piece[0].copy(), np.ones(piece.shape[1], dtype=bool)
            same &= (piece == first).all(axis=0)
            for code, column in zip(codes, piece.T, strict=True):
                # Adding 0.0 makes the two zeros one.
                code.update(np.ascontiguousarray(column + 0.0, dtype="<f8").tobytes())
        return tuple(code.digest() for code, is_same in zip(codes, same, strict=True) if not is_same)


NO_INPUTS = Inputs()
