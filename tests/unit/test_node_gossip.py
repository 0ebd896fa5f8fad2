"""What parties pass on of each other's rounds: nothing is lost on the way, and nothing hostile gets in."""

from __future__ import annotations

import contextlib
import zlib

import msgspec
import numpy as np
import pytest

from quietmean.core.errors import PeerError
from quietmean.graphs import Schedule, make_schedule
from quietmean.node.session import logs
from quietmean.node.session.logs import GossipedLogs, PartialLog, PartyLog
from quietmean.randomness import BitStream, Seed

PARTIES, ROUNDS = 5, 4
SCHEDULE = make_schedule("uniform", Seed.public("knowledge"), PARTIES, ROUNDS, 2)


def log_of(party: int, until: int, schedule: Schedule = SCHEDULE) -> PartyLog:
    """All went as scheduled, but for the first message of round 2."""
    rounds = range(1, until + 1)
    sent = tuple((t, other) for t in rounds for other in sorted(schedule.recipients(t, party)[t == 2 :]))
    received = tuple((t, other) for t in rounds for other in sorted(schedule.senders(t, party)))
    settled = ((2, schedule.recipients(2, party)[0], 3),) if until >= 3 else ()
    return PartyLog(tuple(rounds), sent, received, (), settled)


def filled(untils: dict[int, int]) -> GossipedLogs:
    known = GossipedLogs(SCHEDULE)
    for party, until in untils.items():
        known.put(party, log_of(party, until), until)
    return known


def test_logs_come_out_as_they_went_in() -> None:
    untils = {0: 4, 1: 1, 3: 3}
    known = GossipedLogs.decode(filled(untils).encode(0), SCHEDULE)
    assert known.logs() == {party: PartialLog(until, log_of(party, until)) for party, until in untils.items()}


def test_rounds_that_are_not_over_are_left_out() -> None:
    """A message that came in may still be taken back, and a share be settled later than this."""
    known = GossipedLogs(SCHEDULE)
    known.put(0, log_of(0, 4), 2)
    settled = ((2, SCHEDULE.recipients(2, 0)[0], 0),)
    assert known.logs() == {0: PartialLog(2, msgspec.structs.replace(log_of(0, 2), settled=settled))}


def test_who_knows_more_of_a_party_prevails() -> None:
    known, other = filled({0: 2, 1: 4, 2: 1}), filled({0: 4, 1: 3, 3: 2})
    known.merge(other)
    assert {party: told.until for party, told in known.logs().items()} == {0: 4, 1: 4, 2: 1, 3: 2}
    for party, told in known.logs().items():
        assert told.log == log_of(party, told.until)
    known.put(0, log_of(0, 1), 1)
    assert known.until[0] == 4


def test_what_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    known = filled({0: 4, 1: 4, 2: 3})
    monkeypatch.setattr(logs, "LIMIT", len(known.encode(0)) - 1)
    assert GossipedLogs.decode(known.encode(1), SCHEDULE).logs() == {1: PartialLog(4, log_of(1, 4))}
    monkeypatch.setattr(logs, "LIMIT", 1)
    assert known.encode(1) == b""
    assert GossipedLogs.decode(b"", SCHEDULE).logs() == {}


def test_it_is_small() -> None:
    schedule = make_schedule("permutation", Seed.public("small"), 30, 20, 1)
    known = GossipedLogs(schedule)
    for party in range(30):
        until = 20 - party % 3
        known.put(party, msgspec.structs.replace(log_of(party, until, schedule), settled=()), until)
    assert len(known.encode(0)) < 200


def packed(**changes: object) -> bytes:
    raw = msgspec.msgpack.decode(zlib.decompress(filled({0: 4, 1: 2}).encode(0)))
    names = ["until", "online", "sent", "received", "settled"]
    return zlib.compress(msgspec.msgpack.encode([changes.get(name, raw[place]) for place, name in enumerate(names)]))


@pytest.mark.parametrize(
    "raw",
    [
        b"no knowledge",
        zlib.compress(b"\xc1"),
        zlib.compress(bytes(10**7)),
        packed() + b"more",
        packed()[:-1],
        packed(until=bytes(4)),
        packed(until=np.full(PARTIES, ROUNDS + 1, dtype="<u4").tobytes()),
        packed(online=b""),
        packed(sent=bytes(100)),
        packed(received=b"\xff"),
        packed(settled=[(PARTIES, 1, 0, 2)]),
        packed(settled=[(0, 0, 1, 2)]),
        packed(settled=[(0, 1, 1, ROUNDS + 1)]),
        packed(settled=[(0, 1, -1, 2)]),
        packed(settled=[(0, 1, 0, 2)]),
        packed(settled=[(0, 1, int(SCHEDULE.neighbours[0, 0, 0]), later) for later in (0, 2)]),
    ],
)
def test_what_no_party_sends_is_refused(raw: bytes) -> None:
    with pytest.raises(PeerError):
        GossipedLogs.decode(raw, SCHEDULE)


def test_what_is_taken_from_several_can_be_passed_on() -> None:
    """Each of them says as much of another party as is read of anybody, and this party passes all of it on."""
    mine = filled({})
    for party in range(PARTIES):
        message = party, 1, int(SCHEDULE.neighbours[0, party, 0]), 2
        for times in (2**power for power in range(12, -1, -1)):
            until = np.zeros(PARTIES, dtype="<u4")
            until[party] = ROUNDS
            with contextlib.suppress(PeerError):
                mine.merge(GossipedLogs.decode(packed(until=until.tobytes(), settled=[message] * times), SCHEDULE))
                break
    assert sorted(mine.logs()) == list(range(PARTIES))
    assert GossipedLogs.decode(mine.encode(0), SCHEDULE).logs() == mine.logs()


def test_random_bytes_are_refused_or_harmless() -> None:
    stream, good = BitStream(Seed.public("knowledge bytes")), packed()
    body = zlib.decompress(good)
    for place, value in stream.integers(len(body) * 256, 2000).reshape(-1, 1) @ np.array([[1, 1]]):
        changed = bytearray(body)
        changed[int(place) // 256] = int(value) % 256
        try:
            known = GossipedLogs.decode(zlib.compress(bytes(changed)), SCHEDULE)
        except PeerError:
            continue
        mine = filled({2: 3})
        mine.merge(known)
        assert all(told.until <= ROUNDS for told in mine.logs().values())
