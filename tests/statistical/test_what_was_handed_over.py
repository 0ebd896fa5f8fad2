"""Random histories with refusals, silence, late shares and leavers: nothing is shown or charged below what was handed over.

The truth is computed anew by brute force (:mod:`support.handed_over`): real party machines on basis vectors, dense least squares,
every coalition. 200 histories of up to 12 parties for each protocol with a transcript; deterministic: no error rate.
Accounts are rejected that take noise for a tenth larger than it was drawn, that count refused shares as unseen, or that try one
coalition for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.graphs import ExecutionTrace
from quietmean.privacy import Charge
from quietmean.protocols import get_protocol, registry
from quietmean.protocols.execution import Execution
from quietmean.protocols.secagg.batch import SecAggOutcome
from quietmean.report.certificate import certificate_page
from quietmean.testing import example_execution
from support.as_declared import as_declared
from support.handed_over import LinearTruth, SumTruth, epsilon_of
from support.handed_over_masked import MaskedSumTruth

Array = NDArray[np.float64]
DELTA, HISTORIES, EVERYBODY = 1e-6, 200, 10**6
RING: Any = object()
LINEAR: dict[str, dict[str, Any]] = {
    "inca": {"rounds": 4, "sigma_star": 0.7, "sigma_delta": 1.8},
    "gossip": {"rounds": 3},
    "muffliato": {"sigma": 0.9, "rounds": 3},
    "cordp-dme": {"sigma_own": 0.6, "sigma_pair": 1.5, "aggregator": 1},
    # Without a collector nothing that is sent to a party tells anything of a value.
    "gopa": {"sigma_star": 0.7, "sigma_delta": 2.0, "partners": 3, "aggregator": 0},
    "local-dp": {"sigma": 0.8},
    "central-dp": {"sigma": 0.8},
    "consensus": {"edges": RING, "iterations": 4, "sigma_z": 1.4, "local_noise": "gaussian", "sigma_local": 0.6},
}
GRID = {"grid": 2.0**-20, "dimension": 1}
ON_GRID: dict[str, dict[str, Any]] = {
    name: {"noise": "discrete", **GRID} if name == "inca" else GRID for name in LINEAR if name != "gossip"
}
SUMS: dict[str, dict[str, Any]] = {
    "packed-sharing": {"step": 2.0**-8, "sigma": 0.5, "clip": 0.5, "centre": 0.0},
}
MASKED: dict[str, dict[str, Any]] = {
    name: {"granularity": 2.0**-10, "sigma": 0.5, "clip": 0.5, "bits": 32, "dimension": 1} for name in ("secagg", "secagg-plus")
}
# Their certificates say only what they guarantee.
WITHOUT_TRANSCRIPT = {"priv-unit-g"}
# Sums are known exactly, and test_secret_sharing tries all of them.
EXACT_SUMS = {"secret-sharing"}
# All others, with the defaults of their plans.
OTHERS = registry().keys() - {*LINEAR, *SUMS, *MASKED, *WITHOUT_TRANSCRIPT, *EXACT_SUMS}
EVERY = sorted({*LINEAR, *SUMS, *MASKED, *OTHERS})
NOISY = sorted({*EVERY} - {"gossip"})
# They end without a result where more than a few messages are lost.
FRAGILE = {*SUMS, *MASKED}


def parameters(name: str, parties: int, seed: int, louder: float = 1.0) -> dict[str, Any]:
    """As JSON, with noise ``louder`` times as large."""
    found = as_declared(name, parties) if name in OTHERS else {**LINEAR, **SUMS, **MASKED}[name]
    found = {key: louder * value if key.startswith("sigma") else value for key, value in found.items()}
    if name == "consensus":
        draw = np.random.default_rng([seed, 7])
        more = {tuple(sorted(draw.choice(parties, 2, replace=False).tolist())) for _ in range(parties)}
        ring = {tuple(sorted((party, (party + 1) % parties))) for party in range(parties)}
        found |= {"edges": [list(edge) for edge in sorted(ring | more)], "mode": ["unicast", "broadcast"][seed % 2]}
    if name == "packed-sharing":
        colluding = (parties - 1) // 3
        found |= {"members": parties, "colluding": colluding, "colluding_members": colluding, "secrets": 1}
        found |= {"minimum": colluding + 2, "lies": 0, "gone": 1, "ballots": 2, "largest_weight": 1.0, "dimension": parties}
    if name in MASKED:
        degree = parties - 1 if name == "secagg" or parties < 6 else 4
        threshold = (degree + 1) // 2 + 1 + seed % 2
        found |= {"threshold": threshold, "minimum": max(2, threshold)} | ({"degree": degree} if name == "secagg-plus" else {})
    return found


def histories(name: str, count: int, most: int) -> Iterator[tuple[int, Execution, int]]:
    """(seed, execution, coalition size), of 4 to ``most`` parties."""
    for seed in range(count):
        draw = np.random.default_rng([seed, len(name)])
        parties = most if seed % 10 == 0 else int(draw.integers(4, most + 1))
        execution = example_execution(name, parties, seed, **parameters(name, parties, seed))
        schedule = execution.schedule
        online = draw.random((schedule.rounds + 1, parties)) < (0.98 if name in FRAGILE else 0.9)
        for party in draw.permutation(parties)[: int(draw.integers(0, 3))]:
            online[int(draw.integers(1, schedule.rounds + 1)) :, party] = False
        online[0] = True
        refused = (draw.random(schedule.neighbours.shape) < (0.02 if name in FRAGILE else 0.2)) & (schedule.neighbours >= 0)
        trace = ExecutionTrace(online, refused)
        if execution.protocol.traits.transfers_mass:
            trace = replace(trace, settled=late(execution.with_trace(trace), draw))
        yield seed, execution.with_trace(trace.all_handed(schedule)), int(draw.integers(1, 4 if parties > 5 else 3))


def late(execution: Execution, draw: np.random.Generator) -> NDArray[np.int64]:
    """Some shares whose arrival their sender learnt of later, or never."""
    delivered, schedule, online = execution.trace.delivered(execution.schedule), execution.schedule, execution.trace.online
    rows = []
    for place, sender, slot in np.argwhere(delivered).tolist():
        later = [round_ for round_ in range(place + 2, schedule.rounds + 1) if online[round_, sender]]
        if draw.random() < 0.1:
            rows.append((place + 1, sender, int(schedule.neighbours[place, sender, slot]), int(draw.choice([0, *later]))))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def truth_of(name: str, execution: Execution, size: int) -> Array:
    """mu of each party against the worst coalition, by brute force."""
    if name in LINEAR or name in OTHERS:
        return LinearTruth(execution).worst(size)
    if name in MASKED:
        return MaskedSumTruth(execution).worst(size)
    return SumTruth(execution, SUMS[name]["sigma"], SUMS[name]["clip"]).worst(size)


def too_low(shown: Array, truth: Array) -> bool:
    with np.errstate(invalid="ignore"):
        return bool((shown < truth * (1 - 1e-6)).any())


def below(execution: Execution, size: int, truth: Array, *, page: bool) -> list[str]:
    """Which figures are below the truth: with all coalitions tried or with a bound, shown or charged, in the report, a priori."""
    privacy, parties = execution.privacy(DELTA), range(execution.parties)
    epsilons = np.array([epsilon_of(mu, DELTA) for mu in truth.tolist()])
    found = {"a priori": (np.full(execution.parties, execution.a_priori(size, DELTA).mu), truth)}
    for how, limit in (("tried", EVERYBODY), ("bound", 0)):
        certificate = privacy.coalitions(size, limit=limit)
        found[f"mu, {how}"] = certificate.mu, truth
        found[f"epsilon, {how}"] = certificate.epsilon, epsilons
        found[f"charge, {how}"] = np.array([certificate.charge(party).mu for party in parties]), truth
    if page:
        shown = certificate_page(execution, delta=DELTA, size=size)
        found["report"] = np.asarray(shown.epsilons), epsilons
    return [figure for figure, (shown, real) in found.items() if too_low(shown, real)]


def reserved_by_ledger(execution: Execution, size: int, truth: Array) -> bool:
    return Charge.promised(execution.a_priori(size, DELTA)).mu >= float(truth.max()) * (1 - 1e-6)


def check(name: str, count: int, most: int) -> None:
    louder = forgetful = single = 0
    for seed, execution, size in histories(name, count, most):
        truth, where = truth_of(name, execution, size), f"{name}, seed {seed}, {size} colluding"
        assert below(execution, size, truth, page=seed % 25 == 0) == [], where
        assert reserved_by_ledger(execution, size, truth), where
        if name in ON_GRID and seed % 3 == 0:
            raw = parameters(name, execution.parties, seed) | ON_GRID[name]
            whole = replace(execution, protocol=get_protocol(name).read(raw).resolved(execution.parties))
            assert below(whole, size, truth, page=False) == [], f"{where}, on a grid"
        # Deliberately optimistic accounts.
        raw = parameters(name, execution.parties, seed, louder=1.1)
        mutant = replace(execution, protocol=get_protocol(name).read(raw).resolved(execution.parties))
        louder += bool(below(mutant, size, truth, page=False))
        forgets = execution.with_trace(replace(execution.trace, seen=None)).privacy(DELTA)
        forgetful += too_low(forgets.coalitions(size, limit=EVERYBODY).mu, truth)
        last = [party for party in range(execution.parties) if party not in execution.protocol.traits.trusted][-size:]
        one = execution.privacy(DELTA).against(last)
        single += too_low(one.mu_upper, truth[list(one.honest)])
    print(
        f"{name}: {count} histories; too low by more noise in {louder}, without refused in {forgetful}, one coalition in {single}"
    )
    # Some histories end without a result.
    assert name not in NOISY or louder >= count / 4
    assert name not in ("inca", "gopa", "gossip", "cordp-dme") or forgetful > 0
    assert name not in ("inca", "gopa", "cordp-dme", "consensus") or single > 0


# Their histories have many messages: make test-all runs them.
LONG = {"gossip", "gopa"}


def test_which_protocols_have_no_transcript() -> None:
    assert {name for name, kind in registry().items() if not kind.TRAITS.has_transcript} == WITHOUT_TRANSCRIPT


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if one in LONG else one for one in EVERY])
def test_some_histories(name: str) -> None:
    check(name, 6, 7)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_many_histories(name: str) -> None:
    check(name, HISTORIES, 12)


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


def test_a_run_without_a_result_that_its_aggregator_can_open_with_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few answered for a result; with the share that a colluder kept to itself they are enough."""
    everybody = example_execution("secagg", 4, **parameters("secagg", 4, 0) | {"threshold": 3, "minimum": 3})
    online = np.ones((8, 4), dtype=np.bool_)
    online[7, 2:] = False
    execution = everybody.with_trace(ExecutionTrace(online))
    assert not execution.contributors().any()
    truth = MaskedSumTruth(execution).against((0, 2))
    assert truth.tolist() == pytest.approx([0, np.sqrt(2), 0, np.sqrt(2)])
    assert (execution.privacy(DELTA).against({0, 2}).mu_upper >= truth[[1, 3]]).all()
    # Certified as if what has no result had shown nothing, it is found out.
    nothing = SecAggOutcome.of(np.zeros(4, dtype=np.bool_))
    monkeypatch.setattr("quietmean.protocols.secagg.follow", lambda *run: nothing)
    assert too_low(everybody.with_trace(execution.trace).privacy(DELTA).against({0, 2}).mu_upper, truth[[1, 3]])
