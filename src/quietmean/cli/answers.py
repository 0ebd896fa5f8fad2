"""What a study found, on standard output and in pages: every term with its error and interval, tests, and what is flagged."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from quietmean.cli.console import (
    err,
    note,
    out,
    output_options,
    print_choice,
    print_json,
    print_lines,
    print_not_counted,
    print_privacy,
    printable,
    warn,
)
from quietmean.cli.ledger import show_balance
from quietmean.cli.screens import NEXT, with_remark
from quietmean.core.domain import counted_text
from quietmean.core.errors import ProtocolFailure, only_shown
from quietmean.core.extensions import can_report, no_report_sentence
from quietmean.core.file_kinds import SESSION_RECEIPT, FileKind, read_json, study_and_party
from quietmean.core.output import Output
from quietmean.core.readable import count_of, indented
from quietmean.core.readable import printable as readable_line
from quietmean.statistics.kinds.synthetic_table import SyntheticTable
from quietmean.statistics.printed import lines_of_terms, notes_of, sentences_about
from quietmean.statistics.questions import as_name
from quietmean.statistics.tidy import about_n
from quietmean.studies.agreement.first_look import ProposedBounds
from quietmean.studies.outcome.first_screen import first_screen, screen_of_answers

if TYPE_CHECKING:
    from quietmean.ledger import Account
    from quietmean.studies.outcome.outcome import StudyRun


def print_answers(document: Mapping[str, Any]) -> None:
    """A table of all terms, and what is to be said about them; ``document``: a result as JSON."""
    documents, certificate = document["statistics"], document["certificate"]
    for line in lines_of_terms(documents):
        out.print(line)
    counted = counted_text(certificate["unit"], certificate.get("rows"))
    print_lines([about_n(counted)])
    for sentence in sentences_about(documents, counted):
        print_lines([sentence])


@dataclass(frozen=True)
class ResultScreen:
    """A result on the terminal: its first screen, and with ``details`` all the rest below it.

    ``document``: the result as JSON, with what is known here alone. ``here``: on values of this machine that did not fit.
    ``effort``: who took part, and what the exchange took. ``command``: what shows it again.
    """

    receipt: Mapping[str, Any]
    document: Mapping[str, Any]
    command: str
    details: bool = False
    here: Sequence[str] = ()
    effort: str = ""

    def show(self) -> None:
        """The answer, and what it cost."""
        for line in first_screen(self.receipt, self.here, self.document.get("statistics", ())):
            out.print(readable_line(line))
        if self.details and "certificate" in self.document:
            out.print()
            self._show_details()
            out.print()

    def _show_details(self) -> None:
        document, target = self.document, self.receipt.get("certify", {}).get("epsilon")
        print_answers(document)
        print_choice(document)
        print_privacy(document, target)
        if "not_counted" in document:
            print_not_counted(document)
        if self.effort:
            print_lines([self.effort])
        for text in document.get("notes", ()):
            print_lines([f"note: {printable(text)}"])

    def show_more(self) -> None:
        """Where all the rest is, and how much; nothing where it is shown."""
        if self.details:
            return
        result = self.receipt.get("result", {})
        assumptions = len(result.get("certificate", {}).get("assumptions", ()))
        notes = sum(len(notes_of(document["flagged"])) for document in result.get("statistics", ()))
        about = [count_of(assumptions, "assumption")] + [f"{count_of(notes, 'note')} on the answers"] * (notes > 0)
        for line in with_remark(f"{'More':10}{self.command} --details", ", ".join(about)):
            out.print(line)


def show_receipt(path: Path, receipt: Mapping[str, Any], *, details: bool, json: bool) -> None:
    """The result of a receipt; ends with exit code 3 where it holds none."""
    command = f"quietmean result {quote(str(path))}"
    if receipt.get("format") == SESSION_RECEIPT:
        from quietmean.sessions.receipt import certified, has_failed

        if json:
            print_json(certified(receipt))
        else:
            _print_session(receipt, details=details)
        if has_failed(receipt):
            raise SystemExit(ProtocolFailure.exit_code)
        return
    result = receipt.get("result", {})
    if json:
        rest = {name: receipt[name] for name in ("no_result", "gate") if name in receipt and not result}
        print_json({**result, **rest, "receipt": str(path)})
    else:
        notes = receipt.get("origin", {}).get("notes", ())
        screen = ResultScreen(receipt, {**result, "notes": notes} if result else {}, command, details)
        screen.show()
        if result:
            screen.show_more()
    if not result:
        raise SystemExit(ProtocolFailure.exit_code)


def show_session(document: dict[str, Any], account: Account | None, *, details: bool, json: bool) -> None:
    """Print what came of a session for people, or as one JSON document; ends with exit code 3 where all rounds failed."""
    from quietmean.sessions.receipt import has_failed

    receipt = read_json(Path(document["receipt"]), FileKind.SESSION_RECEIPT)
    if json:
        print_json(document)
    else:
        _print_session(receipt, document.get("model"), details=details)
        saved = near(Path(document["receipt"]))
        print_lines(indented("Saved", saved))
        if account is not None:
            show_balance(account, details=details)
        out.print(f"{NEXT}{next_step(document, saved)}")
    if has_failed(receipt):
        raise SystemExit(ProtocolFailure.exit_code)


def _print_session(receipt: Mapping[str, Any], model: Mapping[str, Any] | None = None, *, details: bool) -> None:
    """The answers of a ``model``, if there are some, above what the session cost; what must not be missed of both below."""
    from quietmean.sessions.receipt import details_of, screen_of

    answers, hidden = list[str](), list[str]()
    if model:
        name = f"{model['name']}: {model['are']}" if "are" in model else model["name"]
        answers, hidden = screen_of_answers([{"name": name, **model.get("ratios", model["coefficients"])}])
    lines, marks = screen_of(receipt)
    for line in (*answers, *lines, *hidden, *marks, *(["", *details_of(receipt)] if details else [])):
        out.print(readable_line(line))


@contextmanager
def no_answer_shown(*, one_line: bool = False) -> Iterator[None]:
    """A study that is paid for and fails inside has the screen that :func:`show_receipt` makes of its receipt, on standard error.

    ``one_line``, and for a program that reads documents: the sentence alone.
    """
    try:
        yield
    except ProtocolFailure as error:
        if one_line or output_options.json or not error.charged:
            raise
        note(str(error), logging.ERROR)
        ended = (
            {"no_result": {"reason": str(error), "charged": error.charged}} if error.receipt is None else read_json(error.receipt)
        )
        for line in first_screen(ended):
            err.print(readable_line(line))
        if error.receipt is not None:
            err.print(f"Receipt   {near(error.receipt)}")
        raise SystemExit(error.exit_code) from None


def saved_text(paths: Sequence[Path]) -> str:
    """The files of a result: the first by its path, others beside it whose names begin alike by how these end."""
    first, *others = paths
    stem = first.name.partition(".")[0]
    ends = [path.name.removeprefix(stem) if path.parent == first.parent else near(path) for path in others]
    # The last two are pages, as a rule.
    pages = [end.removesuffix(".html") for end in ends[-2:] if end.startswith(".") and end.endswith(".html")]
    ends = [*ends[:-2], f"{'/'.join(pages)}.html"] if len(pages) > 1 else ends
    return ", ".join([near(first), *ends])


def near(path: Path) -> str:
    """The path as it is written from the working folder, where it is in it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def effort_text(document: Mapping[str, Any], gone: str = "", whose: str = "") -> str:
    """Who took part, and what the exchange took; ``gone``: who did not stay; ``whose``: whose messages are counted."""
    parties = document["parties_counted"] + len(document["without"])
    return (
        f"{document['parties_counted']} of {parties} parties counted{gone}; {document['messages']} messages, "
        f"{document['bytes'] / 1000:.1f} kB{whose}, {math.ceil(document['seconds'] * 10) / 10} s"
    )


@dataclass(frozen=True)
class Pages:
    """Where the report, and the privacy page, of the study with this ``receipt`` go."""

    receipt: Path
    report: Path
    privacy: Path

    @classmethod
    def beside(cls, receipt: Path) -> Self:
        """Return the pages of NAME.receipt.json: NAME.report.html and NAME.privacy.html in the same folder."""
        stem = receipt.name.removesuffix(".json").removesuffix(".receipt")
        return cls(receipt, receipt.with_name(f"{stem}.report.html"), receipt.with_name(f"{stem}.privacy.html"))

    def outputs(self, origin: Mapping[str, Any] | None) -> list[Output]:
        """Both, for the receipt with this ``origin``; none without the extra for pages."""
        if not can_report():
            return []
        from quietmean.report import officer_page_at, report_at

        whose = study_and_party(origin)
        return [report_at(self.report, whose, output_options.force), officer_page_at(self.privacy, whose, output_options.force)]

    def to_json(self) -> dict[str, str | None]:
        """Return the pages' paths, for a result that is printed before the pages are made; null without the extra for pages."""
        there = can_report()
        return {"report": str(self.report) if there else None, "privacy_page": str(self.privacy) if there else None}

    def write(self, run: StudyRun) -> list[Path]:
        """Make both, after the result is printed and its receipt stored; those that were made. One that fails is one warning."""
        made: list[Path] = []
        if not can_report():
            warn(no_report_sentence(str(self.receipt)))
            return made
        with only_shown(f"report {self.report}", warn):
            write_report(self.report, run)
            made.append(self.report)
        with only_shown(f"page {self.privacy}", warn):
            write_privacy_page(self.privacy, run)
            made.append(self.privacy)
        return made


def next_step(document: Mapping[str, Any], receipt: str, named: str | None = None) -> str:
    """What comes after a result: of a first look the study that it is for, of tables for rows these, else what was paid.

    ``named``: how the last names the receipt, where it need not.
    """
    if any(answer.get("kind") == SyntheticTable.name for answer in document.get("statistics", ())):
        return f"study synthesize {quote(receipt)} --out synthetic.csv"
    proposed = ProposedBounds.of_result(document).columns
    if not proposed:
        return f"verify receipt {quote(receipt) if named is None else named}".rstrip()
    asked = " ".join(quote(f"mean({as_name(name)})") for name in proposed)
    return f"study new {asked} --first-look {quote(receipt)} --out looked.toml"


def write_report(path: Path, run: StudyRun) -> None:
    """Write the report of a study to ``path``."""
    from quietmean.report import Stamps, StudyReport, write_study_report

    report = StudyReport.of_outcome(**run.reported(), stamps=Stamps.of_origin(run.origin))
    write_study_report(report, path, output_options.force)


def write_privacy_page(path: Path, run: StudyRun) -> None:
    """Write to ``path`` what a study cost, with the receipt that anybody can check it with."""
    from quietmean.report import OfficerPage, ReportFacts, write_officer_page

    outcome, shown = run.outcome, run.reported()
    read = ReportFacts.of_receipt(outcome.receipt(run.origin), shown["title"])
    stated = replace(read, title=shown["title"], names=run.names, account=run.account, influence=outcome.influence_sentences)
    commands = [f"quietmean verify receipt {quote(shown['receipt'])}"]
    page = OfficerPage(outcome.execution, outcome.privacy, outcome.certificate, stated, commands)
    write_officer_page(page, path, output_options.force)
