"""The privacy page: complete, self-contained, right in its numbers, and made by the commands of its page in
the documentation."""

from __future__ import annotations

import html
import math
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.answers import write_privacy_page
from quietmean.cli.main import main
from quietmean.core.bounds import APriori
from quietmean.core.domain import PrivacyUnit
from quietmean.ledger import Ledger, Refund, SpendingRequest
from quietmean.privacy import Charge
from quietmean.protocols.execution import Execution
from quietmean.report import OfficerPage, ReportFacts
from quietmean.report.released import released_of
from quietmean.report.words import rounded_down, rounded_up
from quietmean.testing import example_execution
from support.command_lines import fails
from support.outcomes import DELTA, run_of, studied
from support.pages import DOCS, commands
from support.refusals import refused_rows

WHEN = datetime(2026, 3, 1, tzinfo=UTC)


def execution(**parameters: Any) -> Execution:
    return example_execution("inca", 8, rounds=4, **{"sigma_star": 2.0, "sigma_delta": 4.0} | parameters)


def page_of(happened: Execution, **stated: Any) -> OfficerPage:
    privacy = happened.privacy(DELTA)
    return OfficerPage(happened, privacy, privacy.coalitions(1), ReportFacts(**stated))


def words_of(text: str) -> str:
    """What a reader sees."""
    plain = re.sub(r"<style>.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(plain).replace("\u00a0", " ").split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a receipt, and a ledger that it was charged to."""
    outcome = studied(execution(), 1)
    outcome.save_receipt(tmp_path / "receipt.json", {"names": [f"clinic {party}" for party in range(8)], "finished": "today"})
    with Ledger.open(tmp_path / "quietmean.ledger", create=True) as book:
        book.set_budget("patients", 5.0, 1e-5, when=WHEN, unit=PrivacyUnit.PARTY)
        promised = Charge.promised(outcome.a_priori)
        for study in ("first", "second"):
            book.reserve(
                "patients", SpendingRequest(study, f"<{study}>", promised, unit=PrivacyUnit.PARTY, refund=True), when=WHEN
            )
        book.settle("first", outcome.charge(0), when=WHEN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_every_command_of_its_docs_page_works_and_shows_what_an_officer_asks(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, certify = asked = commands("answer/officer.md")
    execution().save(folder / "execution.json")
    main(shlex.split(certify)[1:])
    assert "against parties 0, 4, 7 colluding" in capsys.readouterr().out
    asked.remove(certify)
    for line in asked:
        program, *arguments = shlex.split(line)
        assert program == "quietmean"
        (folder / "privacy.html").unlink(missing_ok=True)
        main(arguments)
        assert "explained in privacy.html" in capsys.readouterr().out
        words = words_of((folder / "privacy.html").read_text(encoding="utf-8"))
        for expected in (
            "What is protected: all that one party contributes",
            "any coalition of 1 party",
            "Released: 1 number what released standard error 95 % interval",
            "Refund rule",
            "clinic 0, clinic 1",
            "finished today",
            "What all of this assumes",
        ):
            assert expected in words
        assert ("Budget: " in words) == ("--ledger" in line)
    with Ledger.open(folder / "quietmean.ledger") as book:
        account = book.account("patients")
    assert f"Used ε = {rounded_up(account.charged_epsilon)} " in words
    assert f"Left ε = {rounded_down(account.remaining_epsilon)} " in words
    assert "<first> 2026-03-01 final" in words
    assert "<second> 2026-03-01 reserved" in words


@refused_rows("options_that_show_nothing_are_refused")
def test_options_that_show_nothing_are_refused(
    options: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(["verify", "receipt", "receipt.json", *options], capsys, told)
    assert not (folder / "x.html").exists()


def test_a_page_after_a_study_needs_nothing_else_and_is_the_same_twice(tmp_path: Path) -> None:
    outcome = studied(execution(), 1)
    texts = []
    for path in (tmp_path / "one.html", tmp_path / "two.html"):
        write_privacy_page(path, run_of("<b>study</b>", outcome, [f"<i>{party}</i>" for party in range(8)]))
        texts.append(path.read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    assert not re.search(r"(src|href)=|url\(|@import|<script|<b>|<i>", texts[0])
    assert "<b>study</b>" in words_of(texts[0])
    assert len(texts[0]) < 40_000


def test_odds_are_bounds() -> None:
    page = page_of(execution())
    told = page.sections()["meaning"]
    for place, epsilon in enumerate((page.certificate.epsilon_a_priori, page.certificate.max_epsilon)):
        assert epsilon is not None
        for row, chance in zip(told["rows"], (0.5, 0.1, 0.01), strict=True):
            exact = 100 * chance * math.exp(epsilon) / (1 - chance + chance * math.exp(epsilon))
            shown = float(row[1 + place].removesuffix("\u00a0%"))
            assert exact - 1e-9 <= shown <= exact + 0.1
    # The best guess between two values behind Gaussian noise of mu is right with probability Phi(mu / 2).
    mu = page.certificate.a_priori
    assert mu is not None
    best = 0.5 + 0.5 * math.erf(mu.mu / 2 / math.sqrt(2))
    [shown] = re.findall(r"at most ([\d.]+)\u00a0%", told["average"])
    assert 100 * best <= float(shown) <= 100 * best + 0.1


def test_infinite_loss_is_said_to_be_infinite() -> None:
    clear = page_of(example_execution("gossip", 5, rounds=3)).sections()
    assert not clear["cost"]["verdict"]["kept"]
    assert "no bound" in clear["cost"]["heading"]
    assert clear["meaning"]["average"] == ""
    # Equal columns stand once.
    assert [row[1:] for row in clear["meaning"]["rows"]] == [["100\u00a0%"]] * 3
    assert clear["protected"]["rows"][0][0] == "Warning"


def test_the_verdict_is_about_what_was_promised() -> None:
    page = page_of(execution(), target=1e-3)
    assert "cost more than the target" in page.sections()["cost"]["verdict"]["text"]
    between = page_of(execution(), target=(page.certificate.max_epsilon + (page.certificate.epsilon_a_priori or 0.0)) / 2)
    assert "all that could be promised" in between.sections()["cost"]["verdict"]["text"]
    kept = page_of(execution(), target=page.certificate.epsilon_a_priori)
    assert [each.sections()["cost"]["verdict"]["kept"] for each in (page, between, kept)] == [False, False, True]
    privacy = page.privacy
    terms = replace(privacy.terms, promise=lambda size, corrupt: APriori(1e-3, "nothing"))
    broken = replace(page, certificate=replace(privacy.coalitions(1), terms=terms))
    assert "more than was promised" in broken.sections()["cost"]["verdict"]["text"]
    assert not broken.sections()["cost"]["verdict"]["kept"]


def test_the_refund_rule_is_that_of_account_and_protocol(folder: Path) -> None:
    with Ledger.open(folder / "quietmean.ledger") as book:
        settled = book.account("patients")
    never = replace(settled, refund=Refund.NEVER)
    assert "if that is less" in page_of(execution(), account=settled).sections()["budget"]["notes"][-1]
    assert "never gives anything back" in page_of(execution(), account=never).sections()["budget"]["notes"][-1]
    grid = execution(value_bits=32, grid=2.0**-20, largest_value=64.0, dimension=1)
    assert "all of it stays charged" in page_of(grid, account=settled).sections()["budget"]["notes"][-1]


def test_what_a_file_does_not_say_is_said_not_to_be_known() -> None:
    told = page_of(execution()).sections()
    assert "does not say" in dict(told["protected"]["rows"])["Protected"]
    assert "does not say" in told["released"]["note"]
    assert "No ledger" in told["budget"]["heading"]
    strange = {"result": [1], "origin": {"names": ["a"]}, "certify": {"epsilon": "inf"}, "parties": 8}
    stated = ReportFacts.of_receipt(strange, "file")
    assert (stated.released, stated.names, stated.target) == ([], (), math.inf)


def test_answers_of_any_shape_are_listed() -> None:
    found = released_of(
        [
            {"name": "mean(age)", "terms": [""], "estimate": 3.0, "standard_error": 0.5},
            {
                "name": "table",
                "terms": ["f yes", "f no"],
                "groups": ["f", "f"],
                "estimate": {"f": {"yes": 1.0, "no": 2}},
                "standard_error": {"f": {"yes": "inf"}},
            },
            {"name": "hidden by noise", "terms": [""], "estimate": None},
            {"name": "nothing"},
        ]
    )
    assert [one.name for one in found] == ["mean(age)", "table, f, yes", "table, f, no", "hidden by noise"]
    assert np.isnan(found[-1].estimate)
    assert np.isinf([one.error for one in found[1:]]).all()


def test_what_is_left_is_rounded_down() -> None:
    assert [rounded_down(value) for value in (0.12399, 1.0, 0.0, -1.0, 12345.6)] == ["0.123", "1.00", "0", "0", "12,300"]
    assert rounded_down(math.inf) == "∞"


def test_what_the_readme_shows_names_the_figure_of_before_first() -> None:
    shown = (DOCS.parent / "README.md").read_text()
    guaranteed = re.search(r"^ +Privacy +epsilon [\d.]+ \(delta [^)]+\) per \w+, guaranteed, against ", shown, re.MULTILINE)
    assert guaranteed is not None
    assert not re.search(r"epsilon \d|realised", shown[: guaranteed.start()])
    assert "`--details` shows what is assumed" in shown[guaranteed.end() :]


def test_a_page_is_called_after_the_study_not_after_its_file() -> None:
    """Whatever somebody called the receipt; one that names no study has only the file's name."""
    receipt = {"origin": {"study": {"study": "ages"}}}
    assert ReportFacts.of_receipt(receipt, "study-north.receipt").title == "ages"
    unnamed: dict[str, Any]
    for unnamed in ({}, {"origin": {}}, {"origin": {"study": "ages"}}, {"origin": {"study": {"study": 3}}}):
        assert ReportFacts.of_receipt(unnamed, "study-north.receipt").title == "study-north.receipt"
