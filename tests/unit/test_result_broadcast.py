"""How releases reach everybody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quietmean.core.party import PartyId, PartyMachine, Release
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.result_broadcast import BroadcastState, ResultBroadcast, release_digest
from quietmean.randomness.insecure import insecure_seed
from quietmean.transcript import run_lockstep
from support.refusals import refused

PARTIES = 9
RELEASES = {party: Release(np.array([float(party), 0.1 * party]), 1.0 + party) for party in range(PARTIES) if party != 4}
TOTAL = np.sum([release.vector for release in RELEASES.values()], axis=0)
WEIGHT = sum(release.weight for release in RELEASES.values())


def machines(dissemination: ResultBroadcast) -> list[PartyMachine[Any]]:
    seed = insecure_seed(1)
    return [dissemination.machine(PARTIES, frozenset(RELEASES), party, RELEASES.get(party), 2, seed) for party in range(PARTIES)]


def test_broadcast_gives_everybody_the_same_total_to_the_last_bit() -> None:
    result = run_lockstep(machines(ResultBroadcast()), ExecutionTrace.everyone(1, PARTIES), lambda round_, sender, receiver: True)
    assert set(result.releases) == set(range(PARTIES))
    assert len({release.vector.tobytes() for release in result.releases.values()}) == 1
    np.testing.assert_allclose(result.releases[4].vector, TOTAL, rtol=1e-14)
    assert {release.weight for release in result.releases.values()} == {WEIGHT}


def test_broadcast_counts_what_arrived() -> None:
    parts = machines(ResultBroadcast())
    result = run_lockstep(
        parts, ExecutionTrace.everyone(1, PARTIES), lambda round_, sender, receiver: (sender, receiver) != (2, 3)
    )
    np.testing.assert_allclose(result.releases[3].vector, TOTAL - RELEASES[2].vector, rtol=1e-14)
    assert result.releases[3].weight == WEIGHT - 3.0
    assert parts[3].expects(parts[3].start().state) == frozenset(RELEASES) - {3}


def test_what_cannot_be_is_left_out_by_everybody_and_known_by_its_digest() -> None:
    """Who is asked about its own release, too, has the same total as all others."""

    def cannot_be(party: PartyId, release: Release) -> bool:
        return bool(release.vector[0] == 3.0)

    seed = insecure_seed(1)
    parts = [
        ResultBroadcast().machine(PARTIES, frozenset(RELEASES), party, RELEASES.get(party), 2, seed, cannot_be=cannot_be)
        for party in range(PARTIES)
    ]
    result = run_lockstep(parts, ExecutionTrace.everyone(1, PARTIES), lambda round_, sender, receiver: True)
    for state in result.states:
        assert isinstance(state, BroadcastState)
        assert state.heard == tuple(party for party in RELEASES if party != 3)
        assert state.impossible == (3,)
        assert dict(state.digests)[3] == release_digest(RELEASES[3].vector, RELEASES[3].weight)
    np.testing.assert_allclose(result.releases[3].vector, TOTAL - RELEASES[3].vector, rtol=1e-14)
    assert {release.weight for release in result.releases.values()} == {WEIGHT - RELEASES[3].weight}


def test_a_digest_tells_releases_apart_and_not_a_negative_zero() -> None:
    one = np.array([0.0, 1.0])
    assert release_digest(one, 1.0) == release_digest(np.array([-0.0, 1.0]), 1.0)
    assert len({release_digest(vector, weight) for vector in (one, one[::-1], one * 2) for weight in (1.0, 2.0)}) == 6


def test_push_sum_converges_to_the_mean_and_keeps_the_total() -> None:
    dissemination = ResultBroadcast("push-sum", rounds=60, out_degree=2)
    parts = machines(dissemination)
    schedule_says = parts[0].rounds == 60
    assert schedule_says
    result = run_lockstep(parts, ExecutionTrace.everyone(60, PARTIES), lambda round_, sender, receiver: True)
    total = np.sum([release.vector for release in result.releases.values()], axis=0)
    np.testing.assert_allclose(total, TOTAL, rtol=1e-12)
    for release in result.releases.values():
        np.testing.assert_allclose(release.vector / release.weight, TOTAL / WEIGHT, rtol=1e-6)


@pytest.mark.parametrize("dissemination", [ResultBroadcast(), ResultBroadcast("push-sum", 3, 2)])
def test_description_is_parsed_back(dissemination: ResultBroadcast) -> None:
    assert ResultBroadcast.parse(dissemination.describe()) == dissemination


@pytest.mark.parametrize(("kind", "rounds"), [("mail", 1), ("broadcast", 2), ("push-sum", 0)])
def test_impossible_ways_are_refused(kind: str, rounds: int) -> None:
    refused("", ResultBroadcast, kind, rounds)
