"""All that people are given of a finished study, as texts: the terminal, data, documents and pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from quietmean.cli.answers import print_answers, write_privacy_page, write_report
from quietmean.cli.console import print_privacy
from quietmean.core.codec import to_plain
from quietmean.core.tables import csv_bytes
from quietmean.statistics import Answer
from quietmean.statistics.printed import TidyTerms, TidyTests
from quietmean.statistics.tidy import TERM_COLUMNS, TEST_COLUMNS
from quietmean.studies import StudyOutcome
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.tables import write_tables
from support.outcomes import run_of
from support.promises import lines_of_page
from support.tables_again import READERS

DOCUMENTS = {".docx": "Word", ".tex": "LaTeX", ".html": "HTML", ".csv": "CSV"}


def texts_of(
    folder: Path, study: StudyTerms, outcome: StudyOutcome, truth: tuple[Answer, ...] | None = None, names: Sequence[str] = ()
) -> dict[str, str]:
    """What each way out says; ``truth``: the answers without noise, which a local run shows beside; ``names``: of the parties."""
    document = outcome.to_json()
    for entry, answer in zip(document["statistics"], truth or (), strict=truth is not None):
        entry["true_value"] = answer.estimates.by_term(answer.estimates.value)
    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        print_answers(document)
        print_privacy(document, study.epsilon)
    terms = TidyTerms.of(document["statistics"])
    tables = ((terms.rows(), TERM_COLUMNS), (TidyTests(terms.documents).rows(), TEST_COLUMNS))
    return {
        "print": printed.getvalue(),
        "JSON": json.dumps(to_plain(document), allow_nan=False),
        "tidy": "\n".join(csv_bytes(rows, list(heads)).decode() for rows, heads in tables),
        "Python": f"{terms!r}\n{TidyTests(terms.documents)!r}\n{outcome!r}\n{outcome.certificate!r}",
        **{name: _document(folder / f"tables{end}", document) for end, name in DOCUMENTS.items()},
        **_pages(folder, study, outcome, truth, names or [f"clinic {party}" for party in range(outcome.execution.parties)]),
    }


def _document(path: Path, document: Mapping[str, Any]) -> str:
    """A line for each row of its tables, and for each paragraph."""
    write_tables(document, path, force=True)
    tables = READERS[path.suffix](path)
    lines = [f"{row[0]}: {' | '.join(row[1:])}" for rows, _ in tables for row in rows]
    return "\n".join(dict.fromkeys([*lines, *(text for _, texts in tables for text in texts)]))


def _pages(
    folder: Path, study: StudyTerms, outcome: StudyOutcome, truth: tuple[Answer, ...] | None, names: Sequence[str]
) -> dict[str, str]:
    pages = {name: folder / f"{name}.html" for name in ("report", "privacy")}
    for path in pages.values():
        path.unlink(missing_ok=True)
    run = run_of(study.name, outcome, names, truth=truth)
    write_report(pages["report"], run)
    write_privacy_page(pages["privacy"], run)
    return {name: lines_of_page(path.read_text()) for name, path in pages.items()}
