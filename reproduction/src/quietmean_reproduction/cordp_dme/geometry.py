"""Figures 3 and 4: noise of two parties as vectors, and which covariances keep the privacy.

In L2 two noises of variance sigma^2 and correlation rho are vectors of length sigma sqrt(d) at an angle arccos(rho). A value is
hidden by the component of its noise that is orthogonal to the other's; the error of the mean is a quarter of the squared length
of their sum. All lengths here are squared, per coordinate, over the variance s of one Gaussian release.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.graphs import ExecutionTrace
from quietmean.privacy import mu_of_budget
from quietmean.protocols.cordp_dme import CorDPDME
from quietmean.protocols.cordp_dme.design import gaussian_variance
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean_reproduction.columns import numbers
from quietmean_reproduction.cordp_dme.setting import DELTA, PAPER, REPLACEMENT
from quietmean_reproduction.figure import PAGE, Check, Claim, Effort, Figure
from quietmean_reproduction.style import BLUE, GREEN, GREY, RED, grid
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

EPSILON = 2.0
# Of Figure 3: positive, no and negative correlation.
CORRELATIONS = (0.5, 0.0, -0.5)
# Of Figure 4, in degrees: wider and wider.
ANGLES = (90.0, 105.0, 120.0, 135.0, 150.0, 160.0, 170.0, 175.0, 179.0)
SHOWN = (100.0, 130.0, 150.0)


def formulae(*, seed: int, correlations: list[float]) -> list[dict[str, Any]]:
    """At the least variance that keeps the privacy: length of a noise, of its orthogonal component, and of the sum, squared."""
    del seed
    rows = []
    for rho in correlations:
        covariance = np.array([[1.0, rho], [rho, 1.0]])
        variance = float(np.linalg.inv(covariance)[0, 0])
        total = float(np.ones(2) @ (variance * covariance) @ np.ones(2))
        rows.append({"kind": "formula", "rho": rho, "variance": variance, "orthogonal": 1.0, "sum": total})
    return rows


def measured(*, seed: int, rho: float, runs: int) -> list[dict[str, Any]]:
    """These lengths from messages of the protocol, all values being 0, and mu of the accountant over that of the target."""
    unit = gaussian_variance(EPSILON, DELTA, REPLACEMENT)
    variance = unit / (1.0 - rho**2)
    protocol = CorDPDME(sigma_own=math.sqrt(variance * (1.0 + rho)), sigma_pair=math.sqrt(-rho * variance))
    schedule = protocol.draw_schedule(2, Seed.public("geometry"))
    execution = Execution(protocol, schedule, ExecutionTrace.everyone(protocol.rounds, 2), REPLACEMENT, np.ones(2))
    first, second = execution.run_batch(np.zeros((2, runs)), InsecurePopulationNoise(seed, 2)).vector
    total = first + second
    along = float(first @ second) / float(second @ second)
    certified = float(execution.privacy(DELTA).against(()).max_mu)
    lengths = {
        "variance": float(first @ first) / runs / unit,
        "orthogonal": float(((first - along * second) ** 2).mean()) / unit,
        "sum": float(total @ total) / runs / unit,
    }
    # Of a mean of squares of normal values.
    errors = {f"{name}_standard_error": length * math.sqrt(2.0 / runs) for name, length in lengths.items()}
    ratio = certified / mu_of_budget(EPSILON, DELTA)
    return [{"kind": "measured", "rho": rho, "runs": runs, **lengths, **errors, "mu_ratio": ratio}]


def _runs(effort: Effort) -> int:
    return 40_000 if effort == Effort.QUICK else 1_000_000


def signs(effort: Effort) -> list[Task]:
    points = [Task(measured, {"rho": rho, "runs": _runs(effort)}) for rho in CORRELATIONS if rho <= 0]
    return [Task(formulae, {"correlations": list(CORRELATIONS)}), *points]


def widths(effort: Effort) -> list[Task]:
    points = [Task(measured, {"rho": _correlation(angle), "runs": _runs(effort)}) for angle in ANGLES]
    return [Task(formulae, {"correlations": [_correlation(angle) for angle in ANGLES]}), *points]


def _correlation(angle: float) -> float:
    # Independent noise has no negative zero.
    return 0.0 if angle == 90.0 else round(math.cos(math.radians(angle)), 12)


def draw_signs(rows: pl.DataFrame, canvas: Canvas) -> None:
    panels = canvas.subplots(1, 3, sharey=True)
    for axes, rho in zip(panels, CORRELATIONS, strict=True):
        found = rows.filter(kind="formula", rho=rho)
        _vectors(axes, math.degrees(math.acos(rho)), math.sqrt(found["variance"][0]))
        sign = "=" if rho == 0 else (">" if rho > 0 else "<")
        axes.set_title(f"ρ {sign} 0: squared sum {found['sum'][0]:.2f} s")
        _plain(axes, (-0.85, 1.95), (-0.25, 1.1))


def draw_widths(rows: pl.DataFrame, canvas: Canvas) -> None:
    places = canvas.add_gridspec(len(SHOWN), 2, width_ratios=(1.25, 1.0))
    curve = canvas.add_subplot(places[:, 1])
    for place, angle in enumerate(SHOWN):
        axes, rho = canvas.add_subplot(places[place, 0]), math.cos(math.radians(angle))
        _vectors(axes, angle, math.sqrt(1.0 / (1.0 - rho**2)))
        axes.text(
            1.0, 1.0, f"θ = {angle:.0f}°\nsquared sum {2.0 / (1.0 - rho):.2f} s", transform=axes.transAxes, ha="right", va="top"
        )
        _plain(axes, (-1.95, 2.6), (-0.25, 1.1))
    formula, points = (rows.filter(kind=kind) for kind in ("formula", "measured"))
    curve.plot(_angles(formula), formula["sum"], color=RED, label="squared sum")
    curve.plot(_angles(formula), formula["variance"], color=BLUE, label="squared noise of one party")
    for field, colour in (("sum", RED), ("variance", BLUE)):
        curve.plot(_angles(points), points[field], linestyle="none", marker="o", color=colour, markerfacecolor="white")
    curve.axhline(1.0, color=GREY, linestyle="dotted", linewidth=0.9, label="trusted curator")
    curve.set(xlabel="angle θ, degrees", ylabel="over s", yscale="log", ylim=(0.7, 5000))
    curve.set_xticks([90, 120, 150, 180])
    curve.legend(loc="upper left")
    grid(curve)


def _angles(rows: pl.DataFrame) -> list[float]:
    return np.degrees(np.arccos(numbers(rows, "rho"))).tolist()  # type: ignore[no-any-return]


def _vectors(axes: Axes, angle: float, length: float) -> None:
    """Both noises, the first to the right; their sum; and what of the second is orthogonal to the first."""
    turn = math.radians(angle)
    first, second = np.array([length, 0.0]), length * np.array([math.cos(turn), math.sin(turn)])
    foot = np.array([second[0], 0.0])
    axes.plot([min(0.0, foot[0]), length], [0.0, 0.0], color=GREY, linewidth=0.6, linestyle="dotted")
    axes.plot(*np.array([foot, second]).T, color=GREEN, linestyle="dashed", linewidth=1.2)
    for tip, colour in ((first, BLUE), (second, BLUE), (first + second, RED)):
        axes.annotate("", xy=tip.tolist(), xytext=(0.0, 0.0), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.3})
    axes.text(first[0] / 2, -0.08, "$Z_1$", color=BLUE, ha="center", va="top")
    # Beside its vector, on the side where nothing else is drawn.
    side = (1.0 if angle >= 90 else -1.0) * np.array([math.sin(turn), -math.cos(turn)])
    half, total = 0.6 * second + 0.13 * side, (first + second) * 0.55
    axes.text(half[0], half[1], "$Z_2$", color=BLUE, ha="center", va="center")
    axes.text(total[0] + 0.1, total[1] - 0.08, "$Z_1+Z_2$", color=RED, ha="left", va="center")
    axes.text(foot[0] - 0.05, second[1] * 0.5, "$\\gamma$", color=GREEN, ha="right", va="center")


def _plain(axes: Axes, wide: tuple[float, float], high: tuple[float, float]) -> None:
    axes.set(xlim=wide, ylim=high, aspect="equal")
    axes.axis("off")


def claims_of_signs(rows: pl.DataFrame) -> list[Claim]:
    formula, points = (rows.filter(kind=kind) for kind in ("formula", "measured"))
    positive, none, negative = formula["sum"].to_list()
    return [
        Claim(
            "independent noise is local DP: a squared sum of twice that of one release",
            2.0,
            none,
            math.isclose(none, 2.0),
            f"from messages of the protocol {points.filter(rho=0.0)['sum'][0]:.3f}",
            "s",
        ),
        Claim(
            "positive correlation makes the sum longer at the same privacy",
            None,
            positive / none,
            positive > none,
            "rho = 0.5, by formula: noise that parties share in pairs is never correlated positively",
            "x",
        ),
        Claim(
            "negative correlation makes the sum shorter at the same privacy",
            None,
            negative / none,
            negative < none and points.filter(rho=-0.5)["sum"][0] < points.filter(rho=0.0)["sum"][0],
            f"rho = -0.5; from messages of the protocol {points.filter(rho=-0.5)['sum'][0]:.3f} s",
            "x",
        ),
        *_of_messages(points),
    ]


def claims_of_widths(rows: pl.DataFrame) -> list[Claim]:
    formula, points = (rows.filter(kind=kind) for kind in ("formula", "measured"))
    sums, variances = formula["sum"].to_list(), formula["variance"].to_list()
    return [
        Claim(
            "the squared sum falls as the angle grows, at the same orthogonal distance",
            None,
            max(after / before for before, after in itertools.pairwise(sums)),
            all(after < before for before, after in itertools.pairwise(sums)),
            "largest of the steps from 90 to 179 degrees, later over earlier",
            "x",
        ),
        Claim(
            "as the angle tends to 180 degrees the error tends to that of a trusted curator",
            1.0,
            sums[-1],
            sums[-1] < 1.001,
            f"squared sum 2 / (1 - rho) at {ANGLES[-1]:.0f} degrees, where the noise of each party has {variances[-1]:.0f} s",
            "s",
        ),
        Claim(
            "the noise of each party grows without bound with the angle",
            None,
            variances[-1],
            all(after > before for before, after in itertools.pairwise(variances)),
            "variance at the last angle; it is 1 / (1 - rho^2)",
            "s",
        ),
        Claim(
            "if one of two drops out, what is left cannot be cancelled and the error is high",
            None,
            4 * variances[-1] / sums[-1],
            4 * variances[-1] > 100 * sums[-1],
            "at the last angle: error of the one that is left, over that of both",
            "x",
        ),
        *_of_messages(points),
    ]


def _of_messages(points: pl.DataFrame) -> list[Claim]:
    """What every measured point says: of the privacy that all have alike, and of the formula."""
    rho = numbers(points, "rho")
    expected = {"variance": 1.0 / (1.0 - rho**2), "orthogonal": np.ones(rho.size), "sum": 2.0 / (1.0 - rho)}
    worst = max(
        float((np.abs(numbers(points, name) - value) / numbers(points, f"{name}_standard_error")).max())
        for name, value in expected.items()
    )
    mu = numbers(points, "mu_ratio")
    return [
        Claim(
            "the orthogonal component decides the privacy: it is the same in all",
            1.0,
            float(mu.max()),
            bool((np.abs(mu - 1.0) < 1e-6).all()),
            "mu that the accountant finds for the protocol with this noise, over that of the target; largest",
            "x",
        ),
        Check(
            "messages of the protocol have these lengths",
            None,
            worst,
            worst < 4.5,
            f"largest deviation of {3 * rho.size} squared lengths of {points['runs'][0]} coordinates, in standard errors",
            "standard errors",
        ),
    ]


FIGURE_3 = Figure(
    name="cordp-dme-3",
    paper=PAPER,
    title="Figure 3: privacy and error of two parties as lengths of vectors",
    tasks=signs,
    draw=draw_signs,
    claims=claims_of_signs,
    caption="Two noises as vectors, at the least length that keeps the orthogonal component (dashed) as the privacy asks "
    "for. The error is a quarter of the squared length of the sum; s is the variance of one Gaussian release.",
    size=(PAGE, 1.5),
)
FIGURE_4 = Figure(
    name="cordp-dme-4",
    paper=PAPER,
    title="Figure 4: wider angles, longer noise, shorter sums",
    tasks=widths,
    draw=draw_widths,
    claims=claims_of_widths,
    caption="The orthogonal component is the same everywhere. Right: squared lengths over the variance s of one Gaussian "
    "release; points: messages of the protocol.",
    size=(PAGE, 3.2),
)
