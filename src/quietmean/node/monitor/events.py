"""Events of a running node. They hold nothing secret; names are those of the roster, or addresses.

:func:`event_json` gives the JSON object that status files, ``join --events`` and the lines of a child process show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeAlias

from quietmean.core.errors import in_sentences
from quietmean.core.readable import listed
from quietmean.node.phase import Phase


@dataclass(frozen=True, slots=True)
class AgreementWaits:
    """The agreement on the public seed still needs these parties, and waits for them ``until`` then (ISO 8601).

    ``past``: whether the time to start is over, so that others may have started, or ended, without this party.
    """

    kind: ClassVar[str] = "agreement"
    phase: Phase = field(default=Phase.AGREEMENT, init=False)
    waiting_for: tuple[str, ...]
    until: str
    past: bool = False


@dataclass(frozen=True, slots=True)
class RoundBegun:
    """Round ``round``, counted from 1, of the ``of`` rounds of a phase, which ends ``until`` then (ISO 8601) at the latest."""

    kind: ClassVar[str] = "round"
    phase: Phase
    round: int
    of: int
    waiting_for: tuple[str, ...]
    until: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The round still waits for these parties, ``until`` then (ISO 8601) at the latest; reported at most once a second."""

    kind: ClassVar[str] = "waiting"
    phase: Phase
    round: int
    waiting_for: tuple[str, ...]
    until: str


@dataclass(frozen=True, slots=True)
class Late:
    """The round ended without these parties."""

    kind: ClassVar[str] = "late"
    phase: Phase
    round: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something was refused, by either side. ``peer``: a name or an address."""

    kind: ClassVar[str] = "refused"
    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class PeerEnded:
    """The process of another party said why it ends, before its part is over."""

    kind: ClassVar[str] = "ended"
    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """The disk or the memory of this machine refuses for now; it is tried again. ``reason``: what to do, too.

    ``room``: how much there is, and is missing at least; ``until``: when this party waits no longer, ISO 8601 in UTC.
    """

    kind: ClassVar[str] = "stalled"
    reason: str
    room: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class FinalizationBegun:
    """Final logs are exchanged with these parties, ``until`` then (ISO 8601) at the latest."""

    kind: ClassVar[str] = "closing"
    phase: Phase = field(default=Phase.FINALIZATION, init=False)
    waiting_for: tuple[str, ...]
    until: str


@dataclass(frozen=True, slots=True)
class AlreadyOver:
    """The result was in the store already: nothing is sent."""

    kind: ClassVar[str] = "over"
    phase: Phase = field(default=Phase.FINALIZATION, init=False)
    waiting_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A child process failed; ``exit_code`` is the one it ends with."""

    kind: ClassVar[str] = "error"
    message: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Done:
    """A child process has written its result."""

    kind: ClassVar[str] = "done"


Event: TypeAlias = (
    AgreementWaits | RoundBegun | Waiting | Late | Refusal | PeerEnded | Stalled | FinalizationBegun | AlreadyOver | Failed | Done
)
Report: TypeAlias = Callable[[Event], None]


def event_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object: its kind under "event", then its fields; phases by their labels."""
    return {"event": event.kind, **event_fields(event)}


def event_fields(event: Event) -> dict[str, Any]:
    """The fields of an event as JSON values, without the kind."""
    return {each.name: _plain(getattr(event, each.name)) for each in fields(event)}


def _plain(value: Any) -> Any:
    if isinstance(value, Phase):
        return value.label
    return list(value) if isinstance(value, tuple) else value


def sentence(event: Mapping[str, Any]) -> str:
    """An event in words, from its JSON object."""
    place, wait = place_of(event), wait_of(event)
    match event["event"]:
        case "round":
            return place + (f", with {listed(event['waiting_for'])}" if event["waiting_for"] else "")
        case "late":
            return f"{place}: went on without {listed(event['names'])}"
        case "waiting":
            return f"{place}{wait}"
        case "refused":
            return f"refused {event['peer']}: {event['reason']}"
        case "ended":
            return f"{event['peer']}: {event['reason']}"
        case "stalled":
            end = until(event)
            return in_sentences(event["reason"], event["room"], end and f"This party waits{end}")
        case "over":
            return "this party's part is over: the result is from its store"
        case "agreement" if event.get("past") and wait:
            return f"{place}{wait}; the time to start has passed: they may have gone on without this party"
        case kind:
            return f"{kind}{wait}"


def place_of(event: Mapping[str, Any]) -> str:
    """Where the part of an event is: "mixing: exchange 2 of 5", "mixing, exchange 2", or the phase alone."""
    phase, number, of = event.get("phase"), event.get("round"), event.get("of")
    return f"{phase}: exchange {number} of {of}" if of else f"{phase}, exchange {number}" if number else str(phase)


def wait_of(event: Mapping[str, Any], whose: str = "") -> str:
    """For whom an event waits, and until when: ", waiting for bob until 16:40:05"; nothing where for nobody.

    ``whose``: who waits, where it is not the party that reads it.
    """
    waits = f"{whose} waits for" if whose else "waiting for"
    return f", {waits} {listed(event['waiting_for'])}{until(event)}" if event.get("waiting_for") else ""


def until(event: Mapping[str, Any]) -> str:
    """When the wait of an event ends at the latest, such as " until 16:40:05"; with the day where that is not today's.

    By the clock of this machine. Empty for an event of no wait.
    """
    if not (end := event.get("until")):
        return ""
    here = datetime.fromisoformat(end).astimezone()
    today = here.date() == datetime.now(here.tzinfo).date()
    return f" until {here:%H:%M:%S}" if today else f" until {here:%Y-%m-%d %H:%M}"


def now() -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def iso_time(seconds: float, timespec: str = "seconds") -> str:
    """ISO 8601 in UTC, to the second or another ``timespec``, of a time in seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec)
