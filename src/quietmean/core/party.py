"""A party is a pure state machine: it is handed messages and round ends and returns what to send.

The same machine runs in the simulator, over the network and under symbolic tracing. It does no input or output, knows
no clock, and draws no noise of its own: whoever drives it hands the noise in. All rounds are synchronous:

* ``start`` gives the state for round 1 and the messages to send in round 1;
* ``end_round`` closes the round in progress: which messages arrived here, which of mine arrived there;
* ``miss_round`` says that this party took no part in the round in progress.

After the last round ``Step.release`` holds what the protocol makes public about this party's share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

PartyId: TypeAlias = int
# Party machines only add, subtract and scale vectors, so a symbolic linear form can stand in for an array.
Vector: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Message:
    """What ``sender`` tells ``recipients`` in ``round``: a vector of shape (d,) and the public weight it carries.

    ``content`` is what else a protocol says, in its own encoding (keys, ciphertexts, packed bits); the vector may then be empty,
    of shape (0,). Content comes from a stranger's machine: a party treats what it cannot read as not arrived.
    """

    sender: PartyId
    recipients: tuple[PartyId, ...]
    round: int
    vector: Vector
    weight: float
    content: bytes = b""


def settlement(message: Message) -> Message:
    """What takes a share out of the sender's holdings that it had kept, but that was used by its receiver: its negative.

    The sender is handed it like a message that came in, once it knows.
    """
    return Message(message.sender, (message.sender,), message.round, -message.vector, -message.weight)


@dataclass(frozen=True, slots=True)
class Release:
    """What a party makes public at the end: a vector of shape (d,) and its weight. The mean is sum(vector) / sum(weight)."""

    vector: Vector
    weight: float


class PartyState(Protocol):
    """Frozen, small, serialisable: all that a party must remember between two rounds."""

    @property
    def round(self) -> int:
        """The round in progress; one more than the machine's ``rounds`` once it has finished."""


State = TypeVar("State", bound=PartyState)


@dataclass(frozen=True, slots=True)
class Step(Generic[State]):
    """The outcome of one transition."""

    state: State
    send: tuple[Message, ...] = ()
    release: Release | None = None


class PartyMachine(Protocol[State]):
    """One party of one protocol, bound to its value and its noise."""

    @property
    def rounds(self) -> int: ...

    @property
    def state_type(self) -> type[State]: ...

    def start(self) -> Step[State]: ...

    def end_round(self, state: State, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[State]: ...

    def miss_round(self, state: State) -> Step[State]: ...

    def expects(self, state: State) -> frozenset[PartyId]:
        """The parties whose messages are due in the round in progress."""


class NoiseSource(Protocol):
    """All that is random for one party, addressed by purpose and index: the same address gives the same.

    What is ``shared`` with another party is the same at both ends and known to nobody else.
    """

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        """Standard Gaussian noise, shape (d,)."""

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        """Standard Gaussian noise that ``other`` knows too, shape (d,)."""

    def secret(self, purpose: str, index: int) -> bytes:
        """32 secret bytes, to seed a stream of bits."""


class PopulationNoise(Protocol):
    """The noise of n parties at once. ``normal(...)[i]`` equals what ``party(i).normal(...)`` draws at the same address."""

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        """Shape (n, d)."""

    def shared_normal(self, pairs: NDArray[np.int64], purpose: str, index: int, dimension: int) -> Vector:
        """Row m is what the two parties ``pairs[m]`` share. Pairs have shape (M, 2), smaller number first; result (M, d)."""

    def party(self, party: PartyId) -> NoiseSource: ...
