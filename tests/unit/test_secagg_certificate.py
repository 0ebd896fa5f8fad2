"""Certificates of secure aggregation: the discrete bound, against brute force, against the plan, and for who was really there."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.privacy import Adversary, PrivacyAnalysis
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu
from quietmean.privacy.loss import EXACT, UPPER_BOUND
from quietmean.protocols import Mechanism, configure
from quietmean.protocols.discrete import conditional_norm
from quietmean.protocols.execution import Execution
from quietmean.protocols.secagg import SecAgg
from quietmean.protocols.secagg.batch import SecAggOutcome
from quietmean.protocols.secagg.certificate import DiscreteLossConversion
from quietmean.protocols.secagg.design import hidden_by, sum_bound, wrap_chance
from quietmean.protocols.secagg_plus import SecAggPlus
from quietmean.randomness import Seed
from quietmean.report.certificate import write_certificate_report
from quietmean.report.words import rounded_up
from quietmean.simulation import attack
from quietmean.statistics import Column, Columns, Workload
from quietmean.statistics.kinds.means import Mean
from quietmean.studies.outcome.outcome import conclude
from quietmean.testing.examples import certificate_of
from support.refusals import refused

Array = NDArray[np.float64]
DELTA = 1e-5
_ROOM = 12


# --- the exact divergence, by brute force -----------------------------------------------------------------------------------


def sum_of_noise(scale: float, parties: int) -> Array:
    """Probabilities of the sum of independent discrete Gaussians, around 0."""
    reach = math.ceil(30 * scale) + 20
    integers = np.arange(-reach, reach + 1)
    one = np.exp(-(integers**2) / (2 * scale**2))
    total = np.array([1.0])
    for _ in range(parties):
        total = np.convolve(total, one / one.sum())
    return total


def rounded(point: float) -> Array:
    """Probabilities of a number rounded up or down at random, on 0.._ROOM."""
    table = np.zeros(_ROOM + 2)
    low = math.floor(point)
    table[low], table[low + 1] = 1 - (point - low), point - low
    return table


def exact_delta(first: Array, second: Array, epsilon: float) -> float:
    factor = math.exp(min(epsilon, 600.0))
    one, other = np.maximum(first - factor * second, 0).sum(), np.maximum(second - factor * first, 0).sum()
    return float(max(one, other))


def exact_epsilon(first: Array, second: Array, delta: float) -> float:
    if exact_delta(first, second, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while exact_delta(first, second, high) > delta:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if exact_delta(first, second, middle) <= delta else (middle, high)
    return low


def in_steps(scale: float, clip: float, rounding: str = "independent", dimension: int = 1) -> SecAgg:
    """Values in units of the grid's step."""
    raw = {"threshold": 2, "minimum": 2, "granularity": 1.0, "sigma": scale, "clip": clip}
    return SecAgg.read({**raw, "rounding": rounding, "dimension": dimension}).resolved(2)


def bound_of(parameters: SecAgg, parties: int) -> DiscreteLossConversion:
    """What certificates say of a sum in which the noise of all is unknown."""
    schedule = parameters.draw_schedule(max(2, parties), Seed.public("bound"))
    counted = np.arange(max(2, parties)) < parties
    return DiscreteLossConversion(parameters, schedule, SecAggOutcome.of(counted), parameters.dimension or 1, DELTA)


def spent_epsilon(parameters: SecAgg, sensitivity: float, unknown: int, dimension: int, delta: float) -> float:
    """By the columns of the charge, with as many draws as are unknown."""
    found = hidden_by(parameters, sensitivity, unknown=unknown, drawn=unknown, dimension=dimension, delta=delta)
    return found.epsilon(delta)


@pytest.mark.sampled(17)
@pytest.mark.parametrize("scale", [0.5, 0.7, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("parties", [1, 2, 3, 8])
def test_the_bound_is_never_below_the_exact_divergence(scale: float, parties: int) -> None:
    noise = sum_of_noise(scale, parties)
    for change, place in itertools.product((1.0, 2.0, 2.5, 6.0), (0.0, 0.25, 0.5)):
        views = [np.convolve(noise, rounded(point)) for point in (place, place + change)]
        conversion = bound_of(in_steps(scale, change / 2), parties)
        mu = conversion.hidden_by(parties, change).mu
        assert conversion.epsilon(mu, DELTA) >= exact_epsilon(views[0], views[1], DELTA)
        for epsilon in (0.0, 0.5, 2.0, 6.0):
            assert exact_delta(views[0], views[1], epsilon) <= conversion.delta(mu, epsilon) * (1 + 1e-9)


def test_continuous_noise_would_say_too_little() -> None:
    """The check above can fail: what a certificate with continuous noise says is below the truth."""
    views = [np.convolve(sum_of_noise(4.0, 8), rounded(point)) for point in (0.5, 3.0)]
    truth = exact_epsilon(views[0], views[1], DELTA)
    assert epsilon_of_mu(2.5 / (4.0 * math.sqrt(8)), DELTA) < truth
    assert spent_epsilon(in_steps(4.0, 1.25), 2.5, 8, 1, DELTA) > truth


@pytest.mark.parametrize("parties", [1, 3])
def test_two_coordinates_rounded_conditionally(parties: int) -> None:
    """Whole vectors of norm <= 3 are exchanged; rounding is drawn again where it makes them too long."""
    clip, scale = 3.0, 2.0
    bound = conditional_norm(clip, 2, 1.0)
    noise = sum_of_noise(scale, parties)
    spent = spent_epsilon(in_steps(scale, clip, "conditional", 2), 2 * clip, parties, 2, DELTA)

    def view(vector: tuple[float, float]) -> Array:
        corners = {}
        for up in itertools.product((0, 1), repeat=2):
            point = tuple(math.floor(entry) + step for entry, step in zip(vector, up, strict=True))
            chance = math.prod(
                1 - abs(entry - place) if abs(entry - place) < 1 else 0.0 for entry, place in zip(vector, point, strict=True)
            )
            if math.hypot(*point) <= bound and chance > 0:
                corners[point] = chance
        table = np.zeros((2 * _ROOM, 2 * _ROOM))
        for point, chance in corners.items():
            table[point[0] + _ROOM, point[1] + _ROOM] = chance / sum(corners.values())
        rows = np.apply_along_axis(np.convolve, 1, table, noise)
        both: Array = np.apply_along_axis(np.convolve, 0, rows, noise)
        return both

    for vector in [(3.0, 0.0), (2.1, 2.1), (1.3, 2.7), (2.5, 1.6)]:
        assert exact_epsilon(view(vector), view((-vector[0], -vector[1])), DELTA) <= spent


# --- executions --------------------------------------------------------------------------------------------------------------


def planned(name: str, **changes: float) -> Plan:
    target = {"parties": 24, "dimension": 4, "epsilon": 2.0, "delta": DELTA, "sensitivity": 1.0, "colluding": 2, "dropouts": 0.25}
    return calibrate(Target(**{**target, **changes}), configure(name))  # type: ignore[arg-type]


def secagg(protocol: Mechanism) -> SecAgg:
    assert isinstance(protocol, SecAgg)
    return protocol


def executed(plan: Plan, gone: int) -> Execution:
    trace = ExecutionTrace.everyone(7, plan.target.parties)
    if gone:
        trace.online[1:, -gone:] = False
    return plan.execution(Seed.public("a study"), trace)


def certified_epsilon(execution: Execution, colluding: int) -> float:
    certificate = execution.privacy(DELTA).coalitions(colluding, limit=60)
    assert certificate.to_json()["numbers"] == UPPER_BOUND
    return certificate.max_epsilon


def conversion_of(execution: Execution) -> DiscreteLossConversion:
    conversion = execution.privacy(DELTA).terms.conversion
    assert isinstance(conversion, DiscreteLossConversion)
    return conversion


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["secagg", "secagg-plus"])
def test_the_certificate_is_the_plan_for_the_fewest_survivors(name: str) -> None:
    plan = planned(name)
    fewest = certified_epsilon(executed(plan, 6), 2)
    assert 2.0 * (1 - 2e-5) <= fewest <= 2.0
    # More survivors than were counted on cost less, and exactly what the same bound says of their number.
    everybody = executed(plan, 0)
    spent = spent_epsilon(secagg(plan.protocol), 1.0, 22, 4, DELTA)
    assert certified_epsilon(everybody, 2) == pytest.approx(spent, rel=1e-6)
    assert spent < fewest
    assert certified_epsilon(everybody, 5) == pytest.approx(spent_epsilon(secagg(plan.protocol), 1.0, 19, 4, DELTA), rel=1e-6)
    # It is above what continuous noise would say.
    gaussian = PrivacyAnalysis.of_gaussian(everybody.transcript(), 1.0, DELTA).against({1, 2})
    assert gaussian.max_epsilon < spent


def test_against_everybody_else_only_the_own_noise_counts() -> None:
    plan = planned("secagg")
    execution = executed(plan, 1)
    privacy = execution.privacy(DELTA)
    alone = privacy.single_honest()
    expected = spent_epsilon(secagg(plan.protocol), 1.0, 1, 4, DELTA)
    assert privacy.epsilon(float(alone[0])) == pytest.approx(expected, rel=1e-6)
    assert alone[-1] == 0.0, "who left before its input arrived tells nothing"


def test_a_coalition_that_can_open_masks_sees_single_inputs() -> None:
    plan = planned("secagg")
    threshold = secagg(plan.protocol).threshold
    conversion = conversion_of(executed(plan, 0))
    # Party 0 is the aggregator. Without it shares are of no use.
    below, enough = frozenset(range(threshold - 1)), frozenset(range(threshold))
    assert set(conversion.unknown_noise(Adversary(below)).tolist()) == {0, 24 - threshold + 1}
    assert set(conversion.unknown_noise(Adversary(enough)).tolist()) == {0, 1}
    others = frozenset(range(1, threshold + 1))
    assert set(conversion.unknown_noise(Adversary(others)).tolist()) == {0, 24 - threshold}


def test_a_coalition_that_cuts_the_graph_sees_the_sums_of_the_parts() -> None:
    raw = {"threshold": 3, "minimum": 2, "granularity": 0.01, "sigma": 1.0, "clip": 1.0, "degree": 2, "dimension": 1}
    parameters = SecAggPlus.read(raw).resolved(10)
    schedule = parameters.draw_schedule(10, Seed.public("ring"))
    execution = Execution(parameters, schedule, ExecutionTrace.everyone(7, 10), 1.0, np.ones(10))
    conversion = conversion_of(execution)
    ring = [0]
    while len(ring) < 10:
        ring.append(next(other for other in schedule.partners(ring[-1]) if other not in ring))
    corrupt = frozenset({ring[0], ring[4]})
    sizes = conversion.unknown_noise(Adversary(corrupt))
    assert [int(sizes[party]) for party in ring] == [0, 3, 3, 3, 0, 5, 5, 5, 5, 5]
    # A corrupt party that is not the aggregator is of no use to an aggregator that is honest.
    assert set(conversion.unknown_noise(Adversary(frozenset({ring[4]}))).tolist()) == {0, 9}
    worst = execution.privacy(DELTA).against(corrupt)
    assert worst.max_epsilon == pytest.approx(spent_epsilon(parameters, 1.0, 3, 1, DELTA), rel=1e-6)


def test_deltas_at_other_epsilons_are_bounds_too() -> None:
    plan = planned("secagg")
    conversion = conversion_of(executed(plan, 6))
    mu = executed(plan, 6).privacy(DELTA).against({0, 1}).max_mu
    scale, change = secagg(plan.protocol).scale, 1.0 / secagg(plan.protocol).granularity
    assert change > 1000, "rounding hardly matters"
    continuous = change / (scale * math.sqrt(16))
    for epsilon in (0.5, 1.0, 3.0):
        # At such scales the truth is that of continuous noise to many digits, and the bound is close.
        assert delta_of_mu(continuous, epsilon) < conversion.delta(mu, epsilon) < 1.02 * delta_of_mu(continuous, epsilon) + 1e-9
    for delta in (1e-7, 1e-3):
        assert epsilon_of_mu(continuous, delta) < conversion.epsilon(mu, delta) < 1.002 * epsilon_of_mu(continuous, delta)
    assert conversion.group_epsilon(mu, 2.0, DELTA) > 2 * conversion.epsilon(mu, DELTA)


def test_a_study_reports_the_bound_under_its_name() -> None:
    columns = [Column(name=name, low=0, high=1, missing="centre") for name in "ab"]
    query = Workload(Columns(columns), tuple(Mean(column=name) for name in "ab"), PrivacyUnit.RECORD)
    target = Target(8, 1.0, 1e-6, query.dimension, query.sensitivity, colluding=1, unit=PrivacyUnit.RECORD)
    plan = calibrate(target, SecAgg())
    trace = ExecutionTrace.everyone(7, 8)
    weights = np.array([3.0, 1, 1, 1, 1, 1, 1, 1])
    outcome = conclude(query, target, plan.execution(Seed.public("study"), trace, weights), np.full(query.dimension, 0.5))
    told = outcome.certificate_json()
    assert outcome.epsilon <= 1.0
    assert outcome.epsilon == pytest.approx(1.0, rel=1e-4)
    assert told["numbers"] == UPPER_BOUND
    assert "cannot break its encryption" in told["definition"]
    assert any("discrete Gaussian" in note["text"] for note in told["assumptions"])
    assert not any("Gaussian noise, the same" in note["text"] for note in told["assumptions"])
    protocol = secagg(plan.protocol)
    # Three records of one party change together: by the same bound for three times the sensitivity at least.
    three = spent_epsilon(protocol, 3 * query.sensitivity, 7, query.dimension, 1e-6)
    assert told["whole_party_epsilon"] == pytest.approx(three, rel=0.1)
    assert told["whole_party_epsilon"] > epsilon_of_mu(3 * query.sensitivity / protocol.sigma / math.sqrt(7), 1e-6)
    # Noise of eight parties and their rounding, over the squared number of records.
    variance = 8 * (protocol.sigma**2 + protocol.granularity**2 / 6) / 100
    errors = [answer.estimates.standard_error for answer in outcome.answers]
    np.testing.assert_allclose(errors, math.sqrt(variance), rtol=1e-9)


def test_without_noise_or_without_a_dimension() -> None:
    plan = planned("secagg")
    execution = executed(plan, 0)
    silent = replace(execution, protocol=replace(secagg(plan.protocol), noise="none", sigma=0.0))
    assert silent.privacy(DELTA).against().max_mu == math.inf
    nameless = replace(execution, protocol=replace(secagg(plan.protocol), dimension=None))
    refused("dimension", nameless.privacy, DELTA)
    exact = certificate_of(execution.transcript(), Adversary(), 1.0)
    assert exact.to_json()["numbers"] == EXACT
    bound = execution.privacy(DELTA).against()
    refused("mutual information", bound.to_json, prior_sd=1.0)


def test_there_is_no_attack_on_sums_that_are_rounded() -> None:
    refused(
        "Attack sums with Gaussian noise, the only ones that this attack is for",
        attack,
        executed(planned("secagg"), 0),
        3,
        Adversary(),
        trials=200,
    )


@pytest.mark.slow
def test_the_page_about_a_certificate_says_the_bound(tmp_path: Path) -> None:
    execution = executed(planned("secagg-plus", parties=8, colluding=1), 0)
    write_certificate_report(execution, tmp_path / "page.html", delta=DELTA, size=1)
    text = (tmp_path / "page.html").read_text()
    spent = spent_epsilon(secagg(execution.protocol), 1.0, 7, 4, DELTA)
    assert f"ε\xa0=\xa0{rounded_up(spent)}" in text
    assert "(discrete Gaussian)" in text


def test_the_chance_to_wrap_inverts_the_bound_of_the_sum() -> None:
    plan = planned("secagg")
    coarse = secagg(plan.protocol)
    room = 2.0 ** (coarse.bits - 1) * coarse.granularity
    chance = wrap_chance(coarse, 24, 4)
    assert sum_bound(coarse, 24, 4, chance) <= room
    assert chance == 2.0**-500 or sum_bound(coarse, 24, 4, chance / 2) > room
