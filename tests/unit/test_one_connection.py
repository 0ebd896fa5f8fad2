"""Two parties over real sockets: one connection for both directions, whoever dialled it, and nothing is lost as it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quietmean.core.errors import PeerError
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import (
    ACCEPTED,
    Address,
    Answer,
    AnyRequest,
    Connection,
    Credentials,
    Endpoint,
    Heartbeat,
    Limits,
    Link,
    Listener,
    Payload,
    Traffic,
    Transfer,
    open_socket,
    public_key_bytes,
)
from quietmean.node.net.duplex import Duplex
from quietmean.node.net.reader import read_frame
from quietmean.node.net.tls import OTHER_LEAF
from quietmean.node.net.wire import PART, AnyFrame, encode_frame, encode_message, encode_part

STUDY = "f" * 64
DIMENSION = 40_000
LIMITS = Limits.of_study(2, 4, DIMENSION)
IDENTITIES = sorted((Identity.generate() for _ in range(2)), key=lambda each: public_key_bytes(each.public_key))


def unused() -> Address:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        host, port = probe.getsockname()
        return host, port


class Relayed:
    """A TCP proxy: connections that can be cut, or left without a word."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self.writers: list[asyncio.StreamWriter] = []
        self.mute = False
        self.accepted = 0

    async def start(self) -> Address:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self.writers += [writer, far_writer]

        async def one_way(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while chunk := await source.read(65536):
                    if not self.mute:
                        target.write(chunk)
                        await target.drain()
            target.transport.abort()

        await asyncio.gather(one_way(reader, far_writer), one_way(far_reader, writer))

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def stop(self) -> None:
        self.cut()
        self._server.close()
        await asyncio.sleep(0)


class Party:
    """One of two parties, 0 with the smaller key. ``dials``: where it thinks that the other one is; ``leaf``: the study in its
    certificate.
    """

    def __init__(self, party: int, listening: socket.socket, dials: Address, leaf: str = STUDY) -> None:
        entries = [RosterEntry(f"party-{k}", dials if k != party else unused(), IDENTITIES[k].public_key) for k in range(2)]
        roster = Roster(tuple(entries))
        self.refusals: list[str] = []
        self.handled: list[AnyRequest] = []
        self.traffic = Traffic()
        self.hold: asyncio.Event | None = None
        endpoint = Endpoint(
            party,
            roster,
            STUDY,
            Credentials(IDENTITIES[party], roster, leaf),
            LIMITS,
            lambda who, why: self.refusals.append(why),
            lambda peer, position: None,
            self.traffic,
        )
        self.link = Link(endpoint, 1 - party, handle=self.handle)
        self.listener = Listener(endpoint, listening, self.handle, lambda: (0, 0), links={1 - party: self.link})
        self.listener.start()

    async def handle(self, peer: int, request: AnyRequest, payload: Payload) -> Answer:
        self.handled.append(request)
        if self.hold is not None:
            await self.hold.wait()
        return Answer(request.number, ACCEPTED, 0, 0)

    @property
    def connections(self) -> int:
        return sum(map(len, vars(self.listener)["_connections"].values()))

    async def close(self) -> None:
        self.link.stop()
        await self.listener.close()
        await self.link.close()


def beat(number: int = 0) -> Heartbeat:
    return Heartbeat(0, 1, number)


def share() -> Transfer:
    return Transfer(0, 1, 1, 1.0, 1000, b"", DIMENSION)


def scenario(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60.0):
            await work()

    asyncio.run(run())


def two(dialable: tuple[bool, bool] = (True, True)) -> list[Party]:
    sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
    addresses = [each.getsockname()[:2] if can else unused() for each, can in zip(sockets, dialable, strict=True)]
    return [Party(party, sockets[party], addresses[1 - party]) for party in range(2)]


@pytest.mark.parametrize("dialable", [(True, True), (True, False), (False, True)])
def test_both_ask_over_one_connection(dialable: tuple[bool, bool]) -> None:
    async def work() -> None:
        parties = two(dialable)
        answers = await asyncio.gather(*(party.link.ask(beat()) for party in parties for _ in range(5)))
        assert [answer.status for answer in answers] == [ACCEPTED] * 10
        assert [len(party.handled) for party in parties] == [5, 5]
        # One was accepted on one side, and it was dialled by who could; the smaller key, where both can.
        assert [party.connections for party in parties] == ([1, 0] if dialable == (True, False) else [0, 1])
        await asyncio.gather(*(party.close() for party in parties))
        assert [party.refusals for party in parties] == [[], []]
        assert parties[0].traffic.sent == parties[1].traffic.received
        assert parties[1].traffic.sent == parties[0].traffic.received

    scenario(work)


def test_all_orders_of_dialling_at_once_end_with_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    from quietmean.node.net import link

    async def work() -> None:
        for number in range(40):
            # From far apart to at the same moment.
            monkeypatch.setattr(link, "_HEAD_START", number * 0.0005)
            parties = two()
            await asyncio.gather(*(party.link.ask(beat(k)) for party in parties for k in range(3)))
            while sum(party.connections for party in parties) > 1:
                await asyncio.sleep(0.01)
            await asyncio.gather(*(party.link.ask(beat(k)) for party in parties for k in range(3)))
            assert [party.refusals for party in parties] == [[], []]
            await asyncio.gather(*(party.close() for party in parties))

    scenario(work)


@pytest.mark.parametrize("dialler", [0, 1])
def test_who_cannot_dial_is_asked_again_after_every_cut(dialler: int) -> None:
    async def work() -> None:
        sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
        proxy = Relayed(sockets[1 - dialler].getsockname()[:2])
        addresses = [unused(), unused()]
        addresses[1 - dialler] = await proxy.start()
        parties = [Party(party, sockets[party], addresses[1 - party]) for party in range(2)]
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

    scenario(work)


def test_what_is_half_open_gives_way_to_a_new_process() -> None:
    async def work() -> None:
        sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
        proxy = Relayed(sockets[0].getsockname()[:2])
        # The one with the smaller key dialled, and does not learn that the other end is no more.
        straight = sockets[1].getsockname()[:2]
        muted = Relayed(straight)
        first = Party(0, sockets[0], await muted.start())
        before = Party(1, sockets[1], unused())
        await first.link.ask(beat())
        muted.mute = True
        await before.close()
        after = Party(1, open_socket(("127.0.0.1", 0)), await proxy.start())
        await after.link.ask(beat(1))
        assert (await first.link.ask(beat(2))).status == ACCEPTED
        assert after.handled
        await asyncio.gather(first.close(), after.close())
        await proxy.stop()
        await muted.stop()

    scenario(work)


def test_a_peer_that_hangs_up_again_and_again_is_not_dialled_as_fast_as_possible() -> None:
    async def work() -> None:
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

    scenario(work)


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
def test_what_is_short_goes_between_the_parts_of_what_is_long(given_up: bool) -> None:
    async def work() -> None:
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
        first = ["Transfer", "part"]
        # The one that was waiting to be written when the heartbeat came, and then the heartbeat.
        told = (await narrow.until(11 if not given_up else 10))[2:]
        if given_up:
            assert first + told[: told.index("Heartbeat")] in (
                [*first, "part", "taken back"],
                [*first, "taken back"],
            )
            assert (
                told[told.index("Heartbeat") + 1 :][:5] == ["Transfer", *["part"] * 4][: len(told[told.index("Heartbeat") + 1 :])]
            )
        else:
            assert told.index("Heartbeat") <= 1
            assert [what for what in told if what != "Heartbeat"] == [*["part"] * 3, "Transfer", *["part"] * 4]
        for task in (*asking, running):
            task.cancel()
        await asyncio.gather(*asking, running, return_exceptions=True)
        await asyncio.gather(*(party.close() for party in parties))

    scenario(work)


def test_what_is_given_up_does_not_arrive_after_what_follows() -> None:
    async def work() -> None:
        parties = two()
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

    scenario(work)


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
        (encode_frame(share(), 8 * DIMENSION) + encode_part(PART - 1), "were due"),
        (encode_frame(share(), 8 * DIMENSION) + encode_part(2**32 - 1), "were due"),
        (struct.pack(">II", 0, 2**31), "a part of no message"),
    ],
)
def test_parts_that_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(PeerError, match=why):
        parse(raw)


def test_a_listener_with_a_leaf_of_another_study_is_refused() -> None:
    """Its key was stolen from the process of another study of the same party; it knows the digest of this one."""

    async def work() -> None:
        sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
        stolen = Party(1, sockets[1], unused(), leaf="0" * 64)
        dialling = Party(0, sockets[0], sockets[1].getsockname()[:2])
        asked = asyncio.create_task(dialling.link.ask(beat()))
        while OTHER_LEAF not in dialling.refusals:
            await asyncio.sleep(0.01)
        assert not asked.done()
        assert stolen.handled == []
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        for party in (stolen, dialling):
            await party.close()

    scenario(work)
