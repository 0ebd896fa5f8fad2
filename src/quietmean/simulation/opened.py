"""The audit of protocols whose messages are shares: what a coalition reads of them in full runs of the real machines.

See :class:`~quietmean.protocols.traits.MessageAttack`. Many trials are one run on a long value: coordinates have
independent noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import Message, NoiseSource, PartyId, PartyMachine, Units, Vector
from quietmean.privacy import Adversary
from quietmean.protocols.execution import Execution
from quietmean.protocols.traits import MessageAttack, Sent
from quietmean.randomness.insecure import InsecureSilence, InsecureStackedNoise, insecure_seed
from quietmean.transcript import run_lockstep

# Numbers in memory at once, over all parties.
_BLOCK = 2_000_000
_SAME_SHARE = 1e-9


class KnownToCoalition(InsecureSilence):
    """The part of an honest party's noise that it shares with the coalition."""

    def __init__(self, source: NoiseSource, coalition: frozenset[PartyId]) -> None:
        self._source = source
        self._coalition = coalition

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        if other not in self._coalition:
            return np.zeros(dimension)
        return self._source.shared_normal(other, purpose, index, dimension)

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        if other not in self._coalition:
            return np.zeros(dimension, dtype=np.int64)
        return self._source.shared_discrete(other, purpose, index, scale, dimension)


@dataclass(frozen=True, eq=False)
class OpenedView:
    """One number for each trial: what the coalition reads, over the coordinates that change together, divided by their root."""

    execution: Execution
    adversary: Adversary
    opening: MessageAttack
    # By default the machines of the execution's protocol.
    machine: Callable[[PartyId, Vector, NoiseSource], PartyMachine[Any]] | None

    @property
    def change(self) -> float:
        """The change of the target's value."""
        return self.opening.change

    @property
    def rounds(self) -> Ints:
        """When the one number is known: at the end, shape (1,)."""
        return np.array([self.execution.schedule.rounds])

    def maps(self, target: PartyId) -> tuple[Vector, Vector]:
        """What a unit of the target's value adds, (1,), and the unknown noise in it, (1, 1)."""
        opening = self.opening
        change = opening.share * opening.change * math.sqrt(opening.together)
        return np.array([change / self.execution.sensitivity]), np.array([[opening.noise]])

    def check(self, target: PartyId, seed: int) -> None:
        """Check that the target's change is read as declared, without noise; raises :class:`ProtocolFailure`."""
        opening = self.opening
        first, second = (self._read(target, world, 1, lambda party: InsecureSilence()) for world in (0, 1))
        if first is None or second is None:
            return
        read = float((second - first).mean()) / opening.change
        if abs(read - opening.share) > _SAME_SHARE:
            raise ProtocolFailure(
                f"the coalition reads {read:.6g} of the target's change, the declared transcript says {opening.share:.6g}: the "
                "certificate does not describe this build"
            )

    @property
    def together(self) -> int:
        """How many trials are made together."""
        return max(1, _BLOCK // self.execution.parties // self.opening.together)

    def statistic(self, weights: Vector, target: PartyId, world: int, block: int, trials: int, seed: int) -> Vector:
        """Return what the coalition reads of the target in one world, weighted, (trials,), less what it can compute on its own.

        Trials of different blocks are independent.
        """
        secret = insecure_seed(seed, "attack on shares", world, block).secret
        noise = InsecureStackedNoise(int.from_bytes(secret[:8], "big"), self.execution.parties)
        return float(weights[0]) * self._residual(target, world, trials, noise)

    def _residual(self, target: PartyId, world: int, trials: int, noise: InsecureStackedNoise) -> Vector:
        own = self.adversary.corrupt

        def known(party: PartyId) -> NoiseSource:
            source = noise.party(party)
            return source if party in own else KnownToCoalition(source, own)

        seen, expected = self._read(target, world, trials, noise.party), self._read(target, 0, trials, known)
        if seen is None or expected is None:
            return np.zeros(trials)
        grouped: Vector = (seen - expected).reshape(trials, -1).sum(axis=1) / math.sqrt(self.opening.together)
        return grouped

    def _read(self, target: PartyId, world: int, trials: int, noise: Callable[[PartyId], NoiseSource]) -> Vector | None:
        """Run the machines for a number of trials, and read what the coalition was sent."""
        execution, opening, size = self.execution, self.opening, trials * self.opening.together
        machine = self.machine or replace(execution, protocol=opening.stretched(size)).machine
        base = opening.base.copy()
        base[target] += world * opening.change
        sent: list[Sent] = []

        def on_send(message: Message, receivers: frozenset[PartyId]) -> None:
            sent.append((message, receivers))

        machines = [machine(party, np.full(size, base[party]), noise(party)) for party in range(execution.parties)]
        run_lockstep(
            machines, execution.trace, execution.arrivals(), on_send, refusing=execution.protocol.traits.refuses_messages
        )
        return opening.read(sent, size)
