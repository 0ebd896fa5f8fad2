"""Figure 2: how many rounds it takes until no run fails, against the number of parties and how many of them are corrupt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean_reproduction.columns import interval_of, numbers
from quietmean_reproduction.figure import Check, Claim, Effort, Figure
from quietmean_reproduction.inca.connectivity import expected_isolated, rounds_without_failure
from quietmean_reproduction.inca.many_runs import connected_rounds
from quietmean_reproduction.inca.setting import PAPER
from quietmean_reproduction.rows import with_share
from quietmean_reproduction.style import GREY, grid, legend_above, looks, stated
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PARTIES = (100, 500, 1000, 5000)
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
PAPER_RUNS = 100_000
# Rounds that are simulated; a run that needs more is counted as needing one more.
_LIMIT = 22


def connect(*, seed: int, parties: int, runs: int, block: int) -> list[dict[str, Any]]:
    """How many of ``runs`` runs first connect after T rounds, for each share of corrupt parties.

    The corrupt parties of a smaller share are some of those of a larger one, and all shares see the same schedules.
    """
    del block
    corrupt = [round(share * parties) for share in SHARES]
    stream = BitStream(insecure_seed(seed, "connect"))
    rounds = connected_rounds(stream, parties, corrupt, runs, min(_LIMIT, parties - 1))
    rows = []
    for share, needed in zip(SHARES, rounds.T, strict=True):
        times, counts = np.unique(needed, return_counts=True)
        rows += [
            {"parties": parties, "corrupt": share, "rounds": time, "runs": count}
            for time, count in zip(times, counts, strict=True)
        ]
    return rows


def tasks(effort: Effort) -> list[Task]:
    if effort == Effort.FULL:
        sizes = dict.fromkeys(PARTIES, (PAPER_RUNS // 500, 500))
    else:
        sizes = {100: (4, 500), 500: (4, 250), 1000: (4, 125), 5000: (8, 15)}
    return [
        Task(connect, {"parties": parties, "runs": runs, "block": block})
        for parties, (blocks, runs) in sizes.items()
        for block in range(blocks)
    ]


def counted(rows: pl.DataFrame) -> pl.DataFrame:
    """All runs of a point that need as many rounds in one row, and their share of all runs of the point."""
    found = rows.group_by("parties", "corrupt", "rounds").agg(pl.col("runs").sum().alias("needing"))
    found = found.with_columns(runs=pl.col("needing").sum().over("parties", "corrupt")).sort("parties", "corrupt", "rounds")
    return with_share(found, "needing", "runs")


def summarised(rows: pl.DataFrame) -> pl.DataFrame:
    """Per point: runs, the most rounds that any needed, and what isolated parties predict for so many and for 1e5 runs."""
    found = rows.group_by("parties", "corrupt", maintain_order=True).agg(
        pl.col("rounds").max().alias("most"),
        pl.col("needing").sum().alias("runs"),
    )
    points = [(row["parties"], round(row["corrupt"] * row["parties"]), row["runs"]) for row in found.iter_rows(named=True)]
    return found.with_columns(
        pl.Series("predicted", [rounds_without_failure(n, c, runs) for n, c, runs in points]),
        pl.Series("predicted_1e5", [rounds_without_failure(n, c, PAPER_RUNS) for n, c, _ in points]),
    ).sort("parties", "corrupt")


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    axes = canvas.add_subplot()
    found = summarised(rows)
    for place, ((parties, part), look) in enumerate(zip(found.group_by("parties", maintain_order=True), looks(), strict=False)):
        runs = part["runs"][0]
        label = f"n = {parties[0]}, {runs:,} runs"
        # Side by side, since many are equal.
        axes.plot(part["corrupt"] + 0.007 * (place - 1.5), part["most"], linestyle="none", label=label, **look)
        axes.plot(part["corrupt"], part["predicted_1e5"], color=look["color"])
    axes.plot([], [], color=GREY, label="100,000 runs, predicted")
    stated(axes, [0.5], [15.5], "stated (n = 5000)")
    axes.set(xlabel="corrupted parties (fraction)", ylabel="rounds T until no run fails", xlim=(0, 0.53), ylim=(0, 18.5))
    axes.set_yticks(range(0, 19, 3))
    legend_above(canvas, axes, 2)
    grid(axes)


def claims(rows: pl.DataFrame) -> list[Claim]:
    found = summarised(rows)
    largest = found.filter(parties=5000, corrupt=0.5)
    needed, runs = largest["predicted_1e5"].item(), largest["runs"].item()
    by_parties = [found.filter(parties=parties, corrupt=0.5)["predicted_1e5"].item() for parties in PARTIES]
    growth = np.diff(by_parties) / np.diff(np.log(PARTIES))
    checked, expected = _failures(rows)
    return [
        Claim(
            "5000 parties, half of them corrupted: slightly more than 15 rounds (and messages) for 100 % success in 1e5 runs",
            15.5,
            needed,
            15 <= needed <= 18,
            "least T with which 1e5 runs more likely than not all succeed, from the expected number of isolated parties; worst "
            f"of {runs:,} simulated runs: {largest['most'].item()}",
            "rounds",
        ),
        Claim(
            "the number of rounds grows like log n",
            None,
            by_parties[-1] - by_parties[0],
            bool(growth.max() < 2 and growth.min() > 0),
            f"rounds at n = {', '.join(map(str, PARTIES))}: {', '.join(map(str, by_parties))}",
            "rounds more from n = 100 to 5000",
        ),
        Check(
            "runs fail because a party has no unseen exchange",
            None,
            checked / expected,
            None,
            f"to carry the simulated runs on to 1e5: {checked:.0f} failed runs over all points where fewer than 5 % fail, "
            f"{expected:.0f} expected",
            "failed / expected",
            # Failures are rare: their number is about that of a Poisson law.
            interval_of(checked / expected, math.sqrt(checked) / expected),
            (0.9, 1.1),
        ),
    ]


def _failures(rows: pl.DataFrame) -> tuple[float, float]:
    """Runs that were not connected after T rounds, over all points and T where fewer than 5 % should be, and how many should."""
    failed = expected = 0.0
    for _, part in rows.group_by("parties", "corrupt"):
        parties, corrupt = int(part["parties"][0]), float(part["corrupt"][0])
        needed, runs = numbers(part, "rounds"), numbers(part, "needing")
        for rounds in range(1, _LIMIT):
            rate = expected_isolated(parties, round(corrupt * parties), rounds)
            # One T for each point: others are not independent of it.
            if rate < 0.05:
                failed += float(runs[needed > rounds].sum())
                expected += rate * float(runs.sum())
                break
    return failed, expected


FIGURE = Figure(
    name="inca-2",
    paper=PAPER,
    title="Figure 2: rounds needed against the number of parties",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption="k = 1, a new receiver every round; corrupted parties at random. Markers: the worst of all simulated runs; lines: "
    "what 100,000 runs (the paper's number) need, by the expected number of parties without any unseen exchange.",
    size=(3.5, 3.0),
    kept=counted,
)
