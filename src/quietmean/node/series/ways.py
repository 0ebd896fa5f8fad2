"""Ways of a series: over connections, which are kept, and through a folder, at times that are agreed on before the first round.

Over connections, a party that was away learns from the others where they are. Requests that it has not answered yet are kept by
the round that they are about.

In a folder, the start and each round have a conversation of their own, under their own labels: numbers of messages begin anew,
and what a party keeps of its files is as large after many rounds as after one. Which round goes on, the clock says: who is there
before the first wait of a round is over is in time for it, and those who are in it wait for all others until then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.driver import over_connections, over_folder, put_what_waits
from quietmean.node.folder import FolderSettings, Outbox
from quietmean.node.mesh import Mesh
from quietmean.node.net import ACCEPTED, REFUSED, AnswerFrame, AnyRequest, Heartbeat, InRound, Payload, inner_request
from quietmean.node.phase import Phase, Position
from quietmean.node.series.others import FIRST_ASKING, Others, RoundAhead, RoundLink, RoundPosition
from quietmean.node.series.party import SeriesParty
from quietmean.node.session import Carrier, NodeResult, NodeSettings, RetryPolicy, StudySession, position_of, retry
from quietmean.node.storage import Store

# So many requests of one party about rounds that this one has not begun are kept.
_HELD = 8


class OpenRequests:
    """Requests about rounds that this party has not begun.

    ``lost_some``: a request about a round that this party had not begun was dropped.
    """

    def __init__(self) -> None:
        self.lost_some = False
        self._rounds: dict[asyncio.Task[object], int] = {}
        self._held: dict[PartyId, list[asyncio.Task[object]]] = {}
        self._turned = asyncio.Event()

    @contextlib.contextmanager
    def about(self, number: int) -> Iterator[None]:
        """The request that this task answers is about this round."""
        task = _this_task()
        self._rounds[task] = number
        try:
            yield
        finally:
            del self._rounds[task]

    async def hold(self, sender: PartyId, early: Callable[[], bool]) -> None:
        """Hold a request until this party begins the round. Of one that it is not in, an old request is dropped for a new one.

        Without an answer its sender does not know whether it was used.
        """
        held, task = self._held.setdefault(sender, []), _this_task()
        if len(held) >= _HELD:
            self.lost_some = True
            held.pop(0).cancel()
        held.append(task)
        try:
            while early():
                await self._turned.wait()
        finally:
            if task in held:
                held.remove(task)

    def turn(self) -> None:
        """A round begins here."""
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def drop(self, number: int) -> None:
        """What is still unanswered about rounds up to this one is not answered any more."""
        for task in [task for task, round_number in self._rounds.items() if round_number <= number]:
            task.cancel()


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a request is answered outside of a task")
    return task


class RoundsOverConnections:
    """What connections see counts parties as the roster does; a round, as those who are in are numbered."""

    _mesh: Mesh
    _where: Others

    def __init__(self, party: SeriesParty) -> None:
        self._party = party
        self._requests = OpenRequests()
        # A process before this one may have been handed messages of the first round that this one begins.
        self._may_know_more = False
        self.fail, self.refused = party.fail, party.refused

    async def open(self, stack: contextlib.AsyncExitStack) -> None:
        party = self._party
        if party.over:
            # Nothing is left to do with the others.
            return
        self._may_know_more = party.restarted
        self._mesh = await stack.enter_async_context(over_connections(party, self))
        party.attach(Carrier(self._round_links(0)))
        await party.open_start()
        again = party.started
        self._where = self._others()
        self._mesh.start()
        patience = RetryPolicy(party.monitor.event, party.settings)
        await retry(self._agree, party.store.path, patience, self._mesh.drop)
        if again is not None:
            await self._where.ask(FIRST_ASKING, self._place.round)

    async def _agree(self) -> None:
        await self._party.start()
        if len(self._party.members) < self._counted:
            # Parties have other places from here on.
            self._where = self._others()

    def _others(self) -> Others:
        """The other parties that are in, as far as that is known."""
        settings, members = self._party.settings, self._party.members
        self._counted = len(members)
        links = {index: self._mesh.links[member] for index, member in enumerate(members) if member in self._mesh.links}
        return Others(links, settings.plan.target.colluding, settings.waits.round / 2, self.fail)

    # --- a round -----------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        if self._may_know_more:
            await self._ahead.catch_up()

    def is_past(self, number: int) -> bool:
        return self._where.are_past(number)

    async def next_round(self) -> int:
        ahead = self._ahead
        await ahead.require_others()
        return await ahead.in_time(self._party.number + 1, returning=self._may_know_more, passed=self._pass_by)

    def _pass_by(self, number: int) -> None:
        """Say, from now on, that this party is past a round that it is too late for: else the others wait for it there."""
        self._party.pass_by(number)
        self._requests.turn()

    async def run(self, settings: NodeSettings, store: Store, *, restarted: bool) -> NodeResult:
        party, number = self._party, self._party.number
        members, others = party.members, self._where.links
        carrier = Carrier(
            self._round_links(number),
            lambda parties: self._mesh.disconnect(members[index] for index in parties),
            compute=asyncio.to_thread,
        )
        lost_some = restarted or self._may_know_more or self._requests.lost_some
        session = party.session_of(settings, store, carrier, restarted=lost_some)
        detector = session.failure_detector
        for other in others:
            if other in self._where.absent:
                detector.presume_absent(other)
            elif self._where.is_past(other, number):
                session.left(other)
            else:
                detector.expect(other)
        self._may_know_more = self._requests.lost_some = False
        party.session = session
        self._requests.turn()
        try:
            return await session.run()
        finally:
            party.session = None
            self._where.absent = {other for other in others if detector.suspected(other) and self._where.silent(other)}

    def drop(self) -> None:
        self._mesh.drop()

    def close_round(self, number: int) -> None:
        self._requests.drop(number)

    @property
    def _ahead(self) -> RoundAhead:
        return RoundAhead(self._where, self._party.inside, self._party.rounds, self._place.round)

    # --- messages ----------------------------------------------------------------------------------------------------

    async def handle(self, sender: PartyId, frame: AnyRequest, payload: Payload) -> AnswerFrame:
        if not isinstance(frame, InRound):
            raise PeerError("it sent a request of no round")
        party, request, number = self._party, inner_request(frame), frame.round
        if number or party.started is None:
            # Who is started again announces the start again, wherever it is.
            self._note_place(sender, RoundPosition(number, position_of(request)))
        if number == 0:
            return self._start(sender, request)
        if isinstance(request, Heartbeat) and (request.phase == Phase.AGREEMENT or not self._is_in(number)):
            # It only asks where this party is.
            return AnswerFrame(request.number, ACCEPTED, *self.position)
        with self._requests.about(number):
            if self._is_early(number):
                await self._requests.hold(sender, lambda: self._is_early(number))
            session, place = party.session, party.place(sender)
            if place is None:
                raise PeerError("it sent a message for a session that did not start with it")
            if session is None or number != party.number:
                return AnswerFrame(request.number, REFUSED, *self.position)
            answer = await session.handle(place, request, payload)
            party.monitor.arrived(sender, request, answer)
            return self._placed(answer, RoundPosition(number, (answer.phase, answer.round)))

    def _start(self, sender: PartyId, request: AnyRequest) -> AnswerFrame:
        """The answer to what is about the start."""
        before = RoundPosition(0, (int(Phase.AGREEMENT), 0)).announced()
        position = before if self._party.started is None else self.position
        if isinstance(request, Heartbeat):
            return AnswerFrame(request.number, ACCEPTED, *position)
        return self._party.handle_start(sender, request, position)

    def _is_early(self, number: int) -> bool:
        party = self._party
        return number > party.number or (number == party.number and not party.ended and party.session is None)

    def _is_in(self, number: int) -> bool:
        return self._party.session is not None and number == self._party.number

    @staticmethod
    def _placed(answer: AnswerFrame, place: RoundPosition) -> AnswerFrame:
        phase, round_ = place.announced()
        return msgspec.structs.replace(answer, phase=phase, round=round_)

    @property
    def _place(self) -> RoundPosition:
        party = self._party
        if party.session is not None:
            return RoundPosition(party.number, party.session.position)
        return RoundPosition(party.number + party.ended, (int(Phase.AGREEMENT), 0))

    @property
    def position(self) -> Position:
        return self._place.announced()

    def heard(self, peer: PartyId, counted: Position) -> None:
        party, place = self._party, RoundPosition.of(counted)
        self._note_place(peer, place)
        party.monitor.heard(peer, place.position)
        index = party.place(peer)
        if party.session is not None and index is not None and place.round == party.number and place.begun:
            party.session.heard(index, place.position)

    def answered(self, peer: PartyId, request: AnyRequest, answer: AnswerFrame) -> None:
        """Do nothing: the links of a round tell the monitor, in the round's own terms."""

    def _note_place(self, peer: PartyId, place: RoundPosition) -> None:
        party = self._party
        index = peer if party.started is None else party.started.place(peer)
        if index is None:
            return
        if self._where.note(index, place) and party.session is not None and self._where.is_past(index, party.number):
            party.session.left(index)

    def _round_links(self, number: int) -> dict[PartyId, RoundLink]:
        """The links of a round to those who are in; in round 0, the start, to all."""
        party = self._party
        members = party.members if number else range(len(party.settings.roster))
        return {
            index: RoundLink(self._mesh.links[member], member, number, party.monitor)
            for index, member in enumerate(members)
            if member in self._mesh.links
        }


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
        if party.ended and party.number:
            # Before the next round takes the place of its outbox.
            await put_what_waits(party.kept_settings, self._folder_of(party.number), _Round(party), party.monitor)
        if party.over:
            await put_what_waits(party.settings, self._folder, party, party.monitor)
            return
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
