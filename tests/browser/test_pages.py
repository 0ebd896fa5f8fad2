"""The pages in a real browser: accessible, on a telephone and on a screen, in light and dark, and complete on paper.

``make browser`` runs them: it installs what they need besides Chromium.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.answers import write_privacy_page, write_report
from quietmean.core.domain import PrivacyUnit
from quietmean.ledger import Account, Ledger, SpendingRequest
from quietmean.privacy import Charge
from quietmean.protocols import Target
from quietmean.protocols.execution import Execution
from quietmean.report import ReportFacts, write_certificate_report
from quietmean.statistics import Columns
from quietmean.statistics.allocation import made_up
from quietmean.statistics.printed import shown
from quietmean.statistics.tidy import terms_of
from quietmean.studies import StudyOutcome, StudyTerms, conclude
from quietmean.studies.outcome.tables import write_tables
from quietmean.testing import example_execution
from support.browsers import SIZES, axe_path, opened
from support.outcomes import COLUMNS as KIND_COLUMNS
from support.outcomes import EVERY_KIND, ODD, finished, odd_records, run_of
from support.outcomes import PARTIES as KIND_PARTIES

pypdf = pytest.importorskip("pypdf", reason="the browser's tests are run by make browser")

DELTA = 1e-6
PARTIES = 12
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "low": 0, "high": 100},
    {"name": "body_mass_index_at_admission", "low": 10, "high": 60},
    {"name": "crp", "low": 0, "high": 50},
    {"name": "days", "low": 0, "high": 1000},
    {"name": "died", "boolean": True},
    {"name": "arm", "levels": ["usual care", "intervention"]},
]
NUMBERS = COLUMNS[:3]
SURVIVAL: list[dict[str, Any]] = [{"kind": "survival", "time": "days", "event": "died", "by": "arm", "bins": 8}]
MANY: list[dict[str, Any]] = [
    {"kind": "histogram", "column": "age", "bins": 12},
    {"kind": "quantiles", "column": "age"},
    {"kind": "group-means", "column": "body_mass_index_at_admission", "by": "arm"},
    {"kind": "linear-regression", "formula": "body_mass_index_at_admission ~ age + arm"},
    {"kind": "correlation", "columns": ["age", "body_mass_index_at_admission", "crp"]},
    {"kind": "crosstab", "row": "died", "column": "arm"},
]
TOWNS = ["Aachen", "Bern", "Cork", "Dresden", "Essen", "Freiburg", "Graz", "Hull", "Ivry", "Jena", "Kiel", "Lund"]
NAMES = [f"University Hospital {town}" for town in TOWNS]
PAGES = ("means", "survival", "many", "one-machine", "privacy", "certificate")
# As wide as registers have them.
_LONG_LEVELS = ("usual care with an outpatient visit", "intervention, first version", "nobody")
LONG_NAMES = Columns([one.model_copy(update={"levels": _LONG_LEVELS}) if one.name == "arm" else one for one in KIND_COLUMNS])
QUESTIONS = ("How sure is it?", "Who is left out?", "What did it cost?", "Against whom?", "What is left?")


def happened() -> Execution:
    """One party left in the middle, another before its values were in; records differ."""
    execution = example_execution("inca", PARTIES, rounds=6, sigma_star=0.004, sigma_delta=0.008)
    online = execution.trace.online.copy()
    online[3:, 4] = False
    online[1:, 7] = False
    weights = np.linspace(800.0, 2400.0, PARTIES).round()
    trace = type(execution.trace)(online, execution.trace.lost)
    return Execution(execution.protocol, execution.schedule, trace, 0.002, weights)


def outcome_of(columns: list[dict[str, Any]], statistics: list[dict[str, Any]], execution: Execution) -> StudyOutcome:
    """Of records that a public table stands for."""
    study = StudyTerms.parse({"name": "Study", "column": columns, "statistic": statistics, "unit": "record"})
    target = Target(PARTIES, 2.0, DELTA, study.workload.dimension, execution.sensitivity, colluding=2, unit=PrivacyUnit.RECORD)
    mean = study.workload.of_records(made_up(study.workload.columns, 0.25)).mean(axis=0)
    return conclude(study.workload, target, execution, mean)


def account_of(folder: Path, outcome: StudyOutcome) -> Account:
    when = datetime(2026, 3, 1, tzinfo=UTC)
    with Ledger.open(folder / "quietmean.ledger", create=True) as book:
        book.set_budget("patients", 20.0, 1e-5, when=when, unit=PrivacyUnit.RECORD)
        book.reserve(
            "patients", SpendingRequest("first", "Study", Charge.promised(outcome.a_priori), unit=PrivacyUnit.RECORD), when=when
        )
        book.settle("first", outcome.charge(0), when=when)
        return book.account("patients")


@dataclass(frozen=True)
class Made:
    """The pages, and what each has to say."""

    folder: Path
    outcomes: dict[str, StudyOutcome]

    def address(self, page: str) -> str:
        return (self.folder / f"{page}.html").resolve().as_uri()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder, execution = tmp_path_factory.mktemp("pages"), happened()
    outcomes = {
        "means": outcome_of(NUMBERS, [], execution),
        "survival": outcome_of(COLUMNS, SURVIVAL, execution),
        "many": outcome_of(COLUMNS, MANY, execution),
    }
    outcomes["one-machine"] = outcomes["means"]
    origin = {
        "quietmean": "0.1.0",
        "finished": "2026-03-01T12:00:00.000+00:00",
        "plan": "ab" * 32,
        "session": "cd" * 32,
        "sealed": {"digest": "ef" * 32},
        "names": NAMES,
    }
    account, known = account_of(folder, outcomes["means"]), {"origin": origin, "receipt": folder / "study.receipt.json"}
    for name, outcome in outcomes.items():
        local = {"truth": outcome.answers, "killed": (4,)} if name == "one-machine" else {"account": account}
        took = {"messages": 100, "bytes": 10_000, "seconds": 7.0, "notes": ((f"{NAMES[7]} sent no report at the end"),)}
        write_report(folder / f"{name}.html", run_of("Outcome after stroke", outcome, NAMES, **known, **took, **local))
    outcome = outcomes["means"]
    write_privacy_page(folder / "privacy.html", run_of("Outcome after stroke", outcome, NAMES, **known, account=account))
    stated = ReportFacts.of_receipt(outcome.receipt(origin), "study.receipt")
    write_certificate_report(execution, folder / "certificate.html", delta=DELTA, size=2, stated=stated)
    return Made(folder, outcomes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_that_axe_knows_is_wrong(name: str, size: str, scheme: str, made: Made, browser: Any) -> None:
    page = opened(browser, made.address(name), size, scheme)
    # What is folded away is looked at, too.
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.add_script_tag(path=axe_path())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    told = [(one["id"], node["target"], node["failureSummary"]) for one in found for node in one["nodes"][:3]]
    page.close()
    assert told == []


def test_axe_finds_what_is_wrong(made: Made, browser: Any) -> None:
    """The tool does look: a page with grey on grey and a picture without a name does not pass."""
    page = opened(browser, made.address("means"), "screen", "light")
    page.evaluate("document.querySelector('h2').style.color = '#ddd'; document.body.append(document.createElement('img'))")
    page.add_script_tag(path=axe_path())
    found = {one["id"] for one in page.evaluate("axe.run()")["violations"]}
    page.close()
    assert {"color-contrast", "image-alt"} <= found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_five_questions_are_answered_on_the_first_screen(name: str, size: str, made: Made, browser: Any) -> None:
    page = opened(browser, made.address(name), size, "light")
    told = page.evaluate(
        "[...document.querySelectorAll('#at-a-glance > div')].map(one => [one.querySelector('dt').textContent,"
        " one.querySelector('.short').textContent, one.getBoundingClientRect().bottom, one.getBoundingClientRect().right])"
    )
    page.close()
    width, height = SIZES[size]
    assert tuple(one[0] for one in told) == QUESTIONS
    assert all(one[1].strip() for one in told)
    assert max(one[2] for one in told) <= height
    assert max(one[3] for one in told) <= width
    assert NAMES[7] in told[1][1]


@pytest.mark.parametrize("name", PAGES)
def test_a_telephone_never_scrolls_sideways(name: str, made: Made, browser: Any) -> None:
    page = opened(browser, made.address(name), "telephone", "light")
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    beyond = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(one => !one.closest('svg') && one.scrollWidth > one.clientWidth + 1 &&"
        " ['auto', 'scroll'].includes(getComputedStyle(one).overflowX)).map(one => one.outerHTML.slice(0, 80))"
    )
    whole = page.evaluate("document.documentElement.scrollWidth")
    # Every cell with an estimate, an error or an interval is within the screen, and is seen.
    cells = page.evaluate(
        "[...document.querySelectorAll('tbody td')].filter(one => one.offsetParent !== null)"
        ".map(one => one.getBoundingClientRect()).map(one => [one.left, one.right, one.width])"
    )
    page.close()
    assert whole <= SIZES["telephone"][0]
    assert beyond == []
    assert cells
    assert all(left >= 0 and right <= SIZES["telephone"][0] for left, right, _ in cells)


def squeezed(text: str) -> str:
    """Lines of a page of paper break anywhere."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("name", PAGES)
def test_paper_has_every_cell_of_every_table(name: str, made: Made, browser: Any) -> None:
    page = opened(browser, made.address(name), "screen", "light")
    cells = page.evaluate("[...document.querySelectorAll('th, td, #at-a-glance dd, .facts dd')].map(one => one.textContent)")
    paper = pypdf.PdfReader(BytesIO(page.pdf(format="A4", print_background=False)))
    page.close()
    text = squeezed(" ".join(sheet.extract_text() for sheet in paper.pages))
    assert len(cells) > 30
    assert [one for one in cells if squeezed(one) not in text] == []


def cut_on_paper(page: Any) -> list[str]:
    """What lies beyond the right margin; the page is closed. A4 less two margins of 14 mm is 687 CSS pixels."""
    page.set_viewport_size({"width": 687, "height": 1000})
    page.emulate_media(media="print")
    beyond: list[str] = page.evaluate(
        "[...document.querySelectorAll('th, td, dd, svg')].filter(one => one.getBoundingClientRect().right > 688)"
        ".map(one => one.textContent.slice(0, 40))"
    )
    page.close()
    return beyond


@pytest.mark.parametrize("name", PAGES)
def test_paper_is_wide_enough(name: str, made: Made, browser: Any) -> None:
    """No cell is cut at the right margin."""
    page = opened(browser, made.address(name), "screen", "light")
    assert cut_on_paper(page) == []


@pytest.mark.parametrize("name", ["means", "survival", "many"])
def test_every_estimate_has_both_intervals_in_the_tables(name: str, made: Made, browser: Any) -> None:
    """Of what the study found, not of what the page says."""
    page = opened(browser, made.address(name), "screen", "light")
    text = squeezed(" ".join(page.evaluate("[...document.querySelectorAll('td')].map(one => one.textContent)")))
    page.close()
    for answer in made.outcomes[name].answers:
        found = answer.estimates
        if found.summary.get("table"):
            continue
        assert found.of_population is not None
        for term in terms_of(answer.to_json()):
            texts = shown(term)
            assert squeezed(texts.noise) in text
            assert squeezed(texts.population) in text


@pytest.fixture(scope="module", params=[0.5, 1e4], ids=["some noise", "all hidden"])
def every_kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with every kind of statistic."""
    folder = tmp_path_factory.mktemp("kinds")
    outcome = finished(*EVERY_KIND, noise=request.param, columns=LONG_NAMES)
    names = [f"{NAMES[party]}" for party in range(KIND_PARTIES)]
    origin = {"quietmean": "0.1.0", "finished": "2026-03-01T12:00:00.000+00:00"}
    known = {"origin": origin, "receipt": folder / "kinds.receipt.json", "messages": 100, "bytes": 10_000, "seconds": 7.0}
    write_report(folder / "kinds.html", run_of("Every kind", outcome, names, **known))
    return (folder / "kinds.html").resolve().as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_fits_a_telephone(scheme: str, every_kind: str, browser: Any) -> None:
    page = opened(browser, every_kind, "telephone", scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    whole = page.evaluate("document.scrollingElement.scrollWidth")
    # What is wider has a box of its own.
    beyond = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(one => !one.closest('.wide, .picture, svg') &&"
        " one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"
    )
    says = page.evaluate("[...document.querySelectorAll('.says')].map(one => one.textContent)")
    page.close()
    assert whole <= SIZES["telephone"][0]
    assert beyond == []
    assert len(says) == len(EVERY_KIND)
    assert min(map(len, says)) > len("The mean.")


def test_no_text_of_a_figure_is_cut(every_kind: str, browser: Any) -> None:
    """Names in margins, ticks, and lines under an axis are within their picture."""
    page = opened(browser, every_kind, "screen", "light")
    cut = page.evaluate(
        "[...document.querySelectorAll('.plot svg text')].map(one => [one.textContent, one.getBoundingClientRect(),"
        " one.closest('svg').getBoundingClientRect()]).filter(([_, own, whole]) => own.left < whole.left - 1 ||"
        " own.right > whole.right + 1 || own.bottom > whole.bottom + 1 || own.top < whole.top - 1).map(([text]) => text)"
    )
    page.close()
    assert cut == []


def test_every_kind_is_whole_on_paper(every_kind: str, browser: Any) -> None:
    page = opened(browser, every_kind, "screen", "light")
    assert cut_on_paper(page) == []


def test_tables_are_whole_on_paper(tmp_path: Path, browser: Any) -> None:
    write_tables(finished(*EVERY_KIND, columns=ODD, records=odd_records()).to_json(), tmp_path / "tables.html")
    page = opened(browser, (tmp_path / "tables.html").resolve().as_uri(), "screen", "light")
    assert cut_on_paper(page) == []
