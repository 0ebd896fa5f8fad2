"""Random histories with refusals, silence, late shares and leavers: nothing is shown or charged below what was handed over.

The truth is computed anew, with dense least squares, from what the real party machines sent: the least change of unknown noise
that hides a change of one value in all that a coalition was handed. 200 histories a protocol, up to 12 parties; deterministic, so
there is no error rate. An account that counts refused shares as unseen is rejected.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.execution import Execution
from quietmean.testing import example_execution

Array = NDArray[np.float64]
DELTA, HISTORIES = 1e-6, 200
PROTOCOLS: dict[str, dict[str, Any]] = {
    "inca": {"rounds": 4, "sigma_star": 0.7, "sigma_delta": 1.8},
    "gossip": {"rounds": 3},
    "muffliato": {"sigma": 0.9, "rounds": 3},
    "cordp-dme": {"sigma_own": 0.6, "sigma_pair": 1.5, "aggregator": 1},
    "gopa": {"sigma_star": 0.7, "sigma_delta": 2.0, "partners": 3},
    "local-dp": {"sigma": 0.8},
    "central-dp": {"sigma": 0.8},
}


def histories(name: str, count: int) -> Iterator[tuple[int, Execution, int]]:
    """(seed, execution, coalition size). Few are large: all coalitions of each are tried densely."""
    for seed in range(count):
        draw = np.random.default_rng([seed, len(name)])
        parties = 12 if seed % 50 == 0 else int(draw.integers(4, 8))
        execution = example_execution(name, parties, seed, **PROTOCOLS[name])
        schedule = execution.schedule
        online = draw.random((schedule.rounds + 1, parties)) < 0.9
        for party in draw.permutation(parties)[: int(draw.integers(0, 3))]:
            online[int(draw.integers(1, schedule.rounds + 1)) :, party] = False
        online[0] = True
        refused = (draw.random(schedule.neighbours.shape) < 0.2) & (schedule.neighbours >= 0)
        trace = ExecutionTrace(online, refused)
        if execution.protocol.transfers_mass:
            trace = replace(trace, settled=late(execution.with_trace(trace), draw))
        size = int(draw.integers(1, 3))
        yield seed, execution.with_trace(trace.all_handed(schedule)), size


def late(execution: Execution, draw: np.random.Generator) -> NDArray[np.int64]:
    """Some shares whose arrival their sender learnt of later, or never."""
    delivered, schedule, online = execution.trace.delivered(execution.schedule), execution.schedule, execution.trace.online
    rows = []
    for place, sender, slot in np.argwhere(delivered).tolist():
        later = [round_ for round_ in range(place + 2, schedule.rounds + 1) if online[round_, sender]]
        if draw.random() < 0.1:
            rows.append((place + 1, sender, int(schedule.neighbours[place, sender, slot]), int(draw.choice([0, *later]))))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


class Truth:
    """What was really handed over in one execution, from its machines, as dense matrices."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        plain = execution.with_trace(replace(execution.trace, seen=None))
        self._sent = plain.traced_transcript()
        self._values, self._noise = self._sent.eliminated()
        self._known = self._sent.message_known.toarray().astype(bool) | self._sent.released[:, None]
        lists = execution.schedule.to_lists()
        for row in range(self._sent.messages):
            round_, sender = int(self._sent.message_round[row]), int(self._sent.sender[row])
            if not self._sent.released[row] and 1 <= round_ <= len(lists):
                # A protocol of several kinds of messages sends one kind in each round: every recipient was handed it.
                self._known[row, lists[round_ - 1][sender]] = True

    def worst(self, size: int, trusted: frozenset[PartyId]) -> Array:
        """mu of each party against the worst coalition of ``size``."""
        parties, found = self._execution.parties, np.zeros(self._execution.parties)
        able = [party for party in range(parties) if party not in trusted]
        for coalition in itertools.combinations(able, size):
            view = self._known[:, coalition].any(axis=1)
            unknown = ~self._sent.noise_known.toarray()[:, coalition].any(axis=1)
            noise, values = self._noise[np.ix_(view, unknown)], self._values[view]
            for party in set(range(parties)) - set(coalition):
                found[party] = max(found[party], _least_shift(noise, values[:, party]))
        return self._execution.sensitivity * found


def _least_shift(noise: Array, change: Array) -> float:
    if not change.size or not np.abs(change).max():
        return 0.0
    shift = np.linalg.lstsq(noise, -change, rcond=1e-11)[0]
    hidden = np.abs(noise @ shift + change).max() < 1e-8
    return float(np.linalg.norm(shift)) if hidden else np.inf


def below(execution: Execution, size: int, truth: Array) -> bool:
    """Is the account below the truth, with all coalitions tried or with a bound, or in its a-priori figure?"""
    privacy, promised = execution.privacy(DELTA), execution.a_priori(size, DELTA)
    charges = [privacy.coalitions(size, limit=limit).mu for limit in (10**6, 0)] + [np.full(execution.parties, promised.mu)]
    with np.errstate(invalid="ignore"):
        return any(bool((charge < truth * (1 - 1e-6)).any()) for charge in charges)


def check(name: str, count: int) -> None:
    forgetful = 0
    for seed, execution, size in histories(name, count):
        truth = Truth(execution).worst(size, execution.protocol.trusted)
        assert not below(execution, size, truth), f"{name}, seed {seed}: {execution.to_json()}, {size} colluding"
        # A record that counts what was refused as unseen.
        mutant = execution.with_trace(replace(execution.trace, seen=None))
        exact = mutant.privacy(DELTA).coalitions(size, limit=10**6).mu
        with np.errstate(invalid="ignore"):
            forgetful += bool((exact < truth * (1 - 1e-6)).any())
    print(f"{name}: {count} histories, {forgetful} in which an account without refused messages is too low")
    if name in ("inca", "gopa", "gossip", "cordp-dme"):
        assert forgetful > 0


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_some_histories(name: str) -> None:
    check(name, 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_many_histories(name: str) -> None:
    check(name, HISTORIES)


def test_a_refused_share_that_shows_a_value() -> None:
    """Without it nothing of party 0 is known; with it, its noisy value."""
    execution = example_execution("muffliato", 4, sigma=0.8, rounds=1, schedule="complete")
    online = np.ones((2, 4), dtype=np.bool_)
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[0, 0] = True
    refused = ExecutionTrace(online, lost)
    assert execution.with_trace(refused).privacy(DELTA).against({1}).mu_upper[0] == 0.0
    seen = execution.with_trace(refused.all_handed(execution.schedule))
    assert seen.privacy(DELTA).against({1}).mu_upper[0] == pytest.approx(1 / 0.8)
    again = Execution.from_json(seen.to_json())
    assert again.to_json() == seen.to_json()
    assert again.privacy(DELTA).against({1}).mu_upper[0] == pytest.approx(1 / 0.8)
    # Files of before have no such field, and are certified as before.
    document = seen.to_json()
    del document["seen"]
    assert Execution.from_json(document).privacy(DELTA).against({1}).mu_upper[0] == 0.0
