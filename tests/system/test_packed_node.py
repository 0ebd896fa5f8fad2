"""Packed sharing between real processes: some are killed for good at random instants, leaders among them, others come back."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from quietmean.core.party import PartyId, Vector
from quietmean.node.local import Kill, LocalOutcome
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import Candidate
from quietmean.protocols.mechanism import mixing_messages
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from support.processes import require_agreement, run_processes


def plan_of(parties: int, dimension: int, dropouts: float = 0.2) -> Plan:
    target = Target(parties, 2.0, 1e-5, dimension, math.sqrt(dimension), colluding=1, dropouts=dropouts)
    return calibrate(target, PackedSharing.read({}))


def values_of(plan: Plan) -> Vector:
    """In the unit box, as statistics encode them."""
    shape = plan.target.parties, plan.target.dimension
    found: Vector = BitStream(insecure_seed(31)).uniform(shape[0] * shape[1]).reshape(shape)
    return found


def run(plan: Plan, directory: Path, kills: list[Kill], round_timeout: float = 6.0) -> LocalOutcome:
    waits = {"round_timeout": round_timeout, "gone_timeout": round_timeout / 4}
    return run_processes(plan, values_of(plan), directory, kills, **waits)


def check(plan: Plan, outcome: LocalOutcome, gone: set[PartyId]) -> None:
    """All that stay have the same sum, over the inputs that their receipts state, as far off as the plan says."""
    protocol, values = plan.protocol, values_of(plan)
    assert isinstance(protocol, PackedSharing)
    first = require_agreement(outcome, set(range(plan.target.parties)) - gone)
    inputs = first.execution.contributors().nonzero()[0].tolist()
    assert len(inputs) >= protocol.minimum
    errors = (first.total_vector - values[inputs].sum(axis=0)) / math.sqrt(len(inputs) * protocol.sigma**2)
    # Rounding adds less than 10 % to the variance: the mean of so many squares is within 6 standard errors of that.
    assert (errors**2).mean() < 1.1 * (1 + 6 * math.sqrt(2 / errors.size))


def test_five_processes_one_of_which_dies_after_dealing(tmp_path: Path) -> None:
    plan = plan_of(5, 200)
    outcome = run(plan, tmp_path, [Kill(3, round=2)])
    check(plan, outcome, {3})


@pytest.mark.slow
def test_as_many_bytes_are_sent_as_plans_say(tmp_path: Path) -> None:
    """Ten processes, a vector of 1e5 numbers; all frames of each process, handshakes and logs included, within 10 %."""
    plan = plan_of(10, 100_000)
    outcome = run(plan, tmp_path, [], round_timeout=60.0)
    check(plan, outcome, set())
    sent = [result.bytes_sent for result in outcome.results.values()]
    predicted = Candidate(plan, mixing_messages(plan.protocol, plan.target.parties, 1), 0.0).bytes_sent
    print(f"\nbytes a party: {min(sent)} to {max(sent)}, predicted {predicted:.0f}; {predicted / 4e5:.2f} d numbers of 4 bytes")
    for one in sent:
        assert abs(one - predicted) < 0.1 * predicted


@pytest.mark.slow
def test_a_leader_dies_in_each_phase_and_others_come_back(tmp_path: Path) -> None:
    """Whoever leads: one of six dies for good in each round in turn, and one more is killed and comes back."""
    plan = plan_of(6, 200)
    for round_ in (1, 2, 3, 4, 5):
        folder = tmp_path / str(round_)
        folder.mkdir()
        dying = (round_ * 5) % 6
        outcome = run(plan, folder, [Kill(dying, round_), Kill((dying + 2) % 6, round_, 1.0)])
        check(plan, outcome, {dying})


def kills_of(seed: int, parties: int, gone: int, back: int) -> list[Kill]:
    """Of random parties ``gone`` are killed for good and ``back`` come back: as a round begins, or half a second into it."""
    chance = BitStream(insecure_seed(seed, "kills"))
    victims = chance.permutation(parties)[: gone + back].tolist()
    rounds, later = 1 + chance.integers(5, gone + back), 0.5 * chance.uniform(gone + back)
    at_once = chance.uniform(gone + back) < 0.5
    return [
        Kill(victim, int(rounds[k]), None if k < gone else 1.0, after=None if at_once[k] else float(later[k]))
        for k, victim in enumerate(victims)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_eight_processes_of_which_two_are_killed_for_good_and_two_come_back(tmp_path: Path, seed: int) -> None:
    plan = plan_of(8, 500, dropouts=0.25)
    kills = kills_of(seed, 8, 2, 2)
    outcome = run(plan, tmp_path, kills, round_timeout=12.0)
    # Who had finished before its time was not killed.
    gone = {kill.party for kill in kills if kill.restart_after is None} - set(outcome.results)
    check(plan, outcome, gone)
    print(f"\nseed {seed}: {outcome.seconds:.1f} s, killed {outcome.killed}, gone for good {sorted(gone)}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_thirty_processes_of_which_six_are_killed_for_good(tmp_path: Path, seed: int) -> None:
    plan = plan_of(30, 10_000)
    chance = BitStream(insecure_seed(seed, "kills"))
    victims = chance.permutation(30)[:9].tolist()
    rounds, later = 1 + chance.integers(5, 9), 0.5 * chance.uniform(9)
    kills = [Kill(victim, int(rounds[k]), None if k < 6 else 1.0, after=float(later[k])) for k, victim in enumerate(victims)]
    outcome = run(plan, tmp_path, kills, round_timeout=30.0)
    gone = set(victims[:6]) - set(outcome.results)
    check(plan, outcome, gone)
    print(
        f"\n30 processes, d = 1e4: {outcome.seconds:.1f} s, {len(gone)} gone for good, "
        f"{outcome.bytes_sent / len(outcome.results):.0f} bytes sent per survivor"
    )
