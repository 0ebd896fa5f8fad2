"""The attack works on what ``run`` writes, for every protocol that has noise, and finds a build with less noise than declared.

The plan is that of a study of five coordinates whose parties have unequal numbers of records, its execution written as a receipt
and read again. Seeds are fixed. With 4000 trials with each value a build that is as declared is flagged once in a million times,
and one with half of all noise is not once in more than that: the distance of 0.8 standard deviations and more that is declared
becomes twice as large, which 4000 trials tell apart by 20 of their standard errors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, Vector
from quietmean.core.schema import parameters_of
from quietmean.graphs import ExecutionTrace
from quietmean.privacy import Adversary
from quietmean.protocols import Mechanism, get_protocol, registry
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.simulation import attack
from quietmean.studies.agreement.study import StudyTerms

PARTIES, TRIALS, SEED = 6, 4000, 20_261_125
WEIGHTS = np.array([50.0, 40.0, 1.0, 60.0, 7.0, 50.0])
COLUMNS = [{"name": name, "low": 0, "high": 10} for name in ("a", "b")]
FLOAT = {"noise": "insecure-float64"}
# What is attacked beside the defaults. Planning the others takes long.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "inca": [{}, FLOAT],
    "cordp-dme": [{}, FLOAT, {"partners": 4}, {"aggregator": 2}],
    "consensus": [{}, FLOAT, {"mode": "broadcast"}, {"bits": 3}, {"bits": 2, **FLOAT}, {"bits": 3, "mode": "broadcast"}],
    "gopa": [{}, FLOAT, {"partners": 3}, {"aggregator": 0}, {"aggregator": 0, **FLOAT}],
}
QUICK = {"cordp-dme", "local-dp", "central-dp"}
# Their messages are masked by what keys expand to, so that none is a sum with Gaussian noise.
MASKED = {"secagg", "secagg-plus"}
CASES = [
    pytest.param(name, options, id=f"{name} {options}", marks=() if name in QUICK else pytest.mark.slow)
    for name, kind in sorted(registry().items())
    # It has no noise, or none that a transcript describes.
    if kind.TRAITS.private and kind.TRAITS.has_transcript and name not in MASKED
    for options in OPTIONS.get(name, [{}])
]


@cache
def receipt_of(name: str, options: tuple[tuple[str, Any], ...]) -> Execution:
    raw = {"epsilon": 4.0, "colluding": 1, "protocol": name, "options": dict(options), "column": COLUMNS}
    plan = StudyTerms.parse(raw).plan(PARTIES)
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, PARTIES)
    return Execution.from_json(plan.execution(Seed.public("receipt"), everyone, WEIGHTS).to_json())


def with_half_of_all_noise(protocol: Mechanism, coordinates: int) -> Mechanism:
    """For so many coordinates."""
    levels = [key for key in parameters_of(type(protocol)) if key.startswith("sigma")]
    size = {"dimension": coordinates} if getattr(protocol, "dimension", None) is not None else {}
    return replace(protocol, **{key: getattr(protocol, key) / 2 for key in levels}, **size)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_receipt_is_attacked_and_a_weaker_build_is_found(name: str, options: dict[str, Any]) -> None:
    execution = receipt_of(name, tuple(options.items()))
    adversary = Adversary.collusion({1 if name == "central-dp" else 0})
    found = attack(execution, 3, adversary, trials=TRIALS, seed=SEED)
    print(f"{name} {options}: {found.mu_estimate:.3f} +- {found.mu_standard_error:.3f}, certified {found.mu_certified:.3f}")
    assert not found.flagged
    assert found.mu_certified < 2
    # Certificates of whole numbers are a little above what is there.
    assert found.mu_estimate > 0.8 * found.mu_certified - 5 * found.mu_standard_error

    def weaker(party: PartyId, value: Vector, noise: NoiseSource) -> PartyMachine[Any]:
        protocol = with_half_of_all_noise(
            execution.protocol.traits.attack.linear(execution.protocol) or execution.protocol, value.size
        )
        return replace(execution, protocol=protocol).machine(party, value, noise)

    assert attack(execution, 3, adversary, trials=TRIALS, seed=SEED, machine=weaker).flagged


@pytest.mark.parametrize("name", sorted(MASKED))
def test_masked_messages_are_refused_by_name(name: str) -> None:
    execution = receipt_of(name, ())
    with pytest.raises(InputError, match=f"{name} as it is set here rounds, masks or draws at random what it sends"):
        attack(execution, 3, Adversary.collusion({0}), trials=TRIALS, seed=SEED)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["gossip", "secret-sharing"])
def test_without_noise_there_is_nothing_to_break(name: str) -> None:
    raw = {"epsilon": 4.0, "colluding": 1, "protocol": name, "column": COLUMNS}
    plan = StudyTerms.parse(raw).plan(PARTIES, no_privacy=True)
    execution = plan.execution(Seed.public("receipt"), ExecutionTrace.everyone(plan.protocol.rounds, PARTIES), WEIGHTS)
    if get_protocol(name).TRAITS.linear:
        found = attack(execution, 3, Adversary.collusion({0}), trials=1000, seed=SEED)
        assert not found.flagged
        assert (found.false_positive_rate, found.false_negative_rate) == (0.0, 0.0)
    else:
        with pytest.raises(InputError, match="Attack sums with Gaussian noise"):
            attack(execution, 3, Adversary.collusion({0}), trials=1000, seed=SEED)
