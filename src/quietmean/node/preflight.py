"""The check before a study: whether all parties are reachable, agree on study, plan and roster, and have valid data.

The check whether every party is ready, before a study starts. It uses the same pinned TLS as the study itself.

A party that runs a check listens at its address, answers the checks of the others, and sends one to each of them. A party that
has joined answers too, without any effect on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from quietmean.core.codec import digest
from quietmean.core.errors import PeerError
from quietmean.core.file_kinds import package_version
from quietmean.core.limits import require_wait
from quietmean.core.party import PartyId
from quietmean.core.readable import printable
from quietmean.node.mesh import Mesh
from quietmean.node.net import (
    NOT_A_PARTY,
    ONLY_CHECKS,
    VERSION,
    Address,
    Check,
    Connection,
    Credentials,
    DirectRoute,
    Endpoint,
    Identity,
    Limits,
    Readiness,
    Refusals,
    Refused,
    Roster,
    Traffic,
    difference,
    differing,
    listed,
    term_digests,
)
from quietmean.node.phase import Position
from quietmean.node.tasks import Supervisor, Tasks
from quietmean.node.tunnel import RelayError
from quietmean.planning import Plan

# Nothing of a study depends on clocks; logs and ledgers are easier to compare when they agree.
CLOCK_TOLERANCE = 5.0

Key: TypeAlias = Literal["proved", "other", "refused", "unknown"]


@dataclass(frozen=True)
class Agreed:
    """What all parties must have in common, as digests; ``fields``: of each term by its path."""

    roster: bytes
    study: bytes
    plan: bytes
    release: str
    fields: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, roster: Roster, plan: Plan) -> Agreed:
        study = {"context": plan.context, "target": plan.target.describe(), "protocol": plan.protocol.name}
        return cls(
            bytes.fromhex(roster.digest),
            bytes.fromhex(digest(study)),
            bytes.fromhex(plan.digest),
            package_version(),
            term_digests(terms(roster, plan)),
        )

    def readiness(self, position: Position | None = None) -> Readiness:
        """The answer to a check at this time. ``position``: of a party that has joined."""
        phase, round_ = position or (0, 0)
        return Readiness(
            VERSION,
            self.release,
            self.roster,
            self.study,
            self.plan,
            joined=position is not None,
            phase=phase,
            round=round_,
            time=time.time(),
            fields=dict(self.fields),
        )


def terms(roster: Roster, plan: Plan) -> dict[str, Any]:
    """What two parties of one study have in common, in plain data: roster, study, then what follows from them (``plan``)."""
    document = plan.to_json()
    target, protocol = document.pop("target"), document.pop("protocol")
    parties = [{"name": entry.name, "key": entry.public_key} for entry in roster.entries]
    sealed = {} if roster.seal is None else {"sealed": roster.seal.fields}
    return {"roster": parties, **document.pop("context"), **target, "protocol": protocol, **sealed, "plan": document}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. The peer's clock is ahead of ours by ``clock_offset``, plus or minus half the ``round_trip`` (seconds)."""

    readiness: Readiness
    round_trip: float
    clock_offset: float

    @property
    def clock_uncertainty(self) -> float:
        return self.round_trip / 2

    @property
    def clock_differs(self) -> bool:
        """Does the peer's clock differ by more than the tolerance, whatever the round trip hides?"""
        return abs(self.clock_offset) - self.clock_uncertainty > CLOCK_TOLERANCE


@dataclass
class PeerReadiness:
    """What is known of a peer. ``trouble``: in words, why it has not answered; ``asks_us``: it reached this party.

    ``since``: what failed after it had answered or reached this party.
    """

    party: PartyId
    agreed: Agreed
    key: Key = "unknown"
    trouble: str = "no answer yet"
    reply: Reply | None = None
    asks_us: bool = False
    since: str = ""

    def same(self, name: Literal["version", "roster", "study", "plan"]) -> bool | None:
        """Whether it has the same as this party; None while it has not answered."""
        if self.reply is None:
            return None
        mine = VERSION if name == "version" else getattr(self.agreed, name)
        return bool(getattr(self.reply.readiness, name) == mine)

    @property
    def problems(self) -> tuple[str, ...]:
        """What has to be corrected, most fundamental first; empty if nothing."""
        since = (f"since then {self.since}",) if self.since else ()
        if self.reply is None:
            return (self.trouble, *since)
        there = self.reply.readiness
        roster = self._named("roster.", "sealed.") or "compare names and keys, and their order"
        study = difference(self.agreed.fields, there.fields) or "compare columns, bounds, unit, budget and protocol"
        plan = self._named("plan.") or "compare its options"
        checks = {
            f"other version: {printable(there.release)} there, {self.agreed.release} here": self.same("version"),
            f"other roster: {printable(roster)}": self.same("roster"),
            f"other study: {printable(study)}": self.same("study"),
            f"other plan of the same study: {printable(plan)}, or share one file with --plan": self.same("plan")
            or not self.same("study"),
        }
        return (*(problem for problem, fine in checks.items() if not fine), *since)

    def _named(self, *places: str) -> str:
        """The fields of these parts that differ; of the first part in which any does."""
        theirs = {} if self.reply is None else self.reply.readiness.fields
        differences = (differing(self.agreed.fields, theirs, within) for within in places if theirs)
        return listed(next((paths for paths in differences if paths), []))

    @property
    def agrees(self) -> bool:
        """Did the peer answer, and has it the same study, plan, roster and version?"""
        return not self.problems

    @property
    def ready(self) -> bool:
        """Does the peer agree, and can it reach this party as well? A party that has joined sends no checks."""
        return self.agrees and (self.asks_us or (self.reply is not None and self.reply.readiness.joined))


_FIRST_PAUSE, _LAST_PAUSE = 0.25, 2.0
# Longest time of one attempt, in seconds; the first may take half of this even where the wait is shorter.
_ATTEMPT_SECONDS = 4.0
# No digest of a study equals this: nobody is admitted.
_NO_STUDY = "check"


class _NoNodeError(PeerError):
    """Something else than a party of the study answers at the address."""


class CheckSession:
    """One party's check. It answers the others if :meth:`listen` was called before, else it only asks."""

    def __init__(
        self,
        identity: Identity,
        roster: Roster,
        agreed: Agreed,
        report: Callable[[Sequence[PeerReadiness]], None] = lambda standings: None,
    ) -> None:
        self._party = roster.find(identity)
        self._roster = roster
        self._agreed = agreed
        self._answers = False
        self._report = report
        self._credentials = Credentials(identity, roster, _NO_STUDY)
        self._changed = asyncio.Event()
        self._supervisor = Supervisor()
        self._contacted = {party: asyncio.Event() for party in range(len(roster))}
        self.standings = {party: PeerReadiness(party, agreed) for party in range(len(roster)) if party != self._party}
        self.refusals = Refusals()
        self._mesh = Mesh(identity, self._endpoint(), None, agreed.readiness, self._asked)

    def listen(self, address: Address | None = None) -> None:
        """Listen, by default on this party's address in the roster; a party whose address is at a relay can be called there.

        Raises :class:`InputError` if that is not possible.
        """
        self._mesh.bind(address)
        self._answers = True

    def close(self) -> None:
        """Listen no more where :meth:`run` did not come to it; after that nothing is left to be done."""
        self._mesh.unbind()

    async def run(self, wait: float) -> None:
        """Returns when everybody is ready and reached, or after ``wait`` seconds. InputError for an impossible ``wait``."""
        require_wait("wait", wait, 0.0)
        started = asyncio.get_running_loop().time()
        asking = Tasks(self._supervisor.fail, self._changed.set)
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(self._mesh.close)
            closing.push_async_callback(asking.stop)
            if self._answers:
                # A study that has begun goes first.
                self._mesh.start("visit")
            for progress in self.standings.values():
                asking.spawn(self._ask_until_ready(progress, started + wait))
            await self._supervisor.run(self._until_all_are_ready(asking, started + wait))

    def _endpoint(self) -> Endpoint:
        return Endpoint(
            party=self._party,
            roster=self._roster,
            study=_NO_STUDY,
            credentials=self._credentials,
            limits=Limits.before_welcome(),
            refusal=self._refused,
            heard=lambda party, position: None,
            fields=self._agreed.fields,
            fail=self._supervisor.fail,
        )

    async def _until_all_are_ready(self, asking: Tasks, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        while not all(progress.ready or (not self._answers and progress.agrees) for progress in self.standings.values()):
            self._changed.clear()
            if not asking and loop.time() >= deadline:
                return
            # The tasks end by the deadline themselves; after it, only they are waited for.
            seconds = deadline - loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds if seconds > 0 else None):
                    await self._changed.wait()

    def _asked(self, party: PartyId) -> None:
        progress = self.standings.get(party)
        if progress is None:
            return
        if progress.reply is None or progress.since:
            # It runs now: ask it again at once.
            self._contacted[party].set()
        if not progress.asks_us:
            progress.asks_us = True
            self._notify()

    def _refused(self, peer: str, reason: str) -> None:
        # A party that has joined already dials until this one joins too: that is not a refusal.
        if reason != ONLY_CHECKS:
            self.refusals.note(peer, reason)

    def _notify(self) -> None:
        self._report(list(self.standings.values()))
        self._changed.set()

    async def _ask_until_ready(self, progress: PeerReadiness, deadline: float) -> None:
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE
        while not progress.agrees:
            await self._ask(progress, min(_ATTEMPT_SECONDS, max(deadline - loop.time(), _ATTEMPT_SECONDS / 2)))
            if progress.agrees or loop.time() + pause >= deadline:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._contacted[progress.party].wait()
            self._contacted[progress.party].clear()
            pause = min(2 * pause, _LAST_PAUSE)

    async def _ask(self, progress: PeerReadiness, seconds: float) -> None:
        before = (progress.key, progress.problems)
        try:
            async with asyncio.timeout(seconds):
                progress.reply = await self._exchange(progress.party)
            progress.key, progress.trouble, progress.since = "proved", "", ""
        except (OSError, EOFError, PeerError) as error:
            key, trouble = _diagnosis(error)
            if isinstance(error, TimeoutError) and not self._mesh.route(progress.party).direct:
                trouble = "it is not at its relay, or the relay does not answer"
            if key == "unknown" and progress.key != "unknown":
                # It ran, and has ended: its last answer says more than that it is not reachable now.
                progress.since = trouble
            else:
                progress.key, progress.trouble, progress.since, progress.reply = key, trouble, "", None
        if before != (progress.key, progress.problems):
            self._notify()

    async def _exchange(self, party: PartyId) -> Reply:
        connection = await self._connect(party)
        try:
            # In this order, so that half the round trip bounds the clock error also if the process is suspended in between.
            begun, sent_at = time.perf_counter(), time.time()
            await connection.send(Check(VERSION))
            frame, _ = await connection.receive(Limits.before_reply())
            round_trip = time.perf_counter() - begun
        finally:
            connection.abort()
        if isinstance(frame, Refused):
            raise PeerError(f"it refused: {printable(frame.reason)}")
        if not isinstance(frame, Readiness) or not math.isfinite(frame.time):
            raise PeerError("it sent something else than an answer to the question")
        return Reply(frame, round_trip, frame.time - (sent_at + round_trip / 2))

    async def _connect(self, party: PartyId) -> Connection:
        try:
            return Connection(await self._mesh.route(party).dial(self._credentials.client(party)), Traffic())
        except RelayError:
            raise
        except ssl.SSLCertVerificationError:
            await self._refuse_proxy(party)
            raise
        except (ssl.SSLError, ConnectionResetError):
            # With TLS 1.3 a refused key shows after the handshake only.
            raise _NoNodeError(NOT_A_PARTY) from None

    async def _refuse_proxy(self, party: PartyId) -> None:
        """Raises :class:`_NoNodeError` where the certificate at the address is of no party at all."""
        route, issuer = self._mesh.route(party), None
        if isinstance(route, DirectRoute):
            with contextlib.suppress(OSError, EOFError):
                issuer = await route.issuer()
        if issuer is not None:
            raise _NoNodeError(
                f"a proxy replaced the certificate, or a web server is at its address (issuer: {printable(issuer)[:80]}): have "
                "the address exempted, or meet at a relay"
            )


def _diagnosis(error: Exception) -> tuple[Key, str]:
    """What the error says of the peer's key, and a sentence for the user."""
    match error:
        case _NoNodeError():
            return "unknown", str(error)
        case PeerError():
            return "proved", str(error)
        case ConnectionRefusedError():
            return "unknown", "nobody listens at its address"
        case ssl.SSLCertVerificationError():
            return "other", "another key than the roster's answers at its address"
        case TimeoutError():
            return "unknown", "it does not answer: is the address right, and the way through all firewalls open?"
        case socket.gaierror():
            return "unknown", "its address is not known here. Mend the host name in the roster"
        case RelayError():
            return "unknown", str(error)
        case ssl.SSLError() | EOFError() | ConnectionResetError():
            return "refused", "it closed the connection: is this key in its roster?"
        case _:
            return "unknown", (error.strerror if isinstance(error, OSError) else None) or "it does not answer"


__all__ = [
    "Agreed",
    "CheckSession",
    "PeerReadiness",
    "Reply",
]
