"""The page about what statistics are held to is that of the tool: its words, its populations, a verdict in every line."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_that_of_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import coverage_bars
    import page_figures
    import page_parts
    import statistics_bars as tool
    from coverage_populations import all_of_them

    page = page_figures.without((ROOT / "docs" / "measurements/statistics-bars.md").read_text(encoding="utf-8"))
    assert page.startswith(tool.HEAD), "run python tools/statistics_bars.py"
    assert page.endswith(tool.TAIL), "run python tools/statistics_bars.py"
    bars, coverages = page.removeprefix(tool.HEAD).removesuffix(tool.TAIL).split(coverage_bars.HEAD)
    asked = [
        [f"{population.what}: `{population.text}`", term or "all", f"{size:,}"]
        for population in all_of_them()
        for size in coverage_bars.SIZES
        for term in population.terms
    ]
    lines = coverages.splitlines()
    assert [cells[:3] for cells in page_parts.said_again(lines)] == asked, "run python tools/statistics_bars.py"
    assert all(line.rstrip(" |").endswith(("kept", "near", "**low**", "**wide**", ")")) for line in lines)
    assert all("| kept |" in line or "**falls short**" in line for line in bars.splitlines())
    assert len(bars.splitlines()) >= len(tool.PARTS)


def test_lines_of_a_run_that_was_ended_are_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from page_parts import resumed

    texts = iter(["one\n", "two\n"])
    assert [resumed(tmp_path / "lines", name, lambda: next(texts)) for name in ("a", "a", "b")] == ["one\n", "one\n", "two\n"]
    assert resumed(None, "a", lambda: "anew\n") == "anew\n"
