"""A survey by link in Firefox: the page seals in its worker, sends, and knows its receipt when it is opened again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.form import FormPage
from quietmean.studies.agreement.contribution import PUBLISHED, RESULT_PAGE
from support import form_time
from support.form_keys import Keys, answered_by_keys
from support.in_firefox import PATIENCE, Firefox, downloads_of, firefox
from support.survey import Survey

ARRIVED = "has arrived"
# Pay and hired; what is not chosen is not answered.
CELLS = [41000.5, np.nan, 4443, np.nan, np.nan]


@pytest.fixture
def port(free_ports: Callable[[int], list[int]]) -> int:
    return free_ports(1)[0]


@pytest.fixture
def survey(tmp_path: Path, port: int) -> Survey:
    (tmp_path / "survey").mkdir()
    return Survey(tmp_path / "survey", name="Wages <b>&amp;</b>", drop=f"http://127.0.0.1:{port}")


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Firefox]:
    with firefox(tmp_path / "profile") as window:
        yield window


def text_of(window: Firefox, selector: str) -> str:
    return str(window.script("return document.querySelector(arguments[0]).innerText", selector))


def visit(window: Firefox, survey: Survey, number: int | None, state: str = "good for one answer") -> None:
    """As from a mail, or without a link: another fragment alone loads nothing."""
    window.goto("about:blank")
    window.goto(f"{survey.drop}/" + (f"#{survey.fragment(number)}" if number else ""))
    window.wait("#state", state)


def fill(window: Firefox) -> None:
    window.type("#answer-0", "41000.5")
    window.script("document.querySelector('#answer-2').value = '2012-03-01'")


def agree(window: Firefox, state: str = ARRIVED) -> None:
    window.click("#yes")
    window.click("#send")
    window.wait("#state", state)


def downloaded(profile: Path, end: str) -> bytes:
    """The one file with this end, once all of it is there."""
    until = time.monotonic() + PATIENCE
    while not (found := list(downloads_of(profile).glob(f"*{end}"))) or list(downloads_of(profile).glob("*.part")):
        assert time.monotonic() < until, "nothing is downloaded"
        time.sleep(0.02)
    return found[0].read_bytes()


def test_an_answer_arrives_once_and_its_receipt_is_kept(survey: Survey, port: int, window: Firefox) -> None:
    with survey.served(port) as box:
        visit(window, survey, 1)
        assert window.script("return location.href") == f"{survey.drop}/"
        assert text_of(window, "h1") == "Wages <b>&amp;</b>"
        fill(window)
        agree(window)
        assert len(box) == 1
        facts = text_of(window, "#receipt-facts")
        # Closed and opened again: nothing is made or sent anew.
        visit(window, survey, 1, ARRIVED)
        assert text_of(window, "#receipt-facts") == facts


# As WebDriver names them.
PRESSED = {"Tab": "\ue004", "Enter": "\ue007", "Space": " ", "ArrowUp": "\ue013"}


def test_the_keyboard_is_enough(survey: Survey, port: int, window: Firefox) -> None:
    with survey.served(port) as box:
        visit(window, survey, None, "Give your voucher first")
        keys = Keys(lambda key: window.press(PRESSED.get(key, key)), window.script, lambda text: window.wait("#state", text))
        answered_by_keys(keys, survey.fragment(2))
        assert len(box) == 1


def test_a_second_device_learns_it_before_anything_is_typed(survey: Survey, port: int, window: Firefox, tmp_path: Path) -> None:
    with survey.served(port) as box:
        visit(window, survey, 6)
        fill(window)
        agree(window)
        with firefox(tmp_path / "other") as other:
            visit(other, survey, 6, "An answer with this link came on")
            assert not other.script("return document.querySelector('#answers').checkVisibility()")
            assert text_of(other, "#receipt-facts") == text_of(window, "#receipt-facts")
            visit(other, survey, 7)
        assert len(box) == 1


def test_offline_and_ended_nothing_is_lost_and_members_open_what_was_meant(
    survey: Survey, port: int, window: Firefox, tmp_path: Path
) -> None:
    with survey.served(port):
        visit(window, survey, 3)
        fill(window)
    agree(window, "not sent yet")
    # It is offered for download before it is sent.
    window.click("#file")
    file = downloaded(tmp_path / "profile", ".contribution")
    with survey.served(port) as box:
        # Closed, and opened without the link: the file that waited is sent, whose answers are those that were meant.
        visit(window, survey, None, ARRIVED)
        assert len(box) == 1
        whole = survey.program.numbers(np.array([CELLS, CELLS]), np.array([[0.0], [1 - 2**-53]]))
        numbers = survey.numbers_of(file)
        assert ((numbers >= whole[0]) & (numbers <= whole[1])).all()
        result = tmp_path / "m1.sums"
        result.write_bytes(survey.result_of([file]))
        window.type("#logs", str(result))
        window.wait("#fate", "Your answer is counted in this result.")
        # With the members' logs it shows the page that they signed, and no other one.
        page = survey.publish([file], [file], {})
        published = sorted((survey.folder / "box" / PUBLISHED).iterdir())
        for content, state in ((page, "These members signed the page"), (page + b" ", "Too few members signed")):
            (survey.folder / "box" / PUBLISHED / f"m1{RESULT_PAGE}").write_bytes(content)
            window.type("#logs", "\n".join(map(str, published)))
            window.wait("#signers", state)
            shown = window.script("return document.querySelector('#result-page').checkVisibility()")
            assert shown == (content == page)


def test_a_comma_is_asked_about_and_a_changed_page_asks_nothing(survey: Survey, port: int, window: Firefox) -> None:
    with survey.served(port) as box:
        visit(window, survey, 4)
        window.type("#answer-0", "41,000")
        assert text_of(window, "#answer-0-note") == "pay is not clear. Write 41000 or 41."
        window.click("#yes")
        window.click("#send")
        assert text_of(window, "#no-yes") == text_of(window, "#answer-0-note")
        window.click("#answer-0-note + .buttons button")
        assert window.script("return document.querySelector('#answer-0').value") == "41000"
        assert len(box) == 0
    for before, after, state in (
        (survey.sealed.instance[:20].encode(), b"A" * 20, "This page was changed"),
        (b'"use strict";\n', b'"use strict";\nalert(1);\n', "The page checks this study."),
    ):
        assert before in survey.page.content
        with survey.served(port, FormPage(survey.page.content.replace(before, after), survey.page.policy)):
            visit(window, survey, 5, state)
            assert not window.script("return document.querySelector('#answers').checkVisibility()")


def test_nobody_waits_from_yes_to_the_receipt(port: int, window: Firefox, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    survey = form_time.large_survey(tmp_path / "large", f"http://127.0.0.1:{port}")
    with survey.served(port) as box:
        for number in 1, 2, 3:
            visit(window, survey, number)
            window.script(form_time.FILL)
            window.script(form_time.SEND)
            window.wait("#state", ARRIVED)
            waited: Any = window.script(f"return {form_time.WAITED}")
            print(f"{survey.session.layout(1.0).bits} bits: {float(waited) / 1000:.3f} s")
            assert float(waited) / 1000 < form_time.LONGEST
        assert len(box) == 3
