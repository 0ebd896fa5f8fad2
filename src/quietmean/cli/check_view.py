"""How ``quietmean check`` shows who is ready."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.cli.console import err, out, printable, whole_words
from quietmean.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group

    from quietmean.node import Roster
    from quietmean.node.preflight import CheckSession, PeerReadiness
    from quietmean.planning.plan import Plan
    from quietmean.statistics import Columns
    from quietmean.studies.party import Agreement, Policy

_SHORT = 12
# The digits of a contract that join and contribute accept as a yes.
_ACCEPTED = 32


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at here. ``text``: what was found, or what is wrong and what to do."""

    name: str
    passed: bool
    text: str


# What a clock that differs does, in words.
CLOCKS_MATTER_LITTLE = "nothing depends on it but logs"
CLOCKS_MATTER = "each member lists what came by its own clock"


def store_text(store: Path, there: bool) -> str:
    """What is found of a party's store. Raises :class:`InputError` where join would."""
    if there:
        return f"{store} belongs to this study and these data: join continues it"
    folder = store.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise InputError(f"store {store} cannot be made: choose a writable place with --store")
    return f"{store} will be new"


def plan_text(plan: Plan) -> str:
    """A plan by the beginning of its digest."""
    return f"plan {plan.digest[:_SHORT]}"


def policy_finding(rules: Policy, contract: Agreement) -> Finding:
    """That a contract is allowed, and what says yes to it."""
    return Finding("contract", True, f"allowed by {rules.place}; say yes with --accept {contract.digest[:_ACCEPTED]}")


def table_finding(data: str | Path, columns: Columns) -> Finding:
    """That the data were read."""
    from quietmean.studies.data import location_of

    return Finding("data", True, f"{location_of(data).name} is a table with {', '.join(columns.names)}")


def beside_this_clock(seconds: float, digits: int = 0) -> str:
    """How another clock differs that is so far ahead of this one."""
    return f"{abs(seconds):.{digits}f} s {'ahead of' if seconds > 0 else 'behind'} this one"


@contextmanager
def watching(roster: Roster) -> Iterator[Callable[[Sequence[PeerReadiness]], None]]:
    """Show a live table on a terminal; otherwise a line for each party whose readiness changes."""
    from rich.live import Live

    if err.is_terminal:
        with Live(console=err, auto_refresh=False, transient=True) as live:
            yield lambda standings: live.update(_standings(roster, standings), refresh=True)
        return
    reported: dict[int, str] = {}

    def report(standings: Sequence[PeerReadiness]) -> None:
        for progress in standings:
            text = _verdict(progress)
            if progress.agrees and not progress.ready:
                # Its own check has not reached this party yet; the end result reports it if that never happens.
                continue
            if reported.setdefault(progress.party, "no answer yet") != text:
                reported[progress.party] = text
                err.print(f"quietmean: {printable(roster.name(progress.party))}: {printable(text)}")

    yield report


def _verdict(progress: PeerReadiness) -> str:
    if progress.ready:
        return "ready"
    return "; ".join(progress.problems) or "it answers, but has not reached this party: is the way to this address open?"


def _state(progress: PeerReadiness) -> str:
    from quietmean.node.phase import Phase

    if progress.reply is None:
        return "unknown"
    readiness = progress.reply.readiness
    if not readiness.joined:
        return "checking"
    labels = {int(phase): phase.label for phase in Phase}
    return f"joined: {labels.get(readiness.phase, 'unknown')}" + (f" round {readiness.round}" if readiness.round else "")


def _standings(roster: Roster, standings: Sequence[PeerReadiness]) -> Group:
    """A table of the others, and under it a sentence for each that is not ready: a narrow terminal's columns have no room."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from quietmean.node.net import format_address

    table = Table(box=None, pad_edge=False)
    for title in ("party", "key", "version", "plan", "clock", "round trip", "is"):
        table.add_column(title, justify="right" if title in ("clock", "round trip") else "left", overflow="fold")
    reasons = []
    for progress in standings:
        entry = roster.entries[progress.party]
        cells = [entry.name, *_cells(progress)]
        style = "green" if progress.ready else "yellow"
        # Names and words come from others: they are text, not markup.
        ready = Text("ready" if progress.ready else "not ready", style=style)
        table.add_row(*(Text(printable(cell)) for cell in cells), ready)
        if not progress.ready:
            reasons.append(
                Text(f"{printable(entry.name)} at {format_address(entry.address)}: {printable(_verdict(progress))}", style=style)
            )
    return Group(whole_words(table), *reasons)


def _cells(progress: PeerReadiness) -> list[str]:
    reply = progress.reply
    if reply is None:
        return [progress.key, *[""] * 4]
    peer = reply.readiness
    clock = f"{reply.clock_offset:+.3f} ± {reply.clock_uncertainty:.3f} s"
    other = [name for name in ("roster", "study", "plan") if not progress.same(name)]
    plan = f"other {other[0]}" if other else "same"
    return [
        progress.key,
        peer.release,
        plan,
        clock,
        f"{1000 * reply.round_trip:.1f} ms",
    ]


def _clock_warnings(roster: Roster, standings: Sequence[PeerReadiness], matter: str) -> list[str]:
    return [
        f"the clock of {roster.name(progress.party)} is {beside_this_clock(progress.reply.clock_offset, 1)}: {matter}"
        for progress in standings
        if progress.reply is not None and progress.reply.clock_differs
    ]


def tell_failed(findings: Sequence[Finding]) -> None:
    """What is not in order here, before others are asked."""
    for finding in findings:
        if not finding.passed:
            err.print(f"quietmean: {finding.name}: {printable(finding.text)}")


def show_findings(findings: Sequence[Finding]) -> None:
    """What was found here, for a person."""
    for finding in findings:
        mark = "ok" if finding.passed else "NOT OK"
        out.print(f"{finding.name}: {mark}, {printable(finding.text)}", style=None if finding.passed else "red")
    out.print()


def findings_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [{"name": each.name, "passed": each.passed, "text": each.text} for each in findings]


def show(roster: Roster, findings: Sequence[Finding], session: CheckSession, clocks: str) -> None:
    """What was found, here and with the others, for a person. ``clocks``: what those that differ do."""
    standings = list(session.standings.values())
    show_findings(findings)
    if standings:
        out.print(_standings(roster, standings))
    for line in session.refusals.lines():
        out.print(f"refused {printable(line)}")
    for line in _clock_warnings(roster, standings, clocks):
        out.print(f"warning: {printable(line)}")
    missing = [roster.name(progress.party) for progress in standings if not progress.ready]
    here = "" if all(finding.passed for finding in findings) else "; this party is not ready"
    others = f"not ready: {', '.join(missing)}" if missing else "all others are ready"
    if not standings:
        others = "the others are not asked: their messages are files, which come when they come"
    out.print()
    out.print(f"{printable(others)}{here}")


def to_json(roster: Roster, findings: Sequence[Finding], session: CheckSession, clocks: str) -> dict[str, Any]:
    """The same for programs."""
    standings = list(session.standings.values())
    return {
        "here": findings_json(findings),
        "parties": [_standing_json(roster, progress) for progress in standings],
        "refusals": list(session.refusals.lines()),
        "warnings": _clock_warnings(roster, standings, clocks),
    }


def _standing_json(roster: Roster, progress: PeerReadiness) -> dict[str, Any]:
    from quietmean.node.net import format_address

    entry, reply = roster.entries[progress.party], progress.reply
    peer = None if reply is None else reply.readiness
    return {
        "name": entry.name,
        "address": format_address(entry.address),
        "ready": progress.ready,
        "reachable": reply is not None,
        "reaches_us": progress.asks_us,
        "key": progress.key,
        "state": _state(progress),
        "version": None if peer is None else peer.release,
        "same_version": progress.same("version"),
        "same_roster": progress.same("roster"),
        "same_study": progress.same("study"),
        "same_plan": progress.same("plan"),
        "clock_offset_seconds": None if reply is None else reply.clock_offset,
        "clock_uncertainty_seconds": None if reply is None else reply.clock_uncertainty,
        "round_trip_seconds": None if reply is None else reply.round_trip,
        "trouble": [] if progress.ready else [_verdict(progress)],
    }
