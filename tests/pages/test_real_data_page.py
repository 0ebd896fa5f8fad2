"""The page about real data is that of the tool: the same data sets, questions and words, and every line has a verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_that_of_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.delitem(sys.modules, "real_data_bars", raising=False)
    import page_figures
    import page_parts
    import real_data_bars as tool
    import synthetic_bars

    page = page_figures.without((ROOT / "docs" / "measurements/real-data-bars.md").read_text())
    assert page.startswith(tool.HEAD), "run python tools/real_data_bars.py"
    rows = synthetic_bars.part_of(page)
    assert rows.startswith(synthetic_bars.HEAD), "run python tools/synthetic_bars.py"
    lines = page.removeprefix(tool.HEAD).removesuffix(rows).splitlines()
    asked = [(data.name, f"`{question}`") for data in (make() for make in tool.SETS) for question in data.questions]
    assert [tuple(cells[:2]) for cells in page_parts.said_again(lines)] == asked, "run python tools/real_data_bars.py"
    assert all(line.rstrip(" |").endswith(("kept", "**low**")) for line in lines)
    assert len(tool.SETS) >= 6


def test_a_line_is_the_worst_of_its_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import pooled_references
    import real_data_bars as tool

    wine = tool.wine()
    assert tool.measured(wine, "mean(alcohol)", 40, 1).rstrip(" |").endswith("kept")
    # A reference that says something else is found.
    right = pooled_references.REFERENCES["mean"]
    monkeypatch.setitem(pooled_references.REFERENCES, "mean", lambda data, column: {"": right(data, column)[""] + 1})
    assert tool.measured(wine, "mean(alcohol)", 40, 1).rstrip(" |").endswith("**low**")
