"""Rounds of a series whose messages are files in a folder, at times that are agreed on before the first one.

The start and each round have a conversation of their own in the folder, under their own labels: numbers of messages begin anew,
and what a party keeps of its files is as large after many rounds as after one. Which round goes on, the clock says: who is there
before the first wait of a round is over is in time for it, and those who are in it wait for all others until then.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from quietmean.core.party import PartyId
from quietmean.node.driver import over_folder
from quietmean.node.folder import FolderSettings, Outbox
from quietmean.node.net import AnswerFrame, AnyRequest, Payload
from quietmean.node.phase import Position
from quietmean.node.series.party import SeriesParty
from quietmean.node.session import Carrier, NodeResult, NodeSettings, RetryPolicy, StudySession, retry
from quietmean.node.storage import Store


class _Round:
    """A party in one round, in which those who are in are numbered; it answers once there is a ``session``."""

    session: StudySession | None = None

    def __init__(self, party: SeriesParty) -> None:
        self._party, self._members = party, party.members
        self.fail, self.refused = party.fail, party.refused

    @property
    def position(self) -> Position:
        return self._party.position

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
        if self.session is None:
            raise ConnectionAbortedError("this round has not begun here")
        answer = await self.session.handle(sender, request, payload)
        self._party.monitor.arrived(self._members[sender], request, answer)
        return answer

    def heard(self, peer: PartyId, position: Position) -> None:
        self._party.heard(self._members[peer], position)

    def answered(self, peer: PartyId, request: AnyRequest, answer: AnswerFrame) -> None:
        self._party.answered(self._members[peer], request, answer)


class RoundsByFolder:
    """Carry the rounds of a party with this ``folder``."""

    def __init__(self, party: SeriesParty, folder: FolderSettings) -> None:
        self._party, self._folder = party, folder

    # --- the start ---------------------------------------------------------------------------------------------------

    async def open(self, stack: contextlib.AsyncExitStack) -> None:
        party = self._party
        if party.started is not None and not self._is_in_time(1):
            # Anyone who is in knows it by now.
            party.attach(Carrier({}))
            await party.open_start()
            return
        patience = RetryPolicy(party.monitor.event, party.settings)

        async def attempt() -> contextlib.AsyncExitStack:
            async with contextlib.AsyncExitStack() as closing:
                await self._start(closing)
                return closing.pop_all()

        await stack.enter_async_context(await retry(attempt, party.store.path, patience))

    async def _start(self, closing: contextlib.AsyncExitStack) -> None:
        """Settle who is in. It may have to be announced to others later: the start goes on beside the rounds of this process."""
        party = self._party
        conversation = over_folder(party.settings, self._folder, party, party.monitor)
        post, watching = await closing.enter_async_context(conversation)
        party.attach(Carrier.by_folder(post))
        await party.open_start()
        closing.push_async_callback(party.stop)
        watching.spawn(post.watch(self._folder.quiet))
        await party.start()
        # A process that is to end soon ends by its round.
        await watching.stop()
        watching.spawn(post.watch())

    # --- rounds ------------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Do nothing: the clock says where the others are."""

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
        member = _Round(party)
        async with contextlib.AsyncExitStack() as closing:
            conversation = over_folder(settings, folder, member, party.monitor, Outbox.of_round)
            post, watching = await closing.enter_async_context(conversation)
            session = party.session_of(settings, store, Carrier.by_folder(post), restarted=restarted)
            member.session = party.session = session
            closing.callback(self._leave)
            watching.spawn(post.watch(folder.quiet))
            return await session.run()

    def _leave(self) -> None:
        self._party.session = None

    def _folder_of(self, number: int) -> FolderSettings:
        """The folder of one round, with the mailboxes of those who are in."""
        folder, members = self._folder, self._party.members
        mailboxes = {index: folder.mailboxes[member] for index, member in enumerate(members)}
        return replace(folder, mailboxes=mailboxes, timetable=folder.timetable.of_round(number))

    def drop(self) -> None:
        """Do nothing: each attempt opens the folder anew."""

    def close_round(self, number: int) -> None:
        """Do nothing: the round's conversation was closed with it."""
