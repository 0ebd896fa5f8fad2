"""Figure 1: the error without dropouts, as a function of how many parties collude."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.graphs import ExecutionTrace
from quietmean.privacy import GAUSSIAN, Adversary, mu_of_budget, noise_levels
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean_reproduction.columns import interval_of, numbers
from quietmean_reproduction.figure import Check, Claim, Effort, Figure
from quietmean_reproduction.inca.setting import DELTA, PAPER, classical_square, random_coalition
from quietmean_reproduction.style import BLUE, GREEN, GREY, PINK, RED, grid, legend_above, stated
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Canvas

PARTIES, EPSILON = 1024, 0.1
# A hypercube of 1024 nodes: every node has 10 neighbours, and the gossip matrix (1/11 each) the second eigenvalue 9/11.
_DEGREE, _SECOND = 10, 9 / 11
# Of sigma_delta over sigma_star in the simulated executions; without dropouts all of it cancels.
_RATIO = 300.0
_ROUNDS = 30


def formulae(*, seed: int, points: int) -> list[dict[str, Any]]:
    """The error of each method by the paper's formulae (classical constant) and with the exact Gaussian formula."""
    del seed
    exact, rows = (1.0 / mu_of_budget(EPSILON, DELTA)) ** 2, []
    for calibration, one in (("paper", classical_square() / EPSILON**2), ("exact", exact)):
        for corrupt in np.linspace(0.0, 0.7, points):
            for method, variance in (("inca", one / (PARTIES * (1 - corrupt)) / PARTIES), ("central", one / PARTIES**2)):
                rows.append({"method": method, "calibration": calibration, "corrupt": corrupt, "mse": variance})
            rows.append({"method": "local", "calibration": calibration, "corrupt": corrupt, "mse": one / PARTIES})
    return rows


def muffliato(*, seed: int) -> list[dict[str, Any]]:
    """Muffliato under its own notion of privacy (IncA, appendix B), with the paper's number of rounds and with that of the
    theorem that the paper cites, which divides by the root of the spectral gap 1 - 9/11, not of the eigenvalue 9/11.
    """
    from quietmean.protocols.muffliato import network_design, rounds_for

    del seed
    rounds = {"paper": rounds_for(PARTIES, _SECOND), "exact": rounds_for(PARTIES, 1.0 - _SECOND)}
    designs = {name: network_design(PARTIES, _DEGREE, count, EPSILON, DELTA) for name, count in rounds.items()}
    return [
        {"method": "muffliato", "calibration": name, "mse": design.mse, "rounds": design.rounds, "sigma_star": design.sigma}
        for name, design in designs.items()
    ]


def measured(*, seed: int, corrupt: float, samples: int) -> list[dict[str, Any]]:
    """A real schedule and a random coalition: sigma_star such that the exact account is epsilon, then the error of the estimate.

    ``samples`` independent coordinates serve as so many runs; the mean square of their errors has a chi-square distribution.
    """
    template = IncA(rounds=_ROUNDS, schedule="uniform", sigma_star=1.0, sigma_delta=1.0)
    trace = ExecutionTrace.everyone(_ROUNDS, PARTIES)
    schedule = template.draw_schedule(PARTIES, insecure_seed(seed, "schedule"))
    adversary = Adversary.collusion(random_coalition(PARTIES, round(corrupt * PARTIES), seed))
    execution = Execution(template, schedule, trace, 1.0, np.ones(PARTIES))
    unit = float(noise_levels(execution.transcript(), adversary).mu(1.0, _RATIO, 1.0).max())
    star = unit / mu_of_budget(EPSILON, DELTA)
    values = np.zeros((PARTIES, samples))
    noisy = replace(execution, protocol=template.with_noise(star, _RATIO * star))
    errors = noisy.estimate(noisy.run_batch(values, InsecurePopulationNoise(seed, PARTIES)))
    mse = float((errors**2).mean())
    return [
        {
            "method": "inca",
            "calibration": "measured",
            "corrupt": corrupt,
            "mse": mse,
            "mse_standard_error": mse * math.sqrt(2.0 / samples),
            "runs": samples,
            "rounds": _ROUNDS,
            "sigma_star": star,
            "epsilon": GAUSSIAN.epsilon(unit / star, DELTA),
        }
    ]


def tasks(effort: Effort) -> list[Task]:
    quick = effort == Effort.QUICK
    shares = (0.05, 0.3, 0.5, 0.7) if quick else (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    samples = 400 if quick else 10_000
    points = [Task(measured, {"corrupt": share, "samples": samples}) for share in shares]
    return [Task(formulae, {"points": 36}), Task(muffliato), *points]


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    axes = canvas.add_subplot()
    for method, label, colour in (("local", "Local DP", RED), ("inca", "IncA", BLUE), ("central", "Central DP", GREEN)):
        for calibration, line in (("paper", "solid"), ("exact", (0, (3, 1.5)))):
            part = _part(rows, method, calibration)
            axes.plot(part["corrupt"], part["mse"], color=colour, linestyle=line, label=label if calibration == "paper" else None)
    theirs, ours = (_part(rows, "muffliato", calibration)["mse"].item() for calibration in ("paper", "exact"))
    axes.axhline(theirs, color=PINK, label="Muffliato, T = 8")
    axes.axhline(ours, color=PINK, linestyle=(0, (1, 1.5)), label="Muffliato, T = 17")
    points = _part(rows, "inca", "measured")
    axes.errorbar(
        points["corrupt"],
        points["mse"],
        1.96 * points["mse_standard_error"],
        fmt="o",
        color=BLUE,
        capsize=2,
        linewidth=0.8,
        label="IncA, simulated",
    )
    axes.plot([], [], color=GREY, linestyle=(0, (3, 1.5)), label="exact Gaussian")
    stated(axes, [0.0], [0.1764], "stated")
    axes.set(xlabel="corrupted parties (fraction of 1024)", ylabel="mean squared error", yscale="log", xlim=(-0.02, 0.72))
    legend_above(canvas, axes, 3)
    grid(axes)


def _part(rows: pl.DataFrame, method: str, calibration: str) -> pl.DataFrame:
    return rows.filter(method=method, calibration=calibration)


def claims(rows: pl.DataFrame) -> list[Claim]:
    muffled = {name: _part(rows, "muffliato", name) for name in ("paper", "exact")}
    inca, central, local = (_part(rows, method, "paper") for method in ("inca", "central", "local"))
    worst = inca["mse"][-1]
    nearer = math.log(worst / central["mse"][-1]) < math.log(local["mse"][-1] / worst)
    points = _part(rows, "inca", "measured")
    bound = 1.0 / mu_of_budget(EPSILON, DELTA) ** 2 / (PARTIES**2 * (1 - points["corrupt"].to_numpy()))
    excess = points["mse"].to_numpy() / bound
    reached = interval_of(
        float(excess.mean()), float(np.linalg.norm(numbers(points, "mse_standard_error") / bound)) / len(points)
    )
    saved = inca["mse"][0] / _part(rows, "inca", "exact")["mse"][0]
    return [
        Claim(
            "Muffliato's MSE is at least 0.1764 with T = 8",
            0.1764,
            muffled["paper"]["mse"].item(),
            abs(muffled["paper"]["mse"].item() / 0.1764 - 1) < 1e-3,
            "same formula; but T = ceil(ln n / sqrt(9/11)) takes the root of the second eigenvalue where the cited theorem has "
            f"the gap 2/11: T = {muffled['exact']['rounds'].item()} and MSE {muffled['exact']['mse'].item():.4g}",
        ),
        Claim("Muffliato's noise variance is always above 180", 180.0, muffled["paper"]["sigma_star"].item() ** 2, True),
        Claim(
            "with 70 % corrupted IncA is much closer to central than to local DP",
            None,
            worst / central["mse"][-1],
            nearer,
            f"times central DP; local DP is {local['mse'][-1] / worst:.0f} times worse than IncA",
            "x",
        ),
        Claim(
            "MSE c^2 / (n_H n epsilon^2) is reached",
            1.0,
            float(excess.mean()),
            None,
            f"simulated error over the formula, mean of {len(points)} coalitions (worst {excess.max():.3f}), exact Gaussian "
            f"formula on both sides; sigma_delta is {_RATIO:g} sigma_star, {points['runs'][0]} samples",
            "x",
            reached,
            (0.95, 1.05),
        ),
        Claim(
            "Theorem 4.5: sigma_delta^2 >= |Delta|^2 / (c^2 / epsilon^2 - 1 / (n_H sigma_star^2))",
            classical_square() / EPSILON**2,
            EPSILON**2 / classical_square(),
            False,
            "first term of the denominator: c^2 / epsilon^2 is printed, epsilon^2 / c^2 is meant, as in Theorems 4.6 and 4.7 and "
            "in the proof",
        ),
        Check(
            "the noise is calibrated with c^2 = 2 ln(1.25/delta)",
            classical_square() / EPSILON**2,
            (1.0 / mu_of_budget(EPSILON, DELTA)) ** 2,
            None,
            f"variance for a unit change: the exact Gaussian formula needs {saved:.2f} times less for the same guarantee",
        ),
    ]


FIGURE = Figure(
    name="inca-1",
    paper=PAPER,
    title="Figure 1: error without dropouts against colluding parties",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption="n = 1024, epsilon = 0.1, delta = 1e-5. Solid: the paper's classical constant; dashed: exact Gaussian formula. "
    "Muffliato only against single parties; dotted: with the number of rounds that its own theorem asks for.",
    size=(3.5, 3.0),
)
