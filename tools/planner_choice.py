"""How often the plan names what is better, of drawn studies: by errors of executions that are simulated.

Of noise it is Gaussian or Laplace; of regressions one release or rounds.

Each study is drawn from its seed: parties, colluding and dropouts, epsilon, delta, protocol and questions. Planned are both kinds
of noise; the one that a plan's sentence calls smaller is right if its simulated error, of the noise in all coordinates, is
smaller too. Errors that differ by less than their own sampling errors decide nothing: these are ties, counted as neither.

Of a regression the error is that of its first term from that of a large population, with sampling: the mean of how far off
executions are, of which one that is hidden is as far off as a guess. Records are normal within bounds of 3 to 30 standard
deviations, whose spread the study states, and effects are not stated in one study of two.

    python tools/planner_choice.py [STUDIES] [SEED]
    python tools/planner_choice.py --regressions [STUDIES] [SEED]
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.lazy import fitted_instead
from quietmean.graphs import ExecutionTrace
from quietmean.planning.plan import Plan
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.scenario import ROWS
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.one_or_rounds import OneOrRounds, WholeError, as_guessed

LEVELS = {name: [f"{name}{number}" for number in range(count)] for name, count in (("a", 2), ("b", 3), ("c", 8), ("d", 20))}
COLUMNS: list[dict[str, Any]] = [
    *({"name": name, "levels": levels} for name, levels in LEVELS.items()),
    {"name": "x", "low": 0, "high": 100},
    {"name": "y", "low": -5, "high": 5},
]
QUESTIONS: list[dict[str, Any]] = [
    {"kind": "count", "where": "x >= 50"},
    *({"kind": "proportion", "column": name} for name in LEVELS),
    *({"kind": "crosstab", "row": one, "column": other} for one, other in ("ab", "ac", "cd", "bd")),
    *({"kind": "mean", "column": name} for name in "xy"),
    {"kind": "histogram", "column": "x", "bins": 12},
    {"kind": "group-means", "column": "y", "by": "b"},
]
PROTOCOLS = ("packed-sharing", "secagg", "central-dp")
# Coordinates that are simulated, at least: their variance is then known to 2 or 3 %.
_NUMBERS = 4_000


@dataclass(frozen=True)
class Found:
    """Of a study: errors in all coordinates under Gaussian and Laplace noise, as planned and as simulated."""

    planned: tuple[float, float]
    simulated: tuple[float, float]

    @property
    def tied(self) -> bool:
        """Are both errors the same, but for chance? Three standard errors of a variance of so many numbers, both."""
        return abs(math.log(self.simulated[0] / self.simulated[1])) < 3 * math.sqrt(3 / _NUMBERS)

    @property
    def right(self) -> bool:
        """Has the noise that the plan calls smaller the smaller error?"""
        return (self.planned[0] < self.planned[1]) == (self.simulated[0] < self.simulated[1])


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    """The fields of a study."""
    questions = rng.permutation(len(QUESTIONS))[: int(rng.integers(1, 7))]
    return {
        "name": "s",
        "protocol": str(rng.choice(PROTOCOLS)),
        "epsilon": float(np.round(np.exp(rng.uniform(np.log(0.1), np.log(8))), 2)),
        "delta": float(rng.choice([1e-5, 1e-6, 1e-8])),
        "colluding": int(rng.integers(1, 4)),
        "dropouts": float(rng.choice([0.0, 0.05, 0.1])),
        "column": COLUMNS,
        "statistic": [QUESTIONS[place] for place in questions],
    }


def error_of(plan: Plan, seed: int) -> float:
    """The root mean squared error of the sum in an execution with noise alone, all coordinates alike."""
    parties, dimension = plan.target.parties, plan.target.dimension
    execution = plan.execution(
        Seed.public("choice", seed), ExecutionTrace.everyone(plan.protocol.rounds, parties), np.ones(parties)
    )
    values = np.zeros((parties, dimension))
    runs = max(math.ceil(_NUMBERS / dimension), 1)
    sums = [execution.run_batch(values, InsecurePopulationNoise(seed + run, parties)) for run in range(runs)]
    errors = np.concatenate([execution.estimate(one) for one in sums])
    return float(np.sqrt(np.mean(errors**2)))


def found(seed: int) -> Found | None:
    """What a drawn study says; None where one kind of noise cannot be had, or the other option is the same."""
    fields, plans = drawn(np.random.default_rng((20_701, seed))), []
    for options in ({}, {"noise": "laplace"}):
        try:
            plan = StudyTerms.parse({**fields, "options": options}).plan(int(np.random.default_rng(seed).integers(6, 31)))
        except InputError:
            return None
        plans.append(plan)
    planned = [math.sqrt(float(plan.prediction["mse_noise"])) for plan in plans]
    simulated = [error_of(plan, 1000 * seed) for plan in plans]
    return Found((planned[0], planned[1]), (simulated[0], simulated[1]))


# Executions of a regression, the records of a population, the fewest of a study, and the most.
_EXECUTIONS, _POPULATION, _FEWEST, _MOST = 60, 100_000, 1000, 10_000


@dataclass(frozen=True)
class Regressed:
    """A drawn regression: its study with the ``formula``, the ``records`` of each of them, and whose they are."""

    fields: dict[str, Any]
    formula: str
    records: int
    parties: int
    population: Array

    @property
    def is_logistic(self) -> bool:
        return str(self.fields["statistic"][0]["kind"]) == "logistic-regression"


def drawn_regression(seed: int) -> Regressed:
    """A regression of up to three numbers and a level, with bounds of 3 to 30 standard deviations."""
    rng = np.random.default_rng((20_711, seed))
    logistic, covariates = bool(rng.integers(2)), int(rng.integers(1, 4))
    columns, values, effect, stated = list[dict[str, Any]](), list[Array](), np.zeros(_POPULATION), dict[str, float]()

    def number(name: str, at: Array | None = None) -> Array:
        spread, width = float(np.exp(rng.uniform(-2, 4))), float(np.exp(rng.uniform(np.log(3), np.log(30))))
        low = -spread * width * rng.uniform(0.35, 0.65)
        value = spread * (rng.standard_normal(_POPULATION) if at is None else at)
        columns.append({"name": name, "low": low, "high": low + spread * width, "guess": [0.0, spread]})
        return np.clip(value, low, low + spread * width)

    for place in range(covariates):
        own = float(rng.uniform(-0.6, 0.6)) / math.sqrt(covariates)
        if rng.random() < 0.3:
            columns.append({"name": f"x{place}", "levels": ["a", "b"]})
            value = rng.integers(0, 2, _POPULATION).astype(float)
            effect += own * (2 * value - 1)
            stated[f"x{place}"] = 2 * own
        else:
            value = number(f"x{place}")
            spread = columns[-1]["guess"][1]
            effect += own * value / spread
            stated[f"x{place}"] = own / spread
        values.append(value)
    if logistic:
        part = float(rng.uniform(0.1, 0.5))
        columns.append({"name": "y", "boolean": True, "guess": [1 - part, part]})
        constant = float(np.log(part / (1 - part)))
        outcome = (rng.random(_POPULATION) < 1 / (1 + np.exp(-constant - effect))).astype(float)
    else:
        rest = math.sqrt(max(1 - float(effect.var()), 0.1))
        outcome = number("y", effect + rest * rng.standard_normal(_POPULATION))
        stated = {name: own * columns[-1]["guess"][1] for name, own in stated.items()}
    formula = f"y ~ {' + '.join(f'x{place}' for place in range(covariates))}"
    kind = "logistic-regression" if logistic else "linear-regression"
    expect = {"expect": stated} if rng.integers(2) else {}
    fields = {
        "name": "s",
        "epsilon": float(np.round(np.exp(rng.uniform(np.log(0.5), np.log(8))), 2)),
        "delta": 1e-6,
        "protocol": str(rng.choice(PROTOCOLS)),
        "column": columns,
        "statistic": [{"kind": kind, "formula": formula, **expect}],
    }
    records = int(np.exp(rng.uniform(np.log(_FEWEST), np.log(_MOST))))
    return Regressed(fields, formula, records, int(rng.integers(6, 31)), np.column_stack([*values, outcome]))


def of_population(one: Regressed) -> Array:
    """Least squares, or maximum likelihood, of the population: the constant and a coefficient for each covariate."""
    design, outcome = np.column_stack([np.ones(_POPULATION), one.population[:, :-1]]), one.population[:, -1]
    if not one.is_logistic:
        return np.asarray(np.linalg.lstsq(design, outcome, rcond=None)[0])
    scale = design.std(axis=0) + (design.std(axis=0) == 0)
    design, found = design / scale, np.zeros(design.shape[1])
    for _ in range(30):
        part = 1 / (1 + np.exp(-design @ found))
        found += np.linalg.solve((design * (part * (1 - part))[:, None]).T @ design, design.T @ (outcome - part))
    return np.asarray(found / scale)


@dataclass(frozen=True)
class FoundRegression:
    """What a plan says of a drawn regression by one release and by rounds, and the errors of both that are simulated.

    ``sampling``: the standard error of the logarithm of their ratio.
    """

    choice: OneOrRounds
    simulated: tuple[WholeError, WholeError]
    sampling: float

    @property
    def tied(self) -> bool:
        """Are both errors the same, to 10 % and two standard errors of their ratio?"""
        return abs(math.log(self.ratio)) <= max(math.log(1.1), 2 * self.sampling)

    @property
    def hidden(self) -> bool:
        """Does noise hide most answers in both ways?"""
        return all(error.hidden for error in self.simulated)

    @property
    def ratio(self) -> float:
        """The simulated error of one release over that of rounds."""
        return self.simulated[0].size / self.simulated[1].size

    @property
    def right(self) -> bool:
        """Has the way that the plan calls the smaller the smaller error?"""
        one, rounds = self.choice.errors
        return (one.size < rounds.size) == (self.ratio < 1)

    @property
    def named(self) -> bool:
        """Does the plan name one of both as better?"""
        return bool(self.choice.better)


def found_regression(seed: int) -> FoundRegression | None:
    """What the plan and the executions of a drawn regression say; None where only one of both can be asked."""
    one = drawn_regression(seed)
    terms = StudyTerms.parse(one.fields)
    forecast = Forecast(terms, terms.plan(one.parties), float(one.records))
    if not forecast.choices:
        return None
    (choice,), (statistic,) = forecast.choices, terms.workload.statistics
    expectation, rng = forecast.expectation, np.random.default_rng((7, seed))
    estimates = next(expectation.answers(statistic, USUAL_SPREAD, 1.0, 1.0, 1))
    place = estimates.terms.index(expectation.drawn(statistic, studies=12).term)
    truth = float(of_population(one)[place])
    rounds = fitted_instead(terms, statistic, one.parties, float(one.records))
    guessed = as_guessed(rounds.answer(USUAL_SPREAD, ROWS), place)
    noise, n = forecast.noise / one.records, one.records
    uniform, released, fitted = np.full((1, n), 1 / n), list[Estimates](), list[Estimates]()
    for _ in range(_EXECUTIONS):
        records = one.population[rng.integers(_POPULATION, size=n)]
        mean = terms.workload.sums(records, uniform[0], step=forecast.plan.value_step)
        mean = mean + noise * rng.standard_normal(mean.shape)
        with np.errstate(all="ignore"):
            (answer,) = terms.workload.decode(mean, noise, float(n), step=forecast.plan.value_step)
        released.append(answer.estimates)
        added = rng.standard_normal((1, rounds.model.rounds, rounds.model.dimension_for(one.parties)))
        fitted += [fit.coefficients for fit in rounds.model.drawn_fits([records], uniform, rounds.noise / n, float(n), added)]
    first, second = (WholeError.of(answers, place, truth, guessed) for answers in (released, fitted))
    sampling = math.hypot(*(error_of_mean(answers, place, truth, guessed) for answers in (released, fitted)))
    return FoundRegression(choice, (first, second), sampling)


def error_of_mean(answers: list[Estimates], place: int, truth: float, guessed: float) -> float:
    """The standard error of the mean of how far off answers are, over that mean."""
    off = np.array([WholeError.of([answer], place, truth, guessed).size for answer in answers])
    return float(off.std() / off.mean() / math.sqrt(len(off)))


def regressions(studies: int = 500, first: int = 0) -> None:
    """Print how often a plan names the better question, of so many drawn regressions from a seed on."""
    known = [one for seed in range(first, first + studies) if (one := found_regression(seed)) is not None]
    shown = [one for one in known if not one.hidden]
    decided = [one for one in shown if not one.tied]
    right, rounds = [one for one in decided if one.right], sum(one.ratio > 1 for one in decided)
    named = [one for one in decided if one.named]
    print(f"seeds {first} to {first + studies - 1}: {len(known)} regressions, {len(known) - len(shown)} hidden in both ways")
    print(f"{len(decided)} differ by more than 10 % and chance; rounds are better in {rounds} of these")
    print(f"the plan is right in {len(right) / len(decided):.1%} ({len(right)})")
    print(f"it names one of both in {len(named)} of these, rightly in {sum(one.right for one in named)}")


def main(studies: int = 500, first: int = 0) -> None:
    """Print the shares of so many studies from a seed on."""
    known = [one for seed in range(first, first + studies) if (one := found(seed)) is not None]
    decided = [one for one in known if not one.tied]
    right = sum(one.right for one in decided)
    laplace = sum(one.simulated[1] < one.simulated[0] for one in decided)
    apart = [abs(math.log(mine / its)) for one in known for mine, its in zip(one.planned, one.simulated, strict=True)]
    print(f"seeds {first} to {first + studies - 1}: {len(known)} studies with both kinds of noise, {len(decided)} not tied")
    print(f"right in {right / len(decided):.1%} of these ({right}); Laplace noise is smaller in {laplace / len(decided):.1%}")
    print(f"planned errors off those simulated: median {np.median(apart):.1%}, 95 % {np.quantile(apart, 0.95):.1%}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--regressions"]:
        regressions(*map(int, sys.argv[2:4]))
    else:
        main(*map(int, sys.argv[1:3]))
