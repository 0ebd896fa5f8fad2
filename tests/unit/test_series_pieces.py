"""Pieces of a series of rounds: frames of a round, places, requests about later rounds, patience with others, the record."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.core.errors import PeerError, ProtocolFailure
from quietmean.core.portability import replace_durably
from quietmean.node import SeriesProgress, Waits
from quietmean.node.folder import Outbox
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.net import AnswerFrame, Heartbeat, InRound, Limits, Link, Log, Transfer, in_round, inner_request
from quietmean.node.net.stream import FrameReader
from quietmean.node.net.wire import encode_frame
from quietmean.node.phase import Phase
from quietmean.node.series.others import CLOSING, FIRST_ASKING, Others, RoundAhead, RoundPosition
from quietmean.node.series.ways import _HELD, OpenRequests
from quietmean.node.session.context import FLOOR, Context, FailureDetector, Wait
from quietmean.node.session.session import StudySession
from quietmean.node.storage import LAST, ROUND, Store, empty, outbox_path, remove_store, size_of
from support.refusals import raised

LIMITS = Limits(header=4096, dimension=3, content=0, log=100)


class _Bytes:
    def __init__(self, content: bytes) -> None:
        self._content = content

    async def readexactly(self, n: int, /) -> bytes:
        found, self._content = self._content[:n], self._content[n:]
        return found


def read(raw: bytes) -> Any:
    return asyncio.run(FrameReader(_Bytes(raw)).next(LIMITS))


@pytest.mark.parametrize(
    ("request_", "payload"),
    [(Heartbeat(0, 1, 2), b""), (Log(0, b"known"), b"a log"), (Transfer(0, 1, 2, 0.5, 10, b"12345678", 3), bytes(24))],
)
def test_a_request_of_a_round_is_read_as_it_was_sent(request_: Any, payload: bytes) -> None:
    frame = msgspec.structs.replace(in_round(request_, 7), number=5)
    found, content = read(encode_frame(frame, len(payload)) + payload)
    assert (found, bytes(content)) == (frame, payload)
    assert inner_request(found) == msgspec.structs.replace(request_, number=5)


@pytest.mark.parametrize(
    ("inside", "payload", "said"),
    [
        (in_round(Heartbeat(0, 1, 2), 1), b"", "something else than a request"),
        (AnswerFrame(0, "ok", 1, 1), b"", "something else than a request"),
        (Heartbeat(0, 1, 2), b"more", "4 bytes after a header"),
        (Log(0), bytes(101), "the limit is 100"),
        (Transfer(0, 1, 2, 0.5, 10, b"12345678", 4), bytes(32), "a payload of 32 bytes|a vector of 4 values"),
    ],
)
def test_what_is_inside_is_checked_before_its_payload_is_read(inside: Any, payload: bytes, said: str) -> None:
    frame = InRound(0, 3, msgspec.msgpack.encode(inside))
    limits = Limits(header=4096, dimension=3, content=0, log=100)
    raised(PeerError, said, asyncio.run, FrameReader(_Bytes(encode_frame(frame, len(payload)))).next(limits))


def test_rubbish_inside_is_refused() -> None:
    header = msgspec.msgpack.encode(["i", 0, 3, b"\xc1\x00"])
    raised(PeerError, "cannot be read", read, struct.pack(">II", len(header), 0) + header)


@given(st.integers(0, 10_000), st.integers(0, 4), st.integers(0, 1000), st.integers(0, 10_000), st.integers(0, 4))
def test_places_survive_the_wire_in_order(round_: int, phase: int, step: int, other_round: int, other_phase: int) -> None:
    one, other = RoundPosition(round_, (phase, step)), RoundPosition(other_round, (other_phase, step))
    assert RoundPosition.of(one.announced()) == one
    assert (one < other) == (one.announced() < other.announced())


async def test_of_one_party_so_many_requests_about_a_later_round_are_kept() -> None:
    requests, begun = OpenRequests(), [False]
    answered: list[int] = []

    async def ask(number: int) -> None:
        with requests.about(4):
            await requests.hold(1, lambda: not begun[0])
            answered.append(number)

    tasks = []
    for number in range(_HELD + 3):
        tasks.append(asyncio.create_task(ask(number)))
        await asyncio.sleep(0)
    assert requests.lost_some
    begun[0] = True
    requests.turn()
    await asyncio.gather(*tasks, return_exceptions=True)
    # The oldest were dropped without an answer.
    assert answered == list(range(3, _HELD + 3))

    begun[0] = False
    late = asyncio.create_task(ask(99))
    await asyncio.sleep(0)
    requests.drop(3)
    await asyncio.sleep(0)
    assert not late.done()
    requests.drop(4)
    with pytest.raises(asyncio.CancelledError):
        await late


def test_patience_with_who_computes_and_none_with_who_is_away() -> None:
    detector = FailureDetector(10.0, lambda: 0.0)
    detector.record_wait(0.0)
    assert detector.deadline(0, Phase.MIXING, 0.0, answer_due=False) == FLOOR * 10.0
    detector.expect(1)
    assert detector.deadline(1, Phase.MIXING, 0.0, answer_due=False) == 10.0
    detector.heard(1, (1, 1))
    assert detector.deadline(1, Phase.MIXING, 0.0, answer_due=False) == FLOOR * 10.0
    detector.presume_absent(2)
    assert detector.suspected(2)
    assert detector.deadline(2, Phase.MIXING, 0.0, answer_due=True) == 0.0
    detector.heard(2, (1, 1))
    assert not detector.suspected(2)
    assert detector.deadline(2, Phase.MIXING, 0.0, answer_due=False) == FLOOR * 10.0


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("answer_due", [False, True])
def test_an_ended_process_is_waited_for_no_longer_than_is_said(heard: bool, answer_due: bool) -> None:
    """Whatever it did before: each of its waits is shortened, the one for its answer and the one for its heartbeats too."""
    clock = 0.0
    short, usual = (FailureDetector(10.0, lambda: clock, gone_timeout=gone) for gone in (0.6, None))
    clock = 1.0
    if heard:
        for detector in (short, usual):
            detector.heard(0, (1, 1))
    ended, there = (partial(short.deadline, 0, Phase.MIXING, 0.5, answer_due, gone) for gone in (True, False))
    usually_ended, usually_there = (partial(usual.deadline, 0, Phase.MIXING, 0.5, answer_due, gone) for gone in (True, False))
    assert ended() < (1.0 if heard else 0.5) + 2 * 0.6 + 1e-9
    assert there() == usually_ended() == usually_there()


def test_a_wait_sees_that_a_process_has_ended() -> None:
    """Not only when its next heartbeat is due, a quarter of the time-out later: no link wakes it."""

    async def story() -> float:
        loop = asyncio.get_running_loop()
        link = SimpleNamespace(unreachable=False, ask=lambda *request: asyncio.sleep(1e6))
        context = Context(
            settings=cast(Any, SimpleNamespace(waits=Waits(10.0), names=("own", "killed"), party=0)),
            store=cast(Any, None),
            inbox=cast(Any, SimpleNamespace(position=(1, 1))),
            links=cast(Any, {1: link}),
            failure_detector=FailureDetector(10.0, loop.time, gone_timeout=0.1),
            report=lambda event: None,
            changed=asyncio.Event(),
            fail=lambda error: None,
            agreement=b"",
            gossip=cast(Any, None),
        )
        loop.call_later(0.3, setattr, link, "unreachable", True)
        begun = loop.time()
        assert await Wait(context, lambda: {1: True}).until_over() == {1}
        await context.stop()
        return loop.time() - begun

    assert run_virtually(story()) == pytest.approx(0.3, abs=0.11)


@pytest.mark.parametrize("full_time", ["nobody", "alive", "all"])
@pytest.mark.parametrize("answer_due", [False, True])
@pytest.mark.parametrize("phase", list(Phase))
def test_nobody_waits_for_who_never_comes_back(phase: Phase, answer_due: bool, full_time: Any) -> None:
    """In no phase, for no answer and no message: neither in the wait that goes on, nor in any that follows."""

    async def story() -> list[float]:
        loop = asyncio.get_running_loop()
        link = SimpleNamespace(unreachable=False, ask=lambda *request: asyncio.sleep(1e6))
        context = Context(
            settings=cast(Any, SimpleNamespace(waits=Waits(10.0), names=("own", "past"), party=0, folder=None)),
            store=cast(Any, None),
            inbox=cast(Any, SimpleNamespace(position=(int(phase), 1))),
            links=cast(Any, {1: link}),
            failure_detector=FailureDetector(10.0, loop.time),
            report=lambda event: None,
            changed=asyncio.Event(),
            fail=lambda error: None,
            agreement=b"",
            gossip=cast(Any, None),
        )
        session = cast(Any, SimpleNamespace(failure_detector=context.failure_detector, _context=context))
        loop.call_later(0.5, StudySession.left, session, 1)
        ends = []
        for _ in range(4):
            begun = loop.time()
            assert await Wait(context, lambda: {1: answer_due}, full_time).until_over() == {1}
            ends.append(loop.time() - begun)
            # What was on its way when it left is read later.
            context.failure_detector.heard(1, (int(phase), 1))
        await context.stop()
        return ends

    assert run_virtually(story()) == [pytest.approx(0.5), 0.0, 0.0, 0.0]


@pytest.mark.parametrize("returning", [False, True])
@pytest.mark.parametrize("ahead", [1, 2, 5, 8])
def test_who_is_too_late_says_so_before_it_waits(ahead: int, returning: bool) -> None:
    """Else the others wait in the round that goes on for one that waits for its end."""

    async def story() -> tuple[list[tuple[int, float]], int, float]:
        loop, passed = asyncio.get_running_loop(), list[tuple[int, float]]()

        async def ask(*request: Any) -> None:
            """Nothing new."""

        links = {peer: cast(Link, SimpleNamespace(unreachable=False, ask=ask)) for peer in (1, 2)}
        others = Others(links, colluding=1, silence=5.0)

        def all_are(round_: int, place: tuple[int, int]) -> None:
            for peer in links:
                others.note(peer, RoundPosition(round_, place))

        all_are(ahead, (int(Phase.DISSEMINATION), 2))
        loop.call_later(30.0, all_are, ahead, CLOSING)
        plan = SimpleNamespace(protocol=SimpleNamespace(rounds=9, traits=SimpleNamespace(releases_are_public=True)))
        party = RoundAhead(others, cast(Any, SimpleNamespace(waits=Waits(10.0), plan=plan)), 8, 1)
        number = await party.in_time(1, returning=returning, passed=lambda number: passed.append((number, loop.time())))
        return passed, number, loop.time()

    passed, number, ended = run_virtually(story())
    assert (passed, number) == ([(ahead, 0.0)], ahead + 1)
    assert ended == (pytest.approx(30.0, abs=1.0) if number <= 8 else 0.0)


async def test_as_many_as_may_lie_move_nobody() -> None:
    links = {peer: cast(Link, SimpleNamespace(unreachable=False)) for peer in range(1, 5)}
    others = Others(links, colluding=1, silence=5.0)
    assert others.place() is None
    for peer in (1, 2, 3):
        others.note(peer, RoundPosition(2, (1, 1)))
    others.note(4, RoundPosition(9_999, (4, 0)))
    assert others.place() == RoundPosition(2, (1, 1))
    assert not others.are_past(2)
    assert others.is_past(4, 2)
    # Two say so: one of them is honest. What was claimed by who cannot be reached any more is old.
    others.note(3, RoundPosition(3, (0, 0)))
    assert others.place() == RoundPosition(3, (0, 0))
    cast(Any, links[4]).unreachable = True
    assert others.place() == RoundPosition(2, (1, 1))
    assert others.silent(4)
    assert others.not_silent() == {1, 2, 3}


def test_the_record_has_one_size() -> None:
    progress = SeriesProgress.load(None, 3)
    assert progress == SeriesProgress(counted=(0, 0, 0))
    later = msgspec.structs.replace(progress, current=9_000, begun=8_000, results=7_000, counted=(7_000, 6, 5))
    assert SeriesProgress.load(later.dump(), 3) == later
    assert len(later.dump()) < 2 * len(progress.dump())


def test_a_store_is_removed_with_all_that_is_kept_beside_it(tmp_path: Path) -> None:
    """Of a party in the middle of a round of a session by folder."""
    store, round_store = tmp_path / "a.store", tmp_path / f"a.store{ROUND}"
    for path in (store, round_store):
        Store.open(path, "ab" * 32, np.array([0.5]), 1.0).close()
        Outbox(outbox_path(path), "ab" * 32, 0).close()
    replace_durably(round_store.with_name(round_store.name + LAST), b"{}")
    kept = set(tmp_path.iterdir())
    assert len(kept) >= 5
    assert size_of(store) == sum(path.stat().st_size for path in kept)
    assert set(remove_store(store)) >= kept
    assert list(tmp_path.iterdir()) == []


def test_all_files_of_a_round_are_removed(tmp_path: Path) -> None:
    names = {"a.store.round", "a.store.round-wal", "a.store.round.vectors"}
    for name in (*names, "a.store"):
        (tmp_path / name).touch()
    for _ in range(2):
        empty(tmp_path / "a.store.round")
        assert {path.name for path in tmp_path.iterdir()} == {"a.store", "a.store.round"}
        assert (tmp_path / "a.store.round").stat().st_size == 0


class _Slow:
    """A link whose peer answers from some time on; a greeting of it says where it is."""

    unreachable = False

    def __init__(self, others: list[Others], peer: int, since: float) -> None:
        self._others, self._peer, self._since = others, peer, since

    async def ask(self, *request: Any) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._since - loop.time()))
        self._others[0].note(self._peer, RoundPosition(4, (0, 0)))


@pytest.mark.parametrize(("answers", "known"), [((5.0, 7.0), 4), ((900.0, 900.0), None)])
def test_who_was_away_hears_first_where_the_others_are(answers: tuple[float, float], known: int | None) -> None:
    """On a machine that is slow for seconds, too; where nobody says it, for as long as a round waits."""

    async def story() -> tuple[float, RoundPosition | None]:
        made: list[Others] = []
        links = {peer: cast(Link, _Slow(made, peer, since)) for peer, since in enumerate(answers, 1)}
        made.append(Others(links, colluding=1, silence=5.0))
        await RoundAhead(made[0], cast(Any, SimpleNamespace(waits=Waits(10.0))), 9, 3).catch_up()
        return asyncio.get_running_loop().time(), made[0].place()

    seconds, place = run_virtually(story())
    assert (None if place is None else place.round) == known
    assert seconds <= 10.0 + FIRST_ASKING
    assert (seconds < 8.0) == (known is not None)


class _Back:
    """A link to a peer that is started again: nobody listens there ``until`` some time, and then it answers."""

    def __init__(self, until: float) -> None:
        self._until = until

    @property
    def unreachable(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    async def ask(self, *request: Any) -> None:
        await asyncio.sleep(max(0.01, self._until - asyncio.get_running_loop().time()))


class _Stalled(_Back):
    """One that answers; but in the first question this machine stands still for a minute."""

    stalled = False

    async def ask(self, *request: Any) -> None:
        if not self.stalled:
            self.stalled = True
            loop: Any = asyncio.get_running_loop()
            loop.jump(60.0)
        await asyncio.sleep(0.5)


@pytest.mark.parametrize(
    ("links", "reached"),
    [([_Back(9.0), _Back(900.0)], True), ([_Stalled(0.0), _Back(900.0)], True), ([_Back(900.0), _Back(900.0)], False)],
    ids=["started again in time", "this machine stood still", "gone"],
)
def test_a_round_waits_for_who_is_started_again(links: list[_Back], reached: bool) -> None:
    """Also on a machine that is so slow that its own wait ends before it looks at what came."""

    async def story() -> None:
        others = Others({peer: cast(Link, link) for peer, link in enumerate(links, 1)}, colluding=1, silence=5.0)
        plan = SimpleNamespace(protocol=SimpleNamespace(minimum=2), gated=False)
        settings = SimpleNamespace(waits=Waits(10.0), plan=plan, names=("own", "east", "north"))
        await RoundAhead(others, cast(Any, settings), 9, 3).require_others()

    if reached:
        run_virtually(story())
    else:
        raised(ProtocolFailure, "nobody can be reached, and a round takes 2 parties with this one", run_virtually, story())
