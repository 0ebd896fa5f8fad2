"""A party is a pure state machine: it is given messages and ends of rounds, and returns what to send.

The same machine runs in the simulator, over the network and under symbolic tracing. It does no input or output, reads
no clock, and draws no noise of its own: the caller supplies the noise. All rounds are synchronous:

* ``start`` gives the state for round 1 and the messages to send in round 1;
* ``end_round`` closes the round in progress, given the messages that arrived here and the recipients that mine reached;
* ``miss_round`` says that this party took no part in the round in progress.

After the last round ``Step.release`` holds what the protocol makes public about this party's share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

PartyId: TypeAlias = int
# Party machines only add, subtract and scale vectors, so a symbolic linear form can stand in for an array.
Vector: TypeAlias = NDArray[np.float64]
# Whole numbers of steps of a grid.
Units: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Message:
    """What ``sender`` sends to ``recipients`` in ``round``: a vector of shape (d,) and the public weight it carries.

    ``content`` is what else a protocol sends, in its own encoding (keys, ciphertexts, packed bits); the vector may then be empty,
    of shape (0,). Content is not trusted: a party treats content that it cannot read as not arrived.
    """

    sender: PartyId
    recipients: tuple[PartyId, ...]
    round: int
    vector: Vector
    weight: float
    content: bytes = b""


def settlement(message: Message) -> Message:
    """The correction of a sender's holdings for a share that counts twice: the negative of ``message``, sent to itself.

    The sender kept the share because no acknowledgement had come, but the receiver used it. Once the sender learns of the
    delivery, it is given the correction like any message that it receives.
    """
    return Message(message.sender, (message.sender,), message.round, -message.vector, -message.weight)


def total_weight(own: float, messages: Sequence[Message]) -> float:
    """The sum of a party's weight and of those that messages carry, added one by one in their order."""
    # The built-in sum compensates errors in some versions of Python, and would end with other bits.
    for message in messages:
        own += message.weight
    return own


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
    def rounds(self) -> int:
        """The number T of rounds."""

    @property
    def state_type(self) -> type[State]:
        """The class of its states, with which a stored state is read again."""

    def start(self) -> Step[State]:
        """The state for round 1, and the messages of round 1."""

    def end_round(self, state: State, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[State]:
        """Close the round in progress. ``received``: what arrived here; ``delivered``: whom this party's messages reached."""

    def miss_round(self, state: State) -> Step[State]:
        """Close the round in progress without having taken part in it."""

    def expects(self, state: State) -> frozenset[PartyId]:
        """The parties whose messages are due in the round in progress."""


class NoiseSource(Protocol):
    """All randomness of one party, addressed by purpose and index: the same address always gives the same values.

    ``purpose`` is a :class:`~quietmean.core.party.NoiseGroup` or another label. Noise that is ``shared`` with another party is
    the same for both parties and known to no other.
    """

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        """Standard Gaussian noise, shape (d,)."""

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        """Standard Gaussian noise that ``other`` draws as well, shape (d,)."""

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        """Discrete Gaussian noise N_Z(0, v), v >= scale^2: whole steps of a grid, shape (d,).

        With ``shares`` = k above 0 one share of discrete Laplace noise of this scale, of which k together are it.
        """

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        """Discrete Gaussian noise that ``other`` draws as well, shape (d,)."""

    def secret(self, purpose: str, index: int) -> bytes:
        """32 secret bytes, to seed a stream of bits."""


class PopulationNoise(Protocol):
    """The noise of n parties at once: row i is what ``party(i)`` draws at the same address."""

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        """Standard normal noise of all parties, shape (n, d)."""

    def shared_normal(self, pairs: NDArray[np.int64], purpose: str, index: int, dimension: int) -> Vector:
        """Row m is the noise that the two parties ``pairs[m]`` share. Pairs (M, 2), smaller number first; result (M, d)."""

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        """Discrete Gaussian noise of all parties, or their shares of Laplace noise, shape (n, d)."""

    def shared_discrete(self, pairs: NDArray[np.int64], purpose: str, index: int, scale: float, dimension: int) -> Units:
        """Discrete Gaussian noise that pairs (M, 2) of parties share, as :meth:`shared_normal`: shape (M, d)."""

    def party(self, party: PartyId) -> NoiseSource:
        """The source of one of these parties."""


class NoiseGroup(StrEnum):
    """What becomes of a noise term. The values are names in files and labels of seed derivation, so they must not change.

    ``INDEPENDENT``: noise that stays in the result (eta_star, of standard deviation sigma_star).
    ``CANCELLING``: noise that cancels in the sum if every party finishes (of standard deviation sigma_delta).
    ``GUARD``: noise on a value until its party releases something; it cancels as well (of standard deviation sigma_guard).
    """

    INDEPENDENT = "star"
    CANCELLING = "delta"
    GUARD = "guard"
