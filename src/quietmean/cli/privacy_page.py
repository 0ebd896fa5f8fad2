"""The two pages after a study: the report, and the page for who answers for the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.cli.console import warn
from quietmean.core.extras import can_report, no_report_sentence

if TYPE_CHECKING:
    from quietmean.ledger import Account
    from quietmean.studies import StudyOutcome


def write_pages(
    receipt: Path,
    title: str,
    outcome: StudyOutcome,
    *,
    names: Sequence[str],
    origin: Mapping[str, Any],
    account: Account | None = None,
    **run: Any,
) -> dict[str, str | None]:
    """Write NAME.report.html and NAME.privacy.html beside ``receipt`` (NAME.receipt.json), and return where they are.

    Nothing is written, and the user is told why, without the extra for pages. ``origin``: of the receipt. ``run``: what else the
    report shows: messages, bytes, seconds, notes.
    """
    stem = receipt.name.removesuffix(".json").removesuffix(".receipt")
    page, report = receipt.with_name(f"{stem}.privacy.html"), receipt.with_name(f"{stem}.report.html")
    written = write_privacy_page(page, title, outcome, receipt, names=names, origin=origin, account=account)
    if written is None:
        return {"report": None, "privacy_page": None}
    write_report(report, title, outcome, receipt, names=names, origin=origin, account=account, **run)
    return {"report": str(report), "privacy_page": written}


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
    from quietmean.report import StudyReport, absent_of, digests_of, write_study_report

    report = StudyReport.of_outcome(
        title,
        outcome,
        names,
        digests=digests_of(origin),
        receipt=receipt.name,
        finished=str(origin.get("finished") or ""),
        version=str(origin.get("quietmean") or ""),
        absent=absent_of(origin),
        **more,
    )
    write_study_report(report, path)


def write_privacy_page(
    path: Path,
    title: str,
    outcome: StudyOutcome,
    receipt: Path,
    *,
    names: Sequence[str],
    origin: Mapping[str, Any] | None = None,
    account: Account | None = None,
) -> str | None:
    """Write the page of a study to ``path`` and return where it is; None, and a word to the user, without the extra for pages.

    ``receipt``: what anybody can check it with; ``names``: of the parties.
    """
    if not can_report():
        warn(no_report_sentence(str(receipt)))
        return None
    from quietmean.report import OfficerPage, Stated, write_officer_page

    stated = replace(Stated.of_receipt(outcome.receipt(origin), title), names=names, account=account)
    commands = [f"quietmean certify {receipt.name}"]
    write_officer_page(OfficerPage(outcome.execution, outcome.privacy, outcome.certificate, stated, commands), path)
    return str(path)
