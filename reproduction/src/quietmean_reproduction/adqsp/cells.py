"""Figure 2: convergence with a smallest cell, and the error that stays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.protocols.consensus.analysis import Dynamics
from quietmean_reproduction.adqsp.setting import (
    BITS,
    NOTE,
    PAPER,
    PARTIES,
    STEP,
    THETAS,
    draw_curve,
    gamma_for,
    last_error_mse,
    narrowest_from,
    network,
    overload_claim,
    quantised,
    sizes,
    title_of,
    unquantised,
    watch,
)
from quietmean_reproduction.columns import interval_of, largest, numbers
from quietmean_reproduction.figure import PAGE, Check, Claim, Effort, Figure
from quietmean_reproduction.style import BLACK, BLUE, GREEN, RED, grid
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Canvas

CELLS, SIGMA = (1e-1, 1e-2, 1e-3), 1e3
# Differences over two iterations, those of theta = 0, overload 2 bits often enough to be seen in the error: there 3 bits, too.
MORE_BITS = 3
CASES = (*((theta, BITS) for theta in THETAS), (0.0, MORE_BITS))
_EVERY = 5
# How many iterations with narrowest cells follow, and how many of them, the last, are averaged.
_SETTLING, _AVERAGED = 250, 100


def smallest_cell(*, seed: int, theta: float, bits: int, delta_min: float, graph: int, samples: int) -> list[dict[str, Any]]:
    """Cells shrink to ``delta_min``. The error that stays, beside our formula and the paper's (38)-(39)."""
    edges = network(seed)
    gamma = gamma_for(edges)
    template = quantised(unquantised(edges, theta, SIGMA, 1), gamma, delta_min, graph, bits)
    watched = watch(replace(template, iterations=narrowest_from(template) + _SETTLING), samples, seed)
    mean, error = watched.settled(_AVERAGED)
    dynamics = Dynamics(edges, PARTIES, theta, STEP)
    common = {"theta": theta, "bits": bits, "delta_min": delta_min, "graph": graph, "gamma": gamma, "runs": samples}
    # In units of delta_min^2.
    summary = {
        "alpha": mean / delta_min**2,
        "alpha_standard_error": error / delta_min**2,
        "alpha_predicted": dynamics.steady_state_mse(1.0),
        "alpha_paper": last_error_mse(dynamics),
        "overloads": watched.overloads,
    }
    # Curves are drawn of the first graph only.
    curve = [{"kind": "curve", **common, **row} for row in watched.curve(_EVERY)] if graph == 0 else []
    return [{"kind": "summary", **common, **summary}, *curve]


def tasks(effort: Effort) -> list[Task]:
    graphs, samples = sizes(effort)
    return [
        Task(
            smallest_cell,
            {"theta": theta, "bits": bits, "delta_min": cell, "graph": graph, "samples": samples},
            seed=f"adqsp graph {graph}",
        )
        for theta, bits in CASES
        for cell in CELLS
        for graph in range(graphs)
    ]


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    panels = canvas.subplots(1, len(THETAS), sharex=True, sharey=True)
    for axes, theta in zip(panels, THETAS, strict=True):
        here = rows.filter(graph=0, theta=theta, bits=BITS)
        for cell, colour in zip(CELLS, (RED, GREEN, BLUE), strict=True):
            draw_curve(axes, here.filter(kind="curve", delta_min=cell), colour, f"Δmin = {cell:g}")
            summary = here.filter(kind="summary", delta_min=cell)
            for field, line in (("alpha_predicted", (0, (4, 2))), ("alpha_paper", (0, (1, 1.5)))):
                axes.axhline(summary[field].item() * cell**2, color=BLACK, linewidth=0.8, linestyle=line)
        axes.plot([], [], color=BLACK, linewidth=0.8, linestyle=(0, (4, 2)), label="our formula")
        axes.plot([], [], color=BLACK, linewidth=0.8, linestyle=(0, (1, 1.5)), label="the paper's (38)−(39)")
        alpha = numbers(here.filter(kind="summary"), "alpha").mean()
        axes.text(0.96, 0.93, f"MSE = {alpha:.4f} Δmin²", transform=axes.transAxes, fontsize=6.5, ha="right")
        axes.set(title=title_of(theta), xlabel="iteration t", yscale="log", xlim=(0, None))
        grid(axes)
    panels[0].set_ylabel("mean squared error")
    panels[0].set_ylim(1e-9, 1e7)
    handles, _ = panels[0].get_legend_handles_labels()
    canvas.legend(handles=handles, loc="outside upper center", ncols=5)


def claims(rows: pl.DataFrame) -> list[Claim]:
    summary = rows.filter(kind="summary")
    listed = []
    for theta in THETAS:
        part = summary.filter(theta=theta, bits=BITS)
        alpha, paper = (float(numbers(part, name).mean()) for name in ("alpha", "alpha_paper"))
        listed.append(
            Claim(
                f"MSE / Delta_min^2 at theta = {theta:g}",
                paper,
                alpha,
                None,
                f"the first column is what (38)-(39) give: they keep the errors of the last iteration only and miss "
                f"{1 - paper / alpha:.0%}; {BITS} bits, {part['runs'][0]} runs on each of {len(part) // len(CELLS)} graphs",
                "",
                interval_of(alpha, _error_of_mean(part)),
                (paper / 1.05, paper / 0.95),
            )
        )
    listed.extend(_formula_holds(summary, theta, bits) for theta, bits in CASES)
    by_graph = [(numbers(part, "alpha"), numbers(part, "alpha_standard_error")) for _, part in _by_graph(summary)]
    spread, sure = largest(
        [float(np.ptp(alpha) / alpha.min()) for alpha, _ in by_graph],
        [math.sqrt(2.0) * float((error / alpha).max()) for alpha, error in by_graph],
    )
    listed.append(
        Claim(
            "accuracy is degraded by increasing Delta_min",
            None,
            spread,
            None,
            "in proportion to Delta_min^2: largest relative difference of MSE / Delta_min^2 over Delta_min on one graph",
            "",
            sure,
            (-math.inf, 0.15),
        )
    )
    return [*listed, overload_claim(summary.filter(bits=BITS))]


def _error_of_mean(part: pl.DataFrame) -> float:
    """The standard error of the mean over graphs and cells: graphs are independent, the cells of one draw the same noise."""
    errors = [float(numbers(one, "alpha_standard_error").mean()) for _, one in _by_graph(part)]
    return math.sqrt(sum(error**2 for error in errors)) / len(errors)


def _by_graph(summary: pl.DataFrame) -> list[tuple[tuple[Any, ...], pl.DataFrame]]:
    return list(summary.group_by("theta", "bits", "graph", maintain_order=True))


def _formula_holds(summary: pl.DataFrame, theta: float, bits: int) -> Claim:
    part = summary.filter(theta=theta, bits=bits)
    alpha, error, formula = (numbers(part, name) for name in ("alpha", "alpha_standard_error", "alpha_predicted"))
    overloads = float(numbers(part, "overloads").max())
    allowed = 5 * error + 0.01 * formula
    why = (
        f"formula {formula.mean():.5f} (mean over graphs); simulated over formula {(alpha / formula).mean():.3f}, at most "
        f"{(np.abs(alpha - formula) / error).max():.1f} standard errors off; {overloads:.2g} of the numbers overloaded"
    )
    beyond = theta == 0 and bits == BITS
    if beyond:
        why += (
            ". It does not apply: it is for quantisers that do not overload; differences over two iterations need 3 bits for that"
        )
    return Check(
        f"(Delta_min^2 / 12)(1/n) tr(H X H') at theta = {theta:g} with {bits} bits",
        None,
        float(alpha.mean()),
        False if not beyond and bool((np.abs(alpha - formula) >= allowed).any()) else None,
        why,
        "",
        interval_of(float(alpha.mean()), _error_of_mean(part)),
        None if beyond else (0.99 * float(formula.mean()), 1.01 * float(formula.mean())),
    )


FIGURE = Figure(
    name="adqsp-2",
    paper=PAPER,
    title="Figure 2: convergence for three smallest cells",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption=f"{NOTE}sigma_z = {SIGMA:g}. Mean over runs on one graph; bands: 95 %. Dashed: our formula for the error that stays.",
    size=(PAGE, 2.6),
)
