"""How ``quietmean check`` and ``quietmean site data`` show what was found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from quietmean.cli.console import err, out, output, output_options, print_json, print_lines, printable, whole_words
from quietmean.cli.ledger import balance_text
from quietmean.cli.screens import NEXT, show_first
from quietmean.core.errors import InputError
from quietmean.core.readable import SCREEN, count_of, epsilon_shown, percent_text, some_of
from quietmean.ledger.account import left_shown, over_gaussian, shared_budget_text
from quietmean.node.net import format_address
from quietmean.node.phase import Phase
from quietmean.studies.agreement.any_study import columns_in, load_any
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import is_signed_document
from quietmean.studies.data import Location, Preview, location_of
from quietmean.studies.outcome.mock import is_mock

if TYPE_CHECKING:
    from quietmean.ledger import Account
    from quietmean.node import Roster
    from quietmean.node.preflight import CheckSession, PeerReadiness
    from quietmean.planning.plan import Plan
    from quietmean.statistics import Columns
    from quietmean.studies.outcome.forecast import Forecast
    from quietmean.studies.party import Agreement, Payer, Policy
    from quietmean.studies.party.payment import StudyCost

_SHORT = 12
# Columns of the first screen, and of half of it.
_SCREEN, _HALF = SCREEN - 1, 34


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at here. ``text``: what was found, or what is wrong and what to do.

    ``short``: what the first screen says of it, once it passed; by default the text, and nothing for None. ``doubts``: beside.
    """

    name: str
    passed: bool
    text: str
    short: str | None = ""
    doubts: Sequence[str] = ()

    @classmethod
    def of(cls, name: str, look: Callable[[], str], short: str | None = "") -> Self:
        """What ``look`` finds, or the mistake that it raises as :class:`InputError`."""
        try:
            return cls(name, True, look(), short)
        except InputError as error:
            return cls(name, False, str(error))


# What a clock that differs does, in words.
CLOCKS_MATTER_LITTLE = "nothing depends on it but logs"
CLOCKS_MATTER = "each member lists what came by its own clock"


def store_text(store: Path, there: bool) -> str:
    """What is found of a party's store. Raises :class:`InputError` where join would."""
    if there:
        return f"{store} belongs to this study and these data. Join continues it."
    folder = store.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise InputError(f"store {store} cannot be made. Choose a writable place with --store.")
    return f"{store} will be new"


def plan_text(plan: Plan) -> str:
    """A plan by the beginning of its digest."""
    return f"plan {plan.digest[:_SHORT]}"


def policy_finding(rules: Policy, contract: Agreement) -> Finding:
    """The finding that a contract is allowed, which is not a yes to it."""
    text = f"{contract.digest[:_SHORT]}, allowed by {rules.place}"
    return Finding("contract", True, text, "terms allowed by this site's rules")


def table_finding(data: str | Path, columns: Columns, records: int) -> Finding:
    """The finding that the data were read: ``records`` rows, which only the first screen says."""
    text = f"{location_of(data).name} is a table with {', '.join(columns.names)}"
    found = f"{'columns' if columns.names[1:] else 'column'} {some_of(columns.names, 3)} found"
    return Finding("data", True, text, f"{count_of(records, 'record')}, {found}")


def ledger_finding(payer: Payer, cost: StudyCost, fits: str, check: Callable[[], Account]) -> Finding:
    """What the ledger says of a study, as it says it to join; on the first screen what is left, and what the study needs.

    ``fits``: how the sentence begins that ends with what is left. ``check``: the account, where it is there.
    """
    try:
        if (made := payer.new_account(cost)) is not None:
            text, account = made
        else:
            account = check()
            text = f"{fits}, {balance_text(account)}"
        entry = payer.asked(cost, account)
    except InputError as error:
        return Finding("ledger", False, str(error))
    share, more = account.use_of(entry)
    text += f"; the study takes {percent_text(share)} of the budget, and {more} more like it would fit"
    needed = epsilon_shown(entry.charged.epsilon(cost.plan.target.delta))
    after = f"{left_shown(account.with_entry(entry).remaining_epsilon)} of {account.budget.epsilon:g}"
    short = f"budget {payer.account!r}: this study alone costs {needed}; costs add in squares, so {after} is left"
    times = over_gaussian(cost.charge, cost.plan.target.delta, account.rule)
    return Finding("ledger", True, text, short, [] if times is None else [str(shared_budget_text(times))])


def expected_finding(forecast: Forecast, assumed: str = "") -> Finding:
    """How wide the intervals will be. ``assumed``: of how many records, where nobody knows."""
    if not (found := Finding.of("expected", lambda: "; ".join([*forecast.sentences(), *forecast.compared]))).passed:
        return found
    good = [line for line in forecast.lines() if not line.startswith("! ")]
    short = f"expected {some_of(good, 2)}{assumed}" if good else None
    return replace(found, short=short, doubts=[f"expected {doubt}" for doubt in (*forecast.lost, *forecast.better)])


def beside_this_clock(seconds: float, digits: int = 0) -> str:
    """How another clock differs that is so far ahead of this one."""
    return f"{abs(seconds):.{digits}f} s {'ahead of' if seconds > 0 else 'behind'} this one"


@contextmanager
def watching(roster: Roster) -> Iterator[Callable[[Sequence[PeerReadiness]], None]]:
    """Show a live table on a terminal; otherwise a line for each party whose readiness changes."""
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
    if progress.reply is None:
        return "unknown"
    readiness = progress.reply.readiness
    if not readiness.joined:
        return "checking"
    labels = {int(phase): phase.label for phase in Phase}
    return f"joined: {labels.get(readiness.phase, 'unknown')}" + (f" exchange {readiness.round}" if readiness.round else "")


def _standings(roster: Roster, standings: Sequence[PeerReadiness]) -> Group:
    """A table of the others, and under it a sentence for each that is not ready: a narrow terminal's columns have no room."""
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
    clock = f"{reply.clock_offset:+.3f} s, within {reply.clock_uncertainty:.3f} s"
    other = [name for name in ("roster", "study", "plan") if not progress.same(name)]
    plan = f"other {other[0]}" if other else "same"
    return [
        progress.key,
        peer.release,
        plan,
        clock,
        f"{1000 * reply.round_trip:.1f} ms",
    ]


def clock_warnings(roster: Roster, standings: Sequence[PeerReadiness], matter: str) -> list[str]:
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
        print_lines([f"{finding.name}: {mark}, {printable(finding.text)}"], style=None if finding.passed else "red")
    out.print()


def findings_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the check for programs."""
    return [{"name": each.name, "passed": each.passed, "text": each.text} for each in findings]


@dataclass(frozen=True)
class CheckScreen:
    """A check that has ended: ``title``, of which study and whose; ``next_step``: the command that takes part.

    ``peers``: what was found of the others, who are not asked where there are none.
    """

    title: str
    findings: Sequence[Finding]
    next_step: str
    peers: Sequence[tuple[str, str, PeerReadiness]] = ()
    warnings: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    def lines(self) -> Iterator[str]:
        """The first screen: who is ready, what was found here, the others, what to do."""
        ready = sum(peer.ready for _, _, peer in self.peers) + self.passed
        state = f"ready: {ready} of {len(self.peers) + 1}" if self.peers else "in order" if self.passed else "not in order"
        yield f"{self.title:<{max(_SCREEN - len(state), len(self.title) + 2)}}{state}"
        yield from self._found()
        names = max((len(name) for name, _, _ in self.peers), default=0)
        addresses = max((len(address) for _, address, _ in self.peers), default=0)
        for name, address, peer in sorted(self.peers, key=lambda each: each[2].ready, reverse=True):
            mark, text = ("ok", "ready") if peer.ready else ("--", _verdict(peer))
            yield f"  {mark}  {printable(name):<{names}}  {address:<{addresses}}  {printable(text)}"
        yield from (f"! {warning}" for warning in self.warnings)
        yield from self._what_next()

    def _found(self) -> Iterator[str]:
        """Short findings in two columns, long ones and what is not in order a line each."""
        passed = [finding.short or finding.text for finding in self.findings if finding.passed and finding.short is not None]
        short = [text for text in passed if len(text) <= _HALF]
        for left, right in zip_longest(short[::2], short[1::2], fillvalue=""):
            yield f"  ok  {left:<{_HALF}}  {'ok  ' if right else ''}{right}".rstrip()
        yield from (f"  ok  {printable(text)}" for text in passed if len(text) > _HALF)
        yield from (f"  !   {printable(doubt)}" for finding in self.findings for doubt in finding.doubts)
        yield from (f"  NO  {finding.name}: {printable(finding.text)}" for finding in self.findings if not finding.passed)

    def _what_next(self) -> Iterator[str]:
        if not self.passed:
            yield f"{'Next':10}correct what is marked NO, then check again"
            return
        missing = [name for name, _, peer in self.peers if not peer.ready]
        if missing:
            yield f"{'Next':10}ask {some_of(missing, 3)} to run quietmean check, then check again"
        yield f"{'Then' if missing else 'Next':10}{self.next_step}"


def show(roster: Roster, checked: CheckScreen, session: CheckSession, details: bool) -> None:
    """What was found, here and with the others, for a person."""

    def below() -> None:
        show_findings(checked.findings)
        if standings := list(session.standings.values()):
            out.print(_standings(roster, standings))
        else:
            print_lines(["the others are not asked: their messages are files, which come when they come"])

    show_first([*checked.lines(), *(f"refused {line}" for line in session.refusals.lines())], details, below)


def peers_of(roster: Roster, session: CheckSession) -> list[tuple[str, str, PeerReadiness]]:
    """The names and addresses of those who were asked, with what they answered."""
    entries = [(roster.entries[progress.party], progress) for progress in session.standings.values()]
    return [(entry.name, format_address(entry.address), progress) for entry, progress in entries]


def to_json(roster: Roster, findings: Sequence[Finding], session: CheckSession, warnings: Sequence[str]) -> dict[str, Any]:
    """Return the check for programs."""
    standings = list(session.standings.values())
    return {
        "here": findings_json(findings),
        "parties": [_standing_json(roster, progress) for progress in standings],
        "refusals": list(session.refusals.lines()),
        "warnings": warnings,
    }


def _standing_json(roster: Roster, progress: PeerReadiness) -> dict[str, Any]:
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


def show_before_yes(data: str | Path, columns: Columns) -> None:
    """What a study finds in the data, where a person sits before the screen: what goes to a file or a log has no cell in it."""
    if not (out.is_terminal and err.is_terminal) or output_options.quiet or output_options.json:
        return
    try:
        preview = Preview.of(data, columns)
    except InputError:
        # The command that reads the data afterwards reports it.
        return
    show_preview(preview, details=True)
    if preview.proposed:
        out.print(f"{proposal(preview)}. To see why: quietmean site data {quote(printable(Location.of(data).path.name))} STUDY")


def proposal(preview: Preview) -> str:
    """How the file may be read so that more cells are understood."""
    settings = ", ".join(f"{name} = {value}" for name, value in preview.proposed.items())
    would = f"{count_of(preview.gained, 'more cell')} would be understood" if preview.gained else "it may be written"
    return f"{would} with {settings}"


# So many first and last rows on the first screen, which is as wide as a terminal.
_FIRST, _LAST = 2, 1


def show_preview(preview: Preview, details: bool = False, *, made_up: bool = False) -> None:
    """Counts by column, what needs attention, and the first and last rows; those that have room, or with ``details`` all."""
    whose = "Made up from the study: no row is of a person." if made_up else "For you only: cells of your data follow."
    out.print(f"{printable(preview.place)}: {count_of(preview.records, 'record')}. {whose}")
    for sentence in preview.sentences:
        err.print(f"quietmean: {printable(sentence)} (for you only)")
    table = Table(box=None, pad_edge=False)
    for title in ("column", "holds", "missing", "outside", "not understood", "least", "most"):
        table.add_column(title, justify="left" if title in ("column", "holds") else "right")
    for column in preview.columns:
        counts = [f"{count:,}" for count in (column.missing, column.outside, column.strange)]
        table.add_row(printable(column.name), column.kind, *counts, *column.ends)
    out.print(whole_words(table))
    first, last = (preview.first, preview.last) if details else (preview.first[:_FIRST], preview.last[-_LAST:])
    cells = [["", *(column.name for column in preview.columns)], *first, *last]
    columns = [[printable(row[place]) for row in cells] for place in range(len(cells[0]))]
    widths = [max(map(cell_len, column)) + 2 for column in columns]
    room = len(columns) if details else max(sum(end <= SCREEN for end in accumulate(widths)), 2)
    for row in zip(*columns[:room], strict=True):
        padded = (f"{cell}{' ' * (width - cell_len(cell))}" for cell, width in zip(row, widths, strict=False))
        out.print("".join(padded).rstrip())
    hidden = [count_of(len(columns) - room, "column")] * (room < len(columns))
    if hidden or len(cells) - 1 < len(preview.first) + len(preview.last):
        out.print(f"{'More':10}{' and '.join([*hidden, 'rows'])}: --details")


def data_command(
    data: str | Path,
    study: Path,
    *,
    write_format: bool = False,
    details: bool = False,
    json: bool = False,
) -> None:
    """Look at a data file as a study reads it: for its owner only, for what is printed has cells of the file in it.

    Nothing is sent, charged or kept. For each column of the study: how many records, missing cells, values outside the bounds,
    and what is not understood, with the commonest spellings. Where another way to read the file would understand more, it is
    proposed; nothing but this command's --write-format, or a person, takes it up.

    Parameters
    ----------
    data
        This party's records, as for join.
    study
        The signed study, or a study file.
    write_format
        Write the proposed format to NAME.format.toml beside the data. All commands read it there.
    details
        Show three rows from either end, with all columns.
    json
        One JSON document on standard output.
    """
    terms = Sealed.load(study).terms if is_signed_document(study) else load_any(study)
    preview = Preview.of(data, columns_in(terms))
    location = Location.of(data)
    target, written = location.format_file, None
    if write_format and preview.proposed:
        if target is None:
            raise InputError(
                f"nothing is beside {location.name}. Write what is proposed to a file, and name it behind the address: #format=."
            )
        settings = {**location.settings, **preview.proposed}
        lines = "".join(f'{name} = "{value}"\n' for name, value in settings.items() if name != "format")
        output(target, "the format of the data", "--write-format").write(lines.encode())
        written = target
    if json:
        print_json({**preview.to_json(), "written": None if written is None else str(written)})
        return
    show_preview(preview, details, made_up=is_mock(terms, location.path, preview.records))
    if written is not None:
        out.print(f"written to {printable(str(written))}: every command reads the file so from now on")
    elif preview.proposed:
        where = "in a file that #format= names" if target is None else f"by --write-format, or in {target.name}"
        out.print(f"{proposal(preview)}: if that is how the data were written, say so {where}")
    signed = f"check {quote(str(study))} --key NAME.key --data {quote(str(data))}"
    print_lines([f"{NEXT}{signed if is_signed_document(study) else f'study invite {quote(str(study))}'}"])
