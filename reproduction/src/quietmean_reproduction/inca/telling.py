"""Figure 7: the error of IncA with gossip at the end, and of secure aggregation, for several corrupted and dropped fractions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from quietmean.graphs import ExecutionTrace, Schedule, churn, make_schedule
from quietmean.privacy import mu_of_budget
from quietmean.privacy.composition import classical_mu
from quietmean.protocols.inca import IncA
from quietmean.randomness import Seed
from quietmean.randomness.insecure import insecure_seed
from quietmean_reproduction.columns import interval_of, numbers
from quietmean_reproduction.figure import COLUMN, Claim, Effort, Figure
from quietmean_reproduction.inca.accounts import CALIBRATIONS, SPREAD, Account, Setting, with_luck
from quietmean_reproduction.inca.hidden import influence, rounds_of, sent_back
from quietmean_reproduction.inca.setting import DELTA, PAPER
from quietmean_reproduction.style import BLUE, GREY, RED, band, grid, legend_above
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Array = NDArray[np.float64]

PARTIES, EPSILON, ROUNDS, TELLING = 200, 0.2, 40, 20
CORRUPT, DROPOUTS = (0.05, 0.1, 0.15), (0.05, 0.1, 0.15, 0.2)
# Rounds of secure aggregation, and after which of them a party's value is in the sum.
_SECAGG_ROUNDS, _SECAGG_COUNTED = 4, 2


def inca(*, seed: int, corrupt: float, dropouts: float, executions: int, runs: int) -> list[dict[str, Any]]:
    """Noise from ``executions`` of the mixing phase, then the error of ``runs`` whole runs, both phases.

    Dropouts are spread evenly over all 60 rounds. An error is that of one party's estimate, a mean over all that are there at
    the end: its expectation over noise and over values uniform in [0, 1], given who sends to whom and who leaves when.
    """
    mixing = dropouts * ROUNDS / (ROUNDS + TELLING)
    account = Account.draw(Setting(PARTIES, EPSILON, corrupt, mixing, ROUNDS), executions, seed)
    drawn = [_draw(insecure_seed(seed, "whole run", run), dropouts) for run in range(runs)]
    parts = np.array([error_parts(*one) for one in drawn])
    rows = []
    for calibration in CALIBRATIONS:
        star, delta = account.levels(calibration)
        after, published = (parts @ [SPREAD, star**2, delta**2]).T
        rows.append(
            {
                "method": "inca",
                "calibration": calibration,
                "corrupt": corrupt,
                "dropouts": dropouts,
                "mse": after.mean(),
                "mse_standard_error": after.std(ddof=1) / np.sqrt(runs),
                "mse_spread": after.std(ddof=1),
                "mse_without_telling": published.mean(),
                "sigma_star2": star**2,
                "sigma_delta2": delta**2,
                "executions": executions,
                "runs": runs,
            }
        )
    return rows


def _draw(root: Seed, dropouts: float) -> tuple[Schedule, Schedule, ExecutionTrace]:
    trace = churn(root, ROUNDS + TELLING, PARTIES, permanent=dropouts)
    mixing = IncA(rounds=ROUNDS, schedule="uniform", sigma_star=1.0, sigma_delta=1.0).draw_schedule(PARTIES, root)
    return mixing, make_schedule("uniform", root.derive("telling"), PARTIES, TELLING, 1), trace


def error_parts(mixing: Schedule, telling: Schedule, trace: ExecutionTrace) -> Array:
    """The expected squared error of a run per unit of the values' variance, of sigma_star^2 and of sigma_delta^2: (2, 3).

    First of what the parties that are there at the end know after gossip of what was released, a mean over them; then of the mean
    of what was released. Dropouts are for good.
    """
    first, online = mixing.rounds, trace.online
    parties, there = online.shape[1], online[first]
    # What is known at the end depends on what was released; who left while mixing has nothing to tell.
    known = np.eye(parties)[:, trace.finished]
    after = ExecutionTrace(np.vstack([np.ones((1, parties), dtype=np.bool_), online[first + 1 :]]))
    for step in reversed(list(rounds_of(telling, after))):
        known = sent_back(step, known)
    sums = np.column_stack([known, np.ones(parties)]) * there[:, None]
    values, noise = influence(mixing, ExecutionTrace(online[: first + 1]), sums)
    total = values.sum(axis=0)
    values, noise = values / total, noise / total**2
    parts = np.array([((values - 1.0 / parties) ** 2).sum(axis=0), (values**2).sum(axis=0), noise])
    return np.array([parts[:, :-1].mean(axis=1), parts[:, -1]])


def secagg(*, seed: int) -> list[dict[str, Any]]:
    """Secure aggregation with noise added locally, by formula: the honest parties that stay hide the sum.

    A quarter of the dropouts happens in each of four rounds; who leaves after sending its masked value is counted.
    """
    del seed
    rows = []
    for calibration, budget in (("paper", classical_mu), ("exact", mu_of_budget)):
        for corrupt in CORRUPT:
            for dropouts in DROPOUTS:
                counted = PARTIES * (1 - dropouts * _SECAGG_COUNTED / _SECAGG_ROUNDS)
                # All that drop out may be honest, and none of the noise of those that come too late is there.
                hiding = PARTIES * (1 - dropouts - corrupt)
                variance = 1.0 / budget(EPSILON, DELTA) ** 2 / hiding
                lost = SPREAD * (1.0 / counted - 1.0 / PARTIES)
                known = {"method": "secagg", "calibration": calibration, "corrupt": corrupt, "dropouts": dropouts}
                rows.append(known | {"mse": variance / counted + lost})
    return rows


def tasks(effort: Effort) -> list[Task]:
    quick = effort == Effort.QUICK
    sizes = {"executions": 60, "runs": 60} if quick else {"executions": 1000, "runs": 1000}
    points = [Task(inca, {"corrupt": corrupt, "dropouts": dropouts, **sizes}) for corrupt in CORRUPT for dropouts in DROPOUTS]
    return [*points, Task(secagg)]


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    axes = canvas.add_subplot()
    markers = ("o", "s", "^")
    for method, name, colour in (("inca", "IncA", BLUE), ("secagg", "SecAgg", RED)):
        for corrupt, marker in zip(CORRUPT, markers, strict=True):
            part = rows.filter(method=method, corrupt=corrupt, calibration="paper")
            axes.plot(part["dropouts"], part["mse"], color=colour, marker=marker, label=f"{name}, ρ = {corrupt:g}")
            if method == "inca":
                half = 1.96 * part["mse_standard_error"]
                band(axes, part["dropouts"], part["mse"] - half, part["mse"] + half, colour)
    for method, colour in (("inca", BLUE), ("secagg", RED)):
        part = rows.filter(method=method, corrupt=0.1, calibration="exact")
        axes.plot(part["dropouts"], part["mse"], color=colour, marker="s", linestyle=(0, (3, 1.5)))
    axes.plot([], [], color=GREY, marker="s", linestyle=(0, (3, 1.5)), label="exact, ρ = 0.1")
    axes.set(xlabel="parties that drop out (fraction γ)", ylabel="mean squared error", yscale="log", xticks=DROPOUTS)
    legend_above(canvas, axes, 3)
    grid(axes)


def claims(rows: pl.DataFrame) -> list[Claim]:
    def of(method: str, calibration: str = "paper") -> Any:
        part = rows.filter(method=method, calibration=calibration).sort("corrupt", "dropouts")
        return part["mse"].to_numpy().reshape(len(CORRUPT), len(DROPOUTS))

    ours, theirs = of("inca"), of("secagg")
    exact, exact_theirs = of("inca", "exact"), of("secagg", "exact")
    growth, growth_theirs = (found[:, -1] / found[:, 0] for found in (ours, theirs))
    part = rows.filter(method="inca", calibration="paper")
    spread = float((numbers(part, "mse_spread") / numbers(part, "mse")).mean())
    after = numbers(part, "mse") / numbers(part, "mse_without_telling")
    relative = numbers(part, "mse_standard_error") / numbers(part, "mse")
    return [
        _rises(rows, "the corrupted fraction", 0),
        _rises(rows, "dropouts", 1),
        Claim(
            "IncA has the higher error",
            None,
            float((ours / theirs).min()),
            None,
            f"IncA over secure aggregation, the least: {(ours / theirs).min():.3g} to {(ours / theirs).max():.3g}; both with "
            f"exact accounting {(exact / exact_theirs).min():.3g} to {(exact / exact_theirs).max():.3g}",
            "x",
            with_luck(float((ours / theirs).min())),
            (1.0, math.inf),
        ),
        Claim(
            "IncA's error grows more steeply with dropouts",
            None,
            float(growth.mean()),
            None,
            f"error at gamma = 0.2 over that at 0.05, mean over all rho; secure aggregation {growth_theirs.mean():.3g}",
            "x",
            with_luck(float(growth.mean())),
            (float(growth_theirs.mean()), math.inf),
        ),
        Claim(
            "IncA is less stable, because of the gossip at the end",
            None,
            float(after.mean()),
            None,
            f"error after gossip over that of the released values' mean; the expected errors of runs differ by {spread:.0%} "
            "(standard deviation over mean), secure aggregation's not at all in this formula",
            "x",
            interval_of(float(after.mean()), float(np.linalg.norm(relative * after)) / after.size),
            (1.0, math.inf),
        ),
    ]


def _rises(rows: pl.DataFrame, what: str, axis: int) -> Claim:
    """That both errors increase along ``axis`` of (corrupted, dropped out): only if every step does, by its interval.

    The intervals are given the noise, which the worst of some executions decides: a step that goes down shows nothing.
    """
    words, all_rise = [], True
    for method, name in (("inca", "IncA"), ("inca", "IncA with exact accounting"), ("secagg", "secure aggregation")):
        calibration = "exact" if "exact" in name else "paper"
        part = rows.filter(method=method, calibration=calibration).sort("corrupt", "dropouts")
        columns = (part["mse"], part["mse_standard_error"].fill_null(0.0))
        mse, error = (np.moveaxis(one.to_numpy().reshape(len(CORRUPT), len(DROPOUTS)), axis, 0) for one in columns)
        steps, width = mse[1:] - mse[:-1], 1.96 * np.hypot(error[1:], error[:-1])
        up, down = int((steps > width).sum()), int((steps < -width).sum())
        words.append(f"{name} {up} of {steps.size} steps up, {down} down")
        if calibration == "paper":
            all_rise &= up == steps.size
    why = (
        f"beyond their 95 % intervals: {'; '.join(words)}. The worst of all executions decides IncA's noise, which is not in them"
    )
    return Claim(f"the error of both increases with {what}", agrees=True if all_rise else None, why=why)


FIGURE = Figure(
    "inca-7",
    PAPER,
    "Figure 7: error beside secure aggregation",
    tasks,
    draw,
    claims,
    "n = 200, epsilon = 0.2, delta = 1e-5, k = 1, T = 40, then 20 rounds of push-sum; dropouts evenly over all rounds. Bands: "
    "95 % of the mean over runs, given the noise. Solid: Theorem 4.7 and the classical constant; dashed: exact accounting.",
    (COLUMN, 3.4),
)
