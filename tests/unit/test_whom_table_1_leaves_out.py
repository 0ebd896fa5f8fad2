"""Who has no level of ``by`` is in no group of a Table 1. Each form of the answer says how many are in it, of how many.

So does every statistic that leaves records out, and the head of the page does not say that nobody is left out.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import docx
import numpy as np
import pytest

from quietmean.cli.answers import print_answers
from quietmean.core.codec import to_plain
from quietmean.report import StudyReport, write_study_report
from quietmean.report.officer import OfficerPage, render_officer_page
from quietmean.report.released import ReportFacts
from quietmean.statistics.printed import who_is_counted
from quietmean.studies import StudyOutcome
from quietmean.studies.outcome.tables import FORMATS, write_tables
from support.outcomes import finished, records_of

TABLE_1 = "table-1(y, yes, by=arm)"
# Also what needs several columns: one of them is missing in a quarter.
OTHERS = ("crosstab(arm, yes)", "group-means(y, by=arm)", "linear-regression(y ~ arm)", "kruskal-wallis(y, by=arm, bins=8)")
RECORDS, LOST = 2000, 500


@cache
def outcome(text: str, lost: bool = True) -> StudyOutcome:
    records = records_of(RECORDS)
    if lost:
        records[::4, 2] = np.nan
    return finished(text, noise=0.02, records=records)


@pytest.mark.parametrize("text", [TABLE_1, *OTHERS])
def test_it_says_how_many_are_in_it(text: str) -> None:
    (answer,) = outcome(text).answers
    complete = answer.estimates.completeness
    assert complete is not None
    assert complete.present + complete.missing == RECORDS
    # Two-sided 7e-6, at a fixed seed.
    assert abs(complete.missing - LOST) <= 4.5 * complete.missing_error
    sentence = who_is_counted(answer.to_json())
    assert re.fullmatch(r"about 1,\d{3} of 2,000 records have all values that it needs \(standard error [\d.]+\)", sentence), (
        sentence
    )


@pytest.mark.parametrize("text", [TABLE_1, *OTHERS])
def test_every_form_of_it_says_so(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome(text)
    sentence = who_is_counted(found.answers[0].to_json())
    print_answers(found.to_json())
    assert sentence in " ".join(capsys.readouterr().out.split())
    for ending in FORMATS:
        path = tmp_path / f"table{ending}"
        write_tables(found.to_json(), path)
        words = " ".join(one.text for one in docx.Document(str(path)).paragraphs) if ending == ".docx" else path.read_text()
        plain = " ".join(re.sub(r"\\textpm\{?\}?|\$\\pm\$|&#177;|&plusmn;", "±", words).split())
        assert sentence in plain, ending


@pytest.mark.parametrize(("lost", "head"), [(True, "No party"), (False, "Nobody")])
def test_the_heads_of_both_pages_say_who_is_left_out(lost: bool, head: str, tmp_path: Path) -> None:
    found = outcome(TABLE_1, lost)
    report = StudyReport.of_outcome("study", found, list("abcdef"), messages=1, bytes=1, seconds=1.0)
    write_study_report(report, tmp_path / "page.html")
    officer = OfficerPage(found.execution, found.privacy, found.certificate, ReportFacts.of_receipt(found.receipt(), "study"))
    for page in ((tmp_path / "page.html").read_text(), render_officer_page(officer)):
        first = page[page.index("Who is left out?") :][:400]
        assert head in first
        assert ("Nobody" in first) == (not lost)
        assert ("Answers leave out records that lack a value: each says of how many it is." in first) == lost


def test_where_nothing_tells_how_many_lack_a_value_nobody_is_promised_to_be_in_it() -> None:
    """As where the number of records is private."""
    receipt = to_plain(outcome(TABLE_1, False).receipt())
    assert not ReportFacts.of_receipt(receipt, "study").lacking
    complete = receipt["result"]["statistics"][0]["completeness"]
    complete["missing"] = complete["standard_error_missing"] = None
    assert ReportFacts.of_receipt(receipt, "study").lacking
    # Of a stranger's receipt nothing is said.
    receipt["result"]["statistics"][0]["completeness"] = "all"
    assert not ReportFacts.of_receipt(receipt, "study").lacking
