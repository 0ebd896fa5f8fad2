"""An error of the disk or of memory at every place of every party, in virtual time: nobody stops answering, and nothing is lost.

What is no crash: one write, fsync, read or handler fails, and everything after it works again, or fails for a while.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from property.test_node_faults import MEMORY, accepted_values, assert_faultless, inca, plan_of, tell, values_of
from quietmean.core.party import Vector
from quietmean.planning import Plan
from quietmean.protocols import Mechanism, registry
from support.disk import KINDS, Machine, Trouble, failing_disk, failing_handlers
from support.faults import FaultOutcome, FaultPlan, check_run, run_with_faults

# Nobody is late because of what is repeated.
CALM = FaultPlan(round_timeout=20.0)


def places(plan: Plan, *, reads: bool = False) -> tuple[Machine, Machine]:
    """What each party asks of its disk and of its handlers where nothing fails."""
    with failing_disk(reads=reads) as disk, failing_handlers() as handlers:
        assert_faultless(plan, tell(plan, CALM))
    return disk, handlers


def with_trouble(plan: Plan, trouble: Trouble, *, of_handlers: bool = False, reads: bool = False) -> FaultOutcome:
    with ExitStack() as patches:
        patches.enter_context(failing_handlers(trouble) if of_handlers else failing_disk(trouble, reads=reads))
        return tell(plan, CALM)


def assert_told(trouble: Trouble, outcome: FaultOutcome) -> None:
    """The party with the trouble said so, with a remedy; nobody else said anything."""
    for party, told in enumerate(outcome.stalled):
        assert bool(told) == (party == trouble.party)
        assert all(sentence.endswith("the study goes on.") for sentence in told)


def troubles(machine: Machine, step: int = 1, kinds: tuple[str, ...] = KINDS) -> Iterator[Trouble]:
    """Each place of each party once, with the kinds and both moments in turn."""
    turns = itertools.cycle((kind, after) for after in (False, True) for kind in kinds)
    for party, names in machine.names.items():
        for place in range(0, len(names), step):
            kind, after = next(turns)
            # What cannot be written from the beginning is a mistake of the user.
            opening = names[: place + 1].count("COMMIT") == 0
            yield Trouble(party, place, "full" if opening and kind == "read-only" else kind, after)


def every_place(plan: Plan, step: int = 1) -> int:
    disk, handlers = places(plan)
    tried = 0
    for machine in (disk, handlers):
        assert all(len(machine.names[party]) > 4 for party in range(plan.target.parties))
        for trouble in troubles(machine, step):
            outcome = with_trouble(plan, trouble, of_handlers=machine is handlers)
            assert_faultless(plan, outcome)
            assert_told(trouble, outcome)
            tried += 1
    return tried


@pytest.mark.slow
def test_one_error_at_every_write_and_in_every_handler() -> None:
    """Everybody has the same result, with everybody in it, and the party whose disk failed has said so."""
    assert every_place(inca(2, 2)) > 100


@pytest.mark.slow
def test_one_error_at_every_write_of_large_vectors() -> None:
    """They are in a file of their own beside the database."""
    assert every_place(inca(2, 1, dimension=10_000), step=3) > 30


@pytest.mark.slow
def test_one_error_of_every_kind_at_every_place() -> None:
    plan = inca(3, 3)
    disk, handlers = places(plan, reads=True)
    for machine in (disk, handlers):
        for first in troubles(machine, kinds=KINDS[:1]):
            for kind, after in itertools.product(KINDS, (False, True)):
                trouble = Trouble(first.party, first.place, kind, after)
                outcome = with_trouble(plan, trouble, of_handlers=machine is handlers, reads=True)
                assert_faultless(plan, outcome)
                assert_told(trouble, outcome)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("times", [2, 7, 40])
def test_a_disk_that_is_full_for_a_while(times: int) -> None:
    """It waits, and everybody has everything: nothing of it takes as long as the others wait."""
    plan = inca(3, 2)
    disk, _ = places(plan)
    for place in range(times % 5, len(disk.names[1]), 17):
        trouble = Trouble(1, place, "full", times=times)
        outcome = with_trouble(plan, trouble)
        assert_faultless(plan, outcome)
        assert_told(trouble, outcome)
        assert all("no space beside" in sentence and "Make room" in sentence for sentence in outcome.stalled[1])


def test_a_disk_that_stays_full() -> None:
    """The party ends with one sentence, and is started again in vain; the others go on without it."""
    plan = inca(3, 2)
    disk, _ = places(plan)
    # When the others have begun, too.
    place = disk.names[2].index("INSERT INTO inbox")
    faults = FaultPlan(round_timeout=4.0, start_timeout=20.0)
    with failing_disk(Trouble(2, place, "full", times=400)):
        outcome = tell(plan, faults)
    assert sorted(outcome.results)[:2] == [0, 1]
    check_run(plan, values_of(3), outcome)
    assert len(outcome.stalled[2]) > 1


def each_protocol(protocol: type[Mechanism], most: int) -> None:
    """At ``most`` places of each kind, or so."""
    parties = 4
    plan = plan_of(protocol, parties)
    values = accepted_values(plan, parties)
    with failing_disk() as disk, failing_handlers() as handlers:
        check_run(plan, values, _tell(plan, values))
    for machine in (disk, handlers):
        asked = sum(map(len, machine.names.values()))
        for trouble in troubles(machine, 1 + asked // most):
            with failing_handlers(trouble) if machine is handlers else failing_disk(trouble):
                outcome = _tell(plan, values)
            check_run(plan, values, outcome)
            assert sorted(outcome.results) == list(range(parties)), (trouble, outcome.failures)
            assert_told(trouble, outcome)


def _tell(plan: Plan, values: Vector) -> FaultOutcome:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        return run_with_faults(plan, values, CALM, Path(directory))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("protocol", registry().values(), ids=lambda protocol: protocol.name)
def test_one_error_in_every_protocol(protocol: type[Mechanism]) -> None:
    each_protocol(protocol, most=4)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", registry().values(), ids=lambda protocol: protocol.name)
def test_one_error_at_every_place_of_every_protocol(protocol: type[Mechanism]) -> None:
    each_protocol(protocol, most=200)
