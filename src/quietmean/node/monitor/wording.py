"""Events and views in words, for a terminal and for pages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from quietmean.node.monitor.monitor import NodeView
from quietmean.node.net import printable


def sentence(event: Mapping[str, Any]) -> str:
    """An event in words, from its JSON object."""
    names = ", ".join(event.get("waiting_for") or event.get("names") or [])
    end = until(event)
    place = f"{event['phase']}, round {event['round']}" if event.get("round") else event.get("phase")
    match event["event"]:
        case "round":
            return f"{event['phase']}: round {event['round']} of {event['of']}" + (f", with {names}" if names else "")
        case "late":
            return f"{place}: went on without {names}"
        case "waiting":
            return f"{place}: waiting for {names}{end}"
        case "refused":
            return f"refused {event['peer']}: {event['reason']}"
        case "ended":
            return f"{event['peer']}: {event['reason']}"
        case "stalled":
            return ". ".join(part for part in (event["reason"], event["room"], end and f"This party waits{end}") if part)
        case "over":
            return "this party's part is over: the result is from its store"
        case "agreement" if event.get("past") and names:
            return f"agreement: waiting for {names}{end}; the time to start has passed: they may have gone on without this party"
        case kind:
            return f"{kind}: waiting for {names}{end}" if names else str(kind)


def headline(view: NodeView) -> str:
    """Where a node is, for how long, and whom it waits for."""
    position = f"{view.phase}: round {view.round} of {view.of}" if view.of else view.phase
    seconds = seconds_between(view.since, view.updated)
    waiting = f", waiting for {', '.join(view.waiting_for)}{until({'until': view.until})}" if view.waiting_for else ""
    return printable(f"{view.party}, {position}, since {seconds:.0f} s{waiting}")


def until(event: Mapping[str, Any]) -> str:
    """When the wait of an event ends at the latest, such as " until 16:40:05"; with the day where that is not today's.

    By the clock of this machine. Empty for an event of no wait.
    """
    if not (end := event.get("until")):
        return ""
    here = datetime.fromisoformat(end).astimezone()
    today = here.date() == datetime.now(here.tzinfo).date()
    return f" until {here:%H:%M:%S}" if today else f" until {here:%Y-%m-%d %H:%M}"


def traffic_text(view: NodeView) -> str:
    """Messages, bytes and the pace of rounds."""
    pace = f"; a round took {sum(view.seconds) / len(view.seconds):.2f} s" if view.seconds else ""
    return (
        f"{view.messages_sent} messages out, {view.messages_received} in; "
        f"{view.bytes_sent / 1000:.1f} kB out, {view.bytes_received / 1000:.1f} kB in{pace}"
    )


def seconds_between(earlier: str, later: str) -> float:
    """Between two times in ISO 8601; never below 0."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
