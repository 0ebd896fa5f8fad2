"""Table II: noise and errors for combinations of dropouts and collusion, with the sensitivity that the table used and with 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quietmean.privacy import GAUSSIAN, mu_of_budget
from quietmean.protocols.cordp_dme.design import NoiseDesign, biased_mse, gaussian_variance, least_error, optimal_design
from quietmean_reproduction.columns import numbers, worst_deviation
from quietmean_reproduction.cordp_dme.setting import DELTA, PAPER, RADIUS, REPLACEMENT, TABLE_II, local_design, measure
from quietmean_reproduction.figure import PAGE, Check, Claim, Effort, Figure
from quietmean_reproduction.style import BLUE, GREY, RED, grid, stated
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PARTIES, DIMENSION, EPSILON = 10, 5, 2.0
# The columns of the table: name, responding, colluding.
COLUMNS = (("t=10 c=0", 10, 0), ("t=10 c=2", 10, 2), ("t=8 c=0", 8, 0), ("t=8 c=2", 8, 2), ("local DP", 10, 0))
CONVENTIONS = {"table-ii": TABLE_II, "replacement": REPLACEMENT}
# What the table states, in the order of the columns: sigma^2 (None: infinite), rho, biased and unbiased error.
STATED: dict[str, tuple[float | None, ...]] = {
    "sigma2": (None, None, 5.466, 6.318, 3.975),
    "rho": (-0.111, -0.111, -0.091, -0.089, 0.0),
    "biased": (0.166, 0.199, 0.554, 0.598, 0.665),
    "unbiased": (0.199, 0.248, 1.242, 1.488, 1.988),
}


def _design(column: str, responding: int, colluding: int, unit: float) -> NoiseDesign:
    if column == COLUMNS[-1][0]:
        return local_design(PARTIES, responding, unit)
    return optimal_design(PARTIES, responding, colluding, unit)


def formulae(*, seed: int) -> list[dict[str, Any]]:
    """Every column under both conventions: the optimum (``unbiased``, ``biased``) and the finite design that is shipped."""
    del seed
    rows = []
    for convention, sensitivity in CONVENTIONS.items():
        unit = gaussian_variance(EPSILON, DELTA, sensitivity)
        for column, responding, colluding in COLUMNS:
            design = _design(column, responding, colluding, unit)
            local = column == COLUMNS[-1][0]
            least = unit if local else least_error(PARTIES, responding, colluding, unit)
            infinite = design.excess > 0
            rows.append(
                {
                    "kind": "formula",
                    "convention": convention,
                    "column": column,
                    "responding": responding,
                    "colluding": colluding,
                    # Where all respond the optimum is a limit: infinite variance, correlation -1 / (n - 1).
                    "sigma2": None if infinite else design.variance,
                    # No minus in front of the zero of local DP.
                    "rho": -1.0 / (PARTIES - 1) if infinite else design.correlation + 0.0,
                    "unbiased": DIMENSION * least / responding,
                    "biased": biased_mse(DIMENSION * least / responding, RADIUS),
                    "sigma2_shipped": design.variance,
                    "rho_shipped": design.correlation,
                    "unbiased_shipped": design.mse(DIMENSION),
                    "biased_shipped": design.mse_biased(DIMENSION, RADIUS),
                    "epsilon_on_ball": GAUSSIAN.epsilon(mu_of_budget(EPSILON, DELTA) * REPLACEMENT / sensitivity, DELTA),
                }
            )
    return rows


def measured(*, seed: int, column: str, responding: int, colluding: int, convention: str, runs: int) -> list[dict[str, Any]]:
    """The shipped design, run: errors with their standard errors."""
    design = _design(column, responding, colluding, gaussian_variance(EPSILON, DELTA, CONVENTIONS[convention]))
    errors = measure(design, responding, DIMENSION, runs, seed)
    return [{"kind": "measured", "convention": convention, "column": column, "responding": responding, **errors.row()}]


def tasks(effort: Effort) -> list[Task]:
    runs = 4000 if effort == Effort.QUICK else 40_000
    points = [
        Task(
            measured,
            {"column": column, "responding": responding, "colluding": colluding, "convention": convention, "runs": runs},
        )
        for convention in CONVENTIONS
        for column, responding, colluding in COLUMNS
    ]
    return [Task(formulae), *points]


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    left, right = canvas.subplots(1, 2, width_ratios=(1.0, 1.45))
    _dots(left, rows)
    _table(right, rows)


def _dots(axes: Axes, rows: pl.DataFrame) -> None:
    names = [column for column, *_ in COLUMNS]
    for convention, colour, shift in (("table-ii", BLUE, -0.16), ("replacement", RED, 0.16)):
        formula, points = (rows.filter(kind=kind, convention=convention) for kind in ("formula", "measured"))
        for decoder, marker in (("unbiased", "s"), ("biased", "o")):
            at = [place + shift for place in range(len(names))]
            axes.plot(at, formula[decoder], linestyle="none", marker="_", markersize=11, markeredgewidth=1.4, color=colour)
            error = 1.96 * numbers(points, f"{decoder}_standard_error")
            axes.errorbar(at, points[decoder], error, fmt=marker, color=colour, markerfacecolor="white", capsize=2, linewidth=0.8)
    for decoder in ("unbiased", "biased"):
        values = [value for value in STATED[decoder] if value is not None]
        stated(axes, [place - 0.36 for place in range(len(names))], values, "stated" if decoder == "biased" else "_")
    for label, look in (
        ("sensitivity 1 (as the table)", {"color": BLUE, "linestyle": "solid"}),
        ("sensitivity 2 (Theorem 1)", {"color": RED, "linestyle": "solid"}),
        ("optimum, by formula", {"color": GREY, "linestyle": "none", "marker": "_", "markersize": 9}),
        ("unbiased, simulated", {"color": GREY, "linestyle": "none", "marker": "s", "markerfacecolor": "white"}),
        ("biased, simulated", {"color": GREY, "linestyle": "none", "marker": "o", "markerfacecolor": "white"}),
    ):
        axes.plot([], [], label=label, **look)
    axes.set(ylabel="squared L2 error of the mean", yscale="log", ylim=(0.1, 60), xlim=(-0.6, 4.5))
    axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    axes.legend(loc="upper left", ncols=2, columnspacing=1.0, fontsize=6.0)
    grid(axes)


def _table(axes: Axes, rows: pl.DataFrame) -> None:
    from matplotlib.transforms import Bbox

    axes.axis("off")
    lines = []
    for convention in CONVENTIONS:
        part = rows.filter(kind="formula", convention=convention)
        for field, name, digits in (
            ("sigma2", "σ²", 3),
            ("rho", "ρ", 3),
            ("biased", "MSE biased", 3),
            ("unbiased", "MSE unbiased", 3),
            ("epsilon_on_ball", "ε on the unit ball", 2),
        ):
            cells = [_cell(value, digits) for value in part[field].to_list()]
            lines.append([name, *cells])
            if field in STATED and convention == "table-ii":
                theirs = [_cell(value, 3) for value in STATED[field]]
                lines.append(["   in the paper", *theirs])
    header = ["sensitivity 1", *(column for column, *_ in COLUMNS)]
    middle = len(lines) - 5
    full = [header, *lines[:middle], ["sensitivity 2", *([""] * len(COLUMNS))], *lines[middle:]]
    table = axes.table(cellText=full, cellLoc="right", bbox=Bbox.unit(), colWidths=[0.27] + [0.15] * 5, edges="open")
    table.auto_set_font_size(False)
    table.set_fontsize(6.5)
    for (line, column), cell in table.get_celld().items():
        title, stated_there = full[line][0].startswith("sensitivity"), full[line][0].startswith("   ")
        if column == 0:
            cell.set_text_props(ha="left")
        cell.set_text_props(weight="bold" if title else "normal", color=GREY if stated_there else "black")
        if title:
            cell.visible_edges = "T" if line else "B"
            cell.set_linewidth(0.6)


def _cell(value: float | None, digits: int) -> str:
    return "→ ∞" if value is None else f"{value:.{digits}f}".replace("-", "−")


def claims(rows: pl.DataFrame) -> list[Claim]:
    names = {"sigma2": "noise variance sigma^2", "rho": "correlation rho", "biased": "biased MSE", "unbiased": "unbiased MSE"}
    part, both = (rows.filter(kind="formula", convention=convention) for convention in ("table-ii", "replacement"))
    listed = []
    for place, (column, *_) in enumerate(COLUMNS):
        for field, name in names.items():
            theirs, ours = STATED[field][place], part[field][place]
            if theirs is None:
                shipped = part["sigma2_shipped"][place]
                why = f"both infinite: the error has a limit, no optimum; the finite design that is shipped has {shipped:.0f}"
                listed.append(Claim(f"Table II, {column}: {name}", None, None, ours is None, why))
                continue
            # Three digits after the point are stated, some of them cut off and not rounded.
            listed.append(Claim(f"Table II, {column}: {name}", theirs, ours, abs(ours - theirs) < 1.05e-3, "at sensitivity 1"))
    listed.append(
        Claim(
            "the noise of Table II gives epsilon = 2 under replacement in the unit ball",
            EPSILON,
            part["epsilon_on_ball"][0],
            False,
            "Theorem 1 is for values in the unit ball, which are up to 2 apart; the table was computed with sensitivity 1. For "
            f"epsilon = 2 variances and unbiased errors are {both['unbiased'][2] / part['unbiased'][2]:.2f} times as large",
        )
    )
    return [*listed, _worst_deviation(rows)]


def _worst_deviation(rows: pl.DataFrame) -> Claim:
    shipped = rows.filter(kind="formula").select("convention", "column", predicted="unbiased_shipped")
    worst = worst_deviation(
        rows.filter(kind="measured").drop("unbiased_shipped").join(shipped, on=["convention", "column"]), "unbiased", "predicted"
    )
    text = "runs of the protocol have the error of the formula"
    return Check(text, None, worst, worst < 4.5, "largest deviation of ten means, in standard errors", "standard errors")


FIGURE = Figure(
    name="cordp-dme-table-2",
    paper=PAPER,
    title="Table II: noise and error under dropouts and collusion",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption="n = 10, d = 5, epsilon = 2, delta = 1e-5. Stars: Table II. It was computed with sensitivity 1, with which its noise "
    "gives epsilon 4.39 under replacement in the unit ball; sensitivity 2 is what Theorem 1 needs. Bars: 95 %.",
    size=(PAGE, 3.1),
)
