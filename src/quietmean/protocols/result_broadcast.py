"""How all parties obtain the releases, which are public by then: post-processing, so it costs no privacy.

Two ways: ``broadcast`` (each party sends its release to all others, one round, exact) and ``push-sum`` (gossip rounds without
encryption or noise, for large n, approximate). Both are party machines whose release is the total of the releases that this
party received: a vector and a weight.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.party import Message, PartyId, PartyMachine, Release, Step, Vector
from quietmean.core.schema import refuse_unknown, require_known
from quietmean.graphs import make_schedule
from quietmean.protocols.discrete import NoiseNumbers
from quietmean.protocols.fields import optional_field
from quietmean.protocols.push_sum import PushSumParty
from quietmean.protocols.push_sum.parameters import Injection, PushSumParameters
from quietmean.randomness import SecureNoise, Seed

# Whether no honest party can have released this.
CannotBe: TypeAlias = Callable[[PartyId, Release], bool]


@dataclass(frozen=True)
class ResultBroadcast:
    """How releases are spread to all parties after the last round.

    ``kind`` is ``broadcast`` or ``push-sum``; the latter has its own rounds and neighbours a round.

    Raises :class:`InputError` for an unknown kind, or for rounds that it cannot have.
    """

    kind: str = "broadcast"
    rounds: int = 1
    out_degree: int = 1

    def __post_init__(self) -> None:
        require_known("dissemination", self.kind, ("broadcast", "push-sum"))
        if self.rounds < 1 or (self.kind == "broadcast" and self.rounds != 1):
            raise InputError(
                f"{self.kind} with {self.rounds} rounds does not exist. Give broadcast 1 round, push-sum at least 1."
            )

    @property
    def transfers_mass(self) -> bool:
        """Are parts of sums sent, as in the mixing rounds, rather than copies of a release?"""
        return self.kind == "push-sum"

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> ResultBroadcast:
        """The inverse of :meth:`describe`. Raises :class:`InputError` for an unknown or wrong field."""
        refuse_unknown("dissemination", raw, ("kind", "rounds", "out_degree"))
        return cls(
            optional_field(raw, "kind", str, "broadcast"),
            optional_field(raw, "rounds", int, 1),
            optional_field(raw, "out_degree", int, 1),
        )

    def describe(self) -> dict[str, Any]:
        if self.kind == "broadcast":
            return {"kind": self.kind}
        return {"kind": self.kind, "rounds": self.rounds, "out_degree": self.out_degree}

    def machine(
        self,
        parties: int,
        releasers: frozenset[PartyId],
        party: PartyId,
        release: Release | None,
        dimension: int,
        seed: Seed,
        grid: float = 0.0,
        cannot_be: CannotBe | None = None,
    ) -> PartyMachine[Any]:
        """The machine of one party; ``release`` is None if it released nothing. ``seed`` is the study's public seed.

        ``grid``: the step of the grid on which releases lie, and then all that is sent; 0 where they are float64. ``cannot_be``:
        which releases are left out, of a broadcast, in which each is seen alone.
        """
        if self.kind == "broadcast":
            return Broadcast(parties, releasers, party, release, dimension, cannot_be)
        schedule = make_schedule("uniform", seed.derive("dissemination"), parties, self.rounds, self.out_degree)
        parameters = PushSumParameters(
            rounds=self.rounds,
            injection=Injection.plain(self.rounds),
            sigma_star=0.0,
            sigma_delta=0.0,
            schedule="uniform",
            out_degree=self.out_degree,
            noise=NoiseNumbers.DISCRETE if grid else None,
            grid=grid,
        )
        own = release or Release(_zeros(dimension), 0.0)
        # Push-sum draws no noise: its scale is zero. Any source will do.
        return PushSumParty(parameters, schedule, party, own.vector, own.weight, SecureNoise(seed))


@dataclass(frozen=True, slots=True)
class BroadcastState:
    """The state of a party that collects the releases of all.

    ``heard``: the parties whose releases are in the total; ``impossible``: those whose releases came and cannot be.

    ``digests``: of all releases that came, its own included, by party.
    """

    round: int
    vector: Vector
    weight: float
    heard: tuple[PartyId, ...]
    impossible: tuple[PartyId, ...] = ()
    digests: tuple[tuple[PartyId, bytes], ...] = ()


class Broadcast:
    """Sends its own release to all others and adds up what arrives, without what cannot be.

    What is left out follows from the releases alone, so that parties with the same releases have the same total. The own one is
    asked about, too.
    """

    rounds = 1
    state_type = BroadcastState

    def __init__(
        self,
        parties: int,
        releasers: frozenset[PartyId],
        party: PartyId,
        release: Release | None,
        dimension: int,
        cannot_be: CannotBe | None = None,
    ) -> None:
        self._others = tuple(other for other in range(parties) if other != party)
        self._due = releasers - {party}
        self._party = party
        self._release = release
        self._dimension = dimension
        self._cannot_be = cannot_be

    def start(self) -> Step[BroadcastState]:
        if self._release is None:
            return Step(BroadcastState(1, _zeros(self._dimension), 0.0, ()))
        message = Message(self._party, self._others, 1, self._release.vector, self._release.weight)
        return Step(BroadcastState(1, self._release.vector, self._release.weight, (self._party,)), (message,))

    def end_round(
        self, state: BroadcastState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[BroadcastState]:
        own = [Message(self._party, (), 1, state.vector, state.weight)] if state.heard else []
        # In the order of the senders, so that parties with the same releases have the same total to the last bit.
        messages = sorted([*received, *own], key=lambda message: message.sender)
        impossible = tuple(message.sender for message in messages if self._is_impossible(message))
        vector, weight = _zeros(self._dimension), 0.0
        for message in messages:
            if message.sender not in impossible:
                vector, weight = vector + message.vector, weight + message.weight
        heard = tuple(message.sender for message in messages if message.sender not in impossible)
        digests = tuple((message.sender, release_digest(message.vector, message.weight)) for message in messages)
        return Step(BroadcastState(2, vector, weight, heard, impossible, digests), release=Release(vector, weight))

    def _is_impossible(self, message: Message) -> bool:
        return self._cannot_be is not None and self._cannot_be(message.sender, Release(message.vector, message.weight))

    def miss_round(self, state: BroadcastState) -> Step[BroadcastState]:
        return Step(BroadcastState(2, state.vector, state.weight, state.heard))

    def expects(self, state: BroadcastState) -> frozenset[PartyId]:
        return self._due


def release_digest(vector: Vector, weight: float) -> bytes:
    """SHA-256 of a release as it is sent: by which parties compare what each received."""
    # On a grid a negative zero arrives as a positive one.
    return hashlib.sha256((vector + 0.0).astype("<f8").tobytes() + struct.pack("<d", weight)).digest()


def _zeros(dimension: int) -> Vector:
    return np.zeros(dimension)
