"""What an adversary of the audit sees of runs of the real party machines: messages and statistics of them, or opened shares.

See :class:`~quietmean.protocols.traits.MessageAttack`. Many trials are one run on a long value: coordinates have
independent noise.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.lazy import sparse, sparse_linalg
from quietmean.core.party import Message, NoiseSource, PartyId, PartyMachine, Units, Vector
from quietmean.privacy import Adversary
from quietmean.protocols.execution import Execution
from quietmean.protocols.traits import MessageAttack, Sent, grid_of
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilence, InsecureStackedNoise, insecure_seed
from quietmean.transcript import MachineMaker, Transcript, run_lockstep

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
            raise _misdescribed(
                f"Colluding parties see {read:.6g} of the target's change, and the protocol declares {opening.share:.6g}"
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


# How far a message may be from what the transcript declares, relative to it.
_SAME = 1e-7


class _Rows:
    """Which row of the transcript a message is: the next one of its sender in its round.

    A transcript may also have what its sender keeps. Where it has several rows of one sender in one round, those that nobody
    else knows are no messages, or ones that were lost.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._of: defaultdict[tuple[PartyId, int], list[int]] = defaultdict(list)
        for row, key in enumerate(zip(transcript.sender.tolist(), transcript.message_round.tolist(), strict=True)):
            self._of[key].append(row)
        delivered = transcript.released | (transcript.message_known.astype(np.int64).sum(axis=1) > 1)
        self._several = {key for key, rows in self._of.items() if len(rows) > 1}
        for key in self._several:
            self._of[key] = [row for row in self._of[key] if delivered[row]]
        self._taken: Counter[tuple[PartyId, int]] = Counter()

    def next(self, sender: PartyId, round_: int, delivered: bool) -> int | None:
        """``delivered``: whether anybody got it."""
        key = (sender, round_)
        if key in self._several and not delivered:
            return None
        self._taken[key] += 1
        rows = self._of.get(key, [])
        return rows[self._taken[key] - 1] if self._taken[key] <= len(rows) else None


@dataclass(frozen=True, eq=False)
class AdversaryView:
    """What the adversary receives from honest parties: rows of the transcript, in their order."""

    execution: Execution
    adversary: Adversary
    # By default the machines of the execution's protocol.
    machine: MachineMaker[Any] | None
    transcript: Transcript
    rows: Ints

    @classmethod
    def of(cls, execution: Execution, adversary: Adversary, machine: MachineMaker[Any] | None) -> AdversaryView:
        # Certificates may leave out what follows from the rest; machines send it.
        transcript = execution.full_transcript()
        # What corrupt parties send follows from what they know and receive.
        by_honest = ~np.isin(transcript.sender, list(adversary.corrupt))
        rows = np.nonzero(adversary.view(transcript).messages & by_honest)[0]
        return cls(execution, adversary, machine, transcript, rows)

    @property
    def rounds(self) -> Ints:
        """Return the round in which each message of the view is sent, shape (R,)."""
        return self.transcript.message_round[self.rows]

    def maps(self, target: PartyId) -> tuple[Vector, Vector]:
        """What a unit of the target's value adds to each row (R,), by the transcript, and the unknown noise in it (R, K)."""
        chosen = np.zeros((self.transcript.messages, len(self.rows)))
        chosen[self.rows, np.arange(len(self.rows))] = 1.0
        system = sparse.csc_array(sparse.eye_array(self.transcript.messages) - self.transcript.dependence.T)
        adjoint = (
            sparse_linalg.splu(system, permc_spec="NATURAL", diag_pivot_thresh=0.0).solve(chosen) if len(self.rows) else chosen
        )
        unknown = ~self.adversary.view(self.transcript).noise
        values, noise = (np.asarray(part.T @ adjoint) for part in (self.transcript.values, self.transcript.noise))
        return values[target], noise.T[:, unknown] * self.transcript.noise_scale[unknown]

    def check(self, target: PartyId, seed: int) -> None:
        """Check that the view without noise is what the transcript says; raises :class:`ProtocolFailure`."""
        seen: list[dict[int, Vector]] = [{}, {}]
        for world in (0, 1):
            self._observe(self._values(target, world, seed, 1), lambda party: InsecureSilence(), seen[world].__setitem__)
        shifts, _ = self.maps(target)
        for index, row in enumerate(self.rows):
            party, round_ = int(self.transcript.sender[row]), int(self.transcript.message_round[row])
            if index not in seen[0]:
                raise self._never_sent(int(row))
            share = float(seen[1][index][0] - seen[0][index][0]) / self.change
            if abs(share - shifts[index]) > _SAME * (1.0 + abs(shifts[index])) + self._rounding / self.change:
                raise _misdescribed(
                    f"Round {round_} of party {party} holds {share:.6g} of the target's value, and the protocol declares "
                    f"{shifts[index]:.6g}"
                )

    @property
    def _rounding(self) -> float:
        """By how much a message may differ from that in real numbers, where shares are rounded to a grid: a step each.

        A rounded share errs at both ends, and mixing does not enlarge the sum of all errors.
        """
        protocol, schedule = self.execution.protocol, self.execution.schedule
        step = grid_of(protocol) or protocol.numbers().step
        return 2 * step * float(schedule.out_degree.sum()) if protocol.traits.transfers_mass else 0.0

    def _never_sent(self, row: int) -> InputError:
        pairs = sorted(pair for pair in self.adversary.observed if self.transcript.find(*pair) == row)
        party, round_ = pairs[0] if pairs else (int(self.transcript.sender[row]), int(self.transcript.message_round[row]))
        return InputError(
            f"party {party} sent nothing of what it held after round {round_}. Leave [{party}, {round_}] out of the intercepted "
            "messages."
        )

    @property
    def together(self) -> int:
        """How many trials are made together."""
        return max(1, _BLOCK // self.execution.parties)

    def statistic(self, weights: Vector, target: PartyId, world: int, block: int, trials: int, seed: int) -> Vector:
        """w . view in one world, shape (trials,); less what the adversary can compute on its own. Blocks are independent."""
        secret = insecure_seed(seed, "attack", world, block).secret
        noise = InsecurePopulationNoise(int.from_bytes(secret[:8], "big"), self.execution.parties)
        return self._residual(weights, target, world, seed, noise, trials)

    def _residual(
        self, weights: Vector, target: PartyId, world: int, seed: int, noise: InsecurePopulationNoise, size: int
    ) -> Vector:
        """w . (view less what is expected of it), shape (size,)."""
        own = self.adversary.corrupt
        seen = self._weighted(weights, self._values(target, world, seed, size), noise.party)
        # The coalition knows its own noise and world 0, so it can run the machines itself, without the noise of honest parties.
        own_values = self._values(target, 0, seed, size if own else 1)

        def known_noise(party: PartyId) -> NoiseSource:
            source = noise.party(party)
            return source if party in own else KnownToCoalition(source, own)

        return seen - self._weighted(weights, own_values, known_noise)

    def _weighted(self, weights: Vector, values: Vector, noise: Callable[[PartyId], NoiseSource]) -> Vector:
        total = np.zeros(values.shape[1])

        def take(index: int, vector: Vector) -> None:
            nonlocal total
            total = total + weights[index] * vector

        self._observe(values, noise, take)
        return total

    def _values(self, target: PartyId, world: int, seed: int, dimension: int) -> Vector:
        parties = self.execution.parties
        drawn = BitStream(insecure_seed(seed, "attack", "values")).uniform(parties) * self.execution.sensitivity
        values = self.execution.protocol.numbers().value(drawn)
        values[target] += world * self.change
        return np.broadcast_to(values[:, None], (parties, dimension))

    @property
    def change(self) -> float:
        """The change of the target's value: the sensitivity, in whole steps where values are on a grid."""
        sensitivity = np.array([self.execution.sensitivity])
        return float(self.execution.protocol.numbers().value(sensitivity)[0])

    def _observe(self, values: Vector, noise: Callable[[PartyId], NoiseSource], take: Callable[[int, Vector], None]) -> None:
        """Run the machines; pass on what the adversary sees, with its place in ``rows``."""
        place_of = {int(row): index for index, row in enumerate(self.rows)}
        rows, corrupt, protocol = _Rows(self.transcript), self.adversary.corrupt, self.execution.protocol

        def observe(sender: PartyId, round_: int, vector: Vector, exposed: bool, delivered: bool) -> None:
            row = rows.next(sender, round_, delivered)
            index = None if row is None else place_of.get(row)
            if index is not None:
                take(index, vector)
            elif exposed and sender not in corrupt:
                raise _misdescribed(
                    f"Party {sender} shows the adversary a message in round {round_} that the protocol does not declare"
                )

        def on_send(message: Message, receivers: frozenset[PartyId]) -> None:
            # Content alone depends on no value.
            if message.vector.size:
                delivered = bool(receivers) or (protocol.traits.overheard and message.round > 1)
                observe(message.sender, message.round, message.vector, bool(receivers & corrupt), delivered)

        make = self.machine or _for_coordinates(self.execution, values.shape[1]).machine
        machines = [make(party, values[party], noise(party)) for party in range(self.execution.parties)]
        result = run_lockstep(
            machines,
            self.execution.trace,
            _arrivals(self.execution),
            on_send,
            refusing=protocol.traits.refuses_messages,
        )
        for party, release in result.releases.items():
            observe(party, machines[party].rounds + 1, release.vector, protocol.traits.releases_are_public, delivered=True)


def _for_coordinates(execution: Execution, count: int) -> Execution:
    """The execution for values of so many coordinates, which are all treated alike: on a grid a plan says their number."""
    protocol = execution.protocol
    if getattr(protocol, "dimension", None) is None:
        return execution
    return replace(execution, protocol=replace(protocol, **{"dimension": count}))


def _arrivals(execution: Execution) -> Callable[[int, PartyId, PartyId], bool]:
    delivered = execution.trace.delivered(execution.schedule)
    rounds, senders, slots = np.nonzero(delivered)
    receivers = execution.schedule.neighbours[rounds, senders, slots]
    arrived = set(zip((rounds + 1).tolist(), senders.tolist(), receivers.tolist(), strict=True))
    return lambda round_, sender, receiver: (round_, sender, receiver) in arrived


def _misdescribed(found: str) -> ProtocolFailure:
    """The failure of a build whose messages are not those that figures are of; ``found``: how they differ."""
    return ProtocolFailure(f"the certificate does not describe this build. {found}. Do not use this build.")
