"""Draw docs/images/learning.png from the tables of docs/measurements/learning-tables.md: ``python tools/learning_picture.py``."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[1] / "docs"
# As they are drawn from left to right, and what they are called there.
WAYS = {
    "local": "each alone",
    "together (packed-sharing)": "together",
    "curator": "a trusted curator",
    "no privacy": "no privacy",
}
COLOURS = ("#a6a6a6", "#00629b", "#8fb8d6", "#d9d9d9")
_ROW = re.compile(r"^\| ([^|]+) \| ([\d.]+) ± ([\d.]+) \|", re.MULTILINE)


def settings(page: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Per cent of answers that are right, and half of its 95 % interval: by setting and way, where all ways are measured."""
    parts = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    read = {part.split("\n")[0]: {way: (float(mean), float(error)) for way, mean, error in _ROW.findall(part)} for part in parts}
    return {setting: rows for setting, rows in read.items() if WAYS.keys() <= rows.keys()}


def main() -> int:
    measured = settings((DOCS / "measurements/learning-tables.md").read_text(encoding="utf-8"))
    figure, axes = plt.subplots(figsize=(7.2, 3.0), layout="constrained")
    width = 0.8 / len(WAYS)
    for place, (way, name) in enumerate(WAYS.items()):
        heights, errors = zip(*(rows[way] for rows in measured.values()), strict=True)
        left = [setting + (place - (len(WAYS) - 1) / 2) * width for setting in range(len(measured))]
        axes.bar(left, heights, width, yerr=errors, color=COLOURS[place], label=name, error_kw={"lw": 0.8})
    labels = [setting.replace("Digits, ", "").replace(", epsilon", ",\nepsilon").replace(", ", ",\n", 1) for setting in measured]
    axes.set_xticks(range(len(measured)), labels, fontsize=8)
    axes.set_ylabel("right answers, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=len(WAYS), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.savefig(DOCS / "images" / "learning.png", dpi=130)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
