"""The page about models by rounds is that of the tool: the same models, statistics and words, and intervals that hold."""

from __future__ import annotations

import re
from types import ModuleType

from support.programs import ROOT, module_of

tool = module_of("tools", "model_bars")


def rows(text: str, names: int = 1) -> list[list[str]]:
    import page_parts

    return list(page_parts.said_again([line for line in text.splitlines() if line.startswith("|")][2:], names))


def test_the_page_is_that_of_the_tool(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "measurements/model-bars.md").read_text(encoding="utf-8")
    runs, tests, studies = (int(number) for number in re.findall(r"Each line is (\d+) studies", page))
    assert runs >= 40
    assert tests >= 300
    assert studies >= 100
    more = max(tool.MORE.values())
    heads = (tool.MODELS.format(runs=runs, more=more), tool.TEST_HEAD.format(tests=tests), tool.CASE_HEAD.format(cases=studies))
    for part in (tool.HEAD, *heads):
        assert part in page, "run python tools/model_bars.py"
    (fits,) = (int(number) for number in re.findall(r"Each line is (\d+) fits", page))
    assert tool.SLOPE_HEAD.format(fits=fits, drawn=tool.DRAWN, records=tool._RECORDS) in page
    models, levels, cases, slopes = re.split("## Agreement|## On data that fit|## Least squares", page)
    settings = [(f"{n:,}", f"{epsilon:g}") for epsilon in tool.EPSILONS for n in tool.SIZES]
    assert [tuple(row[:3]) for row in rows(models)] == [(one.what, *own) for one in tool.QUESTIONS for own in settings]
    asked = [tool.case_text(one) for one in tool.LEVEL_QUESTIONS]
    assert [tuple(row[:3]) for row in rows(levels)] == [(text, *own) for text in asked for own in settings]
    asked = [(one.data, one.formula, term) for one in tool.SLOPES for term in [*one.columns][1:]]
    found = sorted(tuple(row[:4]) for row in rows(slopes, 3))
    assert found == sorted((*one, f"{epsilon:g}") for one in asked for epsilon in tool.EPSILONS)
    drawn = [(tool.case_text(one), one.data) for one in tool.CASES]
    assert [tuple(row[:4]) for row in rows(cases, 2)] == [(*one, *own) for one in drawn for own in settings]


def test_wrong_truth_is_seen_in_a_line(tool: ModuleType) -> None:
    question = tool.QUESTIONS[0]
    terms = len(question.model(4.0)._design_for(1).names)
    held = tool.measured(question, 500, 4.0, 2, ([50.0] * terms, [1.0] * terms))
    assert held.known > 0
    assert held.population == 0
