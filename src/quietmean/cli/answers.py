"""What a study found, on standard output and in pages: every term with its error and interval, tests, and what is flagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from rich.table import Table

from quietmean.cli.console import out, output_options, warn, whole_words, without_noise
from quietmean.core.domain import counted_text
from quietmean.core.errors import only_shown
from quietmean.core.extensions import can_report, no_report_sentence
from quietmean.core.file_kinds import study_and_party
from quietmean.core.output import Output
from quietmean.statistics import column_means
from quietmean.statistics.printed import TidyTerms, lines_of_terms, sentences_about, terminal_cells

if TYPE_CHECKING:
    from quietmean.statistics import Answer
    from quietmean.studies.outcome.outcome import StudyRun


def print_answers(answers: Sequence[Answer], document: Mapping[str, Any]) -> None:
    """A table of all terms, and what is to be said about them; ``document``: the JSON of the result of these ``answers``."""
    means, documents, certificate = list(column_means(answers)), document["statistics"], document["certificate"]
    if len(means) == len(answers):
        what = "private mean" if without_noise(document) is None else "mean, not private"
        out.print(_of_means(means, documents, what))
    else:
        for line in lines_of_terms(documents):
            out.print(line)
    for sentence in sentences_about(documents, counted_text(certificate["unit"], certificate.get("rows"))):
        out.print(sentence)


def _of_means(names: Sequence[str], documents: Sequence[Mapping[str, Any]], heading: str) -> Table:
    """Means alone, by their columns, under a ``heading``."""
    has_truth = any("true_value" in statistic for statistic in documents)
    table = Table("column", box=None, pad_edge=False)
    heads = [heading, "standard error", "95 % for the population", *(["true mean (local mode only)"] if has_truth else [])]
    for head in heads:
        table.add_column(head, justify="right", overflow="fold")
    for name, term in zip(names, TidyTerms.of(documents).terms(), strict=True):
        table.add_row(name, *terminal_cells(term, has_truth))
    return whole_words(table)


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
    commands = [f"quietmean verify receipt {quote(shown['receipt'])}"]
    page = OfficerPage(outcome.execution, outcome.privacy, outcome.certificate, stated, commands)
    write_officer_page(page, path, output_options.force)
