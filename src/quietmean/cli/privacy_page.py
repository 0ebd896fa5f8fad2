"""The page for who answers for the data, after a study."""

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
