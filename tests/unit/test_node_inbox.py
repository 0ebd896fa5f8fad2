"""The rules of transfers, of waiting, and of putting the history together; no network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from quietmean.core.errors import PeerError
from quietmean.graphs import Schedule
from quietmean.node.net import AnswerFrame, CancelTransfer, Transfer, encode_vector
from quietmean.node.phase import Phase
from quietmean.node.session.context import FailureDetector
from quietmean.node.session.inbox import Inbox
from quietmean.node.session.logs import PartialLog, PartyLog
from quietmean.node.session.reconstruction import reconstruct
from quietmean.node.storage import Store

MIXING, DISSEMINATION, AGREED = 1, 3, b"agreed.."
PAYLOAD = encode_vector(np.array([1.0]))


def transfer(round_: int, valid_for: float = 600.0, agreement: bytes = AGREED) -> Transfer:
    return Transfer(0, MIXING, round_, 0.5, int(1000 * valid_for), agreement, 2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store", "study", np.zeros(1), 1.0)
    yield opened
    opened.close()


def entered(store: Store) -> Inbox:
    """The inbox of party 0 in round 2, where parties 1 and 2 are expected."""
    made = Inbox(store, 0, lambda: AGREED, lambda: None, lambda known: None, rounds=4)
    made.enter((MIXING, 2), frozenset({1, 2}))
    return made


async def test_taken_in_once_and_answered_twice(store: Store) -> None:
    inbox = entered(store)
    for _ in range(2):
        assert (await inbox.transfer(1, transfer(2), PAYLOAD)).status == "ok"
    assert len(store.received(MIXING, 2, 0)) == 1
    inbox.enter((MIXING, 3), frozenset())
    assert (await inbox.transfer(1, transfer(2), PAYLOAD)).status == "ok"


@pytest.mark.parametrize("size", [100, 200_000])
async def test_a_long_content_stays_where_it_came(store: Store, size: int) -> None:
    """Shares of all others are in memory at once: none of them twice. What is short is copied out of what it came in."""
    inbox = entered(store)
    payload = memoryview(np.random.default_rng(size).bytes(size))
    assert (await inbox.transfer(1, msgspec.structs.replace(transfer(2), dimension=0), payload)).status == "ok"
    (message,) = store.received(MIXING, 2, 0)
    assert message.content == payload
    came, kept = (np.frombuffer(each, dtype=np.uint8) for each in (payload, message.content))
    assert np.shares_memory(came, kept) == (size > 100)
    # Also what is in the store.
    store._arrived[MIXING, 2][1] = None
    assert store.received(MIXING, 2, 0)[0].content == payload


async def test_who_may_send_but_is_no_longer_wanted_is_refused_without_blame(store: Store) -> None:
    inbox = entered(store)
    inbox.enter((MIXING, 3), frozenset({1}), unwanted=frozenset({2}))
    assert (await inbox.transfer(2, transfer(3), PAYLOAD)).status == "no"
    assert (await inbox.transfer(1, transfer(3), PAYLOAD)).status == "ok"
    assert [message.sender for message in store.received(MIXING, 3, 0)] == [1]
    with pytest.raises(PeerError, match="schedule"):
        await inbox.transfer(3, transfer(3), PAYLOAD)


async def test_a_closed_round_is_refused_with_the_position(store: Store) -> None:
    inbox = entered(store)
    assert await inbox.transfer(1, transfer(1), PAYLOAD) == AnswerFrame(0, "no", MIXING, 2)


async def test_an_early_transfer_waits_for_its_round(store: Store) -> None:
    inbox = entered(store)
    waiting = asyncio.create_task(inbox.transfer(1, transfer(3), PAYLOAD))
    await asyncio.sleep(0)
    assert not waiting.done()
    inbox.enter((MIXING, 3), frozenset({1}))
    assert (await waiting).status == "ok"


async def test_only_the_latest_early_transfer_of_a_sender_waits(store: Store) -> None:
    inbox = entered(store)
    first = asyncio.create_task(inbox.transfer(1, transfer(3), PAYLOAD))
    await asyncio.sleep(0)
    second = asyncio.create_task(inbox.transfer(1, transfer(4), PAYLOAD))
    assert (await first).status == "no"
    inbox.enter((MIXING, 5), frozenset({1}))
    assert (await second).status == "no"


async def test_an_early_transfer_expires(store: Store) -> None:
    inbox = entered(store)
    waiting = asyncio.create_task(inbox.transfer(1, transfer(3, valid_for=0.01), PAYLOAD))
    await asyncio.sleep(0.05)
    inbox.enter((MIXING, 3), frozenset({1}))
    assert (await waiting).status == "no"
    assert not store.has_accepted(MIXING, 3, 1)


async def test_an_early_transfer_of_a_lost_connection_is_forgotten(store: Store) -> None:
    inbox = entered(store)
    waiting = asyncio.create_task(inbox.transfer(1, transfer(3), PAYLOAD))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    inbox.enter((MIXING, 3), frozenset({1}))
    assert not store.has_accepted(MIXING, 3, 1)


@pytest.mark.parametrize("copies", [True, False])
async def test_a_release_that_is_not_used_was_seen(store: Store, copies: bool) -> None:
    """Before its round, over a connection that was lost, or too late. Of parts of sums nothing is logged."""
    release = Transfer(0, DISSEMINATION, 1, 0.5, 600_000, AGREED, 2)
    inbox = Inbox(store, 0, lambda: AGREED, lambda: None, lambda known: None, rounds=4, copies=copies)
    inbox.enter((MIXING, 2), frozenset())
    lost = asyncio.create_task(inbox.transfer(1, release, PAYLOAD))
    waits = asyncio.create_task(inbox.transfer(2, release, PAYLOAD))
    await asyncio.sleep(0)
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)
    inbox.enter((DISSEMINATION, 1), frozenset({1, 2, 3}))
    assert (await waits).status == "ok"
    inbox.enter((DISSEMINATION + 1, 0), frozenset())
    assert (await inbox.transfer(3, release, PAYLOAD)).status == "no"
    assert store.seen_here(DISSEMINATION) == (((1, 1), (1, 3)) if copies else ())


async def test_withdrawing_undoes_while_the_round_is_open(store: Store) -> None:
    inbox = entered(store)
    await inbox.transfer(1, transfer(2), PAYLOAD)
    assert inbox.cancel(1, CancelTransfer(0, MIXING, 2)).status == "no"
    assert store.received(MIXING, 2, 0) == []
    # A copy that was under way is not taken in either.
    assert (await inbox.transfer(1, transfer(2), PAYLOAD)).status == "no"


async def test_withdrawing_from_a_closed_round_tells_that_it_counted(store: Store) -> None:
    inbox = entered(store)
    await inbox.transfer(1, transfer(2), PAYLOAD)
    inbox.enter((MIXING, 3), frozenset())
    assert inbox.cancel(1, CancelTransfer(0, MIXING, 2)).status == "ok"
    assert inbox.cancel(2, CancelTransfer(0, MIXING, 2)).status == "no"


@pytest.mark.parametrize(
    ("sender", "message", "payload"),
    [
        (3, transfer(2), PAYLOAD),
        (1, transfer(2, agreement=b"other..."), PAYLOAD),
        (1, transfer(2), encode_vector(np.array([np.nan]))),
        (1, Transfer(0, MIXING, 2, np.inf, 1000, AGREED, 2), PAYLOAD),
        (1, Transfer(0, MIXING, 3, np.nan, 1000, AGREED, 2), PAYLOAD),
    ],
)
async def test_what_the_protocol_does_not_allow(store: Store, sender: int, message: Transfer, payload: bytes) -> None:
    with pytest.raises(PeerError):
        await entered(store).transfer(sender, message, payload)
    assert store.received(MIXING, 2, 0) == []


def test_patience() -> None:
    now = [0.0]
    failure_detector = FailureDetector(10.0, lambda: now[0])
    assert failure_detector.deadline(1, Phase.MIXING, 0.0, answer_due=False) == 10.0
    assert failure_detector.deadline(1, Phase.MIXING, 0.0, answer_due=True) == 11.0
    failure_detector.missed(1)
    assert failure_detector.deadline(1, Phase.MIXING, 0.0, answer_due=False) == 2.0
    now[0] = 9.0
    failure_detector.heard(1, (MIXING, 1))
    # Alive: the whole time again, and longer as long as it gives signs of life, but not for ever.
    assert failure_detector.deadline(1, Phase.MIXING, 0.0, answer_due=False) == 14.0
    now[0] = 1000.0
    failure_detector.heard(1, (MIXING, 1))
    assert failure_detector.deadline(1, Phase.MIXING, 0.0, answer_due=False) == 40.0


def test_who_is_there_and_delivers_nothing() -> None:
    """It has the longest wait once in a phase; a message gives it that again, signs of life do not."""
    now = [35.0]
    failure_detector = FailureDetector(10.0, lambda: now[0])
    failure_detector.heard(1, (MIXING, 1))
    assert failure_detector.deadline(1, Phase.MIXING, 0.0, answer_due=False) == 40.0
    # Who gave signs of life and then none is as one that was not waited for as long.
    failure_detector.gave_up(1, Phase.MIXING, 0.0)
    assert failure_detector.deadline(1, Phase.MIXING, 0.0, answer_due=False) == 40.0
    now[0] = 40.0
    failure_detector.gave_up(1, Phase.MIXING, 0.0)
    now[0] = 35.0
    failure_detector.heard(1, (MIXING, 2))
    assert failure_detector.deadline(1, Phase.MIXING, 30.0, answer_due=False) == 32.0
    # In a later phase it may be an honest party that waits for another one, as long as that phase lets it.
    assert failure_detector.deadline(1, Phase.DISSEMINATION, -100.0, answer_due=False) == -20.0
    assert failure_detector.deadline(1, Phase.FINALIZATION, -100.0, answer_due=False) == 20.0
    failure_detector.delivered(1)
    assert failure_detector.deadline(1, Phase.MIXING, 30.0, answer_due=False) == 40.0
    # What no correct party sends ends all waiting.
    failure_detector.found_faulty(1)
    failure_detector.heard(1, (MIXING, 3))
    assert failure_detector.deadline(1, Phase.MIXING, 30.0, answer_due=True) == 30.0


def test_positions_only_grow() -> None:
    failure_detector = FailureDetector(1.0, lambda: 0.0)
    assert not failure_detector.all_past({1, 2}, (0, 0))
    failure_detector.heard(1, (MIXING, 4))
    failure_detector.heard(1, (MIXING, 2))
    assert failure_detector.is_past(1, (MIXING, 3))
    assert not failure_detector.is_past(1, (MIXING, 4))
    assert failure_detector.all_past({1, 2}, (MIXING, 3))
    failure_detector.heard(2, (MIXING, 3))
    assert not failure_detector.all_past({1, 2}, (MIXING, 3))


RING = Schedule.from_lists([[[1], [2], [3], [0]]] * 3, 4)


def log(online: list[int], sent: list[tuple[int, int]], received: list[tuple[int, int]], heard: tuple[int, ...] = ()) -> PartyLog:
    return PartyLog(tuple(online), tuple(sent), tuple(received), heard)


def full_log(party: int, rounds: range, heard: tuple[int, ...] = ()) -> PartyLog:
    return log(list(rounds), [(t, (party + 1) % 4) for t in rounds], [(t, (party - 1) % 4) for t in rounds], heard)


def test_history_of_a_quiet_run() -> None:
    logs = {party: full_log(party, range(1, 4)) for party in range(4)}
    trace = reconstruct(RING, logs, heard_from=range(4), transfers_mass=True)
    assert trace.online.all()
    assert trace.lost is None


def test_history_with_a_party_gone_for_good() -> None:
    # Party 2 was heard of by 3 in round 1 and took something from 1 in round 2: it went in round 3.
    logs = {
        0: full_log(0, range(1, 4)),
        1: log([1, 2, 3], [(1, 2), (2, 2)], [(1, 0), (2, 0), (3, 0)]),
        3: log([1, 2, 3], [(1, 0), (2, 0), (3, 0)], [(1, 2)]),
    }
    trace = reconstruct(RING, logs, heard_from=(0, 1, 3), transfers_mass=True)
    np.testing.assert_array_equal(trace.online[:, 2], [True, True, True, False])
    assert trace.online[:, [0, 1, 3]].all()
    assert trace.lost is not None
    # Its message of round 2 did not arrive although both were there.
    assert np.argwhere(trace.lost).tolist() == [[1, 2, 0]]


def test_what_was_sent_and_did_not_arrive_counts_as_seen() -> None:
    """Party 1 refused a share of round 2; party 2 was silent from round 3 on, and saw what was sent to it then."""
    logs = {
        0: log([1, 2, 3], [(1, 1), (3, 1)], [(1, 3), (2, 3), (3, 3)]),
        1: log([1, 2, 3], [(1, 2), (2, 2)], [(1, 0), (3, 0)]),
        3: log([1, 2, 3], [(1, 0), (2, 0), (3, 0)], [(1, 2), (2, 2)]),
    }
    trace = reconstruct(RING, logs, heard_from=(0, 1, 3), transfers_mass=True)
    assert trace.unused(RING) == [(2, 0, 1), (3, 1, 2)]
    assert (2, 0, 1) not in {(t + 1, i, (i + 1) % 4) for t, i, _ in np.argwhere(trace.delivered(RING)).tolist()}


def test_history_of_a_party_that_released_but_left_no_log() -> None:
    logs = {party: full_log(party, range(1, 4), heard=(0, 1, 2, 3)) for party in (0, 1, 3)}
    assert reconstruct(RING, logs, heard_from=(), transfers_mass=True).online.all()


def test_messages_between_parties_without_logs_count_as_arrived() -> None:
    logs = {party: full_log(party, range(1, 4)) for party in (0, 3)}
    trace = reconstruct(RING, logs, heard_from=(0, 1, 2, 3), transfers_mass=True)
    assert trace.online.all()
    assert trace.lost is None


def test_a_missed_round_in_the_middle() -> None:
    logs = {party: full_log(party, range(1, 4)) for party in (0, 1, 3)}
    logs[1] = log([1, 2, 3], [(1, 2), (3, 2)], [(1, 0), (2, 0), (3, 0)])
    logs[2] = log([1, 3], [(1, 3), (3, 3)], [(1, 1), (3, 1)])
    logs[3] = log([1, 2, 3], [(1, 0), (2, 0), (3, 0)], [(1, 2), (3, 2)])
    trace = reconstruct(RING, logs, heard_from=range(4), transfers_mass=True)
    np.testing.assert_array_equal(trace.online[:, 2], [True, True, False, True])
    assert trace.lost is None


def test_a_share_that_both_ends_count_is_in_the_history() -> None:
    """The receiver took it in, the sender does not know of it, or settled it later as it says."""
    logs = {party: full_log(party, range(1, 4)) for party in range(4)}
    logs[0] = log([1, 2, 3], [(2, 1), (3, 1)], list(logs[0].received))
    trace = reconstruct(RING, logs, heard_from=range(4), transfers_mass=True)
    assert (trace.settled.tolist(), trace.lost) == ([[1, 0, 1, 0]], None)
    assert reconstruct(RING, logs, heard_from=range(4), transfers_mass=False).settled.tolist() == [[1, 0, 1, 0]]
    logs[0] = msgspec.structs.replace(logs[0], sent=((1, 1), (2, 1), (3, 1)), settled=((1, 1, 3),))
    assert reconstruct(RING, logs, heard_from=range(4), transfers_mass=True).settled.tolist() == [[1, 0, 1, 3]]
    # What cannot be is left out: a log is its author's word only.
    logs[0] = msgspec.structs.replace(logs[0], settled=((1, 2, 3), (2, 1, 1)))
    assert len(reconstruct(RING, logs, heard_from=range(4), transfers_mass=True).settled) == 0


def test_what_a_party_told_before_it_left_for_good() -> None:
    """Party 2 sent its log along with the message of round 2: round 1 is known, round 3 is not, and it never came back."""
    logs = {party: full_log(party, range(1, 4)) for party in (0, 1, 3)}
    logs[1] = log([1, 2, 3], [(1, 2), (2, 2)], [(1, 0), (2, 0), (3, 0)])
    logs[3] = log([1, 2, 3], [(1, 0), (2, 0), (3, 0)], [(2, 2)])
    told = PartialLog(1, log([1], [], [(1, 1)]))
    trace = reconstruct(RING, logs, (0, 1, 3), {2: told}, transfers_mass=True)
    # Its message of round 1 did not arrive, and it knows; its sender's share of round 3 nobody can tell.
    assert trace.lost is not None
    assert [2 - 2, 2, 0] in np.argwhere(trace.lost).tolist()
    np.testing.assert_array_equal(trace.online[:, 2], [True, True, True, False])
    assert trace.settled.tolist() == []


def test_a_share_taken_back_from_a_party_that_left_may_have_been_seen() -> None:
    logs = {party: full_log(party, range(1, 4)) for party in (0, 1, 3)}
    logs[1] = log([1, 2, 3], [(1, 2), (3, 2)], [(1, 0), (2, 0), (3, 0)])
    logs[3] = log([1, 2, 3], [(1, 0), (2, 0), (3, 0)], [(1, 2), (2, 2)])
    trace = reconstruct(RING, logs, (0, 1, 3), transfers_mass=True)
    assert trace.online[2, 2]
    assert [2, 1, 2, 0] in trace.settled.tolist()
    assert trace.delivered(RING)[1, 1].any()
