"""Two parties over real sockets: one connection for both directions, whoever dialled it, and nothing is lost as it breaks."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest

from quietmean.core.domain import Links
from quietmean.core.errors import PeerError
from quietmean.node.net import (
    ACCEPTED,
    ByteStream,
    Connection,
    Credentials,
    Heartbeat,
    Identity,
    Limits,
    Payload,
    Roster,
    RosterEntry,
    Transfer,
    open_socket,
)
from quietmean.node.net.duplex import Duplex
from quietmean.node.net.stream import read_frame
from quietmean.node.net.tls import OTHER_LEAF
from quietmean.node.net.wire import PART, AnyFrame, encode_frame, encode_message, encode_part
from support.two_parties import DIMENSION, LIMITS, Party, Relayed, beat, share, two, unused


@pytest.fixture(params=list(Links))
def links(request: pytest.FixtureRequest) -> Links:
    found: Links = request.param
    return found


@pytest.mark.parametrize("dialable", [(True, True), (True, False), (False, True)])
async def test_both_ask_over_one_connection(dialable: tuple[bool, bool], links: Links) -> None:
    parties = two(dialable, links)
    answers = await asyncio.gather(*(party.link.ask(beat()) for party in parties for _ in range(5)))
    assert [answer.status for answer in answers] == [ACCEPTED] * 10
    assert [len(party.handled) for party in parties] == [5, 5]
    # One was accepted on one side, and it was dialled by who could; the smaller key, where both can.
    assert [party.connections for party in parties] == ([1, 0] if dialable == (True, False) else [0, 1])
    await asyncio.gather(*(party.close() for party in parties))
    assert [party.refusals for party in parties] == [[], []]
    assert parties[0].traffic.sent == parties[1].traffic.received
    assert parties[1].traffic.sent == parties[0].traffic.received


async def test_a_connection_that_is_closed_twice_can_still_be_dropped() -> None:
    """As under load, where its peer does not answer in time: else its process ends (CPython 3.11.2), or it stays for 30 s."""
    loop, near, far = asyncio.get_running_loop(), ByteStream(), ByteStream()
    identities = [Identity.generate() for _ in range(2)]
    roster = Roster(tuple(RosterEntry(f"{k}", ("127.0.0.1", k + 1), each.public_key) for k, each in enumerate(identities)))
    credentials = [Credentials(each, roster, "f" * 64) for each in identities]
    ours, theirs = socket.socketpair()
    await asyncio.gather(
        loop.create_connection(lambda: near, sock=ours, ssl=credentials[0].client(1), server_hostname=""),
        loop.connect_accepted_socket(lambda: far, theirs, ssl=credentials[1].server),
    )
    far._connected.pause_reading()
    closing = [asyncio.create_task(near.close()) for _ in range(2)]
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in closing)
    near.abort()
    async with asyncio.timeout(10):
        await asyncio.gather(*closing)
    far.abort()
    await far.close()


@pytest.mark.slow
async def test_all_orders_of_dialling_at_once_end_with_one_connection(monkeypatch: pytest.MonkeyPatch, links: Links) -> None:
    from quietmean.node.net import link

    for number in range(40):
        # From far apart to at the same moment.
        monkeypatch.setattr(link, "_HEAD_START", number * 0.0005)
        parties = two(links=links)
        await asyncio.gather(*(party.link.ask(beat(k)) for party in parties for k in range(3)))
        while sum(party.connections for party in parties) > 1:
            await asyncio.sleep(0.01)
        await asyncio.gather(*(party.link.ask(beat(k)) for party in parties for k in range(3)))
        assert [party.refusals for party in parties] == [[], []]
        await asyncio.gather(*(party.close() for party in parties))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dialler", [0, 1])
async def test_who_cannot_dial_is_asked_again_after_every_cut(dialler: int, links: Links) -> None:
    sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
    proxy = Relayed(sockets[1 - dialler].getsockname()[:2])
    addresses = [unused(), unused()]
    addresses[1 - dialler] = await proxy.start()
    parties = [Party(party, sockets[party], addresses[1 - party], links=links) for party in range(2)]
    asking, asked = parties[1 - dialler], parties[dialler]
    # The dialler has something to say once; after that only the other one, which relies on it to dial again.
    await asked.link.ask(beat())
    for number in range(4):
        asked.hold = asyncio.Event()
        waiting = asyncio.create_task(asking.link.ask(beat(number)))
        before = len(asked.handled)
        while len(asked.handled) == before:
            await asyncio.sleep(0.01)
        # Handled, but the answer is lost: it is not taken as sent.
        proxy.cut()
        asked.hold.set()
        asked.hold = None
        assert (await waiting).status == ACCEPTED
        assert proxy.accepted == number + 2
    assert len(asked.handled) >= 8
    await asyncio.gather(*(party.close() for party in parties))
    await proxy.stop()


@pytest.mark.sampled(1)
async def test_what_is_half_open_gives_way_to_a_new_process(links: Links) -> None:
    sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
    proxy = Relayed(sockets[0].getsockname()[:2])
    # The one with the smaller key dialled, and does not learn that the other end is no more.
    straight = sockets[1].getsockname()[:2]
    muted = Relayed(straight)
    first = Party(0, sockets[0], await muted.start(), links=links)
    before = Party(1, sockets[1], unused(), links=links)
    await first.link.ask(beat())
    muted.mute = True
    await before.close()
    after = Party(1, open_socket(("127.0.0.1", 0)), await proxy.start(), links=links)
    await after.link.ask(beat(1))
    assert (await first.link.ask(beat(2))).status == ACCEPTED
    assert after.handled
    await asyncio.gather(first.close(), after.close())
    await proxy.stop()
    await muted.stop()


async def test_a_peer_that_hangs_up_again_and_again_is_not_dialled_as_fast_as_possible() -> None:
    parties = two((False, True))
    welcomed = 0

    def hang_up(duplex: Duplex, position: object) -> bool:
        nonlocal welcomed
        welcomed += 1
        return False

    vars(parties[1].link)["take"] = hang_up
    asking = asyncio.create_task(parties[0].link.ask(beat()))
    while welcomed < 3:
        await asyncio.sleep(0.01)
    begun, before = asyncio.get_running_loop().time(), welcomed
    while welcomed < before + 4:
        await asyncio.sleep(0.01)
    # The pauses double, from a fifth of a second on.
    assert asyncio.get_running_loop().time() - begun > 1.0
    asking.cancel()
    await asyncio.gather(*(party.close() for party in parties))


class Narrow(Connection):
    """Sends a frame or part only when told to."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.next = asyncio.Semaphore(0)

    certificate = None

    def send_now(self, frame: AnyFrame, payload: Payload = b"") -> bool:
        return False

    async def send(self, frame: AnyFrame, payload: Payload = b"") -> None:
        await self.next.acquire()
        self.sent.append(type(frame).__name__)

    async def announce(self, frame: AnyFrame, size: int) -> None:
        await self.send(frame)

    async def send_part(self, part: Payload) -> None:
        await self.next.acquire()
        self.sent.append("part" if part else "taken back")

    async def receive(self, limits: Limits) -> tuple[AnyFrame, Payload]:
        await asyncio.Event().wait()
        raise EOFError

    def abort(self) -> None: ...

    async def until(self, count: int) -> list[str]:
        while len(self.sent) < count:
            self.next.release()
            await asyncio.sleep(0)
        return self.sent


@pytest.mark.parametrize("given_up", [False, True])
async def test_what_is_short_goes_between_the_parts_of_what_is_long(given_up: bool) -> None:
    parties = two()
    narrow = Narrow()
    duplex = Duplex(narrow, vars(parties[0].link)["_endpoint"], 1, None, dialled=True)
    running = asyncio.create_task(duplex.run())
    asking = [asyncio.create_task(duplex.ask(share(), bytes(4 * PART), lambda answer: None)) for _ in range(2)]
    await narrow.until(2)
    if given_up:
        asking[0].cancel()
        await asyncio.sleep(0)
    asking.append(asyncio.create_task(duplex.ask(beat(), b"", lambda answer: None)))
    # The one that was waiting to be written when the heartbeat came, and then the heartbeat.
    told = (await narrow.until(11 if not given_up else 10))[2:]
    if given_up:
        before, after = told[: told.index("Heartbeat")], told[told.index("Heartbeat") + 1 :]
        assert before in (["part", "taken back"], ["taken back"])
        assert after[:5] == ["Transfer", *["part"] * 4][: len(after)]
    else:
        assert told.index("Heartbeat") <= 1
        assert [what for what in told if what != "Heartbeat"] == [*["part"] * 3, "Transfer", *["part"] * 4]
    for task in (*asking, running):
        task.cancel()
    await asyncio.gather(*asking, running, return_exceptions=True)
    await asyncio.gather(*(party.close() for party in parties))


async def test_what_is_given_up_does_not_arrive_after_what_follows(links: Links) -> None:
    parties = two(links=links)
    await asyncio.gather(*(party.link.ask(beat()) for party in parties))
    for _ in range(20):
        given_up = [asyncio.create_task(parties[0].link.ask(share(), bytes(8 * DIMENSION))) for _ in range(3)]
        await asyncio.sleep(0.001)
        for task in given_up:
            task.cancel()
        before = len(parties[1].handled)
        await parties[0].link.ask(beat(7))
        told = parties[1].handled[before:]
        last = max(place for place, request in enumerate(told) if isinstance(request, Heartbeat))
        await asyncio.sleep(0.005)
        assert not any(isinstance(request, Transfer) for request in parties[1].handled[before + last :])
    await asyncio.gather(*(party.close() for party in parties))


# --- parts -----------------------------------------------------------------------------------------------------------


def parse(raw: bytes) -> tuple[Any, Payload, int]:
    async def read() -> tuple[Any, Payload, int]:
        reader = asyncio.StreamReader()
        reader.feed_data(raw)
        reader.feed_eof()
        return await read_frame(reader, LIMITS)

    return asyncio.run(read())


def test_a_long_payload_in_parts() -> None:
    payload = bytes(range(256)) * (8 * DIMENSION // 256)
    raw = encode_message(share(), payload)
    frame, read, size = parse(raw)
    assert (frame, bytes(read), size) == (share(), payload, len(raw))
    assert len(raw) == len(encode_frame(share())) + len(payload) + 8 * -(-len(payload) // PART)
    # Another frame in between comes first; a message that was taken back never.
    head = len(encode_frame(share()))
    between = raw[: head + PART + 8] + encode_frame(beat()) + raw[head + PART + 8 :]
    assert parse(between)[0] == beat()
    assert parse(raw[: head + PART + 8] + encode_part(0) + raw)[2] == head + PART + 16 + len(raw)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (encode_part(5) + b"abcde", "a part of no message"),
        (encode_part(0), "a part of no message"),
        (encode_frame(share(), 8 * DIMENSION) * 2, "a second long message"),
        (encode_frame(share(), 8 * DIMENSION) + encode_part(PART - 1), f"a part of {PART - 1} bytes instead of {PART}"),
        (encode_frame(share(), 8 * DIMENSION) + encode_part(2**32 - 1), f"a part of {2**32 - 1} bytes instead of {PART}"),
        (struct.pack(">II", 0, 2**31), "a part of no message"),
    ],
)
def test_parts_that_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(PeerError, match=why):
        parse(raw)


async def test_a_listener_with_a_leaf_of_another_study_is_refused(links: Links) -> None:
    """Its key was stolen from the process of another study of the same party; it knows the digest of this one."""
    sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
    stolen = Party(1, sockets[1], unused(), leaf="0" * 64, links=links)
    dialling = Party(0, sockets[0], sockets[1].getsockname()[:2], links=links)
    asked = asyncio.create_task(dialling.link.ask(beat()))
    while OTHER_LEAF not in dialling.refusals:
        await asyncio.sleep(0.01)
    assert not asked.done()
    assert stolen.handled == []
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    for party in (stolen, dialling):
        await party.close()
