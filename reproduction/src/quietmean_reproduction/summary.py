"""summary.md: what the papers state, what we find, and why where the two differ."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_VERDICTS = {True: "yes", False: "**no**", None: "–"}


def write_summary(directory: Path) -> None:
    """From the NAME.json of all figures in ``directory``, whenever they were made."""
    found = [json.loads(path.read_bytes()) for path in directory.glob("*.json")]
    documents = sorted((one for one in found if "claims" in one), key=lambda one: (one["paper"], one["name"]))
    counts = _counts(documents)
    parts = [heading(len(documents), counts[True], counts[False], counts[None])]
    parts += [_section(document) for document in documents]
    (directory / "summary.md").write_text("\n".join(parts))


def heading(figures: int, agree: int, differ: int, undecided: int) -> str:
    """What a summary begins with: how many figures, and how many claims have which verdict."""
    return (
        f"# Figures of the papers, made anew\n\n{figures} figures, {agree + differ + undecided} claims: {agree} agree, "
        f"{differ} differ, {undecided} without a verdict (nothing stated that could be compared). Ratio: ours over the paper's.\n"
    )


def _counts(documents: list[dict[str, Any]]) -> dict[bool | None, int]:
    verdicts = [claim["agrees"] for document in documents for claim in document["claims"]]
    return {kind: sum(verdict is kind for verdict in verdicts) for kind in (True, False, None)}


def _section(document: Mapping[str, Any]) -> str:
    name = document["name"]
    lines = [f"## {name}: {document['title']}", "", f"{document['paper']}. {document['caption']}".strip(), ""]
    lines += [f"![{document['title']}]({name}.png)", "", f"Numbers: [{name}.csv]({name}.csv), {document['effort']} size."]
    lines += ["", "| the paper | stated | found | ratio | agrees | remark |", "|---|---|---|---|---|---|"]
    for claim in document["claims"]:
        unit = f" {claim['unit']}" if claim["unit"] else ""
        cells = [
            claim["claim"],
            _number(claim["paper"], unit),
            _number(claim["ours"], unit),
            _number(claim["ratio"], ""),
            _VERDICTS[claim["agrees"]],
            claim["why"],
        ]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float | str | None, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str) or not math.isfinite(value):
        return f"{value}{unit}"
    return f"{value:.4g}{unit}"
