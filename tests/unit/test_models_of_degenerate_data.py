"""Every model by rounds of data that it cannot be had of, or hardly: no error, no unflagged number far off."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from quietmean.core.arrays import Array, Mask
from quietmean.learning import GeneralizedLinearModel, ProportionalHazards
from quietmean.learning.models.model import ModelByRounds
from quietmean.statistics import Column, Estimates
from quietmean.statistics.printed import TidyTerms
from support.model_rounds import fitted

BUDGET: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6}
COLUMNS = (
    Column(name="age", low=20, high=90),
    Column(name="bmi", low=15, high=50),
    Column(name="arm", levels=("a", "b", "c")),
    Column(name="ill", boolean=True),
    Column(name="visits", low=0, high=15),
    Column(name="cost", low=0, high=400),
    Column(name="years", low=0, high=10),
    Column(name="died", boolean=True),
)
NAMES = [column.name for column in COLUMNS]
EDGES = [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def glm(formula: str, **more: Any) -> Callable[[int], ModelByRounds]:
    return lambda rounds: GeneralizedLinearModel(formula, COLUMNS, rounds=rounds, **BUDGET, **more)


def hazards(rounds: int) -> ModelByRounds:
    return ProportionalHazards("~ age + bmi + arm", COLUMNS, time="years", event="died", edges=EDGES, rounds=rounds, **BUDGET)


MODELS: dict[str, Callable[[int], ModelByRounds]] = {
    "binomial": glm("ill ~ age + bmi + arm"),
    "poisson": glm("visits ~ age + bmi + arm", family="poisson"),
    "rates": glm("visits ~ age + arm", family="poisson", exposure="years"),
    "negative-binomial": glm("visits ~ age + bmi + arm", family="negative-binomial"),
    "gamma": glm("cost ~ age + bmi + arm", family="gamma"),
    "gaussian": glm("cost ~ age + bmi + arm", family="gaussian"),
    "hazards": hazards,
}


@cache
def model_of(kind: str, rounds: int) -> ModelByRounds:
    return MODELS[kind](rounds)


def ordinary(count: int = 1200) -> Array:
    rng = np.random.default_rng(3)
    age, bmi, arm = rng.uniform(22, 88, count), rng.uniform(17, 45, count), rng.integers(0, 3, count).astype(float)
    eta = 0.015 * (age - 55) + 0.02 * (bmi - 27) + 0.4 * (arm == 1)
    years = np.minimum(rng.exponential(9 * np.exp(-eta)), rng.uniform(2, 9.99, count))
    ill, died = rng.random(count) < 1 / (1 + np.exp(-eta)), rng.random(count) < 0.7
    visits, cost = np.minimum(rng.poisson(np.exp(eta)), 15), np.clip(rng.gamma(3, np.exp(eta) * 6), 0, 400)
    return np.column_stack([age, bmi, arm, ill, visits, cost, years, died]).astype(np.float64)


def changed(**columns: float | Callable[[Array], Array]) -> list[Array]:
    """The records of three parties, with other columns."""
    records = ordinary()
    for name, value in columns.items():
        records[:, NAMES.index(name)] = value(records) if callable(value) else value
    return [records[:400], records[400:800], records[800:]]


def outcomes(happens: Callable[[Array], Mask] | float) -> list[Array]:
    """All of them, where something holds of a record."""

    def of(largest: float) -> Callable[[Array], Array]:
        return lambda records: np.full(len(records), largest) * (happens(records) if callable(happens) else happens)

    return changed(ill=of(1), visits=of(5), cost=of(50), died=of(1))


def missing(*names: str) -> list[Array]:
    return changed(**dict.fromkeys(names, np.nan))


def rare(records: Array) -> Array:
    """Three records of a level."""
    return np.where((records[:, 2] == 1) & (np.arange(len(records)) > 6), 0, records[:, 2])


DATA: dict[str, Callable[[], list[Array]]] = {
    "ordinary": changed,
    "a level tells the outcome": lambda: outcomes(lambda records: records[:, 2] == 1),
    "a number tells the outcome": lambda: outcomes(lambda records: records[:, 0] > 55),
    "collinear": lambda: changed(bmi=lambda records: 15 + (records[:, 0] - 20) / 2),
    "rare level": lambda: changed(arm=rare),
    "empty level": lambda: changed(arm=lambda records: np.where(records[:, 2] == 1, 0, records[:, 2])),
    "one level": lambda: changed(arm=2),
    "constant column": lambda: changed(age=50),
    "constants at bounds": lambda: changed(age=20, bmi=50),
    "column missing": lambda: missing("age"),
    "levels missing": lambda: changed(arm=-1),
    "outcomes missing": lambda: missing("ill", "visits", "cost", "died", "years"),
    "all missing": lambda: missing(*NAMES),
    "tied times": lambda: changed(years=4),
    "times of 0": lambda: changed(years=0),
    "no outcomes": lambda: outcomes(0.0),
    "nothing but outcomes": lambda: changed(ill=1, visits=15, cost=400, died=1),
    "an empty party": lambda: [ordinary()[:500], ordinary()[:0], ordinary()[500:]],
    "one record": lambda: [ordinary()[:1], ordinary()[:0], ordinary()[:0]],
    "six records": lambda: [ordinary()[:2], ordinary()[2:4], ordinary()[4:6]],
}
# Without a finite maximum of the likelihood, or without one at all.
UNBOUNDED = ("a level tells the outcome", "no outcomes", "column missing", "levels missing", "outcomes missing", "all missing")
HOPELESS = {"not-identified", "not-settled", "separated"}
NOISES = (0.0, 1e-4, 5e-3)


def check(answer: Estimates) -> None:
    """Numbers are numbers, and what is none has a flag that says why."""
    # As a party's command prints it.
    printed = repr(TidyTerms.of([json.loads(json.dumps(answer.to_json()))]))
    assert not {"nan", "None", "inf"} & set(printed.split())
    assert all(term in printed for term in answer.terms)
    known = np.isfinite(answer.value)
    named = {term for flag in answer.flags for term in flag.terms or answer.terms}
    assert {term for term, there in zip(answer.terms, known, strict=True) if not there} <= named
    assert np.isnan(answer.value[~known]).all()
    assert answer.population is not None
    assert np.isfinite(answer.standard_error[known]).all()
    assert np.isfinite(answer.population[known]).all()
    assert all(0 <= test.p_value <= 1 for test in answer.tests.values())


def unflagged(answer: Estimates) -> list[int]:
    """The places of terms with an estimate that no flag is about."""
    named = {term for flag in answer.flags for term in flag.terms or answer.terms}
    return [place for place, term in enumerate(answer.terms) if np.isfinite(answer.value[place]) and term not in named]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("kind", MODELS)
def test_nothing_is_said_that_is_not_so(kind: str, data: str) -> None:
    parts = DATA[data]()
    usual = model_of(kind, 6).family.rounds
    pooled = fitted(model_of(kind, 2 * usual), parts)
    # What every answer is held against, where rounds without noise come to an end.
    exact = unflagged(pooled.coefficients) if np.abs(pooled.state.step).max() < 1e-6 else []
    for noise in NOISES:
        fit = fitted(model_of(kind, usual), parts, noise, np.random.default_rng(7))
        answer = fit.coefficients
        check(answer)
        if model_of(kind, usual).family.ratio:
            with np.errstate(over="ignore"):
                check(fit.ratios)
        # Least squares of any outcomes have a minimum.
        if data in UNBOUNDED and (kind != "gaussian" or "missing" in data):
            assert {flag.code for flag in answer.flags} & HOPELESS, (noise, answer.flags)
        for place in set(unflagged(answer)) & set(exact):
            low, high = np.asarray(answer.of_noise)[place].tolist()
            error = 2 * answer.standard_error[place] + 1e-3
            assert low - error <= pooled.coefficients.value[place] <= high + error, (noise, answer.terms[place])


@pytest.mark.parametrize("kind", ["poisson", "negative-binomial"])
def test_level_without_counts_is_told_from_one_with_few(kind: str) -> None:
    """The terms of the level are flagged where the likelihood rises without end, and not where a tenth have counts."""
    for part, wanted in ((0.0, True), (0.1, False)):
        rng = np.random.default_rng(5)
        records = ordinary()
        records[:, 4] = np.where(records[:, 2] == 1, rng.random(len(records)) < part, records[:, 4])
        for seed in range(4):
            answer = fitted(model_of(kind, 6), [records], 3e-4, np.random.default_rng(seed)).coefficients
            terms = {term for flag in answer.flags if flag.code == "separated" for term in flag.terms}
            # No interval holds for them: nothing is printed, and no p-value.
            hidden = [answer.terms.index(term) for term in terms]
            assert np.isnan(answer.value[hidden]).all()
            assert answer.p_value is None or np.isnan(answer.p_value[hidden]).all()
            assert ("arm[T.b]" in terms) == wanted
            assert "arm[T.c]" not in terms
