"""The privacy engine: monotone, equal to Theorem 4.1, and right for every coalition."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.graphs import SCHEDULES, ExecutionTrace, churn, make_schedule
from quietmean.graphs.schedule import NOBODY
from quietmean.privacy import Adversary, Certificate, PrivacyAnalysis, information_matrix
from quietmean.privacy.coalitions import random_coalitions
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA, worst_case
from quietmean.protocols.inca.worst_case import Stars
from quietmean.randomness import Seed
from quietmean.randomness.insecure import insecure_seed
from quietmean.testing import example_execution, theorem41
from quietmean.testing.examples import certificate_of
from quietmean.testing.strategies import executions, values
from quietmean.transcript import Transcript
from support.effort import examples
from support.every_coalition import worst_mu

# -- Whoever learns more, or hears it through less noise, never knows less.
# Rounding, relative; on top of it, what is less than this is nothing next to a mu of local DP.
SLACK = 1e-7
EXECUTIONS = executions("inca")


def levels_of(execution: Execution) -> IncA:
    """The protocol, which has the noise levels."""
    assert isinstance(execution.protocol, IncA)
    return execution.protocol


def observable(transcript: Transcript) -> list[tuple[int, int]]:
    """All (party, round) with a message that is sent."""
    sent = np.nonzero((transcript.message_round > 0) & ~transcript.released)[0]
    pairs = zip(transcript.sender[sent].tolist(), (transcript.message_round[sent] - 1).tolist(), strict=True)
    return sorted(pairs)


@st.composite
def adversaries(draw: st.DrawFn, transcript: Transcript) -> Adversary:
    parties = st.integers(0, transcript.parties - 1)
    corrupt = draw(st.frozensets(parties, max_size=transcript.parties - 1))
    return Adversary(corrupt, draw(st.frozensets(st.sampled_from(observable(transcript)), max_size=6)))


def assert_no_less(more: Certificate, less: Certificate, floor: float) -> None:
    mine = dict(zip(more.honest, more.mu, strict=True))
    for party, mu in zip(less.honest, less.mu, strict=True):
        if party in mine:
            assert mine[party] >= mu * (1 - SLACK) - floor, f"party {party}: {mine[party]} after {mu}"


def floor_of(execution: Execution) -> float:
    return 1e-6 / levels_of(execution).sigma_star


def scales(execution: Execution, star: float = 1.0, cancelled: float = 1.0) -> dict[str, float]:
    """Times as much of the noise that stays, and of all that is cancelled."""
    levels = levels_of(execution)
    guard = float(getattr(levels, "sigma_guard", 0.0))
    return {"star": star * levels.sigma_star, "delta": cancelled * levels.sigma_delta, "guard": cancelled * guard}


@given(st.data())
def test_one_more_message_never_lowers_mu(data: st.DataObject) -> None:
    execution = data.draw(EXECUTIONS)
    transcript = execution.transcript()
    adversary = data.draw(adversaries(transcript))
    message = data.draw(st.sampled_from(observable(transcript)))
    more = replace(adversary, observed=adversary.observed | {message})
    assert_no_less(certificate_of(transcript, more, 1.0), certificate_of(transcript, adversary, 1.0), floor_of(execution))


@given(st.data())
def test_one_more_colluder_never_lowers_mu(data: st.DataObject) -> None:
    execution = data.draw(EXECUTIONS)
    transcript = execution.transcript()
    adversary = data.draw(adversaries(transcript))
    traitor = data.draw(st.sampled_from(adversary.honest(execution.parties)))
    more = replace(adversary, corrupt=adversary.corrupt | {traitor})
    assert_no_less(certificate_of(transcript, more, 1.0), certificate_of(transcript, adversary, 1.0), floor_of(execution))


@given(st.data(), st.floats(0.2, 1.0), st.floats(0.2, 1.0))
def test_less_noise_never_lowers_mu(data: st.DataObject, star: float, delta: float) -> None:
    execution = data.draw(EXECUTIONS)
    transcript = execution.transcript()
    adversary = data.draw(adversaries(transcript))
    quieter = transcript.with_noise_scales(scales(execution, star, delta))
    assert_no_less(certificate_of(quieter, adversary, 1.0), certificate_of(transcript, adversary, 1.0), floor_of(execution))


@given(st.data(), st.floats(0.1, 10.0))
def test_noise_and_values_in_other_units_change_nothing(data: st.DataObject, unit: float) -> None:
    execution = data.draw(EXECUTIONS)
    transcript, levels = execution.transcript(), levels_of(execution)
    adversary = data.draw(adversaries(transcript))
    scaled = transcript.with_noise_scales(scales(execution, unit, unit))
    one, other = certificate_of(transcript, adversary, 1.0), certificate_of(scaled, adversary, unit)
    np.testing.assert_allclose(one.mu, other.mu, rtol=1e-7, atol=floor_of(execution))
    np.testing.assert_allclose(
        information_matrix(scaled, adversary).scaled(unit**2).finite,
        one.information.finite,
        rtol=1e-6,
        atol=1e-6 / levels.sigma_star**2,
    )


@settings(max_examples=examples(150))
@given(st.data(), st.booleans())
def test_sparse_and_dense_agree(data: st.DataObject, noiseless: bool) -> None:
    execution = data.draw(EXECUTIONS)
    transcript = execution.transcript()
    if noiseless:
        transcript = transcript.with_noise_scales(scales(execution, star=0.0))
    adversary = data.draw(adversaries(transcript))
    sparse, dense = (certificate_of(transcript, adversary, 1.0, method) for method in ("sparse", "dense"))
    assert sparse.information.disclosed.shape == dense.information.disclosed.shape
    np.testing.assert_allclose(sparse.mu, dense.mu, rtol=1e-6, atol=floor_of(execution))
    assert (sparse.mu_upper >= dense.mu * (1 - 1e-10) - floor_of(execution)).all()


@given(st.data())
def test_a_change_of_all_honest_values_shifts_a_release_as_the_matrix_says(data: st.DataObject) -> None:
    """v' Lambda v of an outsider, from the released rows alone, by least squares."""
    execution = data.draw(executions("inca", max_parties=5))
    transcript = execution.transcript()
    information = information_matrix(transcript, Adversary())
    change = data.draw(values(execution.parties, max_dimension=1))[:, 0]
    shifts, noise = (matrix[transcript.released] for matrix in transcript.eliminated())
    expected = float(np.linalg.norm(np.linalg.lstsq(noise, shifts @ change, rcond=1e-11)[0])) if len(noise) else 0.0
    np.testing.assert_allclose(information.shift(change), expected, rtol=1e-6, atol=100 * floor_of(execution))


# -- The engine against Theorem 4.1 of the IncA paper, evaluated independently, on random executions.
CASES = 240
# The dense twin and the tracing cost more: every third case.
THOROUGH = 3
AGREEMENT = 1e-8


@dataclass(frozen=True)
class Case:
    """A random execution and its adversary, all from one printed number."""

    execution: Execution
    adversary: Adversary

    @property
    def protocol(self) -> IncA:
        assert isinstance(self.execution.protocol, IncA)
        return self.execution.protocol


def _injection(numbers: np.random.Generator, rounds: int) -> Any:
    kind = numbers.choice(["incremental", "early", "general", "scaled"])
    if kind in ("incremental", "early"):
        return str(kind)
    portion = numbers.uniform(0.2, 1.0, rounds + 1)
    noise = numbers.normal(size=(rounds, rounds)) + 2.0 * np.eye(rounds)
    injection = {"c": (portion / portion.sum()).tolist(), "Z": np.vstack([noise, -noise.sum(axis=0)]).tolist()}
    return injection | ({"sigma": numbers.uniform(0.3, 3.0, rounds).tolist()} if kind == "scaled" else {})


def make_case(number: int) -> Case:
    numbers = np.random.default_rng(number)
    parties, rounds, out_degree = int(numbers.integers(4, 21)), int(numbers.integers(3, 9)), int(numbers.integers(1, 4))
    usable = [kind for kind in SCHEDULES if kind not in ("hypercube", "complete")]
    if rounds * out_degree > parties - 1:
        usable.remove("never-same")
    kind = str(numbers.choice(usable))
    seed = insecure_seed(number, "theorem 4.1")
    schedule = make_schedule(kind, seed, parties, rounds, out_degree)
    permanent, temporary = numbers.choice([0.0, 0.1, 0.3], 2)
    trace = churn(seed, rounds, parties, float(permanent), float(temporary))
    lost = (numbers.random(schedule.neighbours.shape) < numbers.choice([0.0, 0.1])) & (schedule.neighbours != NOBODY)
    raw = {
        "rounds": rounds,
        "injection": _injection(numbers, rounds),
        "sigma_star": 10.0 ** numbers.uniform(-1, 1),
        "sigma_delta": 10.0 ** numbers.uniform(-1, 1),
    }
    execution = Execution(IncA.read(raw).resolved(parties), schedule, ExecutionTrace(trace.online, lost), 1.0, np.ones(parties))
    return Case(execution, _adversary(numbers, execution, number % 4))


def _adversary(numbers: np.random.Generator, execution: Execution, kind: int) -> Adversary:
    """In turn: collusion, eavesdropping, both, and an outsider."""
    parties, rounds = execution.parties, execution.schedule.rounds
    corrupt = numbers.permutation(parties)[: numbers.integers(1, max(2, parties // 2))].tolist() if kind in (0, 2) else []
    sent = [(i, t) for t in range(rounds) for i in range(parties) if execution.trace.online[t + 1, i]]
    fraction = numbers.choice([0.1, 0.3, 0.7]) if kind in (1, 2) else 0.0
    return Adversary(frozenset(corrupt), frozenset(pair for pair in sent if numbers.random() < fraction))


def _worst(case: Case, number: int) -> float:
    adversary, execution = case.adversary, case.execution
    expected = theorem41(execution.to_json(), adversary.corrupt, adversary.observed)
    reference = np.array(list(expected.values()))
    # A party whose messages all got lost leaks exactly nothing. Relative to that means relative to what rounding makes of zero:
    # 1e-14 of the local DP level is within the agreement of this.
    nothing = 1e-6 / case.protocol.sigma_star**2
    declared, worst = execution.transcript(), 0.0
    methods = [(declared, "sparse")]
    if number % THOROUGH == 0:
        traced = execution.traced_transcript()
        methods += [(declared, "dense"), (traced, "sparse"), (traced, "dense")]
    for transcript, method in methods:
        certificate = certificate_of(transcript, adversary, 1.0, method)
        information = certificate.information
        assert information.honest == tuple(expected)
        deviation = np.abs(information.mu(1.0) ** 2 - reference) / np.maximum(reference, nothing)
        worst = max(worst, float(deviation.max()))
        assert (certificate.mu_upper**2 >= reference).all()
    return worst


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(8))
def test_mu_squared_equals_theorem_4_1_for_every_honest_party(block: int) -> None:
    worst = 0.0
    for number in range(block, CASES, 8):
        deviation = _worst(make_case(number), number // 8)
        assert deviation <= AGREEMENT, f"case {number} deviates by {deviation:.3g}"
        worst = max(worst, deviation)
    print(f"worst relative deviation of mu^2 in block {block}: {worst:.2e}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ratio", [10.0, 30.0, 100.0, 300.0, 1000.0])
def test_the_upper_bound_holds_however_large_the_cancelled_noise_is(ratio: float) -> None:
    """Rounding in the sparse solver grows with (sigma_delta / sigma_star)^2: its stated error must grow along."""
    shortfalls = []
    for number in range(40):
        numbers = np.random.default_rng(number)
        execution = example_execution(
            "inca",
            10,
            number,
            permanent=(0.0, 0.2)[number % 2],
            rounds=6,
            sigma_star=0.5,
            sigma_delta=0.5 * ratio,
            schedule="uniform",
            injection=("incremental", "early")[number // 2 % 2],
        )
        adversary = Adversary.collusion(numbers.permutation(10)[: numbers.integers(0, 4)].tolist())
        expected = np.array(list(theorem41(execution.to_json(), adversary.corrupt).values()))
        upper = certificate_of(execution.transcript(), adversary, 1.0).mu_upper
        # What leaks next to nothing is left out: 1e-6 of the local DP level.
        loud = expected > 1e-6 / 0.5**2
        shortfalls.append(float((1 - upper[loud] ** 2 / expected[loud]).max(initial=-1.0)))
    # The reference itself is good to about 1e-12 here.
    assert max(shortfalls) <= 1e-11, f"{sum(s > 1e-11 for s in shortfalls)} executions, worst {max(shortfalls):.2g} too low"


def test_the_cases_cover_what_they_should() -> None:
    cases = [make_case(number) for number in range(CASES)]
    assert sum(not case.execution.trace.finished.all() for case in cases) > CASES / 4
    assert sum(bool((~case.execution.trace.online[:, case.execution.trace.finished]).any()) for case in cases) > CASES / 4
    assert {case.protocol.injections.name for case in cases} == {"incremental", "early", "general"}
    both = [case for case in cases if case.adversary.corrupt and case.adversary.observed]
    assert len(both) > CASES / 5


def test_the_theorem_refuses_what_it_does_not_cover() -> None:
    execution = make_case(0).execution
    with pytest.raises(ValueError, match="positive noise variances"):
        theorem41({**execution.to_json(), "sigma_star": 0.0})


# -- What is charged holds for every coalition: formulas against all coalitions, and against the worst that was found.
DELTA = 1e-6


def proven(execution: Execution, size: int) -> Any:
    """By formula alone: no coalition is tried, and everybody else together is not asked."""
    return execution.protocol.worst_coalition(execution.schedule, execution.trace, execution.sensitivity, size)


def test_partners_that_all_collude() -> None:
    """60 parties, noise shared with 8 partners, 12 colluders: random coalitions never hold all partners of one party."""
    execution = example_execution("cordp-dme", 60, partners=8, sigma_own=0.624986, sigma_pair=33.1796)
    privacy = execution.privacy(DELTA)
    random = max(one.max_epsilon for one in privacy.each(random_coalitions(range(60), 12, 100, Seed.public("coalitions"))))
    certificate = privacy.coalitions(12, limit=100)
    assert random < 1.0
    assert certificate.at_least == pytest.approx(8.424, abs=1e-3)
    assert certificate.max_epsilon == pytest.approx(privacy.epsilon(1 / 0.624986), rel=1e-6)
    assert certificate.kind == "bound for every coalition"
    assert certificate.exceed_probability == 0


@pytest.mark.slow
def test_receivers_that_all_collude(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 parties, 12 colluders: those to whom one party sends are worse than random ones, and the bound is above both."""
    # Among so many it says no more with more effort.
    monkeypatch.setattr(worst_case, "_BRANCHING", 1e9)
    execution = example_execution("inca", 60, 5, rounds=6, schedule="uniform", sigma_star=0.62, sigma_delta=3.0)
    privacy = execution.privacy(DELTA)
    random = max(one.max_epsilon for one in privacy.each(random_coalitions(range(60), 12, 100, Seed.public("coalitions"))))
    certificate = privacy.coalitions(12, limit=100)
    assert random < 0.9 * certificate.at_least
    assert certificate.at_least <= certificate.max_epsilon <= privacy.epsilon(1 / 0.62) * (1 + 1e-6)
    assert certificate.found is not None
    assert certificate.to_json()["at_least_epsilon"] == certificate.found.max_epsilon
    assert "a bound" in certificate.describe()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("size", [0, 1, 2, 4])
@pytest.mark.parametrize("injection", ["incremental", "early"])
@pytest.mark.parametrize("number", range(3))
def test_the_stars_of_inca_hold_for_all_coalitions(injection: str, number: int, size: int) -> None:
    """8 parties with dropouts; also where the diagonal bound serves instead of trying the sets of partners."""
    churn = {"permanent": 0.25, "temporary": 0.15} if number else {}
    noise = {"sigma_star": 0.7, "sigma_delta": 2.0, "out_degree": 1 + number % 2}
    execution = example_execution("inca", 8, number, rounds=5, injection=injection, **noise, **churn)
    true = worst_mu(execution.privacy(DELTA), size)
    bound = proven(execution, size).mu
    assert (bound >= true * (1 - 1e-6)).all()
    assert (bound <= 1 / 0.7 * (1 + 1e-6)).all()
    protocol: Any = execution.protocol
    stars = Stars(protocol, execution.schedule, execution.trace)
    coarse = np.sqrt([stars.of(party).worst_information(size, 10**9) for party in range(8)])
    assert (coarse >= bound * (1 - 1e-6)).all()


@pytest.mark.parametrize(("parties", "rounds"), [(14, 9), pytest.param(20, 11, marks=pytest.mark.slow)])
def test_a_star_is_worth_something(parties: int, rounds: int) -> None:
    """2 colluders: 1.35 times the exact mu at most, where own noise alone is worth more than 3 times that."""
    execution = example_execution("inca", parties, rounds=rounds, sigma_star=1.1, sigma_delta=4.0)
    exact = execution.privacy(DELTA).coalitions(2)
    assert exact.exhaustive
    assert float(proven(execution, 2).mu.max()) < 1.35 * exact.max_mu < 0.5 / 1.1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("aggregator", [None, 3])
@pytest.mark.parametrize("partners", [None, 4])
def test_shared_noise_by_formula(partners: int | None, aggregator: int | None) -> None:
    """cordp-dme with 9 parties and one that left: the formula for all pairs is exact where all messages are public."""
    noise: dict[str, Any] = {"sigma_own": 0.6, "sigma_pair": 1.7, "aggregator": aggregator, "partners": partners}
    for number, size in itertools.product(range(2), (0, 1, 2, 3, 7)):
        execution = example_execution("cordp-dme", 9, number, permanent=0.12 * number, **noise)
        true, bound = worst_mu(execution.privacy(DELTA), size), proven(execution, size).mu
        assert (bound >= true * (1 - 1e-9)).all()
        if aggregator is None and (partners is None or size >= 4):
            np.testing.assert_allclose(bound.max(), true.max(), rtol=1e-6)


def test_gopa_counts_no_noise_that_was_rolled_back() -> None:
    """The value of party 4 was sent but did not arrive: whoever rolled back has shown what it shares with party 4."""
    execution = example_execution("gopa", 7, partners=6, sigma_star=0.8, sigma_delta=3.0, aggregator=0)
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[0, 4, 0] = True
    late = execution.with_trace(ExecutionTrace(execution.trace.online, lost))
    assert proven(execution, 1).mu[4] < 0.8
    assert proven(late, 1).mu[4] == pytest.approx(1 / 0.8, rel=1e-9)
    assert (proven(late, 1).mu >= worst_mu(late.privacy(DELTA), 1) * (1 - 1e-9)).all()


def test_consensus_by_the_connectivity_of_its_graph() -> None:
    ring = [[party, (party + 1) % 8] for party in range(8)] + [[party, party + 4] for party in range(4)]
    noise: dict[str, Any] = {"sigma_z": 4.0, "local_noise": "gaussian", "sigma_local": 0.9}
    edges = sorted([min(edge), max(edge)] for edge in ring)
    execution = example_execution("consensus", 8, edges=edges, theta=0.2, c=0.4, iterations=4, **noise)
    for size in (1, 2, 3):
        true, bound = worst_mu(execution.privacy(DELTA), size), proven(execution, size).mu
        assert (bound >= true * (1 - 1e-6)).all()
    assert float(proven(execution, 1).mu.max()) < 0.75 / 0.9
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[2, 0, 0] = True
    assert proven(execution.with_trace(ExecutionTrace(execution.trace.online, lost)), 1) is None


def test_without_a_formula_everybody_else_counts() -> None:
    execution = example_execution("inca", 9, rounds=5, sigma_star=0.7, sigma_delta=2.0)
    privacy = PrivacyAnalysis.of_gaussian(execution.transcript(), 1.0, DELTA)
    certificate = privacy.coalitions(4, limit=20)
    np.testing.assert_allclose(certificate.mu, privacy.single_honest())
    assert certificate.proof == "everybody else together"


def test_what_nothing_bounds_is_infinite() -> None:
    certificate = example_execution("gossip", 12, rounds=5).privacy(DELTA).coalitions(5, limit=20)
    assert math.isinf(certificate.max_epsilon)


def test_trusted_parties_are_left_out_of_everybody_else() -> None:
    """The curator sees all values: a bound with it among the colluders would be worth nothing."""
    certificate = example_execution("central-dp", 12, sigma=1.5).privacy(DELTA).coalitions(5, limit=20)
    assert certificate.mu == pytest.approx(np.full(12, 1 / 1.5))
