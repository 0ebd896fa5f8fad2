"""The solver by rounds and the iterative bounds against the sparse solver and against Theorem 4.1, on random executions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from quietmean.graphs import SCHEDULES, ExecutionTrace, churn, make_schedule
from quietmean.graphs.schedule import NOBODY
from quietmean.privacy import Adversary, bound_mu, noise_levels
from quietmean.privacy.information import CoalitionSolver
from quietmean.privacy.information.round_recursion import private_diagonal, recursive_information
from quietmean.privacy.information.round_structure import find_rounds
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.randomness.insecure import insecure_seed
from quietmean.testing import theorem41
from quietmean.testing.privacy import certificate_of

CASES, BLOCKS = 240, 8
AGREEMENT = 1e-8
WIDTH = 1e-3


@dataclass(frozen=True)
class Case:
    """A random execution with incremental injection and its adversary, all from one printed number."""

    execution: Execution
    adversary: Adversary

    @property
    def protocol(self) -> IncA:
        assert isinstance(self.execution.protocol, IncA)
        return self.execution.protocol

    @property
    def floor(self) -> float:
        """Less than this is what rounding makes of a leak of zero: 1e-6 of local DP, in mu^2."""
        return 1e-6 / self.protocol.sigma_star**2

    def reference(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """mu^2 per honest party, by Theorem 4.1."""
        exact = theorem41(self.execution.to_json(), self.adversary.corrupt, self.adversary.observed)
        return np.array(list(exact.values()))


def make_case(number: int) -> Case:
    numbers = np.random.default_rng([number, 41])
    parties, rounds, out_degree = int(numbers.integers(4, 21)), int(numbers.integers(1, 9)), 1 + number % 3
    kinds = [kind for kind in SCHEDULES if kind not in ("hypercube", "complete")]
    if rounds * out_degree > parties - 1:
        kinds.remove("never-same")
    kind = kinds[number % len(kinds)]
    if number % 16 == 0:
        kind, parties = "hypercube", 8
    elif number % 16 == 1:
        kind, parties = "complete", 6
    seed = insecure_seed(number, "structured")
    schedule = make_schedule(kind, seed, parties, rounds, min(out_degree, parties - 1))
    permanent, temporary = numbers.choice([0.0, 0.1, 0.3], 2)
    trace = churn(seed, rounds, parties, float(permanent), float(temporary))
    lost = (numbers.random(schedule.neighbours.shape) < numbers.choice([0.0, 0.15])) & (schedule.neighbours != NOBODY)
    raw = {
        "rounds": rounds,
        "sigma_star": 10.0 ** numbers.uniform(-1, 1),
        "sigma_delta": 10.0 ** numbers.uniform(-1, 1),
    }
    execution = Execution(IncA.parse(raw, parties), schedule, ExecutionTrace(trace.online, lost), 1.0, np.ones(parties))
    return Case(execution, _adversary(numbers, execution, number // 2 % 4))


def _adversary(numbers: np.random.Generator, execution: Execution, kind: int) -> Adversary:
    """In turn: collusion, eavesdropping, both, and an outsider."""
    parties, rounds = execution.parties, execution.schedule.rounds
    corrupt = numbers.permutation(parties)[: numbers.integers(1, max(2, parties // 2))].tolist() if kind in (0, 2) else []
    fraction = numbers.choice([0.1, 0.5, 1.0]) if kind in (1, 2) else 0.0
    # What a party held after a round in which it was away is what it held before.
    sent = [(i, t) for t in range(rounds) for i in range(parties) if execution.trace.online[t + 1 :, i].any()]
    return Adversary(frozenset(corrupt), frozenset(pair for pair in sent if numbers.random() < fraction))


def _online_observed(case: Case) -> Case:
    """Theorem 4.1 reads (i, t) as y_i^(t) of round t; keep the pairs for which that was sent in the next round."""
    online = case.execution.trace.online
    kept = frozenset((i, t) for i, t in case.adversary.observed if online[t + 1, i])
    return Case(case.execution, Adversary(case.adversary.corrupt, kept))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_by_rounds_equals_sparse_and_theorem_4_1(block: int) -> None:
    worst = 0.0
    for number in range(block, CASES, BLOCKS):
        case = _online_observed(make_case(number))
        transcript, reference = case.execution.transcript(), case.reference()
        structure = find_rounds(transcript)
        assert structure is not None, f"case {number}"
        information = recursive_information(structure, case.adversary)
        assert information is not None, f"case {number}"
        sparse = certificate_of(transcript, case.adversary, 1.0, "sparse")
        assert information.honest == sparse.honest
        for other in (reference, sparse.mu**2):
            deviation = np.abs(information.mu(1.0) ** 2 - other) / np.maximum(other, case.floor)
            assert deviation.max() <= AGREEMENT, f"case {number} deviates by {deviation.max():.3g}"
            worst = max(worst, float(deviation.max()))
        assert (information.mu_upper(1.0) ** 2 >= reference * (1 - 1e-11)).all()
        np.testing.assert_allclose(
            information.finite, sparse.information.finite, rtol=AGREEMENT, atol=1e4 * AGREEMENT * case.floor
        )
    print(f"worst relative deviation of mu^2 in block {block}: {worst:.2e}")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_message_waiting_for_its_sender_to_return_is_intercepted_when_sent(block: int) -> None:
    for number in range(block, CASES, BLOCKS):
        case = make_case(number)
        transcript = case.execution.transcript()
        structure = find_rounds(transcript)
        assert structure is not None
        information = recursive_information(structure, case.adversary)
        assert information is not None
        mine, sparse = information.mu(1.0) ** 2, certificate_of(transcript, case.adversary, 1.0, "sparse").mu ** 2
        assert (np.abs(mine - sparse) <= AGREEMENT * np.maximum(sparse, case.floor)).all(), f"case {number}"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_bounds_bracket_theorem_4_1(block: int) -> None:
    widest = 0.0
    for number in range(block, CASES, BLOCKS):
        case = _online_observed(make_case(number))
        transcript, mu = case.execution.transcript(), np.sqrt(case.reference())
        honest = case.adversary.honest(case.execution.parties)
        nothing = 1e-3 * np.sqrt(case.floor)
        for bounds in (bound_mu(transcript, case.adversary, 1.0, honest), bound_mu(transcript, case.adversary, 1.0)):
            for bound, exact in zip(bounds, mu, strict=True):
                # The reference itself is good to about 1e-12.
                assert bound.lower <= exact * (1 + 1e-11) + nothing, f"case {number}"
                assert bound.upper >= exact * (1 - 1e-11) - nothing, f"case {number}"
                if exact > np.sqrt(case.floor):
                    assert bound.relative_width <= WIDTH, f"case {number}"
                    widest = max(widest, bound.relative_width)
    print(f"widest bound in block {block}: {widest:.2e}")


@pytest.mark.parametrize("number", range(0, CASES, 12))
def test_one_decomposition_serves_all_noise_levels(number: int) -> None:
    case = make_case(number)
    transcript = case.execution.transcript()
    levels = noise_levels(transcript, case.adversary)
    for star, delta in ((0.1, 1.0), (2.0, 0.3), (1.0, 10.0)):
        other = transcript.with_noise_scales({"star": star, "delta": delta})
        expected = certificate_of(other, case.adversary, 2.0, "sparse").mu
        mine = levels.mu(star, delta / case.protocol.sigma_delta, 2.0)
        np.testing.assert_allclose(mine, expected, rtol=AGREEMENT, atol=1e-4 / star)


@pytest.mark.slow
def test_coalitions_of_a_large_execution_go_by_rounds() -> None:
    numbers = np.random.default_rng(5)
    seed = insecure_seed(5, "large")
    schedule = make_schedule("uniform", seed, 150, 20, 1)
    trace = churn(seed, 20, 150, 0.1, 0.1)
    protocol = IncA.parse({"rounds": 20, "sigma_star": 0.5, "sigma_delta": 3.0}, 150)
    transcript = Execution(protocol, schedule, trace, 1.0, np.ones(150)).transcript()
    solver = CoalitionSolver(transcript)
    for _ in range(3):
        coalition = numbers.permutation(150)[:15].tolist()
        expected = certificate_of(transcript, Adversary.collusion(coalition), 1.0, "sparse").mu
        np.testing.assert_allclose(solver.information(coalition).mu(1.0), expected, rtol=AGREEMENT, atol=1e-5)


def test_the_diagonal_alone_is_the_same() -> None:
    for number in range(0, CASES, 6):
        case = make_case(number)
        structure = find_rounds(case.execution.transcript())
        assert structure is not None
        information, found = recursive_information(structure, case.adversary), private_diagonal(structure, case.adversary)
        assert information is not None
        assert found is not None
        np.testing.assert_allclose(found[0], information.diagonal, rtol=AGREEMENT, atol=AGREEMENT * case.floor * 1e6)


def test_the_cases_cover_what_they_should() -> None:
    cases = [make_case(number) for number in range(CASES)]
    traces = [case.execution.trace for case in cases]
    assert sum(not trace.finished.all() for trace in traces) > CASES / 4
    assert sum(bool((~trace.online[:, trace.finished]).any()) for trace in traces) > CASES / 4
    assert sum(trace.lost is not None and bool(trace.lost.any()) for trace in traces) > CASES / 4
    assert sum(bool(case.adversary.corrupt and case.adversary.observed) for case in cases) > CASES / 5
    assert {int(case.execution.schedule.out_degree.max()) for case in cases} >= {1, 2, 3}
