"""How messages are read by who attacks a mechanism."""

from __future__ import annotations

from typing import ClassVar, Self

from quietmean.core.party import PartyId, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.opening import MessageAttack


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
