"""Figure 5: what the messages of the last honest node reveal of its value: one at a time, and all together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace
from quietmean.privacy.mutual_information import gaussian_entropy, of_interval_intersection
from quietmean.protocols.consensus import Consensus, Quantisation
from quietmean.protocols.consensus.population import run_consensus
from quietmean.protocols.mechanism import fixed_schedule
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean_reproduction.adqsp.estimator import knn_information, knn_of_itself
from quietmean_reproduction.adqsp.intervals import of_uniform_noise, posterior_entropy
from quietmean_reproduction.adqsp.setting import PAPER, draw_values, unquantised
from quietmean_reproduction.columns import interval_of, numbers, worst_deviation
from quietmean_reproduction.figure import PAGE, Check, Claim, Effort, Figure
from quietmean_reproduction.style import BLUE, FAINT, GREY, RED, grid
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

CELLS = (1e-1, 1e-2)
# c = d_i = 1 and theta = 0, so that c_ik = 1. Not stated: gamma, Delta_0, sigma_z, how many iterations.
GAMMA, SIGMA, BITS = 0.9, 1.0, 2
_NEAR, _LATE = 100, 100
# More standard deviations of the first difference than ever occur: nothing overloads.
_REACH = 7.0
_ENTROPY = gaussian_entropy(1.0)


def consensus_for(cell: float, iterations: int) -> Consensus:
    """Two parties and one edge: each has one neighbour, and to the other nothing of it is hidden."""
    delta_0 = _REACH * math.sqrt(1 + SIGMA**2) / (2.0 ** (BITS - 1) - 0.5) / GAMMA
    settings = Quantisation(BITS, GAMMA, delta_0, cell, dither_seed=1)
    return unquantised(np.array([[0, 1]]), 0.0, SIGMA, iterations).quantised(settings)


def simulated(*, seed: int, cell: float, iterations: int, samples: int, estimated: int) -> list[dict[str, Any]]:
    """Real runs. Every message confines s_0 to an interval; the posterior is N(0, 1) cut to their intersection."""
    protocol = consensus_for(cell, iterations)
    settings = protocol.quantisation
    assert settings is not None  # noqa: S101 - for the type checker
    shown = sorted({*np.unique(np.geomspace(1, iterations, 40).astype(int)).tolist(), iterations // 2})
    asked = {t for t in (1, 5, 10, 20, 30, 40, 60, 80) if t <= iterations}
    values = draw_values(samples, seed, 2)
    ties: Vector = BitStream(insecure_seed(seed, "ties")).standard_normal((samples, 2))
    low, high = np.full(samples, -np.inf), np.full(samples, np.inf)
    itself = knn_of_itself(values[0][:estimated, None], ties[:estimated])
    rows: list[dict[str, Any]] = []

    def note(iteration: int, x: Vector) -> None:
        t = iteration - 1
        if t == 0:
            return
        # x_1 = (s_1 + z_{1|0}) / (1 + c), and with theta = 0 the message t made z_{1|0} = s_0 + its quantisation error.
        seen = 2 * x[1] - values[1]
        np.maximum(low, seen - settings.width(t) / 2, out=low)
        np.minimum(high, seen + settings.width(t) / 2, out=high)
        common = {"cell": cell, "iteration": t, "width": settings.width(t)}
        if t in shown:
            nats = _ENTROPY - posterior_entropy(low, high)
            error = float(nats.std(ddof=1)) / math.sqrt(samples)
            missed = float(((values[0] < low - 1e-9) | (values[0] > high + 1e-9)).mean())
            together = {"nats": float(nats.mean()), "nats_standard_error": error, "missed": missed, "runs": samples}
            rows.append({"kind": "cumulative", **common, **together})
        if t in asked:
            found = knn_information(values[0][:estimated, None], seen[:estimated, None])
            rows.append({"kind": "estimate", **common, "nats": found, "normalised": found / itself, "samples": estimated})

    run = run_consensus(
        protocol,
        fixed_schedule(protocol, 2),
        ExecutionTrace.everyone(protocol.rounds, 2),
        values,
        np.ones(2),
        InsecurePopulationNoise(seed, 2),
        note,
    )
    return [*rows, {"kind": "check", "cell": cell, "overloads": int(run.overloads.sum())}]


def formulae(*, seed: int, cell: float, iterations: int) -> list[dict[str, Any]]:
    """One message, exactly; local noise of width u_r = Delta_min; and the law of the intersection of all intervals."""
    del seed
    settings = consensus_for(cell, iterations).quantisation
    assert settings is not None  # noqa: S101 - for the type checker
    widths = np.array([settings.width(t) for t in range(1, iterations + 1)])
    single = {width: of_uniform_noise(width) for width in sorted(set(widths.tolist()))}
    local = of_uniform_noise(cell)
    rows: list[dict[str, Any]] = []
    for t in np.unique(np.concatenate([np.arange(1, 121), np.geomspace(1, iterations, 120).astype(int)])).tolist():
        if t > iterations:
            continue
        common = {"cell": cell, "iteration": t, "width": widths[t - 1]}
        rows.append({"kind": "one message", **common, "nats": single[float(widths[t - 1])]})
        rows.append({"kind": "local noise", **common, "nats": local})
        # The law is for intervals that are narrow against the density of S.
        if widths[t - 1] < 0.5:
            rows.append({"kind": "law", **common, "nats": of_interval_intersection(_ENTROPY, widths[:t])})
    return rows


def tasks(effort: Effort) -> list[Task]:
    iterations, samples, estimated = (2048, 4000, 2000) if effort == Effort.QUICK else (8192, 10_000, 10_000)
    return [
        *(Task(formulae, {"cell": cell, "iterations": iterations}) for cell in CELLS),
        *(
            Task(simulated, {"cell": cell, "iterations": iterations, "samples": samples, "estimated": estimated})
            for cell in CELLS
        ),
    ]


def draw(rows: pl.DataFrame, canvas: Canvas) -> None:
    left, right = canvas.subplots(1, 2, sharey=True)
    for cell, colour in zip(CELLS, (RED, BLUE), strict=True):
        part = rows.filter(cell=cell)
        one, found, together, law = (part.filter(kind=kind) for kind in ("one message", "estimate", "cumulative", "law"))
        near = one.filter(one["iteration"] <= _NEAR)
        left.plot(near["iteration"], near["nats"], color=colour)
        left.plot(found["iteration"], found["nats"], "s", color=colour, markerfacecolor="white")
        for axes in (left, right):
            axes.axhline(part.filter(kind="local noise")["nats"][0], color=colour, linewidth=0.9, linestyle=(0, (3, 1.5)))
        error = 1.96 * numbers(together, "nats_standard_error")
        right.errorbar(together["iteration"], together["nats"], error, fmt="o", color=colour, markersize=2.6, linewidth=0.8)
        right.plot(law["iteration"], law["nats"], color=colour, linewidth=0.9, linestyle=(0, (1, 1.2)))
        right.plot(one["iteration"], one["nats"], color=FAINT, zorder=0)
    left.set(title="(a) message t alone, as in the paper", xlabel="iteration t", ylabel="nats about the value", xlim=(0, _NEAR))
    right.set(title="(b) messages 1 .. t together", xlabel="iteration t", xscale="log")
    left.set_ylim(-0.3, 15.5)
    for axes in (left, right):
        grid(axes)
    _legend(canvas, left)


def _legend(canvas: Canvas, axes: Axes) -> None:
    looks: list[tuple[str, dict[str, Any]]] = [
        *((f"Δmin = ur = {cell:g}", {"color": colour, "linewidth": 3}) for cell, colour in zip(CELLS, (RED, BLUE), strict=True)),
        ("message t alone, exact", {"color": GREY}),
        ("the same, nearest neighbours", {"color": GREY, "linestyle": "none", "marker": "s", "markerfacecolor": "white"}),
        ("one local noise of width ur", {"color": GREY, "linestyle": (0, (3, 1.5)), "linewidth": 0.9}),
        ("all messages, simulated", {"color": GREY, "linestyle": "none", "marker": "o", "markersize": 2.6}),
        ("h(S) + ln Σ 1/w + 0.577 − 1", {"color": GREY, "linestyle": (0, (1, 1.2)), "linewidth": 0.9}),
    ]
    handles = [axes.plot([], [], label=label, **look)[0] for label, look in looks]
    canvas.legend(handles=handles, loc="outside upper center", ncols=4)


def claims(rows: pl.DataFrame) -> list[Claim]:
    listed = [claim for cell in CELLS for claim in _claims_for(rows.filter(cell=cell), cell)]
    everything, check = rows.filter(kind="cumulative"), rows.filter(kind="check")
    missed = float(numbers(everything, "missed").max())
    contained = Check(
        "every interval contains the value",
        None,
        missed,
        missed == 0.0,
        f"largest share of runs in which it does not; {numbers(check, 'overloads').sum():.0f} overloads",
    )
    late = everything.filter(everything["iteration"] >= _LATE)
    law = rows.filter(kind="law").select("cell", "iteration", law="nats")
    worst = worst_deviation(late.join(law, on=["cell", "iteration"]), "nats", "law")
    why = "largest deviation of simulated posteriors from it"
    return [
        *listed,
        contained,
        Check(f"the law of all messages together, from {_LATE} on", None, worst, worst < 4.5, why, "standard errors"),
    ]


def _claims_for(part: pl.DataFrame, cell: float) -> list[Claim]:
    one, together, law, found = (part.filter(kind=kind) for kind in ("one message", "cumulative", "law", "estimate"))
    local, alone, total = (float(each["nats"][-1]) for each in (part.filter(kind="local noise"), one, together))
    last = int(together["iteration"][-1])
    half = float(together.filter(iteration=last // 2)["nats"].item())
    return [
        Claim(
            f"leakage of late messages attaches to that of local noise, Delta_min = u_r = {cell:g}",
            1.0,
            alone / local,
            abs(alone - local) < 1e-6,
            "a late message is s_i + Uniform of width c_ik Delta_min, with c_ik = 1 the same as local noise: "
            f"{local:.4f} nats; by {found['samples'][0]} samples and nearest neighbours {found['nats'][-1]:.2f}",
            "x",
        ),
        Claim(
            f"the whole run reveals what local noise does, Delta_min = {cell:g}",
            1.0,
            total / local,
            None,
            f"{last} messages reveal {total:.3f} nats together (standard error {together['nats_standard_error'][-1]:.3f}; by the "
            f"law {law['nats'][-1]:.3f}): every one has its own error, and the intervals intersect. The last {last // 2} added "
            f"{total - half:.3f} nats, about ln 2 = 0.693, and so on without end: this is no differential privacy",
            "x",
            interval_of(total / local, float(together["nats_standard_error"][-1]) / local),
            (0.95, 1.05),
        ),
    ]


FIGURE = Figure(
    name="adqsp-5",
    paper=PAPER,
    title="Figure 5: leakage against iterations, one message and all of them",
    tasks=tasks,
    draw=draw,
    claims=claims,
    caption="The only honest node has one neighbour; c = 1 and theta = 0, so c_ik = 1; values N(0, 1), gamma = 0.9 (not stated). "
    "Dashed: one local noise of width u_r = Delta_min. Bars: 95 %.",
    size=(PAGE, 3.0),
)
