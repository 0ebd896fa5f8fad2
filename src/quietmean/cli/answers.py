"""What a study found, on standard output and in pages: every term with its error and interval, tests, and what is flagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from quietmean.cli.console import err, out, output_options, warn, whole_words, without_noise
from quietmean.core.domain import counted_text
from quietmean.core.errors import InputError
from quietmean.core.extensions import can_report, no_report_sentence
from quietmean.core.origin import study_and_party
from quietmean.core.output import Output
from quietmean.core.presenting import only_shown
from quietmean.core.readable import HIDDEN, UNKNOWN, for_terminal, number_text
from quietmean.core.readable_days import day_text

if TYPE_CHECKING:
    from rich.table import Table

    from quietmean.statistics import Answer
    from quietmean.statistics.tidy import Term
    from quietmean.studies.outcome.run import StudyRun


def print_answers(answers: Sequence[Answer], document: Mapping[str, Any]) -> None:
    """A table of all terms, and what is to be said about them; ``document``: the JSON of the result of these ``answers``."""
    from quietmean.statistics import column_means

    means = list(column_means(answers))
    if len(means) == len(answers):
        what = "private mean" if without_noise(document) is None else "mean, not private"
        out.print(_of_means(means, document["statistics"], what))
    else:
        for line in _of_terms(document["statistics"]):
            out.print(line)
    certificate = document["certificate"]
    _print_notes(document["statistics"], counted_text(certificate["unit"], certificate.get("rows")))


def _of_means(names: Sequence[str], documents: Sequence[Mapping[str, Any]], heading: str) -> Table:
    """Means alone, by their columns, under a ``heading``."""
    from rich.table import Table

    from quietmean.statistics.tidy import terms_of

    has_truth = any("true_value" in statistic for statistic in documents)
    table = Table("column", box=None, pad_edge=False)
    heads = [heading, "standard error", "95 % for the population", *(["true mean (local mode only)"] if has_truth else [])]
    for head in heads:
        table.add_column(head, justify="right", overflow="fold")
    for name, document in zip(names, documents, strict=True):
        (term,) = terms_of(document)
        table.add_row(name, *_cells(term, has_truth))
    return whole_words(table)


def _of_terms(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each statistic in a line, and its terms below it; one that is a number has a line with it."""
    from quietmean.statistics.printed import together
    from quietmean.statistics.tidy import terms_of

    has_truth = any("true_value" in statistic for statistic in documents)
    rows = [["", "estimate", "± noise", "95 % interval", *(["without noise"] if has_truth else [])]]
    for document in documents:
        name, (terms, hidden) = str(document["name"]), together(terms_of(document))
        # A text alone is a line without columns.
        alone = [] if terms and not terms[0].term else [[f"{name}  {HIDDEN}" if hidden and not terms else name]]
        rows += [*alone, *([f"  {term.label}" if term.label else name, *_cells(term, has_truth)] for term in terms)]
    columns = [row for row in rows if len(row) > 1]
    widths = [max(len(row[column]) for row in columns) for column in range(len(rows[0]))]
    return [_aligned(row, widths) for row in rows]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """Names to the left, numbers to the right."""
    name, *cells = row
    if not cells:
        return name
    numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
    return f"{name.ljust(widths[0])}  {numbers}".rstrip()


def _cells(term: Term, has_truth: bool) -> list[str]:
    """Estimate, standard error of the noise, the interval to quote, and perhaps the truth."""
    from quietmean.statistics.printed import shown

    texts = shown(term)
    interval = "" if texts.interval == UNKNOWN else for_terminal(texts.interval)
    return [for_terminal(texts.estimate), for_terminal(texts.noise_error), interval, *([_truth(term)] if has_truth else [])]


def _truth(term: Term) -> str:
    """The value without noise, with the digits of the estimate."""
    from quietmean.statistics.printed import error_of_digits

    text = day_text(term.truth, term.since) if term.since else number_text(term.truth, error_of_digits(term))
    return for_terminal(text)


def _print_notes(documents: Sequence[Mapping[str, Any]], counted: str) -> None:
    """Prints, in sentences, how many records answers with missing values are about, tests, and flags."""
    from quietmean.statistics.printed import TidyTests, notes_of, notes_of_all, some_are_left_out, together, who_is_counted
    from quietmean.statistics.tidy import terms_of

    of_all = notes_of_all(documents)
    for answer in documents:
        if some_are_left_out(answer) and (sentence := who_is_counted(answer, counted)):
            out.print(f"{answer['name']}: {sentence}")
        if hidden := together(terms_of(answer))[1]:
            out.print(f"{answer['name']}: {hidden}")
        for sentence in TidyTests((answer,)).sentences():
            out.print(f"{answer['name']}: {for_terminal(sentence)}")
        for note in notes_of(answer["flagged"]):
            if note not in of_all:
                out.print(f"{answer['name']}: {note}")
    for note in of_all:
        out.print(f"all answers: {note}")


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

    def write(self, run: StudyRun, *, tell: bool = True) -> None:
        """Make both, after the result is printed and its receipt stored, and with ``tell`` print where they are.

        A page that fails is one warning.
        """
        if not can_report():
            warn(no_report_sentence(str(self.receipt)))
            return
        with only_shown(f"report {self.report}", warn):
            write_report(self.report, run)
            if tell:
                out.print(f"report  {self.report}")
        with only_shown(f"page {self.privacy}", warn):
            write_privacy_page(self.privacy, run)
            if tell:
                out.print(f"privacy {self.privacy}")


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
    stated = replace(read, names=run.names, account=run.account, influence=outcome.influence_sentences)
    commands = [f"quietmean certify {quote(shown['receipt'])}"]
    page = OfficerPage(outcome.execution, outcome.privacy, outcome.certificate, stated, commands)
    write_officer_page(page, path, output_options.force)


# Folders of runs are named so, with the time behind it.
RUN = "quietmean-run-"


def execution_or_newest(path: Path | None) -> Path:
    """What was named, or the receipt of the newest run in the working folder, which is said.

    Raises :class:`InputError` where neither is there.
    """
    if path is not None:
        return path
    receipts = sorted(Path().glob(f"{RUN}*/receipt.json"), key=lambda receipt: (receipt.stat().st_mtime_ns, str(receipt)))
    if not receipts:
        raise InputError("which execution is not clear: name a receipt or an execution file; this folder has no run")
    err.print(f"quietmean: note: of {receipts[-1]}, the newest run here", soft_wrap=True)
    return receipts[-1]
