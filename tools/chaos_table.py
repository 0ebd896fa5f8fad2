"""Write measurements/chaos.md from the file that `make chaos` names: ``python tools/chaos_table.py TALLY``. At once."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from page_parts import DOCS, between, table

PAGE = DOCS / "measurements/chaos.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end -->\n"
OUTCOMES = ("all have it", "some have it", "no result, said", "wrong")


def of_kind(lines: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


def by_outcome(head: str, seeds: list[dict[str, Any]], names: list[tuple[str, dict[str, Any]]]) -> str:
    counted: dict[str, Counter[str]] = {}
    for name, seed in names:
        counted.setdefault(name, Counter())[seed["outcome"]] += 1
    rows = [[name, sum(found.values()), *(found[one] for one in OUTCOMES)] for name, found in sorted(counted.items())]
    return table([head, "studies", *OUTCOMES], rows)


def figures(lines: list[dict[str, Any]]) -> str:
    """Three parts: whole studies, places of faults, and states after a power cut with the writes of each file."""
    seeds = of_kind(lines, "seed")
    again = sum(len(codes) - 1 for seed in seeds for codes in seed["codes"].values() if codes)
    struck = sum(seed["struck"] for seed in seeds)
    parts = [
        f"{len(seeds)} studies. {struck} faults struck. Parties were started {again} times again.\n",
        by_outcome("way", seeds, [(seed["way"], seed) for seed in seeds]),
        by_outcome("fault", seeds, [(kind, seed) for seed in seeds for kind in seed["kinds"]]),
    ]
    stories = sorted({line["story"] for line in of_kind(lines, "writes")})
    rows = []
    for story in stories:
        places, states = ([line for line in of_kind(lines, kind) if line["story"] == story] for kind in ("places", "states"))
        writes = next(line["writes"] for line in of_kind(lines, "writes") if line["story"] == story)
        seen = ", ".join(f"{name} {count}" for name, count in writes.items() if not name.endswith((".new", "-shm")))
        wrong = sum(line["wrong"] for line in (*places, *states))
        rows.append([story, seen, sum(line["tried"] for line in places), sum(line["tried"] for line in states), wrong])
    parts.append(table(["story", "writes seen, by file", "places of a fault", "states after a cut", "wrong"], rows, 2))
    return "\n".join(parts)


def main() -> None:
    lines = [json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text(encoding="utf-8").splitlines()]
    PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), BEGIN, END, figures(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
