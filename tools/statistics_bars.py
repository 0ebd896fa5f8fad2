"""Make docs/measurements/statistics-bars.md: what statistics are held to, each line measured with fixed seeds.

    python tools/statistics_bars.py [--seeds N] [--processes N] [--resume FOLDER]

Noise is Gaussian with sqrt(1.2) times one curator's standard deviation, at delta 1e-6, under replacement of a record. The data
are those of the extras ``demo`` and ``examples``. What falls short stands there with its reason.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import cast

import coverage_bars
import exact_intervals as exact
import numpy as np
from exact_intervals import Array
from held_intervals import DELTA, Held, decoded, noise_of, noisy, studies, workload_of
from page_figures import ending
from page_parts import DOCS, Line, add_options, all_lines, resumed, said_once

from quietmean.core.readable import percent_text
from quietmean.privacy import mu_of_budget
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.statistics import Column, Columns, Estimates, read_text
from quietmean.statistics.expectation import Expectation
from quietmean.studies import StudyTerms

PAGE = DOCS / "measurements/statistics-bars.md"
SEED = 20_190
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


def _levels(name: str, *levels: str) -> Column:
    return Column(name=name, levels=levels)


def _yes(name: str) -> Column:
    return Column(name=name, boolean=True)


POPULATION = Columns(
    [Column(name="x", low=-3, high=3), Column(name="y", low=-6, high=6), _levels("group", "a", "b"), _yes("yes")]
)


def draw(rng: np.random.Generator, count: int) -> Array:
    """x is beta(2, 2) on [-3, 3], y = 0.8 x + normal + 0.5 in group b (30 %), yes has 30 % and 50 %."""
    x = rng.beta(2, 2, count) * 6 - 3
    group = (rng.random(count) < 0.3).astype(float)
    yes = (rng.random(count) < np.where(group > 0, 0.5, 0.3)).astype(float)
    return np.column_stack([x, np.clip(0.8 * x + rng.normal(0, 1, count) + 0.5 * group, -6, 6), group, yes])


def generators(seeds: int, *key: int) -> Iterator[np.random.Generator]:
    return (np.random.default_rng((SEED, *key, seed)) for seed in range(seeds))


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
    """Bars of the intervals of the population at epsilon 1, over unflagged results."""
    for place in range(len(CASES)):
        yield from coverage_of(place, seeds)


def coverage_of(place: int, seeds: int) -> Iterator[Line]:
    """Bars of one of the cases."""
    text, term, truth = CASES[place]
    for size in SIZES:
        held, ignoring = Held(), 0
        for _, found in studies(workload_of(POPULATION, text), draw, size, 1.0, generators(seeds, place, size)):
            ends, error = found.of_population, found.population
            if ends is None or error is None or _flagged(found) or not np.isfinite(ends[term]).all():
                continue
            held.add(found, found.terms[term], truth, (math.nan, math.nan, math.nan))
            sampling = math.sqrt(max(error[term] ** 2 - found.standard_error[term] ** 2, 0.0))
            ignoring += bool(abs(found.value[term] - truth) <= 1.96 * sampling)
        what, there = f"coverage of {text}, {size:,} records, epsilon 1", held.studies
        if there < seeds / 10:
            yield Line(what, "93 to 97 %", f"{there} unflagged", False, "too few results are unflagged to say more", seeds)
            continue
        share, slack = held.population / there, 4 * math.sqrt(0.05 * 0.95 / there)
        # Near the flags an interval may be wider than it needs be.
        low, high = 0.95 - max(0.02, slack), 0.95 + max(0.03, slack)
        measured = f"{100 * share:.1f} % ({100 * ignoring / there:.0f} % ignoring the noise), {there} unflagged"
        reason = "results near their flag are the more uncertain ones, and those that look well are chosen"
        reason = WHOLE_BINS if "bins=" in text else reason
        yield Line(what, "93 to 97 %, 98 near a flag", measured, low <= share <= high, reason, seeds)


def _flagged(found: Estimates) -> bool:
    """Is anything flagged but cells with hardly any record, such as that of the missing, of whom there are none here?"""
    return any(flag.code != "few" for flag in found.flags)


def _rejections(what: str, rejected: int, seeds: int, more: str = "") -> Line:
    share = rejected / seeds
    return Line(what, "2.5 to 7 %", f"{100 * share:.1f} %{more}", 0.025 <= share <= 0.07, seeds=seeds)


def errors_of_first_kind(seeds: int) -> Iterator[Line]:
    """The bar of chi-squared where rows and columns are independent."""

    def independent(rng: np.random.Generator, count: int) -> Array:
        records = draw(rng, count)
        records[:, 3] = rng.permutation(records[:, 3])
        return records

    found = studies(workload_of(POPULATION, "crosstab(group, yes)"), independent, 1000, 1.0, generators(seeds, 50))
    rejected = sum(one.tests["chi-squared"].p_value < 0.05 for _, one in found)
    yield _rejections("chi-squared at 5 %, nothing there, 1,000 records, epsilon 1", rejected, seeds)


def log_rank(seeds: int) -> Iterator[Line]:
    """The bar of the log-rank test where both arms have the same hazard and the same censoring."""
    columns = Columns([Column(name="t", low=0, high=10), _yes("e"), _levels("arm", "a", "b")])
    workload, count = workload_of(columns, "survival(t, e, by=arm, bins=20)"), 1000
    noise, rejected = noise_of(workload, 1.0, count), [0, 0]
    for rng in generators(seeds, 51):
        event, leaves = rng.exponential(8.0, count), rng.uniform(2.0, 14.0, count)
        time = np.minimum(np.minimum(event, leaves), 10.0)
        records = np.column_stack([time, (event <= leaves) & (event < 10), rng.random(count) < 0.5]).astype(np.float64)
        mean = workload.of_records(records).mean(axis=0) + noise * rng.standard_normal(workload.dimension)
        for place, assumed in enumerate((noise, 0.0)):
            test = decoded(workload, mean, assumed, count).tests.get("log-rank")
            rejected[place] += test is not None and test.p_value < 0.05
    ignoring = f" ({100 * rejected[1] / seeds:.0f} % ignoring the noise)"
    yield _rejections("log-rank at 5 %, equal arms, 1,000 records, epsilon 1", rejected[0], seeds, ignoring)


def fair(seeds: int) -> Iterator[Line]:
    """The area under the ROC curve of a risk score of Fair's survey, released once at epsilon 1."""
    from learning_tables import FAIR_COLUMNS
    from learning_tables import fair as survey
    from sklearn.metrics import roc_auc_score

    rows, labels = survey()
    columns = Columns([*(Column(name=name, low=low, high=high) for name, (low, high) in FAIR_COLUMNS.items()), _yes("affair")])
    workload, records = workload_of(columns, f"logistic-regression(affair ~ {' + '.join(FAIR_COLUMNS)})"), float(len(rows))
    mean = workload.of_records(np.column_stack([rows, labels])).mean(axis=0)

    def area(found: Estimates) -> float:
        return float(roc_auc_score(labels, rows @ np.array(list(found.summary["ranking"].values()))))

    count = max(seeds // 40, 50)
    areas = [area(noisy(workload, mean, 1.0, records, rng)) for rng in generators(count, 61)]
    middle, low = float(np.mean(areas)), float(np.quantile(areas, 0.05))
    measured = f"mean {middle:.4f}, 5 % quantile {low:.4f} ({area(decoded(workload, mean, 0.0, records)):.4f} without noise)"
    what, bar = "AUC of one-shot logistic regression, fair, epsilon 1", "mean at least 0.739, 5 % quantile at least 0.733"
    yield Line(what, bar, measured, middle >= 0.739 and low >= 0.733, "noise", count)


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
            measured = f"{noise:.2f} and {theirs:.2f}; its Laplace {math.sqrt(2) * absolute / epsilon:.2f}"
            what = f"noise over sensitivity, {text}, 18 of 20 parties, and OpenDP's Gaussian for one curator, epsilon {epsilon:g}"
            yield Line(what, "not more", measured, noise <= theirs, "nobody is trusted here, which has its price", 0)


def clinics(seeds: int) -> Iterator[Line]:
    """The variance of the body mass index of 442 patients, at epsilon 2."""
    from sklearn.datasets import load_diabetes

    bmi = np.asarray(load_diabetes(scaled=False).data)[:, 2:3]
    for low, high, most in ((15, 45, 2.4), (10, 60, 7.6)):
        workload = workload_of(Columns([Column(name="bmi", low=low, high=high)]), "variance(bmi)")
        mean = workload.of_records(bmi).mean(axis=0)
        exactly = decoded(workload, mean, 0.0, 442.0).value[0]
        found = [noisy(workload, mean, 2.0, 442.0, rng) for rng in generators(seeds, low)]
        # Where noise hides the variance it is not estimated.
        scores = np.array([(one.value[0] - exactly) / one.standard_error[0] for one in found if np.isfinite(one.value[0])])
        error = float(np.median([one.standard_error[0] for one in found]))
        measured = f"z-scores {scores.std():.3f} of {len(scores)} estimates, standard error {error:.2f}"
        kept = 0.9 <= float(scores.std()) <= 1.1 and error <= most
        bar = f"z-scores 0.9 to 1.1, standard error at most {most}"
        what = f"variance of bmi, diabetes, bounds {low} to {high}, epsilon 2"
        reason = "there is no estimate where the noise makes the variance negative, which cuts the scores on one side"
        # 2.15 and 6.88 of columns that fill missing cells in.
        reason = "missing cells are told from others, which makes the noise 1.12 times as large" if error > most else reason
        yield Line(what, bar, measured, kept, reason, seeds)


def heavy_tail(seeds: int) -> Iterator[Line]:
    """The variance of visits to doctors: bootstrap samples of 20 190 rows are the samples of that population."""
    from statsmodels.datasets import randhie

    visits = np.asarray(randhie.load_pandas().data["mdvis"], dtype=np.float64)[:, None]
    workload = workload_of(Columns([Column(name="visits", low=0, high=80)]), "variance(visits)")
    truth, size, held, normal = float(visits.var()), len(visits), 0, 0
    for _, found in studies(workload, visits, size, 5.0, generators(seeds, 60)):
        ends = found.of_population
        held += ends is not None and bool(ends[0, 0] <= truth <= ends[0, 1])
        spread = math.sqrt(found.standard_error[0] ** 2 + 2 * found.value[0] ** 2 / size)
        normal += bool(abs(found.value[0] - truth) <= 1.96 * spread)
    measured = f"{100 * held / seeds:.1f} % (normal theory: {100 * normal / seeds:.0f} %)"
    reason = "skewed: the variance's own error is estimated from the same tail"
    kept = 0.93 <= held / seeds <= 0.97
    yield Line("variance of visits, randhie, epsilon 5", "93 to 97 %", measured, kept, reason, seeds)


def cells(seeds: int) -> Iterator[Line]:
    """The noise of ten bins against the least that any mechanism with Gaussian noise has: 2 (B - 1) / mu^2 in all."""
    workload = workload_of(Columns([Column(name="x", low=0, high=1)]), "histogram(x, bins=7)")
    mu, bins = mu_of_budget(1.0, DELTA), workload.dimension
    released, every = workload.decoder().released(np.zeros(bins), workload.sensitivity / mu, 1.0), np.arange(bins)
    ratio = float(np.trace(released.covariance_at(every, every))) / (2 * (bins - 1) / mu**2)
    measured = f"{ratio:.4f} with {bins} cells, those below, above and missing among them"
    yield Line("noise of a histogram over the optimum", "at most 1.01", measured, ratio <= 1.01, seeds=seeds)


def lung(seeds: int) -> Iterator[Line]:
    """Kaplan-Meier of 228 patients at epsilon 10: root mean squared error of the values that are shown, against exact times, and
    how much of the curve these are."""
    from lifelines import KaplanMeierFitter
    from lifelines.datasets import load_lung

    data = load_lung()
    records = np.column_stack([data["time"], data["status"]]).astype(np.float64)
    fitted = KaplanMeierFitter().fit(data["time"], data["status"])
    columns = Columns([Column(name="t", low=0, high=1080), _yes("e")])
    for bins, most in ((18, 0.019), (12, 0.017), (9, 0.017)):
        workload = workload_of(columns, f"survival(t, e, bins={bins})")
        mean = workload.of_records(records).mean(axis=0)
        exactly = fitted.predict(1080 * (np.arange(bins) + 1) / bins).to_numpy()
        # Quartiles are terms of their own, after the curve.
        values = np.array([noisy(workload, mean, 10.0, 228.0, rng).value[:bins] for rng in generators(seeds, 70, bins)])
        error, shown = math.sqrt(float(np.nanmean((values - exactly) ** 2))), float(np.isfinite(values).mean())
        measured = f"{error:.4f} over {percent_text(shown)} of the curve; the rest is hidden or cut"
        what = f"Kaplan-Meier, lung, epsilon 10, {bins} bins to day 1080, where it has a value"
        yield Line(what, f"RMSE at most {most}", measured, error <= most, seeds=seeds)


def planned(seeds: int) -> Iterator[Line]:
    """Expected widths, true moments given, against the median of released ones."""
    guesses: dict[str, tuple[float, float]] = {"x": (0.0, math.sqrt(1.8)), "y": (0.15, math.sqrt(0.64 * 1.8 + 1 + 0.25 * 0.21))}
    guesses |= {"group": (0.7, 0.3), "yes": (0.64, 0.36)}
    columns = Columns([one.model_copy(update={"guess": guesses[one.name]}) for one in POPULATION])
    for place, text in enumerate(("mean(x)", "variance(x)", "histogram(x, bins=8)", "group-means(y, by=group)", "quantiles(x)")):
        workload, size = workload_of(columns, text), 20_000
        (expected,) = Expectation(workload, noise_of(workload, 1.0, 1.0), size).expected
        widths = []
        for _, found in studies(workload, draw, size, 1.0, generators(max(seeds // 10, 20), 80, place)):
            low, high = found.of_noise[found.terms.index(expected.term)].tolist()
            widths.append(high - low)
        ratios = np.array(widths) / (sum(expected.noise) / 2)
        middle, within = float(np.median(ratios)), float(np.mean(np.abs(ratios - 1) <= 0.15))
        measured = f"median {middle:.3f}, {100 * within:.0f} % within 15 %"
        kept = abs(middle - 1) <= 0.05 and within >= 0.9
        what, bar = f"planned width of the noise's interval, {text}", "median within 5 %, 90 % within 15 %"
        reason = WHOLE_BINS if text.startswith("quantiles") else "the public table has another shape than the data"
        yield Line(what, bar, measured, kept, reason, len(widths))


def _odds(a: Array, b: Array) -> exact.Intervals:
    counts = [((a == i) & (b == j)).sum() for i, j in ((0, 0), (1, 1), (0, 1), (1, 0))]
    return {"odds-ratio": (float(counts[0] * counts[1] / (counts[2] * counts[3])), math.nan, math.nan)}


def missing_cells(seeds: int) -> Iterator[Line]:
    """How far answers are from those of the complete records, where 40 % of one column are missing."""
    columns = Columns([*POPULATION, Column(name="years", low=0, high=12, whole=True), _yes("event")])
    curve = partial(exact.one_survival, edges=(3.0, 12.0))
    cases: tuple[tuple[str, str, tuple[str, ...], Callable[..., exact.Intervals], slice], ...] = (
        ("mean(x)", "x", ("",), exact.mean, slice(0, 1)),
        ("linear-regression(y ~ x)", "x", ("x",), partial(exact.slope, term="x"), slice(0, 2)),
        ("correlation(x, y)", "x", ("x:y",), partial(exact.correlation, term="x:y"), slice(0, 2)),
        ("crosstab(group, yes)", "group", ("odds-ratio",), _odds, slice(2, 4)),
        ("survival(years, event)", "years", ("all 3", "all 12"), curve, slice(4, 6)),
    )

    def drawn(rng: np.random.Generator, size: int) -> Array:
        event, leaves = np.ceil(rng.exponential(9.0, size)), np.minimum(rng.integers(1, 20, size), 12)
        rows = np.column_stack([draw(rng, size), np.minimum(event, leaves), event <= leaves])
        rows[rng.random(size) < 0.4, columns.names.index(gone)] = math.nan
        return rows

    for text, gone, terms, reference, used in cases:
        farthest, number_known, count = 0.0, True, max(seeds // 10, 50)
        for rows, found in studies(workload_of(columns, text), drawn, 2000, 4.0, generators(count, 90)):
            complete, known = rows[~np.isnan(rows).any(axis=1)], found.completeness
            number_known &= known is not None and abs(known.present - len(complete)) <= 4.5 * known.present_error
            exactly = reference(*complete.T[used])
            for term in terms:
                place = found.terms.index(term)
                farthest = max(farthest, float(abs(found.value[place] - exactly[term][0]) / found.standard_error[place]))
        what = f"{text}, 40 % of {gone} missing, 2,000 records, epsilon 4: standard errors of noise from the complete records"
        measured = f"at most {farthest:.1f}, {'their number is told' if number_known else 'their number is not told'}"
        yield Line(what, "at most 4.5, their number told", measured, farthest <= 4.5 and number_known, seeds=count)


@cache
def _populations() -> tuple[coverage_bars.Population, ...]:
    from coverage_populations import all_of_them

    return tuple(all_of_them())


PARTS: tuple[Callable[[int], Iterator[Line]], ...] = (
    cells, another_library, clinics, lung, fair, planned, errors_of_first_kind, log_rank, heavy_tail, coverage, missing_cells,
)  # fmt: skip


def _lines(place: int, seeds: int, folder: Path | None) -> str:
    """The lines of a part, or after all of them of a population."""
    return resumed(folder, f"statistics-{place}-{seeds}", lambda: "".join(f"{line}\n" for line in _measured(place, seeds)))


def _measured(place: int, seeds: int) -> Iterator[object]:
    if place < len(PARTS):
        return PARTS[place](seeds)
    return coverage_bars.lines(_populations()[place - len(PARTS)], max(seeds // 5, 100))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    add_options(parser)
    chosen = parser.parse_args()
    count = len(PARTS) + len(_populations())
    texts = all_lines(_lines, count, chosen.seeds, chosen.processes, chosen.resume)
    bars = "".join(texts[: len(PARTS)])
    coverages = "".join(f"{row}\n" for row in said_once("".join(texts[len(PARTS) :]).splitlines()))
    PAGE.write_text(f"{HEAD}{bars}{coverage_bars.HEAD}{coverages}{TAIL}{ending(f'measurements/{PAGE.name}')}", encoding="utf-8")


TAIL = """
Sensitivities are attacked by a search in `tests/property/test_statistic_sensitivity.py`; results without noise are compared
with well known libraries in `tests/property/test_statistic_kinds.py`.
"""

if __name__ == "__main__":
    main()
