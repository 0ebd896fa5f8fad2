"""When a study starts and how long a party waits for it: with all as soon as they are there, or by a time with enough of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Protocol

from quietmean.core.errors import NotStarted
from quietmean.core.limits import ATTEMPTS
from quietmean.core.party import PartyId
from quietmean.core.readable import grouped
from quietmean.core.readable_days import by_this_clock
from quietmean.node.phase import Phase
from quietmean.node.session import Carrier, NodeSettings, StartTerms
from quietmean.node.start.machine import Announcement, Machine, Proposal, StartProgress
from quietmean.node.tasks import Tasks

# Where a party is, is announced again after so many seconds, more of them hours before the start; who was silent three times as
# long, and so many seconds, is not there.
_REPEAT, _LONG_BEFORE, _THERE = 0.5, 10.0, 5.0
_PART_OF_THE_WAIT = 0.05
# Attempts before the time to start; the others are kept for then.
_EARLY = ATTEMPTS // 2
# So many attempts are with all who are there.
_FOR_ALL = 2


class StartPolicy(Protocol):
    """What a party does by its clock before the start. ``repeats``: whether it announces again and again that it is there."""

    repeats: bool

    @property
    def pause(self) -> float:
        """Seconds until where this party is, is announced again."""

    @property
    def until(self) -> float:
        """When the wait ends, in seconds since 1970."""

    @property
    def past(self) -> bool:
        """Whether others may have started without this party."""

    def start(self, tasks: Tasks) -> None:
        """Note that the wait begins."""

    def accepted(self) -> None:
        """This party went on to an attempt."""

    def heard(self, sender: PartyId, announcement: Announcement, progress: StartProgress) -> None:
        """Another party announced where it is; ``progress``: of this one before."""

    def due(self, progress: StartProgress, informed: Collection[PartyId]) -> StartProgress:
        """The progress after what it is time for; ``informed``: who has taken in where this party is.

        Raises :class:`NotStarted` where this party waits no more.
        """

    def settled(self, peer: PartyId, progress: StartProgress) -> bool:
        """Whether nothing needs to be announced to a party any more."""

    def missing(self, progress: StartProgress, informed: Collection[PartyId]) -> set[PartyId]:
        """Who is waited for."""


def occasion_of(settings: NodeSettings, machine: Machine, carrier: Carrier) -> StartPolicy:
    """Return when the study of these settings starts."""
    if settings.start is None:
        return WhenAllAreThere(settings, carrier)
    return ByTime(settings, settings.start, machine, carrier)


class WhenAllAreThere:
    """Waits for all, until the time-out of the start or until the carrier is closed; after that it can be tried again."""

    repeats = False
    pause = _REPEAT
    past = False

    def __init__(self, settings: NodeSettings, carrier: Carrier) -> None:
        self._settings, self._links, self._closed = settings, carrier.links, carrier.closed
        self._closing: asyncio.Task[None] | None = None
        self.until = time.time() + settings.waits.start if settings.folder is None else settings.folder.timetable.first

    def start(self, tasks: Tasks) -> None:
        wait = asyncio.sleep(self._settings.waits.start) if self._closed is None else self._closed((int(Phase.AGREEMENT), 0))
        self._closing = tasks.spawn(wait)

    def accepted(self) -> None:
        """There is one attempt."""

    def heard(self, sender: PartyId, announcement: Announcement, progress: StartProgress) -> None:
        """Do nothing: no decision depends on when a party was heard."""

    def due(self, progress: StartProgress, informed: Collection[PartyId]) -> StartProgress:
        if self._closing is None or not self._closing.done() or not (missing := self.missing(progress, informed)):
            return progress
        reasons = grouped({self._settings.names[party]: self._links[party].trouble for party in sorted(missing)})
        until = f"within {self._settings.waits.start:g} s" if self._closed is None else "by its first deadline"
        raise NotStarted(f"the study did not start {until} for want of {reasons}", for_good=False)

    def settled(self, peer: PartyId, progress: StartProgress) -> bool:
        return False

    def missing(self, progress: StartProgress, informed: Collection[PartyId]) -> set[PartyId]:
        attempt, others = progress.attempt, set(self._links)
        if attempt is None:
            return others
        # Nobody reveals before all have committed: as long as commitments are missing, only their parties are reported.
        return others - attempt.commits.keys() or (others - attempt.openings.keys()) | (others - set(informed))


class ByTime:
    """Starts with all as soon as they are there, at its time with enough parties; numbered attempts follow each other.

    With a carrier that closes there is a timetable, and nobody need be there together with others: who came once is there,
    nothing is announced twice, and an attempt has its time by the clock alone, which goes on while nobody's process runs.
    """

    def __init__(self, settings: NodeSettings, terms: StartTerms, machine: Machine, carrier: Carrier) -> None:
        self._settings, self._terms, self._machine = settings, terms, machine
        self._now = terms.clock if settings.folder is None else settings.folder.clock
        self._closed, self._came = carrier.closed, carrier.came
        self._closing: asyncio.Task[None] | None = None
        self.repeats = carrier.closed is None
        self._me = settings.party
        self._there: dict[PartyId, float] = {}
        # To whom nothing needs to be announced any more: bound where this party is.
        self._settled: set[PartyId] = set()
        # Each attempt has its time, one after the other; the last one ends with the time-out of the start.
        self._turn = settings.waits.start / ATTEMPTS
        self._begun = self._accepted_at = self._now()

    @property
    def pause(self) -> float:
        return min(max(_REPEAT, _PART_OF_THE_WAIT * (self._terms.start_by - self._now())), _LONG_BEFORE)

    @property
    def past(self) -> bool:
        return self._now() > self._terms.start_by + _THERE

    @property
    def until(self) -> float:
        folder = self._settings.folder
        if folder is not None:
            return folder.timetable.first
        return max(self._terms.start_by, self._begun) + self._settings.waits.start + self._turn

    def start(self, tasks: Tasks) -> None:
        """The clock runs from the beginning on."""
        if self._closed is not None:
            self._closing = tasks.spawn(self._closed((int(Phase.AGREEMENT), 0)))

    def accepted(self) -> None:
        self._accepted_at = self._now()

    def heard(self, sender: PartyId, announcement: Announcement, progress: StartProgress) -> None:
        self._there[sender] = self._now()
        self._settled.discard(sender)
        proposal, own = announcement.proposal, progress.attempt
        if proposal is not None and announcement.bound and own is not None and own.proposal.same_as(proposal):
            self._settled.add(sender)

    def settled(self, peer: PartyId, progress: StartProgress) -> bool:
        return peer in self._settled and progress.bound

    def missing(self, progress: StartProgress, informed: Collection[PartyId]) -> set[PartyId]:
        return set(range(len(self._settings.roster))) - {self._me, *self._present()}

    def due(self, progress: StartProgress, informed: Collection[PartyId]) -> StartProgress:
        self._refuse_if_over(progress)
        now = self._now()
        if not progress.free:
            return progress
        # Who is bound in another attempt is in no later one.
        there = frozenset(self._present()) - progress.others_bound.keys() | {self._me}
        attempt = self._attempt_by_time(progress, now)
        may_start = self._terms.asked_to_start() and self._machine.rules.allows(there)
        if attempt is None and (may_start or len(there) == len(self._settings.roster)):
            # All are there, or enough of them: at once, and after an attempt that failed once it had its time.
            waited = progress.latest == 0 or now >= self._end_of_turn(progress)
            early = progress.latest < _EARLY or now >= self._terms.start_by
            attempt = progress.latest + 1 if waited and early else None
        if attempt is None or not progress.latest < attempt <= ATTEMPTS:
            return progress
        return self._machine.propose(progress, attempt, self._without_stragglers(progress, there))

    def _without_stragglers(self, progress: StartProgress, there: frozenset[PartyId]) -> frozenset[PartyId]:
        """Leave out, after two attempts, those who are there and did not get on in the last one, if enough others are."""
        last = progress.attempt
        if last is None or progress.latest < _FOR_ALL:
            return there
        done = last.openings if last.all_committed else last.commits if last.all_agreed else last.agreed
        others = there - (last.members - frozenset(done))
        return others if self._machine.rules.allows(others) else there

    def _attempt_by_time(self, progress: StartProgress, now: float) -> int | None:
        """The attempt whose turn it is; None before the time to start, and while an earlier one still has its time."""
        if now < self._terms.start_by:
            return None
        if progress.latest and now < self._end_of_turn(progress):
            return None
        return 1 + int((now - self._terms.start_by) / self._turn)

    def _end_of_turn(self, progress: StartProgress) -> float:
        """When the time of the last attempt is over."""
        if self._closed is None:
            return self._accepted_at + self._turn
        return self._terms.start_by + progress.latest * self._turn

    def _present(self) -> set[PartyId]:
        now = self._now()
        patience = _THERE + 3 * self.pause
        return {party for party, since in self._there.items() if now - since < patience} | set(self._came())

    def _refuse_if_over(self, progress: StartProgress) -> None:
        """Raises :class:`NotStarted` once this party will not be in."""
        if progress.never:
            raise NotStarted(
                "this party gave up waiting for the start, and takes no part in this study any more. Agree on a later start_by."
            )
        colluding, own = self._machine.rules.colluding, progress.attempt
        for (attempt, members), sayers in Counter(progress.others_bound.values()).items():
            inside = own is not None and own.proposal.same_as(Proposal(attempt, members, b""))
            # More than may lie say so, and this party is not one of them or went on to a later attempt.
            if sayers > colluding and not inside and (self._me not in members or progress.latest > attempt):
                raise NotStarted(
                    f"the study started without this party, with {self._names(members)}. None of its data left this machine. "
                    "Ask its coordinator for another study."
                )
        if self._is_over:
            there = self._names({self._me, *self._present()})
            raise NotStarted(
                f"the study did not start by its time with {self._terms.start_quorum} parties or more. There were "
                f"{there}. None of this party's data left this machine ("
                f"{by_this_clock(datetime.fromtimestamp(self._now(), UTC))}). Agree on a later start_by."
            )

    @property
    def _is_over(self) -> bool:
        if self._closed is not None:
            return self._closing is not None and self._closing.done()
        return self._now() >= self.until

    def _names(self, parties: Collection[PartyId]) -> str:
        return ", ".join(self._settings.names[party] for party in sorted(parties))
