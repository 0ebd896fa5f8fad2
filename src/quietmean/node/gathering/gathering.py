"""One party in the attempts to start: its clock, its record, and what it tells the others until the study is over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from quietmean.core.errors import NotStarted, QuietmeanError
from quietmean.core.party import PartyId
from quietmean.core.readable import by_this_clock
from quietmean.node.gathering.record import RosterSignatures, dump_standing, from_frame, load_standing, to_frame
from quietmean.node.monitor import AgreementWaits, Report
from quietmean.node.net import Link, Start
from quietmean.node.quorum import (
    ATTEMPTS,
    Attempt,
    Machine,
    Opening,
    Own,
    Proposal,
    Rules,
    Standing,
    Telling,
    least_minimum,
    quorum_study,
)
from quietmean.node.session import NodeSettings, Pairing, Quorum
from quietmean.node.storage import Store
from quietmean.node.tasks import Fail, Tasks, report_defect
from quietmean.randomness import ExchangeKey, Seed

# Where a party is, is told again after so many seconds, more of them hours before the start; who told nothing for three times as
# long, and so many seconds, is not there.
_REPEAT, _LONG_BEFORE, _THERE = 0.5, 10.0, 5.0
_PART_OF_THE_WAIT = 0.05
# Attempts before the time to start; the others are kept for then.
_EARLY = ATTEMPTS // 2
# So many attempts are with all who are there.
_FOR_ALL = 2
_TICK = 0.2


def rules_of(settings: NodeSettings, quorum: Quorum) -> Rules:
    """The rules by which these parties start. Raises :class:`InputError` where two results could be made."""
    target = settings.plan.target
    least = least_minimum(target.parties, target.colluding)
    return Rules(settings.study, settings.roster.conveners, target.colluding, quorum.minimum, least)


class Gathering:
    """Answers in :meth:`heard`, tells in the background from :meth:`start` on, and ends in :meth:`until_bound`.

    Each change of the standing is on disk before it is told. ``fail`` is told of an error in the background.
    """

    def __init__(
        self,
        settings: NodeSettings,
        quorum: Quorum,
        store: Store,
        links: Mapping[PartyId, Link],
        report: Report,
        fail: Fail = report_defect,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._quorum, self._store, self._links, self._report = settings, quorum, store, links, report
        self._now = wall_clock
        self._machine = Machine(
            settings.party, rules_of(settings, quorum), RosterSignatures(settings.identity, settings.roster), self._fresh
        )
        self._standing = load_standing(store.standing())
        self._pairing = Pairing(settings, store)
        self._failure: QuietmeanError | None = None
        self._changed = asyncio.Event()
        self._news = {party: asyncio.Event() for party in links}
        self._telling = Tasks(fail)
        self._there: dict[PartyId, float] = {}
        # Where others say that they are bound.
        self._bound_in: dict[PartyId, tuple[int, frozenset[PartyId]]] = {}
        # Whom nothing needs to be told any more: bound where this party is.
        self._settled: set[PartyId] = set()
        self._reported: tuple[str, ...] | None = None
        # Each attempt has its time, one after the other; the last one ends with the time-out of the start.
        self._turn = settings.start_timeout / ATTEMPTS
        self._begun = self._now()
        self._accepted_at = self._begun

    @property
    def standing(self) -> Standing:
        return self._standing

    def start(self) -> None:
        for peer in self._links:
            self._telling.spawn(self._tell(peer))

    async def stop(self) -> None:
        await self._telling.stop()

    async def until_bound(self) -> Attempt:
        """The attempt to which this party is bound. Raises :class:`NotStarted` if there is none and never will be."""
        while True:
            self._changed.clear()
            if self._failure is not None:
                raise self._failure
            attempt = self._standing.attempt
            if self._standing.bound and attempt is not None:
                return attempt
            self._give_up_if_over()
            self._propose_if_due()
            self._report_missing()
            if self._standing.bound:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK if self._standing.attempt is not None else self._pause()):
                    await self._changed.wait()

    def heard(self, sender: PartyId, frame: Start) -> None:
        """Take in where another party is. Raises :class:`PeerError` for what a correct one never tells."""
        telling = from_frame(frame)
        self._pairing.check(sender, frame.encapsulated, commits=bool(frame.commit))
        self._there[sender] = self._now()
        if telling.proposal is not None and telling.bound:
            self._note_bound(sender, telling)
        elif self._standing.bound and sender in self._news:
            # It does not know yet, or was not there when it happened.
            self._news[sender].set()
        standing = self._machine.hear(self._standing, sender, telling)
        self._take_encapsulated(standing, sender, telling, frame.encapsulated)
        self._move(standing)
        self._changed.set()

    def _take_encapsulated(self, standing: Standing, sender: PartyId, telling: Telling, ciphertext: bytes) -> None:
        """Of the attempt in which this party is, before the standing in which the commitment counts is kept."""
        before, attempt, proposal = self._standing, standing.attempt, telling.proposal
        if before.bound or attempt is None or proposal is None or not attempt.proposal.same_as(proposal):
            return
        same = before.attempt is not None and before.attempt.proposal.same_as(proposal)
        committed = same and before.attempt is not None and sender in before.attempt.commits
        self._pairing.take(sender, ciphertext, committed=committed)

    def _note_bound(self, sender: PartyId, telling: Telling) -> None:
        self._machine.check(sender, telling)
        proposal = telling.proposal
        if proposal is None:
            return
        own = self._standing.attempt
        if own is not None and own.proposal.same_as(proposal):
            self._settled.add(sender)
        self._bound_in[sender] = proposal.attempt, proposal.members

    # --- its own steps -----------------------------------------------------------------------------------------------

    def _fresh(self) -> Own:
        seed = Seed.from_os()
        return Own(seed.secret, Opening(Seed.from_os().secret, self._settings.value.weight, ExchangeKey(seed).public))

    def _move(self, standing: Standing) -> None:
        """Make a change durable, and bind this party once it may be."""
        self._save(standing)
        bound = self._machine.bind(self._standing)
        if bound.bound and not self._standing.bound and bound.attempt is not None:
            try:
                # First the ledger, then the store: what the store says was done, the ledger knows.
                self._quorum.before_bound(quorum_study(self._settings.study, bound.attempt.proposal))
            except QuietmeanError as error:
                self._failure = error
                return
            self._save(bound)

    def _save(self, standing: Standing) -> None:
        if standing == self._standing:
            return
        if standing.latest != self._standing.latest:
            self._accepted_at = self._now()
        told = self._machine.tell(self._standing)
        self._store.save_standing(dump_standing(self._settings.party, standing))
        self._standing = standing
        self._changed.set()
        if self._machine.tell(standing) != told:
            for news in self._news.values():
                news.set()

    def _propose_if_due(self) -> None:
        """As the convener of the attempt whose turn it is: with all who are there."""
        standing, now = self._standing, self._now()
        if not standing.free:
            return
        # Who is bound elsewhere is in no other attempt.
        there = frozenset(self._present()) - self._bound_in.keys() | {self._me}
        attempt = self._attempt_by_time(now)
        asked = self._quorum.asked_to_start() and self._machine.rules.allows(there)
        if attempt is None and (asked or len(there) == len(self._settings.roster)):
            # All are there, or enough of them: at once, and after an attempt that failed once it had its time.
            waited = standing.latest == 0 or now >= self._accepted_at + self._turn
            early = standing.latest < _EARLY or now >= self._quorum.start_by
            attempt = standing.latest + 1 if waited and early else None
        if attempt is not None and standing.latest < attempt <= ATTEMPTS and self._machine.rules.convener(attempt) == self._me:
            self._move(self._machine.propose(standing, attempt, self._without_stragglers(there)))

    def _without_stragglers(self, there: frozenset[PartyId]) -> frozenset[PartyId]:
        """After two attempts: without those who are there and did not get on in the last one, if enough others are."""
        last = self._standing.attempt
        if last is None or self._standing.latest < _FOR_ALL:
            return there
        done = last.openings if last.all_committed else last.commits if last.all_agreed else last.agreed
        others = there - (last.members - frozenset(done))
        return others if self._machine.rules.allows(others) else there

    def _attempt_by_time(self, now: float) -> int | None:
        """The attempt whose turn it is; None before the time to start, and while an earlier one still has its time."""
        if now < self._quorum.start_by:
            return None
        if self._standing.latest and now < self._accepted_at + self._turn:
            return None
        return 1 + int((now - self._quorum.start_by) / self._turn)

    @property
    def _me(self) -> PartyId:
        return self._settings.party

    def _present(self) -> list[PartyId]:
        now = self._now()
        patience = _THERE + 3 * self._pause()
        return [party for party, since in self._there.items() if now - since < patience]

    def _pause(self) -> float:
        """Until where this party is, is told again."""
        return min(max(_REPEAT, _PART_OF_THE_WAIT * (self._quorum.start_by - self._now())), _LONG_BEFORE)

    def _give_up_if_over(self) -> None:
        """Raises :class:`NotStarted` once this party will not be in, which is on disk before."""
        if self._standing.never:
            raise NotStarted(
                "this party gave up waiting for the start, and takes no part in this study any more: agree on a later start_by"
            )
        colluding, own = self._machine.rules.colluding, self._standing.attempt
        for (attempt, members), sayers in Counter(self._bound_in.values()).items():
            inside = own is not None and own.proposal.same_as(Proposal(attempt, members, b""))
            # More than may lie say so, and this party is not among them or went on to a later attempt.
            if sayers > colluding and not inside and (self._me not in members or self._standing.latest > attempt):
                self._save(self._machine.give_up(self._standing))
                raise NotStarted(
                    f"the study started without this party, with {self._names(members)}: none of its data left this machine"
                )
        last = max(self._quorum.start_by, self._begun) + self._settings.start_timeout + self._turn
        if self._now() >= last:
            self._save(self._machine.give_up(self._standing))
            there = self._names({self._me, *self._present()})
            raise NotStarted(
                f"the study did not start by its time with {self._quorum.minimum} parties or more: there were {there}; none of "
                f"this party's data left this machine ({by_this_clock(datetime.fromtimestamp(self._now(), UTC))})"
            )

    def _names(self, parties: frozenset[PartyId] | set[PartyId]) -> str:
        return ", ".join(self._settings.names[party] for party in sorted(parties))

    def _report_missing(self) -> None:
        missing = tuple(self._settings.names[party] for party in sorted(set(self._links) - set(self._present())))
        if missing != self._reported:
            self._reported = missing
            self._report(AgreementWaits(missing))

    # --- telling -----------------------------------------------------------------------------------------------------

    def _frame(self, peer: PartyId) -> Start:
        telling = self._machine.tell(self._standing)
        return to_frame(telling, self._pairing.told_to(peer) if telling.commit else b"")

    async def _tell(self, peer: PartyId) -> None:
        news = self._news[peer]
        while True:
            news.clear()
            if peer not in self._settled or not self._standing.bound:
                with contextlib.suppress(TimeoutError):
                    # What is told changes: it is not sent hours later, when the peer comes.
                    async with asyncio.timeout(_THERE):
                        await self._links[peer].ask(self._frame(peer))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await news.wait()
