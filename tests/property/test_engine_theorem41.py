"""The engine against Theorem 4.1 of the IncA paper, evaluated independently, on random executions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from quietmean.graphs import SCHEDULES, ExecutionTrace, churn, make_schedule
from quietmean.graphs.schedule import NOBODY
from quietmean.privacy import Adversary
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.randomness.insecure import insecure_seed
from quietmean.testing import example_execution, theorem41
from quietmean.testing.privacy import certificate_of

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
    execution = Execution(IncA.parse(raw, parties), schedule, ExecutionTrace(trace.online, lost), 1.0, np.ones(parties))
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
