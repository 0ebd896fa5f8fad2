"""The page about what CorDP-DME costs is that of its tool: bytes, rounds and errors are computed anew, milliseconds are not."""

from __future__ import annotations

import re
from types import ModuleType

import numpy as np
import pytest

from quietmean.protocols.cordp_dme.design import least_error
from support.programs import module_of

tool = module_of("tools", "cordp_costs")


def page(tool: ModuleType) -> str:
    return str(tool.PAGE.read_text(encoding="utf-8"))


def test_words_errors_and_what_partners_cost_are_those_of_the_tool(tool: ModuleType) -> None:
    """But for the last column, whose optimum is looked for."""
    costs = tool.partner_lines({colluding: tool.costs_of_partners(colluding) for colluding in tool.COLLUDING}, {})
    for part in (tool.HEAD, tool.DIFFERENCES, tool.SPARSE, tool.READING, "\n".join(tool.error_lines())):
        assert part in page(tool), "run python tools/cordp_costs.py"
    for line in costs[2:]:
        assert f"\n{line.rpartition('|  |')[0]}" in page(tool), "run python tools/cordp_costs.py"


@pytest.mark.slow
def test_words_errors_and_partners_are_those_of_the_tool(tool: ModuleType) -> None:
    found, best = tool.sparse_section()
    parts = (tool.HEAD, tool.DIFFERENCES, tool.SPARSE, tool.READING)
    lines = tool.partner_lines(found, best), tool.error_lines()
    for part in (*parts, *("\n".join(one) for one in lines)):
        assert part in page(tool), "run python tools/cordp_costs.py"
    assert tool.PICTURE.exists()


def without_times(line: str) -> list[str]:
    """The cells, but for milliseconds and how they grow."""
    cells = line.strip("| ").split(" | ")
    return [re.sub(r"[\d.e-]+ ms.*", "ms", cell) for cell in cells] if not cells[0].startswith("computation") else cells[:1]


@pytest.mark.slow
def test_bytes_and_rounds_are_those_of_the_machines(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "TIMES", 1)
    places = (tool.BASE, tool.MORE_PARTIES, tool.MORE_COORDINATES)
    table = tool.table_1({name: {place: tool.least(name, *place) for place in places} for name in tool.OPTIONS})
    lines = [line for line in page(tool).splitlines() if line.startswith("| ")]
    assert [without_times(line) for line in lines[: len(table) - 1]] == [without_times(line) for line in table if line[1] == " "]


def test_figures_grow_as_the_paper_says(tool: ModuleType) -> None:
    """Small machines: twice the users, twice the coordinates. Keys of a user by 2, of all by 4; vectors by 1 and by 2."""
    base, more, longer = (tool.measured("cordp-dme", *place) for place in ((8, 512), (16, 512), (8, 1024)))
    assert base.rounds == 1
    assert base.before == {"user": 32 * 7, "server": 32 * 8 * 7}
    assert more.before == {"user": 32 * 15, "server": 32 * 16 * 15}
    assert longer.before == base.before
    assert base.during == {"user": 8 * 512, "server": 8 * 512 * 7}
    assert more.during == {"user": 8 * 512, "server": 8 * 512 * 15}
    assert longer.during == {"user": 8 * 1024, "server": 8 * 1024 * 7}
    # The vector and n - 1 keys, and what a state is written in.
    assert 0 <= base.stored["user"] - (8 * 512 + 32 * 7) < 400


def test_optimised_variances_on_all_steps_are_the_optimum_of_all_pairs(tool: ModuleType) -> None:
    """By hand: one eigenvalue for all but the sum. With a step left out there is little more; with few steps more."""
    every = np.arange(1, tool.PARTIES // 2)
    complete = least_error(tool.PARTIES, tool.RESPONDING, 0, 1.0)
    assert 1.0 <= tool.best_weights(every) / complete < 1.002
    few = tool.best_weights(every[:3]) / complete
    assert few > 1.1
    # Equal variances are one of the choices.
    assert few <= tool.best_weights(every[:1]) / complete
