"""What a party brings to a study, and what its owner should know of the cells behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from quietmean.core.party import Vector
from quietmean.core.readable import count_of


@dataclass(frozen=True, eq=False)
class Encoded:
    """A party's input to a protocol: its vector (d,) and its public weight, the number of its records, or of its persons.

    Without any, both are 0. Where counts are private, the weight is the room that every party has, and ``beyond`` is how many
    records it has above that. ``clamped`` values were moved to the nearest bound, ``missing`` cells held no number: for the eyes
    of this party only.
    """

    vector: Vector = field(repr=False)
    weight: float
    clamped: int = field(repr=False)
    missing: int = field(repr=False)
    beyond: int = field(default=0, repr=False)


def what_did_not_fit(parts: Sequence[Encoded]) -> list[str]:
    """A sentence for the owner of the data, or none. No result, receipt or event has these numbers."""
    clamped, missing, beyond = (sum(getattr(part, name) for part in parts) for name in ("clamped", "missing", "beyond"))
    outside = count_of(clamped, "value lies outside its bounds and counts", "values lie outside their bounds and count")
    kinds = [
        (clamped, f"{outside} as the nearest bound"),
        (missing, count_of(missing, "cell holds no number", "cells hold no number")),
        (beyond, f"{count_of(beyond, 'record')} more than most_records may be cut from sums"),
    ]
    phrase = " and ".join(sentence for count, sentence in kinds if count)
    return [f"{phrase} (for you only: who else learns these numbers learns something about the data)"] if phrase else []
