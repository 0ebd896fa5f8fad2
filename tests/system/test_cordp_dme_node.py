"""CorDP-DME between real processes over TLS: keys are agreed, noise is shared in pairs, some die before they publish."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.party import PartyId, Vector
from quietmean.node.local import Kill, LocalOutcome
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols.cordp_dme import CorDPDME
from quietmean.protocols.cordp_dme.design import unbiased_mse
from quietmean.randomness import ExchangeKey, SecureNoise, Seed
from quietmean.testing.statistics import assert_variance
from support.processes import require_agreement, run_processes

# A party as always, but for this: its seed, which its store loses at the end, is left beside its settings.
LEAVES_ITS_SEED = """
import sys
from pathlib import Path
from quietmean.node.local import child
from quietmean.node.storage import Store

finish = Store.finish

def leave_seed(store, *arguments):
    Path(sys.argv[1] + ".seed").write_bytes(store.seed.secret)
    finish(store, *arguments)

Store.finish = leave_seed
sys.exit(child.main(Path(sys.argv[1]), int(sys.argv[2])))
"""
PROGRAM = ("-c", LEAVES_ITS_SEED)


def make_plan(parties: int, dimension: int, dropouts: float, options: Mapping[str, Any] | None = None) -> Plan:
    return calibrate(Target(parties, 1.0, 1e-6, dimension, 1.0, 1, dropouts), CorDPDME.read(options or {}))


def make_values(parties: int, dimension: int) -> Vector:
    """In the plan's cube, of diameter 1."""
    values: Vector = (1 + np.sin(np.arange(parties * dimension, dtype=np.float64)).reshape(parties, dimension)) / (
        2 * np.sqrt(dimension)
    )
    return values


class StoredNoise:
    """The noise of all parties of a run, from the secrets in the stores of who was killed and beside those of the others."""

    def __init__(self, directory: Path) -> None:
        self._study, self._seeds = "", []
        for path in sorted(directory.glob("*.store")):
            with contextlib.closing(sqlite3.connect(path)) as database:
                facts = dict(database.execute("SELECT name, value FROM fact WHERE name IN ('seed', 'study')"))
            kept = path.with_name(f"{path.stem}.settings.json.seed")
            self._seeds.append(Seed(facts["seed"] if "seed" in facts else kept.read_bytes()))
            self._study = facts["study"].decode()
        self._keys = [ExchangeKey(seed) for seed in self._seeds]

    def party(self, party: PartyId) -> SecureNoise:
        def shared(other: PartyId) -> Seed:
            return self._keys[party].shared_seed(self._keys[other].public, f"{self._study} {CorDPDME.name}")

        return SecureNoise(self._seeds[party].derive(self._study, CorDPDME.name), shared)


def check_outcome(outcome: LocalOutcome, values: Vector, killed: set[int]) -> Vector:
    """Everybody who is left has the same total, of exactly those who published; their errors, shape (d,)."""
    survivors = tuple(party for party in range(len(values)) if party not in killed)
    assert set(outcome.killed) == killed
    first = require_agreement(outcome, survivors)
    for result in outcome.results.values():
        assert result.heard == survivors
        assert result.execution.trace.online[1].tolist() == [party not in killed for party in range(len(values))]
        assert result.execution.contributors().sum() == len(survivors)
    errors: Vector = first.mean - values[list(survivors)].mean(axis=0)
    return errors


def total_of_machines(directory: Path, outcome: LocalOutcome, values: Vector) -> Vector:
    """What the party machines publish in lockstep, with the noise of this very run."""
    noise = StoredNoise(directory)
    execution = next(iter(outcome.results.values())).execution
    machines = [execution.machine(party, values[party], noise.party(party)) for party in range(len(values))]
    online = execution.trace.online[1]
    released = []
    for party in np.nonzero(online)[0].tolist():
        step = machines[party].end_round(machines[party].start().state, [], frozenset())
        assert step.release is not None
        released.append(step.release.vector)
    total: Vector = np.sum(released, axis=0)
    return total


@pytest.mark.slow
def test_eight_processes_of_which_one_dies(tmp_path: Path) -> None:
    plan, values = make_plan(8, 3, dropouts=0.125), make_values(8, 3)
    outcome = run_processes(plan, values, tmp_path, [Kill(5, 1)], program=PROGRAM)
    check_outcome(outcome, values, {5})
    expected = total_of_machines(tmp_path / "run", outcome, values)
    np.testing.assert_allclose(outcome.results[0].total_vector, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_an_aggregator_collects_the_messages(tmp_path: Path) -> None:
    plan, values = make_plan(5, 2, 0.0, {"aggregator": 2}), make_values(5, 2)
    outcome = run_processes(plan, values, tmp_path, [Kill(4, 1)], program=PROGRAM)
    assert set(outcome.results) == {0, 1, 2, 3}
    noise = StoredNoise(tmp_path / "run")
    for result in outcome.results.values():
        assert result.execution.contributors().tolist() == [True, True, True, True, False]
        execution = result.execution
        sources = [noise.party(party) for party in range(5)]
        machines = [execution.machine(party, values[party], sources[party]) for party in range(5)]
        sent = [machine.start() for machine in machines]
        inbox = [message for party in (0, 1, 3) for message in sent[party].send]
        release = machines[2].end_round(sent[2].state, inbox, frozenset()).release
        assert release is not None
        np.testing.assert_allclose(result.total_vector, release.vector, rtol=1e-9, atol=1e-9)
        assert result.total_weight == 4.0


@pytest.mark.slow
def test_fifty_processes_of_which_five_die(tmp_path: Path) -> None:
    """d = 10^4, planned for 45 responders: the total is what the machines say, and its error has the predicted variance.

    A correct build fails the variance test with probability 1e-6; with 10^4 coordinates it rejects errors 7 % off.
    """
    parties, dimension = 50, 10_000
    killed = {3, 14, 15, 26, 41}
    plan, values = make_plan(parties, dimension, dropouts=0.1), make_values(parties, dimension)
    kills = [Kill(party, 1) for party in sorted(killed)]
    outcome = run_processes(plan, values, tmp_path, kills, round_timeout=60.0, gone_timeout=5.0, program=PROGRAM)
    errors = check_outcome(outcome, values, killed)
    expected = total_of_machines(tmp_path / "run", outcome, values)
    np.testing.assert_allclose(outcome.results[0].total_vector, expected, rtol=1e-8, atol=1e-8)
    protocol = plan.protocol
    assert isinstance(protocol, CorDPDME)
    predicted = unbiased_mse(protocol.sigma_own**2, protocol.sigma_pair**2, parties, parties - len(killed), 1)
    assert_variance(errors, predicted)
    print(
        f"\n{outcome.seconds:.1f} s, {outcome.bytes_sent / 1e6:.0f} MB sent by {len(outcome.results)} survivors in "
        f"{outcome.messages} messages, MSE {errors.var():.5g} against {predicted:.5g} predicted"
    )
