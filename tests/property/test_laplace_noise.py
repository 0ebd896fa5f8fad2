"""Laplace noise from shares: its charge against exact convolutions, and what packed sharing makes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.noise_law import NoiseKind
from quietmean.graphs import ExecutionTrace
from quietmean.planning.accuracy import stated_law, stated_variance
from quietmean.planning.automatic import choose
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import configured
from quietmean.planning.other_noise import other_noise
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.privacy.analysis import A_PRIORI, EVERYBODY, privacy_facts
from quietmean.privacy.loss import epsilon_of_share, laplace_charge
from quietmean.protocols import get_protocol
from quietmean.protocols.central_dp import CentralDP
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.encoding import rounded, rounded_l1
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME, SMALL_PRIME, largest_sum
from quietmean.protocols.secagg import SecAgg
from quietmean.protocols.target import Target
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.randomness.laplace_shares import negative_binomial_table, reach, tails, variance
from quietmean.studies.agreement.study import StudyTerms
from support.refusals import refused

DELTA = 1e-6
# Probabilities as whole numbers, of which the sum is a power of two.
Law = NDArray[np.object_]


def of_shares(scale: float, parties: int, count: int) -> Law:
    """The law of ``count`` shares as they are drawn, exactly: of the certified table. Symmetric around its middle."""
    table = negative_binomial_table(scale, parties)
    boundaries = [(int(high) << 64) + int(low) for high, low in zip(table.high.tolist(), table.low.tolist(), strict=True)]
    one = np.diff(np.array([0, *boundaries[:-1], 1 << 128], dtype=object))
    share, total = np.convolve(one, one[::-1]), np.array([1], dtype=object)
    for _ in range(count):
        total = np.convolve(total, share)
    return total


def hockey_stick(law: Law, change: tuple[int, ...], epsilon: float) -> Fraction:
    """delta at ``epsilon`` between the noise and the noise shifted by ``change``; exact, over all outputs."""
    growth = Fraction(math.exp(epsilon))
    here = there = np.array([1], dtype=object)
    for each in change:
        room = np.zeros(abs(each), dtype=object)
        shifted, still = np.concatenate([room, law]), np.concatenate([law, room])
        if each < 0:
            shifted, still = still, shifted
        here, there = np.outer(here, still).ravel(), np.outer(there, shifted).ravel()
    more = here * growth.denominator - there * growth.numerator
    return Fraction(int(more[more > 0].sum()), growth.denominator * int(here.sum()))


SCALE, SHARES = 1.5, 3
CHANGES = pytest.mark.parametrize("change", [(1,), (2,), (5,), (1, -1), (2, 1)])


@CHANGES
@pytest.mark.parametrize("count", [3, 4])
def test_as_many_shares_as_promised_are_pure_to_what_the_sampler_costs(change: tuple[int, ...], count: int) -> None:
    """Exact rationals: delta at the charged epsilon of k shares, and of more, is below what the sampler's distance costs."""
    charge = laplace_charge(SCALE, sum(map(abs, change)), len(change), shares=SHARES, unknown=SHARES, drawn=count)
    assert charge.pure == pytest.approx(sum(map(abs, change)) / SCALE, rel=1e-12)
    assert hockey_stick(of_shares(SCALE, SHARES, count), change, charge.pure) <= Fraction(charge.delta(charge.pure)) < 1e-18


@CHANGES
def test_one_share_fewer_is_a_cliff(change: tuple[int, ...]) -> None:
    steps, law = sum(map(abs, change)), of_shares(SCALE, SHARES, SHARES - 1)
    assert hockey_stick(law, change, steps / SCALE) > Fraction(3, 100)
    # What is charged instead bounds it.
    alone = laplace_charge(SCALE, steps, len(change), shares=SHARES, unknown=SHARES - 1, drawn=SHARES)
    assert hockey_stick(law, change, alone.pure) <= Fraction(alone.delta(alone.pure)) < 1e-18


@CHANGES
def test_the_epsilon_of_one_share_is_attained_or_above(change: tuple[int, ...]) -> None:
    """By its own law: exact where all coordinates change alike, and never below."""
    law, steps = of_shares(SCALE, SHARES, 1), sum(map(abs, change))
    middle = law.size // 2
    exact = sum(math.log(Fraction(int(law[middle]), int(law[middle + abs(each)]))) for each in change)
    stated = epsilon_of_share(SCALE, steps, len(change), SHARES)
    assert stated >= exact
    if len(set(map(abs, change))) == 1:
        assert stated == pytest.approx(exact, rel=1e-8)
    assert stated <= steps / SCALE + len(change) * math.log(1 + SHARES * SCALE) + 1


@pytest.mark.parametrize("shape", [1.0, 1.25, 2.0])
def test_what_a_sum_exceeds_is_a_bound_on_the_exact_tail(shape: float) -> None:
    count = round(4 * shape)
    law = of_shares(2.0, 4, count)
    middle = law.size // 2
    for chance in (1e-3, 1e-9, 1e-15):
        bound = reach(2.0, shape, chance)
        beyond = Fraction(int(law[middle + math.ceil(bound) :].sum()), int(law.sum()))
        assert float(beyond) <= chance
        assert float(Fraction(int(law[middle + math.ceil(bound / 2) :].sum()), int(law.sum()))) > chance
    # Eight standard deviations are not enough.
    eight = math.ceil(8 * math.sqrt(shape) * 2.0 * math.sqrt(2))
    assert Fraction(int(law[middle + eight :].sum()), int(law.sum())) > Fraction(1e-15)


# --- packed sharing ---


def target(dimension: int = 1, sensitivity: float = 1.0, l1: float | None = None, **more: Any) -> Target:
    asked: dict[str, Any] = {"parties": 20, "epsilon": 1.0, "delta": DELTA, "colluding": 2, "dropouts": 0.1, **more}
    return Target(dimension=dimension, sensitivity=sensitivity, l1=l1, unit=PrivacyUnit.RECORD, **asked)


COUNT, TABLE = target(), target(4, math.sqrt(2), 2.0)


def planned(asked: Target, **options: Any) -> Plan:
    return calibrate(asked, PackedSharing(noise=NoiseKind.LAPLACE, **options))


def parameters(plan: Plan) -> PackedSharing:
    assert isinstance(plan.protocol, PackedSharing)
    return plan.protocol


@pytest.mark.parametrize("asked", [COUNT, TABLE], ids=["count", "table"])
def test_one_study_is_within_the_bar_of_one_curators_laplace(asked: Target) -> None:
    """20 parties, 2 collude, 2 may leave: 1.118 times a curator's, where Gaussian noise is at 3.3 and 2.4."""
    plan = planned(asked)
    curator = math.sqrt(2) * asked.l1_change / asked.epsilon
    assert math.sqrt(asked.parties * parameters(plan).party_variance) <= 1.15 * curator
    gaussian = parameters(calibrate(asked, PackedSharing()))
    assert math.sqrt(asked.parties * gaussian.party_variance) > 2 * curator


@pytest.mark.parametrize("asked", [COUNT, TABLE, replace(COUNT, epsilon=4.0), replace(TABLE, epsilon=0.3)])
def test_a_plan_promises_pure_epsilon_and_its_certificate_is_its_charge(asked: Target) -> None:
    plan = planned(asked)
    promised, everyone = plan.a_priori, ExecutionTrace.everyone(plan.protocol.rounds, 20)
    assert asked.epsilon * (1 - 1e-4) <= promised.pure <= asked.epsilon
    assert plan.epsilon_a_priori == promised.pure
    assert promised.tv * (1 + math.exp(asked.epsilon)) < 1e-12
    # Rounding to whole steps is in the steps that are charged.
    steps = rounded_l1(parameters(plan), asked.l1_change)
    exact = Charge.of_laplace(steps, parameters(plan).scale)
    assert (promised.mu, promised.pure, promised.rho) == (exact.mu, exact.pure, exact.rho)
    execution = plan.execution(Seed.public("laplace"), everyone)
    worst = execution.privacy(DELTA).coalitions(2)
    assert worst.charge(0) == plan.charge
    assert worst.max_epsilon == worst.epsilon_a_priori == promised.pure


def test_whoever_is_alone_with_a_share_is_charged_for_one() -> None:
    """u_min - c shares are the noise; with one fewer that nobody else knows it is the epsilon of one share: about 10."""
    plan = planned(COUNT)
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, 20)
    analysis = plan.execution(Seed.public("laplace"), everyone).privacy(DELTA)
    enough, fewer, alone = (analysis.against(range(size)) for size in (2, 3, 19))
    assert enough.max_epsilon == plan.a_priori.pure
    assert fewer.max_epsilon == alone.max_epsilon == analysis.alone
    of_share = plan.protocol.a_priori(20, 19, COUNT.sensitivity, DELTA)
    assert analysis.alone == of_share.pure > 9


def test_a_mutant_with_more_shares_than_honest_inputs_is_found() -> None:
    """Shares of 1/k for a k that one honest input fewer has: the charge against two colluders is not the target any more."""
    right = parameters(planned(COUNT))
    mutant = replace(right, minimum=right.minimum + 1)
    assert mutant.shares == right.shares + 1
    cost = laplace_charge(
        right.scale, rounded_l1(right, 1.0), 1, shares=mutant.shares, unknown=right.minimum - right.colluding, drawn=20
    )
    assert cost.epsilon(DELTA) > 5


@pytest.mark.parametrize("prime", [SMALL_PRIME, LARGE_PRIME])
def test_machines_and_the_batch_draw_the_same_noise(prime: int) -> None:
    asked = target(3, 1.0, 1.5, parties=6, colluding=1)
    plan = planned(asked, prime=prime)
    trace = ExecutionTrace.everyone(plan.protocol.rounds, 6)
    execution = plan.execution(Seed.public("machines"), trace)
    values = np.linspace(0.0, 0.4, 18).reshape(6, 3)
    noise = InsecurePopulationNoise(7, 6)
    machines, batch = execution.run(values, noise), execution.run_batch(values, noise)
    for release in machines.releases.values():
        np.testing.assert_array_equal(release.vector, batch.vector[0])


def test_the_law_of_a_result_is_that_of_its_inputs() -> None:
    """Seed 11; 400 sums of 100 coordinates: their variance within 5 % of the law's (standard error 1.2 %)."""
    asked = target(100, math.sqrt(2), 2.0, parties=8, colluding=1)
    plan = planned(asked)
    trace = ExecutionTrace.everyone(plan.protocol.rounds, 8)
    execution = plan.execution(Seed.public("law"), trace)
    law = stated_law(execution)
    assert law.kind == NoiseKind.LAPLACE
    assert law.shape == 8 / parameters(plan).shares
    assert law.variance == pytest.approx(stated_variance(execution), rel=1e-2)
    sums = [execution.estimate(execution.run_batch(np.zeros((8, 100)), InsecurePopulationNoise(seed, 8))) for seed in range(400)]
    assert np.var(sums) == pytest.approx(stated_variance(execution), rel=0.05)


@pytest.mark.parametrize("region", ["box", "any"])
def test_rounded_values_keep_the_l1_change(region: str) -> None:
    found = parameters(planned(target(6, 1.0, 2.0), region=region))
    rng = np.random.default_rng(3)
    for number in range(100):
        one = rng.uniform(0, 0.4, 6)
        change = rng.laplace(size=6)
        other = one + change / np.abs(change).sum() * 0.3
        apart = [rounded(found, value, 1.0, Seed.public("l1", number)) for value in (one, other)]
        assert np.abs(apart[0] - apart[1]).sum() <= rounded_l1(found, 0.3)


def test_sums_have_room_for_the_tail_of_the_noise() -> None:
    found = parameters(planned(COUNT))
    assert largest_sum(found, 20) - 20 * found.inputs_range >= 28 * found.scale
    assert largest_sum(found, 20) <= found.prime / 2


@pytest.mark.parametrize(
    ("asked", "options", "problem"),
    [
        (target(4, 1.0), {}, "not known here. Leave noise out"),
        (target(4000, 1.0, 1.0), {}, "needs more than 1024 steps for 4000 coordinates"),
        (COUNT, {"region": "ball"}, "Leave domain out"),
        (replace(COUNT, delta=1e-17), {}, "Plan with a larger delta"),
    ],
)
def test_what_laplace_noise_cannot_have_is_refused(asked: Target, options: dict[str, Any], problem: str) -> None:
    refused(problem, planned, asked, **options)


def test_plans_with_laplace_noise_are_read_as_they_were_written() -> None:
    plan = planned(TABLE)
    assert Plan.from_json(plan.to_json()).digest == plan.digest
    written = plan.to_json()["parameters"]
    assert written["noise"] == "laplace"
    assert written["l1"] == 2.0
    assert "noise" not in calibrate(TABLE, PackedSharing()).to_json()["parameters"]


# --- a curator ---


def curated(asked: Target) -> CentralDP:
    found = calibrate(asked, CentralDP(noise="laplace")).protocol  # type: ignore[arg-type]
    assert isinstance(found, CentralDP)
    return found


@pytest.mark.parametrize("asked", [COUNT, TABLE, replace(COUNT, epsilon=4.0), replace(TABLE, epsilon=0.3)])
def test_a_curators_laplace_is_the_least_and_its_certificate_is_its_charge(asked: Target) -> None:
    plan = calibrate(asked, CentralDP(noise="laplace"))  # type: ignore[arg-type]
    found, promised = curated(asked), plan.a_priori
    best = math.sqrt(2) * asked.l1_change / asked.epsilon
    assert best <= found.own_deviation * (1 + 1e-5) <= 1.02 * best
    assert asked.epsilon * (1 - 1e-4) <= promised.pure <= asked.epsilon
    assert plan.epsilon_a_priori == promised.pure
    execution = plan.execution(Seed.public("curator"), ExecutionTrace.everyone(1, 20))
    worst = execution.privacy(DELTA).coalitions(2)
    assert worst.charge(5) == plan.charge
    assert worst.max_epsilon == promised.pure
    # A curator that colludes sees every value.
    assert math.isinf(execution.privacy(DELTA).against([0]).max_epsilon)


def test_a_curator_draws_laplace_noise_and_rounds_sums_once() -> None:
    """Seeds 0 to 399 of 4 coordinates: variance within 20 % of the law's (standard error 5.6 %); machines and batch agree."""
    plan = calibrate(TABLE, CentralDP(noise="laplace"))  # type: ignore[arg-type]
    execution = plan.execution(Seed.public("curator"), ExecutionTrace.everyone(1, 20))
    values = np.linspace(0.0, 0.7, 80).reshape(20, 4)
    assert plan.value_step == 0
    batches = [execution.run_batch(values, InsecurePopulationNoise(seed, 20)) for seed in range(400)]
    errors = np.array([execution.estimate(batch) for batch in batches]) - values.mean(axis=0)
    law = stated_law(execution)
    assert (law.kind, law.shape) == (NoiseKind.LAPLACE, 1.0)
    assert np.var(errors) == pytest.approx(law.variance, rel=0.2)
    assert law.variance == pytest.approx(stated_variance(execution))
    released = execution.run(values, InsecurePopulationNoise(0, 20)).releases[0]
    np.testing.assert_array_equal(released.vector, batches[0].vector[0])


# --- secure aggregation ---

AGGREGATED = pytest.mark.parametrize("name", ["secagg", "secagg-plus"])


def aggregated(name: str, asked: Target) -> Plan:
    return calibrate(asked, get_protocol(name)(noise="laplace"))


@AGGREGATED
@pytest.mark.parametrize("asked", [COUNT, TABLE, replace(COUNT, epsilon=4.0), replace(TABLE, epsilon=0.3)])
def test_an_aggregated_sum_is_within_the_bar_and_its_certificate_is_its_charge(name: str, asked: Target) -> None:
    plan = aggregated(name, asked)
    found, promised = plan.protocol, plan.a_priori
    assert isinstance(found, SecAgg)
    assert math.sqrt(20 * found.party_variance) <= 1.15 * math.sqrt(2) * asked.l1_change / asked.epsilon
    assert asked.epsilon * (1 - 1e-4) <= promised.pure <= asked.epsilon
    assert plan.epsilon_a_priori == promised.pure
    assert found.shares == found.minimum - asked.colluding
    steps = math.floor(asked.l1_change / found.granularity * (1 + 1e-10)) + asked.dimension
    assert promised.pure == Charge.of_laplace(steps, found.scale).pure
    execution = plan.execution(Seed.public("sum"), ExecutionTrace.everyone(plan.protocol.rounds, 20))
    worst = execution.privacy(DELTA).coalitions(2)
    assert worst.charge(7) == plan.charge
    assert worst.max_epsilon == promised.pure
    # Three colluders leave one share fewer than the noise has, and a cliff.
    lacking = replace(execution, trace=_without(execution.trace, 2)).privacy(DELTA)
    assert lacking.against([5, 6, 7]).max_epsilon > 2 * asked.epsilon


def _without(trace: ExecutionTrace, leaving: int) -> ExecutionTrace:
    """The trace in which the last parties send nothing."""
    online = trace.online.copy()
    online[1:, -leaving:] = False
    return replace(trace, online=online)


@AGGREGATED
def test_an_aggregated_sum_has_the_law_that_it_states(name: str) -> None:
    """Seeds 0 to 399, 20 coordinates: variance within 8 % of the law's (standard error 2.5 %); machines and batch agree."""
    asked = target(20, math.sqrt(2), 2.0, parties=8, colluding=1)
    plan = aggregated(name, asked)
    execution = plan.execution(Seed.public("law"), ExecutionTrace.everyone(plan.protocol.rounds, 8))
    law = stated_law(execution)
    assert isinstance(plan.protocol, SecAgg)
    assert plan.protocol.shares is not None
    assert (law.kind, law.shape) == (NoiseKind.LAPLACE, 8 / plan.protocol.shares)
    values = np.linspace(0.0, 0.3, 160).reshape(8, 20)
    batches = [execution.run_batch(values, InsecurePopulationNoise(seed, 8)) for seed in range(400)]
    errors = np.array([execution.estimate(batch) for batch in batches]) - values.mean(axis=0)
    assert np.var(errors) == pytest.approx(stated_variance(execution), rel=0.08)
    assert law.variance == pytest.approx(stated_variance(execution), rel=1e-2)
    released = execution.run(values, InsecurePopulationNoise(0, 8)).releases[0]
    np.testing.assert_array_equal(released.vector, batches[0].vector[0])


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (target(4, 1.0), "not known here. Leave noise out"),
        (target(4000, 1.0, 1.0), "needs more than 1024 steps for 4000 coordinates"),
        (replace(COUNT, delta=1e-22), "Choose a larger delta"),
    ],
)
def test_what_laplace_noise_cannot_have_is_refused_in_sums_and_by_a_curator(asked: Target, problem: str) -> None:
    refused(problem, aggregated, "secagg", asked)
    refused(problem.replace("Choose", "Plan with"), calibrate, asked, CentralDP(noise="laplace"))  # type: ignore[arg-type]


def test_checks_of_results_know_the_tails_of_laplace_noise() -> None:
    """Where a Gaussian of so many deviations goes beyond with a chance, the exact law does so with no larger one."""
    law = of_shares(4.0, 1, 1)
    middle, everything, deviation = law.size // 2, int(law.sum()), math.sqrt(variance(4.0, 1))
    for chance in (1e-3, 1e-9, 1e-12, 1e-15):
        bound = tails(4.0) * deviation * math.sqrt(-2 * math.log(chance))
        assert Fraction(int(law[middle + math.ceil(bound) :].sum()), everything) <= Fraction(chance)
    for plan in (planned(TABLE), aggregated("secagg", TABLE), calibrate(TABLE, CentralDP(noise="laplace"))):  # type: ignore[arg-type]
        assert 3 < plan.protocol.traits.checks.tails(plan.protocol, 4) < 4


@pytest.mark.parametrize(
    ("protocol", "asked", "error", "share"),
    [("packed-sharing", COUNT, "0.33", "19"), ("packed-sharing", TABLE, "0.47", "19"), ("secagg", TABLE, "0.47", "19")],
)
def test_a_plan_says_what_laplace_noise_would_give_and_take(protocol: str, asked: Target, error: str, share: str) -> None:
    """Over Gaussian noise at equal (epsilon, delta); it is never chosen unasked."""
    plan = calibrate(asked, get_protocol(protocol)())
    assert "laplace" not in str(getattr(plan.protocol, "noise", ""))
    said = other_noise(plan, {})
    assert said is not None
    assert f"would be {error} times as large; if several studies share one budget, it takes {share} times as much of it" in said
    assert "(--with noise=laplace)" in said
    back = other_noise(calibrate(asked, get_protocol(protocol)(noise="laplace")), {"noise": "laplace"})
    assert back is not None
    assert back.startswith("Gaussian noise")
    assert other_noise(calibrate(replace(asked, dimension=4000, l1=1.5), get_protocol(protocol)()), {}) is None


def test_noise_without_a_protocol_is_of_one_that_has_it() -> None:
    """What one protocol calls noise another may not have: it is planned as it comes, or not taken."""
    chosen = choose(COUNT, {"noise": "laplace"}).plan
    assert chosen.digest == planned(COUNT).digest
    noises = {one.name: str(getattr(one, "noise", None)) for one in configured(["packed-sharing", "inca"], {"noise": "laplace"})}
    assert noises["packed-sharing"] == "laplace" != noises["inca"]
    refused("Choose one of", choose, COUNT, {"noise": "uniform"})
    refused("has all of the options", choose, COUNT, {"noise": "laplace", "rounds": 5})


def test_what_a_share_alone_is_worth_is_said() -> None:
    """Beside its own figure, for Laplace noise only: a certificate's fact on everybody else."""
    for plan, worthless in ((planned(COUNT), True), (calibrate(COUNT, PackedSharing()), False)):
        analysis = plan.execution(Seed.public("alone"), ExecutionTrace.everyone(plan.protocol.rounds, 20)).privacy(DELTA)
        facts = {fact.key: fact.sentence for fact in privacy_facts(analysis, analysis.coalitions(2))}
        assert facts[EVERYBODY].endswith("if all others collude: nothing worth the name") == worthless
        assert ("at a delta below 1e-12" in facts[A_PRIORI]) == worthless
        assert "delta 0" not in " ".join(facts.values())


def test_a_committee_stays_gaussian_and_says_so() -> None:
    study = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "column": [{"name": "age", "low": 0, "high": 100}],
        "committee": {"members": 4, "contribute_by": "2030-01-01T00:00:00+00:00"},
    }
    assert StudyTerms.parse(study).committee is not None
    refused("a committee has no option noise. Leave it out", StudyTerms.parse, {**study, "options": {"noise": "laplace"}})
