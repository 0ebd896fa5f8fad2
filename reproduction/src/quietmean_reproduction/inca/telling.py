"""Figure 7: the error of IncA with gossip at the end, and of secure aggregation, for several corrupted and dropped fractions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from quietmean.graphs import ExecutionTrace, churn, make_schedule
from quietmean.privacy import mu_of_budget
from quietmean.privacy.gaussian import classical_mu
from quietmean.protocols.inca import IncA, Injection
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean_reproduction.columns import numbers
from quietmean_reproduction.figure import COLUMN, Claim, Effort, Figure
from quietmean_reproduction.inca.accounts import CALIBRATIONS, SPREAD, Account, Setting
from quietmean_reproduction.inca.setting import DELTA, PAPER
from quietmean_reproduction.style import BLUE, GREY, RED, band, grid, legend_above
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PARTIES, EPSILON, ROUNDS, TELLING = 200, 0.2, 40, 20
CORRUPT, DROPOUTS = (0.05, 0.1, 0.15), (0.05, 0.1, 0.15, 0.2)
# Rounds of secure aggregation, and after which of them a party's value is in the sum.
_SECAGG_ROUNDS, _SECAGG_COUNTED = 4, 2


def inca(*, seed: int, corrupt: float, dropouts: float, executions: int, runs: int, coordinates: int) -> list[dict[str, Any]]:
    """Noise from ``executions`` of the mixing phase, then the error of ``runs`` whole runs, both phases.

    Dropouts are spread evenly over all 60 rounds. Every coordinate is a sample of its own with values uniform in [0, 1]; an
    error is that of one party's estimate, a mean over all that are there at the end.
    """
    mixing = dropouts * ROUNDS / (ROUNDS + TELLING)
    account = Account.draw(Setting(PARTIES, EPSILON, corrupt, mixing, ROUNDS), executions, seed)
    levels = {calibration: account.levels(calibration) for calibration in CALIBRATIONS}
    errors: dict[str, list[tuple[float, float]]] = {calibration: [] for calibration in CALIBRATIONS}
    for run in range(runs):
        for calibration, (star, delta) in levels.items():
            errors[calibration].append(_whole_run(star, delta, dropouts, coordinates, seed, run))
    rows = []
    for calibration, found in errors.items():
        told, published = np.array(found).T
        rows.append(
            {
                "method": "inca",
                "calibration": calibration,
                "corrupt": corrupt,
                "dropouts": dropouts,
                "mse": told.mean(),
                "mse_standard_error": told.std(ddof=1) / np.sqrt(runs),
                "mse_spread": told.std(ddof=1),
                "mse_without_telling": published.mean(),
                "sigma_star2": levels[calibration][0] ** 2,
                "sigma_delta2": levels[calibration][1] ** 2,
                "executions": executions,
                "runs": runs,
            }
        )
    return rows


def _whole_run(star: float, delta: float, dropouts: float, coordinates: int, seed: int, run: int) -> tuple[float, float]:
    """Mean squared error of a party's estimate after gossip, and of the mean of all that was released after mixing."""
    root = insecure_seed(seed, "whole run", run)
    values = BitStream(root.derive("values")).uniform(PARTIES * coordinates).reshape(PARTIES, coordinates)
    trace = churn(root, ROUNDS + TELLING, PARTIES, permanent=dropouts)
    protocol = IncA(rounds=ROUNDS, schedule="uniform", sigma_star=star, sigma_delta=delta)
    mixing = ExecutionTrace(trace.online[: ROUNDS + 1])
    noise = InsecurePopulationNoise(int.from_bytes(root.derive("noise").secret[:7], "big"), PARTIES)
    ones, schedule = np.ones(PARTIES), protocol.draw_schedule(PARTIES, root)
    held = protocol.batch(schedule, mixing, values, ones, noise)
    truth = values.mean(axis=0)
    vector, weight = held.total()
    # Gossip in the clear starts from what was released; who left while mixing has nothing to tell and never takes part.
    there = mixing.finished
    telling = ExecutionTrace(np.vstack([np.ones((1, PARTIES), dtype=np.bool_), trace.online[ROUNDS + 1 :]]))
    plain = IncA(rounds=TELLING, injection=Injection.plain(TELLING), sigma_star=0.0, sigma_delta=0.0)
    gossip = make_schedule("uniform", root.derive("telling"), PARTIES, TELLING, 1)
    start, weights = np.where(there[:, None], held.vector, 0.0), np.where(there, held.weight, 0.0)
    known = plain.batch(gossip, telling, np.column_stack([start, weights]), ones, noise).vector[trace.finished]
    estimates = known[:, :-1] / known[:, -1:]
    return float(((estimates - truth) ** 2).mean()), float(((vector / weight - truth) ** 2).mean())


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
    sizes = {"executions": 60, "runs": 20, "coordinates": 50} if quick else {"executions": 1000, "runs": 1000, "coordinates": 20}
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
    told = numbers(part, "mse") / numbers(part, "mse_without_telling")
    rising = [(found[1:] > found[:-1]).mean() for found in (ours, ours.T, theirs, theirs.T)]
    return [
        Claim(
            "the error of both increases with the corrupted fraction and with dropouts",
            agrees=bool(min(rising) >= 0.75),
            why=f"share of steps that go up: IncA {rising[0]:.0%} with corrupted parties, {rising[1]:.0%} with dropouts, secure "
            f"aggregation {rising[2]:.0%} and {rising[3]:.0%}",
        ),
        Claim(
            "IncA has the higher error",
            None,
            float((ours / theirs).mean()),
            bool((ours > theirs).all()),
            f"IncA over secure aggregation: {(ours / theirs).min():.3g} to {(ours / theirs).max():.3g}; both with exact "
            f"accounting {(exact / exact_theirs).min():.3g} to {(exact / exact_theirs).max():.3g}",
            "x",
        ),
        Claim(
            "IncA's error grows more steeply with dropouts",
            None,
            float(growth.mean()),
            bool((growth > growth_theirs).all()),
            f"error at gamma = 0.2 over that at 0.05, mean over all rho; secure aggregation {growth_theirs.mean():.3g}",
            "x",
        ),
        Claim(
            "IncA is less stable, because of the gossip at the end",
            None,
            float(told.mean()),
            bool(told.mean() > 1),
            f"error after gossip over that of the released values' mean; runs differ by {spread:.0%} (standard deviation over "
            "mean), secure aggregation's not at all in this formula",
            "x",
        ),
    ]


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
