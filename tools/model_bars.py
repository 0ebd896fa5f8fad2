"""Writes ``docs/model-bars.md``: what intervals and tests of models by rounds, of agreement, ranks and strata hold.

    python tools/model_bars.py [--runs 50] [--tests 400] [--cases 100]

Rounds are simulated: exact means of the records' vectors with noise as a session of parties plans it, one in ten of whom may
collude. What the rounds give without noise, tests hold against statsmodels and lifelines.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from coverage_bars import proportion_interval
from model_bar_cases import CASES, Case, Draw
from numpy.typing import NDArray
from page_figures import ending
from table_rows import said_once

from quietmean.core.domain import PrivacyUnit
from quietmean.learning import GeneralizedLinearModel, LogisticRegression, ProportionalHazards
from quietmean.learning.models.answers import Fit
from quietmean.learning.models.model import ModelByRounds
from quietmean.privacy import mu_of_budget
from quietmean.sessions import RoundMean
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text

Array = NDArray[np.float64]

PAGE = Path(__file__).parents[1] / "docs" / "model-bars.md"
DELTA, SEED, RUNS, TESTS, STUDIES = 1e-6, 20_737, 50, 400, 100
SIZES, EPSILONS = (500, 2000, 10_000), (1.0, 4.0)
# Lines of more studies, by model, records and epsilon: 50 of this one held 85 to 95 %.
MORE = {("logistic, fits", 2000, 4.0): 500}
# Of one trusted curator's variance, as a session of parties of whom one in ten may collude has it.
_NOISE = 1.2
# Records that the truth is taken from where the model does not fit, in parts, and rounds without noise.
_POPULATION, _PARTS, _EXACT_ROUNDS = 200_000, 10, 8

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
# A flag that is counted in words.
IN_WORDS = "separated"
# The test of a term itself.
OF_TERM = "term"


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


def _glm(outcome: str, family: str, residual: float | None) -> Callable[[float], ModelByRounds]:
    formula = f"{outcome} ~ {TERMS}"
    return lambda epsilon: GeneralizedLinearModel(
        formula, COLUMNS, family=family, residual=residual, epsilon=epsilon, delta=DELTA
    )


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
        ("logistic", _glm("ill", "binomial", None), (0.0, 0.0)),
        ("Poisson", _glm("visits", "poisson", 8.0), (0.0, 0.0)),
        ("negative binomial", _glm("visits", "negative-binomial", 8.0), (1.0, 0.4)),
        ("Gamma", _glm("cost", "gamma", 6.0), (0.0, 0.0)),
        ("grouped hazards", _hazards, (0.0, 0.0)),
    )
    for fits in (True, False)
]
QUESTIONS += [
    Question(f"`LogisticRegression(solver='newton')`, {what}", _by_estimator, _numbers(drawn(fits)), "x2")
    for what, fits in (("fits", True), ("does not fit", False))
]


def fitted(model: ModelByRounds, parts: list[Array], noise: float, rng: np.random.Generator, rounds: int) -> Fit:
    """After so many rounds, with so much noise in each coordinate of a mean."""
    design = model._design_for(1)
    newton = model._newton(design)
    rows, records = [model._rows(design, part, 0) for part in parts], sum(map(len, parts))
    for number in range(rounds):
        mean = sum(newton.vectors(one).sum(axis=0) for one in rows) / records
        released = SimpleNamespace(
            round=number + 1,
            mean=mean + noise * rng.standard_normal(newton.dimension),
            standard_error=noise,
            execution=SimpleNamespace(counted_weight=lambda: float(records)),
        )
        newton.move(cast(RoundMean[Any], released))
    return model.fit_of(design, newton)


def noise_of(model: ModelByRounds, n: int, epsilon: float) -> float:
    return math.sqrt(_NOISE) * 2 * math.sqrt(model.rounds) / mu_of_budget(epsilon, DELTA) / n


def truth_of(question: Question) -> tuple[Array, Array]:
    """What the model says of very many records, and the errors that one of them would have."""
    rng, model = np.random.default_rng(SEED), question.model(1.0)
    parts = [question.draw(rng, _POPULATION // _PARTS) for _ in range(_PARTS)]
    model.rounds = _EXACT_ROUNDS
    answer = fitted(model, parts, 0.0, rng, _EXACT_ROUNDS).coefficients
    return answer.value, np.asarray(answer.population, dtype=np.float64) * math.sqrt(_POPULATION)


@dataclass
class Held:
    """What came of so many studies, over all terms but those of the baseline."""

    terms: int = 0
    known: int = 0
    held: int = 0
    tested: int = 0
    rejected: int = 0
    flags: Counter[str] = field(default_factory=Counter)
    widths: list[float] = field(default_factory=list)


def measured(question: Question, n: int, epsilon: float, runs: int, truth: tuple[Array, Array]) -> Held:
    rng, model, held = np.random.default_rng([SEED, n, int(epsilon)]), question.model(epsilon), Held()
    noise = noise_of(model, n, epsilon)
    for _ in range(runs):
        answer = fitted(model, [question.draw(rng, n)], noise, rng, model.rounds).coefficients
        intervals, errors = np.asarray(answer.of_population), np.asarray(answer.population)
        held.flags.update({flag.code for flag in answer.flags} - {IN_WORDS})
        unsettled = {term for flag in answer.flags if flag.code == "not-settled" for term in flag.terms}
        for term in answer.headline:
            place = answer.terms.index(term)
            held.terms += 1
            if term in unsettled or not math.isfinite(float(answer.value[place])):
                continue
            low, high = intervals[place].tolist()
            held.known += 1
            held.held += low <= truth[0][place] <= high
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


def models(runs: int) -> Iterator[str]:
    for question in QUESTIONS:
        truth = truth_of(question)
        for epsilon in EPSILONS:
            for n in SIZES:
                studies = MORE.get((question.what, n, epsilon), runs)
                held = measured(question, n, epsilon, studies, truth)
                flags = ", ".join(f"{code} {100 * count / studies:.0f}" for code, count in held.flags.most_common(3))
                width = f"{np.median(held.widths):.2f}" if held.widths else "-"
                cells = [question.what, f"{n:,}", f"{epsilon:g}", part(held.held, held.known), part(held.rejected, held.tested)]
                cells += [width, f"{100 * (1 - held.known / held.terms):.0f}", flags]
                yield f"| {' | '.join(cells)} |"


# -- tests of one exchange -------------------------------------------------------------------------------------------------------

LEVELS = Columns(
    [
        Column(name="first", boolean=True),
        Column(name="second", boolean=True),
        Column(name="group", levels=tuple("ABCD")),
        Column(name="x", low=-4, high=4),
        Column(name="y", low=-4, high=4),
    ]
)


@dataclass(frozen=True)
class Level:
    """A statistic of records of which its null hypothesis is true, and the true value of a term."""

    text: str
    term: str
    truth: float
    test: str


LEVEL_QUESTIONS = (
    Level("kappa(first, second)", "kappa", 0.0, "kappa"),
    Level("mcnemar(first, second)", "difference", 0.0, "mcnemar"),
    Level("trend(first, by=group)", "slope", 0.0, "trend"),
    Level("mantel-haenszel(first, second, by=group)", "odds-ratio", 1.0, "mantel-haenszel"),
    Level("spearman(x, y)", "", 0.0, "spearman"),
    Level("paired-difference(x, y)", "difference", 0.0, "paired-t"),
    Level("icc(x, y)", "agreement", 0.0, ""),
)


def unrelated(rng: np.random.Generator, n: int) -> Array:
    """Columns of which none goes with another."""
    both = rng.random((n, 2)) < 0.3
    return np.column_stack([both, rng.integers(0, 4, n), np.clip(rng.standard_normal((n, 2)), -4, 4)]).astype(np.float64)


def levels(studies: int) -> Iterator[str]:
    for asked in LEVEL_QUESTIONS:
        workload = Workload(LEVELS, (parse_statistic(read_text(asked.text)),), PrivacyUnit.RECORD)
        for epsilon in EPSILONS:
            for n in SIZES:
                cells = _studied(workload, unrelated, asked.term, asked.truth, asked.test, n, epsilon, studies)
                yield f"| {' | '.join([f'`{asked.text}` {asked.term}'.strip(), f'{n:,}', f'{epsilon:g}', *cells])} |"


def _studied(
    workload: Workload, draw: Draw, term: str, truth: float, test: str, n: int, epsilon: float, studies: int
) -> list[str]:
    """Coverage of a term, type I of a test, and how many studies are without the term and with any flag."""
    rng, noise = np.random.default_rng([SEED, n, int(epsilon)]), math.sqrt(_NOISE) * workload.sensitivity
    noise /= mu_of_budget(epsilon, DELTA) * n
    known = held = tested = rejected = flagged = 0
    for _ in range(studies):
        mean = workload.encode(draw(rng, n)).vector / n
        answer = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, float(n))[0].estimates
        place = answer.terms.index(term) if term in answer.terms else -1
        flagged += any(flag.code != "sites-seen" for flag in answer.flags)
        p_value = math.nan
        if test == OF_TERM and answer.p_value is not None:
            p_value = float(answer.p_value[place])
        elif test in answer.tests:
            p_value = answer.tests[test].p_value
        tested += not math.isnan(p_value)
        rejected += p_value < 0.05
        if place >= 0 and math.isfinite(answer.value[place]) and answer.of_population is not None:
            known += 1
            held += bool(answer.of_population[place, 0] <= truth <= answer.of_population[place, 1])
    unknown = 1 - (known if term in answer.terms else tested) / studies
    return [
        part(held, known),
        part(rejected, studies) if tested >= 20 else "-",
        f"{100 * unknown:.0f}",
        f"{100 * flagged / studies:.0f}",
    ]


def cases(studies: int) -> Iterator[str]:
    for case in CASES:
        workload, truth = case.workload, case.true_value() if case.term or case.truth is not None else math.nan
        for epsilon in EPSILONS:
            for n in SIZES:
                cells = _studied(workload, case.draw, case.term, truth, case.test, n, epsilon, studies)
                yield f"| {' | '.join([case_text(case), case.data, f'{n:,}', f'{epsilon:g}', *cells])} |"


def case_text(case: Case) -> str:
    return f"`{case.text}` {case.term or case.test}".strip()


HEAD = """# Intervals and tests of models, agreement, ranks and strata

Made by `python tools/model_bars.py`. Nominal levels are 95 % of intervals and 5 % of tests; what was measured stands beside them,
by number of records and epsilon, at $\\delta = 10^{-6}$ of one record, with $\\sqrt{1.2}$ times one trusted curator's noise.

## Models by rounds
"""

MODELS = """
Each line is {runs} studies ({more} of 2,000 records at epsilon 4 for which logistic regression fits) of made-up patients: age,
arm, a stage of three, and a number that goes with nothing; six rounds.
*Fits*: the model is right. *Does not fit*: effects that grow with the square of age and differ by arm, counts and costs whose
variance is far above the family's, survival curves that cross; the truth is then what the model says of 200,000 records,
whose own error takes up to half a point of the coverage at 10,000.

*Population*: intervals that hold the truth, of all terms with an estimate, in percent, with the 99 % interval of this, as if
terms were independent. *Type I*: p-values below 5 % of the number that goes with nothing, where at least 20 studies have one.
*Width*: the standard error over that of pooled data, the median. *Unknown*: terms in percent that noise hides, or that have
the flag `not-settled`. *Flags*: percent of the studies, but for `separated`, whose terms are counted as all others are. Of 12
studies of 500, 2,000 and 10,000 records of models that fit, that flag is in 12, 0 and 0 (logistic), 10, 9 and 0 (Poisson), 8, 12
and 1 (negative binomial), 10, 1 and 0 (Gamma), and 9, 7 and 0 (hazards) at epsilon 1, where noise hides much; at epsilon 4 in 0,
8, 11, 5 and 9 of 500 records, in 1 of hazards of 2,000, and in no other.

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--tests", type=int, default=TESTS)
    parser.add_argument("--cases", type=int, default=STUDIES)
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args()
    text, parts = HEAD, [(MODELS.format(runs=asked.runs, more=max(MORE.values())), models(asked.runs))]
    parts.append((TEST_HEAD.format(tests=asked.tests), levels(asked.tests)))
    parts.append((CASE_HEAD.format(cases=asked.cases), cases(asked.cases)))
    for head, lines in parts:
        text += head
        for line in said_once(lines, 2 if "| data |" in head else 1):
            print(line, flush=True)
            text += line + "\n"
    asked.page.write_text(text + ending("model-bars.md"), encoding="utf-8")


if __name__ == "__main__":
    main()
