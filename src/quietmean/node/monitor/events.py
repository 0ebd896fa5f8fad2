"""Events of a running node. They hold nothing secret; names are those of the roster, or addresses.

:func:`event_json` gives the JSON object that status files, ``join --events`` and the lines of a child process show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeAlias

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
