"""With whom a study may start, if not with all, and what this party brings for each number of parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quietmean.planning import Admitted, Plan


@dataclass(frozen=True)
class Brought:
    """The plan for a number of parties, and this party's vector on its grid."""

    plan: Plan
    value: Admitted


def _nothing(study: str) -> None:
    """The default of who is told."""


@dataclass(frozen=True)
class Quorum:
    """``minimum`` parties start at ``start_by`` (seconds since 1970), or all as soon as they are there.

    ``smaller``: for each number of parties from the minimum on, without that of all. ``before_bound`` is called with the digest
    of the attempt before this party is bound to it, as often as it takes: it writes that into the ledger. ``asked_to_start``:
    whether this party's person asked for a start before its time, with ``minimum`` parties; only the first convener's counts.
    """

    minimum: int
    start_by: float
    smaller: Mapping[int, Brought]
    before_bound: Callable[[str], None] = _nothing
    asked_to_start: Callable[[], bool] = lambda: False
