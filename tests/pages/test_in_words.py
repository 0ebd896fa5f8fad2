"""In words: parties in part, numbers with noise, and persons."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text
from rich.console import Console

import quietmean as qm
from quietmean.api.result import StudyResult
from quietmean.cli.answers import print_answers
from quietmean.cli.main import main
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.node import Identity, NodeResult, NodeSettings, Observers, PlannedValue, Roster, RosterEntry
from quietmean.node.driver import remarked
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.monitor import status_path
from quietmean.node.party import monitor_of
from quietmean.planning import Plan
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilentPopulation
from quietmean.report import StudyReport
from quietmean.report.answers import answer_sections
from quietmean.report.officer import OfficerPage, render_officer_page
from quietmean.report.page import render
from quietmean.report.plots import plot
from quietmean.report.released import ReportFacts
from quietmean.sessions import MemoryEngine
from quietmean.statistics import Column, Columns, Statistic, Workload, parse_statistic, read_text
from quietmean.statistics.answers import Answer
from quietmean.statistics.estimate import in_part
from quietmean.statistics.printed import TidyTerms, printed_rows
from quietmean.statistics.tidy import terms_of
from quietmean.studies import StudyOutcome, conclude
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.tables import tables_bytes, tables_of, write_tables
from support.every_kind import COLUMNS, all_statistics
from support.leaving import LEAVER, PARTIES, PASSING_ON, RECORDS, flagged, leaving, studied
from support.outcomes import EVERY_KIND, finished, records_of
from support.outcomes import PARTIES as OUTCOME_PARTIES
from support.promises import lines_of_page

# -- Where a party left in mid-run and counts in part, every answer says so, wherever answers are shown; and only then.
NAMES = tuple("abcde")
SAYS = "not all records count alike"


def outcome_of(study: StudyTerms, plan: Plan, last: int) -> StudyOutcome:
    """What comes of a study that one party leaves after so many rounds."""
    execution = plan.execution(Seed.public("in part"), leaving(plan, LEAVER, last), RECORDS)
    tables = [np.full((int(size), 1), 20.0 + 10 * party) for party, size in enumerate(RECORDS)]
    values = np.array([study.workload.encode(one, step=plan.value_step).vector for one in tables])
    releases = execution.run_batch(values, InsecurePopulationNoise(last, PARTIES))
    return conclude(study.workload, plan.target, execution, execution.estimate(releases))


def in_the_middle(study: StudyTerms, plan: Plan) -> StudyOutcome:
    found = (outcome_of(study, plan, last) for last in range(1, plan.protocol.rounds))
    return next(one for one in found if 0.05 < one.execution.parts[LEAVER] < 0.95)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("protocol", PASSING_ON)
def test_every_answer_is_flagged_where_a_party_counts_in_part(protocol: str) -> None:
    study, plan = studied(protocol, "mean(age)", "sum(age)", "count(age)")
    flags = 0
    for last in range(plan.protocol.rounds + 1):
        outcome = outcome_of(study, plan, last)
        parts = outcome.execution.parts
        expected = bool(((parts > 0) & (parts < 0.999)).any())
        assert list(flagged(outcome)) == [expected] * 3, f"left after round {last} of {plan.protocol.rounds}: {parts}"
        flags += expected
    assert 0 < flags <= plan.protocol.rounds


def test_the_flag_says_how_many_and_how_much() -> None:
    study, plan = studied("muffliato", "sum(age)")
    outcome = in_the_middle(study, plan)
    parts = outcome.execution.in_part
    (flag,) = [one for one in outcome.answers[0].estimates.flags if one.code == "in-part"]
    assert f"{100 * min(parts.values()):.2g}" in flag.message
    assert f"{len(parts)} of {PARTIES} parties count" in flag.message
    assert flag.terms == ()


def test_others_count_whole_or_not_at_all() -> None:
    for protocol in ("local-dp", "packed-sharing", "secagg"):
        study, plan = studied(protocol, "mean(age)")
        execution = plan.execution(Seed.public("in part"), leaving(plan, LEAVER, plan.protocol.rounds), RECORDS)
        assert execution.in_part == {}
        assert not any(flagged(conclude(study.workload, plan.target, execution, np.full(plan.target.dimension, 0.5))))


@pytest.mark.parametrize("statistics", [(), ("mean(age)", "sum(age)")], ids=["means alone", "statistics"])
def test_wherever_answers_are_shown(
    statistics: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("quietmean.cli.answers.out", Console(width=400, soft_wrap=True, markup=False, highlight=False))
    study, plan = studied("muffliato", *statistics)
    outcome = in_the_middle(study, plan)
    result = StudyResult(study, outcome, NAMES, 1, 1, 1.0)
    # In Python: each term, as an object and as a row of a frame, and the file of these.
    assert all("in-part" in row["flag"] for row in result.rows())
    result.to_csv(tmp_path / "terms.csv")
    assert (tmp_path / "terms.csv").read_text().count("in-part") == len(result.rows())
    # A command, once for all answers.
    print_answers(outcome.to_json())
    assert capsys.readouterr().out.count(SAYS) == 1
    # Tables for people, and the page, with the number of parties on its first screen.
    for ending in ("csv", "html", "tex"):
        write_tables(outcome.to_json(), tmp_path / f"table.{ending}", False)
        assert SAYS[1:] in (tmp_path / f"table.{ending}").read_text()
    result.save_report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert SAYS[1:] in page
    assert f"{PARTIES} of {PARTIES} parties ({len(outcome.execution.in_part)} in part)" in page


@pytest.mark.slow
def test_a_session_says_who_counts_in_part() -> None:
    session = qm.Session(
        parties=PARTIES,
        dimension=2,
        epsilon=4.0,
        delta=1e-6,
        rounds=9,
        colluding=0,
        dropouts=0.2,
        protocol="inca",
        options={"rounds": 4},
        engine=MemoryEngine(lambda _, parties: InsecureSilentPopulation(parties)),
    )
    seen = set()
    for last in range(1, 5):
        found = session.mean([[0.1 * party, -0.1] for party in range(PARTIES)], leaves={LEAVER: last})
        parts = found.execution.parts
        assert np.allclose(found.mean, [parts @ np.arange(PARTIES) * 0.1 / parts.sum(), -0.1], atol=0.02)
        assert (" in part" in repr(found)) == bool(found.in_part)
        seen |= set(found.in_part)
    assert LEAVER in seen


def test_the_status_of_a_node_that_is_done_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, plan = studied("muffliato", "mean(age)")
    execution = in_the_middle(study, plan).execution
    nothing: dict[str, Any] = dict.fromkeys(("late", "refusals", "remarks", "silent", "unresolved", "known_until"), ())
    zero: dict[str, Any] = dict.fromkeys(("transfers", "bytes_sent", "bytes_received", "seconds"), 0)
    result = NodeResult(np.zeros(1), 1.0, (0,), execution, public_seed="", **nothing, **zero)
    identities = [Identity.generate() for _ in NAMES]
    entries = [
        RosterEntry(name, ("127.0.0.1", port), identity.public_key)
        for port, (name, identity) in enumerate(zip(NAMES, identities, strict=True), 1)
    ]
    store = tmp_path / "my.store"
    settings = NodeSettings(
        identity=identities[0],
        roster=Roster(tuple(entries)),
        brought=PlannedValue(plan, plan.admit(np.zeros(plan.target.dimension))),
        store=store,
        observers=Observers(status=status_path(store)),
    )

    async def run() -> None:
        with monitor_of(settings) as monitor:
            assert remarked(result, settings, monitor) is result

    run_virtually(run())
    main(["site", "status", str(store)])
    told = " ".join(capsys.readouterr().out.split())
    assert f"a party left in between, and {SAYS}: " in told
    assert f"{NAMES[LEAVER]} {100 * execution.parts[LEAVER]:.2g} %" in told


# -- A number of records with noise in it is nowhere told as a fact: it is "about" so many; a public one is the public number.
PUBLIC = 2000
# A number before what is counted, and one behind it.
_COUNT = re.compile(r"(?<![\d.,])\d[\d,]* (?:records|events)\b|\b(?:complete records|events)(?: until then)? +(?:\w+ )?\d[\d,]*")
# What makes it no bare estimate: the public number, a bound, or its error.
_SAID = re.compile(r"[Aa]bout|(?:^|\D)2,000 records|fewer than|95 %|±")


def outputs(outcome: StudyOutcome, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    document, told = outcome.to_json(), io.StringIO()
    monkeypatch.setattr("quietmean.cli.answers.out", Console(file=told, width=240, soft_wrap=True, markup=False, highlight=False))
    print_answers(document)
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


# -- A study of persons speaks of persons: in its contract, its pages and its receipt; one of records never does.
PERSON_NAMES = [f"clinic {party}" for party in range(OUTCOME_PARTIES)]
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
    report = StudyReport.of_outcome("study", outcome, PERSON_NAMES, messages=1, bytes=1, seconds=1.0)
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
        assert "Nobody has rows at more than 3 parties (sites_per_person = 3), which is not checked" in page
        # What is public in every study, and logs, are the places with the other word.
        assert re.findall(r"\w+ \w+ records?\b", re.sub(r"number of records \(weight\)", "", page)) == []
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
        main(["key", "new", "--key", f"{name}.key", "--name", name, "--address", f"127.0.0.1:{9000 + len(entries)}"])
        entries.append(capsys.readouterr().out)
    Path("roster.toml").write_text("\n".join(entries))
    told: dict[str, str] = {}
    shown: dict[str, str] = {}
    for unit, rows in (("record", ""), ("person", 'rows = "last"\nsites_per_person = 2\n')):
        Path(f"{unit}.toml").write_text(STUDY.format(unit=unit, rows=rows))
        asked = ["site", "contract", f"{unit}.toml", "--roster", "roster.toml", "--key", "a.key"]
        for words, options in ((shown, []), (told, ["--details"])):
            main([*asked, *options])
            words[unit] = " ".join(capsys.readouterr().out.split())
    for unit, other in (("record", "person"), ("person", "record")):
        assert f" per {unit}" in shown[unit]
        assert f" per {other}" not in shown[unit]
    assert "one record of one party; others may know that it is there (replacement)" in told["record"]
    # Only the sentences about those with several records may name persons.
    several = (
        r"A person is one unit at one party\..*?\(mu\)\.|A person with k records is protected less: up to k times the loss\."
    )
    assert "A person with k records is protected less" in shown["record"]
    assert all("person" not in re.sub(several, "", words["record"]) for words in (shown, told))
    of_person = "all rows of one person (the last one counts; at 2 parties at most, which nobody checks); "
    assert f"{of_person}others may know that it is there (replacement)" in told["person"]
    assert "Nobody has rows at more than 2 parties (sites_per_person = 2)" in told["person"]
