"""Figure 1: how the estimates converge, for three theta and three variances of the auxiliary variable."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.protocols.consensus.analysis import Dynamics
from quietmean_reproduction.adqsp.setting import (
    NOTE,
    PAPER,
    PARTIES,
    STEP,
    THETAS,
    Array,
    draw_curve,
    gamma_for,
    network,
    overload_claim,
    quantised,
    sizes,
    title_of,
    unquantised,
    watch,
)
from quietmean_reproduction.columns import largest, numbers
from quietmean_reproduction.figure import PAGE, Check, Claim, Effort, Figure, within
from quietmean_reproduction.style import BLUE, GREEN, GREY, RED, grid
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Canvas

SIGMAS = (1e3, 1e2, 1e1)
_EVERY, _ITERATIONS, _FITTED, _GROUPS = 5, 500, 250, 10
# Slopes that differ by less are the same.
_CLOSE = 0.02


def shrinking(*, seed: int, theta: float, sigma_z: float, graph: int, samples: int) -> list[dict[str, Any]]:
    """Cells shrink for ever. One gamma for all theta and sigma_z of a graph, so that they can be compared."""
    edges = network(seed)
    gamma = gamma_for(edges)
    protocol = quantised(unquantised(edges, theta, sigma_z, _ITERATIONS), gamma, 0.0, graph)
    watched = watch(protocol, samples, seed)
    common = {"theta": theta, "sigma_z": sigma_z, "graph": graph, "gamma": gamma, "runs": samples}
    # The slope of the mean over all runs, and how much it differs between groups of them.
    groups = [_slope(part) for part in np.array_split(watched.mse, min(_GROUPS, samples), axis=1)]
    summary = {
        "slope": _slope(watched.mse),
        "slope_standard_error": float(np.std(groups, ddof=1)) / math.sqrt(len(groups)),
        "slope_of_cells": 2 * float(np.log10(gamma)),
        "rho": Dynamics(edges, PARTIES, theta, STEP).rho,
        "overloads": watched.overloads,
        "first_mse": watched.mse[0].mean(),
        "last_mse": watched.mse[-1].mean(),
    }
    # Curves are drawn of the first graph only.
    curve = [{"kind": "curve", **common, **row} for row in watched.curve(_EVERY)] if graph == 0 else []
    return [{"kind": "summary", **common, **summary}, *curve]


def _slope(mse: Array) -> float:
    """Slope of the logarithm of the mean over runs of the error, (T + 1, runs), in the last iterations."""
    return float(np.polyfit(np.arange(_FITTED), np.log10(mse[-_FITTED:].mean(axis=1)), 1)[0])


def one_step(*, seed: int, samples: int) -> list[dict[str, Any]]:
    """theta = 0 with differences over one iteration, as the paper has them, at the largest sigma_z."""
    edges = network(seed)
    protocol = quantised(unquantised(edges, 0.0, SIGMAS[0], _ITERATIONS), gamma_for(edges), 0.0, 0)
    assert protocol.quantisation is not None  # noqa: S101 - for the type checker
    watched = watch(replace(protocol, two_step=False), samples, seed)
    row = {"theta": 0.0, "sigma_z": SIGMAS[0], "graph": 0, "runs": samples, "overloads": watched.overloads}
    return [{"kind": "one step", **row, **watched.curve(_ITERATIONS)[-1]}]


def tasks(effort: Effort) -> list[Task]:
    graphs, samples = sizes(effort)
    return [
        *_tasks(graphs, samples),
        Task(one_step, {"samples": samples}, seed="adqsp graph 0"),
    ]


def _tasks(graphs: int, samples: int) -> list[Task]:
    return [
        Task(
            shrinking,
            {"theta": theta, "sigma_z": sigma_z, "graph": graph, "samples": samples},
            # The same graph, values and noise for all theta and sigma_z.
            seed=f"adqsp graph {graph}",
        )
        for theta in THETAS
        for sigma_z in SIGMAS
        for graph in range(graphs)
    ]


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    panels = canvas.subplots(1, len(THETAS), sharex=True, sharey=True)
    for axes, theta in zip(panels, THETAS, strict=True):
        here = rows.filter(graph=0, theta=theta)
        for sigma_z, colour in zip(SIGMAS, (RED, GREEN, BLUE), strict=True):
            draw_curve(axes, here.filter(kind="curve", sigma_z=sigma_z), colour, f"σz = {sigma_z:g}")
        summary = here.filter(kind="summary")
        slope, found = (float(numbers(summary, name).mean()) for name in ("slope_of_cells", "slope"))
        # A line of the expected slope, above the curves.
        axes.plot([150, 450], [1e7, 1e7 * 10 ** (300 * slope)], color=GREY, linestyle=(0, (3, 1.5)), label="slope of γ^(2t)")
        text = f"slope {found:.4f} a step\n2 log₁₀ γ = {slope:.4f}".replace("-", "−")
        axes.text(0.04, 0.05, text, transform=axes.transAxes, fontsize=6.5)
        axes.set(title=title_of(theta), xlabel="iteration t", yscale="log", xlim=(0, _ITERATIONS))
        grid(axes)
    panels[0].set_ylabel("mean squared error")
    panels[0].set_ylim(1e-15, 1e9)
    handles, _ = panels[0].get_legend_handles_labels()
    canvas.legend(handles=handles, loc="outside upper center", ncols=4)


def claims(rows: pl.DataFrame) -> list[Claim]:
    summary = rows.filter(kind="summary")
    slopes, expected, errors = (numbers(summary, name) for name in ("slope", "slope_of_cells", "slope_standard_error"))
    off, sure = largest(np.abs(slopes / expected - 1), np.abs(errors / expected))
    over_sigma, over_theta = _spread_of_slopes(summary, "theta"), _spread_of_slopes(summary, "sigma_z")
    graphs, gamma = len(set(summary["graph"].to_list())), numbers(summary, "gamma")
    rates = ", ".join(f"theta {theta:g}: {numbers(summary.filter(theta=theta), 'rho').mean():.3f}" for theta in THETAS)
    start = [numbers(summary.filter(sigma_z=sigma_z), "first_mse").mean() for sigma_z in SIGMAS]
    return [
        Claim(
            "with Delta_min = 0 the estimates converge to the exact mean",
            0.0,
            float(numbers(summary, "last_mse").max()),
            within(sure, (-math.inf, _CLOSE)),
            f"largest error after {_ITERATIONS} iterations on {graphs} graphs, still falling at the rate of the cells",
        ),
        Check(
            "the slope of the logarithm of the error is 2 log10 gamma",
            None,
            off,
            None,
            "largest relative deviation of a fitted slope. gamma is not stated; here it is what the slowest theta of a graph can "
            f"follow, {gamma.min():.4f} .. {gamma.max():.4f}",
            "",
            sure,
            (-math.inf, _CLOSE),
        ),
        Claim(
            "the rate of convergence does not depend on the variance of the auxiliary variable",
            0.0,
            over_sigma[0],
            None,
            "largest relative difference of slopes over sigma_z. The initial error is larger by "
            f"{start[0] / start[1]:.0f} and {start[1] / start[2]:.0f} times",
            "",
            over_sigma[1],
            (-math.inf, _CLOSE),
        ),
        Claim(
            "the convergence does not depend on theta",
            0.0,
            over_theta[0],
            None,
            "relative difference of slopes at one common gamma. True of the figure because the cells, not theta, set the pace: "
            f"without quantisation the error shrinks per iteration by {rates}",
            "",
            over_theta[1],
        ),
        overload_claim(summary),
        _one_step_claim(rows),
    ]


def _one_step_claim(rows: pl.DataFrame) -> Claim:
    stuck = rows.filter(kind="one step")
    # The paper has them; its analysis needs quantisers that do not overload.
    error, steps = float(stuck["mse"].item()), int(stuck["iteration"].item()) - 1
    right = float(numbers(rows.filter(kind="curve", graph=0, theta=0.0, sigma_z=SIGMAS[0], iteration=steps + 1), "mse")[0])
    return Check(
        "theta = 0 converges with quantised differences over one iteration",
        None,
        error,
        error < 100 * right,
        f"error after {steps} iterations, sigma_z = {SIGMAS[0]:g}; with differences over two {right:.2g}. It does, although "
        f"{float(stuck['overloads'].item()):.0%} of the numbers overload, to the end: a part of the noise changes sign every "
        "step. But then quantisation errors are neither uniform nor independent of the values, as they are in the analysis",
    )


def _spread_of_slopes(summary: pl.DataFrame, fixed: str) -> tuple[float, tuple[float, float]]:
    """The largest relative difference of slopes on one graph with one value of ``fixed``, and its interval.

    The same noise is drawn for all: that their errors are taken as independent makes the interval wider than it is.
    """
    spreads, errors = [], []
    for _, part in summary.group_by("graph", fixed, maintain_order=True):
        slopes = numbers(part, "slope")
        spreads.append(float(np.ptp(slopes) / np.abs(slopes).min()))
        errors.append(math.sqrt(2.0) * float((numbers(part, "slope_standard_error") / np.abs(slopes)).max()))
    return largest(spreads, errors)


FIGURE = Figure(
    name="adqsp-1",
    paper=PAPER,
    title="Figure 1: convergence for three variances of the auxiliary variable",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption=f"{NOTE}Mean over runs on one graph (claims: on all graphs); bands: 95 %.",
    size=(PAGE, 2.6),
)
