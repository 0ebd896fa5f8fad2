"""What one party says moves no coordinate of a session's round by more than is stated: searched under every protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import Release
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.planning.influence import ImpossibleResult, ReleasedSum, influence_of, require_possible
from quietmean.planning.release_bounds import PossibleReleases
from quietmean.protocols import get_protocol
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.studies.agreement.session_study import SessionStudy
from support.at_the_edges import NAMES, PARTIES

Array = NDArray[np.float64]
PRIVATE = [name for name in NAMES if get_protocol(name).TRAITS.private]
LIAR, DIMENSION, HALVINGS, FAR = 2, 5, 40, 1e4


def plan_of(name: str) -> Plan:
    """With dropouts where the protocol plans for them."""
    terms: dict[str, Any] = {"name": "rounds", "dimension": DIMENSION, "rounds": 2, "epsilon": 8.0, "delta": 1e-5, "colluding": 1}
    try:
        return SessionStudy.parse({**terms, "protocol": name, "dropouts": 0.2}).terms(PARTIES).plan
    except InputError:
        return SessionStudy.parse({**terms, "protocol": name}).terms(PARTIES).plan


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if one == "consensus" else one for one in PRIVATE])
def test_no_round_moves_by_more_than_is_stated(name: str) -> None:
    plan, weights = plan_of(name), np.ones(PARTIES)
    execution = plan.execution(Seed.public("rounds"), ExecutionTrace.everyone(plan.protocol.rounds, PARTIES), weights)
    stated = influence_of(plan, execution)
    values = np.array([plan.admit(np.full(DIMENSION, 0.3)).vector] * PARTIES)
    releases = execution.run(values, InsecurePopulationNoise(1, PARTIES)).releases
    possible = PossibleReleases.of(plan, execution.schedule, weights)
    counted = list(releases.values()) if plan.protocol.traits.releases_are_public else [releases[0]]
    total, weight = np.sum([one.vector for one in counted], axis=0), sum(one.weight for one in counted)

    def accepted(moved: Array) -> bool:
        if possible is not None:
            own = releases[LIAR]
            if possible.cannot_be(LIAR, Release(own.vector + moved, own.weight)):
                return False
        try:
            require_possible(plan, execution, ReleasedSum(total + moved, weight))
        except ImpossibleResult:
            return False
        return True

    def farthest(begin: Array, direction: Array) -> Array:
        low, high = 0.0, FAR
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if accepted(begin + middle * direction) else (low, middle)
        return begin + low * direction

    assert accepted(np.zeros(DIMENSION))
    corners = np.random.default_rng(1).choice([-1.0, 1.0], (6, DIMENSION))
    directions = [*np.eye(DIMENSION), *-np.eye(DIMENSION), *corners]
    # From one edge to the other: a lie need not begin at what is honest, though the bound is of the distance from that.
    reached = [farthest(farthest(np.zeros(DIMENSION), one), -one) for one in directions]
    reached += [farthest(np.zeros(DIMENSION), one) for one in directions]
    parts = [np.abs(execution.decode(total + moved, weight) - execution.decode(total, weight)) / stated.mean for moved in reached]
    assert 0.25 < float(np.max(parts)) <= 1 + 1e-9
