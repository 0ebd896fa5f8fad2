"""One party in a series of rounds: one agreement, connections that are kept, and an execution of its own for each round.

All parties agree once, before round 1, on nonces and exchange keys. A round is an execution of the plan in which the digest of
(session, number of the round) stands in every label: public seed, own noise and pair noise are those of no other round. A party
says on disk that it begins a round before anything of it leaves, and begins none twice; what is kept of a round is deleted
when the next one begins. Who is away for some rounds learns from the others where they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from quietmean.core.codec import digest
from quietmean.core.errors import InputError, PeerError, ProtocolFailure
from quietmean.core.outage import outage_of
from quietmean.core.party import PartyId
from quietmean.node.driver import monitor_of, opened, over_connections
from quietmean.node.monitor import Monitor, Report
from quietmean.node.net import (
    ACCEPTED,
    REFUSED,
    AnswerFrame,
    AnyRequest,
    Heartbeat,
    InRound,
    Payload,
    Refusals,
    Roster,
    Seal,
    Start,
    inner_request,
)
from quietmean.node.phase import Phase, Position
from quietmean.node.series.ahead import CLOSING, FIRST_ASKING, RoundAhead
from quietmean.node.series.others import Others
from quietmean.node.series.place import RoundLink, RoundPosition
from quietmean.node.series.record import SeriesOver, SeriesProgress, over_text
from quietmean.node.series.requests import OpenRequests
from quietmean.node.series.round_end import RoundEnd
from quietmean.node.session import (
    NodeResult,
    NodeSettings,
    Patience,
    StudySession,
    endure,
    kept_result,
    note_refusal,
    position_of,
)
from quietmean.node.start import Beginning, Started
from quietmean.node.storage import ROUND, Store, empty
from quietmean.planning import Admitted
from quietmean.randomness import Seed

# What the store of a party that left has for a result.
_LEFT = b"left"


class Series:
    """Use it in an ``async with`` statement, which returns once all parties agreed, or soon after a restart.

    ``settings``: those of the party in every round, without a value; its roster is sealed with what the parties agreed on, and
    its store is that of the series. ``rounds``: the number of the last one; ``most``: how many this party takes part in.

    Who is in is settled before the first round, for all of them. From then on parties are numbered among these; what connections
    and the start see counts them as the roster does.
    """

    def __init__(self, settings: NodeSettings, rounds: int, most: int | None = None) -> None:
        self._settings = settings
        self._rounds = rounds
        self._most = rounds if most is None else most
        self._stack = contextlib.AsyncExitStack()
        self._standing = SeriesProgress()
        self._number = 0
        self._ended = True
        self._session: StudySession | None = None
        self._last: RoundEnd | None = None
        self._requests = OpenRequests()
        # Of the time between rounds; each round has its own.
        self._refusals = Refusals()
        # A process before this one may have been handed messages of the first round that this one begins.
        self._may_know_more = False
        self._defect: BaseException | None = None

    async def __aenter__(self) -> Self:
        async with self._stack:
            await self._open()
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @property
    def standing(self) -> SeriesProgress:
        return self._standing

    @property
    def started(self) -> Started | None:
        """Who is in, once that is settled."""
        return self._beginning.started

    @property
    def last(self) -> RoundEnd | None:
        """The last round of which this party has the mean, if nothing of a later one was begun."""
        return self._last

    @property
    def over(self) -> bool:
        """Whether this party begins no other round."""
        standing = self._standing
        return standing.left or standing.current >= self._rounds or standing.begun >= self._most

    def retire(self) -> None:
        """Leave without taking part again, instead of the ``async with`` statement: no connection is made.

        Raises :class:`InputError` if another process of this party runs.
        """
        self._store = self._settings.open_store()
        with contextlib.closing(self._store):
            self._load()
            if not self._standing.left:
                self.leave()

    def leave(self) -> None:
        """Begin no other round, ever; on disk when this returns. The secrets of the series are deleted."""
        self._save(msgspec.structs.replace(self._standing, left=True))
        self._store.finish(int(Phase.MIXING), _LEFT)

    # --- opening -----------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        settings, stack = self._settings, self._stack
        self._store = await stack.enter_async_context(opened(settings))
        self._store.keep_journal_short()
        self._monitor: Monitor = monitor_of(settings)
        self._load(self._monitor.event)
        self._number = self._standing.current
        self._ended = not self._restore()
        if self.over and self._ended:
            # Nothing is left to do with the others.
            return
        self._may_know_more = self._beginning.restarted
        stack.enter_context(self._monitor)
        connections = over_connections(settings, self, self._monitor, self._beginning.stop)
        self._mesh = await stack.enter_async_context(connections)
        self._beginning.attach(self._round_links(0))
        await self._beginning.open()
        again = self.started
        self._where = self._others()
        self._mesh.start()
        await endure(self._agree, self._store.path, Patience(self._monitor.event, settings), self._mesh.drop)
        if again is not None:
            await self._where.ask(FIRST_ASKING, self._place.round)

    def _load(self, report: Report = lambda event: None) -> None:
        """Where this party is, as its store says."""
        self._beginning = Beginning(self._settings, self._store, report, self.fail, self.refused)
        self._beginning.load()
        self._standing = SeriesProgress.load(self._store.series(), len(self._inside.roster))

    async def _agree(self) -> None:
        await self._go_on()
        await self._beginning.run()
        if len(self._inside.roster) < len(self._settings.roster) == len(self._standing.counted):
            # Parties have other places from here on.
            self._where, self._standing = self._others(), SeriesProgress.load(None, len(self._inside.roster))

    def _others(self) -> Others:
        """Those who are in, as far as that is known."""
        links = {index: self._mesh.links[member] for index, member in enumerate(self._members) if member in self._mesh.links}
        return Others(links, self._settings.plan.target.colluding, self._settings.round_timeout / 2, self.fail)

    @property
    def _members(self) -> Sequence[PartyId]:
        """Who is in, by their places in the roster; all, before that is settled."""
        return range(len(self._settings.roster)) if self.started is None else self.started.members

    @property
    def _inside(self) -> NodeSettings:
        """Of this party among those who are in."""
        return self._beginning.settings

    def _restore(self) -> bool:
        """Whether the round that was begun last may go on; its mean, if it has one, is :attr:`last`."""
        if not self._number or not self._round_store.exists():
            return False
        try:
            if self._nothing_has_left:
                return True
            with contextlib.closing(self._kept()) as store:
                result = kept_result(store)
        except (InputError, ProtocolFailure):
            return False
        if result is not None:
            self._note_end(result, 0)
        return result is None

    @property
    def _nothing_has_left(self) -> bool:
        """Whether what is kept is of a round before the one that was begun last, or empty; where it is gone, nobody knows."""
        if not self._round_store.stat().st_size:
            return True
        with contextlib.closing(self._kept()) as store:
            return store.study != self._settings_of(self._number, self._inside.value).study

    def _kept(self) -> Store:
        plan = self._inside.plan
        return Store(self._round_store, plan.target.dimension, plan.grid)

    # --- a round -----------------------------------------------------------------------------------------------------

    async def mean(self, value: Admitted) -> RoundEnd:
        """Take part in the next round with ``value``, as the plan admits it.

        Raises :class:`SeriesOver` where there is none, and :class:`ProtocolFailure` for a round without a result here, which
        counts as begun. A round that was interrupted goes on if the value is the same; else it is missed.
        """
        if not (self.over and self._ended):
            await self._go_on()
        number = await self._next(value)
        settings, goes_on = self._settings_of(number, value), number == self._standing.current

        async def begin() -> Store:
            await self._go_on()
            if number != self._standing.current:
                self._begin(number)
            elif self._nothing_has_left:
                empty(self._round_store)
            seeds = iter([self._store.seed, Seed(self._store.nonce)])
            return settings.open_store(lambda: next(seeds))

        before, patience = self._monitor.traffic.sent, Patience(self._monitor.event, settings)
        with contextlib.closing(await endure(begin, self._store.path, patience)) as store:
            result = kept_result(store) or await self._run(settings, store, patience, restarted=goes_on)
        return self._note_end(result, self._monitor.traffic.sent - before)

    async def _run(self, settings: NodeSettings, store: Store, patience: Patience, *, restarted: bool) -> NodeResult:
        attempts = itertools.count()

        async def attempt() -> NodeResult:
            again = next(attempts) > 0
            if again:
                store.reopen()
                await self._go_on()
            return kept_result(store) or await self._run_once(settings, store, restarted=restarted or again)

        try:
            result = await endure(attempt, store.path, patience, self._mesh.drop)
            self._ended = True
            return result
        except ProtocolFailure:
            self._ended = True
            raise
        finally:
            self._requests.drop(self._number)

    async def _run_once(self, settings: NodeSettings, store: Store, *, restarted: bool) -> NodeResult:
        number = self._number
        session = StudySession(
            settings,
            store,
            self._round_links(number),
            self._monitor.traffic,
            self._monitor.event,
            restarted=restarted or self._may_know_more or self._requests.lost_some,
        )
        members, others = self._members, self._where.links
        session.at_gate(lambda parties: self._mesh.cut_off(members[index] for index in parties), asyncio.to_thread)
        detector = session.failure_detector
        for party in others:
            if party in self._where.absent:
                detector.presume_absent(party)
            elif self._where.is_past(party, number):
                detector.heard(party, CLOSING)
            else:
                detector.expect(party)
        self._may_know_more = self._requests.lost_some = False
        self._session = session
        self._requests.turn()
        try:
            return await session.run()
        finally:
            self._session = None
            self._where.absent = {party for party in others if detector.suspected(party) and self._where.silent(party)}

    def fail(self, error: BaseException) -> None:
        """Of what goes on beside a round. Between rounds only a defect ends the series, when the next round begins."""
        if self._session is not None or self.started is None:
            (self._session or self._beginning).fail(error)
        elif outage_of(error, self._store.path) is None:
            self._defect = self._defect or error

    async def _go_on(self) -> None:
        """Before a round: raises what nobody could be told until now, and reads anew what an outage has left of the store."""
        error = self._defect or self._beginning.error
        if error is not None and outage_of(error, self._store.path) is None:
            raise error
        if self._store.stalled or self._beginning.error is not None:
            await self._beginning.open()
            self._beginning.gathering.start()

    def _begin(self, number: int) -> None:
        """On disk before anything of the round exists; what was kept of the one before is deleted."""
        standing = self._standing
        self._save(msgspec.structs.replace(standing, current=number, begun=standing.begun + 1))
        self._number, self._ended, self._last = number, False, None
        empty(self._round_store)
        self._requests.drop(number - 1)

    def _note_end(self, result: NodeResult, sent: int) -> RoundEnd:
        """Counted on disk with the next round, or by whoever finds the result in its store."""
        standing, end = self._standing, RoundEnd.of(self._number, result, sent, self._inside.plan)
        if self._last is None or self._last.number != self._number:
            inside = end.execution.contributors()
            counted = tuple(before + bool(inside[party]) for party, before in enumerate(standing.counted))
            self._standing = msgspec.structs.replace(standing, results=standing.results + 1, counted=counted)
        self._last, self._ended = end, True
        return end

    def _save(self, standing: SeriesProgress) -> None:
        self._store.save_series(standing.dump())
        self._standing = standing

    def _settings_of(self, number: int, value: Admitted) -> NodeSettings:
        settings = self._inside
        label = digest({"format": "quietmean-round-1", "session": settings.study, "round": number})
        return replace(
            settings,
            roster=Roster(settings.roster.entries, Seal(label, settings.roster.conveners)),
            value=value,
            store=self._round_store,
            wipe_value=True,
        )

    @property
    def _round_store(self) -> Path:
        return self._settings.store.with_name(self._settings.store.name + ROUND)

    # --- which round -------------------------------------------------------------------------------------------------

    async def _next(self, value: Admitted) -> int:
        """The round that this party takes part in now. Raises :class:`SeriesOver` if there is none."""
        standing = self._standing
        if self._may_know_more:
            await self._ahead.hear()
        if not self._ended and not self._where.are_past(standing.current) and self._goes_on(value):
            return standing.current
        self._ended = True
        if self.over:
            raise SeriesOver(over_text(standing, self._rounds, self._most))
        ahead = self._ahead
        await ahead.require_others()
        number = await ahead.in_time(standing.current + 1, returning=self._may_know_more)
        if number > self._rounds:
            # The others are past the last one.
            self._save(msgspec.structs.replace(standing, current=self._rounds))
            raise SeriesOver(over_text(standing, self._rounds, self._most))
        return number

    @property
    def _ahead(self) -> RoundAhead:
        return RoundAhead(self._where, self._inside, self._rounds, self._place.round)

    def _goes_on(self, value: Admitted) -> bool:
        """Whether what is kept of the round that was begun last is of this value, or nothing of it has left yet."""
        with contextlib.suppress(InputError):
            settings = self._settings_of(self._standing.current, value)
            return self._round_store.exists() and (self._nothing_has_left or settings.store_exists())
        return False

    # --- messages ----------------------------------------------------------------------------------------------------

    async def handle(self, sender: PartyId, frame: AnyRequest, payload: Payload) -> AnswerFrame:
        if not isinstance(frame, InRound):
            raise PeerError("it sent a request of no round")
        request, number = inner_request(frame), frame.round
        if number or self.started is None:
            # Who is started again tells of the start again, wherever it is.
            self._note_place(sender, RoundPosition(number, position_of(request)))
        if number == 0:
            return self._start(sender, request)
        if isinstance(request, Heartbeat) and (request.phase == Phase.AGREEMENT or not self._is_in(number)):
            # It only asks where this party is.
            return AnswerFrame(request.number, ACCEPTED, *self.position)
        with self._requests.about(number):
            if self._is_early(number):
                await self._requests.hold(sender, lambda: self._is_early(number))
            session, place = self._session, self._beginning.place(sender)
            if place is None:
                raise PeerError("it is in a round of a session that has not started with it here")
            if session is None or number != self._number:
                return AnswerFrame(request.number, REFUSED, *self.position)
            answer = await session.handle(place, request, payload)
            self._monitor.arrived(sender, request, answer)
            return self._placed(answer, RoundPosition(number, (answer.phase, answer.round)))

    def _start(self, sender: PartyId, request: AnyRequest) -> AnswerFrame:
        """The answer to what is about the start."""
        position = RoundPosition(0, (int(Phase.AGREEMENT), 0)).told() if self.started is None else self.position
        if isinstance(request, Heartbeat):
            return AnswerFrame(request.number, ACCEPTED, *position)
        if not isinstance(request, Start):
            raise PeerError("it sent a request of a round before the first one")
        return self._beginning.handle(sender, request, position)

    def _is_early(self, number: int) -> bool:
        return number > self._number or (number == self._number and not self._ended and self._session is None)

    def _is_in(self, number: int) -> bool:
        return self._session is not None and number == self._number

    @staticmethod
    def _placed(answer: AnswerFrame, place: RoundPosition) -> AnswerFrame:
        phase, round_ = place.told()
        return msgspec.structs.replace(answer, phase=phase, round=round_)

    @property
    def _place(self) -> RoundPosition:
        if self._session is not None:
            return RoundPosition(self._number, self._session.position)
        return RoundPosition(self._number + self._ended, (int(Phase.AGREEMENT), 0))

    @property
    def position(self) -> Position:
        return self._place.told()

    def heard(self, peer: PartyId, counted: Position) -> None:
        place = RoundPosition.of(counted)
        self._note_place(peer, place)
        self._monitor.heard(peer, place.position)
        index = self._beginning.place(peer)
        if self._session is not None and index is not None and place.round == self._number and place.begun:
            self._session.heard(index, place.position)

    def answered(self, peer: PartyId, request: AnyRequest, answer: AnswerFrame) -> None:
        """Nothing: the links of a round tell the monitor, in the round's own terms."""

    def _note_place(self, peer: PartyId, place: RoundPosition) -> None:
        index = peer if self.started is None else self.started.place(peer)
        if index is None:
            return
        if self._where.note(index, place) and self._session is not None and self._where.is_past(index, self._number):
            # It is past this round, and never comes back to it.
            self._session.heard(index, CLOSING)

    def _round_links(self, number: int) -> dict[PartyId, RoundLink]:
        """To those who are in; in round 0, the start, to all."""

        def past(peer: PartyId) -> bool:
            # Who is past the agreement still answers about it.
            return number > 0 and self._where.is_past(peer, number)

        members = self._members if number else range(len(self._settings.roster))
        return {
            index: RoundLink(
                self._mesh.links[member],
                member,
                number,
                partial(past, index),
                self._monitor,
            )
            for index, member in enumerate(members)
            if member in self._mesh.links
        }

    def refused(self, peer: str, reason: str) -> None:
        if self._session is not None:
            self._session.refused(peer, reason)
        else:
            note_refusal(self._refusals, self._monitor.event, peer, reason)
