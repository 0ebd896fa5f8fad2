"""Write the table of docs/calibrations.md: ``python tools/calibrations.py``, some minutes of one core. The same each time."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from page_figures import ending, without

from quietmean.core.threads import one_thread

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "calibrations.md"
HEAD = "| gamma | calibration, schedule | sigma_star^2 | sigma_delta^2 | MSE | paper / this |\n|---|---|---|---|---|---|\n"
DROPOUTS = (0.0, 0.05, 0.1, 0.2)


def benchmark() -> ModuleType:
    """What ``make bench`` prints is what is written here."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    return importlib.import_module("test_calibrations")


def rows(dropouts: float) -> str:
    found = benchmark().calibrated(dropouts)
    lines = [
        f"| {dropouts:g} | {name} | {star:.4f} | {delta:.4g} | {mse:.5f} | {found['paper, uniform'][2] / mse:.2f} |\n"
        for name, (star, delta, mse) in found.items()
    ]
    return "".join(lines)


def main() -> None:
    before, after = without(PAGE.read_text(encoding="utf-8")).split(HEAD)
    with one_thread():
        table = "".join(map(rows, DROPOUTS))
    PAGE.write_text(before + HEAD + table + after[after.index("\n\n") + 1 :] + ending(PAGE.name), encoding="utf-8")


if __name__ == "__main__":
    main()
