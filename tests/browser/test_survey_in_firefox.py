"""A survey by link in Firefox: the page seals in its worker, sends, and knows its receipt when it is opened again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.in_firefox import firefox
from support.survey import Survey

FILL = "document.querySelector('#answer-0').value = '41000.5'; document.querySelector('#answer-2').value = '2012-03-01'"


def test_an_answer_arrives_once_and_its_receipt_is_kept(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    (port,) = free_ports(1)
    (tmp_path / "survey").mkdir()
    survey = Survey(tmp_path / "survey", name="Wages <b>&amp;</b>", drop=f"http://127.0.0.1:{port}")
    address = f"{survey.drop}/#{survey.fragment(1)}"
    with survey.served(port) as box, firefox(tmp_path / "profile") as window:
        window.goto(address)
        window.wait("#state", "good for one answer")
        assert window.script("return location.href") == f"{survey.drop}/"
        assert window.script("return document.querySelector('h1').innerText") == "Wages <b>&amp;</b>"
        window.script(FILL)
        window.click("#yes")
        window.click("#send")
        window.wait("#state", "has arrived")
        assert len(box) == 1
        digest = window.script("return document.querySelector('#receipt-facts').innerText")
        # Closed and opened again: nothing is made or sent anew.
        window.goto("about:blank")
        window.goto(address)
        window.wait("#state", "has arrived")
        assert window.script("return document.querySelector('#receipt-facts').innerText") == digest
        assert len(box) == 1
