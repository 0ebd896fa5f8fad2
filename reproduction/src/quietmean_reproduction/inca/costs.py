"""Figures 4 and 6: what the machines of IncA and of secure aggregation compute and send."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from quietmean.graphs import churn
from quietmean.planning import Plan, Target
from quietmean.protocols import configure, registry
from quietmean.protocols.inca import IncA
from quietmean.protocols.result_broadcast import ResultBroadcast
from quietmean.randomness.insecure import InsecureStackedNoise, insecure_seed
from quietmean_reproduction.columns import numbers
from quietmean_reproduction.figure import PAGE, Claim, Effort, Figure
from quietmean_reproduction.inca.machines import Meter
from quietmean_reproduction.inca.setting import DELTA, PAPER
from quietmean_reproduction.style import BLUE, GREY, RED, grid, legend_above
from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

CORRUPT, EPSILON, TELLING = 0.1, 0.2, 20
SECAGG = "secagg-plus"


def inca(*, seed: int, parties: int, dimension: int, rounds: int, dropouts: float, repeat: int) -> list[dict[str, Any]]:
    """IncA with one receiver a round, then push-sum of 20 rounds in the clear; dropouts spread evenly over all rounds.

    The mean is over parties that stay. What the noise levels are makes no difference to the cost.
    """
    protocol = IncA(rounds=rounds, schedule="uniform", sigma_star=1.0, sigma_delta=1.0)
    target = Target(parties, EPSILON, DELTA, dimension, colluding=round(CORRUPT * parties), dropouts=dropouts)
    plan = Plan(target, protocol, ResultBroadcast("push-sum", TELLING))
    root = insecure_seed(seed, "costs", repeat)
    schedule, online = plan.schedule(root), churn(root, rounds + TELLING, parties, permanent=dropouts).online
    noise, value = InsecureStackedNoise(seed, parties), plan.admit(np.full(dimension, 0.5))
    meter, spread = Meter.of(parties), Meter.of(parties)
    meter.drive([plan.machine(schedule, party, value, noise.party(party)) for party in range(parties)], online[: rounds + 1])
    tellers = [plan.dissemination_machine(party, meter.releases.get(party), root) for party in range(parties)]
    # Who left while mixing is away from the start here.
    spread.drive(tellers, online[rounds:])
    staying = online[-1]
    seconds = (meter.seconds + spread.seconds)[staying]
    return [
        _row("inca", parties, dimension, rounds, seconds, 0.0, float((meter.sent + spread.sent).sum()))
        | {"mean_bytes": float((meter.sent + spread.sent)[staying].mean())}
    ]


def secagg(*, seed: int, parties: int, dimension: int, degree: int, dropouts: float, repeat: int) -> list[dict[str, Any]]:
    """SecAgg+ with distributed noise; party 0 aggregates. Its time beyond that of a client is what all others wait for."""
    radius = 0.5 * math.sqrt(dimension)
    colluding = round(CORRUPT * parties)
    target = Target(parties, EPSILON, DELTA, dimension, 2 * radius, colluding, dropouts)
    options = {"degree": degree, "threshold": degree // 2 + 1, "domain": "ball"}
    # As designed: no calibration, which refuses what these options do not promise. What a round costs is the same for any noise.
    protocol = configure(SECAGG, options)
    design = protocol.design(target)
    assert design is not None  # noqa: S101 - for the type checker
    plan = Plan(target, design.protocol)
    root = insecure_seed(seed, "costs", repeat)
    schedule, rounds = plan.schedule(root), plan.protocol.rounds
    online = churn(root, rounds, parties, permanent=dropouts).online
    online[:, list(plan.protocol.traits.indispensable)] = True
    noise, value = InsecureStackedNoise(seed, parties), plan.admit(np.full(dimension, 0.5 / math.sqrt(dimension)))
    meter = Meter.of(parties)
    meter.drive([plan.machine(schedule, party, value, noise.party(party)) for party in range(parties)], online)
    staying = online[-1].copy()
    staying[0] = False
    own = meter.seconds[staying]
    waiting = max(0.0, float(meter.seconds[0] - own.mean()))
    return [
        _row("secagg", parties, dimension, rounds, own, waiting, float(meter.sent.sum()))
        | {"mean_bytes": float(meter.sent[staying].mean()), "finished": bool(meter.releases)}
    ]


def _row(
    method: str, parties: int, dimension: int, rounds: int, seconds: np.ndarray[Any, Any], waiting: float, sent: float
) -> dict[str, Any]:
    return {
        "method": method,
        "parties": parties,
        "dimension": dimension,
        "rounds": rounds,
        "seconds": float(seconds.mean()),
        "seconds_waiting": waiting,
        "megabytes_sent": sent / 1e6,
    }


def tasks_sizes(effort: Effort) -> list[Task]:
    quick = effort == Effort.QUICK
    repeats = range(2 if quick else 10)
    top = 5 if quick else 6
    # The machines of IncA do not notice how many parties there are: large vectors need not be held by 200 of them.
    sizes = [(200 if power < 5 else 40 if power == 5 else 12, 10**power) for power in range(top + 1)]
    sizes += [(parties, 1000) for parties in (300, 400, 500)]
    mine = [
        {"parties": n, "dimension": d, "rounds": 40, "dropouts": 0.1, "repeat": repeat} for n, d in sizes for repeat in repeats
    ]
    tasks = [Task(inca, one) for one in mine]
    if SECAGG in registry():
        # The aggregator's work does grow with the number of parties.
        sizes = [(200, 10**power) for power in range(top + 1)] + sizes[top + 1 :]
        theirs = [{"parties": n, "dimension": d, "degree": 16, "dropouts": 0.1, "repeat": r} for n, d in sizes for r in repeats]
        tasks += [Task(secagg, one) for one in theirs]
    return tasks


def tasks_rounds(effort: Effort) -> list[Task]:
    repeats = range(2 if effort == Effort.QUICK else 10)
    known = {"parties": 200, "dimension": 1000, "dropouts": 0.2}
    tasks = [Task(inca, known | {"rounds": rounds, "repeat": r}) for rounds in (10, 20, 40, 60, 80) for r in repeats]
    if SECAGG in registry():
        tasks += [Task(secagg, known | {"degree": 24, "repeat": repeat}) for repeat in repeats]
    return tasks


def summarised(rows: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Mean and standard deviation over the repeats. ``runtime``: a party's own time and what it waits for the aggregator."""
    return (
        rows.with_columns(runtime=pl.col("seconds") + pl.col("seconds_waiting"))
        .group_by("method", *keys, maintain_order=True)
        .agg(
            pl.col("runtime", "seconds", "megabytes_sent").mean(),
            pl.col("runtime").std().fill_null(0.0).alias("runtime_deviation"),
            pl.col("megabytes_sent").std().fill_null(0.0).alias("sent_deviation"),
        )
        .sort(*keys)
    )


def _panel(axes: Axes, found: pl.DataFrame, x: str, y: str, deviation: str, scale: float) -> None:
    for method, label, colour, marker in (("inca", "IncA", BLUE, "o"), ("secagg", "SecAgg+", RED, "s")):
        part = found.filter(method=method)
        if not part.is_empty():
            axes.errorbar(
                numbers(part, x),
                scale * numbers(part, y),
                scale * numbers(part, deviation),
                color=colour,
                marker=marker,
                capsize=2,
                label=label,
            )
    grid(axes)


def draw_sizes(rows: pl.DataFrame, canvas: Canvas) -> None:
    top, bottom = canvas.subplots(2, 2)
    by_dimension, by_parties = _by_dimension(rows), summarised(rows.filter(dimension=1000), "parties")
    _panel(top[0], by_dimension, "dimension", "megabytes_sent", "sent_deviation", 1.0)
    _panel(top[1], by_dimension, "dimension", "runtime", "runtime_deviation", 1e3)
    _panel(bottom[0], by_parties, "parties", "megabytes_sent", "sent_deviation", 1.0)
    _panel(bottom[1], by_parties, "parties", "runtime", "runtime_deviation", 1e3)
    own = by_dimension.filter(method="secagg"), by_parties.filter(method="secagg")
    for axes, part, x in ((top[1], own[0], "dimension"), (bottom[1], own[1], "parties")):
        axes.plot(part[x], 1e3 * part["seconds"], color=RED, linestyle=(0, (3, 1.5)), label="SecAgg+, without waiting")
    for axes, where in ((top[0], 1e2), (top[1], 1e5)):
        axes.axvline(where, color=GREY, linestyle=(0, (1, 1.5)), linewidth=0.9, label="crossing stated in the paper")
    for axes in top:
        axes.set(xscale="log", yscale="log", xlabel="coordinates d (n = 200)")
    for axes in bottom:
        axes.set(xlabel="parties n (d = 1000)", xticks=(200, 300, 400, 500), ylim=(0, None))
    for axes in (top[0], bottom[0]):
        axes.set_ylabel("sent by all parties (MB)")
    for axes in (top[1], bottom[1]):
        axes.set_ylabel("time of a party (ms)")
    legend_above(canvas, top[1], 3)


def _by_dimension(rows: pl.DataFrame) -> pl.DataFrame:
    """Bytes of all parties at n = 200, also where fewer machines were run: each sends the same."""
    scaled = rows.filter(pl.col("parties") <= 200).with_columns(pl.col("megabytes_sent") * 200 / pl.col("parties"))
    return summarised(scaled, "dimension")


def draw_rounds(rows: pl.DataFrame, canvas: Canvas) -> None:
    panels = canvas.subplots(1, 2)
    found = summarised(rows, "rounds")
    inca_rows, others = found.filter(method="inca"), found.filter(method="secagg")
    shown = (("megabytes_sent", "sent_deviation", 1.0), ("runtime", "runtime_deviation", 1e3))
    for axes, (y, deviation, scale) in zip(panels, shown, strict=True):
        _panel(axes, inca_rows, "rounds", y, deviation, scale)
        if not others.is_empty():
            axes.axhline(scale * others[y].item(), color=RED, label="SecAgg+ (24 neighbours)")
        axes.set(xlabel="rounds T", xlim=(0, 84), ylim=(0, None), xticks=(10, 20, 40, 60, 80))
    panels[0].set_ylabel("sent by all parties (MB)")
    panels[1].set_ylabel("time of a party (ms)")
    legend_above(canvas, panels[0], 2)


def crossing(found: pl.DataFrame, y: str) -> float | None:
    """Where IncA's curve comes to lie above SecAgg+'s, between measured points in log-log; None if it does not."""
    mine, theirs = (found.filter(method=method).select("dimension", y) for method in ("inca", "secagg"))
    both = mine.join(theirs, on="dimension", suffix="_other").sort("dimension")
    x = np.log10(both["dimension"].to_numpy())
    gap = np.log10(both[y].to_numpy() / both[f"{y}_other"].to_numpy())
    places = np.nonzero((gap[:-1] <= 0) & (gap[1:] > 0))[0]
    if places.size == 0:
        return None
    first = int(places[0])
    return float(10 ** (x[first] - gap[first] * (x[first + 1] - x[first]) / (gap[first + 1] - gap[first])))


def over_repeats(rows: pl.DataFrame, statistic: Callable[[pl.DataFrame], float | None]) -> tuple[float, float] | None:
    """The 95 % interval of the geometric mean over repeats of a statistic, by Student's law; None where a repeat has none."""
    place = pl.int_range(pl.len()).over("method", "parties", "dimension", "rounds")
    found = [statistic(part) for _, part in rows.with_columns(place=place).group_by("place", maintain_order=True)]
    known = np.log([one for one in found if one is not None])
    if len(known) < max(2, len(found)):
        return None
    half = float(stdtrit(len(known) - 1, 0.975)) * float(known.std(ddof=1)) / math.sqrt(len(known))
    return math.exp(known.mean() - half), math.exp(known.mean() + half)


def _growth(rows: pl.DataFrame, method: str, y: str) -> float:
    """Growth of a column from the fewest parties to the most."""
    part = summarised(rows.filter(dimension=1000), "parties").with_columns(waiting=pl.col("runtime") - pl.col("seconds"))
    found = numbers(part.filter(method=method).sort("parties"), y)
    return float(found[-1] / found[0])


def claims_sizes(rows: pl.DataFrame) -> list[Claim]:
    by_dimension = _by_dimension(rows)
    found = [
        Claim(
            "the runtime of IncA remains constant in n",
            1.0,
            _growth(rows, "inca", "runtime"),
            None,
            "time of a party at n = 500 over that at n = 200, d = 1000; processor time of the real party machines",
            "",
            over_repeats(rows, lambda part: _growth(part, "inca", "runtime")),
            (0.5, 2.0),
        )
    ]
    if by_dimension.filter(method="secagg").is_empty():
        return [*found, Claim("crossings with secure aggregation", why="no secure aggregation is registered here: not measured")]
    bytes_at, time_at = crossing(by_dimension, "megabytes_sent"), crossing(by_dimension, "runtime")
    own_at = crossing(by_dimension, "seconds")
    largest = by_dimension["dimension"].max()
    ratio = _ratios(by_dimension)
    return [
        Claim(
            "secure aggregation sends significantly less for d > 10^2",
            100.0,
            bytes_at,
            None if bytes_at is not None and 10 <= bytes_at <= 1000 else False,
            f"where the curves cross; IncA's bytes over SecAgg+'s: {ratio['megabytes_sent']}. IncA sends 60 messages of float64 "
            "a party (single precision would halve that), SecAgg+ one of 32-bit words",
            "coordinates",
            over_repeats(rows, lambda part: crossing(_by_dimension(part), "megabytes_sent")),
            (10.0, 1000.0),
        ),
        Claim(
            "IncA is faster for d < 10^5",
            1e5,
            time_at,
            None,
            f"where the curves cross, waiting for the aggregator included{_none(time_at, largest)}; IncA's time over SecAgg+'s: "
            f"{ratio['runtime']}. Without waiting {_told(own_at)}. The paper measured Python in a simulator "
            "on one machine; here both sides are compiled code where it matters",
            "coordinates",
            over_repeats(rows, lambda part: crossing(_by_dimension(part), "runtime")),
            (3e4, 3e5),
        ),
        *found,
        Claim(
            "the aggregator's work, and all parties' waiting, is linear in n",
            500 / 200,
            _growth(rows, "secagg", "waiting"),
            None,
            "waiting at n = 500 over that at n = 200, d = 1000",
            "",
            over_repeats(rows, lambda part: _growth(part, "secagg", "waiting")),
            (1.5, 4.5),
        ),
    ]


def _ratios(found: pl.DataFrame) -> dict[str, str]:
    mine, theirs = found.filter(method="inca"), found.filter(method="secagg")
    both = mine.join(theirs, on="dimension", suffix="_other").sort("dimension")
    powers = np.log10(numbers(both, "dimension")).round().astype(int)
    texts = {}
    for y in ("megabytes_sent", "runtime"):
        ratios = numbers(both, y) / numbers(both, f"{y}_other")
        texts[y] = ", ".join(f"{ratio:.2g} at d = 1e{power}" for ratio, power in zip(ratios, powers, strict=True))
    return texts


def _told(where: float | None) -> str:
    return "SecAgg+ is the faster one throughout" if where is None else f"the curves cross at d = {where:.2g}"


def _none(where: float | None, largest: Any) -> str:
    return f" (not up to d = {largest:,})" if where is None else ""


def claims_rounds(rows: pl.DataFrame) -> list[Claim]:
    found = summarised(rows, "rounds").filter(method="inca").sort("rounds")
    found_claims = []
    for y, name in (("megabytes_sent", "communication"), ("runtime", "runtime")):
        values, rounds = found[y].to_numpy(), found["rounds"].to_numpy()
        slope, start = np.polyfit(rounds, values, 1)
        bend = float(np.abs(values - start - slope * rounds).max() / values.max())
        unit = "kB" if y == "megabytes_sent" else "ms"
        found_claims.append(
            Claim(
                f"IncA's {name} grows linearly with the rounds",
                None,
                float(1e3 * slope),
                bend < 0.15,
                f"per round; no point is further than {100 * bend:.1f} % of the largest from the straight line",
                unit,
            )
        )
    others = summarised(rows, "rounds").filter(method="secagg")
    if not others.is_empty():
        for y, name in (("megabytes_sent", "sends"), ("runtime", "takes")):
            accepted = (1.0, math.inf) if y == "megabytes_sent" else (0.0, 1.0)
            sure = over_repeats(rows, partial(_gap, y=y))
            what = "more" if y == "megabytes_sent" else "less time"
            text = f"gaps to secure aggregation as in Figure 4: IncA {name} {what} (d = 1000)"
            found_claims.append(Claim(text, None, _gap(rows, y), None, "IncA over SecAgg+ at T = 40", "x", sure, accepted))
    return found_claims


def _gap(rows: pl.DataFrame, y: str) -> float:
    """Cost of IncA with 40 rounds over that of secure aggregation."""
    found = summarised(rows, "rounds")
    return float(found.filter(method="inca", rounds=40)[y].item() / found.filter(method="secagg")[y].item())


_HOW = (
    "Processor time of one thread of the real party machines, every call counted; payload bytes of all messages. Bars: standard "
    "deviation over repeated runs."
)
SIZES = Figure(
    "inca-4",
    PAPER,
    "Figure 4: communication and computation beside secure aggregation",
    tasks_sizes,
    draw_sizes,
    claims_sizes,
    f"10 % corrupted, 10 % drop out. IncA: k = 1, T = 40 and 20 rounds of push-sum; SecAgg+: 16 neighbours, "
    f"which keep its secrecy but for a chance of 2^-10, so that delta is not promised. {_HOW} "
    "From d = 1e5 fewer machines of IncA were run (40, then 12): their cost does not depend on n; bytes are scaled to 200.",
    (PAGE, 4.6),
    timed=True,
)
ROUNDS = Figure(
    "inca-6",
    PAPER,
    "Figure 6: cost against the number of rounds",
    tasks_rounds,
    draw_rounds,
    claims_rounds,
    f"n = 200, d = 1000, 10 % corrupted, 20 % drop out. IncA: k = 1 and 20 rounds of push-sum besides T. {_HOW}",
    (PAGE, 2.6),
    timed=True,
)
