"""The durable store: what was recorded is there after a restart, and nothing else gets in."""

from __future__ import annotations

import sqlite3
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from quietmean.core.codec import load_state
from quietmean.core.party import Message, Release, Step, Vector
from quietmean.node.net import ACCEPTED, REFUSED, encode_vector
from quietmean.node.phase import Phase
from quietmean.node.storage import COMMITTED, IN_DOUBT, PENDING, ClosedRound, Outgoing, Store
from quietmean.randomness import Seed
from support.refusals import raised, refused

STUDY = "ab" * 32
VALUE = np.array([0.5, 0.25])


@dataclass(frozen=True)
class State:
    round: int
    held: Vector


def step(round_: int, *send: Message, release: Release | None = None) -> Step[State]:
    return Step(State(round_, np.arange(2.0)), send, release)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ada.store"


def opened(path: Path, value: Vector = VALUE, weight: float = 1.0, study: str = STUDY) -> Store:
    return Store.open(path, study, value, weight)


def test_seed_and_nonce_stay(path: Path) -> None:
    store = opened(path)
    seed, nonce = store.seed, store.nonce
    store.close()
    again = opened(path)
    assert (again.seed, again.nonce) == (seed, nonce)
    assert seed.secret != nonce
    again.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("value", "weight"), [(np.array([0.5, 0.26]), 1.0), (VALUE, 2.0), (VALUE[:1], 1.0)])
def test_other_data_are_refused(path: Path, value: Vector, weight: float) -> None:
    opened(path).close()
    refused("started with other data", opened, path, value, weight)
    opened(path).close()


def test_another_study_is_refused(path: Path) -> None:
    opened(path).close()
    refused("belongs to another study", opened, path, study="cd" * 32)


def test_unknown_schema_is_refused(path: Path) -> None:
    opened(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    refused(r"schema version 99.*Finish it with the release that made it", opened, path)


def test_what_is_no_store_is_refused(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"no database at all, but long enough to look like a file with some content" * 20)
    refused("is not a store", opened, path)
    refused("cannot be opened", opened, tmp_path / "nowhere" / "store")


def test_a_second_process_on_the_store_is_refused(path: Path) -> None:
    store = opened(path)
    refused("is in use", opened, path)
    store.close()


def test_the_value_is_not_in_the_file(path: Path) -> None:
    opened(path).close()
    assert VALUE.tobytes() not in path.read_bytes()


def test_a_round_from_start_to_end(path: Path) -> None:
    store = opened(path)
    assert store.state() is None
    store.record(1, step(1, Message(0, (1, 2, 3), 1, np.array([1.0, 2.0]), 0.5)))
    incoming = Message(2, (0,), 1, np.array([3.0, 4.0]), 0.25)
    store.accept(1, incoming, encode_vector(incoming.vector))
    store.close()

    store = opened(path)
    stored = store.state()
    assert stored is not None
    assert stored[:2] == (1, 1)
    np.testing.assert_array_equal(load_state(State, stored[2]).held, [0.0, 1.0])
    outgoing = store.outgoing(1, 1)
    assert outgoing == {party: Outgoing(np.array([1.0, 2.0]).tobytes(), 2, 0.5) for party in (1, 2, 3)}
    assert store.sent_status(1, 1, 2) == PENDING
    (received,) = store.received(1, 1, 0)
    np.testing.assert_array_equal(received.vector, incoming.vector)
    assert store.has_accepted(1, 1, 2)

    closed = ClosedRound(1, {1: ACCEPTED, 2: REFUSED, 3: IN_DOUBT})
    store.record(1, step(4, release=Release(np.array([7.0, 8.0]), 1.5)), closed, missed=(2, 3))
    assert store.in_doubt(1) == ((1, 3),)
    store.resolve(1, 1, 3, REFUSED)
    store.close()

    store = opened(path)
    assert store.rounds_online(1) == (1,)
    assert store.arrived_there(1) == ((1, 1),)
    assert store.arrived_here(1) == ((1, 2),)
    assert store.taken_back(COMMITTED) == ()
    assert not store.in_doubt(1)
    assert store.has_accepted(1, 1, 2)
    release = store.release(1)
    assert release is not None
    np.testing.assert_array_equal(release.vector, [7.0, 8.0])
    store.close()


@pytest.mark.parametrize("named", [{}, {1: ACCEPTED}, {1: ACCEPTED, 2: ACCEPTED}, {1: REFUSED, 2: ACCEPTED, 3: ACCEPTED}])
def test_a_closed_round_says_nothing_of_whom_it_does_not_name(path: Path, named: dict[int, str]) -> None:
    store = opened(path)
    for round_ in (1, 2):
        store.record(1, step(round_, Message(0, (1, 2, 3), round_, np.array([1.0, 2.0]), 0.5)))
    store.record(1, step(3), ClosedRound(2, named))
    found = {party: store.sent_status(1, 2, party) for party in (1, 2, 3)}
    assert found == dict.fromkeys((1, 2, 3), PENDING) | named
    assert {store.sent_status(1, 1, party) for party in (1, 2, 3)} == {PENDING}


def test_a_share_that_was_used_though_taken_back(path: Path) -> None:
    """It stays in the store until it is settled, through restarts, and no longer."""
    store = opened(path)
    store.record(1, step(1, Message(0, (1, 3), 1, np.array([1.0, 2.0]), 0.5)))
    store.record(1, step(2), ClosedRound(1, {1: ACCEPTED, 3: IN_DOUBT}))
    assert store.unsettled(1, 0) == []
    store.resolve(1, 1, 3, COMMITTED)
    store.resolve(1, 1, 1, COMMITTED)  # settled questions are not opened again
    store.close()

    store = opened(path)
    (share,) = store.unsettled(1, 0)
    assert (share.sender, share.recipients, share.round, share.weight) == (0, (3,), 1, 0.5)
    np.testing.assert_array_equal(share.vector, [1.0, 2.0])
    assert store.taken_back(COMMITTED) == ((1, 1, 3),)
    assert store.settled(1) == ((1, 3, 0),)
    assert store.arrived_there(1) == ((1, 1), (1, 3))
    store.record(1, step(3), ClosedRound(2, {}, [(1, 3)]))
    assert (store.unsettled(1, 0), store.taken_back(COMMITTED), store.settled(1)) == ([], (), ((1, 3, 2),))
    store.close()
    assert sqlite3.connect(path).execute("SELECT count(*) FROM message").fetchone() == (0,)


@pytest.mark.parametrize(("grid", "width"), [(0.0, 8), (0.25, 4), (0.25, 8)])
@pytest.mark.parametrize("dimension", [2, 40_000])
def test_a_received_vector_is_kept_as_it_came(path: Path, grid: float, width: int, dimension: int) -> None:
    value, vector = np.zeros(dimension), np.arange(dimension, dtype=np.float64) / 2
    store = Store.open(path, STUDY, value, 1.0, grid=grid)
    encoded = bytes(encode_vector(vector, grid if width == 4 else 0.0))
    assert len(encoded) == width * dimension
    store.accept(1, Message(1, (0,), 1, vector, 0.5), memoryview(encoded))
    store.close()
    assert dimension > 2 or encoded in path.read_bytes()
    store = Store.open(path, STUDY, value, 1.0, grid=grid)
    (received,) = store.received(1, 1, 0)
    np.testing.assert_array_equal(received.vector, vector)
    store.close()


def test_a_transfer_counts_once(path: Path) -> None:
    store = opened(path)
    message = Message(1, (0,), 1, np.ones(2), 0.5)
    store.accept(1, message, encode_vector(message.vector))
    raised(sqlite3.IntegrityError, "", store.accept, 1, message, encode_vector(message.vector))
    assert len(store.received(1, 1, 0)) == 1
    store.forget(1, 1, 1)
    assert store.received(1, 1, 0) == []
    store.close()


def test_a_failed_step_leaves_no_trace(path: Path) -> None:
    store = opened(path)
    store.record(1, step(1, Message(0, (1,), 1, np.ones(2), 0.5)))
    with pytest.raises(sqlite3.IntegrityError):
        # The same round's message a second time: the whole step must be undone, its state too.
        store.record(1, step(2, Message(0, (1,), 1, np.ones(2), 0.5)))
    stored = store.state()
    assert stored is not None
    assert stored[1] == 1
    store.close()


def test_where_a_party_is_in_the_start_stays_with_its_seed(path: Path) -> None:
    def opened(path: Path) -> Store:
        # As a node does: data are compared under a secret that is not in it.
        return Store.open(path, STUDY, VALUE, 1.0, owner=Seed(b"o" * 32))

    store = opened(path)
    first = store.seed
    store.save_standing(b"the first attempt", b"s" * 32)
    store.save_standing(b"further in it")
    store.close()
    store = opened(path)
    assert store.progress() == b"further in it"
    assert store.seed.secret == b"s" * 32 != first.secret
    store.close()


def test_large_contents_lie_beside_the_database_and_are_wiped(path: Path) -> None:
    content = bytes(range(1, 251)) * 1000
    store = opened(path)
    message = Message(1, (0,), 1, np.zeros(1), 1.0, content)
    store.accept(Phase.MIXING, message, np.zeros(1).tobytes())
    store.close()
    vectors = path.with_name(path.name + ".vectors")
    assert content not in path.read_bytes()
    assert content in vectors.read_bytes()
    store = opened(path)
    assert [one.content for one in store.received(Phase.MIXING, 1, 0)] == [content]
    store.finish(Phase.MIXING, b"result")
    store.close()
    assert content[:100] not in vectors.read_bytes()


def test_after_the_end_other_data_are_noticed_without_the_seed(path: Path) -> None:
    owner = Seed.public("the owner's key")
    store = Store.open(path, STUDY, VALUE, 1.0, owner=owner)
    seed = store.seed
    store.record(2, step(2, release=Release(np.array([7.0, 8.0]), 1.5)))
    store.save_log(1, b"log", b"known")
    store.save_log(1, b"longer log", b"known")
    assert store.received_logs() == {1: (b"longer log", b"known")}
    store.finish(2, b"the result")
    store.close()
    assert seed.secret not in path.read_bytes()
    refused("started with other data", Store.open, path, STUDY, VALUE + 0.25, 1.0, owner=owner)
    store = Store.open(path, STUDY, VALUE, 1.0, owner=owner)
    assert (store.result(), store.state(), store.received_logs()) == (b"the result", None, {})
    np.testing.assert_array_equal(store.required_release(2).vector, [7.0, 8.0])
    # Who is late may still tell something; it is too late to be kept.
    store.save_log(2, b"log", b"")
    assert store.received_logs() == {}
    store.close()


def test_without_the_owners_key_no_digest_outlives_its_key(path: Path) -> None:
    store = opened(path)
    store.finish(2, b"the result")
    store.close()
    opened(path, VALUE + 0.25).close()
    assert sqlite3.connect(path).execute("SELECT count(*) FROM fact WHERE name = 'input'").fetchone() == (0,)


def test_remarks_stay(path: Path) -> None:
    store = opened(path)
    assert store.remarks() == ()
    store.keep_remarks(("one of them", "another"))
    store.close()
    store = opened(path)
    assert store.remarks() == ("one of them", "another")
    store.close()
