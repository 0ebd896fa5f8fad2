"""A running node on the screen: a live table on a terminal, single lines otherwise, and a stream of events for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from quietmean.cli.console import bar_of, err, note, output_options, printable, show_log, step_of, tell_notes, tell_owner, warn
from quietmean.core.codec import to_plain
from quietmean.core.errors import QuietmeanError
from quietmean.core.output import Output, json_object
from quietmean.node.monitor import event_json, headline, seconds_between, sentence, traffic_text
from quietmean.statistics.coding import what_did_not_fit

if TYPE_CHECKING:
    from quietmean.node.monitor import Event, NodeView, PeerView
    from quietmean.statistics import Encoded

_LOGGER = "quietmean.node"
# Lines of the same kind are this many seconds apart where nobody looks at a terminal.
_BETWEEN_ROUNDS, _BETWEEN_WAITS = 1.0, 10.0
_FRAME_LINES = 6


class EventStream:
    """One JSON object a line, each with "time" (ISO 8601, UTC), "party" (whose node this is) and "event"."""

    def __init__(self, file: IO[str]) -> None:
        self._file: IO[str] | None = file
        self.party: str | None = None

    def write(self, event: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps(to_plain({"time": stamp, "party": self.party, **event}), allow_nan=False)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError:
            # The reader closed the pipe, or the disk is full: the study continues.
            self._file = None


class NodeDisplay:
    """Shows what a node reports. ``say`` is for what happens before it runs."""

    def __init__(self, live: Live | None, lines: bool, stream: EventStream | None) -> None:
        self._live = live
        self._lines = lines
        self.stream = stream
        self.did_not_fit: list[str] = []
        self.details = False
        self._last_line: dict[str, tuple[str, float]] = {}

    def say(self, text: str) -> None:
        if self._live is not None:
            self._live.update(Text(text), refresh=True)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While something may be asked at the terminal, nothing is drawn over it."""
        if self._live is None:
            yield
            return
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def tell_owner(self, encoded: Encoded, notes: Sequence[str] = ()) -> None:
        """What was done to values that did not fit; it is not in events, which others may read."""
        self.did_not_fit = what_did_not_fit([encoded])
        if self._live is not None or self._lines:
            tell_notes(notes)
            tell_owner([encoded])

    def warn(self, sentences: Sequence[str]) -> None:
        """Sentences that do not depend on the data."""
        if self._live is not None or self._lines:
            for text in sentences:
                warn(text)

    def report(self, event: Event) -> None:
        """An event of the node."""
        document = event_json(event)
        if self.stream is not None:
            self.stream.write(document)
        note(sentence(document))
        if self._lines:
            self._line(document)

    def observe(self, view: NodeView) -> None:
        """The node as it is now."""
        if self._live is not None and view.state == "running":
            self._live.update(screen(view, err.height - _FRAME_LINES), refresh=True)

    def result(self, event: Mapping[str, Any]) -> None:
        if self.stream is not None:
            self.stream.write({"event": "result", **event})

    def _line(self, event: Mapping[str, Any]) -> None:
        kind, now = event["event"], time.monotonic()
        text = sentence(event)
        topic, told_at = self._last_line.get(kind, ("", -1e9))
        # A round of another phase, or other names to wait for, are news at once.
        this = event["phase"] if kind == "round" else text
        pause = _BETWEEN_ROUNDS if kind == "round" else _BETWEEN_WAITS
        if kind == "refused" or (this == topic and now < told_at + pause):
            return
        self._last_line[kind] = this, now
        err.print(f"quietmean: {step_of(event.get('phase'))}{printable(text)}")

    def over(self, silent: Sequence[object]) -> None:
        """Say that nothing more is to be sent from here; not where the last answers of some did not come."""
        if (self._lines or self._live is not None) and not silent:
            err.print(f"quietmean: {step_of('closing')}all is sent and answered: safe to switch off")


@contextmanager
def display(events: bool | Path) -> Iterator[NodeDisplay]:
    """``events``: to this file, or (True) to standard error, which then carries nothing else but the final error message."""
    to_stderr = events is True
    if to_stderr:
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    else:
        show_log(_LOGGER)
    with _stream(events) as stream:
        visible = err.is_terminal and not to_stderr and not output_options.quiet
        live = Live(console=err, auto_refresh=False, transient=True) if visible else None
        shown = NodeDisplay(live, lines=live is None and not to_stderr and not output_options.quiet, stream=stream)
        try:
            if live is None:
                yield shown
            else:
                with live:
                    yield shown
        except KeyboardInterrupt:
            if stream is not None:
                stream.write({"event": "stopped"})
            raise
        except QuietmeanError as error:
            if stream is not None:
                stream.write({"event": "failed", "message": printable(str(error)), "exit_code": error.exit_code})
            raise


@contextmanager
def _stream(events: bool | Path) -> Iterator[EventStream | None]:
    if events is False:
        yield None
    elif events is True:
        yield EventStream(sys.stderr)
    else:
        # A study that is continued after a crash goes on in the same file.
        with Output(Path(events), "the events", "--events", kind=_are_events).append() as file:
            yield EventStream(file)


def _are_events(content: bytes) -> bool:
    return {"time", "party", "event"} <= set(json_object(content.partition(b"\n")[0]))


def screen(view: NodeView, height: int) -> RenderableType:
    """The lines of the live view, of at most ``height`` parties: those that are waited for first, then those that were late."""
    peers = sorted(view.peers, key=lambda peer: (peer.name not in view.waiting_for, -peer.late))
    shown = peers if len(peers) <= height else peers[: max(height - 1, 1)]
    table = Table(box=None, pad_edge=False)
    for title in ("party", "last heard", "is in", "sent", "received", "late"):
        table.add_column(title, justify="left" if title in ("party", "is in") else "right", no_wrap=True)
    for peer in shown:
        table.add_row(*_cells(peer, view))
    hidden = [Text(f"and {len(peers) - len(shown)} more")] if len(shown) < len(peers) else []
    position = f"{step_of(view.phase)}{headline(view)}{bar_of(view.round, view.of)}"
    return Group(Text(position), table, *hidden, Text(traffic_text(view)))


def _cells(peer: PeerView, view: NodeView) -> list[Text]:
    heard = "never" if peer.last_heard is None else f"{seconds_between(peer.last_heard, view.updated):.0f} s ago"
    stage = "" if peer.phase is None else f"{peer.phase} {peer.round or ''}".strip()
    style = "yellow" if peer.name in view.waiting_for else ""
    marks = ["yes" if peer.sent else "", "yes" if peer.received else "", str(peer.late or "")]
    return [Text(printable(cell), style=style) for cell in (peer.name, heard, stage, *marks)]
