"""summary.md: what the papers state, what we find, and why where the two differ."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# What the tables of a figure are of.
STATED, OWN = "the paper", "our check"
_VERDICTS = {True: "yes", False: "**no**", None: "–"}


def write_summary(directory: Path) -> None:
    """From the NAME.json of all figures in ``directory``, whenever they were made."""
    found = [json.loads(path.read_bytes()) for path in directory.glob("*.json")]
    documents = sorted((one for one in found if "claims" in one), key=lambda one: (one["paper"], one["name"]))
    claims = [claim for document in documents for claim in document["claims"]]
    verdicts = {own: [_VERDICTS[claim["agrees"]] for claim in claims if claim.get("own", False) is own] for own in (False, True)}
    parts = [heading(len(documents), verdicts[False], verdicts[True])]
    parts += [section(one, f"Numbers: [{one['name']}.csv]({one['name']}.csv), {one['effort']} size.") for one in documents]
    (directory / "summary.md").write_text("\n".join(parts))


def heading(figures: int, stated: Sequence[str], own: Sequence[str]) -> str:
    """What a summary begins with: how many figures, and of what the papers state and of our own checks how many agree.

    ``stated`` and ``own``: the verdicts, as they stand in tables.
    """
    return (
        f"# Figures of the papers, made anew\n\n{figures} figures. {len(stated)} statements of the papers: {_counted(stated)}. "
        f"{len(own)} checks of our own: {_counted(own)}. Without a verdict is what cannot be compared, or is too near to tell. "
        "Ratio: ours over the paper's. In brackets: 95 % intervals of estimates, all of which has to agree, or none.\n"
    )


def _counted(verdicts: Sequence[str]) -> str:
    agree, differ, undecided = (sum(verdict == word for verdict in verdicts) for word in _VERDICTS.values())
    return f"{agree} agree, {differ} differ, {undecided} without a verdict"


def section(document: Mapping[str, Any], where: str, folder: str = "") -> str:
    """A figure's part of a page: its picture in ``folder``, ``where`` its numbers are, and its claims in tables."""
    name = document["name"]
    lines = [f"## {name}: {document['title']}", "", f"{document['paper']}. {document['caption']}".strip(), ""]
    lines += [f"![{document['title']}]({folder}{name}.png)", "", where]
    for own, first in ((False, STATED), (True, OWN)):
        claims = [claim for claim in document["claims"] if claim.get("own", False) is own]
        if claims:
            lines += ["", f"| {first} | stated | found | ratio | agrees | remark |", "|---|---|---|---|---|---|"]
        lines += _rows(claims)
    return "\n".join(lines) + "\n"


def _rows(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for claim in claims:
        unit = f" {claim['unit']}" if claim["unit"] else ""
        cells = [
            claim["claim"],
            _number(claim["paper"], unit),
            _number(claim["ours"], unit) + _interval(claim.get("interval")),
            _number(claim["ratio"], ""),
            _VERDICTS[claim["agrees"]],
            claim["why"],
        ]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return lines


def _interval(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f" ({_number(interval[0], '')} to {_number(interval[1], '')})"


def _number(value: float | str | None, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str) or not math.isfinite(value):
        return f"{value}{unit}"
    return f"{value:.4g}{unit}"
