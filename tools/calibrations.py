"""Write the table of measurements/calibrations.md: ``python tools/calibrations.py``, some minutes. Deterministic."""

from __future__ import annotations

from packed_bars import benchmark
from page_figures import ending, without
from page_parts import DOCS, row

from quietmean.core.workers import one_thread

PAGE = DOCS / "measurements/calibrations.md"
HEAD = "| gamma | calibration, schedule | sigma_star^2 | sigma_delta^2 | MSE | paper / this |\n|---|---|---|---|---|---|\n"
DROPOUTS = (0.0, 0.05, 0.1, 0.2)


def rows(dropouts: float) -> str:
    # What ``make bench`` prints is what is written here.
    found = benchmark("test_calibrations").calibrated(dropouts)
    paper = found["paper, uniform"][2]
    return "".join(
        row((f"{dropouts:g}", name, f"{star:.4f}", f"{delta:.4g}", f"{mse:.5f}", f"{paper / mse:.2f}")) + "\n"
        for name, (star, delta, mse) in found.items()
    )


def main() -> None:
    before, after = without(PAGE.read_text(encoding="utf-8")).split(HEAD)
    with one_thread():
        table = "".join(map(rows, DROPOUTS))
    PAGE.write_text(
        before + HEAD + table + after[after.index("\n\n") + 1 :] + ending(f"measurements/{PAGE.name}"), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
