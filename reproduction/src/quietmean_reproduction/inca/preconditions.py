"""Figure 5: how often the precondition of Theorem 4.5 holds, against rounds, messages and neighbours."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy.stats import beta

from quietmean.graphs import make_schedule
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean_reproduction.figure import PAGE, Claim, Effort, Figure
from quietmean_reproduction.inca.connectivity import meets_precondition
from quietmean_reproduction.inca.setting import PAPER
from quietmean_reproduction.style import band, grid, legend_above, looks
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PARTIES, NEIGHBOURS, ROUNDS = 100, (1, 2, 3, 4, 5), (2, 4, 6, 8, 10)
_SURE = 0.99


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


def _interval(rows: pl.DataFrame) -> tuple[Any, Any]:
    """95 % Clopper-Pearson, in percent."""
    runs, count = rows["runs"].to_numpy(), rows["succeeded"].to_numpy()
    low = np.where(count == 0, 0.0, beta.ppf(0.025, count, runs - count + 1))
    high = np.where(count == runs, 1.0, beta.ppf(0.975, count + 1, runs - count))
    return 100 * low, 100 * high


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
            axes.plot(x, 100 * part["succeeded"] / part["runs"], label=f"k = {out_degree}", clip_on=False, **look)
            band(axes, x, *_interval(part), look["color"])
        axes.set(title=title, xlabel="messages per party, kT" if by_messages else "rounds T", ylim=(0, 100))
        if by_messages:
            axes.set_xlim(0, 52)
        grid(axes)
    panels[0].set_ylabel("runs that succeed (%)")
    legend_above(canvas, panels[0], 5)


def claims(rows: pl.DataFrame) -> list[Claim]:
    eavesdrop = _first(rows, "eavesdrop")
    collusion = _first(rows, "collusion")
    rates = {
        adversary: np.array([_rates(rows, adversary, out_degree) for out_degree in NEIGHBOURS])
        for adversary in ("eavesdrop", "collusion")
    }
    slack = 3 * np.sqrt(0.5 / rows["runs"][0])
    static, dynamic = (rows.filter(adversary=f"two-{kind}") for kind in ("random-static", "uniform"))
    messages = [rounds * out_degree for out_degree, rounds in zip(NEIGHBOURS, eavesdrop, strict=True) if rounds is not None]
    return [
        Claim(
            "eavesdroppers: the higher k, the fewer rounds for 100 % success",
            agrees=bool((np.diff(rates["eavesdrop"], axis=0) > -slack).all()) and _falls(eavesdrop),
            why=f"rounds until at least 99 % succeed, k = 1..5: {_listed(eavesdrop)}",
        ),
        Claim(
            "eavesdroppers: the lower k, the fewer messages in total",
            agrees=bool(np.argmin(messages) == 0),
            why=f"messages until at least 99 % succeed, for every k that gets there: {_listed(messages)}",
        ),
        Claim(
            "collusion: the lower k, the easier a high success rate",
            agrees=bool((np.diff(rates["collusion"], axis=0) < slack).all()),
            why=f"rounds until at least 99 % succeed, k = 1..5: {_listed(collusion)} (more than 10: -)",
        ),
        Claim(
            "Theorem 4.9: static neighbours and two fully observed honest parties break the precondition",
            0.0,
            static["succeeded"].item() / static["runs"].item(),
            static["succeeded"].item() == 0 and dynamic["succeeded"].item() > 0,
            f"share of {static['runs'].item()} runs that succeed, k = 2, T = 20; with neighbours drawn anew each round "
            f"{dynamic['succeeded'].item() / dynamic['runs'].item():.2f}",
        ),
    ]


def _rates(rows: pl.DataFrame, adversary: str, out_degree: int) -> list[float]:
    part = rows.filter(adversary=adversary, out_degree=out_degree)
    return (part["succeeded"] / part["runs"]).to_list()


def _first(rows: pl.DataFrame, adversary: str) -> list[int | None]:
    """The first of ROUNDS with at least 99 % success, per k."""
    rates = [_rates(rows, adversary, out_degree) for out_degree in NEIGHBOURS]
    return [next((rounds for rounds, rate in zip(ROUNDS, row, strict=True) if rate >= _SURE), None) for row in rates]


def _falls(rounds: list[int | None]) -> bool:
    known = [1000 if one is None else one for one in rounds]
    return all(later <= earlier for earlier, later in pairwise(known))


def _listed(numbers: list[Any]) -> str:
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
)
