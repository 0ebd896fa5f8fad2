"""Figures 3a and 3b: the error under permanent dropouts, for parameters of IncA and beside GOPA and CorDP-DME."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from quietmean.privacy import mu_of_budget
from quietmean.privacy.composition import classical_mu
from quietmean_reproduction.figure import COLUMN, PAGE, Check, Claim, Effort, Figure
from quietmean_reproduction.inca.accounts import SPREAD, Account, Setting, with_luck
from quietmean_reproduction.inca.pairwise import cordp_rows, gopa_rows
from quietmean_reproduction.inca.setting import DELTA, PAPER, classical_square
from quietmean_reproduction.style import BLUE, COLOURS, GREEN, GREY, ORANGE, PINK, RED, SKY, band, grid, legend_above, looks
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PARTIES, EPSILON, CORRUPT = 200, 0.2, 0.1
DROPOUTS = (0.05, 0.1, 0.2)
# Everybody chooses 20 others in GOPA, so that it has about 40 pairs; with 10 it has as many pairs as IncA has messages.
_PARTNERS, _FEWER = 20, 10
# How many of GOPA's dropouts are late: a single one, a quarter of them, half.
_LATE = ("gopa-one", "gopa-quarter", "gopa-half")
_DASHED = (0, (3, 1.5))
_VARIANTS = tuple((rounds, out_degree) for rounds in (10, 20) for out_degree in (1, 3, 5))


def inca(*, seed: int, dropouts: float, rounds: int, out_degree: int, schedule: str, executions: int) -> list[dict[str, Any]]:
    """IncA at one point, by three calibrations."""
    setting = Setting(PARTIES, EPSILON, CORRUPT, dropouts, rounds, out_degree, schedule)
    known = {"method": "inca", "dropouts": dropouts, "rounds": rounds, "out_degree": out_degree, "schedule": schedule}
    return [known | row for row in Account.draw(setting, executions, seed).rows()]


def gopa(*, seed: int, dropouts: float, late: str, partners: int, executions: int, published: bool) -> list[dict[str, Any]]:
    """GOPA at one point; ``late``: which part of the dropouts is in the second round; ``published``: after their release."""
    share = {"half": dropouts / 2, "quarter": dropouts / 4, "one": 1 / PARTIES}[late]
    found = gopa_rows(PARTIES, EPSILON, CORRUPT, dropouts, share, partners, executions, seed, published)
    name = f"gopa-{late}" if partners == _PARTNERS else f"gopa-{late}-{partners}"
    return [{"method": name + ("-published" if published else ""), "dropouts": dropouts} | row for row in found]


def references(*, seed: int) -> list[dict[str, Any]]:
    """CorDP-DME at its optimum, central and local DP: by formula."""
    del seed
    rows = []
    for calibration, budget in (("paper", classical_mu), ("exact", mu_of_budget)):
        unit = 1.0 / budget(EPSILON, DELTA) ** 2
        for dropouts in DROPOUTS:
            known = {"dropouts": dropouts, "calibration": calibration}
            rows += [known | row for row in cordp_rows(PARTIES, CORRUPT, dropouts, unit)]
            rows.append(known | {"method": "central", "mse": unit / PARTIES**2})
            rows.append(known | {"method": "local", "mse": unit / PARTIES})
    return rows


def tasks_parameters(effort: Effort) -> list[Task]:
    executions = 60 if effort == Effort.QUICK else 1000
    points = [
        {"dropouts": dropouts, "rounds": rounds, "out_degree": out_degree, "schedule": "uniform", "executions": executions}
        for rounds, out_degree in _VARIANTS
        for dropouts in DROPOUTS
    ]
    return [Task(inca, point) for point in points] + [Task(references)]


def tasks_compared(effort: Effort) -> list[Task]:
    executions = 100 if effort == Effort.QUICK else 1000
    points = [
        {"dropouts": dropouts, "rounds": 20, "out_degree": 1, "schedule": schedule, "executions": executions}
        for schedule in ("uniform", "permutation")
        for dropouts in DROPOUTS
    ]
    others = [
        {"dropouts": dropouts, "late": late, "partners": partners, "executions": executions, "published": published}
        for late in ("half", "quarter", "one")
        for partners in (_PARTNERS, _FEWER)
        for published in (False, True)
        for dropouts in DROPOUTS
    ]
    return [*(Task(inca, point) for point in points), *(Task(gopa, point) for point in others), Task(references)]


def draw_parameters(rows: pl.DataFrame, canvas: Canvas) -> None:
    axes = canvas.add_subplot()
    for (rounds, out_degree), look in zip(_VARIANTS, looks(), strict=False):
        for calibration, line in (("paper", "solid"), ("exact", (0, (3, 1.5)))):
            part = rows.filter(method="inca", rounds=rounds, out_degree=out_degree, calibration=calibration)
            label = f"k = {out_degree}, T = {rounds}" if calibration == "paper" else None
            _line(axes, part, label, linestyle=line, **look)
    _references(axes, rows)
    axes.plot([], [], color=GREY, linestyle=(0, (3, 1.5)), label="exact accounting")
    _finish(axes)
    legend_above(canvas, axes, 3)


def draw_compared(rows: pl.DataFrame, canvas: Canvas) -> None:
    panels = canvas.subplots(1, 2, sharey=True)
    exchanging = (("one", "1 late", GREEN, "^"), ("quarter", "1/4 late", ORANGE, "D"), ("half", "1/2 late", PINK, "v"))
    for axes, calibration, ours in ((panels[0], "paper", "exact-view"), (panels[1], "exact", "exact")):
        mine = rows.filter(method="inca", calibration=ours)
        _line(axes, mine.filter(schedule="uniform"), "IncA (k = 1, T = 20)", color=BLUE, marker="o")
        for late, label, colour, marker in exchanging:
            for method, name, line in ((f"gopa-{late}-{_FEWER}", f"GOPA, {label}", "solid"), (f"gopa-{late}", None, _DASHED)):
                part = rows.filter(method=method, calibration=calibration)
                _line(axes, part, name, color=colour, marker=marker, linestyle=line)
        _references(axes, rows, calibration)
        _finish(axes)
    theorem = rows.filter(method="inca", calibration="paper", schedule="uniform")
    _line(panels[0], theorem, "IncA, Theorem 4.7", color=BLUE, marker="o", linestyle=(0, (1, 1.2)))
    _line(panels[0], rows.filter(method="cordp-dme-as-gopa", calibration="paper"), "CorDP-DME", color=RED, marker="s")
    permuted = rows.filter(method="inca", schedule="permutation", calibration="exact")
    _line(panels[1], permuted, "IncA, permutations", color=SKY, marker="P")
    _line(panels[1], rows.filter(method="cordp-dme", calibration="exact"), "CorDP-DME, own optimum", color=RED, marker="x")
    for axes, title in zip(panels, ("(a) the papers' constant", "(b) exact Gaussian formula"), strict=True):
        axes.set_title(title)
        axes.plot([], [], color=GREY, linestyle=_DASHED, label=f"GOPA, {_PARTNERS} chosen")
    panels[1].set_ylabel("")
    found: dict[str, Any] = {}
    for axes in panels:
        found |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    canvas.legend(list(found.values()), list(found), loc="outside upper center", ncols=4, columnspacing=1.2)


def _line(axes: Axes, part: pl.DataFrame, label: str | None, **look: Any) -> None:
    axes.plot(part["dropouts"], part["mse"], label=label, **look)
    if "mse_standard_error" in part.columns and part["mse_standard_error"].null_count() == 0:
        half = 1.96 * part["mse_standard_error"]
        band(axes, part["dropouts"], part["mse"] - half, part["mse"] + half, look["color"])


def _references(axes: Axes, rows: pl.DataFrame, calibration: str = "paper") -> None:
    for method, label, line in (("local", "Local DP", (0, (5, 1, 1, 1))), ("central", "Central DP", (0, (1, 1.2)))):
        part = rows.filter(method=method, calibration=calibration)
        axes.plot(part["dropouts"], part["mse"], color=COLOURS[-1], linewidth=0.9, linestyle=line, label=label)


def _finish(axes: Axes) -> None:
    axes.set(xlabel="parties that drop out (fraction γ)", ylabel="mean squared error", yscale="log", xlim=(0.045, 0.205))
    axes.set_xticks([0.05, 0.1, 0.15, 0.2])
    grid(axes)


def _mse(rows: pl.DataFrame, dropouts: float, **which: Any) -> float:
    return float(rows.filter(dropouts=dropouts, **which)["mse"].item())


def claims_parameters(rows: pl.DataFrame) -> list[Claim]:
    def of(rounds: int, out_degree: int, dropouts: float, calibration: str = "paper") -> float:
        return _mse(rows, dropouts, method="inca", rounds=rounds, out_degree=out_degree, calibration=calibration)

    longer = [of(20, k, gamma) / of(10, k, gamma) for k in (1, 3, 5) for gamma in DROPOUTS]
    middle = [of(T, 3, gamma) / of(T, 1, gamma) for T in (10, 20) for gamma in DROPOUTS]
    wider = [of(T, 5, gamma) / of(T, 1, gamma) for T in (10, 20) for gamma in DROPOUTS]
    exact = [of(T, k, gamma) / of(T, k, gamma, "exact") for T, k in _VARIANTS for gamma in DROPOUTS]
    exact_longer = [of(20, k, gamma, "exact") / of(10, k, gamma, "exact") for k in (1, 3, 5) for gamma in DROPOUTS]
    exact_wider = [of(T, 5, gamma, "exact") / of(T, 1, gamma, "exact") for T in (10, 20) for gamma in DROPOUTS]
    runs = rows.filter(method="inca")["runs"][0]
    return [
        Claim(
            "higher T decreases the error for the same dropouts",
            None,
            max(longer),
            None,
            f"largest error at T = 20 over that at T = 10: {_range(longer)}; with exact accounting {_range(exact_longer)}; worst "
            f"of {runs} executions decides the noise",
            "x",
            with_luck(max(longer)),
            (0.0, 1.0),
        ),
        Claim(
            "k = 1, 3, 5 give similar errors",
            None,
            _typical(wider),
            None if 1 / 3 < _typical(middle) < 3 else False,
            f"error with k = 5 over that with k = 1: {_range(wider)}; with exact accounting {_range(exact_wider)}",
            "x",
            with_luck(_typical(wider)),
            (1 / 3, 3.0),
        ),
        Claim(
            "smaller k yields the smaller error",
            None,
            _typical(middle),
            None,
            f"error with k = 3 over that with k = 1: {_range(middle)}; k = 5 over k = 1: {_range(wider)}. The worst of {runs} "
            "executions, which decides the noise, differs by tens of percent from draw to draw",
            "x",
            with_luck(_typical(middle)),
            (1.0, math.inf),
        ),
        Check(
            "sigma_delta follows from Theorem 4.7 and the classical constant",
            None,
            _typical(exact),
            None,
            f"the paper's error over that with exact accounting, same guarantee, same executions: {_range(exact)}",
            "x",
            with_luck(_typical(exact)),
        ),
        Claim(
            "sigma_star^2 = 1.3 ln(1.25/delta) / (n_O epsilon^2) (section 5.2)",
            1.3 * math.log(1.25 / DELTA) / (160 * EPSILON**2),
            1.3 * classical_square() / (160 * EPSILON**2),
            False,
            "at gamma = 0.1: the printed formula lacks the factor 2 of its own lower bound 2 ln(1.25/delta) / (n_O epsilon^2), "
            "and would lie below that bound",
        ),
    ]


def _better(against: Mapping[str, list[float]]) -> dict[str, Any]:
    """That errors over IncA's, at each gamma, are all above 1: found is the least of them."""
    least = min(min(row) for row in against.values())
    return {"ours": least, "interval": with_luck(least), "accepted": (1.0, math.inf), "unit": "x"}


def claims_compared(rows: pl.DataFrame) -> list[Claim]:
    def ratios(method: str, theirs: str = "paper", ours: str = "exact-view", schedule: str = "uniform") -> list[float]:
        """Their error over IncA's at each gamma."""
        return [
            _mse(rows, gamma, method=method, calibration=theirs)
            / _mse(rows, gamma, method="inca", schedule=schedule, calibration=ours)
            for gamma in DROPOUTS
        ]

    more, equal = _LATE, tuple(f"{method}-{_FEWER}" for method in _LATE)
    others = (*equal, "cordp-dme-as-gopa", "cordp-dme")
    against = {method: ratios(method) for method in others}
    exactly = {method: ratios(method, "exact", "exact") for method in (*equal, "cordp-dme")}
    wider = {method: ratios(method) for method in more}
    exactly_wider = {method: ratios(method, "exact", "exact") for method in more}
    permuted = {method: ratios(method, "exact", "exact", "permutation") for method in (*equal, "cordp-dme")}
    by_theorem = {method: ratios(method, ours="paper") for method in others}
    published = {method: ratios(f"{method}-published") for method in equal}
    gain = [
        _mse(rows, gamma, method="inca", schedule="uniform", calibration="paper")
        / _mse(rows, gamma, method="inca", schedule="permutation", calibration="exact")
        for gamma in DROPOUTS
    ]
    runs = rows.filter(method="inca")["runs"][0]
    text = "IncA outperforms GOPA and CorDP-DME for the same dropouts"
    gammas = "their error over IncA's at gamma = 0.05, 0.1, 0.2:"
    chance = f"The worst of {runs} executions decides the noise, and IncA's has the heavier tail: the more, the smaller this"
    return [
        Claim(
            f"{text} and as many messages: noise of all by the exact view, with the classical constant",
            why=f"{gammas} {_table(against)}. GOPA with {_FEWER} chosen partners, about 20 exchanges a party as IncA. With "
            f"{_PARTNERS} chosen, about 40 exchanges: {_table(wider)}. {chance}",
            **_better(against),
        ),
        Claim(
            f"{text} and as many messages: all with exact accounting",
            why=f"{gammas} {_table(exactly)}. With {_PARTNERS} chosen partners: {_table(exactly_wider)}. With IncA on "
            f"permutations, {_FEWER} chosen: {_table(permuted)}. CorDP-DME by its own design",
            **_better(exactly),
        ),
        *_of_gopa(against, wider, exactly),
        _worst_is_cordp(against),
        Check(
            f"{text}: noise of IncA by Theorem 4.7, that of the others by the exact view",
            None,
            min(min(row) for row in by_theorem.values()),
            None,
            f"a reading of ours: of GOPA the paper says only that the worst of its runs decides. {gammas} {_table(by_theorem)}",
            "x",
            with_luck(min(min(row) for row in by_theorem.values())),
        ),
        Check(
            f"{text}, if GOPA's late dropouts have released their values before",
            why="the paper (arXiv version) releases values in the second round, in which noise is rolled back, too: who drops "
            "out there leaves uncancelled all that it shares with those who stay, which is drawn. If it has released its value "
            "before (`gopa` with a collector works like that) only pairs of an early and a late dropout leave noise, while each "
            f"party that leaves IncA leaves one term: {_table(published)}",
            **_better(published),
        ),
        Check(
            "noise from Theorem 4.7, uniform neighbours, 20 messages",
            None,
            _typical(gain),
            None,
            f"the paper's error over ours at equal (epsilon, delta), equal messages (exact, permutations): {_range(gain)}",
            "x",
            with_luck(_typical(gain)),
        ),
    ]


def _of_gopa(
    against: Mapping[str, list[float]], wider: Mapping[str, list[float]], exactly: Mapping[str, list[float]]
) -> list[Claim]:
    """What late dropouts do to GOPA, by its errors over IncA's at each gamma."""
    one, half = (f"gopa-{late}-{_FEWER}" for late in ("one", "half"))
    degraded = [late / single for late, single in zip(against[half], against[one], strict=True)]
    return [
        Claim(
            "with a single late dropout GOPA approaches IncA",
            None,
            _typical(against[one]),
            None,
            f"GOPA's error over IncA's, {_FEWER} chosen partners: {_range(against[one])}; {_PARTNERS} chosen: "
            f"{_range(wider['gopa-one'])}; with exact accounting, {_FEWER} chosen: {_range(exactly[one])}",
            "x",
            with_luck(_typical(against[one])),
            (2 / 3, 3.0),
        ),
        Claim(
            "GOPA degrades significantly with a quarter or half of the dropouts late",
            None,
            _typical(degraded),
            None,
            f"GOPA's error with half of its dropouts late over that with one late, {_FEWER} chosen partners: {_range(degraded)}",
            "x",
            with_luck(_typical(degraded)),
            (2.0, math.inf),
        ),
    ]


def _worst_is_cordp(against: Mapping[str, list[float]]) -> Claim:
    compared = [f"{method}-{_FEWER}" for method in _LATE]
    as_gopa = against["cordp-dme-as-gopa"]
    worst = [max((*compared, "cordp-dme-as-gopa"), key=lambda method: against[method][place]) for place in range(len(DROPOUTS))]
    least = min(ours / max(against[method][place] for method in compared) for place, ours in enumerate(as_gopa))
    return Claim(
        "CorDP-DME performs worst",
        None,
        least,
        None,
        "its error over that of GOPA at its worst, the least over gamma. With GOPA's noise on all pairs of honest parties, as "
        f"the paper proceeds, its error is {_range(as_gopa)} times IncA's; worst at gamma = 0.05, 0.1, 0.2: {', '.join(worst)}. "
        f"At the optimum of its own design (unit variance {1.0 / classical_mu(EPSILON, DELTA) ** 2:.4g}) it is better than that: "
        f"{_range(against['cordp-dme'])}. Lost values are not counted for it, as in the paper",
        "x",
        with_luck(least),
        (1.0, math.inf),
    )


def _typical(numbers: list[float]) -> float:
    return float(np.exp(np.mean(np.log(numbers))))


def _table(rows: Mapping[str, list[float]]) -> str:
    return "; ".join(f"{name} {_range(row)}" for name, row in rows.items())


def _range(numbers: list[float]) -> str:
    return ", ".join(f"{one:.3g}" for one in numbers) if len(numbers) <= 3 else f"{min(numbers):.3g} to {max(numbers):.3g}"


_CAPTION = (
    "n = 200, epsilon = 0.2, delta = 1e-5, 10 % corrupted at random; the worst simulated run decides the noise, bands: 95 % "
    f"of the mean, given that noise. Values uniform in [0, 1]: lost ones count with variance {SPREAD:.4f}, not for CorDP-DME. "
    "Solid: the papers' calibration; dashed: exact view and exact Gaussian formula."
)
PARAMETERS = Figure(
    "inca-3a",
    PAPER,
    "Figure 3a: error under dropouts for several parameters",
    tasks_parameters,
    draw_parameters,
    claims_parameters,
    _CAPTION,
    (COLUMN, 3.4),
)
_COMPARED_CAPTION = (
    "n = 200, epsilon = 0.2, delta = 1e-5, 10 % corrupted at random; the worst simulated run decides the noise, bands: 95 % "
    f"of the mean, given that noise. Values uniform in [0, 1]: lost ones count with variance {SPREAD:.4f}, not for CorDP-DME. "
    f"Exact view of every protocol. Solid: GOPA with {_FEWER} chosen partners, as many messages as IncA; dashed: {_PARTNERS}. "
    "Who is late in GOPA drops out in its second round, before it releases its value."
)
COMPARED = Figure(
    "inca-3b",
    PAPER,
    "Figure 3b: error under dropouts beside GOPA and CorDP-DME",
    tasks_compared,
    draw_compared,
    claims_compared,
    _COMPARED_CAPTION,
    (PAGE, 3.6),
)
