"""What goes where: results to standard output, progress and errors to standard error."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.status import Status

from quietmean.core.assumptions import Key, listing
from quietmean.core.codec import to_plain
from quietmean.core.domain import in_words_of
from quietmean.core.output import Output
from quietmean.core.readable import SCREEN, nats_promised, nats_text, wrapped
from quietmean.core.readable import printable as without_controls

if TYPE_CHECKING:
    from rich.table import Table

    from quietmean.core.readable import Fact
    from quietmean.planning.automatic import Choice
    from quietmean.statistics import Encoded


@dataclass
class OutputOptions:
    """What is written to standard error: ``quiet``, errors only; ``log``, where all but what is private is written, too.

    ``json``: an error is a document on standard output as well. ``force``: files of the same kind may be replaced.
    """

    quiet: bool = False
    json: bool = False
    force: bool = False
    log: logging.Logger | None = None


output_options = OutputOptions()
# Names and sentences may be those of others: nothing that is printed is markup.
out = Console(soft_wrap=True, markup=False, highlight=False, emoji=False)
err = Console(stderr=True, soft_wrap=True, markup=False, highlight=False, emoji=False)


# Verdicts at the beginning of a line.
OK, NO = "OK  ", "NO  "
# A line with a command to be pasted, behind its label, is never broken.
_PASTED = re.compile(r"([A-Z][\w ]{8}|[\w ]+:) quietmean ")


def print_lines(lines: Iterable[str], style: str | None = None) -> None:
    """Print lines. What is longer than the screen goes on below, as far in as it begins, or behind its verdict."""
    for line in lines:
        text = without_controls(line)
        head = len(OK) if text.startswith((OK, NO)) else len(text) - len(text.lstrip("!- "))
        parts = [text] if _PASTED.match(text) else wrapped(text, SCREEN, " " * head)
        for part in parts or [""]:
            out.print(part, style=style)


def print_json(document: Any) -> None:
    """One JSON document on standard output; infinite numbers as "inf"."""
    sys.stdout.write(json.dumps(to_plain(document), indent=2, allow_nan=False) + "\n")


def at_prompt(read: Callable[[], str]) -> str:
    """What somebody answers. Ctrl-D, the end of the answers, is as Ctrl-C. Raises KeyboardInterrupt."""
    try:
        return read()
    except EOFError:
        raise KeyboardInterrupt from None


def printable(message: str) -> str:
    """The text on one line. Parts may come from a file or a peer, so it contains no control characters for the terminal."""
    return without_controls(" ".join(message.split()))


def whole_words(table: Table) -> Table:
    """The table, of which no word is broken over lines, however narrow the terminal: what has no room makes the line longer."""
    for column in table.columns:
        words = [word for cell in (column.header, *column.cells) for word in str(cell).split()]
        column.min_width = max(map(cell_len, words), default=0)
    return table


def warn(message: str) -> None:
    """Write one line on standard error, unless quiet, and in the log."""
    note(message)
    _say(message)


def note(message: str, level: int = logging.INFO) -> None:
    """Write one line in the log, if there is one."""
    if output_options.log is not None:
        output_options.log.log(level, "%s", printable(message))


def _say(message: str) -> None:
    """At a terminal no word is broken. A command to be pasted stays whole, and so does a line for a program that reads it."""
    text = printable(message)
    parted = err.is_terminal and "quietmean " not in text
    lines = wrapped(f"quietmean: {text}", SCREEN, " " * len("quietmean: ")) if parted else [f"quietmean: {text}"]
    if not output_options.quiet:
        for line in lines:
            err.print(line)


def tell_owner(parts: Sequence[Encoded]) -> None:
    """Say on standard error what was done to values that did not fit: no result, receipt or event of a node has these numbers."""
    from quietmean.statistics import what_did_not_fit

    for sentence in what_did_not_fit(parts):
        _say(sentence)


def tell_notes(notes: Sequence[str]) -> None:
    """Which cells were not understood, on standard error for the owner of the data: never in a result, receipt, event or log."""
    for each in notes:
        _say(f"{each} (for you only)")


def fail(message: str, code: int) -> None:
    """One line on standard error, with --json also a document on standard output, then the end."""
    if output_options.json:
        print_json({"error": printable(message), "exit": code})
        sys.stdout.flush()
    note(message, logging.ERROR)
    err.print(f"quietmean: {printable(message)}")
    raise SystemExit(code)


# Which of the four steps of a study a phase is: connecting, computing, exchanging, closing.
_STEPS = {"agreement": 1, "mixing": 2, "gate": 3, "dissemination": 3, "closing": 4}
_BAR = 10


def step_of(phase: object) -> str:
    """The step of a phase and how many there are, such as "[2/4] "; empty for what is not a phase of a study."""
    return f"[{_STEPS[phase]}/{max(_STEPS.values())}] " if isinstance(phase, str) and phase in _STEPS else ""


def bar_of(done: int | None, of: int | None) -> str:
    """A bar of how much is done, where the end is known."""
    if not of or done is None:
        return ""
    full = min(_BAR * done // of, _BAR)
    return f" [{'#' * full}{'.' * (_BAR - full)}]"


class Progress:
    """A live line on a terminal; nothing otherwise."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def say(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)


class _Lines(logging.Handler):
    """A log handler that writes one line on standard error per record, above the live line if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def show_log(name: str) -> None:
    """Show a logger's warnings on standard error."""
    logger = logging.getLogger(name)
    logger.addHandler(_Lines(logging.WARNING))
    logger.propagate = False


@contextmanager
def progress(text: str) -> Iterator[Progress]:
    if not err.is_terminal or output_options.quiet:
        yield Progress(None)
        return
    with err.status(text) as status:
        yield Progress(status)


def choice_document(choice: Choice) -> dict[str, Any]:
    """What a result says of its protocol; ``why`` only where nobody named it."""
    why = {} if choice.why is None else {"why": choice.why}
    return {"protocol": choice.plan.protocol.name, **why}


def output(path: Path, subject: str, option: str = "--out", **more: Any) -> Output:
    """Where ``subject``, such as "the plan", is written to; free, or of the same kind and the user says --force.

    Raises :class:`InputError` where it could not be written. ``more``: the fields of :class:`Output`.
    """
    output_file = Output(path, subject, option, force=output_options.force, **more)
    output_file.require_free()
    return output_file


def print_not_counted(document: Mapping[str, Any]) -> None:
    """Whose records are not in the result, by name."""
    if document["not_counted"]:
        unit = document.get("certificate", {}).get("unit", "")
        print_lines([f"{in_words_of(unit, 'without the records of')} {printable(', '.join(document['not_counted']))}"])
    if document.get("not_in_at_start"):
        print_lines([f"not in at the start: {printable(', '.join(document['not_in_at_start']))}"])


def print_choice(document: Mapping[str, Any]) -> None:
    """Which protocol was taken and why, unless it was named."""
    if "why" in document:
        print_lines([document["why"]])


def print_facts(facts: Iterable[Fact]) -> None:
    """Print facts on standard output, a line each."""
    for fact in facts:
        print_lines([fact.sentence])


def print_nats(document: Mapping[str, Any]) -> None:
    """What a study with a target in nats promised, and what its execution revealed."""
    nats, certificate = document["nats"], document["certificate"]
    coordinates, enforced_by = nats.get("coordinates"), document["enforced_by"]
    nothing = f"guaranteed before the start: no bound in nats; {enforced_by}"
    print_lines([nats_promised(nats["a_priori"], coordinates, enforced_by) if "a_priori" in nats else nothing])
    learnt = nats_text(float(nats["most"]), nats["revealed_variance"], nats["prior_sd"], coordinates, upper=True)
    adversary = certificate["adversary"]
    print_lines([f"realised (given who took part): {adversary} learnt {learnt}; the target was {nats['target']:g}"])
    print_lines([f"an average over values of one {certificate['unit']}, and no differential privacy: epsilon is infinite"])
    if float(nats["most"]) > nats["target"]:
        err.print(f"quietmean: this execution revealed more than the target of {nats['target']:g} nats", style="red")


def print_assumptions(assumptions: Sequence[Mapping[str, str]]) -> None:
    """All that the figures take for granted."""
    for line in listing(assumptions):
        print_lines([line])


def gate_sentence(gate: dict[str, Any]) -> str:
    """What the parties decided before the release."""
    return f"gate before the release: {'published' if gate['published'] else 'nothing published'}; {gate['reason']}"


def without_noise(document: Mapping[str, Any]) -> str | None:
    """What a result says of its privacy if it has none; None if it has some."""
    return next(
        (str(held["text"]) for held in document["certificate"]["assumptions"] if held["key"] == Key.NO_NOISE),
        None,
    )


def print_influence(certificate: Mapping[str, Any]) -> None:
    """How far one party can have moved the answers, and how they were checked, a line each."""
    if "checked_by" in certificate:
        from quietmean.studies.outcome.influence import checked_text

        print_lines([checked_text(certificate["checked_by"])])
    if "influence" in certificate:
        from quietmean.studies.outcome.influence import StudyInfluence

        print_facts([StudyInfluence.from_json(certificate["influence"]).fact])


def print_privacy(document: Mapping[str, Any], target: float | None) -> None:
    """What a study cost, against whom, in sentences; ``document``: its result as JSON; ``target``: the epsilon that it asked."""
    certificate = document["certificate"]
    if "nats" in document:
        print_nats(document)
        print_influence(certificate)
        print_assumptions(certificate["assumptions"])
        return
    for fact in certificate.get("facts", ()):
        print_lines([fact["sentence"]])
    if "gate" in document:
        print_lines([gate_sentence(document["gate"])])
    print_influence(certificate)
    bare = without_noise(document)
    if bare is not None:
        err.print(f"quietmean: {bare}", style="red")
    elif target is not None and float(document["epsilon"]) > target:
        err.print(f"quietmean: this execution cost more than the target epsilon {target:g}", style="red")
    print_assumptions(certificate["assumptions"])
