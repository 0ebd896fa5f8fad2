"""Figure 1: the error against the number of responders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quietmean.protocols.cordp_dme.design import NoiseDesign, gaussian_variance, optimal_design, responder_curve
from quietmean_reproduction.columns import numbers, worst_deviation
from quietmean_reproduction.cordp_dme.setting import DELTA, PAPER, REPLACEMENT, TABLE_II, local_design, measure
from quietmean_reproduction.figure import PAGE, Check, Claim, Effort, Figure
from quietmean_reproduction.style import BLUE, GREEN, GREY, ORANGE, PINK, RED, grid
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PARTIES, EPSILON = 100, 2.0
# Not stated for this figure; Figure 6 has 20.
DIMENSION = 20
# Designs of studies that run: planned for so many responders. Re-optimised: planned for exactly those that respond.
FIXED = (100, 90, 50)
REOPTIMISED, LOCAL = "re-optimised", "local"


def _name(planned: int) -> str:
    return f"planned for {planned}"


def _design(series: str, responding: int, unit: float) -> NoiseDesign:
    if series == LOCAL:
        return local_design(PARTIES, responding, unit)
    planned = responding if series == REOPTIMISED else int(series.rsplit(" ", 1)[1])
    return optimal_design(PARTIES, planned, 0, unit)


def formulae(*, seed: int, sensitivity: float) -> list[dict[str, Any]]:
    """Errors for 1 .. 100 responders, nobody colluding, unbiased."""
    del seed
    unit = gaussian_variance(EPSILON, DELTA, sensitivity)
    rows: list[dict[str, Any]] = []
    for planned in FIXED:
        curve = responder_curve(PARTIES, 0, DIMENSION, unit, optimal_design(PARTIES, planned, 0, unit))
        for point in curve:
            series = {_name(planned): point.fixed}
            if planned == FIXED[0]:
                series |= {REOPTIMISED: point.reoptimised, LOCAL: point.local, "central": point.central}
            common = {"kind": "formula", "sensitivity": sensitivity, "responding": point.responding}
            rows.extend({**common, "series": name, "mse": mse} for name, mse in series.items())
    return rows


def measured(*, seed: int, series: str, responding: int, runs: int) -> list[dict[str, Any]]:
    """Runs of the protocol at sensitivity 2."""
    design = _design(series, responding, gaussian_variance(EPSILON, DELTA, REPLACEMENT))
    errors = measure(design, responding, DIMENSION, runs, seed).row()
    return [
        {
            "kind": "measured",
            "sensitivity": REPLACEMENT,
            "responding": responding,
            "series": series,
            "mse": errors["unbiased"],
            "mse_standard_error": errors["unbiased_standard_error"],
            "predicted": design.mse(DIMENSION, responding),
            "runs": runs,
        }
    ]


def tasks(effort: Effort) -> list[Task]:
    runs = 100 if effort == Effort.QUICK else 1000
    points = [
        *((REOPTIMISED, responding) for responding in (1, 10, 30, 50, 70, 90, 97, 100)),
        *((_name(planned), responding) for planned in FIXED for responding in (20, 50, 80, 95, 100)),
        *((LOCAL, responding) for responding in (1, 10, 100)),
    ]
    listed = [Task(measured, {"series": series, "responding": responding, "runs": runs}) for series, responding in points]
    return [Task(formulae, {"sensitivity": sensitivity}) for sensitivity in (REPLACEMENT, TABLE_II)] + listed


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    left, right = canvas.subplots(1, 2, sharey=True)
    _panel(left, rows, ((LOCAL, RED, "local DP"), (REOPTIMISED, BLUE, "CorDP-DME"), ("central", GREEN, "central DP")))
    for series, colour in ((LOCAL, RED), (REOPTIMISED, BLUE), ("central", GREEN)):
        part = rows.filter(kind="formula", sensitivity=TABLE_II, series=series)
        left.plot(part["responding"], part["mse"], color=colour, linestyle=(0, (1, 1.5)), linewidth=0.8)
    left.plot([], [], color=GREY, linestyle=(0, (1, 1.5)), linewidth=0.8, label="the same at sensitivity 1")
    left.set(title="(a) noise re-optimised for every t, as in the paper", xlabel="responding users t (of 100)")
    fixed = zip(FIXED, (BLUE, PINK, ORANGE), strict=True)
    _panel(right, rows, ((LOCAL, RED, "local DP"), *((_name(planned), colour, _name(planned)) for planned, colour in fixed)))
    central = rows.filter(kind="formula", sensitivity=REPLACEMENT, series="central")
    right.plot(central["responding"], central["mse"], color=GREEN, label="central DP")
    for planned, colour in zip(FIXED, (BLUE, PINK, ORANGE), strict=True):
        right.axvline(planned, ymax=0.78, color=colour, linewidth=0.6, linestyle=(0, (3, 3)))
    right.set(title="(b) one design, u users respond: what a study gets", xlabel="responding users u (of 100)")
    left.set_ylabel("squared L2 error of the mean")
    left.errorbar([], [], [], fmt="o", color=GREY, markerfacecolor="white", label="simulated, 95 %")
    left.set_ylim(top=2e6)
    for axes in (left, right):
        axes.legend(loc="upper right", ncols=2)
        grid(axes)


def _panel(axes: Axes, rows: pl.DataFrame, series: tuple[tuple[str, str, str], ...]) -> None:
    for name, colour, label in series:
        line = rows.filter(kind="formula", sensitivity=REPLACEMENT, series=name)
        axes.plot(line["responding"], line["mse"], color=colour, label=label)
        points = rows.filter(kind="measured", series=name)
        if len(points):
            error = 1.96 * numbers(points, "mse_standard_error")
            axes.errorbar(
                points["responding"],
                points["mse"],
                error,
                fmt="o",
                color=colour,
                markerfacecolor="white",
                capsize=2,
                linewidth=0.8,
            )
    axes.set(yscale="log", xlim=(0, 103))


def claims(rows: pl.DataFrame) -> list[Claim]:
    def curve(series: str) -> list[float]:
        return rows.filter(kind="formula", sensitivity=REPLACEMENT, series=series)["mse"].to_list()

    ours, local, central = curve(REOPTIMISED), curve(LOCAL), curve("central")
    better = min(one / other for one, other in zip(local[1:], ours[1:], strict=True))
    beaten = {planned: _beats(curve(_name(planned)), local) for planned in FIXED}
    points = rows.filter(kind="measured")
    worst = worst_deviation(points, "mse", "predicted")
    return [
        Claim(
            "CorDP-DME coincides with central DP when all users respond",
            1.0,
            ours[-1] / central[-1],
            abs(ours[-1] / central[-1] - 1) < 0.01,
            "error over that of central DP; the limit is 1, reached by infinite noise only: the finite design is 0.8 % above it",
            "x",
        ),
        Claim(
            "all three coincide when one user responds", 1.0, ours[0] / central[0], abs(ours[0] / local[0] - 1) < 1e-9, unit="x"
        ),
        Claim(
            "CorDP-DME always outperforms local DP",
            1.0,
            better,
            better > 1.0,
            "least ratio of local DP's error to that of noise re-optimised for each t = 2 .. 100",
            "x",
        ),
        Check(
            "a study whose noise is planned for 90 responders outperforms local DP: from how many on",
            None,
            float(beaten[90]),
            None,
            "the figure re-optimises the noise for every t, which no study can: it does not know how many will respond. Planned "
            f"for 90, it beats local DP with at least {beaten[90]} responders; for 50 with at least {beaten[50]}; for 100 with "
            f"{beaten[100]} or more: one missing user leaves {curve(_name(100))[-2] / local[-2]:.2f} times the error of local DP",
            "responders",
        ),
        Check(
            "sensitivity of the curves",
            None,
            4.0,
            None,
            "not stated, nor is d: drawn for d = 20 at sensitivity 2; at 1 (dotted) every error is a quarter of that",
            "x",
        ),
        Check(
            "runs of the protocol have the error of the formula",
            None,
            worst,
            worst < 4.5,
            f"largest deviation of {len(points)} means of {points['runs'][0]} runs, in standard errors",
            "standard errors",
        ),
    ]


def _beats(errors: list[float], local: list[float]) -> int:
    """The least number of responders from which on the error stays below that of local DP."""
    least = len(errors) + 1
    while least > 1 and errors[least - 2] < local[least - 2]:
        least -= 1
    return least


FIGURE = Figure(
    name="cordp-dme-1",
    paper=PAPER,
    title="Figure 1: error against responding users",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption="n = 100, d = 20, epsilon = 2, delta = 1e-5, nobody colludes, sensitivity 2 (replacement in the unit ball). Dashed "
    "verticals: what a design was planned for. Points: runs of the protocol.",
    size=(PAGE, 3.0),
)
