"""With how many parties a study may start, and how often it is tried: what agreements state and nodes keep to."""

from __future__ import annotations

from typing import Final

# A session has so many attempts and no more: whoever can abort them all draws the public seed so often.
ATTEMPTS: Final = 10


def least_minimum(parties: int, colluding: int) -> int:
    """The fewest parties with which a study may start or end: more than (parties + colluding) / 2.

    Two sets of so many parties have more parties in common than collude, so an honest one; it takes part once.
    """
    return (parties + colluding) // 2 + 1
