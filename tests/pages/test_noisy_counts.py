"""A number of records with noise in it is nowhere told as a fact: it is "about" so many; a public one is the public number."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from quietmean.cli.answers import print_answers
from quietmean.report import StudyReport
from quietmean.report.page import render
from quietmean.statistics import Column, Columns
from quietmean.statistics.printed import printed_rows
from quietmean.statistics.tidy import terms_of
from quietmean.statistics.tidy_tables import TidyTerms
from quietmean.studies import StudyOutcome
from quietmean.studies.outcome.tables import tables_bytes, tables_of
from support.outcomes import EVERY_KIND, finished
from support.promises import lines_of_page

PUBLIC = 2000
# A number before what is counted, and one behind it.
_COUNT = re.compile(r"(?<![\d.,])\d[\d,]* (?:records|events)\b|\b(?:complete records|events)(?: until then)? +(?:\w+ )?\d[\d,]*")
# What makes it no bare estimate: the public number, a bound, or its error.
_SAID = re.compile(r"[Aa]bout|(?:^|\D)2,000 records|fewer than|95 %|±")


def outputs(outcome: StudyOutcome, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    document, told = outcome.to_json(), io.StringIO()
    monkeypatch.setattr("quietmean.cli.answers.out", Console(file=told, width=240, soft_wrap=True, highlight=False))
    print_answers(outcome.answers, document)
    report = StudyReport.of_outcome("all", outcome, list("abcdef"), messages=1, bytes=1, seconds=1.0)
    return {
        "print": told.getvalue(),
        "tables": tables_bytes(document, Path("t.csv")).decode(),
        "page": lines_of_page(render(report)),
        "Python": repr(TidyTerms.of(document["statistics"])),
        "completeness": "\n".join(str(answer.estimates.completeness) for answer in outcome.answers),
    }


@pytest.mark.sampled(6)
@pytest.mark.parametrize("noise", [0.02, 0.4, 20.0])
@pytest.mark.parametrize("text", EVERY_KIND)
def test_no_noisy_count_is_told_as_a_fact(text: str, noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = finished(text, noise=noise)
    bare = [
        f"{where}: {line[max(0, found.start() - 60) : found.end() + 40]}"
        for where, told in outputs(outcome, monkeypatch).items()
        for line in told.splitlines()
        for found in _COUNT.finditer(line)
        if not _SAID.search(line[max(0, found.start() - 60) : found.end() + 40])
    ]
    assert bare == []
    document = outcome.to_json()
    terms = [term for entry in document["statistics"] for term in terms_of(entry)]
    cells = [row.get("n", "") for row in printed_rows(terms)]
    for table in tables_of(document):
        places = [place for place, head in enumerate(table.heads) if head == "n"]
        cells += [line.cells[place] for line in table.lines for place in places]
    assert [cell for cell in cells if re.match(r"\d", cell) and cell != f"{PUBLIC:,}"] == []


@pytest.mark.parametrize("text", ["mean(y)", "variance(y)", "correlation(x, y)", "histogram(y, bins=4)"])
def test_where_no_cell_is_missing_by_declaration_the_number_is_the_public_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing cells count as the middle, so all records have a value: however large the noise is."""
    columns = Columns([Column(name=name, low=0, high=10, missing="centre") for name in "xy"])
    records = np.random.default_rng(3).uniform(0, 10, (PUBLIC, 2))
    outcome = finished(text, noise=20.0, columns=columns, records=records)
    for answer in outcome.answers:
        told = answer.estimates.completeness
        assert told is None or (told.present, told.missing, told.present_error) == (PUBLIC, 0, 0)
    assert all("have not" not in text for where, text in outputs(outcome, monkeypatch).items() if where != "completeness")
