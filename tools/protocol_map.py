"""Write measurements/protocol-map.md: which protocol the planner puts first over parties x colluders x dropouts, and by how much.

    python tools/protocol_map.py --resume FOLDER

About fifteen minutes of one core. The same command gives the same page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from equal_promises import BY_GATE, BY_NOISE, BY_PLAN, TRIALS, central, error, promised
from page_parts import DOCS, resume_folder, resumed, row, table
from page_stamp import stamp

from quietmean.core.errors import InputError
from quietmean.core.workers import one_thread
from quietmean.planning.candidates import general_protocols
from quietmean.protocols import Server, Target, get_protocol

PAGE = DOCS / "measurements/protocol-map.md"
# Parties and colluders. Against ten of a hundred a plan with a gate takes many minutes.
PLACES = ((10, 1), (10, 5), (30, 1), (30, 3), (30, 15), (100, 1))
DROPOUTS = (0.0, 0.05, 0.1, 0.2)
EPSILON, DELTA = 1.0, 1e-6
# Of those that every party must stay in, the one that is of a paper.
PROTOCOLS = (*general_protocols(Server.AGGREGATOR), "consensus")
# By how much more than the target a plan may promise, by rounding.
_ABOVE = 1 + 1e-6
# Marks of what keeps a promise, where the plan as it is made by default does not.
_MARKS = {BY_PLAN: "", BY_GATE: " g", BY_NOISE: " n"}

INTRODUCTION = f"""# Which protocol wins where

This page is made by `python tools/protocol_map.py`: plans over a grid, epsilon = {EPSILON:g} at delta = {DELTA:g}, one
coordinate, sensitivity 1, options as they are by default. Same command, same page; do not edit it by hand.

**All promise the same, before the first message**: whatever happens, no coalition of that many parties learns more than
epsilon = {EPSILON:g}. Where the plan that is made by default does not promise that, it is made anew so that it does, and the
error is that of the new plan: by a gate before the release (`g`, tried on {TRIALS} histories or more), or by so much noise
of each party's own (`n`), by what costs less. What that costs is in [the last table](#what-the-promise-costs).

Errors are mean squared errors as predicted, over that of a trusted curator from whom nobody leaves.
"""

HEADINGS = {
    Server.NONE: """## Peer to peer

Nobody has a role; whoever leaves is missed by nobody in particular. The best, and by which factor the second is worse.
""",
    Server.AGGREGATOR: """## With an aggregator that need not be trusted with values

It must stay, and say truly who took part. The best of all protocols, those between peers too.
""",
}
EVERY = """## Every protocol

`consensus` (ADQSP) is exact only among parties that stay: it has no plan with dropouts.
"""
COSTS = """## What the promise costs

Plans as they are made by default where they are for what is expected to happen: their error, the epsilon that they promise
whatever happens, and the error of the plan that promises the target.
"""
COST_HEADS = (
    "parties, colluding, dropouts",
    "protocol",
    "error as planned",
    "guaranteed epsilon",
    "error with the promise",
    "how",
)


class Cell(NamedTuple):
    """A target of the grid."""

    parties: int
    colluding: int
    dropouts: float

    @property
    def target(self) -> Target:
        return Target(self.parties, EPSILON, DELTA, colluding=self.colluding, dropouts=self.dropouts)

    @property
    def words(self) -> str:
        return f"{self.parties}, {self.colluding}, {self.dropouts:.0%}"


class Found(NamedTuple):
    """What a protocol reaches in a cell: errors over the curator's, by default and with the promise, and how that is kept."""

    usual: float
    epsilon: float
    kept: float
    how: str

    @property
    def words(self) -> str:
        return f"{self.kept:.3g}{_MARKS[self.how]}"


Row = dict[str, Found]


def cells() -> Iterator[Cell]:
    return (Cell(parties, colluding, dropouts) for parties, colluding in PLACES for dropouts in DROPOUTS)


def measured(cell: Cell, names: tuple[str, ...] = PROTOCOLS, folder: Path | None = None) -> Row:
    """What protocols reach there; without those that refuse it."""
    found, curator = {}, central(cell.target)
    with one_thread():
        for name in names:
            try:
                plans = promised(cell.target, name, folder)
            except InputError:
                continue
            found[name] = Found(
                error(plans.usual) / curator, plans.usual.epsilon_a_priori, error(plans.kept) / curator, plans.how
            )
    return found


def kept(folder: Path | None, cell: Cell) -> Row:
    text = resumed(folder, f"map-{'-'.join(map(str, cell))}", lambda: json.dumps(measured(cell, folder=folder)) + "\n")
    return {name: Found(*found) for name, found in json.loads(text).items()}


def page(rows: dict[Cell, Row]) -> str:
    return "\n".join(
        [INTRODUCTION, *(_winners(rows, server) for server in HEADINGS), EVERY, _every(rows), COSTS, _costs(rows), stamp()]
    )


def _winners(rows: dict[Cell, Row], server: Server) -> str:
    heads = ("parties", "colluding", *(f"{dropouts:.0%} drop out" for dropouts in DROPOUTS))
    align = "|---:|---:|" + "---|" * len(DROPOUTS)
    lines = [
        row((*place, *(_best(rows[Cell(*place, dropouts)], server) for dropouts in DROPOUTS)))
        for place in dict.fromkeys(cell[:2] for cell in rows)
    ]
    return "\n".join([HEADINGS[server], row(heads), align, *lines, ""])


def _best(found: Row, server: Server) -> str:
    traits = {name: get_protocol(name).TRAITS for name in found}
    allowed = [name for name in found if traits[name].tolerates_dropouts and server.allows(traits[name].server)]
    first, second = sorted(allowed, key=lambda name: found[name].kept)[:2]
    return f"`{first}` {found[first].words} (`{second}` x {found[second].kept / found[first].kept:.3g})"


def _every(rows: dict[Cell, Row]) -> str:
    heads = ("parties, colluding, dropouts", *(f"`{name}`" for name in PROTOCOLS))
    return table(heads, (line_of(cell, found) for cell, found in rows.items()))


def line_of(cell: Cell, found: Row) -> list[str]:
    return [cell.words, *(words_of(found, name) for name in PROTOCOLS)]


def words_of(found: Row, name: str) -> str:
    return found[name].words if name in found else "-"


def _costs(rows: dict[Cell, Row]) -> str:
    lines = [
        row((cell.words, f"`{name}`", f"{one.usual:.3g}", f"{one.epsilon:.3g}", f"{one.kept:.3g}", one.how))
        for cell, found in rows.items()
        for name, one in found.items()
        if one.epsilon > EPSILON * _ABOVE
    ]
    return "\n".join([row(COST_HEADS), "|---|---|---:|---:|---:|---|", *lines]) + "\n"


def main() -> None:
    folder = resume_folder(__doc__)
    PAGE.write_text(page({cell: kept(folder, cell) for cell in cells()}), encoding="utf-8")


if __name__ == "__main__":
    main()
