"""Make docs/statistics-bars.md: what statistics are held to, each line measured with fixed seeds.

    python tools/statistics_bars.py [--seeds N] [--processes N] [--resume FOLDER]

Noise is Gaussian with sqrt(1.2) times one curator's standard deviation, at delta 1e-6, under replacement of a record. The data
are those of the extras ``demo`` and ``examples``. What falls short stands there with its reason.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import coverage_bars
import numpy as np
from numpy.typing import NDArray
from page_figures import ending
from resumed import add_options, all_lines, resumed
from table_rows import said_once

from quietmean.core.domain import PrivacyUnit
from quietmean.core.readable import percent_text
from quietmean.privacy import mu_of_budget
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text
from quietmean.statistics.expectation import Expectation
from quietmean.studies import StudyTerms

Array = NDArray[np.float64]

PAGE = Path(__file__).parent.parent / "docs" / "statistics-bars.md"
DELTA, FACTOR, SEED = 1e-6, math.sqrt(1.2), 20_190
SEEDS = 1000

HEAD = """# What statistics are held to

This page is made by `python tools/statistics_bars.py`. Same command, same page; do not edit it by hand. Noise is Gaussian with
$\\sqrt{1.2}$ times the standard deviation that one trusted curator would add, at $\\delta = 10^{-6}$, under replacement of a
record; every line has its own fixed seeds. Records of a population are drawn anew for each seed; where data are named, only
the noise is. Where OpenDP is beside us the noise is that of a plan for 20 parties instead; a single small table or quantile for
one trusted curator is better asked with its Laplace noise, which needs no delta. A coverage is kept if it lies within the bar,
or no more than four standard errors of a share of 95 % away from 95 %
(2.8 points for 1000 results). Reasons of what falls short are what we think, not tested.

| what | bar | measured | seeds | |
|---|---|---|---:|---|
"""


@dataclass(frozen=True)
class Line:
    """One bar. ``kept``: is what was measured within it; ``reason``: why not."""

    what: str
    bar: str
    measured: str
    seeds: int
    kept: bool
    reason: str = ""

    def __str__(self) -> str:
        verdict = "kept" if self.kept else f"**falls short**: {self.reason}"
        return f"| {self.what} | {self.bar} | {self.measured} | {self.seeds or '-'} | {verdict} |"


def noise_of(workload: Workload, epsilon: float, records: float) -> float:
    """The standard deviation on each coordinate of the mean."""
    return FACTOR * workload.sensitivity / mu_of_budget(epsilon, DELTA) / records


def workload_of(columns: Columns, *texts: str) -> Workload:
    return Workload(columns, tuple(parse_statistic(read_text(text)) for text in texts), PrivacyUnit.RECORD)


def noisy(workload: Workload, mean: Array, epsilon: float, records: float, rng: np.random.Generator) -> Estimates:
    """One release of the first statistic."""
    noise = noise_of(workload, epsilon, records)
    return workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, records)[0].estimates


# -- populations -----------------------------------------------------------------------------------------------------------------
POPULATION = Columns(
    [
        Column(name="x", low=-3, high=3),
        Column(name="y", low=-6, high=6),
        Column(name="group", levels=("a", "b")),
        Column(name="yes", boolean=True),
    ]
)


def draw(rng: np.random.Generator, count: int) -> Array:
    """x is beta(2, 2) on [-3, 3], y = 0.8 x + normal + 0.5 in group b (30 %), yes has 30 % and 50 %."""
    x = rng.beta(2, 2, count) * 6 - 3
    group = (rng.random(count) < 0.3).astype(float)
    yes = (rng.random(count) < np.where(group > 0, 0.5, 0.3)).astype(float)
    return np.column_stack([x, np.clip(0.8 * x + rng.normal(0, 1, count) + 0.5 * group, -6, 6), group, yes])


WHOLE_BINS = "its interval goes to the ends of bins, wherever values are in them"
CASES = (
    ("mean(x)", 0, 0.0),
    ("variance(x)", 0, 1.8),
    ("proportion(yes)", 0, 0.36),
    ("group-means(y, by=group)", 2, 0.5),
    ("linear-regression(y ~ x)", 1, 0.8),
    ("correlation(x, y)", 0, 0.8 * math.sqrt(1.8) / math.sqrt(0.64 * 1.8 + 1 + 0.25 * 0.21)),
    ("quantiles(x, 0.5, bins=32)", 0, 0.0),
    ("crosstab(group, yes)", 9, 7 / 3),
)
SIZES = (500, 2000)


def coverage(seeds: int) -> Iterator[Line]:
    """Of the intervals of the population at epsilon 1, over unflagged results."""
    for place in range(len(CASES)):
        yield from coverage_of(place, seeds)


def coverage_of(place: int, seeds: int) -> Iterator[Line]:
    """Of one of the cases."""
    text, term, truth = CASES[place]
    workload = workload_of(POPULATION, text)
    for size in SIZES:
        held, ignoring, there = 0, 0, 0
        for seed in range(seeds):
            rng = np.random.default_rng((SEED, place, size, seed))
            found = noisy(workload, workload.of_records(draw(rng, size)).mean(axis=0), 1.0, size, rng)
            ends, error = found.of_population, found.population
            if ends is None or error is None or _flagged(found) or not np.isfinite(ends[term]).all():
                continue
            there += 1
            held += bool(ends[term, 0] <= truth <= ends[term, 1])
            sampling = math.sqrt(max(error[term] ** 2 - found.standard_error[term] ** 2, 0.0))
            ignoring += bool(abs(found.value[term] - truth) <= 1.96 * sampling)
        what = f"coverage of {text}, {size:,} records, epsilon 1"
        if there < seeds / 10:
            yield Line(what, "93 to 97 %", f"{there} unflagged", seeds, False, "too few results are unflagged to say more")
            continue
        part, slack = held / there, 4 * math.sqrt(0.05 * 0.95 / there)
        # Near the flags an interval may be wider than it needs be.
        low, high = 0.95 - max(0.02, slack), 0.95 + max(0.03, slack)
        told = f"{100 * part:.1f} % ({100 * ignoring / there:.0f} % ignoring the noise), {there} unflagged"
        reason = "results near their flag are the more uncertain ones, and those that look well are chosen"
        reason = WHOLE_BINS if "bins=" in text else reason
        yield Line(what, "93 to 97 %, 98 near a flag", told, seeds, low <= part <= high, reason)


def _flagged(found: Estimates) -> bool:
    """Is anything flagged but cells with hardly any record, such as that of the missing, of whom there are none here?"""
    return any(flag.code != "few" for flag in found.flags)


def errors_of_first_kind(seeds: int) -> Iterator[Line]:
    """Of chi-squared where rows and columns are independent."""
    workload = workload_of(POPULATION, "crosstab(group, yes)")
    rejected = 0
    for seed in range(seeds):
        rng = np.random.default_rng((SEED, 50, seed))
        records = draw(rng, 1000)
        records[:, 3] = rng.permutation(records[:, 3])
        found = noisy(workload, workload.of_records(records).mean(axis=0), 1.0, 1000, rng)
        rejected += found.tests["chi-squared"].p_value < 0.05
    part = rejected / seeds
    told = f"{100 * part:.1f} %"
    yield Line("chi-squared at 5 %, nothing there, 1,000 records, epsilon 1", "2.5 to 7 %", told, seeds, 0.025 <= part <= 0.07)


def log_rank(seeds: int) -> Iterator[Line]:
    """Of the log-rank test where both arms have the same hazard and the same censoring."""
    columns = Columns([Column(name="t", low=0, high=10), Column(name="e", boolean=True), Column(name="arm", levels=("a", "b"))])
    workload, count = workload_of(columns, "survival(t, e, by=arm, bins=20)"), 1000
    noise = noise_of(workload, 1.0, count)
    rejected, ignoring = 0, 0
    for seed in range(seeds):
        rng = np.random.default_rng((SEED, 51, seed))
        event, leaves = rng.exponential(8.0, count), rng.uniform(2.0, 14.0, count)
        time = np.minimum(np.minimum(event, leaves), 10.0)
        records = np.column_stack([time, (event <= leaves) & (event < 10), rng.random(count) < 0.5]).astype(np.float64)
        mean = workload.of_records(records).mean(axis=0) + noise * rng.standard_normal(workload.dimension)
        for said, assumed in ((True, noise), (False, 0.0)):
            test = workload.decode(mean, assumed, count)[0].estimates.tests.get("log-rank")
            wrong = test is not None and test.p_value < 0.05
            rejected, ignoring = rejected + (wrong and said), ignoring + (wrong and not said)
    part = rejected / seeds
    told = f"{100 * part:.1f} % ({100 * ignoring / seeds:.0f} % ignoring the noise)"
    yield Line("log-rank at 5 %, equal arms, 1,000 records, epsilon 1", "2.5 to 7 %", told, seeds, 0.025 <= part <= 0.07)


def fair(seeds: int) -> Iterator[Line]:
    """The area under the ROC curve of a risk score of Fair's survey, released once at epsilon 1."""
    from learning_tables import FAIR_COLUMNS
    from learning_tables import fair as survey
    from sklearn.metrics import roc_auc_score

    rows, labels = survey()
    bounds = [Column(name=name, low=low, high=high) for name, (low, high) in FAIR_COLUMNS.items()]
    workload = workload_of(
        Columns([*bounds, Column(name="affair", boolean=True)]), f"logistic-regression(affair ~ {' + '.join(FAIR_COLUMNS)})"
    )
    mean = workload.of_records(np.column_stack([rows, labels])).mean(axis=0)

    def area(found: Estimates) -> float:
        return float(roc_auc_score(labels, rows @ np.array(list(found.summary["ranking"].values()))))

    exact = area(workload.decode(mean, 0.0, float(len(rows)))[0].estimates)
    count = max(seeds // 40, 50)
    areas = [area(noisy(workload, mean, 1.0, float(len(rows)), np.random.default_rng((SEED, 61, seed)))) for seed in range(count)]
    middle, low = float(np.mean(areas)), float(np.quantile(areas, 0.05))
    told = f"mean {middle:.4f}, 5 % quantile {low:.4f} ({exact:.4f} without noise)"
    bar = "mean at least 0.739, 5 % quantile at least 0.733"
    yield Line(
        "AUC of one-shot logistic regression, fair, epsilon 1", bar, told, count, middle >= 0.739 and low >= 0.733, "noise"
    )


def another_library(seeds: int) -> Iterator[Line]:
    """Against OpenDP for one curator: its Gaussian, and its Laplace, which keeps epsilon without a delta.

    Ours is packed sharing with one colluding party, planned for one in ten gone.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain, distance = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)

    def gaussian(scale: float) -> dp.Measurement:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(domain, distance, scale=scale)), delta=DELTA)

    def study(text: str, epsilon: float) -> StudyTerms:
        cost = {"epsilon": epsilon, "delta": DELTA, "colluding": 1, "dropouts": 0.1, "unit": "record"}
        columns = [{"name": "x", "low": 0, "high": 1}, {"name": "yes", "boolean": True}]
        return StudyTerms.parse({**cost, "column": columns, "statistic": [read_text(text)]})

    # What a replaced record moves in absolute values, as a multiple of what it moves in squares.
    for text, absolute in (("histogram(x, bins=7)", math.sqrt(2)), ("proportion(yes)", math.sqrt(2)), ("mean(x)", 1.0)):
        for epsilon in (1.0, 5.0):
            ours = study(text, epsilon)
            protocol, size = ours.plan(20).protocol, ours.workload.sensitivity
            noise = math.sqrt(18 * cast(PackedSharing, protocol).party_variance) / size
            theirs = dp.binary_search_param(gaussian, d_in=1.0, d_out=(epsilon, DELTA))
            told = f"{noise:.2f} and {theirs:.2f}; its Laplace {math.sqrt(2) * absolute / epsilon:.2f}"
            what = f"noise over sensitivity, {text}, 18 of 20 parties, and OpenDP's Gaussian for one curator, epsilon {epsilon:g}"
            yield Line(what, "not more", told, 0, noise <= theirs, "nobody is trusted here, which has its price")


def clinics(seeds: int) -> Iterator[Line]:
    """The variance of the body mass index of 442 patients, at epsilon 2."""
    from sklearn.datasets import load_diabetes

    bmi = np.asarray(load_diabetes(scaled=False).data)[:, 2:3]
    for low, high, most in ((15, 45, 2.4), (10, 60, 7.6)):
        workload = workload_of(Columns([Column(name="bmi", low=low, high=high)]), "variance(bmi)")
        mean = workload.of_records(bmi).mean(axis=0)
        exact = workload.decode(mean, 0.0, 442.0)[0].estimates.value[0]
        found = [noisy(workload, mean, 2.0, 442.0, np.random.default_rng((SEED, low, seed))) for seed in range(seeds)]
        # Where noise hides the variance there is no estimate.
        scores = np.array([(one.value[0] - exact) / one.standard_error[0] for one in found if np.isfinite(one.value[0])])
        error = float(np.median([one.standard_error[0] for one in found]))
        told = f"z-scores {scores.std():.3f} of {len(scores)} estimates, standard error {error:.2f}"
        kept = 0.9 <= float(scores.std()) <= 1.1 and error <= most
        bar = f"z-scores 0.9 to 1.1, standard error at most {most}"
        what = f"variance of bmi, diabetes, bounds {low} to {high}, epsilon 2"
        reason = "there is no estimate where the noise makes the variance negative, which cuts the scores on one side"
        # 2.15 and 6.88 of columns that fill missing cells in.
        reason = "missing cells are told from others, which makes the noise 1.12 times as large" if error > most else reason
        yield Line(what, bar, told, seeds, kept, reason)


def heavy_tail(seeds: int) -> Iterator[Line]:
    """The variance of visits to doctors: bootstrap samples of 20 190 rows are the samples of that population."""
    from statsmodels.datasets import randhie

    visits = np.asarray(randhie.load_pandas().data["mdvis"], dtype=np.float64)[:, None]
    workload = workload_of(Columns([Column(name="visits", low=0, high=80)]), "variance(visits)")
    encoded, truth, held, normal = workload.of_records(visits), float(visits.var()), 0, 0
    for seed in range(seeds):
        rng = np.random.default_rng((SEED, 60, seed))
        mean = encoded[rng.integers(0, len(visits), len(visits))].mean(axis=0)
        found = noisy(workload, mean, 5.0, float(len(visits)), rng)
        ends = found.of_population
        held += ends is not None and bool(ends[0, 0] <= truth <= ends[0, 1])
        spread = math.sqrt(found.standard_error[0] ** 2 + 2 * found.value[0] ** 2 / len(visits))
        normal += bool(abs(found.value[0] - truth) <= 1.96 * spread)
    told = f"{100 * held / seeds:.1f} % (normal theory: {100 * normal / seeds:.0f} %)"
    reason = "skewed: the variance's own error is estimated from the same tail"
    yield Line("variance of visits, randhie, epsilon 5", "93 to 97 %", told, seeds, 0.93 <= held / seeds <= 0.97, reason)


def cells(seeds: int) -> Iterator[Line]:
    """The noise of ten bins against the least that any mechanism with Gaussian noise has: 2 (B - 1) / mu^2 in all."""
    workload = workload_of(Columns([Column(name="x", low=0, high=1)]), "histogram(x, bins=7)")
    mu = mu_of_budget(1.0, DELTA)
    noise = 1 * workload.sensitivity / mu
    spread = workload.decoder().released(np.zeros(workload.dimension), noise, 1.0).deviations
    bins = workload.dimension
    ratio = float(np.trace(spread)) / (2 * (bins - 1) / mu**2)
    told = f"{ratio:.4f} with {bins} cells, those below, above and missing among them"
    yield Line("noise of a histogram over the optimum", "at most 1.01", told, seeds, ratio <= 1.01)


def lung(seeds: int) -> Iterator[Line]:
    """Kaplan-Meier of 228 patients at epsilon 10: root mean squared error of the values that are shown, against exact times, and
    how much of the curve these are."""
    from lifelines import KaplanMeierFitter
    from lifelines.datasets import load_lung

    data = load_lung()
    records = np.column_stack([data["time"], data["status"]]).astype(np.float64)
    fitted = KaplanMeierFitter().fit(data["time"], data["status"])
    columns = Columns([Column(name="t", low=0, high=1080), Column(name="e", boolean=True)])
    for bins, most in ((18, 0.019), (12, 0.017), (9, 0.017)):
        workload = workload_of(columns, f"survival(t, e, bins={bins})")
        mean = workload.of_records(records).mean(axis=0)
        exact = fitted.predict(1080 * (np.arange(bins) + 1) / bins).to_numpy()
        # Quartiles are terms of their own, after the curve.
        values = np.array(
            [
                noisy(workload, mean, 10.0, 228.0, np.random.default_rng((SEED, 70, bins, seed))).value[:bins]
                for seed in range(seeds)
            ]
        )
        error, shown = math.sqrt(float(np.nanmean((values - exact) ** 2))), float(np.isfinite(values).mean())
        told = f"{error:.4f} over {percent_text(shown)} of the curve; the rest is hidden or cut"
        what = f"Kaplan-Meier, lung, epsilon 10, {bins} bins to day 1080, where it has a value"
        yield Line(what, f"RMSE at most {most}", told, seeds, error <= most)


def planned(seeds: int) -> Iterator[Line]:
    """Expected widths, true moments given, against the median of released ones."""
    guesses: dict[str, tuple[float, float]] = {"x": (0.0, math.sqrt(1.8)), "y": (0.15, math.sqrt(0.64 * 1.8 + 1 + 0.25 * 0.21))}
    guesses |= {"group": (0.7, 0.3), "yes": (0.64, 0.36)}
    columns = Columns([one.model_copy(update={"guess": guesses[one.name]}) for one in POPULATION])
    for place, text in enumerate(("mean(x)", "variance(x)", "histogram(x, bins=8)", "group-means(y, by=group)", "quantiles(x)")):
        workload, size = workload_of(columns, text), 20_000
        noise = noise_of(workload, 1.0, 1.0)
        (expected,) = Expectation(workload, noise, size).expected
        widths = []
        for seed in range(max(seeds // 10, 20)):
            rng = np.random.default_rng((SEED, 80, place, seed))
            found = noisy(workload, workload.of_records(draw(rng, size)).mean(axis=0), 1.0, size, rng)
            term = found.terms.index(expected.term)
            ends = found.of_noise
            widths.append(float(ends[term, 1] - ends[term, 0]))
        ratios = np.array(widths) / (sum(expected.noise) / 2)
        middle, within = float(np.median(ratios)), float(np.mean(np.abs(ratios - 1) <= 0.15))
        told = f"median {middle:.3f}, {100 * within:.0f} % within 15 %"
        kept = abs(middle - 1) <= 0.05 and within >= 0.9
        bar = "median within 5 %, 90 % within 15 %"
        reason = WHOLE_BINS if text.startswith("quantiles") else "the public table has another shape than the data"
        yield Line(f"planned width of the noise's interval, {text}", bar, told, len(widths), kept, reason)


def missing_cells(seeds: int) -> Iterator[Line]:
    """How far answers are from those of the complete records, where 40 % of one column are missing."""
    import exact_intervals as exact

    names = ("x", "y", "group", "yes", "years", "event")
    columns = Columns([*POPULATION, Column(name="years", low=0, high=12, whole=True), Column(name="event", boolean=True)])
    times = ("all 3", "all 12")

    def odds(rows: Array) -> exact.Intervals:
        a, b, c, d = (((rows[:, 2] == i) & (rows[:, 3] == j)).sum() for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)))
        return {"odds-ratio": (float(a * d / (b * c)), math.nan, math.nan)}

    def curve(time: Array, event: Array) -> exact.Intervals:
        return exact.survival(time, event, np.zeros(len(time)), ("all",), (3.0, 12.0))

    cases: tuple[tuple[str, str, tuple[str, ...], Callable[[Array], exact.Intervals]], ...] = (
        ("mean(x)", "x", ("",), lambda rows: exact.mean(rows[:, 0])),
        ("linear-regression(y ~ x)", "x", ("x",), lambda rows: exact.slope(rows[:, 0], rows[:, 1], "x")),
        ("correlation(x, y)", "x", ("x:y",), lambda rows: exact.correlation(rows[:, 0], rows[:, 1], "x:y")),
        ("crosstab(group, yes)", "group", ("odds-ratio",), odds),
        ("survival(years, event)", "years", times, lambda rows: curve(rows[:, 4], rows[:, 5])),
    )  # fmt: skip
    for text, gone, terms, reference in cases:
        workload, size = workload_of(columns, text), 2000
        farthest, told_n, count = 0.0, True, max(seeds // 10, 50)
        for seed in range(count):
            rng = np.random.default_rng((SEED, 90, seed))
            event, leaves = np.ceil(rng.exponential(9.0, size)), np.minimum(rng.integers(1, 20, size), 12)
            rows = np.column_stack([draw(rng, size), np.minimum(event, leaves), event <= leaves])
            rows[rng.random(size) < 0.4, names.index(gone)] = math.nan
            complete = rows[~np.isnan(rows).any(axis=1)]
            found = noisy(workload, workload.of_records(rows).mean(axis=0), 4.0, size, rng)
            known = found.completeness
            told_n &= known is not None and abs(known.present - len(complete)) <= 4.5 * known.present_error
            for term in terms:
                place = found.terms.index(term)
                distance = abs(found.value[place] - reference(complete)[term][0]) / found.standard_error[place]
                farthest = max(farthest, float(distance))
        what = f"{text}, 40 % of {gone} missing, 2,000 records, epsilon 4: standard errors of noise from the complete records"
        told = f"at most {farthest:.1f}, {'their number is told' if told_n else 'their number is not told'}"
        yield Line(what, "at most 4.5, their number told", told, count, farthest <= 4.5 and told_n, "")


@cache
def _populations() -> tuple[coverage_bars.Population, ...]:
    from coverage_populations import all_of_them

    return tuple(all_of_them())


PARTS: tuple[Callable[[int], Iterator[Line]], ...] = (
    cells, another_library, clinics, lung, fair, planned, errors_of_first_kind, log_rank, heavy_tail, coverage, missing_cells,
)  # fmt: skip


def _lines(place: int, seeds: int, folder: Path | None) -> str:
    """Those of a part, or after all of them of a population."""
    return resumed(folder, f"statistics-{place}-{seeds}", lambda: "".join(f"{line}\n" for line in _measured(place, seeds)))


def _measured(place: int, seeds: int) -> Iterator[object]:
    if place < len(PARTS):
        return PARTS[place](seeds)
    return coverage_bars.lines(iter((_populations()[place - len(PARTS)],)), max(seeds // 5, 100))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    add_options(parser)
    chosen = parser.parse_args()
    count = len(PARTS) + len(_populations())
    texts = all_lines(_lines, count, chosen.seeds, chosen.processes, chosen.resume)
    bars = "".join(texts[: len(PARTS)])
    coverages = "".join(f"{row}\n" for row in said_once("".join(texts[len(PARTS) :]).splitlines()))
    PAGE.write_text(f"{HEAD}{bars}{coverage_bars.HEAD}{coverages}{TAIL}{ending(PAGE.name)}", encoding="utf-8")


TAIL = """
Sensitivities are attacked by a search in `tests/property/test_statistic_sensitivity.py`; results without noise are compared
with well known libraries in `tests/property/test_statistic_kinds.py`.
"""

if __name__ == "__main__":
    main()
