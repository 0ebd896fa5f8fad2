"""The end of a study: who leaves, dies or returns around it, and what the record says of those who told nothing."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quietmean.core.party import PartyId, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.session import NodeResult
from quietmean.node.session.logs import GossipedLogs
from quietmean.node.storage import Store
from quietmean.planning import Plan, Target
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.result_broadcast import ResultBroadcast
from quietmean.randomness.insecure import InsecureSilentPopulation
from quietmean.studies.party import notes_of
from support.faults import Crash, FaultOutcome, FaultPlan, check_run, run_with_faults
from support.network import NetworkConditions, Partition
from support.truth import heard_by_anybody, true_history

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
MEMORY = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
# Certificates differ by rounding; below the floor nothing leaks.
RELATIVE, FLOOR = 1e-6, 1e-4
# In this weather the others' releases come before their logs, and so on: moments are counted in writes, from the end.
CALM = FaultPlan(NetworkConditions(seed=1))


def inca(parties: int, rounds: int, out_degree: int = 1) -> Plan:
    """With both kinds of noise: who is said to hide whom matters."""
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=1)
    protocol = IncA(rounds=rounds, sigma_star=0.5, sigma_delta=1.0, out_degree=out_degree)
    return Plan(target, protocol, ResultBroadcast())


def values_of(parties: int) -> Vector:
    """From 0 to 1, as the plan has it."""
    values: Vector = (1 + np.sin(np.arange(float(parties))).reshape(parties, 1)) / 2
    return values


@contextmanager
def told(plan: Plan, faults: FaultPlan) -> Iterator[tuple[FaultOutcome, list[Path]]]:
    """The outcome, and the stores of all parties."""
    parties = plan.target.parties
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        outcome = run_with_faults(plan, values_of(parties), faults, Path(directory))
        yield outcome, [Path(directory) / f"{party}.store" for party in range(parties)]


# --- coming back after the end ----------------------------------------------------------------------------------------------


def public_part(result: NodeResult) -> dict[str, object]:
    return {name: value for name, value in result.to_json().items() if name not in ("late", "seconds")}


def test_a_crash_at_every_write_of_the_end_while_all_others_leave() -> None:
    """Whoever has the others' logs or its result on disk needs nobody any more."""
    plan = inca(3, 2)
    with told(plan, CALM) as (quiet, _):
        writes = quiet.writes[0]
    complete = 0
    for write in range(writes - 4, writes):
        for committed in (False, True):
            # Away for longer than anybody waits.
            faults = FaultPlan(CALM.conditions, {0: [Crash(write, committed, away=500.0)]})
            with told(plan, faults) as (outcome, _):
                assert sorted(outcome.results) == [0, 1, 2]
                back, others = outcome.results[0], outcome.results[1]
                np.testing.assert_array_equal(back.total_vector, quiet.results[0].total_vector)
                assert (back.counted_twice, back.unresolved) == ((), ())
                if not back.silent:
                    assert back.execution.to_json() == quiet.results[0].execution.to_json()
                    complete += 1
                # The others waited for it, in vain or not, and know all of it that matters.
                assert others.execution.trace.online.all()
    # Both other logs are in before the last write, which is the result.
    assert complete >= 3


@pytest.mark.parametrize("away", [1.0, 3.0, 4.0, 5.0, 6.0, 7.0, 20.0])
def test_who_has_all_releases_needs_nobody_to_confirm_them(away: float) -> None:
    """Whether the others are still there when it comes back, think that it never had their releases, or have left."""
    plan = inca(3, 3)
    with told(plan, CALM) as (quiet, _):
        # After the last release came in, before the round of releases is closed.
        write = quiet.writes[0] - 6
    with told(plan, FaultPlan(CALM.conditions, {0: [Crash(write, away=away)]})) as (outcome, _):
        assert outcome.failures == {}
        for result in outcome.results.values():
            assert result.heard == (0, 1, 2)
            np.testing.assert_array_equal(result.total_vector, quiet.results[0].total_vector)


@pytest.mark.parametrize("away", [4.0, 5.0])
@pytest.mark.parametrize("before_the_end", [8, 9, 10, 11])
def test_who_comes_back_while_the_others_close_is_sent_the_releases_again(before_the_end: int, away: float) -> None:
    """It died between its own release and the others' coming in; they went on without it and send them no more by themselves."""
    plan = inca(3, 3)
    with told(plan, CALM) as (quiet, _):
        write = quiet.writes[0] - before_the_end
    with told(plan, FaultPlan(CALM.conditions, {0: [Crash(write, away=away)]})) as (outcome, _):
        assert outcome.failures == {}
        assert [outcome.results[party].heard for party in range(3)] == [(0, 1, 2), (1, 2), (1, 2)]
        # The one with more says that the others have another result.
        assert [outcome.results[party].not_there for party in range(3)] == [((0, 1), (0, 2)), (), ()]
        # A share that its last message held may have been taken back and settled: the same sum, rounded otherwise.
        np.testing.assert_allclose(outcome.results[0].total_vector, quiet.results[0].total_vector, rtol=1e-14)
        assert all(result.silent == () for result in outcome.results.values())


def test_who_missed_the_last_round_learns_the_mean_of_the_others() -> None:
    plan = inca(3, 3)
    with told(plan, CALM) as (quiet, _):
        write = quiet.writes[0] - 12
    with told(plan, FaultPlan(CALM.conditions, {0: [Crash(write, away=6.0)]})) as (outcome, _):
        assert [outcome.results[party].heard for party in range(3)] == [(1, 2)] * 3
        for result in outcome.results.values():
            np.testing.assert_array_equal(result.total_vector, outcome.results[1].total_vector)


def test_started_again_after_the_end_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, results = inca(3, 2), list[NodeResult]()
    finish, ended = Store.finish, dict[str, float]()

    def remember(store: Store, phase: int, result: bytes) -> None:
        finish(store, phase, result)
        assert store.state() is None
        ended[store._path.name] = asyncio.get_running_loop().time()

    monkeypatch.setattr(Store, "finish", remember)
    with told(plan, CALM) as (quiet, _):
        results.append(quiet.results[0])
        last, end = quiet.writes[0] - 1, ended["0.store"]
    with told(plan, FaultPlan(CALM.conditions, {0: [Crash(last, committed=True, away=1000.0)]})) as (outcome, _):
        results.append(outcome.results[0])
        # Nobody was asked: it is shown at the moment at which it is started.
        assert outcome.seconds == pytest.approx(end + 1000.0, abs=0.01)
    assert results[0].to_json() == results[1].to_json()


def test_nothing_secret_is_left_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets: list[bytes] = []
    finish = Store.finish

    def spy(store: Store, phase: int, result: bytes) -> None:
        stored = store.state()
        assert stored is not None
        secrets.extend([store.seed.secret, bytes(stored[2])])
        finish(store, phase, result)

    monkeypatch.setattr(Store, "finish", spy)
    plan = inca(3, 2)
    # One dies between the end and the tidying up, and is started again.
    with told(plan, CALM) as (quiet, _):
        last = quiet.writes[1] - 1
    with told(plan, FaultPlan(CALM.conditions, {1: [Crash(last, committed=True)]})) as (outcome, stores):
        assert sorted(outcome.results) == [0, 1, 2]
        left = {file.name: file.read_bytes() for store in stores for file in store.parent.glob(store.name + "*")}
    assert len(secrets) >= 6
    assert not [name for name, content in left.items() for secret in secrets if secret in content]


# --- leaving for good -------------------------------------------------------------------------------------------------------


def leak(execution: Execution, colluder: PartyId, public: frozenset[PartyId] | None = None) -> Vector:
    """mu of each honest party; ``public``: whose releases anybody has heard of, by default all that the history has."""
    transcript = execution.transcript()
    if public is not None:
        transcript = replace(transcript, released=transcript.released & np.isin(transcript.sender, sorted(public)))
    return replace(execution.privacy(1e-6), transcript=transcript).against([colluder]).mu_upper


def too_optimistic(outcome: FaultOutcome, stores: list[Path], *, silent: bool = False) -> dict[PartyId, float]:
    """By how much the true leakage is above that of somebody's record, by colluder: who told that somebody its log, or did not.

    Published is what anybody has heard of among those who told.
    """
    worst: dict[PartyId, float] = {}
    for party, result in outcome.results.items():
        execution = result.execution
        told = [other for other in range(execution.parties) if other not in result.silent]
        public = heard_by_anybody([stores[other] for other in told]) | {party, *told}
        truth = true_history(execution.schedule, stores, execution.trace)
        if same(execution, truth):
            continue
        for colluder in result.silent if silent else told:
            recorded, real = leak(execution, colluder), leak(execution.with_trace(truth), colluder, frozenset(public))
            excess = float((real / np.maximum(recorded, FLOOR)).max()) - 1.0
            if excess > RELATIVE:
                worst[colluder] = max(excess, worst.get(colluder, 0.0))
    return worst


def same(execution: Execution, truth: ExecutionTrace) -> bool:
    trace, schedule = execution.trace, execution.schedule
    return (
        np.array_equal(trace.online, truth.online)
        and np.array_equal(trace.delivered(schedule), truth.delivered(schedule))
        and np.array_equal(trace.settled, truth.settled)
    )


def assert_total_is_that_of_the_truth(plan: Plan, outcome: FaultOutcome, stores: list[Path]) -> None:
    """Also where parties told nothing: their stores tell."""
    for party, result in outcome.results.items():
        truth = true_history(result.execution.schedule, stores, result.execution.trace)
        really = replace(result, execution=result.execution.with_trace(truth), silent=(), unresolved=())
        check_run(plan, values_of(plan.target.parties), replace(outcome, results={party: really}))


# Found by random search, then shrunk by hand: at the time no party told more than its own log, to whom it sent something.
CHAINS = [
    # 3 left after a message to one of those who stayed; the other had an older log of it.
    (inca(4, 3), FaultPlan(NetworkConditions(3), {3: [Crash(15, away=None)], 2: [Crash(17, committed=False, away=None)]})),
    (inca(4, 2), FaultPlan(NetworkConditions(12), {3: [Crash(16, committed=False, away=None)], 1: [Crash(10, away=None)]})),
]


@pytest.mark.parametrize(("plan", "faults"), CHAINS)
def test_a_chain_of_parties_that_left(plan: Plan, faults: FaultPlan) -> None:
    with told(plan, faults) as (outcome, stores):
        assert len(outcome.gone) == 2
        assert too_optimistic(outcome, stores) == {}
        assert_total_is_that_of_the_truth(plan, outcome, stores)
        assert len({str(result.execution.to_json()) for result in outcome.results.values()}) == 1


@pytest.mark.parametrize(("plan", "faults"), CHAINS[:1])
def test_without_what_messages_tell_the_record_is_too_optimistic(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, faults: FaultPlan
) -> None:
    monkeypatch.setattr(GossipedLogs, "merge", lambda self, other: None)
    with told(plan, faults) as (outcome, stores):
        assert too_optimistic(outcome, stores)


def leaving_plan(rng: random.Random, parties: int) -> FaultPlan:
    """Several leave for good, at any write or moment; sometimes the network is bad too."""
    gone = rng.sample(range(parties), rng.randint(1, max(1, parties - 2)))
    crashes = {
        party: [
            Crash(rng.randint(4, 20), rng.random() < 0.5, away=None)
            if rng.random() < 0.5
            else Crash(after=rng.uniform(0.1, 4.0), away=None)
        ]
        for party in gone
    }
    conditions = NetworkConditions(rng.randrange(10**6), rng.choice([0.01, 0.1, 0.3]))
    if rng.random() < 0.5:
        conditions = replace(conditions, loss=rng.choice([0.0, 0.1]), answer_loss=rng.choice([0.0, 0.1]))
    if rng.random() < 0.3:
        begin = rng.uniform(0.0, 4.0)
        side = frozenset(rng.sample(range(parties), rng.randint(1, parties - 1)))
        conditions = replace(conditions, partitions=(Partition(side, begin, begin + rng.uniform(0.0, 8.0)),))
    return FaultPlan(conditions, crashes)


def whoever_leaves(seed: int, fault_plans: int) -> None:
    rng, blind = random.Random(seed), 0
    for _ in range(fault_plans):
        parties = rng.randint(3, 6)
        plan = inca(parties, rng.randint(2, 5), rng.randint(1, 2))
        faults = leaving_plan(rng, parties)
        with told(plan, faults) as (outcome, stores):
            # Against those who told the record is never too optimistic.
            assert too_optimistic(outcome, stores) == {}, (plan.protocol, faults)
            # What those who left told one another alone it cannot know.
            blind += bool(too_optimistic(outcome, stores, silent=True))
            if not any(result.unresolved for result in outcome.results.values()):
                assert_total_is_that_of_the_truth(plan, outcome, stores)
    print(f"in {blind} of {fault_plans} fault plans somebody who left saw more than the record says")
    assert blind <= 0.03 * fault_plans + 1


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "fault_plans"), [(1, 25), (2, 100)])
def test_the_record_errs_on_the_safe_side(seed: int, fault_plans: int) -> None:
    whoever_leaves(seed=seed, fault_plans=fault_plans)


# --- cut off until the end --------------------------------------------------------------------------------------------------


def test_loose_ends_are_told_in_sentences() -> None:
    plan = inca(4, 3)
    addresses = [("127.0.0.1", 7000 + party) for party in range(4)]
    keys = [Identity.generate().public_key for _ in range(4)]
    roster = Roster(tuple(map(RosterEntry, ["ada", "bob", "cy", "dee"], addresses, keys)))
    told_of: set[str] = set()
    fault_plans = [
        *cut_off_stories(),
        CHAINS[0][1],
        FaultPlan(NetworkConditions(partitions=(Partition(frozenset({1}), 1.5, 9000.0),))),
    ]
    for faults in fault_plans:
        with told(plan, faults) as (outcome, _):
            results = list(outcome.results.values())
        for result in results:
            fewer = [other for other, there in outcome.results.items() if set(result.heard) - set(there.heard)]
            sentences = " | ".join(notes_of(roster, result))
            loose = {
                "counts twice": bool(result.counted_twice),
                f"at most {result.counted_twice_part:.2g} of the result's weight": bool(result.counted_twice),
                "nobody said whether": bool(result.unresolved),
                "sent no report at the end": bool(result.silent),
                "not all records count alike": any(0 < part < 0.999 for part in result.execution.parts),
                "arrived here: this result is without it": len(result.heard) < result.execution.trace.finished.sum(),
                "is not in the result of": bool(set(fewer) - set(result.silent)),
            }
            assert {text for text in loose if text in sentences} == {text for text, there in loose.items() if there}
            told_of |= {text.split(" of the")[0][:12] for text, there in loose.items() if there}
    # All of them have come up.
    assert len(told_of) >= 4


def cut_off_stories() -> list[FaultPlan]:
    """From the last rounds until nobody asks any more what became of a share; what is told at the end gets through again."""
    sides = [frozenset({1}), frozenset({1, 2})]
    return [
        FaultPlan(NetworkConditions(seed, 0.3, partitions=(Partition(side, begin, begin + 11.0),)))
        for seed in range(4)
        for side in sides
        for begin in (2.0, 3.0)
    ]


def test_a_partition_that_outlasts_the_last_round() -> None:
    """What counts twice is listed, with a bound of its effect that holds, and certified as seen from the receipt alone."""
    plan, values = inca(4, 3), values_of(4)
    silence, twice = InsecureSilentPopulation(4), 0
    for faults in cut_off_stories():
        with told(plan, faults) as (outcome, stores):
            for result in outcome.results.values():
                assert (result.counted_twice_part > 0) == bool(result.counted_twice)
                if not result.counted_twice or result.heard != (0, 1, 2, 3):
                    continue
                twice += 1
                releases = result.execution.run(values, silence).releases.values()
                weight = sum(release.weight for release in releases)
                mean = sum(release.vector for release in releases) / weight
                assert weight == pytest.approx(result.total_weight)
                assert 0 < weight - 4.0 <= result.counted_twice_part * weight * (1 + 1e-9)
                assert np.abs(mean - values.mean(axis=0)).max() <= result.counted_twice_part * np.ptp(values)
                receipt = Execution.from_json(result.execution.to_json())
                truth = true_history(receipt.schedule, stores, receipt.trace)
                for colluder in range(4):
                    real = leak(result.execution.with_trace(truth), colluder)
                    assert (real <= leak(receipt, colluder) * (1 + RELATIVE)).all()
    assert twice >= 4


def test_a_partition_that_never_ends() -> None:
    """Each side has its own result, without anything of the other side that could be wrong."""
    plan = inca(4, 3)
    for seed in range(6):
        split = Partition(frozenset({1, 2}), 1.2 + 0.3 * seed, 9000.0)
        with told(plan, FaultPlan(NetworkConditions(seed, 0.2, partitions=(split,)))) as (outcome, stores):
            assert too_optimistic(outcome, stores) == {}
            assert_total_is_that_of_the_truth(plan, outcome, stores)
            for party, result in outcome.results.items():
                assert set(result.silent) == ({0, 3} if party in (1, 2) else {1, 2})
