"""Runs of the real machines of packed sharing in which some parties' messages are changed on their way, for each receiver."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from quietmean.core.party import Message, Step, Vector
from quietmean.protocols.packed_sharing import PackedSharing, opened_sum
from quietmean.protocols.packed_sharing.ballots import members_of, unpack
from quietmean.protocols.packed_sharing.messages import Codec
from quietmean.protocols.packed_sharing.party import PackedSharingState
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise

PARTIES = 9
NAMED = "sum disagrees: it, or a dealer that dealt it a wrong share"
Change = Callable[[Message, int], bytes | None]


def protocol(lies: int = 0, colluding: int = 2, secrets: int = 2, ballots: int = 3) -> PackedSharing:
    return PackedSharing.read(
        {
            "members": PARTIES,
            "colluding": colluding,
            "colluding_members": colluding,
            "secrets": secrets,
            "minimum": 4,
            "lies": lies,
            "gone": 0,
            "ballots": ballots,
            "step": 2.0**-8,
            "sigma": 0.5,
            "clip": 1.0,
            "dimension": 4,
        }
    ).resolved(PARTIES)


def values() -> Vector:
    found: Vector = np.sin(np.arange(4.0 * PARTIES)).reshape(PARTIES, 4)
    return found


class Run:
    """All rounds; ``change`` gives what a liar's message is to a receiver, or None for nothing."""

    def __init__(self, its: PackedSharing, liars: set[int], change: Change, seed: int = 0) -> None:
        self.its = its
        self.liars = liars
        self.noise = InsecurePopulationNoise(seed, PARTIES)
        schedule = its.draw_schedule(PARTIES, Seed.public("lies", seed))
        self.machines = [its.machine(schedule, party, values()[party], 1.0, self.noise.party(party)) for party in range(PARTIES)]
        self.steps: list[Step[PackedSharingState]] = [machine.start() for machine in self.machines]
        for round_ in range(1, its.rounds + 1):
            self._round(round_, change)

    def _round(self, round_: int, change: Change) -> None:
        inboxes: list[list[Message]] = [[] for _ in self.machines]
        reached: list[set[int]] = [set() for _ in self.machines]
        expected = [machine.expects(step.state) for machine, step in zip(self.machines, self.steps, strict=True)]
        for sender, step in enumerate(self.steps):
            messages = {other: message for message in step.send for other in message.recipients}
            for other in range(PARTIES):
                if other == sender or sender not in expected[other]:
                    continue
                message = messages.get(other)
                if sender in self.liars:
                    given = message or Message(sender, (other,), round_, np.empty(0), 0.0, b"")
                    content = change(given, other)
                    message = None if content is None else replace(given, content=content)
                if message is not None:
                    inboxes[other].append(message)
                    reached[sender].add(other)
        self.steps = [
            machine.end_round(step.state, inboxes[party], frozenset(reached[party]))
            for party, (machine, step) in enumerate(zip(self.machines, self.steps, strict=True))
        ]

    @property
    def honest(self) -> list[int]:
        return [party for party in range(PARTIES) if party not in self.liars]

    def warnings(self, party: int) -> tuple[str, ...]:
        return self.its.ending(self.steps[party].state).warnings

    def check(self) -> list[int]:
        """Nobody honest has a wrong result, or another one than others; returns who has one."""
        done = [party for party in self.honest if self.steps[party].release is not None]
        for party in done:
            state, release = self.steps[party].state, self.steps[party].release
            assert release is not None
            inputs = np.zeros(PARTIES, dtype=np.bool_)
            inputs[list(members_of(unpack(state.inputs)))] = True
            assert inputs.sum() >= self.its.minimum
            right, weight = opened_sum(self.its, inputs, values(), np.ones(PARTIES), self.noise)
            np.testing.assert_array_equal(release.vector, right)
            assert release.weight == weight
        return done


def wrong_sum(codec: Codec, chance: random.Random) -> Change:
    """A sum that is off by random numbers; all else as it should be."""

    def change(message: Message, receiver: int) -> bytes:
        if message.round < 5 or len(message.content) < codec.share_bytes:
            return message.content
        said = codec.read(message.round, message.content)
        if said.share is None:
            return message.content
        off = np.array([chance.randrange(1, codec.prime) for _ in range(codec.blocks)], dtype=np.int64)
        share = (codec.read_share(said.share).astype(np.int64) + off) % codec.prime
        return codec.write(message.round, replace(said, share=codec.write_share(share.astype(np.uint32))))

    return change


def codec_of(its: PackedSharing) -> Codec:
    return Codec.of(its, its.rules(PARTIES))
