"""Simulated runs, with a gate and with known levels."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import binom

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.workers import one_thread
from quietmean.graphs import ExecutionTrace, churn
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.gate import a_priori_mu, as_recorded, decide, mu_before_release
from quietmean.privacy import mu_of_budget
from quietmean.protocols import get_protocol
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.local_dp import LocalDP
from quietmean.protocols.secagg import SecAgg
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.simulation import NetworkModel, simulate, simulate_events
from quietmean.statistics import Column, Columns, Estimates, Workload
from support.workloads import workload_of

# -- Batch runs against predictions, event-driven against batch. Error rates are stated; seeds are fixed and printed by pytest.
RUNS, SEED = 10_000, 20_261_121
ERROR_RATE = 1e-6


def plan_for(dropouts: float, name: str = "inca", dimension: int = 1) -> Plan:
    target = Target(parties=10, epsilon=1.0, delta=1e-6, dimension=dimension, colluding=1, dropouts=dropouts)
    return calibrate(target, get_protocol(name)())


@pytest.mark.slow
def test_without_dropouts_the_error_is_the_star_noise() -> None:
    """10 000 runs. Unbiased (z-test) and MSE = sigma_star^2 / n (chi-square), each wrongly rejected with probability 1e-6;
    a star noise 10 % off in standard deviation is rejected."""
    plan = plan_for(0.0)
    errors = simulate(plan, runs=RUNS, seed=SEED).errors[:, 0]
    assert isinstance(plan.protocol, IncA)
    variance = plan.protocol.sigma_star**2 / 10
    assert abs(errors.mean()) < stats.norm.isf(ERROR_RATE / 2) * np.sqrt(variance / RUNS)

    def accepted(scale: float) -> bool:
        low, high = stats.chi2.interval(1 - ERROR_RATE, RUNS)
        return bool(low < (errors**2).sum() / (variance * scale**2) < high)

    assert accepted(1.0)
    assert not accepted(1.1)
    assert not accepted(0.9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inca", "local-dp", "central-dp"])
def test_predicted_error_with_dropouts(name: str) -> None:
    """10 000 runs on uniform values: the prediction averages few executions, so 10 % are allowed beside 5 standard errors."""
    plan = plan_for(0.2, name)
    result = simulate(plan, runs=RUNS, seed=SEED)
    print(name, result.mse, result.mse_standard_error, result.prediction)
    assert abs(result.mse - result.prediction) < 5 * result.mse_standard_error + 0.1 * result.prediction
    assert (np.abs(result.bias) < 5 * result.errors.std() / np.sqrt(RUNS)).all()


@pytest.mark.slow
def test_seeds_decide_everything() -> None:
    plan = plan_for(0.2)
    first, again, other = (simulate(plan, runs=50, seed=seed).estimates for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


@pytest.mark.slow
def test_given_values_and_certificate() -> None:
    plan = plan_for(0.0)
    # On the grid of the plan.
    values = np.arange(10.0)[:, None] / 16
    result = simulate(plan, values, runs=20, seed=3)
    np.testing.assert_allclose(result.truth, 4.5 / 16)
    assert result.certificate.exhaustive
    assert result.to_json()["runs"] == 20


@pytest.mark.slow
def test_event_driven_equals_batch_on_what_really_happened() -> None:
    """Real machines over lossy, slow, churning networks: the batch kernel on the recorded history gives the same estimate."""
    plan = plan_for(0.2, dimension=3)
    rounds = plan.protocol.rounds
    lost = 0
    for number in range(40):
        seed = Seed.public("events", number)
        trace = churn(seed, rounds, 10, permanent=0.2, temporary=0.15)
        noise = InsecurePopulationNoise(number, 10)
        values = BitStream(seed.derive("values")).uniform(30).reshape(10, 3)
        network = NetworkModel(latency=0.05, loss=0.6, retry=0.1, timeout=0.6)
        result = simulate_events(plan.execution(seed, trace), values, noise, network, seed=number)
        batch = result.execution.run_batch(values, noise).estimate()
        np.testing.assert_allclose(result.estimate, batch, rtol=1e-11, atol=1e-11)
        present = ExecutionTrace(result.execution.trace.online).delivered(result.execution.schedule)
        lost += int(present.sum() - result.execution.trace.delivered(result.execution.schedule).sum())
        certificate = result.execution.privacy(1e-6).coalitions(1)
        assert np.isfinite(certificate.mu).all()
    assert lost > 100, "the network lost too little to test anything"


def test_event_driven_without_faults_equals_batch_exactly() -> None:
    plan = plan_for(0.0, dimension=2)
    rounds = plan.protocol.rounds
    execution = plan.execution(Seed.public("calm"), ExecutionTrace.everyone(rounds, 10))
    noise = InsecurePopulationNoise(5, 10)
    values = np.ones((10, 2))
    result = simulate_events(execution, values, noise, NetworkModel(latency=0.001))
    np.testing.assert_allclose(result.estimate, execution.run_batch(values, noise).estimate(), rtol=1e-12)
    assert result.execution.trace.delivered(execution.schedule).all()
    assert result.messages == rounds * 10
    assert result.attempts == result.messages


@pytest.mark.slow
def test_mean_squared_error_of_events_and_batch_agree() -> None:
    """The same churn law on both sides, 400 event-driven runs: the ratio of mean squares follows F; error rate 1e-6."""
    plan = plan_for(0.2)
    rounds = plan.protocol.rounds
    values = np.full((10, 1), 0.5)
    errors = []
    for number in range(400):
        seed = Seed.public("law", number)
        execution = plan.execution(seed, churn(seed, rounds, 10, permanent=0.2))
        errors.append(simulate_events(execution, values, InsecurePopulationNoise(number, 10)).estimate[0] - 0.5)
    batch = simulate(plan, values, runs=4000, seed=SEED).errors[:, 0]
    ratio = float(np.mean(np.square(errors)) / np.mean(batch**2))
    # Errors are mixtures of Gaussians over executions: heavier tails than F assumes, so twice its width.
    low, high = stats.f.interval(1 - ERROR_RATE, 400, 4000)
    assert 1 - 2 * (1 - low) < ratio < 1 + 2 * (high - 1)


@pytest.mark.slow
def test_nobody_left_is_a_clear_failure() -> None:
    plan = plan_for(0.0)
    online = np.ones((plan.protocol.rounds + 1, 10), dtype=np.bool_)
    online[-1] = False
    execution = plan.execution(Seed.public("empty"), ExecutionTrace(online))
    with pytest.raises(ProtocolFailure, match="dropped out"):
        simulate_events(execution, np.ones((10, 1)), InsecurePopulationNoise(1, 10))


# -- Fresh executions of planned studies at the gate: none beyond the a-priori figure, and no more refusals than stated.
FRESH = 300


def fresh(plan: Plan, number: int, dropouts: float | None = None) -> Execution:
    target, seed = plan.target, Seed.public("gate fresh", str(number))
    lost = target.dropouts if dropouts is None else dropouts
    trace = churn(seed.derive("churn"), plan.protocol.rounds, target.parties, permanent=lost)
    return plan.execution(seed.derive("schedule"), trace)


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "colluding"), [(20, 2), (40, 4), (100, 5), (60, 12)])
def test_fresh_executions_keep_the_a_priori_figure(parties: int, colluding: int) -> None:
    print("seeds: gate fresh 0 ..", FRESH - 1)
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, colluding=colluding, dropouts=0.1)
    plan = calibrate(target, IncA.read({"rounds": max(11, parties // 2), "schedule": "circulant"}), trials=59)
    figure = a_priori_mu(plan.target, plan.protocol)
    assert figure <= mu_of_budget(1.0, 1e-6) * (1 + 1e-9)
    refused = 0
    with one_thread():
        for number in range(FRESH):
            execution = fresh(plan, number)
            decision = decide(plan.target, execution)
            refused += not decision.passes
            # What is released was certified against all; the worst coalitions that a search finds are within it too.
            if decision.passes and number < 5:
                assert execution.privacy(1e-6).search(colluding, limit=30).max_mu <= figure
            assert not decision.passes or decision.mu < figure * (1 + 1e-6)
    stated = plan.prediction["no_result_probability"]
    print(parties, colluding, "refused", refused, "of", FRESH, "stated", stated)
    assert refused <= binom.ppf(0.999, FRESH, stated)


@cache
def small_plan() -> Plan:
    target = Target(parties=8, epsilon=1.0, delta=1e-6, colluding=2, dropouts=0.0)
    return calibrate(target, IncA.read({"rounds": 6}), trials=20)


@pytest.mark.slow
def test_lost_shares_are_refused_and_would_have_exceeded_the_target() -> None:
    # Nearly all shares are lost: without the gate the releases show single values, and the figure would not hold.
    plan = small_plan()
    schedule = plan.schedule(Seed.public("lost"))
    lost = np.ones(schedule.neighbours.shape, dtype=np.bool_)
    execution = plan.execution(Seed.public("lost"), ExecutionTrace(np.ones((7, 8), dtype=np.bool_), lost))
    decision = decide(plan.target, execution)
    assert decision.exhaustive
    assert not decision.passes
    without_gate = execution.privacy(1e-6).coalitions(2).max_mu
    assert without_gate > 1.5 * a_priori_mu(plan.target, plan.protocol)
    assert mu_before_release(plan.protocol, 1.0) <= decision.limit * (1 + 1e-9)


def test_who_left_may_have_told_one_another_anything() -> None:
    """Against a coalition with one who left, all who left count: by brute force, and never less than by the record alone."""
    plan = small_plan()
    execution = fresh(plan, 3, dropouts=0.4)
    left = np.nonzero(~execution.trace.finished)[0].tolist()
    assert len(left) == 3
    recorded = execution.with_trace(as_recorded(execution.schedule, execution.trace))
    privacy = recorded.privacy(1e-6)
    staying = [party for party in range(8) if party not in left]
    together = max(privacy.against([*left, party]).mu_upper.max() for party in staying)
    alone = privacy.coalitions(2).max_mu
    decision = decide(plan.target, execution)
    assert decision.mu == pytest.approx(max(together, alone), rel=1e-6)
    assert together > 1.05 * alone
    # With complete logs of all there is nothing to be assumed.
    assert decide(plan.target, recorded, ()).mu == pytest.approx(alone, rel=1e-9)


def test_the_record_of_a_simulated_history_says_no_less() -> None:
    plan = small_plan()
    for number in range(4):
        execution = fresh(plan, number, dropouts=0.3)
        recorded = execution.with_trace(as_recorded(execution.schedule, execution.trace))
        really, stated = (one.privacy(1e-6).coalitions(2).mu for one in (execution, recorded))
        staying = execution.trace.finished
        assert (stated[staying] >= really[staying] * (1 - 1e-6)).all()


def test_equal_figures_are_refused() -> None:
    plan = small_plan()
    decision = decide(plan.target, fresh(plan, 1))
    assert decision.passes
    assert not type(decision)(decision.limit * (1 - 1e-9), decision.limit, True).passes


def test_simulated_runs_count_what_the_gate_refuses() -> None:
    plan = small_plan()
    result = plan.simulate(runs=20, rng=3, gate=True)
    assert result.refused is not None
    assert result.failed == result.refused == sum(result.failures.values())
    # Two of eight leave, of which the plan knows nothing.
    with pytest.raises(ProtocolFailure, match="the gate refused the release"):
        plan.simulate(runs=20, rng=3, dropouts=0.35, gate=True)
    with pytest.raises(InputError, match="no gate"):
        calibrate(plan.target, LocalDP()).simulate(runs=2, gate=True)


def test_runs_without_a_result_say_why() -> None:
    """And how many of the parties stayed in the first of them."""
    plan = calibrate(Target(parties=6, epsilon=1.0, delta=1e-6, colluding=1), SecAgg())
    assert plan.simulate(runs=20, dropouts=0.0).failures == {}
    result = plan.simulate(runs=200, rng=1, dropouts=0.25)
    ((why, count),) = result.failures.items()
    assert why.startswith("too few parties were left for a result, first in run 1, where ")
    assert 0 < count == result.failed < 200
    assert result.to_json()["failures"] == {why: count}


# -- Levels that nobody has, or nearly nobody, change neither the error of what else is estimated nor how often nothing is
# refused.
Array = NDArray[np.float64]
RECORDS, STUDIES, LEVEL, SLACK = 1000, 2000, 0.05, 0.015
NUMBERS = [Column(name="y", low=-5, high=20), Column(name="age", low=20, high=90)]


def study(text: str, levels: tuple[str, ...], by: tuple[str, ...] = ("u", "v")) -> Workload:
    columns = [*NUMBERS, Column(name="grp", levels=levels), Column(name="by", levels=by), Column(name="ill", boolean=True)]
    return workload_of(Columns(columns), text)


def noise_of(workload: Workload, epsilon: float) -> float:
    return math.sqrt(1.2) * workload.sensitivity / mu_of_budget(epsilon, 1e-6) / RECORDS


def decoded(workload: Workload, records: Array, epsilon: float, rng: np.random.Generator) -> Estimates:
    mean, noise = workload.of_records(records).mean(axis=0), noise_of(workload, epsilon)
    (answer,) = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, float(len(records)))
    return answer.estimates


def unrelated(chances: list[float], rng: np.random.Generator, rows: int = RECORDS) -> Array:
    """Columns that have nothing to do with each other; the levels have these chances."""
    return np.column_stack(
        [
            rng.normal(7, 2, rows),
            rng.normal(50, 10, rows),
            rng.choice(len(chances), rows, p=chances),
            rng.integers(2, size=rows),
            rng.random(rows) < 0.4,
        ]
    ).astype(np.float64)


def false_alarms(text: str, chances: list[float], epsilon: float, p_of: Callable[[Estimates], float]) -> tuple[float, float]:
    """How often a p-value is below the level, of the studies that have one; and how many have."""
    rng = np.random.default_rng(20)
    workload = study(text, tuple("abcd"[: len(chances)]))
    found = np.array([p_of(decoded(workload, unrelated(chances, rng), epsilon, rng)) for _ in range(STUDIES)])
    known = found[np.isfinite(found)]
    return float((known < LEVEL).mean()), len(known) / STUDIES


def by_test(name: str) -> Callable[[Estimates], float]:
    return lambda found: found.tests[name].p_value if name in found.tests else math.nan


def of_term(term: str) -> Callable[[Estimates], float]:
    return lambda found: float(np.asarray(found.p_value)[found.terms.index(term)])


# Nobody has c; and so many have it that the noise keeps it in about every other study.
NOBODY, THRESHOLD = [0.5, 0.5, 0.0], [0.495, 0.495, 0.01]


@pytest.mark.slow
@pytest.mark.parametrize("chances", [NOBODY, THRESHOLD], ids=["nobody", "threshold"])
@pytest.mark.parametrize(
    ("text", "p_of"),
    [
        ("crosstab(grp, by)", by_test("chi-squared")),
        ("table-1(grp, by=by)", by_test("grp")),
        ("group-means(y, by=grp)", by_test("anova")),
        ("linear-regression(y ~ age + grp)", of_term("age")),
        ("linear-regression(y ~ age + grp)", by_test("F")),
    ],
    ids=["chi-squared", "table-1", "anova", "slope", "F"],
)
def test_nothing_is_refused_more_often_than_stated(text: str, p_of: Callable[[Estimates], float], chances: list[float]) -> None:
    alarms, known = false_alarms(text, chances, 4.0, p_of)
    assert known > 0.99
    assert abs(alarms - LEVEL) < SLACK, alarms


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_level_that_nobody_has_costs_others_nothing(place: int) -> None:
    """Wherever it is declared: errors of others are at most 1.5 times those without it, which are those of one more column."""
    rng = np.random.default_rng(3)
    # Of a level that nobody has, before, between and after those that there are.
    levels = ["a", "b"]
    levels.insert(place, "none")
    records = unrelated([0.5, 0.5], rng, 600)
    placed = records.copy()
    placed[:, 2] = [levels.index("ab"[int(one)]) for one in records[:, 2]]
    for text in ("linear-regression(y ~ age + grp)", "logistic-regression(ill ~ age + grp)"):
        without = decoded(study(text, ("a", "b")), records, 8.0, np.random.default_rng(1))
        found = decoded(study(text, tuple(levels)), placed, 8.0, np.random.default_rng(1))
        error = dict(zip(found.terms, found.standard_error, strict=True))
        usual = dict(zip(without.terms, without.standard_error, strict=True))
        assert error["age"] < 1.5 * usual["age"]
        assert error["grp[b]"] < 1.5 * usual["grp[b]"]
        (flag,) = [flag for flag in found.flags if flag.code == "level-left-out"]
        hidden = "grp[a]" if place == 0 else "grp[none]"
        assert hidden in flag.terms
        assert np.isnan(found.value[found.terms.index(hidden)])
        assert flag.upper is not None
        assert 0 < flag.upper < 30
    # What stays is compared as if nobody had declared it.
    table = decoded(study("crosstab(grp, by)", tuple(levels)), placed, 8.0, rng)
    assert table.tests["chi-squared"].degrees == (1.0,)
    (flag,) = [flag for flag in table.flags if flag.code == "level-left-out"]
    assert flag.terms == ("none:u", "none:v", "none:missing")
    first = decoded(study("table-1(grp, by=by)", tuple(levels)), placed, 8.0, rng)
    assert first.tests["grp"].degrees == (1.0,)
    value: dict[str, Any] = dict(zip(first.terms, first.value, strict=True))
    assert np.isnan(value["u grp:none"])
    assert np.isfinite(value["smd grp"])
    hidden_cells = {term: flag.upper for flag in first.flags if flag.code == "few" for term in flag.terms}
    assert {"u grp:none", "v grp:none"} <= set(hidden_cells)
    assert all(upper is not None and 0 < upper < 30 for upper in hidden_cells.values())


def test_all_levels_but_one_hidden_is_no_regression_and_no_test() -> None:
    rng = np.random.default_rng(4)
    records = unrelated([1.0], rng)
    found = decoded(study("linear-regression(y ~ grp)", ("a", "b", "c")), records, 8.0, rng)
    assert np.isnan(found.value).all()
    assert [flag.terms for flag in found.flags if flag.code == "level-left-out"] == [("grp[b]",), ("grp[c]",)]
    table = decoded(study("crosstab(grp, by)", ("a", "b", "c")), records, 8.0, rng)
    assert math.isnan(table.tests["chi-squared"].p_value)
    assert "empty-margin" in [flag.code for flag in table.flags]
