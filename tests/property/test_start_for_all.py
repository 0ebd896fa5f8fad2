"""The start of a study that waits for all: what is told is on disk before, under deaths at every write, losses and late parties.

Real participants and stores, in virtual time, with a network between them that loses, doubles and reorders.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from property.test_node_faults import MEMORY, assert_faultless, inca, values_of
from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import PartyId, Vector
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry, Waits
from quietmean.node.local.memory import MemoryLink
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.net import ACCEPTED, REFUSED, AnswerFrame, Payload, Revealed, Start
from quietmean.node.session import Carrier, PeerLink
from quietmean.node.session.settings import Opening, commitment_hash
from quietmean.node.start import Announcement, Attempt, Machine, Proposal, StartPhase, StartProgress, load_progress, quorum_study
from quietmean.node.start.started import from_frame
from quietmean.node.storage import Store
from quietmean.planning import Plan
from support.faults import Crash, FaultOutcome, FaultPlan, run_with_faults
from support.network import NetworkConditions

# Of three parties, and where one of them is at the start.
EVERYBODY, AT = Proposal(1, frozenset(range(3)), b""), (0, 0)
ROUGH = NetworkConditions(seed=3, delay=0.05, loss=0.15, answer_loss=0.15, duplicates=0.2)


@dataclass
class Witness:
    """What each party has on disk, and has told; and the commitments and nonces that it ever told."""

    on_disk: dict[PartyId, StartProgress] = field(default_factory=dict)
    commits: dict[PartyId, set[bytes]] = field(default_factory=dict)
    told: int = 0

    def saved(self, path: Path, progress: bytes) -> None:
        self.on_disk[int(path.stem)] = load_progress(progress)

    def tells(self, party: PartyId, frame: Start, parties: int) -> None:
        """Raises AssertionError for what is not on disk, or comes too early."""
        announcement, progress = from_frame(frame, parties), self.on_disk.get(party, StartProgress())
        self.told += 1
        if announcement.proposal is None:
            return
        attempt = progress.attempt
        assert attempt is not None, f"party {party} told of an attempt that is not on its disk"
        self.commits.setdefault(party, set()).add(announcement.commit)
        assert len(self.commits[party]) == 1, f"party {party} committed twice"
        if announcement.openings:
            assert attempt.all_committed, f"party {party} revealed before all had committed"
        assert set(announcement.openings) <= attempt.openings.keys(), f"party {party} told what it does not know"
        assert progress.bound or not announcement.bound, f"party {party} told that it is bound before it was"


@contextmanager
def witness() -> Iterator[Witness]:
    seen, save, load, ask = Witness(), Store.save_standing, Store.progress, MemoryLink.ask

    def saved(store: Store, progress: bytes, seed: bytes | None = None) -> None:
        save(store, progress, seed)
        seen.saved(store.path, progress)

    def loaded(store: Store) -> bytes | None:
        # The process before this one may have died right after it was there.
        found = load(store)
        if found is not None:
            seen.saved(store.path, found)
        return found

    async def asked(link: MemoryLink, request: object, *more: object, **options: object) -> AnswerFrame:
        if isinstance(request, Start):
            seen.tells(link._party, request, len(link._network.deaths))
        return await ask(link, request, *more, **options)  # type: ignore[arg-type]

    with (
        patch.object(Store, "save_standing", saved),
        patch.object(Store, "progress", loaded),
        patch.object(MemoryLink, "ask", asked),
    ):
        yield seen


def run(plan: Plan, faults: FaultPlan) -> tuple[FaultOutcome, Witness]:
    with witness() as seen, tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        outcome = run_with_faults(plan, values_of(plan.target.parties), faults, Path(directory))
    return outcome, seen


def writes_of_the_start(parties: int) -> int:
    """One's own first, then a commitment and an opening of each other one, then that it is bound."""
    return 2 + 2 * (parties - 1)


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_two_exchanges_with_each_other_party_precede_the_first_round(parties: int) -> None:
    outcome, seen = run(inca(parties, 1), FaultPlan())
    assert_faultless(inca(parties, 1), outcome)
    # A commitment and an opening to each; a request that its answer crossed may come again.
    assert seen.told <= 3 * parties * (parties - 1)


@pytest.mark.slow
@pytest.mark.parametrize("conditions", [NetworkConditions(), ROUGH])
def test_death_at_each_write_of_the_start(conditions: NetworkConditions) -> None:
    """Before or after it is on disk: the party goes on, everybody is in, and each has committed once."""
    plan = inca(3, 1)
    for party, write, committed in itertools.product(range(3), range(writes_of_the_start(3)), (False, True)):
        if party and (party + write) % 2:
            # All parties are alike: of the others each second place.
            continue
        outcome, seen = run(plan, FaultPlan(conditions, {party: [Crash(write, committed)]}, round_timeout=8.0))
        assert_faultless(plan, outcome)
        assert len({result.public_seed for result in outcome.results.values()}) == 1
        assert {len(commits) for commits in seen.commits.values()} == {1}


@pytest.mark.parametrize("seed", range(6))
def test_late_parties_that_die_again_and_again(seed: int) -> None:
    chance = random.Random(seed)
    parties = chance.choice([2, 3, 4])
    plan, conditions = inca(parties, 1), replace(ROUGH, seed=seed)
    crashes = {
        party: [
            # It comes late, then dies at some write of the start, twice.
            Crash(after=0.0, away=chance.uniform(0.0, 60.0)),
            *(Crash(chance.randrange(writes_of_the_start(parties)), chance.random() < 0.5) for _ in range(2)),
        ]
        for party in range(parties)
    }
    outcome, _ = run(plan, FaultPlan(conditions, crashes, round_timeout=8.0))
    assert_faultless(plan, outcome)


def test_one_that_never_comes_is_named_and_nothing_was_sent() -> None:
    outcome, _ = run(inca(3, 1), FaultPlan(crashes={1: [Crash(after=0.0, away=None)]}, start_timeout=20.0))
    assert outcome.results == {}
    assert {str(failure) for failure in outcome.failures.values()} == {
        "the study did not start within 20 s for want of party-1: nobody listens at its address"
    }
    assert not outcome.handed


# --- wrong ones are found --------------------------------------------------------------------------------------------


def reveals_at_once(machine: Machine, progress: StartProgress) -> Announcement:
    announcement, attempt = announce(machine, progress), progress.attempt
    if attempt is None or not announcement.commit or announcement.openings:
        return announcement
    return replace(announcement, openings={machine.party: attempt.own})


def tells_before_it_is_on_disk(gathering: StartPhase, progress: StartProgress) -> None:
    """It tells in a task of its own, which runs before the write."""
    gathering._standing, gathering._announced = progress, None
    gathering._tell_soon(*gathering._links)
    asyncio.get_running_loop().call_later(0.001, save, gathering, progress)


announce, save = Machine.announce, StartPhase._save


@pytest.mark.parametrize(
    ("of", "name", "wrong", "found"),
    [
        (Machine, "announce", reveals_at_once, "revealed before all had committed"),
        (StartPhase, "_save", tells_before_it_is_on_disk, "not on its disk"),
    ],
)
def test_wrong_starts_are_found(of: type, name: str, wrong: Callable[..., object], found: str) -> None:
    with patch.object(of, name, wrong), pytest.raises(AssertionError, match=found):
        run(inca(3, 1), FaultPlan())


# --- liars -----------------------------------------------------------------------------------------------------------


@dataclass
class Deaf:
    """A link to a liar, which takes everything."""

    trouble: str = "it says what it wants"
    unreachable: bool = False
    answer: AnswerFrame = field(default_factory=lambda: AnswerFrame(0, ACCEPTED, 0, 0))

    async def ask(self, request: object, payload: Payload = b"", *more: object, **options: object) -> AnswerFrame:
        await asyncio.sleep(0.01)
        return self.answer

    async def close(self) -> None: ...


@dataclass
class Lonely:
    """Party 0 of three, with the others played by the test. ``refused``: what it said of whom."""

    folder: Path
    refused: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        identities = [Identity.generate() for _ in range(3)]
        roster = Roster(
            tuple(RosterEntry(f"p{place}", ("127.0.0.1", 1 + place), one.public_key) for place, one in enumerate(identities))
        )
        plan = inca(3, 1)
        value: Vector = np.full(2, 0.5)
        self.settings = NodeSettings(
            identity=identities[0],
            roster=roster,
            brought=PlannedValue(plan, plan.admit(value)),
            store=self.folder / "0.store",
            waits=Waits(start=5.0),
        )

    def commit(self, party: PartyId, opening: Opening) -> bytes:
        return commitment_hash(quorum_study(self.settings.study, EVERYBODY), party, opening)

    async def start(
        self, story: Callable[[StartPhase], None], links: dict[PartyId, PeerLink] | None = None
    ) -> Attempt | ProtocolFailure:
        store = self.settings.open_store()
        found = StartPhase(
            self.settings,
            store,
            Carrier(links or {1: Deaf(), 2: Deaf()}),
            lambda event: None,
            refused=lambda peer, reason: self.refused.append((peer, reason)),
        )
        try:
            found.start()
            story(found)
            return await found.until_bound()
        except ProtocolFailure as error:
            return error
        finally:
            await found.stop()
            store.close()


def opening(mark: bytes, weight: float = 1.0) -> Opening:
    return Opening(mark * 32, weight, b"x" * 32)


def says(party: Lonely, sender: PartyId, made: Opening, revealed: Opening | None = None, *, by: PartyId | None = None) -> Start:
    """``made``: what it committed to; ``revealed``: of ``by``, by default of itself."""
    by = sender if by is None else by
    opened = () if revealed is None else (Revealed(by, revealed.nonce, revealed.weight, revealed.exchange),)
    return Start(0, 1, (), b"", party.commit(sender, made), opened)


def test_all_that_is_told_rightly_starts(tmp_path: Path) -> None:
    party = Lonely(tmp_path)

    def story(start: StartPhase) -> None:
        for sender, mark in ((1, b"b"), (2, b"c")):
            assert start.handle(sender, says(party, sender, opening(mark), opening(mark)), AT).status == ACCEPTED

    found = run_virtually(party.start(story))
    assert isinstance(found, Attempt)
    assert {one: each.nonce[:1] for one, each in found.openings.items() if one} == {1: b"b", 2: b"c"}
    assert party.refused == []


@pytest.mark.parametrize(
    ("lies", "reason"),
    [
        # Other bytes than were committed to, another weight, another key.
        ([(b"b", opening(b"z"))], "it showed other numbers than those it had fixed before"),
        ([(b"b", opening(b"b", 2.0))], "it showed other numbers than those it had fixed before"),
        ([(b"b", replace(opening(b"b"), exchange=b"y" * 32))], "it showed other numbers than those it had fixed before"),
        # A second commitment.
        ([(b"b", None), (b"z", None)], "it committed to something else before"),
        ([(b"b", None), (b"z", opening(b"z"))], "it committed to something else before"),
    ],
)
def test_a_liar_is_refused_and_nobody_starts(tmp_path: Path, lies: list[tuple[bytes, Opening | None]], reason: str) -> None:
    party = Lonely(tmp_path)

    def story(start: StartPhase) -> None:
        start.handle(2, says(party, 2, opening(b"c"), opening(b"c")), AT)
        answers = [start.handle(1, says(party, 1, opening(mark), revealed), AT) for mark, revealed in lies]
        assert answers[-1].status == REFUSED
        assert reason in answers[-1].reason

    found = run_virtually(party.start(story))
    assert isinstance(found, ProtocolFailure)
    assert str(found) == "the study did not start within 5 s for want of p1: it says what it wants"
    assert [name for name, _ in party.refused] == ["p1"]


@pytest.mark.parametrize("weight", [-1.0, float("inf"), float("nan")])
def test_an_impossible_weight_is_refused(tmp_path: Path, weight: float) -> None:
    party = Lonely(tmp_path)

    def story(start: StartPhase) -> None:
        start.handle(2, says(party, 2, opening(b"c"), opening(b"c")), AT)
        answer = start.handle(1, says(party, 1, opening(b"b", weight), opening(b"b", weight)), AT)
        assert answer.status == REFUSED
        assert "it must be a number of at least 0" in answer.reason

    assert isinstance(run_virtually(party.start(story)), ProtocolFailure)


def test_an_opening_that_another_party_tells_must_be_what_was_committed_to(tmp_path: Path) -> None:
    party = Lonely(tmp_path)

    def story(start: StartPhase) -> None:
        start.handle(1, says(party, 1, opening(b"b")), AT)
        # Party 2 says what party 1 has not: of what it passes on only the right one counts.
        start.handle(2, says(party, 2, opening(b"c"), opening(b"z"), by=1), AT)
        attempt = start.progress.attempt
        assert attempt is not None
        assert 1 not in attempt.openings
        start.handle(2, says(party, 2, opening(b"c"), opening(b"b"), by=1), AT)
        attempt = start.progress.attempt
        assert attempt is not None
        assert attempt.openings[1] == opening(b"b")

    assert isinstance(run_virtually(party.start(story)), ProtocolFailure)


def test_who_lost_its_store_is_told_so_and_does_not_begin_alone(tmp_path: Path) -> None:
    """Its commitment is another one than before: the others refuse it, and what they revealed before is of no use to it."""
    party = Lonely(tmp_path)
    refusing = Deaf(answer=AnswerFrame(0, REFUSED, 0, 0, "it committed to something else before: it lost its store"))

    def story(start: StartPhase) -> None:
        for sender, mark in ((1, b"b"), (2, b"c")):
            start.handle(sender, says(party, sender, opening(mark), opening(mark)), AT)

    found = run_virtually(party.start(story, {1: refusing, 2: Deaf()}))
    assert isinstance(found, ProtocolFailure)
    assert "for want of p1: peer refused: it committed to something else before: it lost its store" in str(found)


def test_a_start_that_failed_is_tried_again_with_the_same_nonce(tmp_path: Path) -> None:
    party = Lonely(tmp_path)
    seen: list[bytes] = []

    def nobody(start: StartPhase) -> None:
        assert start.progress.attempt is not None
        seen.append(start.progress.attempt.own.nonce)

    def all_come(start: StartPhase) -> None:
        nobody(start)
        for sender, mark in ((1, b"b"), (2, b"c")):
            start.handle(sender, says(party, sender, opening(mark), opening(mark)), AT)

    assert isinstance(run_virtually(party.start(nobody)), ProtocolFailure)
    found = run_virtually(party.start(all_come))
    assert isinstance(found, Attempt)
    assert seen == [found.openings[0].nonce] * 2
