"""Pages about plans are those of their tools: words and the figures that can be computed in seconds.

A page of an earlier accounting is red: each ends with figures that any change of the accounting changes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
# Each with the tool that makes it.
PAGES = {"gate-cost.md": "gate_cost"}


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_of_the_accounting_that_runs(page: str) -> None:
    from page_stamp import BEGIN, quick

    (stamped,) = [line for line in text(page).splitlines() if line.startswith(BEGIN)]
    for figure in quick():
        assert figure in stamped, f"bounds have changed: run python tools/{PAGES[page]}.py"


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_pages_are_of_the_accounting_of_many_parties() -> None:
    from page_stamp import stamp

    for page, tool in PAGES.items():
        assert f"\n{stamp()}" in text(page), f"bounds have changed: run python tools/{tool}.py"


@pytest.mark.usefixtures("tools")
def test_what_the_gate_costs_is_that_of_the_tool() -> None:
    """The words and the cells."""
    import gate_cost as tool

    page = text("gate-cost.md")
    assert page.startswith(tool.HEAD), "run python tools/gate_cost.py"
    lines = page.removeprefix(tool.HEAD).strip().splitlines()[: len(tool.CELLS)]
    assert [line.split(" | ")[0] for line in lines] == [f"| {one[0]}, {one[1]}, {one[2]:.0%}" for one in tool.CELLS]


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_a_cell_of_what_the_gate_costs_is_computed_anew() -> None:
    """But for the seconds."""
    import gate_cost as tool

    made = tool.row(*tool.CELLS[0]).rsplit(" | ", 2)[0]
    assert f"{made} | " in text("gate-cost.md"), "run python tools/gate_cost.py"


def test_no_tool_is_left_out() -> None:
    """Every tool that asks for the stamp makes a page that is tested here."""
    stamped = {path.stem for path in (ROOT / "tools").glob("*.py") if "page_stamp import" in path.read_text(encoding="utf-8")}
    assert stamped == set(PAGES.values())
