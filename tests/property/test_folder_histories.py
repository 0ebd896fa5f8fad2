"""Studies through a folder whose owner is an adversary: never two results, never a share that was put and counts as unseen.

The whole stack in virtual time: sessions, stores, outboxes, sealed and signed files. In every receipt each share of a party that
told its log counts as seen once it was put, whether or not it ever came.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace
from quietmean.node.folder import Outbox, Parties
from quietmean.node.phase import Phase
from quietmean.planning import Plan, Target
from quietmean.protocols import get_protocol
from quietmean.protocols.packed_sharing import PackedSharing
from support.faults import FaultOutcome, FaultPlan, check_run
from support.folder_world import FIRST, INTERVAL, MEMORY, Owner, Put, history, run_in_folder, without_threads

PARTIES = 4


@pytest.fixture(autouse=True)
def in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


def plans() -> dict[str, Plan]:
    target = Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=2)
    packed = {
        "members": PARTIES,
        "colluding": 1,
        "colluding_members": 1,
        "secrets": 1,
        "minimum": 3,
        "gone": 1,
        "ballots": 2,
        "step": 2.0**-10,
        "sigma": 2.0**-8,
        "clip": 1.0,
        "dimension": 2,
    }
    return {
        "packed-sharing": Plan(target, PackedSharing.read(packed).resolved(PARTIES)),
        "cordp-dme": Plan(target, get_protocol("cordp-dme").read({"sigma_own": 0.6, "sigma_pair": 1.5}).resolved(PARTIES)),
        "muffliato": Plan(target, get_protocol("muffliato").read({"sigma": 0.9, "rounds": 2}).resolved(PARTIES)),
    }


VALUES: Vector = np.full((PARTIES, 2), 0.1) * np.arange(1, PARTIES + 1)[:, None]


def tell(plan: Plan, owner: Owner, faults: FaultPlan) -> tuple[FaultOutcome, frozenset[Put]]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        return run_in_folder(plan, VALUES, faults, Path(directory), owner)


def unseen(outcome: FaultOutcome, put: frozenset[Put]) -> set[Put]:
    """What somebody put who told its log, and a result has as unseen: a share, or a release that it does not count."""
    missing = set()
    for result in outcome.results.values():
        schedule = result.execution.schedule
        handed, released = result.execution.trace.handed(schedule), result.execution.trace.finished
        for phase, round_, sender, receiver in put:
            if sender in result.silent:
                continue
            if phase == Phase.DISSEMINATION:
                known = bool(released[sender])
            else:
                known = handed[round_ - 1, sender, schedule.neighbours[round_ - 1, sender] == receiver].any()
            if not known:
                missing.add((phase, round_, sender, receiver))
    return missing


def check(name: str, plan: Plan, outcome: FaultOutcome, put: frozenset[Put]) -> None:
    check_run(plan, VALUES, outcome)
    assert unseen(outcome, put) == set()
    if name == "packed-sharing":
        assert len({result.total_vector.tobytes() for result in outcome.results.values()}) <= 1
        assert all(result.total_weight >= 3 for result in outcome.results.values())


def stories(name: str, seeds: range) -> Counter[str]:
    plan, found = plans()[name], Counter[str]()
    for seed in seeds:
        owner, faults = history(seed, PARTIES)
        try:
            outcome, put = tell(plan, owner, faults)
            check(name, plan, outcome, put)
        except BaseException as error:
            error.add_note(f"{name}, history {seed}: {owner}, {faults.crashes}")
            raise
        found["results"] += len(outcome.results)
        found["whole"] += len(outcome.results) == PARTIES
        found["late"] += any(result.execution.trace.unused(result.execution.schedule) for result in outcome.results.values())
    print(f"\n{name}, histories {seeds.start} to {seeds.stop}: {dict(found)}")
    return found


@pytest.mark.parametrize("name", sorted(plans()))
def test_without_an_adversary_everybody_has_the_result_of_all(name: str) -> None:
    plan = plans()[name]
    outcome, put = tell(plan, Owner(0), FaultPlan(round_timeout=INTERVAL))
    check(name, plan, outcome, put)
    assert sorted(outcome.results) == list(range(PARTIES))
    if plan.protocol.traits.releases_are_public:
        assert all(result.total_weight == PARTIES for result in outcome.results.values())
    # No wait lasted until its deadline.
    assert outcome.seconds < FIRST


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(plans()))
def test_a_few_histories(name: str) -> None:
    stories(name, range(25))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(plans()))
def test_many_histories(name: str) -> None:
    """``QUIETMEAN_HISTORIES``: how many."""
    count = int(os.environ.get("QUIETMEAN_HISTORIES", "400"))
    found = stories(name, range(25, 25 + count))
    # They are not all the same.
    assert 0 < found["whole"] < count
    # In some a share was put that nobody used. Values of cordp-dme go out with its releases.
    assert found["late"] > 0 or name == "cordp-dme"


def everything_that_was_put_and_not_used_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExecutionTrace, "all_handed", lambda trace, schedule: trace)


def a_file_is_valid_in_every_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Parties, "info", lambda parties, slot: b"anywhere")


def a_process_that_is_started_again_reads_from_the_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "next_number", lambda outbox, receiver: 1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("wrong", "name", "found"),
    [
        (everything_that_was_put_and_not_used_is_forgotten, "packed-sharing", AssertionError),
        # Copies of its own files look to their sender as if another process of it had put them.
        (a_file_is_valid_in_every_place, "muffliato", InputError),
        (a_process_that_is_started_again_reads_from_the_beginning, "muffliato", InputError),
    ],
)
def test_wrong_implementations_are_found(
    wrong: Callable[[pytest.MonkeyPatch], None], name: str, found: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch)
    with pytest.raises(found):
        stories(name, range(60))
