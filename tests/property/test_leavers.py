"""What parties show that leave, or that end without any release: within what the plan promises, in histories drawn and chosen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, churn
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Adversary, mu_of_budget
from quietmean.protocols.discrete import NoiseNumbers
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.randomness import Seed
from quietmean.transcript import Transcript

# Of linear algebra.
TOLERANCE = 1e-6
ROUNDS = 8
PLACES = [(6, 1), *(pytest.param(parties, colluding, marks=pytest.mark.slow) for parties, colluding in ((7, 2), (8, 1), (8, 3)))]


@cache
def planned(parties: int, colluding: int, gate: bool, injection: str, dropouts: float = 0.2) -> Plan:
    """In real numbers: bounds for whole ones are a little above, in certificate and promise alike."""
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, colluding=colluding, dropouts=dropouts)
    protocol = IncA(rounds=ROUNDS, injection=injection, noise=NoiseNumbers.INSECURE_FLOAT64)
    return calibrate(target, protocol, trials=3 if gate else 0)


def histories(plan: Plan) -> Iterator[ExecutionTrace]:
    """Drawn ones; one party, all but one and all of them leaving after each round."""
    rounds, parties = plan.protocol.rounds, plan.target.parties
    for number in range(3):
        yield churn(Seed.public("leavers", number), rounds, parties, permanent=0.4, temporary=0.1)
    for last, gone in itertools.product(range(rounds), ([0], range(1, parties), range(parties))):
        online = np.ones((rounds + 1, parties), dtype=np.bool_)
        online[last + 1 :, list(gone)] = False
        yield ExecutionTrace(online)


def told(execution: Execution, party: PartyId, corrupt: frozenset[PartyId]) -> float:
    """mu of the certificate against these, or against these and all that left, where one of these did."""
    gone = frozenset(np.nonzero(~execution.trace.finished)[0].tolist()) - {party}
    corrupt |= gone if corrupt & gone else frozenset()
    certificate = execution.privacy(1e-6).against(corrupt)
    return float(certificate.mu_upper[list(certificate.honest).index(party)])


def worst_told(plan: Plan, seed: Seed, *, leavers: bool) -> float:
    """The largest mu against a party's receivers, all others, and some others; of ``leavers`` alone, or of everybody."""
    worst = 0.0
    for trace in histories(plan):
        execution = plan.execution(seed, trace)
        # One of those who leave together is as good as any.
        parties = np.nonzero(~trace.finished)[0][:2] if leavers else np.array([0, plan.target.parties - 1])
        for party in parties.tolist():
            others = frozenset(range(plan.target.parties)) - {party}
            receivers = frozenset(execution.schedule.neighbours[:, party].ravel().tolist()) & others
            some = frozenset(sorted(others)[: plan.target.colluding])
            worst = max([worst, *(told(execution, party, corrupt) for corrupt in (receivers, others, some))])
    return worst


@pytest.mark.parametrize(("parties", "colluding"), PLACES)
@pytest.mark.parametrize("injection", ["incremental", pytest.param("early", marks=pytest.mark.slow)])
def test_without_a_gate_nobody_shows_more_than_own_noise_allows(parties: int, colluding: int, injection: str) -> None:
    plan = planned(parties, colluding, False, injection)
    assert isinstance(plan.protocol, IncA)
    assert not plan.gated
    assert plan.protocol.sigma_guard == 0.0
    promised = plan.a_priori.mu
    assert promised == pytest.approx(1.0 / plan.protocol.sigma_star)
    # Those who stay and those who leave alike, whether or not anything is released.
    assert worst_told(plan, Seed.public("no gate"), leavers=False) <= promised * (1 + TOLERANCE)


@pytest.mark.parametrize(("parties", "colluding"), PLACES)
@pytest.mark.parametrize("injection", ["incremental", pytest.param("early", marks=pytest.mark.slow)])
def test_with_a_gate_leavers_show_no_more_than_the_target(parties: int, colluding: int, injection: str) -> None:
    plan = planned(parties, colluding, True, injection)
    limit = mu_of_budget(1.0, 1e-6)
    assert plan.a_priori.mu <= limit * (1 + TOLERANCE)
    assert worst_told(plan, Seed.public("gate"), leavers=True) <= limit * (1 + TOLERANCE)


def test_a_gated_plan_without_its_guard_is_found_out() -> None:
    plan = planned(10, 1, True, "incremental", 0.1)
    assert isinstance(plan.protocol, IncA)
    assert plan.gated
    assert plan.protocol.sigma_guard > 0
    careless = replace(plan, protocol=replace(plan.protocol, sigma_guard=0.0))
    assert worst_told(careless, Seed.public("gate"), leavers=True) > mu_of_budget(1.0, 1e-6) * (1 + 1e-3)


@pytest.mark.parametrize("gate", [False, True])
def test_what_is_told_of_leavers_is_what_their_messages_say(gate: bool) -> None:
    """By hand, from all maps as dense matrices; and a certificate that forgets a leaver is found out."""
    plan, checked, forgotten = planned(6, 1, gate, "incremental"), 0, 0
    for trace in itertools.islice(histories(plan), 14):
        execution = plan.execution(Seed.public("by hand"), trace)
        for party in np.nonzero(~trace.finished)[0].tolist():
            corrupt = frozenset(execution.schedule.neighbours[:, party].ravel().tolist()) - {party}
            transcript = execution.transcript()
            exact = by_hand(transcript, party, corrupt)
            found = execution.privacy(1e-6).against(corrupt)
            assert float(found.mu_upper[list(found.honest).index(party)]) == pytest.approx(exact, rel=1e-5)
            absent = trace.online.copy()
            absent[1:, party] = False
            careless = by_hand(execution.with_trace(ExecutionTrace(absent)).transcript(), party, corrupt)
            checked += exact > 0.05
            forgotten += careless < exact * 0.99
    assert checked > 3
    assert forgotten > 2


def by_hand(transcript: Transcript, party: PartyId, corrupt: frozenset[PartyId]) -> float:
    """mu of one party's value in all that these see, of unit sensitivity."""
    values, noise = transcript.eliminated()
    view = Adversary(corrupt).view(transcript)
    honest = np.array([other for other in range(transcript.parties) if other not in corrupt])
    hidden = noise[np.ix_(view.messages, ~view.noise)]
    shifts = values[view.messages][:, honest]
    information = shifts.T @ np.linalg.pinv(hidden @ hidden.T, rcond=1e-11, hermitian=True) @ shifts
    place = honest.tolist().index(party)
    return float(np.sqrt(information[place, place]))
