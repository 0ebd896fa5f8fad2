"""Pages that compare plans are those of their tools: words, protocols, and the figures that can be computed in seconds.

A page of an earlier accounting is red: each ends with figures that any change of the accounting changes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from quietmean.protocols import registry

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
# Each with the tool that makes it.
PAGES = {
    "measurements/protocol-map.md": "protocol_map",
    "measurements/comparison.md": "compare_protocols",
    "measurements/gate-cost.md": "gate_cost",
    "proofs/inca.md": "inca_plans",
}


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def rows(page: str, first: str) -> list[list[str]]:
    """The cells of all lines of tables that begin so."""
    return [line.strip("| ").split(" | ") for line in text(page).splitlines() if line.startswith(f"| {first}")]


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_of_the_accounting_that_runs(page: str) -> None:
    from page_stamp import BEGIN, quick

    (stamped,) = [line for line in text(page).splitlines() if line.startswith(BEGIN)]
    assert quick() in stamped, f"bounds have changed: run python tools/{PAGES[page]}.py"


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_pages_are_of_the_accounting_of_many_parties() -> None:
    from page_stamp import stamp

    for page, tool in PAGES.items():
        assert f"\n{stamp()}" in text(page), f"bounds have changed: run python tools/{tool}.py"


def on_the_map() -> list[str]:
    """The protocols with a column. One that came since gets its own with the next ``make pages``."""
    (heads,) = (
        line
        for line in text("measurements/protocol-map.md").splitlines()
        if line.startswith("| parties, colluding, dropouts | `")
    )
    names = re.findall("`(.*?)`", heads)
    assert len(names) >= 9
    return names


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_the_map_is_that_of_the_tool(every: int) -> None:
    """The words, and the protocols that are planned at once, in some cells or in all."""
    import protocol_map as tool

    page = text("measurements/protocol-map.md")
    for part in (tool.INTRODUCTION, *tool.HEADINGS.values(), tool.EVERY, tool.COSTS):
        assert part in page, "run python tools/protocol_map.py"
    quick = [name for name in on_the_map() if name != "inca"]
    for cell in list(tool.cells())[::every]:
        found = tool.measured(cell, tuple(quick))
        (line,) = rows("measurements/protocol-map.md", f"{cell.words} | {found[quick[0]].words} |")
        cells = dict(zip(on_the_map(), line[1:], strict=True))
        assert {name: cells[name] for name in quick} == {name: tool.words_of(found, name) for name in quick}, cell


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_cells_of_the_map_are_those_of_the_tool() -> None:
    import protocol_map as tool
    from page_parts import row

    for cell in (tool.Cell(10, 1, 0.0), tool.Cell(10, 1, 0.1), tool.Cell(10, 5, 0.2)):
        assert row(tool.line_of(cell, tool.measured(cell))) in text("measurements/protocol-map.md"), (
            "run python tools/protocol_map.py"
        )


@pytest.mark.usefixtures("tools")
def test_the_best_of_the_map_are_the_least_of_its_table() -> None:
    import protocol_map as tool

    lines = {cell: rows("measurements/protocol-map.md", f"{cell.words} |")[0][1:] for cell in tool.cells()}
    best = [
        line[2:] for line in rows("measurements/protocol-map.md", "") if len(line) == 2 + len(tool.DROPOUTS) and line[0].isdigit()
    ]
    for place, cell in enumerate(tool.cells()):
        errors = {name: float(word.split()[0]) for name, word in zip(on_the_map(), lines[cell], strict=True) if word != "-"}
        for server, offset in zip(tool.HEADINGS, (0, len(best) // 2), strict=True):
            allowed = [
                name
                for name in errors
                if registry()[name].TRAITS.tolerates_dropouts and server.allows(registry()[name].TRAITS.server)
            ]
            words = best[offset + place // len(tool.DROPOUTS)][place % len(tool.DROPOUTS)]
            first = words.split("`")[1]
            assert errors[first] == min(errors[name] for name in allowed), (cell, server)


@pytest.mark.usefixtures("tools")
def test_the_comparison_is_that_of_the_tool() -> None:
    """Words, every private protocol, two promises where the plan by default is not a priori, quick predictions, traffic."""
    import compare_protocols as tool
    from equal_promises import error

    page = text("measurements/comparison.md")
    assert tool.introduction() in page, "run python tools/compare_protocols.py"
    assert tool.READING in page, "run python tools/compare_protocols.py"
    private = {name for name, kind in registry().items() if kind.TRAITS.private}
    lines = [line.strip("| ").split(" | ") for line in page.split("## What")[0].splitlines() if line.startswith("| `")]
    measured = {line[0].strip("`") for line in lines}
    # A protocol that came since is measured with the next ``make pages``.
    assert measured | {"consensus"} <= private
    assert len(measured) >= 10
    for name in measured:
        told = [line for line in lines if line[0] == f"`{name}`"]
        promises = [line[1] for line in told]
        if any(promise.startswith("realised") for promise in promises):
            assert sum(promise.startswith("guaranteed") for promise in promises) == 1, name
        if name in ("inca", "consensus"):
            continue
        plans = list(tool.plans(tool.TARGET, name))
        expected = [[promise, tool.number(error(plan))] for plan, promise in plans]
        assert [line[1:3] for line in told] == expected, f"{name}: run python tools/compare_protocols.py"
        # What a message takes, and how many there are, is counted of the machines.
        counted = [tool.in_cells(tool.rounds_of(plan), tool.count_traffic(plan)) for plan, _ in plans]
        assert [line[5:8] for line in told] == counted, f"{name}: run python tools/compare_protocols.py"
        for plan, promise in plans:
            assert f"| `{name}` | {promise} | {plan.prediction['certificate']} |" in page, "run python tools/compare_protocols.py"


@pytest.mark.usefixtures("tools")
def test_what_the_gate_costs_is_that_of_the_tool() -> None:
    """The words and the cells."""
    import gate_cost as tool

    page = text("measurements/gate-cost.md")
    assert page.startswith(tool.HEAD), "run python tools/gate_cost.py"
    lines = page.removeprefix(tool.HEAD).strip().splitlines()[: len(tool.CELLS)]
    assert [line.split(" | ")[0] for line in lines] == [f"| {one[0]}, {one[1]}, {one[2]:.0%}" for one in tool.CELLS]


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_a_cell_of_what_the_gate_costs_is_computed_anew() -> None:
    """But for the seconds."""
    import gate_cost as tool

    made = tool.line(*tool.CELLS[0]).rsplit(" | ", 2)[0]
    assert f"{made} | " in text("measurements/gate-cost.md"), "run python tools/gate_cost.py"


@pytest.mark.usefixtures("tools")
def test_plans_of_inca_are_those_of_the_tool() -> None:
    """The words, the places, promises that are kept, and predictions that simulations confirm."""
    import inca_plans as tool
    from equal_promises import MOST_GATED
    from page_parts import between

    page = text("proofs/inca.md")
    lines = page.split(tool.HEAD)[1].split("\n\n")[0].splitlines()
    part = page[page.index(tool.BEGIN) + len(tool.BEGIN) : page.index(tool.END)]
    assert part.startswith(tool.HEAD), "run python tools/inca_plans.py"
    assert between(page, tool.BEGIN, tool.END, part) == page
    cells = [line.strip("| ").split(" | ") for line in lines]
    places = [f"{parties}, {colluding}" for parties, colluding in tool.PLACES for _ in range(1 if parties > MOST_GATED else 2)]
    assert [one[0] for one in cells] == places, "run python tools/inca_plans.py"
    for line in cells:
        assert line[1] in ("nothing", "a gate", "own noise")
        assert (float(line[2]) <= tool.EPSILON) == (line[1] != "nothing")
        ratio, deviation = map(float, line[6].rstrip(")").split(" ("))
        # 3.3 standard errors, of the simulation and of the prediction: one line in a thousand is beyond by chance.
        assert abs(ratio - 1) <= 3.3 * (deviation**2 + 0.01**2) ** 0.5 + 0.005


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_a_place_of_the_plans_of_inca_is_computed_anew() -> None:
    import inca_plans as tool

    assert tool.rows(*tool.PLACES[0], None) in text("proofs/inca.md"), "run python tools/inca_plans.py"


def test_what_is_taken_by_default_is_on_both_pages() -> None:
    """Of a plan that names no protocol, with and without an aggregator."""
    from quietmean.planning import Target
    from quietmean.planning.automatic import choose

    chosen = {choose(Target(30, 1.0, 1e-6, colluding=3, dropouts=dropouts), {}).plan.protocol.name for dropouts in (0.0, 0.1)}
    for name in chosen:
        assert f"| `{name}` |" in text("measurements/comparison.md")
        assert f"`{name}` " in text("measurements/protocol-map.md")


def test_no_tool_is_left_out() -> None:
    """Every tool that asks for the stamp makes a page that is tested here."""
    stamped = {path.stem for path in (ROOT / "tools").glob("*.py") if "page_stamp import" in path.read_text(encoding="utf-8")}
    assert stamped == set(PAGES.values())
