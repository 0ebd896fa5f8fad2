"""The two pages after a study: the report, and the privacy page. They are made last of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from quietmean.cli.console import out, output_options, warn
from quietmean.core.extras import can_report, no_report_sentence
from quietmean.core.origin import study_and_party
from quietmean.core.output import Output
from quietmean.core.presenting import only_shown

if TYPE_CHECKING:
    from quietmean.ledger import Account
    from quietmean.studies import StudyOutcome


@dataclass(frozen=True)
class Pages:
    """Where the report, and the privacy page, of the study with this ``receipt`` go."""

    receipt: Path
    report: Path
    privacy: Path

    @classmethod
    def beside(cls, receipt: Path) -> Self:
        """NAME.report.html and NAME.privacy.html beside NAME.receipt.json."""
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
        """The pages' entries in a result, which is printed before they are made; null without the extra for pages."""
        there = can_report()
        return {"report": str(self.report) if there else None, "privacy_page": str(self.privacy) if there else None}

    def write(
        self,
        title: str,
        outcome: StudyOutcome,
        *,
        names: Sequence[str],
        origin: Mapping[str, Any],
        account: Account | None = None,
        tell: bool = True,
        **run: Any,
    ) -> None:
        """Make both, after the result is printed and its receipt stored. A page that fails is one warning.

        ``names``: of the parties; ``origin``: of the receipt; ``tell``: print where they are; ``run``: what else the report
        shows, see :meth:`quietmean.report.StudyReport.of_outcome`.
        """
        if not can_report():
            warn(no_report_sentence(str(self.receipt)))
            return
        with only_shown(f"report {self.report}", warn):
            write_report(self.report, title, outcome, self.receipt, names=names, origin=origin, account=account, **run)
            if tell:
                out.print(f"report  {self.report}")
        with only_shown(f"page {self.privacy}", warn):
            write_privacy_page(self.privacy, title, outcome, self.receipt, names=names, origin=origin, account=account)
            if tell:
                out.print(f"privacy {self.privacy}")


def write_report(
    path: Path,
    title: str,
    outcome: StudyOutcome,
    receipt: Path,
    *,
    names: Sequence[str],
    origin: Mapping[str, Any],
    **more: Any,
) -> None:
    """Write the report of a study to ``path``; ``more``: see :meth:`quietmean.report.StudyReport.of_outcome`."""
    from quietmean.report import Stamps, StudyReport, write_study_report

    stamps = Stamps.of_origin(origin)
    report = StudyReport.of_outcome(title, outcome, names, receipt=receipt.name, stamps=stamps, **more)
    write_study_report(report, path, output_options.force)


def write_privacy_page(
    path: Path,
    title: str,
    outcome: StudyOutcome,
    receipt: Path,
    *,
    names: Sequence[str],
    origin: Mapping[str, Any] | None = None,
    account: Account | None = None,
) -> None:
    """Write the page of a study to ``path``. ``receipt``: what anybody can check it with; ``names``: of the parties."""
    from quietmean.report import OfficerPage, ReportFacts, write_officer_page

    read = ReportFacts.of_receipt(outcome.receipt(origin), title)
    stated = replace(read, names=names, account=account, influence=outcome.influence_sentences)
    commands = [f"quietmean certify {quote(receipt.name)}"]
    write_officer_page(
        OfficerPage(outcome.execution, outcome.privacy, outcome.certificate, stated, commands), path, output_options.force
    )
