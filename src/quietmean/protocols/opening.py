"""How a coalition reads a protocol whose messages are not sums with Gaussian noise themselves: for audits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from quietmean.core.party import Message, PartyId, Vector

# A message and the parties that received it.
Sent: TypeAlias = tuple[Message, frozenset[PartyId]]
Opened = TypeVar("Opened", covariant=True)


@dataclass(frozen=True, eq=False)
class MessageAttack(Generic[Opened]):
    """One attack on a target, of which many trials are run at once: each in ``together`` coordinates of one long value.

    ``base``, shape (n,): the parties' values in every coordinate in the first world; in the second the target's is larger by
    ``change``. ``stretched``: the protocol for values of so many coordinates. ``read`` gives what a coalition computes of all
    messages of a run on values (n, size), shape (size,), or None if it can read nothing. That holds ``share`` of the target's
    value, and per coordinate noise of standard deviation ``noise`` that the coalition does not know.
    """

    together: int
    base: Vector
    change: float
    share: float
    noise: float
    stretched: Callable[[int], Opened] = field(repr=False)
    read: Callable[[Sequence[Sent], int], Vector | None] = field(repr=False)
