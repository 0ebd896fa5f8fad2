"""Write docs/protocol-map.md: which protocol the planner puts first over parties x colluders x dropouts, and by how much.

``python tools/protocol_map.py``. The same command gives the same page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.planning.candidates import Ranking, rank
from quietmean.protocols import Server, Target

PAGE = Path(__file__).parent.parent / "docs" / "protocol-map.md"
PARTIES = (10, 30, 100)
COLLUDING = (0.0, 0.1, 0.5)
DROPOUTS = (0.0, 0.05, 0.1, 0.2)
EPSILON, DELTA = 1.0, 1e-6

INTRODUCTION = f"""# Which protocol wins where

This page is made by `python tools/protocol_map.py`: `quietmean plan` asked over a grid, epsilon = {EPSILON:g} at
delta = {DELTA:g}, one coordinate, sensitivity 1. Same command, same page; do not edit it by hand.

Each cell: the protocol of least predicted error, how many times that of a trusted curator its mean squared error is, and by which
factor the second is worse.

Colluders are a fraction of the parties, at least one. Protocols that every party must stay in are left out.
"""

HEADINGS = {
    Server.NONE: "## Among equals\n\nNobody has a role; whoever leaves is missed by nobody in particular.\n",
    Server.AGGREGATOR: (
        "## With an aggregator that need not be trusted with values\n\nIt must stay, and say truly who took part.\n"
    ),
}


def main() -> None:
    parts = [INTRODUCTION]
    for server, heading in HEADINGS.items():
        parts.append(heading)
        parts.append("| parties | colluding | " + " | ".join(f"{dropouts:.0%} drop out" for dropouts in DROPOUTS) + " |")
        parts.append("|---:|---:|" + "---|" * len(DROPOUTS))
        for parties in PARTIES:
            for colluding in dict.fromkeys(max(1, round(share * parties)) for share in COLLUDING):
                cells = [_cell(parties, colluding, dropouts, server) for dropouts in DROPOUTS]
                parts.append(f"| {parties} | {colluding} | " + " | ".join(cells) + " |")
                print(parts[-1], file=sys.stderr, flush=True)
        parts.append("")
    PAGE.write_text("\n".join(parts))


def _cell(parties: int, colluding: int, dropouts: float, server: Server) -> str:
    target = Target(parties, EPSILON, DELTA, colluding=colluding, dropouts=dropouts)
    try:
        candidates = rank(target, server=server)
    except InputError:
        return "none"
    return _words(candidates)


def _words(candidates: Ranking) -> str:
    first, second = candidates[0], candidates[1]
    times = first.mse / float(first.to_json()["mse_central"])
    return f"`{first.plan.protocol.name}` {times:.3g} (`{second.plan.protocol.name}` x {second.mse / first.mse:.3g})"


if __name__ == "__main__":
    main()
