"""The attack on the members' shares and sums: close to the certificate, never above it, and it notices a wrong build.

Seeds are fixed; every test states how often it fails on correct code if they change.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from quietmean.cli.main import main
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.privacy import Adversary
from quietmean.protocols.execution import Execution
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.randomness.insecure import InsecureSilence
from quietmean.simulation import attack
from quietmean.simulation.adversary_view import _BLOCK
from quietmean.testing import example_execution

TRIALS, SEED = 100_000, 20_261_123


def packed(parties: int = 7, sensitivity: float = 1.0, **other: Any) -> Execution:
    parameters: dict[str, Any] = {
        "members": parties,
        "colluding": 2,
        "colluding_members": 2,
        "secrets": 2,
        "minimum": 4,
        "gone": 1,
        "ballots": 3,
        "step": 2.0**-6,
        "sigma": 0.4,
        "clip": 0.5,
        "dimension": 1,
    }
    return example_execution("packed-sharing", parties, sensitivity=sensitivity, **{**parameters, **other})


def with_leavers(execution: Execution) -> Execution:
    """Party 0 leaves before it deals, party 6 before it publishes."""
    online = execution.trace.online.copy()
    online[1:, 0] = False
    online[5:, 6] = False
    return execution.with_trace(ExecutionTrace(online))


# mu is about 0.5 to 2.5 in all of them.
CASES = {
    "two members": (packed(), 3, {1, 4}),
    "somebody who sees the result": (packed(), 3, set()),
    "one member, two dropouts": (with_leavers(packed()), 3, {1}),
    "three coordinates, a coarse grid": (packed(dimension=3, sensitivity=3**0.5, step=0.25, sigma=0.625), 5, {0, 6}),
    "numbers of two bytes, off centre": (packed(prime=65521, centre=0.5, secrets=1), 2, {5, 6}),
    "values of any domain": (packed(domain="any", clip=4.0, step=2.0**-9), 3, {1, 4}),
    "enough members to open shares": (packed(sigma=0.8), 3, {0, 1, 4, 6}),
}


# In every run of the tests; the others take as long each.
FIRST = {"two members", "numbers of two bytes, off centre", "values of any domain"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in CASES])
def test_comes_close_to_the_certificate_and_stays_below(name: str) -> None:
    """mu_lower <= certified fails with probability 2.5 %, >= 0.9 of it with less than 1e-6; the flag is wrong with 1e-6."""
    execution, target, corrupt = CASES[name]
    result = attack(execution, target, Adversary.collusion(corrupt), trials=TRIALS, seed=SEED)
    print(name, result)
    assert 0.45 < result.mu_certified < 2.6
    assert 0.9 * result.mu_certified <= result.mu_lower <= result.mu_certified
    assert 0 < result.epsilon_lower <= result.epsilon_certified
    # Rounding and what noise is less than Gaussian are charged, but do not help: a little is left.
    assert result.mu_estimate < result.mu_certified + stats.norm.isf(5e-7) * result.mu_standard_error
    assert not result.flagged


class _Quieter(InsecureSilence):
    """A generator whose discrete noise has 0.8 of the scale that was asked for."""

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Any:
        return self._noise.discrete(purpose, index, 0.8 * scale, dimension, shares)

    def secret(self, purpose: str, index: int) -> bytes:
        return self._noise.secret(purpose, index)


def stretched(execution: Execution, value: Vector, **changed: Any) -> Execution:
    protocol = execution.protocol
    assert isinstance(protocol, PackedSharing)
    return replace(execution, protocol=replace(protocol, dimension=value.size, **changed))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["two members", "enough members to open shares"])
def test_flags_a_build_with_too_little_noise(name: str) -> None:
    execution, target, corrupt = CASES[name]

    def machine(party: PartyId, value: Vector, noise: NoiseSource) -> PartyMachine[Any]:
        return stretched(execution, value).machine(party, value, _Quieter(noise))

    wrong = attack(execution, target, Adversary.collusion(corrupt), trials=TRIALS, seed=SEED, machine=machine)
    assert wrong.flagged
    assert wrong.mu_estimate == pytest.approx(wrong.mu_certified / 0.8, rel=0.05)


def test_flags_a_build_in_which_a_dealer_forgets_its_noise() -> None:
    execution, target, corrupt = CASES["enough members to open shares"]

    def machine(party: PartyId, value: Vector, noise: NoiseSource) -> PartyMachine[Any]:
        return stretched(execution, value).machine(party, value, InsecureSilence() if party == target else noise)

    assert attack(execution, target, Adversary.collusion(corrupt), trials=1000, seed=SEED, machine=machine).flagged


def test_machines_that_deal_something_else_are_not_what_was_certified() -> None:
    execution, target, corrupt = CASES["two members"]

    def machine(party: PartyId, value: Vector, noise: NoiseSource) -> PartyMachine[Any]:
        return stretched(execution, value, clip=1.0).machine(party, 2 * value, noise)

    with pytest.raises(ProtocolFailure, match="see 2 of the target's change, and the protocol declares 1"):
        attack(execution, target, Adversary.collusion(corrupt), trials=1000, machine=machine)


def test_whose_value_is_not_in_the_sum_is_not_exposed() -> None:
    execution = with_leavers(packed())
    result = attack(execution, 0, Adversary.collusion({1, 4}), trials=1000)
    assert result.mu_certified == result.mu_lower == result.epsilon_lower == result.mu_estimate == 0


def test_trials_in_blocks_are_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 standard errors, error rate below 1e-6."""
    assert _BLOCK > 7 * 3000
    monkeypatch.setattr("quietmean.simulation.adversary_view._BLOCK", 7 * 3000)
    execution, target, corrupt = CASES["two members"]
    result = attack(execution, target, Adversary.collusion(corrupt), trials=20_000, seed=SEED)
    assert abs(result.mu_estimate - result.mu_certified) < 5 * result.mu_standard_error


def test_a_ball_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="bounds them together in a ball"):
        attack(packed(domain="ball"), 3, Adversary())


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execution, target, _ = CASES["two members"]
    path = tmp_path / "execution.json"
    execution.save(path)
    main(["verify", "attack", str(path), "--target", str(target), "--corrupt", "1,4", "--trials", "2000", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["mu_lower"] <= document["mu_certified"]
    assert not document["flagged"]
    assert np.isfinite(document["epsilon_certified"])
