"""Figure 5: how often the precondition of Theorem 4.5 holds, against rounds, messages and neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from quietmean.graphs import make_schedule
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean_reproduction.columns import Array, numbers
from quietmean_reproduction.figure import PAGE, Claim, Effort, Figure
from quietmean_reproduction.inca.connectivity import meets_precondition
from quietmean_reproduction.inca.setting import PAPER
from quietmean_reproduction.rows import with_share
from quietmean_reproduction.style import band, grid, legend_above, looks
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PARTIES, NEIGHBOURS, ROUNDS = 100, (1, 2, 3, 4, 5), (2, 4, 6, 8, 10)
_SURE = 0.99
_ROUNDS_UNTIL = "rounds until at least 99 % succeed, k = 1..5"
_BY_INTERVALS = "By the intervals of neighbouring k no share goes the other way, and those of k = 1 and 5 are apart"


def succeed(*, seed: int, adversary: str, out_degree: int, rounds: int, runs: int) -> list[dict[str, Any]]:
    """How many of ``runs`` runs meet the precondition.

    ``eavesdrop``: half of all (party, round) are seen; ``collusion``: 30 % of the parties are corrupt.
    """
    count = 0
    for run in range(runs):
        root = insecure_seed(seed, "precondition", run)
        schedule = make_schedule("uniform", root, PARTIES, rounds, out_degree)
        stream = BitStream(root.derive("adversary"))
        corrupt, observed = np.zeros(PARTIES, dtype=np.bool_), None
        if adversary == "collusion":
            corrupt[stream.permutation(PARTIES)[: round(0.3 * PARTIES)]] = True
        else:
            observed = np.stack([stream.permutation(PARTIES) < PARTIES // 2 for _ in range(rounds)])
        count += meets_precondition(schedule, corrupt, observed)
    return [{"adversary": adversary, "out_degree": out_degree, "rounds": rounds, "runs": runs, "succeeded": count}]


def two_observed(*, seed: int, schedule: str, rounds: int, runs: int) -> list[dict[str, Any]]:
    """How many of ``runs`` runs meet the precondition if two honest parties are observed all the time (Theorem 4.9)."""
    count = 0
    for run in range(runs):
        root = insecure_seed(seed, "two observed", run)
        observed = np.zeros((rounds, PARTIES), dtype=np.bool_)
        observed[:, BitStream(root.derive("adversary")).permutation(PARTIES)[:2]] = True
        corrupt = np.zeros(PARTIES, dtype=np.bool_)
        count += meets_precondition(make_schedule(schedule, root, PARTIES, rounds, 2), corrupt, observed)
    return [{"adversary": f"two-{schedule}", "out_degree": 2, "rounds": rounds, "runs": runs, "succeeded": count}]


def tasks(effort: Effort) -> list[Task]:
    runs = 100 if effort == Effort.QUICK else 1000
    two = [Task(two_observed, {"schedule": kind, "rounds": 20, "runs": runs}) for kind in ("random-static", "uniform")]
    return two + [
        Task(succeed, {"adversary": adversary, "out_degree": out_degree, "rounds": rounds, "runs": runs})
        for adversary in ("eavesdrop", "collusion")
        for out_degree in NEIGHBOURS
        for rounds in ROUNDS
    ]


def shares(rows: pl.DataFrame) -> pl.DataFrame:
    """With the share of runs that succeed."""
    return with_share(rows, "succeeded", "runs")


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    panels = canvas.subplots(1, 3, sharey=True)
    for axes, adversary, by_messages, title in (
        (panels[0], "eavesdrop", False, "(a) half of the messages seen"),
        (panels[1], "eavesdrop", True, "(b) half of the messages seen"),
        (panels[2], "collusion", False, "(c) 30 % of the parties corrupted"),
    ):
        for out_degree, look in zip(NEIGHBOURS, looks(), strict=False):
            part = rows.filter(adversary=adversary, out_degree=out_degree)
            x = part["rounds"].to_numpy() * (out_degree if by_messages else 1)
            axes.plot(x, 100 * part["share"], label=f"k = {out_degree}", clip_on=False, **look)
            band(axes, x, 100 * part["share_low"], 100 * part["share_high"], look["color"])
        axes.set(title=title, xlabel="messages per party, kT" if by_messages else "rounds T", ylim=(0, 100))
        if by_messages:
            axes.set_xlim(0, 52)
        grid(axes)
    panels[0].set_ylabel("runs that succeed (%)")
    legend_above(canvas, panels[0], 5)


def claims(rows: pl.DataFrame) -> list[Claim]:
    eavesdrop, collusion = (_first(rows, adversary) for adversary in ("eavesdrop", "collusion"))
    sure, possible = (_messages(_first(rows, "eavesdrop", end)) for end in ("low", "high"))
    static, dynamic = (rows.filter(adversary=f"two-{kind}") for kind in ("random-static", "uniform"))
    return [
        Claim(
            "eavesdroppers: the higher k, the fewer rounds for 100 % success",
            agrees=_changes(rows, "eavesdrop", rises=True),
            why=f"{_ROUNDS_UNTIL}: {_listed(eavesdrop)}. {_BY_INTERVALS}",
        ),
        Claim(
            "eavesdroppers: the lower k, the fewer messages in total",
            agrees=_cheapest_alone(sure, possible),
            why="messages until at least 99 % succeed, k = 1..5: "
            f"{_listed(_messages(eavesdrop))}; by the low ends of the intervals {_listed(sure)}, by the high ends "
            f"{_listed(possible)}",
        ),
        Claim(
            "collusion: the lower k, the easier a high success rate",
            agrees=_changes(rows, "collusion", rises=False),
            why=f"{_ROUNDS_UNTIL}: {_listed(collusion)} (more than 10: -). {_BY_INTERVALS}",
        ),
        Claim(
            "Theorem 4.9: static neighbours and two fully observed honest parties break the precondition",
            0.0,
            static["share"].item(),
            None if dynamic["share_low"].item() > _SURE else False,
            f"share of {static['runs'].item()} runs that succeed, k = 2, T = 20; with neighbours drawn anew each round "
            f"{dynamic['share'].item():.2f}",
            "",
            (static["share_low"].item(), static["share_high"].item()),
            (0.0, 1 - _SURE),
        ),
    ]


def _changes(rows: pl.DataFrame, adversary: str, rises: bool) -> bool | None:
    """Does the share that succeeds rise with k, or fall? By intervals: nowhere the other way, and apart for k = 1 and 5."""
    low, high = (_shares(rows, adversary, end) for end in ("share_low", "share_high"))
    if not rises:
        low, high = low[::-1], high[::-1]
    if (high[1:] < low[:-1]).any():
        return False
    return True if (low[-1] > high[0]).any() else None


def _cheapest_alone(sure: list[int | None], possible: list[int | None]) -> bool | None:
    """Are the fewest messages those of k = 1? ``sure`` and ``possible``: how many each k needs, by the ends of the intervals."""
    others = [one for one in possible[1:] if one is not None]
    if sure[0] is not None and all(sure[0] < one for one in others):
        return True
    cheaper = [one for one in sure[1:] if one is not None]
    return False if possible[0] is None or any(one < possible[0] for one in cheaper) else None


def _shares(rows: pl.DataFrame, adversary: str, column: str) -> Array:
    """A column by k and number of rounds, (5, 5)."""
    return np.array([numbers(rows.filter(adversary=adversary, out_degree=k).sort("rounds"), column) for k in NEIGHBOURS])


def _first(rows: pl.DataFrame, adversary: str, end: str = "") -> list[int | None]:
    """The first of ROUNDS with at least 99 % success, per k; by an ``end`` of the intervals, low or high."""
    reached = _shares(rows, adversary, f"share_{end}" if end else "share") >= _SURE
    return [ROUNDS[int(np.argmax(row))] if row.any() else None for row in reached]


def _messages(rounds: list[int | None]) -> list[int | None]:
    return [None if one is None else one * out_degree for one, out_degree in zip(rounds, NEIGHBOURS, strict=True)]


def _listed(numbers: list[int | None]) -> str:
    return ", ".join("-" if one is None else str(one) for one in numbers)


FIGURE = Figure(
    name="inca-5",
    paper=PAPER,
    title="Figure 5: how often the precondition for the optimal error holds",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption="n = 100, k receivers a round chosen at random; bands: 95 % Clopper-Pearson.",
    size=(PAGE, 2.5),
    kept=shares,
)
