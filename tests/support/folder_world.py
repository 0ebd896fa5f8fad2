"""Whole studies whose messages are files, in virtual time, in a folder whose owner does what it likes.

Sessions, stores, outboxes, slots and looks are the real ones. Each party has a view of its own: the owner shows a file to one
party and not to another, later, never, or not any more; puts copies of any file into any place; and cuts files short. What no
owner can do is to sign.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from quietmean.core.party import PartyId, Vector
from quietmean.node import folder
from quietmean.node.folder import FolderLink, FolderSettings, FolderTransport, Outbox, Timetable
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.mailbox import Mailbox, mailbox_bytes
from quietmean.node.net import AnswerFrame, AnyRequest, Credentials, Endpoint, Limits, OnAnswer, Payload, Transfer
from quietmean.node.party import Participant
from quietmean.node.phase import Phase
from quietmean.node.session import Carrier, NodeResult
from quietmean.planning import Plan
from support.faults import STUDY, Crash, FaultOutcome, FaultPlan, MortalStore, World

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
# Where stores of many studies are made and deleted fast; None where there is no such folder.
MEMORY = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None

# The start until then, and each round so many seconds longer.
FIRST, INTERVAL = 60.0, 40.0
_NEVER = 1e9
# Phase, round, sender and receiver of a message that was put.
Put: TypeAlias = tuple[Phase, int, PartyId, PartyId]


@dataclass(frozen=True)
class Owner:
    """What the owner of a folder does; probabilities are of each file and each party that could see it.

    ``delay``: mean seconds until a file is seen; ``hides``: it never is; ``rolls_back``: it is not seen any more some time after.
    ``replays``: a copy of it is put into another place; ``cuts``: it is cut short in the view of a party until it is put again.
    It is kind until ``kind`` files were put. ``skew``: how far clocks of parties may be off, in seconds, either way.
    """

    seed: int
    delay: float = 0.0
    hides: float = 0.0
    rolls_back: float = 0.0
    replays: float = 0.0
    cuts: float = 0.0
    skew: float = 0.0
    kind: int = 0


class HostileFolder:
    """All files ever put, and when each party sees which. ``now`` is the time of day."""

    def __init__(self, owner: Owner, parties: int, now: Callable[[], float]) -> None:
        self._owner, self._chance, self.now = owner, random.Random(owner.seed), now
        self._files: dict[str, dict[str, bytes]] = {}
        # (party, round, name): from when until when it is seen, and how many of its bytes.
        self._shown: dict[tuple[PartyId, str, str], tuple[float, float, int]] = {}
        self._parties = parties

    def view(self, party: PartyId) -> View:
        return View(self, party)

    def put(self, round_: str, name: str, file: bytes) -> None:
        folder = self._files.setdefault(round_, {})
        again = name in folder
        folder[name] = file
        for party in range(self._parties):
            if again and self._shown[party, round_, name][1] == 0.0:
                # It is hidden for good: its sender may put it as often as it likes.
                continue
            self._shown[party, round_, name] = self._show(len(file), cut=not again)
        if not again and self._happens(self._owner.replays):
            self._replay(round_, name, file)

    def _show(self, size: int, *, cut: bool) -> tuple[float, float, int]:
        if self._happens(self._owner.hides):
            return _NEVER, 0.0, size
        slow = self._owner.delay > 0 and self._happens(1.0)
        begin = self.now() + (self._chance.expovariate(1 / self._owner.delay) if slow else 0.0)
        end = begin + self._chance.expovariate(1 / INTERVAL) if self._happens(self._owner.rolls_back) else _NEVER
        return begin, end, self._chance.randrange(size) if cut and self._happens(self._owner.cuts) else size

    def _replay(self, round_: str, name: str, file: bytes) -> None:
        """The same bytes elsewhere: in another round, of another pair, or as an answer."""
        kind, number = round_[0], int(round_[1:])
        sender, receiver, digest = name.split("-")
        place = self._chance.choice(["q", "a"]) + f"{max(1, number + self._chance.randint(-2, 3)):08d}"
        pair = self._chance.choice(
            [(sender, receiver), (receiver, sender), (str(self._chance.randrange(self._parties)), receiver)]
        )
        copy = f"{pair[0]}-{pair[1]}-{digest}"
        if (place, copy) != (f"{kind}{number:08d}", name) and copy not in self._files.get(place, {}):
            self._files.setdefault(place, {})[copy] = file
            for party in range(self._parties):
                self._shown[party, place, copy] = self.now(), _NEVER, len(file)

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability and sum(map(len, self._files.values())) > self._owner.kind

    def seen(self, party: PartyId, round_: str) -> Iterator[tuple[str, bytes]]:
        for name, file in self._files.get(round_, {}).items():
            begin, end, size = self._shown[party, round_, name]
            if begin <= self.now() < end:
                yield name, file[:size]


class View:
    """The place, as one party sees it."""

    def __init__(self, folder: HostileFolder, party: PartyId) -> None:
        self._folder, self._party = folder, party

    def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
        found = self._folder.seen(self._party, round_)
        return iter([(name, len(file), 0.0) for name, file in found if name[:-32] in prefixes])

    def read(self, round_: str, name: str, limit: int) -> bytes | None:
        file = dict(self._folder.seen(self._party, round_)).get(name)
        return file if file is not None and len(file) <= limit else None

    def put(self, round_: str, name: str, file: bytes) -> None:
        self._folder.put(round_, name, file)


MAILBOXES: list[Mailbox] = [(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()) for _ in range(12)]


def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole study through a folder in one thread and virtual time."""
    monkeypatch.setattr(asyncio, "to_thread", inline)
    # A look every few seconds tells as much as many.
    monkeypatch.setattr(folder, "_LAST_PAUSE", INTERVAL / 5)


async def inline(work: Callable[..., Any], *given: Any) -> Any:
    """In place of a thread, of which virtual time knows nothing."""
    return work(*given)


class FolderWorld(World):
    """The parties of a fault plan, with a folder between them. ``put``: all shares and releases that ever were."""

    def __init__(
        self, plan: Plan, values: Vector, weights: NDArray[Any], faults: FaultPlan, directory: Path, owner: Owner
    ) -> None:
        super().__init__(plan, values, weights, faults, directory)
        self._owner = owner
        chance = random.Random(f"clocks {owner.seed}")
        self._skews = [chance.uniform(-owner.skew, owner.skew) for _ in values]
        self.put: set[Put] = set()

    async def run(self) -> FaultOutcome:
        self._folder = HostileFolder(self._owner, len(self._values), asyncio.get_running_loop().time)
        return await super().run()

    async def _run_session(self, party: PartyId, store: MortalStore) -> NodeResult:
        settings, target = self._settings(party), self._plan.target
        limits = Limits.of_study(target.parties, self._plan.protocol.rounds, target.dimension, 1 << 20, self._plan.grid)
        mailboxes = {other: mailbox_bytes(MAILBOXES[other]) for other in range(target.parties)}
        now, skew = asyncio.get_running_loop().time, self._skews[party]
        folder = FolderSettings(
            lambda session: self._folder.view(party),
            MAILBOXES[party],
            mailboxes,
            Timetable.of([self._plan], FIRST, INTERVAL),
            clock=lambda: now() + skew,
        )

        participant = Participant(settings, store)

        async def handle(sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
            if isinstance(request, Transfer):
                message = request.phase, request.round, sender, party
                self._network.handed.add(message)
                if participant.position >= (int(Phase.FINALIZATION), 0):
                    self._network.handed_late.add(message)
            return await participant.handle(sender, request, payload)

        endpoint = Endpoint(
            party,
            self._roster,
            STUDY,
            # No connection is made.
            Credentials.__new__(Credentials),
            limits,
            participant.refused,
            participant.heard,
        )
        with contextlib.closing(Outbox(self._directory / f"{party}.outbox", STUDY, party)) as outbox:
            post = FolderTransport(endpoint, self._identities[party], folder, outbox, handle)
            links = {peer: _Noting(link, party, peer, self.put) for peer, link in post.links.items()}
            participant.attach(Carrier(links, closed=post.closed, compute=asyncio.to_thread))
            await participant.open()
            watching, running = asyncio.create_task(post.watch()), asyncio.create_task(participant.run())
            try:
                await asyncio.wait({watching, running}, return_when=asyncio.FIRST_COMPLETED)
                if not running.done():
                    watching.result()
                return await running
            finally:
                for task in (watching, running):
                    task.cancel()
                await asyncio.gather(watching, running, return_exceptions=True)
                await participant.stop()
                # A process that died puts nothing more.
                await post.close(answering=not store.dead)


class _Noting:
    """A link that notes which shares are put."""

    def __init__(self, link: FolderLink, party: PartyId, peer: PartyId, put: set[Put]) -> None:
        self._link, self._party, self._peer, self._put = link, party, peer, put

    @property
    def trouble(self) -> str:
        return self._link.trouble

    @trouble.setter
    def trouble(self, text: str) -> None:
        self._link.trouble = text

    @property
    def unreachable(self) -> bool:
        return self._link.unreachable

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: OnAnswer = lambda answer: None,
        unless: Callable[[], bool] = lambda: False,
    ) -> AnswerFrame:
        if isinstance(request, Transfer):
            self._put.add((Phase(request.phase), request.round, self._party, self._peer))
        return await self._link.ask(request, payload, on_answer, unless)

    async def close(self) -> None:
        await self._link.close()


def run_in_folder(
    plan: Plan, values: Vector, faults: FaultPlan, directory: Path, owner: Owner
) -> tuple[FaultOutcome, frozenset[Put]]:
    """The outcome, and all that was put."""
    world = FolderWorld(plan, values, np.ones(len(values)), faults, directory, owner)
    return run_virtually(world.run()), frozenset(world.put)


def history(seed: int, parties: int) -> tuple[Owner, FaultPlan]:
    """An owner that is kind, slow, forgetful or all of it; parties that die and come back."""
    chance = random.Random(seed)
    # Commitments and openings of all, each with its answer, are so many; a study that does not start has no history.
    start = 4 * parties * (parties - 1)

    def some(most: float) -> float:
        return chance.choice([0.0, 0.0, chance.uniform(0.0, most)])

    owner = Owner(
        seed,
        delay=chance.choice([0.0, 1.0, 10.0, INTERVAL]),
        hides=some(0.15),
        rolls_back=some(0.5),
        replays=some(0.5),
        cuts=some(0.5),
        skew=chance.choice([0.0, 5.0, 2 * INTERVAL]),
        kind=chance.choice([0, start, start, chance.randrange(start, 4 * start)]),
    )
    crashes: dict[PartyId, list[Crash]] = {}
    for party in chance.sample(range(parties), chance.randint(0, 2)):
        moment = chance.choice([None, chance.uniform(0.0, FIRST + 6 * INTERVAL)])
        away = chance.choice([None, 1.0, chance.uniform(0.0, 4 * INTERVAL)])
        crashes[party] = [Crash(chance.randrange(40), chance.random() < 0.5, moment, away)]
    return owner, FaultPlan(crashes=crashes, round_timeout=INTERVAL)
