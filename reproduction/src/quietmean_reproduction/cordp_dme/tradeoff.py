"""Figure 6: error against epsilon, with dropouts and collusion, beside PrivUnitG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.protocols.cordp_dme.design import biased_mse, gaussian_variance, optimal_design
from quietmean_reproduction.columns import numbers, worst_deviation
from quietmean_reproduction.cordp_dme.priv_unit import best_error, measured_priv_unit
from quietmean_reproduction.cordp_dme.setting import (
    DELTA,
    PAPER,
    RADIUS,
    REPLACEMENT,
    TABLE_II,
    design_for,
    measure,
)
from quietmean_reproduction.figure import PAGE, Check, Claim, Effort, Figure
from quietmean_reproduction.style import BLUE, GREEN, GREY, ORANGE, PINK, RED, grid
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PARTIES, DIMENSION = 100, 20
RESPONDING, COLLUDING = (100, 90, 80), (0, 10, 20)
# Not stated.
LOWEST, HIGHEST = 0.5, 8.0
AT = 2.0
CURVES = ("local", "unbiased", "biased", "central", "priv-unit-g")


def formulae(*, seed: int, points: int) -> list[dict[str, Any]]:
    """Errors by formula for every t, c, both sensitivities and a range of epsilon."""
    del seed
    rows = []
    for epsilon in sorted({*np.geomspace(LOWEST, HIGHEST, points).tolist(), AT}):
        private_unit = best_error(epsilon, DIMENSION)
        for sensitivity in (REPLACEMENT, TABLE_II):
            unit = gaussian_variance(epsilon, DELTA, sensitivity)
            for responding in RESPONDING:
                for colluding in COLLUDING:
                    unbiased = optimal_design(PARTIES, responding, colluding, unit).mse(DIMENSION)
                    rows.append(
                        {
                            "kind": "formula",
                            "epsilon": epsilon,
                            "sensitivity": sensitivity,
                            "responding": responding,
                            "colluding": colluding,
                            "local": DIMENSION * unit / responding,
                            "unbiased": unbiased,
                            "biased": biased_mse(unbiased, RADIUS),
                            "central": DIMENSION * unit / responding**2,
                            "priv-unit-g": private_unit / responding,
                        }
                    )
    return rows


def crossings(*, seed: int, epsilons: list[float]) -> list[dict[str, Any]]:
    """From how many responders on CorDP-DME at sensitivity 2 has a smaller error than PrivUnitG; 101 means never."""
    del seed
    rows = []
    for epsilon in epsilons:
        private_unit = best_error(epsilon, DIMENSION)
        unit = gaussian_variance(epsilon, DELTA, REPLACEMENT)
        for colluding in COLLUDING:
            least = {"unbiased": PARTIES + 1, "biased": PARTIES + 1}
            for responding in range(PARTIES, 0, -1):
                unbiased = optimal_design(PARTIES, responding, colluding, unit).mse(DIMENSION)
                for decoder, error in (("unbiased", unbiased), ("biased", biased_mse(unbiased, RADIUS))):
                    if error < private_unit / responding and least[decoder] == responding + 1:
                        least[decoder] = responding
            rows.append({"kind": "crossing", "epsilon": epsilon, "sensitivity": REPLACEMENT, "colluding": colluding, **least})
    return rows


def measured(*, seed: int, responding: int, colluding: int, epsilons: list[float], runs: int) -> list[dict[str, Any]]:
    """Runs of CorDP-DME at sensitivity 2."""
    rows = []
    for epsilon in epsilons:
        design = design_for(PARTIES, responding, colluding, epsilon, REPLACEMENT)
        errors = measure(design, responding, DIMENSION, runs, seed).row()
        common = {"epsilon": epsilon, "sensitivity": REPLACEMENT, "responding": responding, "colluding": colluding}
        predicted = {"unbiased_predicted": design.mse(DIMENSION), "biased_predicted": design.mse_biased(DIMENSION, RADIUS)}
        rows.append({"kind": "measured", **common, **predicted, **errors})
    return rows


def tasks(effort: Effort) -> list[Task]:
    quick = effort == Effort.QUICK
    # The paper replicates every case 20 times.
    runs, epsilons = (100, [0.7, 2.0, 6.0]) if quick else (500, [0.5, 1.0, 2.0, 4.0, 8.0])
    cases = [(responding, colluding) for responding in RESPONDING for colluding in COLLUDING]
    points = [
        Task(measured, {"responding": responding, "colluding": colluding, "epsilons": epsilons, "runs": runs})
        for responding, colluding in cases
    ]
    others = [
        Task(measured_priv_unit, {"responding": responding, "epsilon": epsilon, "runs": runs, "dimension": DIMENSION})
        for responding in RESPONDING
        for epsilon in epsilons
    ]
    lines = Task(formulae, {"points": 25 if quick else 61})
    return [lines, Task(crossings, {"epsilons": [0.5, 1.0, AT, 4.0, 8.0]}), *points, *others]


_LOOKS = {
    "local": (RED, "local DP (Gaussian)"),
    "unbiased": (BLUE, "CorDP-DME, unbiased"),
    "biased": (PINK, "CorDP-DME, biased"),
    "central": (GREEN, "central DP"),
    "priv-unit-g": (ORANGE, "PrivUnitG (another guarantee: δ = 0, unit vectors only)"),
}


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    grid_of = canvas.subplots(len(RESPONDING), len(COLLUDING), sharex=True, sharey=True)
    for line, responding in enumerate(RESPONDING):
        for place, colluding in enumerate(COLLUDING):
            axes = grid_of[line][place]
            _panel(axes, rows, responding, colluding)
            axes.set_title(f"t = {responding}, c = {colluding}")
            if line == len(RESPONDING) - 1:
                axes.set_xlabel("ε (δ = 1e-5; PrivUnitG: δ = 0)")
            if place == 0:
                axes.set_ylabel("squared L2 error of the mean")
    top = grid_of[0][0]
    handles, _ = top.get_legend_handles_labels()
    canvas.legend(handles=handles, loc="outside upper center", ncols=4)


def _panel(axes: Axes, rows: pl.DataFrame, responding: int, colluding: int) -> None:
    for sensitivity, line, width in ((REPLACEMENT, "solid", 1.2), (TABLE_II, (0, (1, 1.5)), 0.8)):
        part = rows.filter(kind="formula", responding=responding, colluding=colluding, sensitivity=sensitivity)
        for name in CURVES:
            if name == "priv-unit-g" and sensitivity == TABLE_II:
                continue
            colour, label = _LOOKS[name]
            dashed = (0, (4, 1.5)) if name == "priv-unit-g" else line
            shown = label if sensitivity == REPLACEMENT else None
            axes.plot(part["epsilon"], part[name], color=colour, linestyle=dashed, linewidth=width, label=shown)
    points = rows.filter(kind="measured", responding=responding)
    for name, part in (
        ("unbiased", points.filter(colluding=colluding)),
        ("biased", points.filter(colluding=colluding)),
        ("priv-unit-g", points.drop_nulls("priv-unit-g")),
    ):
        error = 1.96 * numbers(part, f"{name}_standard_error")
        look: dict[str, Any] = {"markersize": 3.2, "markerfacecolor": "white", "capsize": 1.5, "linewidth": 0.8}
        axes.errorbar(part["epsilon"], part[name], error, fmt="o", color=_LOOKS[name][0], **look)
    axes.plot([], [], color=GREY, linestyle=(0, (1, 1.5)), linewidth=0.8, label="at sensitivity 1")
    axes.errorbar([], [], [], fmt="o", color=GREY, markerfacecolor="white", markersize=3.2, label="simulated, 95 %")
    axes.set(xscale="log", yscale="log", xlim=(LOWEST * 0.9, HIGHEST * 1.1))
    axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    axes.minorticks_off()
    grid(axes)


def claims(rows: pl.DataFrame) -> list[Claim]:
    lines = rows.filter(kind="formula")
    at = lines.filter(epsilon=AT)
    first = at.filter(sensitivity=REPLACEMENT, responding=100, colluding=0)
    cost = at.filter(sensitivity=REPLACEMENT, responding=100, colluding=20)["unbiased"].item() / first["central"].item()
    between = bool(((lines["unbiased"] > lines["central"]) & (lines["unbiased"] < lines["local"])).all())
    return [
        Check(
            "PrivUnitG at n = 100, d = 20, epsilon = 2",
            None,
            first["priv-unit-g"].item(),
            None,
            "its guarantee is another one: pure epsilon-DP (delta = 0), for vectors of norm 1 only",
        ),
        Claim(
            "CorDP-DME coincides with central DP without dropouts and collusion",
            1.0,
            first["unbiased"].item() / first["central"].item(),
            abs(first["unbiased"].item() / first["central"].item() - 1) < 0.01,
            "the finite design is 0.8 % above the limit",
            "x",
        ),
        Claim(
            "colluding users increase its error slightly over central DP",
            None,
            cost,
            cost < 1.5,
            "t = 100, c = 20: n / (n - c), and the 0.8 % of the finite design",
            "x",
        ),
        Claim(
            "with dropouts its error lies between those of central and local DP",
            None,
            None,
            between,
            "all panels, both sensitivities",
        ),
        *_against_priv_unit(rows),
        _worst_deviation(rows),
    ]


def _against_priv_unit(rows: pl.DataFrame) -> list[Claim]:
    lines = rows.filter(kind="formula")
    listed = []
    for sensitivity in (TABLE_II, REPLACEMENT):
        for decoder in ("unbiased", "biased"):
            part = lines.filter(sensitivity=sensitivity)
            cases = part.with_columns(wins=part[decoder] < part["priv-unit-g"]).group_by("responding", "colluding")
            always = cases.agg(wins=_all_of("wins")).filter(wins=True).sort("responding", "colluding", descending=[True, False])
            at = part.filter(epsilon=AT)
            here = at.filter(at[decoder] < at["priv-unit-g"]).height
            named = ", ".join(f"t={row['responding']} c={row['colluding']}" for row in always.iter_rows(named=True)) or "none"
            named = "all" if always.height == len(RESPONDING) * len(COLLUDING) else named
            listed.append(
                Claim(
                    f"CorDP-DME ({decoder}) outperforms PrivUnitG in all cases: at sensitivity {sensitivity:g}",
                    9.0,
                    float(always.height),
                    always.height == len(RESPONDING) * len(COLLUDING),
                    f"panels in which it does at every epsilon from {LOWEST:g} to {HIGHEST:g}: {named}; at 2: {here} of 9",
                    "panels of 9",
                )
            )
    crossing = rows.filter(kind="crossing")
    at = crossing.filter(epsilon=AT)
    texts = [f"c = {row['colluding']}: {_from(row['unbiased'])}" for row in at.iter_rows(named=True)]
    ranges = [
        f"epsilon {row['epsilon']:g}: {_from(row['unbiased'])}" for row in crossing.filter(colluding=0).iter_rows(named=True)
    ]
    listed.append(
        Check(
            "how many must respond for unbiased CorDP-DME at sensitivity 2 to beat PrivUnitG (epsilon = 2, c = 0)",
            None,
            float(at.filter(colluding=0)["unbiased"].item()),
            None,
            f"{'; '.join(texts)}. For c = 0, by epsilon: {', '.join(ranges)}",
            "responders of 100",
        )
    )
    return listed


def _all_of(name: str) -> pl.Expr:
    import polars as pl

    return pl.col(name).all()


def _from(responding: float) -> str:
    return f"from t = {responding:g}" if responding <= PARTIES else "never"


def _worst_deviation(rows: pl.DataFrame) -> Claim:
    points = rows.filter(kind="measured")
    worst = max(worst_deviation(points, name, f"{name}_predicted") for name in ("unbiased", "biased", "priv-unit-g"))
    why = f"largest deviation of {len(points)} cases of {points['runs'][0]} runs, in standard errors"
    return Check("runs have the error of the formulae", None, worst, worst < 5, why, "standard errors")


FIGURE = Figure(
    name="cordp-dme-6",
    paper=PAPER,
    title="Figure 6: privacy and utility with dropouts and collusion, beside PrivUnitG",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption="n = 100, d = 20, delta = 1e-5, values on the unit sphere; t users respond, c collude (the paper does not say how "
    "many). Solid: sensitivity 2, replacement; dotted: sensitivity 1. PrivUnitG has another guarantee: pure epsilon-DP, for unit "
    "vectors only.",
    size=(PAGE, 6.2),
)
