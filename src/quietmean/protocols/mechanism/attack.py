"""How messages are read by who attacks a mechanism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Self, TypeAlias, TypeVar

from quietmean.core.party import Message, PartyId, Vector
from quietmean.graphs import ExecutionTrace, Schedule

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


class CanBeAttacked:
    """By default machines only add, subtract and scale, and the declared transcript is all that there is to attack.

    ``linear``: machines only add, subtract and scale, so that the declared transcript can be traced. If false, the transcript
    describes what the own (computational) claim leaves visible, which ``guarantee`` names.
    ``has_transcript``: false where a view has no linear-Gaussian description; then only ``guarantee`` is certified.
    """

    linear: ClassVar[bool] = True
    has_transcript: ClassVar[bool] = True

    @property
    def is_linear(self) -> bool:
        """:attr:`linear`, where it depends on the parameters."""
        return self.linear

    @property
    def linear_bound(self) -> Self | None:
        """A linear protocol, of whose messages all that this one sends is a function; itself if :attr:`is_linear`, or None."""
        return self if self.is_linear else None

    def opening(
        self,
        schedule: Schedule,
        trace: ExecutionTrace,
        weights: Vector,
        sensitivity: float,
        corrupt: frozenset[PartyId],
        target: PartyId,
    ) -> MessageAttack[Self] | None:
        """How to attack it where messages are not linear; None if there is no attack. Only asked where :attr:`is_linear` is not.

        Raises :class:`InputError` where there is none for these parameters.
        """
        return None
