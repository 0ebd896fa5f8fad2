"""The page of ten figures says what the measurements say that it links."""

from __future__ import annotations

import re

import pytest

from support.pages import DOCS

PAGE = DOCS / "trust" / "how-well.md"
ROWS = re.findall(r"(?m)^\| .*? \| (.*?) \| \[.*?\]\(\.\./(measurements/.*?)\) \|$", PAGE.read_text("utf-8"))
# Numbers of a table of performance, and the page that measured them.
COSTS = re.findall(r"(?m)^\| [^|]* \| ([^|\[]*) \|$", PAGE.read_text("utf-8").partition("## Time, memory and bytes")[2])


def figures(text: str) -> list[str]:
    return re.findall(r"\d[\d,.]*(?:e\d+)?", text)


def test_there_are_ten() -> None:
    assert len(ROWS) == 10


@pytest.mark.parametrize(("measured", "page"), ROWS, ids=[measured for measured, _ in ROWS])
def test_a_figure_is_on_the_page_that_it_links(measured: str, page: str) -> None:
    known = set(figures((DOCS / page).read_text("utf-8")))
    first = measured.partition(",")[0]
    assert figures(first)
    assert {number.rstrip(",.") for number in figures(first)} <= {number.rstrip(",.") for number in known}, (measured, page)


def test_times_are_those_of_the_measurements() -> None:
    pages = ("performance", "scale", "committee-bars")
    known = {n.rstrip(",.") for page in pages for n in figures((DOCS / "measurements" / f"{page}.md").read_text("utf-8"))}
    assert len(COSTS) >= 9
    for cost in COSTS[1:]:
        assert {number.rstrip(",.") for number in figures(cost)} <= known, cost
