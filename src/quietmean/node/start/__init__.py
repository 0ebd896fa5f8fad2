"""The start of a study: who is in, and the public seed, in numbered attempts. Every study over any transport starts by it.

:mod:`.machine` and :mod:`.rules` are pure; :mod:`.gathering` has the clock, the store and the links.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from quietmean.core.errors import NotStarted, PeerError, QuietmeanError
from quietmean.core.limits import least_minimum
from quietmean.core.party import PartyId
from quietmean.core.readable import printable
from quietmean.node.monitor import AgreementWaits, Report, iso_time
from quietmean.node.net import ACCEPTED, REFUSED, AnswerFrame, Start
from quietmean.node.phase import Position
from quietmean.node.session import Carrier, NodeSettings, Opening, public_seed, seed_check
from quietmean.node.start.machine import Announcement, Attempt, Machine, Proposal, Rules, StartProgress, quorum_study
from quietmean.node.start.policy import StartPolicy, occasion_of
from quietmean.node.start.started import Pairing, RosterSignatures, Started, dump_progress, from_frame, load_progress, to_frames
from quietmean.node.storage import Store
from quietmean.node.tasks import Fail, Supervisor, Tasks
from quietmean.randomness import ExchangeKey, Seed

# An announcement changes: after so many seconds without an answer it is sent as it is then (s).
_PATIENCE = 5.0
_TICK = 0.2
_ENDED = "the start has ended with an error here"


def rules_of(settings: NodeSettings) -> Rules:
    """The rules by which these parties start. Raises :class:`InputError` where two results could be made."""
    target = settings.plan.target
    least = least_minimum(target.parties, target.colluding)
    return Rules(settings.study, settings.roster.conveners, target.colluding, settings.start_quorum, least)


class StartPhase:
    """Answers in :meth:`handle`, announces in the background from :meth:`start` on, and ends in :meth:`until_bound`.

    Each change of the progress is on disk before it is announced. ``fail`` is called with an error in the background, which by
    default ends :meth:`until_bound`; ``refused`` with whom this party refused and why. ``carrier`` carries the announcements.
    """

    def __init__(
        self,
        settings: NodeSettings,
        store: Store,
        carrier: Carrier,
        report: Report,
        fail: Fail | None = None,
        refused: Callable[[str, str], None] = lambda peer, reason: None,
    ) -> None:
        self._settings, self._store, self._links, self._report, self._refused = settings, store, carrier.links, report, refused
        self._rules = rules_of(settings)
        signatures = RosterSignatures(settings.identity, settings.roster)
        self._machine = Machine(settings.party, self._rules, signatures, self._fresh)
        self._standing = load_progress(store.progress())
        # That of noise and exchange key in an attempt that is not on disk yet.
        self._fresh_seed: bytes | None = None
        self._pairing = Pairing(settings, store)
        self._failure: QuietmeanError | None = None
        self._changed = asyncio.Event()
        self._now = carrier.now
        # When each other party gets word next (s by the loop's clock), and who is being asked; :meth:`_tell_soon` sets ``news``.
        self._due_at = dict.fromkeys(carrier.links, 0.0)
        self._asking: dict[PartyId, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._supervisor = Supervisor()
        self._fail = fail or self.fail
        self._tasks = Tasks(self._fail, self._changed.set)
        self._begun = False
        self._occasion: StartPolicy = occasion_of(settings, self._machine, carrier)
        # What is announced of the progress, and what each of the others has taken in, whether bound or not.
        self._announced: Announcement | None = None
        self._taken_in: dict[PartyId, Announcement] = {}
        # The last one that was sent, as those receive it for whom nothing else goes along.
        self._framed: tuple[Announcement | None, tuple[Start, ...]] = None, ()
        # Who refused it, and what others say of the public seed who are in a round.
        self._refusing: set[PartyId] = set()
        self._checks: dict[PartyId, bytes] = {}
        self._reported: AgreementWaits | None = None

    @property
    def progress(self) -> StartProgress:
        return self._standing

    @property
    def error(self) -> BaseException | None:
        """What has ended the start here, if it was not its own end."""
        return self._supervisor.error

    def fail(self, error: BaseException) -> None:
        """End it with an error of what goes on beside it."""
        self._supervisor.fail(error)

    def start(self) -> None:
        """Begin, and announce to all others where this party is, if that was not done; what is on disk is announced anew."""
        if self._begun:
            return
        self._begun = True
        self._move(self._machine.begin(self._standing))
        self._occasion.start(self._tasks)
        self._tasks.spawn(self._tell_all())

    def cancel(self) -> None:
        """Stop as :meth:`stop` does, without waiting for it."""
        self._tasks.cancel()

    async def stop(self) -> None:
        """Announce nothing to anybody any more."""
        await self._tasks.stop()

    async def until_bound(self) -> Attempt:
        """The attempt to which this party is bound.

        Raises :class:`NotStarted` if there is none.
        """
        attempt = await self._supervisor.run(self._until_bound())
        if self.error is not None:
            # At the same moment: nobody is answered here any more.
            raise self.error
        return attempt

    async def _until_bound(self) -> Attempt:
        while True:
            self._changed.clear()
            if self._failure is not None:
                raise self._failure
            attempt = self._standing.attempt
            if self._standing.bound and attempt is not None:
                return attempt
            self._move(self._due())
            self._report_missing()
            if self._standing.bound:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK if attempt is not None else self._occasion.pause):
                    await self._changed.wait()

    def _due(self) -> StartProgress:
        try:
            return self._occasion.due(self._standing, self._informed)
        except NotStarted as error:
            if error.for_good:
                self._save(self._machine.give_up(self._standing))
            raise

    def handle(self, sender: PartyId, frame: Start, position: Position) -> AnswerFrame:
        """The answer to where another party says that it is; ``position``: of this one.

        Any error but a refusal ends the start here, and the request stays unanswered: ConnectionAbortedError.
        """
        if self.error is not None:
            raise ConnectionAbortedError(_ENDED)
        try:
            self.heard(sender, frame)
        except PeerError as error:
            # The other side's user must know too why the study does not start.
            self._refused(self._settings.names[sender], str(error))
            return AnswerFrame(frame.number, REFUSED, *position, reason=str(error))
        except Exception as error:
            self._fail(error)
            raise ConnectionAbortedError(_ENDED) from error
        return AnswerFrame(frame.number, ACCEPTED, *position)

    def heard(self, sender: PartyId, frame: Start) -> None:
        """Take in where another party is. Raises :class:`PeerError` for what a correct one never announces."""
        announcement = from_frame(frame, self._rules.parties)
        self._pairing.check(sender, frame.encapsulated, commits=bool(frame.commit))
        if announcement.bound:
            self._machine.check(sender, announcement)
        self._occasion.heard(sender, announcement, self._standing)
        if self._standing.bound and not announcement.bound and sender in self._links:
            # It does not know yet, or was not there when it happened.
            self._taken_in.pop(sender, None)
            self._tell_soon(sender)
        progress = self._machine.receive(self._standing, sender, announcement)
        self._take_encapsulated(progress, sender, announcement, frame.encapsulated)
        self._move(progress)
        self._changed.set()

    def _take_encapsulated(self, progress: StartProgress, sender: PartyId, announcement: Announcement, ciphertext: bytes) -> None:
        """Take what belongs to the attempt in which this party is, before the progress in which the commitment counts is kept."""
        before, attempt, proposal = self._standing, progress.attempt, announcement.proposal
        if not ciphertext or before.bound or attempt is None or proposal is None or not attempt.proposal.same_as(proposal):
            return
        same = before.attempt is not None and before.attempt.proposal.same_as(proposal)
        committed = same and before.attempt is not None and sender in before.attempt.commits
        self._pairing.take(sender, ciphertext, committed=committed)

    def began(self, sender: PartyId, check: bytes) -> None:
        """Another party is in a round, with the public seed that has this ``check``."""
        self._checks[sender] = check
        self._changed.set()

    # --- its own steps -----------------------------------------------------------------------------------------------

    def _fresh(self) -> Opening:
        """What a new store was made with, in the first attempt; no later one has the same."""
        seed, nonce = (self._store.seed, self._store.nonce) if self._standing.attempt is None else (Seed.from_os(), _nonce())
        self._fresh_seed = seed.secret
        return Opening(nonce, self._settings.brought.weight, ExchangeKey(seed).public)

    def _move(self, progress: StartProgress) -> None:
        """Make a change durable, and bind this party once it may be."""
        self._save(progress)
        bound = self._machine.bind(self._standing)
        if bound.bound and not self._standing.bound and bound.attempt is not None and self._may_be_bound:
            try:
                # First the ledger, then the store: what the store says was done, the ledger knows.
                if self._settings.site.before_bound is not None:
                    self._settings.site.before_bound(quorum_study(self._settings.study, bound.attempt.proposal))
            except QuietmeanError as error:
                self._failure = error
                return
            self._save(bound)

    @property
    def _may_be_bound(self) -> bool:
        # Where a study has one attempt only, nobody begins before all others have what it revealed, or one of them has begun with
        # that: who lost its store has another nonce than before, which they refuse, and must not begin alone.
        attempt = self._standing.attempt
        if not self._rules.for_all or attempt is None or self._informed >= self._links.keys():
            return True
        inside = Started.of(self._settings, attempt, {}).settings
        return not self._refusing and seed_check(public_seed(inside.study, inside.openings)) in self._checks.values()

    @property
    def _informed(self) -> set[PartyId]:
        """Who has taken in all that this party announces."""
        announcement = _unbound(self._announcement)
        return {party for party, taken_in in self._taken_in.items() if taken_in == announcement}

    def _save(self, progress: StartProgress) -> None:
        before = self._standing
        if progress == before:
            return
        attempt = progress.attempt
        new = attempt is not None and progress.latest != before.latest
        earlier, same = self._announcement, _announced_alike(before, progress)
        if self._store.is_read_again or new:
            self._store.save_standing(dump_progress(self._settings.party, progress), self._fresh_seed if new else None)
        # From here on the seed is the store's, which forgets it with the result.
        self._standing, self._fresh_seed = progress, None
        self._announced = earlier if same else None
        if new:
            self._occasion.accepted()
            self._taken_in.clear()
        self._changed.set()
        if not same and self._announcement != earlier and not (self._rules.for_all and progress.bound):
            self._tell_soon(*self._links)

    def _report_missing(self) -> None:
        missing = tuple(self._settings.names[party] for party in sorted(self._occasion.missing(self._standing, self._informed)))
        event = AgreementWaits(missing, iso_time(self._occasion.until), self._occasion.past)
        if event != self._reported:
            self._reported = event
            self._report(event)

    # --- announcements ----------------------------------------------------------------------------------------------

    def _tell_soon(self, *peers: PartyId) -> None:
        self._due_at.update(dict.fromkeys(peers, 0.0))
        self._news.set()

    async def _tell_all(self) -> None:
        """Announce to each of the others where this party is, when that changes and as long as it did not take it in."""
        clock = asyncio.get_running_loop().time
        while True:
            self._news.clear()
            now = clock()
            for peer in [peer for peer, due in self._due_at.items() if due <= now]:
                self._tell(peer, now)
            wake = min(self._due_at.values(), default=math.inf)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wake if wake < math.inf else None):
                    await self._news.wait()

    def _tell(self, peer: PartyId, now: float) -> None:
        # Anew for each: what a peer answered at once may have changed it.
        announcement = self._announcement
        if (before := self._asking.pop(peer, None)) is not None:
            # It has changed, or was lost.
            before.cancel()
        # What changes from here on is due at once, which nothing that ends later puts off.
        self._due_at[peer] = math.inf if self._is_settled(peer, announcement) else now + _PATIENCE
        if self._due_at[peer] < math.inf and not self._tell_now(peer, announcement):
            self._asking[peer] = self._tasks.spawn(self._ask(peer, announcement))

    def _tell_now(self, peer: PartyId, announcement: Announcement) -> bool:
        """Whether it answered without a wait; what it did not take in, it is asked again."""
        for frame in self._frames(peer, announcement):
            answer = self._now(peer, frame, b"")
            if answer is None or answer.status != ACCEPTED:
                return False
        self._was_taken_in(peer, announcement)
        return True

    def _is_settled(self, peer: PartyId, announcement: Announcement) -> bool:
        """Whether nothing needs to be announced to it again."""
        if self._occasion.repeats:
            return self._occasion.settled(peer, self._standing)
        return self._taken_in.get(peer) == _unbound(announcement)

    @property
    def _announcement(self) -> Announcement:
        if self._announced is None:
            announcement, own = self._machine.announce(self._standing), self._settings.party
            if self._rules.for_all and announcement.bound:
                # Each announces what it revealed itself, and has done so before it is bound.
                announcement = replace(announcement, openings={own: announcement.openings[own]})
            self._announced = announcement
        return self._announced

    async def _ask(self, peer: PartyId, announcement: Announcement) -> None:
        link = self._links[peer]
        for frame in self._frames(peer, announcement):
            answer = await link.ask(frame)
            if answer.status != ACCEPTED:
                link.trouble = f"peer refused: {printable(answer.reason)}"
                self._refusing.add(peer)
                break
        else:
            self._was_taken_in(peer, announcement)
        self._asking.pop(peer, None)
        self._tell_again(peer)
        self._news.set()

    def _frames(self, peer: PartyId, announcement: Announcement) -> Iterator[Start]:
        ciphertext = self._pairing.ciphertext_for(peer) if announcement.commit else b""
        if ciphertext:
            yield from to_frames(announcement, self._rules.parties, ciphertext)
            return
        if self._framed[0] is not announcement:
            self._framed = announcement, tuple(to_frames(announcement, self._rules.parties))
        yield from self._framed[1]

    def _was_taken_in(self, peer: PartyId, announcement: Announcement) -> None:
        self._refusing.discard(peer)
        self._taken_in[peer] = _unbound(announcement)
        self._tell_again(peer)
        self._changed.set()

    def _tell_again(self, peer: PartyId) -> None:
        """What it has not taken in is repeated after a while, if there is nothing new for it."""
        if self._due_at[peer] > 0.0:
            settled = self._is_settled(peer, self._announcement)
            self._due_at[peer] = math.inf if settled else asyncio.get_running_loop().time() + self._occasion.pause


def _unbound(announcement: Announcement) -> Announcement:
    return replace(announcement, bound=False) if announcement.bound else announcement


def _announced_alike(one: StartProgress, other: StartProgress) -> bool:
    """Whether no announcement can tell these apart."""
    before, after = one.attempt, other.attempt
    if before is None or after is None or (one.bound, one.never) != (other.bound, other.never):
        return False
    phases = [(attempt.all_agreed, attempt.all_committed) for attempt in (before, after)]
    return before.proposal is after.proposal and phases[0] == phases[1]


def _nonce() -> bytes:
    return Seed.from_os().secret


__all__ = [
    "Announcement",
    "Attempt",
    "Machine",
    "Proposal",
    "Rules",
    "StartPhase",
    "StartProgress",
    "Started",
    "load_progress",
    "quorum_study",
]
