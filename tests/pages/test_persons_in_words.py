"""A study of persons speaks of persons: in its contract, its pages and its receipt; one of records never does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

from quietmean.cli.main import main
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.report.answers import answer_sections
from quietmean.report.data import StudyReport
from quietmean.report.officer import OfficerPage, render_officer_page
from quietmean.report.page import render
from quietmean.report.plots import plot
from quietmean.report.released import ReportFacts
from quietmean.statistics import Statistic, Workload, parse_statistic, read_text
from quietmean.statistics.answers import Answer
from quietmean.statistics.flags_and_tests import in_part
from quietmean.studies.outcome.outcome import StudyOutcome, conclude
from quietmean.studies.outcome.tables import tables_of
from support.every_kind import COLUMNS, all_statistics
from support.outcomes import PARTIES, finished, records_of

NAMES = [f"clinic {party}" for party in range(PARTIES)]
STUDY = """
[study]
unit = "{unit}"
{rows}epsilon = 2.0
records = 4000
protocol = "local-dp"

[[column]]
name = "age"
low = 0
high = 100
missing = "indicator"
"""


def of_persons(outcome: StudyOutcome, sites: int) -> StudyOutcome:
    workload = Workload(
        outcome.workload.columns, outcome.workload.statistics, PrivacyUnit.PERSON, rows="mean", sites_per_person=sites
    )
    execution = replace(outcome.execution, sensitivity=workload.sensitivity)
    target = replace(outcome.target, unit=PrivacyUnit.PERSON, sensitivity=workload.sensitivity)
    return conclude(workload, target, execution, workload.of_records(records_of()).mean(axis=0))


def words(outcome: StudyOutcome) -> list[str]:
    """Of the report and of the privacy page, as people read them."""
    report = StudyReport.of_outcome("study", outcome, NAMES, messages=1, bytes=1, seconds=1.0)
    officer = OfficerPage(
        outcome.execution, outcome.privacy, outcome.certificate, ReportFacts.of_receipt(outcome.receipt(), "study")
    )
    pages = [render(report), render_officer_page(officer)]
    return [" ".join(re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL).split()) for page in pages]


def test_pages_and_receipt_of_persons() -> None:
    records = finished("mean(x)", "group-means(x, by=arm)")
    for page in words(records):
        assert "2,000 records" in page
        assert "sites_per_person" not in page
    persons = of_persons(records, 3)
    for page in words(persons):
        assert "2,000 persons" in page
        assert "with 3 parties at most (sites_per_person = 3), which nobody checks" in page
        # What is public in every study, and logs, are the places with the other word.
        assert re.findall(r"\w+ \w+ records?\b", re.sub(r"number of records are public|not in the record\.", "", page)) == []
    certificate = persons.certificate_json()
    assert (certificate["unit"], certificate["rows"], certificate["sites_per_person"]) == ("person", "mean", 3)
    # Linear in the parties at which one person may be.
    assert persons.certificate.max_mu == pytest.approx(3 * records.certificate.max_mu)
    assert all(answer.estimates.p_value is None for answer in persons.answers)


def sections(statistic: Statistic, unit: PrivacyUnit, rows: str | int) -> list[str]:
    """All that the report and the tables of a receipt say of a statistic, beside names and numbers."""
    hidden = {"count": CountVisibility.PRIVATE, "most_records": 600} if isinstance(rows, int) else {}
    workload = Workload(COLUMNS, (statistic,), unit, rows=rows, **hidden)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    records = np.column_stack(
        [
            rng.uniform(0, 100, 500),
            rng.uniform(40, 140, 500),
            rng.random(500),
            *(rng.integers(0, size, 500) for size in (2, 3, 2)),
        ]
    )
    records[::9, 0] = np.nan
    total = Workload(COLUMNS, (statistic,), PrivacyUnit.RECORD, **hidden).encode(records)  # type: ignore[arg-type]
    (answer,) = workload.decode(total.vector / total.weight, 1e-4, total.weight)
    answer = answer.flagged(in_part([0.5], 3))
    certificate = {"unit": str(unit), "rows": rows}
    result = {
        "statistics": [answer.to_json()],
        "certificate": certificate,
        "delta": 1e-6,
        "epsilon": 1.0,
        "epsilon_a_priori": 1.0,
    }
    said = [answer_sections([answer], None), [table.notes for table in tables_of(result)], result]
    return re.findall(
        r"[^.;\"]*\brecords?\b[^.;\"]*", re.sub(r"[\"']records[\"']:|records_\w+", "", json.dumps(said, default=str))
    )


@pytest.mark.parametrize("statistic", all_statistics(), ids=lambda one: one.text)
def test_no_sentence_of_any_statistic_of_persons_is_about_records(statistic: Statistic, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Answer] = []
    monkeypatch.setattr("quietmean.report.answers.plot", drawn.append)
    assert sections(statistic, PrivacyUnit.RECORD, "mean")
    assert sections(statistic, PrivacyUnit.PERSON, "last") == []
    assert drawn


@pytest.mark.parametrize("text", ["histogram(age, bins=4)", "cdf(age, bins=4)"])
def test_no_figure_of_persons_is_about_records(text: str) -> None:
    workload = Workload(COLUMNS, (parse_statistic(read_text(text)),), PrivacyUnit.PERSON)
    of_records = Workload(COLUMNS, workload.statistics, PrivacyUnit.RECORD)
    records = np.array([[30.0 + place % 50, 70.0, 0.5, place % 2, place % 3, place % 2] for place in range(400)])
    for one, counted in ((of_records, "records"), (workload, "persons")):
        (answer,) = one.decode(of_records.encode(records).vector / 400, 1e-4, 400.0)
        drawn = plot(answer)
        assert drawn is not None
        figure, words_below = drawn
        written = {artist.get_text() for artist in figure.findobj(Text) if isinstance(artist, Text)} | {words_below}
        assert {word for each in written for word in re.findall(r"\brecords?\b|\bpersons?\b", each)} <= {counted}
        assert any(counted in each for each in written)


def test_the_contract_says_what_is_protected_and_assumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    entries: list[str] = []
    for name in "abc":
        main(["keygen", "--key", f"{name}.key", "--name", name, "--address", f"127.0.0.1:{9000 + len(entries)}"])
        entries.append(capsys.readouterr().out)
    Path("roster.toml").write_text("\n".join(entries))
    told = {}
    for unit, rows in (("record", ""), ("person", 'rows = "last"\nsites_per_person = 2\n')):
        Path(f"{unit}.toml").write_text(STUDY.format(unit=unit, rows=rows))
        main(["contract", f"{unit}.toml", "--roster", "roster.toml", "--key", "a.key"])
        told[unit] = " ".join(capsys.readouterr().out.split())
    assert "one record of one party, under replacement" in told["record"]
    assert "person" not in re.sub(r"A person is protected as one unit only.*?at most\.", "", told["record"])
    said = "all rows of one person (the last one counts; at 2 parties at most, which nobody checks), under replacement"
    assert said in told["person"]
    assert "one person is with 2 parties at most (sites_per_person = 2)" in told["person"]
