"""The state of a running node, for a display and for the status file, and its events in words. It holds nothing secret.

Other processes read the status file, since the store is locked by the node's; it is replaced atomically, for its owner alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from quietmean.core.codec import decode_json
from quietmean.core.errors import InputError, QuietmeanError, reason_of
from quietmean.core.output import Output, json_object
from quietmean.core.party import PartyId
from quietmean.core.portability import replace_whole
from quietmean.core.readable import printable
from quietmean.node.monitor.events import (
    AlreadyOver,
    Event,
    FinalizationBegun,
    Late,
    Refusal,
    Report,
    RoundBegun,
    event_fields,
    event_json,
    iso_time,
    now,
    place_of,
    wait_of,
)
from quietmean.node.net import ACCEPTED, AnswerFrame, AnyRequest, Heartbeat, Traffic, Transfer
from quietmean.node.phase import Phase, Position

FORMAT = "quietmean-status-1"


def status_path(store: Path) -> Path:
    """The path of the status file that belongs to a store."""
    return store.with_name(store.name + ".status.json")


def status_at(store: Path) -> Output:
    """Where the status beside a store goes: in place of an earlier one, and of nothing else."""
    return Output(status_path(store), "the status", "--store", own=_is_status)


def _is_status(content: bytes) -> bool:
    return json_object(content).get("format") == FORMAT


def write_status(path: Path, status: Mapping[str, Any]) -> None:
    """Put the status of this process in place of the last one. Raises OSError."""
    document = {"format": FORMAT, **process_identity(os.getpid()), **status}
    replace_whole(path, json.dumps(document).encode())


def read_status(path: Path) -> dict[str, Any]:
    """A status file, with "alive" as it is now: true, false, or None where this cannot be determined.

    Raises :class:`InputError` if the file is missing, cannot be read, or is not a status file of this version.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"status file {path} does not exist, as no node has run with this store. Start quietmean join with it."
        ) from None
    except OSError as error:
        raise _unreadable(path, reason_of(error)) from None
    document = decode_json(raw, object, partial(_unreadable, path))
    if not isinstance(document, dict) or document.get("format") != FORMAT or type(document.get("pid")) is not int:
        raise InputError(f"file {path} is not a status of this version ({FORMAT}). Look with the version that runs the node.")
    document["alive"] = _alive(document)
    return document


def _unreadable(path: Path, reason: str) -> InputError:
    return InputError(f"status file {path} cannot be read ({reason}). Give one that quietmean join wrote.")


def _alive(document: dict[str, Any]) -> bool | None:
    here = process_identity(document["pid"])
    if document.get("host") != here["host"]:
        return None
    try:
        os.kill(document["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    except OverflowError:
        return False
    if here["process"] is None or document.get("process") is None:
        return None
    return bool(here["process"] == document["process"])


def process_identity(pid: int) -> dict[str, Any]:
    """What distinguishes a process from a later one with the same number: its start time and the boot of the machine.

    ``process`` is None where the system does not provide it (it is in /proc on Linux).
    """
    host = platform.node()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The second field is the name, in brackets, and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return {"host": host, "pid": pid, "process": None}
    zombie = fields[0] in ("Z", "X")
    return {"host": host, "pid": pid, "process": "ended" if zombie else f"{boot}:{fields[19]}"}


_logger = logging.getLogger("quietmean.node")

# Shortest and longest time between two views, in seconds.
_SHORTEST, _LONGEST = 0.25, 1.0
_KEPT = 20

State: TypeAlias = Literal["running", "finished", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class PeerView:
    """What a node knows of another party.

    ``last_heard`` (ISO 8601), ``phase`` and ``round``: from its last message.

    ``sent``, ``received``: whether they were in this party's current round. ``late``: in how many rounds it was late.
    """

    name: str
    last_heard: str | None
    phase: str | None
    round: int | None
    sent: bool
    received: bool
    late: int


@dataclass(frozen=True, slots=True)
class NodeView:
    """A snapshot of a node's process, which may not be the first process of its study.

    Times are ISO 8601 in UTC; ``until``: when the wait for ``waiting_for`` ends at the latest; ``seconds`` are the
    latest rounds' durations; bytes are those of all frames, without TLS and TCP.
    """

    party: str
    state: State
    reason: str
    phase: str
    round: int
    of: int
    started: str
    since: str
    updated: str
    waiting_for: tuple[str, ...]
    until: str
    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    seconds: tuple[float, ...]
    late: tuple[dict[str, Any], ...]
    refusals: int
    refused: tuple[str, ...]
    last_event: dict[str, Any] | None
    peers: tuple[PeerView, ...]


@dataclass(slots=True)
class _Peer:
    # When a message of it came last, in seconds since 1970.
    heard: float | None = None
    position: Position | None = None
    sent: Position | None = None
    received: Position | None = None
    late: int = 0


@dataclass
class _Progress:
    """Where the party is: ``position`` in a phase of ``of`` rounds, ``since`` (ISO 8601) and ``begun`` (monotonic)."""

    begun: float
    since: str
    position: Position = (0, 0)
    of: int = 0
    waiting_for: tuple[str, ...] = ()
    until: str = ""
    seconds: list[float] = field(default_factory=list)

    def enter(self, position: Position, of: int, begun: float) -> None:
        """Begin a round; the duration of the one before, if it was one, is kept."""
        if self.position[1]:
            self.seconds = [*self.seconds, round(begun - self.begun, 3)][-_KEPT:]
        self.begun, self.since = begun, now()
        self.position, self.of = position, of


@dataclass
class _History:
    """What was exchanged, and what went wrong: counts, and the latest cases of it."""

    sent: int = 0
    received: int = 0
    late: list[dict[str, Any]] = field(default_factory=list)
    refusals: int = 0
    refused: list[str] = field(default_factory=list)
    last_event: dict[str, Any] | None = None


@dataclass
class Monitor:
    """Passes every event of a node on to ``report``, and a view of its state to ``observe`` and to the ``status`` file.

    Views are published a few times a second at most, where it is used as a context manager: entered once the store is open, left
    when the party is done.
    """

    party: PartyId
    names: Sequence[str]
    identity: dict[str, Any]
    traffic: Traffic
    report: Report
    observe: Callable[[NodeView], None] | None = None
    status: Path | None = None
    # What there is to say of a result where there is one.
    remark: str = ""
    _peers: dict[PartyId, _Peer] = field(default_factory=dict)
    _history: _History = field(default_factory=_History)
    _state: State = "running"
    _reason: str = ""
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._peers = {party: _Peer() for party in range(len(self.names)) if party != self.party}
        self._begin()

    def _begin(self) -> None:
        self._started = now()
        self._progress = _Progress(time.monotonic(), self._started)

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._begin()
        self._published = -_LONGEST
        self._publish()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if error is None:
            self._state, self._reason = "finished", self.remark
        elif isinstance(error, QuietmeanError):
            self._state, self._reason = "failed", str(error)
        elif isinstance(error, Exception):
            # Only the package's own errors are known to hold nothing private.
            self._state, self._reason = "failed", f"an unexpected {type(error).__name__}"
        else:
            self._state, self._reason = "stopped", "interrupted; the same command continues the study"
        self._progress.waiting_for, self._progress.until = (), ""
        self._show()

    # --- input ------------------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Take in an event of the session."""
        history, progress = self._history, self._progress
        history.last_event = {"time": now(), **event_json(event)}
        match event:
            case RoundBegun():
                progress.enter((int(event.phase), event.round), event.of, time.monotonic())
            case FinalizationBegun() | AlreadyOver():
                progress.enter((int(event.phase), 0), 0, time.monotonic())
            case Late():
                history.late = [*history.late, event_fields(event)][-_KEPT:]
                for party, peer in self._peers.items():
                    peer.late += self.names[party] in event.names
            case Refusal():
                history.refusals += 1
                history.refused = [*history.refused, f"{event.peer}: {event.reason}"][-_KEPT:]
        progress.waiting_for = getattr(event, "waiting_for", progress.waiting_for)
        progress.until = getattr(event, "until", progress.until)
        self._changed()
        self.report(event)

    def heard(self, party: PartyId, position: Position) -> None:
        """A message of a party arrived, with its position."""
        if not self._is_watched:
            return
        peer = self._peers[party]
        peer.heard, peer.position = time.time(), max(position, peer.position or position)
        self._changed()

    def arrived(self, party: PartyId, request: AnyRequest, answer: AnswerFrame) -> None:
        """A request of a party was answered."""
        if not self._is_watched:
            return
        peer = self._peers[party]
        position = peer.position or (0, 0)
        self.heard(party, (request.phase, request.round) if isinstance(request, Transfer | Heartbeat) else position)
        if isinstance(request, Transfer) and answer.status == ACCEPTED and peer.received != (request.phase, request.round):
            peer.received = request.phase, request.round
            self._history.received += 1

    def acknowledged(self, party: PartyId, request: AnyRequest, answer: AnswerFrame) -> None:
        """A party answered a request."""
        if self._is_watched and isinstance(request, Transfer) and answer.status == ACCEPTED:
            self._peers[party].sent = request.phase, request.round
            self._history.sent += 1

    # --- output ------------------------------------------------------------------------------------------------------

    def view(self) -> NodeView:
        """The state as it is now."""
        progress, history = self._progress, self._history
        return NodeView(
            party=self.names[self.party],
            state=self._state,
            reason=self._reason,
            phase=Phase(progress.position[0]).label,
            round=progress.position[1],
            of=progress.of,
            started=self._started,
            since=progress.since,
            updated=now(),
            waiting_for=progress.waiting_for,
            until=progress.until,
            messages_sent=history.sent,
            messages_received=history.received,
            bytes_sent=self.traffic.sent,
            bytes_received=self.traffic.received,
            seconds=tuple(progress.seconds),
            late=tuple(history.late),
            refusals=history.refusals,
            refused=tuple(history.refused),
            last_event=history.last_event,
            peers=tuple(self._peer_view(party, peer) for party, peer in self._peers.items()),
        )

    def _peer_view(self, party: PartyId, peer: _Peer) -> PeerView:
        phase, round_ = (None, None) if peer.position is None else (_label(peer.position[0]), peer.position[1])
        here = self._progress.position
        heard = None if peer.heard is None else iso_time(peer.heard, "milliseconds")
        return PeerView(self.names[party], heard, phase, round_, peer.sent == here, peer.received == here, peer.late)

    @property
    def _is_watched(self) -> bool:
        return self.observe is not None or self.status is not None

    def _changed(self) -> None:
        if not self._is_watched:
            return
        due = max(self._published + _SHORTEST, self._loop.time())
        if self._timer is None or self._timer.when() > due:
            self._schedule(due)

    def _schedule(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._publish)

    def _publish(self) -> None:
        self._published = self._loop.time()
        if self._is_watched:
            self._schedule(self._published + _LONGEST)
            self._show()

    def _show(self) -> None:
        if not self._is_watched:
            return
        view = self.view()
        if self.observe is not None:
            self.observe(view)
        if self.status is not None:
            try:
                write_status(self.status, self.identity | asdict(view))
            except OSError as error:
                # A study must not fail because its status cannot be written.
                _logger.warning("status file %s cannot be written (%s)", self.status, error.strerror)
                self.status = None


def _label(phase: int) -> str:
    return Phase(phase).label if phase in Phase._value2member_map_ else "unknown"


def headline(view: NodeView) -> str:
    """Where a node is, for how long, and whom it waits for."""
    where = {"phase": view.phase, "round": view.round if view.of else 0, "of": view.of}
    wait = {"waiting_for": view.waiting_for, "until": view.until}
    seconds = seconds_between(view.since, view.updated)
    return printable(f"{view.party}, {place_of(where)}, since {seconds:.0f} s{wait_of(wait)}")


def traffic_text(view: NodeView) -> str:
    """Messages, bytes and the pace of rounds."""
    pace = f"; a round took {sum(view.seconds) / len(view.seconds):.2f} s" if view.seconds else ""
    return (
        f"{view.messages_sent} messages out, {view.messages_received} in; "
        f"{view.bytes_sent / 1000:.1f} kB out, {view.bytes_received / 1000:.1f} kB in{pace}"
    )


def seconds_between(earlier: str, later: str) -> float:
    """The seconds between two times in ISO 8601; never below 0."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
