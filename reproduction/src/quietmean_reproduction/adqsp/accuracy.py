"""Figure 4: the error against that of local noise of the same width."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.graphs import Edges
from quietmean.protocols.consensus.analysis import Dynamics, best_step
from quietmean_reproduction.adqsp.setting import (
    BITS,
    PAPER,
    PARTIES,
    STEP,
    THETAS,
    draw_curve,
    gamma_for,
    last_error_mse,
    narrowest_from,
    network,
    quantised,
    unquantised,
    watch,
)
from quietmean_reproduction.columns import interval_of, numbers, worst_deviation
from quietmean_reproduction.figure import PAGE, Check, Claim, Effort, Figure
from quietmean_reproduction.style import BLUE, GREY, RED, grid
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Canvas

# Neither of them is stated for this figure.
THETA, SIGMA = 0.2, 1e3
CELLS = (1e-1, 1e-2)
TUNED = "tuned"
_EVERY, _SETTLING, _AVERAGED = 4, 150, 60
_LABEL = "adqsp graph 0"


def _step(edges: Edges, step: str) -> float:
    return best_step(edges, PARTIES, THETA) if step == TUNED else STEP


def simulated(*, seed: int, cell: float, step: str, method: str, samples: int) -> list[dict[str, Any]]:
    """``method`` adqsp: Delta_min = ``cell``. ``local``: uniform noise of that width in every value, nothing quantised."""
    edges = network(seed)
    c = _step(edges, step)
    gamma = gamma_for(edges, (THETA,), c)
    template = quantised(unquantised(edges, THETA, SIGMA, 1, c), gamma, cell, 1)
    iterations = narrowest_from(template) + _SETTLING
    protocol = replace(template, iterations=iterations)
    if method == "local":
        protocol = replace(protocol.quantised(None), local_noise="uniform", sigma_local=cell / math.sqrt(12))
    watched = watch(protocol, samples, seed)
    mean, error = watched.settled(_AVERAGED)
    dynamics = Dynamics(edges, PARTIES, THETA, c)
    predicted = dynamics.steady_state_mse(cell) if method == "adqsp" else cell**2 / 12 / PARTIES
    paper = last_error_mse(dynamics) * cell**2 if method == "adqsp" else cell**2 / 12
    common = {"cell": cell, "step": step, "method": method, "c": c, "gamma": gamma, "rho": dynamics.rho, "runs": samples}
    summary = {"settled": mean, "settled_standard_error": error, "predicted": predicted, "paper_formula": paper}
    summary["overloads"] = watched.overloads
    curve = [{"kind": "curve", **common, **row} for row in watched.curve(_EVERY)]
    return [{"kind": "summary", **common, **summary}, *curve]


def ratios(*, seed: int) -> list[dict[str, Any]]:
    """By formula: the error of ADQSP over that of local noise of the same width, by theta and c."""
    edges = network(seed)
    rows = []
    for theta in THETAS:
        for step in (STEP, best_step(edges, PARTIES, theta)):
            ratio = Dynamics(edges, PARTIES, theta, step).steady_state_mse(1.0) * 12 * PARTIES
            rows.append({"kind": "ratio", "theta": theta, "c": step, "ratio": ratio})
    return rows


def tasks(effort: Effort) -> list[Task]:
    samples = 200 if effort == Effort.QUICK else 10_000
    points = [
        Task(simulated, {"cell": cell, "step": step, "method": method, "samples": samples}, seed=_LABEL)
        for step in (f"{STEP:g}", TUNED)
        for cell in CELLS
        for method in ("adqsp", "local")
    ]
    return [Task(ratios, seed=_LABEL), *points]


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    panels = canvas.subplots(1, 2, sharey=True)
    for axes, step in zip(panels, (f"{STEP:g}", TUNED), strict=True):
        here = rows.filter(step=step)
        for cell, colour in zip(CELLS, (RED, BLUE), strict=True):
            for method, label in (("adqsp", "ADQSP, Δmin"), ("local", "local noise, ur")):
                part = here.filter(kind="curve", cell=cell, method=method)
                draw_curve(axes, part, colour, f"{label} = {cell:g}", dashed=method == "local")
                predicted = here.filter(kind="summary", cell=cell, method=method)["predicted"].item()
                axes.plot([part["iteration"][-1]], [predicted], ">", color=colour, markersize=4.5, clip_on=False)
            theirs = here.filter(kind="summary", cell=cell, method="local")["paper_formula"].item()
            axes.axhline(theirs, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)))
        axes.plot([], [], color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), label="the paper's (34): ur²/12")
        axes.plot([], [], ">", color=GREY, markersize=4.5, label="our formulae")
        c = here["c"][0]
        axes.set(
            title=f"c = {c:g}" + (" (tuned)" if step == TUNED else " (as in section VII)"), xlabel="iteration t", yscale="log"
        )
        axes.set_xlim(0, None)
        grid(axes)
    panels[0].set_ylabel("mean squared error")
    panels[0].set_ylim(1e-7, 1e7)
    handles, _ = panels[0].get_legend_handles_labels()
    canvas.legend(handles=handles, loc="outside upper center", ncols=3)


def claims(rows: pl.DataFrame) -> list[Claim]:
    summary = rows.filter(kind="summary")
    local = summary.filter(method="local")
    remains, sure = _mean_ratio(local, "settled", local, "paper_formula")
    worst = worst_deviation(summary, "settled", "predicted")
    table = rows.filter(kind="ratio")
    texts = [f"theta {row['theta']:g}, c {row['c']:g}: {row['ratio']:.1f}" for row in table.iter_rows(named=True)]
    return [
        *(_comparison(summary.filter(step=step)) for step in (f"{STEP:g}", TUNED)),
        Claim(
            "the error of local noise is (1/n) sum r_i^2 (34), in units of its expectation u_r^2/12",
            1.0,
            remains,
            None,
            f"the noise of the mean stays, (mean r_i)^2: n times less, expected 1/n = {1 / PARTIES:.4f}",
            "",
            sure,
            (0.95, 1.05),
        ),
        Check("simulated errors are those of our formulae", None, worst, worst < 5, "largest of 8 deviations", "standard errors"),
        Check(
            "error of ADQSP over that of local noise of the same width, by formula",
            None,
            float(numbers(table, "ratio").min()),
            None,
            f"the least of: {'; '.join(texts)}",
            "x",
        ),
    ]


def _comparison(summary: pl.DataFrame) -> Claim:
    ours, local = (summary.filter(method=method).sort("cell") for method in ("adqsp", "local"))
    ratio, sure = _mean_ratio(ours, "settled", local, "settled")
    over, _ = _mean_ratio(ours, "settled", local, "paper_formula")
    return Claim(
        f"with u_r = Delta_min ADQSP is about as accurate as local noise (c = {ours['c'][0]:g})",
        1.0,
        ratio,
        None,
        f"error over that of local noise, u_r^2/(12 n). Over the paper's (34), {PARTIES} times as much, it is {over:.2f}. "
        f"It depends on c and theta, not stated for this figure: theta = {THETA:g} here, rho = {ours['rho'][0]:.3f}",
        "x",
        sure,
        (0.5, 2.0),
    )


def _mean_ratio(ours: pl.DataFrame, one: str, theirs: pl.DataFrame, other: str) -> tuple[float, tuple[float, float]]:
    """The mean over cells of a column of settled errors over another, and its interval: all cells draw the same noise."""
    ratios = numbers(ours, one) / numbers(theirs, other)
    relative = numbers(ours, f"{one}_standard_error") / numbers(ours, one)
    if f"{other}_standard_error" in theirs.columns:
        relative = np.hypot(relative, numbers(theirs, f"{other}_standard_error") / numbers(theirs, other))
    mean = float(ratios.mean())
    return mean, interval_of(mean, float((ratios * relative).mean()))


FIGURE = Figure(
    name="adqsp-4",
    paper=PAPER,
    title="Figure 4: accuracy against local noise of the same width",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption=f"n = {PARTIES}, a random geometric graph in the unit square, theta = {THETA:g}, sigma_z = {SIGMA:g}, {BITS} bits. "
    "c and theta decide how the two compare; neither is stated for this figure. Neither side is differentially private: uniform "
    "noise has no epsilon at all. Bands: 95 %.",
    size=(PAGE, 3.0),
)
