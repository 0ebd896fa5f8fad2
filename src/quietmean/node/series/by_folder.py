"""Rounds of a series whose messages are files in a folder, at times that are agreed on before the first one.

The start and each round have a conversation of their own in the folder, under their own labels: numbers of messages begin anew,
and what a party keeps of its files is as large after many rounds as after one. Which round goes on, the clock says: who is there
before the first wait of a round is over is in time for it, and those who are in it wait for all others until then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.driver import over_folder
from quietmean.node.folder import FolderSettings, FolderTransport, Outbox
from quietmean.node.net import AnswerFrame, AnyRequest, Payload, Start
from quietmean.node.phase import Phase, Position
from quietmean.node.series.party import SeriesParty
from quietmean.node.session import Carrier, NodeResult, NodeSettings, RetryPolicy, StudySession, retry
from quietmean.node.storage import Store
from quietmean.node.tasks import Tasks

_BEFORE: Position = (int(Phase.AGREEMENT), 0)


@dataclass
class _Conversation:
    """As the others see this party in the start, or in one round. ``members``: who talks there, by places in the roster."""

    party: SeriesParty
    members: Sequence[PartyId]
    answer: Callable[[PartyId, AnyRequest, Payload], Coroutine[Any, Any, AnswerFrame]]

    @property
    def position(self) -> Position:
        session = self.party.session
        return _BEFORE if session is None else session.position

    async def handle(self, sender: PartyId, frame: AnyRequest, payload: Payload) -> AnswerFrame:
        return await self.answer(sender, frame, payload)

    def heard(self, peer: PartyId, position: Position) -> None:
        if self.party.session is not None:
            self.party.session.heard(peer, position)
        self.party.monitor.heard(self.members[peer], position)

    def answered(self, peer: PartyId, request: AnyRequest, answer: AnswerFrame) -> None:
        self.party.monitor.acknowledged(self.members[peer], request, answer)

    def fail(self, error: BaseException) -> None:
        self.party.fail(error)

    def refused(self, peer: str, reason: str) -> None:
        self.party.refused(peer, reason)


class RoundsByFolder:
    """Carry the rounds of a party with this ``folder``."""

    def __init__(self, party: SeriesParty, folder: FolderSettings) -> None:
        self._party, self._folder = party, folder

    # --- the start ---------------------------------------------------------------------------------------------------

    async def open(self, stack: contextlib.AsyncExitStack) -> None:
        party = self._party
        if party.started is not None and not self._is_in_time(1):
            # Anyone who is in knows it by now.
            party.beginning.attach(Carrier({}))
            await party.beginning.open()
            return
        patience = RetryPolicy(party.monitor.event, party.settings)

        async def attempt() -> contextlib.AsyncExitStack:
            async with contextlib.AsyncExitStack() as closing:
                await self._start(closing)
                return closing.pop_all()

        await stack.enter_async_context(await retry(attempt, party.store.path, patience))

    async def _start(self, closing: contextlib.AsyncExitStack) -> None:
        """Settle who is in. It may have to be announced to others later: the start goes on beside the rounds of this process."""
        party, settings = self._party, self._party.settings

        async def answer(sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
            if not isinstance(request, Start):
                raise PeerError("it sent a request of a round before the first one")
            return party.beginning.handle(sender, request, _BEFORE)

        post, watching = await self._post(closing, settings, self._folder, Outbox, answer)
        party.beginning.attach(Carrier.by_folder(post))
        await party.beginning.open()
        closing.push_async_callback(party.beginning.stop)
        watching.spawn(post.watch(self._folder.quiet))
        await party.start()
        # A process that is to end soon ends by its round.
        await watching.stop()
        watching.spawn(post.watch())

    # --- rounds ------------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Nothing: the clock says where the others are."""

    def is_past(self, number: int) -> bool:
        """Never: what the others put is there for anyone who comes late."""
        return False

    async def next_round(self) -> int:
        number = self._party.progress.current + 1
        while number <= self._party.rounds and not self._is_in_time(number):
            number += 1
        return number

    def _is_in_time(self, number: int) -> bool:
        timetable = self._folder.timetable.of_round(number)
        return self._folder.clock() < timetable.end(timetable.waits[1])

    async def run(self, settings: NodeSettings, store: Store, *, restarted: bool) -> NodeResult:
        party, folder = self._party, self._folder_of(self._party.number)
        begun = asyncio.Event()

        async def answer(sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
            await begun.wait()
            handled = await session.handle(sender, request, payload)
            party.monitor.arrived(party.members[sender], request, handled)
            return handled

        async with contextlib.AsyncExitStack() as closing:
            post, watching = await self._post(closing, settings, folder, Outbox.of_round, answer)
            session = StudySession(
                settings, store, Carrier.by_folder(post), party.monitor.traffic, party.monitor.event, restarted=restarted
            )
            party.session = session
            closing.callback(self._leave)
            begun.set()
            watching.spawn(post.watch(folder.quiet))
            return await session.run()

    def _leave(self) -> None:
        self._party.session = None

    def _folder_of(self, number: int) -> FolderSettings:
        """The folder of one round, with the mailboxes of those who are in."""
        folder, members = self._folder, self._party.members
        mailboxes = {index: folder.mailboxes[member] for index, member in enumerate(members)}
        return replace(folder, mailboxes=mailboxes, timetable=folder.timetable.of_round(number))

    async def _post(
        self,
        closing: contextlib.AsyncExitStack,
        settings: NodeSettings,
        folder: FolderSettings,
        outbox: Callable[[Path, str, PartyId], Outbox],
        answer: Callable[[PartyId, AnyRequest, Payload], Coroutine[Any, Any, AnswerFrame]],
    ) -> tuple[FolderTransport, Tasks]:
        """One conversation and the tasks that look after it, both closed with ``closing``."""
        party = self._party
        members = party.members if len(settings.roster) == len(party.members) else range(len(settings.roster))
        member = _Conversation(party, members, answer)
        return await closing.enter_async_context(over_folder(settings, folder, member, party.monitor, outbox))

    def drop(self) -> None:
        """Nothing: each attempt opens the folder anew."""

    def close_round(self, number: int) -> None:
        """Nothing: its conversation was closed with it."""
