"""The gate of a study through a folder whose owner is an adversary: nothing beyond the target is published, never two histories.

The whole stack in virtual time. Every file that was put counts as read by its receiver, whether or not a program ever opened it.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quietmean.core.party import Vector
from quietmean.graphs import NEVER, ExecutionTrace
from quietmean.planning import Plan, gate
from quietmean.randomness import Seed
from support.faults import Crash, FaultOutcome, FaultPlan, check_run
from support.folder_world import FIRST, INTERVAL, MEMORY, Owner, history, run_in_folder, without_threads
from support.gated import check_gate, decided_once, facts, gated_plan

PARTIES = 4


@pytest.fixture(autouse=True)
def in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


def plan_of(star: float, delta: float, rounds: int = 3) -> Plan:
    plan = gated_plan(PARTIES, rounds, star, delta)
    return replace(plan, target=replace(plan.target, by_folder=True))


VALUES: Vector = (1 + np.sin(np.arange(float(PARTIES))).reshape(PARTIES, 1)) / 2


def tell(plan: Plan, owner: Owner, faults: FaultPlan) -> tuple[str, FaultOutcome]:
    """How it ended, all that must hold checked."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory, pytest.MonkeyPatch.context() as patch, decided_once(patch):
        outcome, put = run_in_folder(plan, VALUES, faults, Path(directory), owner)
        outcome = replace(
            outcome, handed=outcome.handed | {(int(phase), round_, sender, receiver) for phase, round_, sender, receiver in put}
        )
        stores = [Path(directory) / f"{party}.store" for party in range(PARTIES)]
        try:
            check_run(plan, VALUES, outcome)
            return check_gate(plan, outcome, stores), outcome
        except AssertionError as error:
            raise AssertionError(f"{error}: {facts(outcome)}") from None


def stories(plan: Plan, seeds: range, told: Callable[[int], tuple[Owner, FaultPlan]]) -> Counter[str]:
    found = Counter[str]()
    for seed in seeds:
        owner, faults = told(seed)
        try:
            ended, outcome = tell(plan, owner, faults)
        except BaseException as error:
            error.add_note(f"history {seed}: {owner}, {faults.crashes}")
            raise
        found[ended] += 1
        found["results"] += len(outcome.results)
        found["without all"] += ended == "published" and any(
            result.gate is not None and bool(result.gate.incomplete) for result in outcome.results.values()
        )
    print(f"\nhistories {seeds.start} to {seeds.stop}: {dict(found)}")
    return found


def test_without_an_adversary_everybody_has_the_result_of_all() -> None:
    ended, outcome = tell(plan_of(4.0, 12.0), Owner(0), FaultPlan(round_timeout=INTERVAL))
    assert ended == "published"
    assert sorted(outcome.results) == list(range(PARTIES))
    assert all(result.total_weight == pytest.approx(PARTIES) for result in outcome.results.values())
    # No wait lasted until its deadline.
    assert outcome.seconds < FIRST


def late(seed: int) -> tuple[Owner, FaultPlan]:
    """A folder that is nearly in time; one party dies before the votes, and comes back after deadlines or never.

    What it puts then, others may read, although it counts as gone.
    """
    chance = random.Random(seed)
    owner = Owner(seed, delay=chance.choice([0.0, 0.0, 2.0]), kind=4 * PARTIES * (PARTIES - 1))
    away = chance.choice([None, chance.uniform(INTERVAL, 8 * INTERVAL)])
    crash = Crash(chance.randrange(9, 20), chance.random() < 0.5, None, away)
    return owner, FaultPlan(crashes={chance.randrange(PARTIES): [crash]}, round_timeout=INTERVAL)


@pytest.mark.slow
def test_nothing_beyond_the_target_is_published_whoever_is_late() -> None:
    found = stories(plan_of(3.2, 8.0), range(60), late)
    # The others publish without who is gone.
    assert found["published"] >= 10
    assert found["without all"] >= 3


@pytest.mark.slow
def test_nor_whatever_the_owner_does() -> None:
    found = stories(plan_of(4.0, 12.0), range(60), lambda seed: history(seed, PARTIES))
    assert min(found["published"], found["refused"]) >= 3


def test_a_few_histories() -> None:
    """Of one that is late, and of an owner who does what it likes."""
    stories(plan_of(3.2, 8.0), range(3), late)
    stories(plan_of(4.0, 12.0), range(2), lambda seed: history(seed, PARTIES))


# --- what is read after the gate -------------------------------------------------------------------------------------------


def leaver(rounds: int, gone: int, until: int) -> ExecutionTrace:
    online = np.ones((rounds + 1, PARTIES), dtype=np.bool_)
    online[until + 1 :, gone] = False
    return ExecutionTrace(online)


def read_later(plan: Plan, seed: Seed, gone: int, until: int) -> tuple[float, float, float]:
    """One party leaves, goes on by itself, and others read all of that later; it releases nothing.

    The mu at the gate; that of a gate for which it never left; and the largest mu of the others against every coalition.
    """
    target, rounds = plan.target, plan.protocol.rounds
    short, whole = (plan.execution(seed, leaver(rounds, gone, last)) for last in (until, rounds))
    schedule = short.schedule
    # Its shares came too late to be used: they were seen.
    lost = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
    lost[until:, gone] = schedule.neighbours[until:, gone] >= 0
    # What it was sent it used, and its sender, who never heard of that, kept it as well.
    rows = np.argwhere(schedule.neighbours == gone)
    kept = [(round_ + 1, sender, gone, NEVER) for round_, sender, _ in rows.tolist() if round_ >= until]
    settled = np.array(kept, dtype=np.int64).reshape(-1, 4)
    happened = replace(whole.trace, lost=lost if lost.any() else None, settled=settled).all_handed(schedule)
    execution = short.with_trace(happened)
    transcript = execution.transcript()
    transcript = replace(transcript, released=transcript.released & (transcript.sender != gone))
    privacy = replace(execution.privacy(target.delta), transcript=transcript)
    worst = 0.0
    for coalition in itertools.combinations(range(PARTIES), target.colluding):
        certificate = privacy.against(coalition)
        bounds = zip(certificate.honest, certificate.mu_upper.tolist(), strict=True)
        worst = max(worst, *(mu for party, mu in bounds if party != gone))
    return gate.decide(target, short).mu, gate.decide(target, whole, ()).mu, worst


def test_what_is_read_after_the_gate_is_counted() -> None:
    """The gate's bound holds of it, and is near it; a gate that takes who is gone for present is found out."""
    plan = plan_of(1.0, 6.0)
    told = [read_later(plan, Seed.public("late", 0), gone, until) for gone in range(PARTIES) for until in (0, 1)]
    assert all(worst <= mu * (1 + 1e-9) for mu, _, worst in told)
    assert max(worst / mu for mu, _, worst in told) > 0.95
    assert any(worst > present * (1 + 1e-6) for _, present, worst in told)
