"""A made-up wage survey: 60 firms with 100 people each, their job, sex and pay a year. The same file each time.

Women earn less in every job, by the share that ``GAPS`` says, and fewer of them are managers. Firms differ in how they pay.
"""

import csv
import sys
from pathlib import Path

import numpy as np

FIRMS, PEOPLE, SEED = 60, 100, 2027
PAY = {"assistant": 34_000, "skilled": 43_000, "specialist": 58_000, "manager": 84_000}
GAPS = {"assistant": 0.04, "skilled": 0.07, "specialist": 0.10, "manager": 0.15}
OF_WOMEN, OF_MEN = (0.30, 0.35, 0.25, 0.10), (0.22, 0.33, 0.27, 0.18)


def main(path: Path) -> None:
    """Write the table."""
    drawn, jobs = np.random.default_rng(SEED), list(PAY)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["firm", "job", "sex", "pay"])
        for firm in range(1, FIRMS + 1):
            level = float(np.exp(drawn.normal(0, 0.08)))
            for _ in range(PEOPLE):
                woman = drawn.random() < 0.5
                job = jobs[int(drawn.choice(len(jobs), p=OF_WOMEN if woman else OF_MEN))]
                pay = PAY[job] * level * (1 - GAPS[job] * woman) * float(np.exp(drawn.normal(0, 0.15)))
                table.writerow([f"firm {firm:02}", job, "woman" if woman else "man", round(pay)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
