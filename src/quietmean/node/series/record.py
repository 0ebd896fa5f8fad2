"""Where a party is in a series of rounds: a small record in its store, of the same size whatever the number of rounds."""

from __future__ import annotations

import msgspec

from quietmean.core.codec import load_state
from quietmean.core.errors import InputError


class SeriesOver(InputError):
    """There is no other round for this party."""


class SeriesProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``current``: the last round that this party began, 0 before the first.

    ``begun``: how many it began; ``results``: of how many it has the mean. ``counted``: for each party, in how many of these
    means its vector is, by place. ``left``: this party begins no other round, ever.
    """

    current: int = 0
    begun: int = 0
    results: int = 0
    counted: tuple[int, ...] = ()
    left: bool = False

    def dump(self) -> bytes:
        """For the store."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def load(cls, raw: bytes | None, parties: int) -> SeriesProgress:
        """The inverse of :meth:`dump`; of a party that has done nothing yet where there is none."""
        return cls(counted=(0,) * parties) if raw is None else load_state(cls, raw)


def over_text(standing: SeriesProgress, rounds: int, most: int) -> str:
    """Why there is no other round, and what to do."""
    if standing.left:
        return "this party has left the session for good, and takes part in no other round of it: agree on a new one"
    if standing.begun >= most < rounds:
        return f"this party has taken part in {most} rounds, as many as it pays for: the session is over here"
    return f"the session's {rounds} rounds are over: keep what it has, or agree on a new one"
