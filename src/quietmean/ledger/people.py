"""Whose data an account is about, without keeping anybody: keyed digests of persons, cut to 64 bits and thinned out above a size.

Data sets overlap where their digests do. Of up to 100,000 persons all digests are kept, of more those below a public threshold, a
power of two, so that a part of a data set is found in the whole and the other way round. The key is in a file of its own and
never in the ledger: who has both can test whether somebody with a known identifier is among the persons.

Who names no persons is known by whole rows, and only where nearly all of them differ.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Identities = NDArray[np.uint64]

PERSONS, ROWS = "person", "row"
# All digests are kept of so many; of more, between half as many and these.
MOST_KEPT: Final = 100_000
# From this part of the smaller data set on, and so many of its digests, an overlap is told.
LEAST_PART, LEAST_COMMON = 0.01, 3
# Rows tell data sets apart where at least this part of them is distinct.
DISTINCT_ROWS = 0.99
_LABELS = {PERSONS: b"quietmean-people-1", ROWS: b"quietmean-rows-1"}
_BYTES = 8
_KEY_LABEL = b"quietmean-people-key-1"


@dataclass(frozen=True, eq=False)
class Sketch:
    """``kind``: of persons or of rows. ``key``: the name of the key, not the key. ``level``: digests below 2^(64 - level) are
    kept. ``members``: these, sorted and each once, (kept,). ``count``: about how many there are in all.
    """

    kind: str
    key: bytes
    level: int
    members: Identities = field(repr=False)
    count: int

    @classmethod
    def of(cls, identities: Identities, kind: str, key: bytes) -> Sketch:
        """Of persons or rows by 128 bits that stand for each, (units, 2), each once."""
        words = np.ascontiguousarray(identities, dtype="<u8").tobytes()
        inputs = (words[start : start + 16] for start in range(0, len(words), 16))
        label = _LABELS[kind]
        digests = b"".join(hmac.digest(key, label + identity, hashlib.sha256)[:_BYTES] for identity in inputs)
        members = np.unique(np.frombuffer(digests, dtype="<u8").astype(np.uint64))
        return cls(kind, name_of_key(key), 0, members, len(identities))._thinned()

    def joined(self, other: Sketch) -> Sketch:
        """Of the persons of either: what an account is about after both were charged to it."""
        level = max(self.level, other.level)
        members = np.union1d(self.at(level), other.at(level))
        count = max(len(members) << level, self.count, other.count) if level else len(members)
        return Sketch(self.kind, self.key, level, members, count)._thinned()

    def common(self, other: Sketch) -> tuple[int, float]:
        """How many kept digests both have, and which part of the data set of which more is found in the other.

        Nothing in common with one of another kind or key: then nobody knows.
        """
        if not self.comparable(other):
            return 0, 0.0
        level = max(self.level, other.level)
        mine, others = self.at(level), other.at(level)
        both = len(np.intersect1d(mine, others, assume_unique=True))
        return both, both / max(min(len(mine), len(others)), 1)

    def overlaps(self, other: Sketch) -> bool:
        """Are so many in both that these are probably the same people, or a part of them?"""
        both, part = self.common(other)
        return both >= LEAST_COMMON and part >= LEAST_PART

    def comparable(self, other: Sketch) -> bool:
        return (self.kind, self.key) == (other.kind, other.key)

    def at(self, level: int) -> Identities:
        """The digests that are kept at that level, at least this one's."""
        return self.members if not level else self.members[self.members < np.uint64(1 << (64 - level))]

    def _thinned(self) -> Sketch:
        level = self.level
        while len(self.at(level)) > MOST_KEPT:
            level += 1
        return Sketch(self.kind, self.key, level, self.at(level), self.count)


def name_of_key(key: bytes) -> bytes:
    """By which sketches with the same key know each other; it says nothing about the key."""
    return hmac.digest(key, _KEY_LABEL, hashlib.sha256)[:_BYTES]
