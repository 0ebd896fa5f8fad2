"""A study of persons speaks of persons: in its contract, its pages and its receipt; one of records never does."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.core.domain import PrivacyUnit
from quietmean.report.data import StudyReport
from quietmean.report.officer import OfficerPage
from quietmean.report.page import render
from quietmean.report.released import Stated
from quietmean.report.rendering import render_template
from quietmean.statistics import Workload
from quietmean.studies.outcome.outcome import StudyOutcome, conclude
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
    """Of the report and of the page for who answers for the data, as people read them."""
    report = StudyReport.of_outcome("study", outcome, NAMES, messages=1, bytes=1, seconds=1.0)
    officer = OfficerPage(outcome.execution, outcome.privacy, outcome.certificate, Stated.of_receipt(outcome.receipt(), "study"))
    pages = [render(report), render_template("officer.html", whose="", officer=officer.sections())]
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
