"""Unknown peers that hold the places for handshakes: which is evicted, and that a party of the study gets in beside them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import (
    VERSION,
    AnswerFrame,
    AnyRequest,
    Connection,
    Credentials,
    Endpoint,
    Limits,
    Listener,
    Payload,
    Refusals,
    Traffic,
    open_socket,
)
from quietmean.node.net.listener import SPARE_HANDSHAKES, Acceptor, HandshakePool, network_of
from quietmean.node.net.wire import Hello, Welcome
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed

STUDY = "f" * 64
PLACES = SPARE_HANDSHAKES + 2
# How soon a party is to be in; it takes some hundredths of a second, and this may be a busy machine.
SOON = 1.0
ATTEMPTS = 5
CROWD = 220


# --- who gives way ---------------------------------------------------------------------------------------------------


def full_house(hosts: str) -> HandshakePool[int]:
    """Handshake k comes from the host that letter k names."""
    handshakes: HandshakePool[int] = HandshakePool(len(hosts))
    for number, host in enumerate(hosts):
        handshakes.add(number, host)
    assert handshakes.full
    return handshakes


@pytest.mark.parametrize(("hosts", "goes"), [("aaaa", 0), ("abbb", 1), ("babcb", 0), ("aabb", 0), ("bcaa", 2), ("abcd", 0)])
def test_the_oldest_of_the_fullest_network_gives_way(hosts: str, goes: int) -> None:
    assert full_house(hosts).next_to_evict() == goes


def test_one_who_is_alone_at_its_address_stays_while_others_crowd() -> None:
    handshakes: HandshakePool[int] = HandshakePool(8)
    handshakes.add(0, "192.0.2.1")
    for number in range(1, 10_000):
        if handshakes.full:
            handshakes.remove(handshakes.next_to_evict())
        handshakes.add(number, "198.51.100.7")
    assert 0 in set(handshakes)
    assert set(handshakes) == {0, *range(9993, 10_000)}


def test_no_more_is_kept_than_who_is_here() -> None:
    """Whatever comes and goes: as a list of (handshake, host) does it, and nothing is left of those removed."""
    handshakes: HandshakePool[int] = HandshakePool(16)
    naive: list[tuple[int, str]] = []
    choices = BitStream(insecure_seed(1, "arrivals")).uniform(40_000).reshape(-1, 2)
    for number, (what, who) in enumerate(choices):
        if what < 0.3 and naive:
            handshake, _ = naive.pop(int(who * len(naive)))
            handshakes.remove(handshake)
            handshakes.remove(handshake)
            continue
        if handshakes.full:
            counts = {host: sum(host == other for _, other in naive) for _, host in naive}
            crowded = next(entry for entry in naive if counts[entry[1]] == max(counts.values()))
            assert handshakes.next_to_evict() == crowded[0]
            naive.remove(crowded)
            handshakes.remove(crowded[0])
        # From a few addresses often, from many once.
        host = f"10.0.0.{int(who * 100) % 5}" if number % 2 else f"2001:db8:{number:x}::1"
        handshakes.add(number, host)
        naive.append((number, host))
        assert len(handshakes) == len(naive) <= 16
    assert list(handshakes) == [handshake for handshake, _ in naive]
    assert len(vars(handshakes)["_by_network"]) <= 16


def test_networks() -> None:
    assert network_of("192.0.2.1") == network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("2001:db8:0:1::7") == network_of("2001:db8:0:1:ffff::") != network_of("2001:db8:0:2::7")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of("") == ""


# --- real sockets ----------------------------------------------------------------------------------------------------


class WhileThereIsRoom(Acceptor):
    """Takes one at a time, and nobody while all places are taken."""

    at_once = 1
    full: Callable[[], bool]

    def _accept(self) -> None:
        if self.full():
            self._pause()
        else:
            super()._accept()


class WithoutEviction(Listener):
    """As if nobody ever gave way: further ones wait in the system's queue."""

    def __init__(self, endpoint: Endpoint, listening: socket.socket, *given: Any, **more: Any) -> None:
        super().__init__(endpoint, listening, *given, **more)
        acceptor = WhileThereIsRoom(listening, self._accepted)
        acceptor.full = lambda: self._handshakes.full
        self._acceptor = acceptor


@dataclass
class Place:
    """A listener of party 0 with a handshake time-out of a minute, on a port of its own; and what it reports."""

    kind: type[Listener] = Listener
    refusals: Refusals = field(default_factory=Refusals)
    reported: list[tuple[str, str]] = field(default_factory=list)
    connected: int = 0
    disconnect: int = 0

    def __post_init__(self) -> None:
        self.identities = [Identity.generate() for _ in range(2)]
        self.listening = open_socket(("127.0.0.1", 0))
        self.address = self.listening.getsockname()
        addresses = [self.address, ("192.0.2.1", 1)]
        entries = [RosterEntry(f"party-{k}", addresses[k], self.identities[k].public_key) for k in range(2)]
        self.roster = Roster(tuple(entries))
        self.client = Credentials(self.identities[1], self.roster, STUDY).client(0)
        endpoint = Endpoint(
            party=0,
            roster=self.roster,
            study=STUDY,
            credentials=Credentials(self.identities[0], self.roster, STUDY),
            limits=Limits.of_study(2, 4, 2),
            refusal=self.refused,
            heard=lambda party, position: None,
        )
        self.listener = self.kind(endpoint, self.listening, self.handle, lambda: (0, 0), handshake_seconds=60.0)

    def refused(self, who: str, reason: str) -> None:
        reported = self.refusals.note(who, reason)
        if reported is not None:
            self.reported.append(reported)

    async def handle(self, party: int, request: AnyRequest, payload: Payload) -> AnswerFrame:
        raise AssertionError("nobody asks anything")

    async def party_comes_in(self) -> float:
        """Seconds until party 1 was welcomed; raises TimeoutError after :data:`SOON`."""
        begun = asyncio.get_running_loop().time()
        async with asyncio.timeout(SOON):
            connection = await Connection.dial(self.address, self.client, Traffic())
            try:
                await connection.send(Hello(VERSION, 1, STUDY))
                frame, _ = await connection.receive(Limits.before_welcome())
                assert isinstance(frame, Welcome)
            finally:
                connection.abort()
        return asyncio.get_running_loop().time() - begun

    async def until_turned_out(self, host: str, trickle: bool) -> None:
        """Connect and do nothing, or send the beginning of a greeting, a byte every now and then, until cut off."""
        reader, writer = await asyncio.open_connection(*self.address, local_addr=(host, 0))
        self.connected += 1
        try:
            with contextlib.suppress(OSError):
                for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(490) if trickle else b"":
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.02)
                await reader.read()
            self.disconnect += 1
        finally:
            writer.transport.abort()


async def siege(place: Place, host: str, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the scenario once a crowd of unknown peers has connected, of which one in eleven trickles and the others are idle."""
    place.listener.start()
    handshakes = [asyncio.create_task(place.until_turned_out(host, number % 11 == 0)) for number in range(CROWD)]
    try:
        while place.connected < CROWD or not place.listener._handshakes.full:
            await asyncio.sleep(0.01)
        await scenario()
    finally:
        for handshake in handshakes:
            handshake.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
        await place.listener.close()


# From the address of the unknown peers, as all come from one behind a router, and from another.
@pytest.mark.sampled(1)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_idle_strangers_do_not_keep_a_party_waiting(host: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        place = Place()
        times: list[float] = []

        async def scenario() -> None:
            for _ in range(4 * ATTEMPTS):
                # A busy machine may hold up some of them.
                with contextlib.suppress(TimeoutError):
                    times.append(await place.party_comes_in())
                if len(times) == ATTEMPTS:
                    break
            async with asyncio.timeout(60.0):
                while place.disconnect < CROWD - PLACES:
                    await asyncio.sleep(0.01)
            # Once for the address; counted after that.
            (reported,) = place.reported
            assert reported[0].startswith(f"{host}:")
            assert reported[1] == f"it gave way: all {PLACES} places for handshakes were taken, most of them by its address"
            assert place.refusals.lines()[0].endswith(" times)")

        await siege(place, host, scenario)
        print(f"in after {', '.join(f'{1000 * time:.0f}' for time in times)} ms; {place.disconnect} handshakes cut off")
        assert len(times) == ATTEMPTS

    asyncio.run(run())
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_without_eviction_they_do() -> None:
    place = Place(WithoutEviction)

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await place.party_comes_in()

    await siege(place, "127.0.0.1", scenario)
    assert place.disconnect == 0


def test_one_who_gives_way_before_anything_was_done_for_it_is_closed() -> None:
    """All arrive before the listener's tasks have run their first step."""

    async def run() -> None:
        place = Place()
        with contextlib.ExitStack() as stack:
            callers = [stack.enter_context(socket.create_connection(place.address)) for _ in range(PLACES + 20)]
            place.listening.setblocking(False)
            for _ in callers:
                vars(place.listener)["_acceptor"]._accept()
            assert len(place.listener._handshakes) == PLACES
            await asyncio.sleep(0)
            for caller in callers[:20]:
                caller.settimeout(10.0)
                assert caller.recv(1) == b""
            await place.listener.close()
            for caller in callers[20:]:
                with contextlib.suppress(ConnectionResetError):
                    assert caller.recv(1) == b""

    asyncio.run(run())
    gc.collect()


def test_an_insider_who_does_not_greet_gives_way_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        place = Place()
        place.listener.start()
        mute = [await Connection.dial(place.address, place.client, Traffic()) for _ in range(PLACES + 10)]
        for connection in mute[:10]:
            with pytest.raises((OSError, EOFError)):
                async with asyncio.timeout(60.0):
                    await connection.receive(Limits.before_welcome())
        # The others wait on.
        assert len(place.listener._handshakes) == PLACES
        (reported,) = place.reported
        assert reported[1].startswith("it gave way")
        for connection in mute:
            connection.abort()
        await place.listener.close()

    asyncio.run(run())
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize(
    "junk", [b"\x17\x03\x03\x00\x20" + bytes(32), b"GET / HTTP/1.1\r\n\r\n", b"", None], ids=["record", "text", "end", "twice"]
)
async def test_what_is_no_tls_right_behind_a_handshake_ends_one_connection(junk: bytes | None) -> None:
    """Somebody on the way adds bytes to a party's last message: the node goes on, and the party comes in the next time."""
    place = Place()
    place.listener.start()
    try:
        reader, writer = await asyncio.open_connection(*place.address)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = place.client.wrap_bio(incoming, outgoing)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))
        last = outgoing.read()
        # In one piece, which the node reads at once.
        writer.write(last + (last if junk is None else junk))
        if junk == b"":
            writer.write_eof()
        with contextlib.suppress(OSError):
            await reader.read()
            while await reader.read(1 << 16):
                pass
        writer.transport.abort()
        assert await place.party_comes_in() < SOON
        assert [who for who, _ in place.reported] == ["party-1"]
    finally:
        await place.listener.close()
