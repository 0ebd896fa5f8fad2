"""The page about first looks is that of the tool: its figures and sentences follow from the lines of its columns."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from support.programs import ROOT, module_of

tool = module_of("tools", "look_bars")
PAGE = ROOT / "docs" / "measurements/look-bars.md"


@pytest.fixture
def page(tool: ModuleType) -> str:
    import page_figures

    return page_figures.without(PAGE.read_text(encoding="utf-8"))


def test_figures_and_sentences_follow_from_the_lines(tool: ModuleType, page: str) -> None:
    lines = tool.lines_of(page)
    assert len(lines) == 44 * len(tool.DRAWS)
    assert len({line[0] for line in lines}) == 11
    assert tool.written(lines).strip() == page.strip(), "run python tools/look_bars.py"


def test_a_line_that_gets_worse_changes_what_is_said(tool: ModuleType, page: str) -> None:
    """A column that was near, and is far now, is named and counted."""
    lines = tool.lines_of(page)
    place = next(place for place, line in enumerate(lines) if float(line[tool.HEADS.index("error")]) <= tool.RATIO_BAR)
    worse = dict(zip(tool.HEADS, lines[place], strict=True)) | {
        "error": "9.87",
        "near": "0 %",
        "near or cut": "0 %",
        "clipped": "0 %",
    }
    said = tool.written([*lines[:place], [*worse.values()], *lines[place + 1 :]]).partition(tool.row(tool.HEADS))[0]
    assert said.count("9.87") == 1
    assert said.count(f"{worse['column']} of {worse['data']} (0)") >= 1
    near = [int(re.findall(r"median, with sampling \|.*?\| (\d+) of 44", text)[0]) for text in (page, said)]
    assert near[1] == near[0] - 1


def test_the_summary_of_evidence_says_what_the_page_says(page: str) -> None:
    text = (ROOT / "docs" / "trust" / "how-well.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"(?ms)^- \*\*First looks\*\*.*?(?=\n- )", text)
    columns, far, times, held = re.findall(
        r"Of (\d+) real columns, (\d+) have.*?than ([\d.]+) times.*?mean in ([\d.]+ %)", line, re.S
    )[0]
    assert f"In the median the error is more than {times} times the least in {far} of {columns} columns" in page
    assert f"| the same after looks without `cut` | - | {held} (" in page
