"""A relay on loopback, in this process: who is let in, what it holds, and what happens to parties if it lies."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node import relay as relay_server
from quietmean.node.net import (
    ACCEPTED,
    AnswerFrame,
    AnyRequest,
    ByteStream,
    Credentials,
    Endpoint,
    Group,
    Limits,
    Link,
    Listener,
    Payload,
    RelayAddress,
    Traffic,
    Transfer,
    public_key_bytes,
)
from quietmean.node.net import link as link_module
from quietmean.node.relay import Admission, Front, FrontLimits, RelayLimits, RelayServer, exchange
from quietmean.node.relay.connection import RelayConnection
from quietmean.node.tunnel import BINARY, END_OF_HEAD, Dialer, Nonce, RelayError, Turned, frame
from quietmean.node.tunnel.route import RelayAccess
from quietmean.node.tunnel.stream import Attending, FromRelay, RelayStream, Role, decode_message, encode_message, prove
from quietmean.node.tunnel.websocket import FrameParser, Piece, upgrade_request

STUDY = "f" * 64
DIMENSION = 30_000
LIMITS = Limits.of_study(3, 4, DIMENSION)
IDENTITIES = sorted((Identity.generate() for _ in range(3)), key=lambda each: public_key_bytes(each.public_key))
KEYS = [public_key_bytes(each.public_key) for each in IDENTITIES]
SHARE: Final = hashlib.shake_128(b"share").digest(8 * DIMENSION)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too late is looked for more often."""
    monkeypatch.setattr(relay_server, "_SWEEP_SECONDS", 0.05)


def test_who_is_evicted_at_once_is_dropped() -> None:
    """Two connections in one step of the loop, and one place: the first was not even looked at."""

    async def story() -> None:
        ends = [socket.socketpair() for _ in range(2)]
        with socket.create_server(("127.0.0.1", 0)) as listening:
            limits = FrontLimits(connections=1, burst=10.0, rate=1.0, handshake=1.0, longest=5.0)
            exchange_ = exchange.RelayExchange(Admission(), RelayLimits())
            front = Front(listening, lambda: RelayConnection(exchange_), None, limits)
            for ours, _ in ends:
                front._accepted(ours, ("127.0.0.1", 1))
            assert [ours.fileno() < 0 for ours, _ in ends] == [True, False]
            assert (front.counts.accepted, front.counts.evicted) == (2, 1)
            await asyncio.sleep(0.01)
            await front.stop()
        for _, theirs in ends:
            assert theirs.recv(1) == b""
            theirs.close()

    asyncio.run(story())


@contextlib.asynccontextmanager
async def relay(
    limits: RelayLimits | None = None, admission: Admission | None = None, names: tuple[str, ...] = ()
) -> AsyncIterator[tuple[RelayServer, RelayAddress]]:
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = RelayServer(listening, admission or Admission(anybody=True), limits, names=names)
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(server.run(stop, ready.set))
    await ready.wait()
    try:
        yield server, RelayAddress("127.0.0.1", listening.getsockname()[1])
    finally:
        stop.set()
        await running


class Party:
    """One of three parties, all of them at the relay."""

    def __init__(self, party: int, address: RelayAddress) -> None:
        roster = roster_at(address)
        self.handled: list[tuple[int, AnyRequest, bytes]] = []
        self.refusals: list[str] = []
        self.reach = Dialer(IDENTITIES[party], roster)
        endpoint = Endpoint(
            party,
            roster,
            STUDY,
            Credentials(IDENTITIES[party], roster, STUDY),
            LIMITS,
            lambda who, why: self.refusals.append(why),
            lambda peer, position: None,
            Traffic(),
        )
        others = [each for each in range(3) if each != party]
        self.links = {each: Link(endpoint, each, self.reach.route(each), self.handle) for each in others}
        self.listener = Listener(endpoint, None, self.handle, lambda: (0, 0), links=self.links)
        self.listener.start()
        self.reach.attend(self.listener, lambda who, why: self.refusals.append(why))

    async def handle(self, peer: int, request: AnyRequest, payload: Payload) -> AnswerFrame:
        self.handled.append((peer, request, bytes(payload)))
        return AnswerFrame(request.number, ACCEPTED, 0, 0)

    async def close(self) -> None:
        for link in self.links.values():
            link.stop()
        await self.reach.leave()
        await self.listener.close()
        await asyncio.gather(*(link.close() for link in self.links.values()))
        await self.reach.close()


def roster_at(address: RelayAddress) -> Roster:
    return Roster(tuple(RosterEntry(f"party-{k}", address, IDENTITIES[k].public_key) for k in range(3)))


def access(address: RelayAddress, party: int) -> RelayAccess:
    return RelayAccess(address, IDENTITIES[party], roster_at(address).digest)


def share() -> Transfer:
    return Transfer(0, 1, 1, 1.0, 1000, b"", DIMENSION)


async def all_ask(parties: list[Party]) -> None:
    """Everybody sends everybody a share."""
    asked = [link.ask(share(), SHARE) for party in parties for link in party.links.values()]
    assert [answer.status for answer in await asyncio.gather(*asked)] == [ACCEPTED] * 6


# --- an honest one ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head_start", [60.0, 0.0], ids=["one dials", "both dial at once"])
async def test_three_parties_that_only_dial_out(head_start: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of two dials, no pair is joined twice. Where both do, as on a slow machine, each pair soon has one connection."""
    monkeypatch.setattr(link_module, "_HEAD_START", head_start)
    monkeypatch.setattr(link_module, "_HEAD_START_OF_EACH", 0.0)
    async with relay() as (server, address):
        parties = [Party(party, address) for party in range(3)]
        await all_ask(parties)
        if head_start:
            assert [len(party.handled) for party in parties] == [2, 2, 2]
            assert server.exchange.counts.joined == 3
        else:
            # What was on its way in a connection that gave way comes again.
            assert all({peer for peer, _, _ in party.handled} == {0, 1, 2} - {k} for k, party in enumerate(parties))
            assert server.exchange.counts.joined > 3
            async with asyncio.timeout(60):
                while server.exchange.health()["pairs"] > 3:
                    await asyncio.sleep(0.01)
            await all_ask(parties)
        assert server.exchange.health()["pairs"] == 3
        assert server.exchange.health()["attending"] == 3
        await asyncio.gather(*(party.close() for party in parties))
        # Nothing of them stays.
        while server.exchange.connections:
            await asyncio.sleep(0.01)
        health = server.exchange.health()
        assert (health["pairs"], health["attending"], health["waiting"]) == (0, 0, 0)
    assert [party.refusals for party in parties] == [[], [], []]


async def test_who_is_not_there_is_silent_and_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "CALL_SECONDS", 0.3)
    async with relay() as (_, address):
        party = Party(0, address)
        route = party.reach.route(1)
        assert not route.direct
        with pytest.raises(RelayError, match="it is not at the relay"):
            await route.dial(Credentials(IDENTITIES[0], roster_at(address), STUDY).client(1))
        await party.close()


async def test_without_a_relay_one_sentence_and_later_the_study(free_ports: Callable[[int], list[int]]) -> None:
    address = RelayAddress("127.0.0.1", free_ports(1)[0])
    party = Party(0, address)
    while not party.refusals:
        await asyncio.sleep(0.01)
    assert party.refusals == [f"nobody listens at the relay 127.0.0.1:{address.port}"]
    assert not party.links[1].unreachable
    await party.close()


# --- who is let in ---------------------------------------------------------------------------------------------------


async def answer_to(
    address: RelayAddress, identity: Identity, role: Role, change: Callable[[Any], Any] = lambda proof: proof
) -> FromRelay:
    """What the relay says to a proof. ``change``: what is made of it before it is sent."""
    name = f"127.0.0.1:{address.port}"
    stream = RelayStream(name)
    await asyncio.get_running_loop().create_connection(lambda: stream, *address)
    try:
        nonce = await stream.message()
        assert isinstance(nonce, Nonce)
        group = Group.of_session(roster_at(address).digest)
        ticket = bytes(16) if role == "answer" else b""
        stream.say(change(prove(identity, role, group, name, nonce.nonce, ticket=ticket)))
        return await stream.message()
    finally:
        stream.abort()


def changed(**change: object) -> Callable[[Any], Any]:
    def make(proof: Any) -> Any:
        return type(proof)(**{**{name: getattr(proof, name) for name in proof.__struct_fields__}, **change})

    return make


async def test_only_the_owner_of_a_key_has_its_name() -> None:
    async with relay() as (server, address):
        group = Group.of_session(roster_at(address).digest)
        wrong = [
            # Without the key; under the name of another member; with another member's key and the own signature.
            changed(signature=bytes(64)),
            changed(label=group.label(KEYS[1])),
            changed(key=KEYS[1], label=group.label(KEYS[1])),
            changed(relay="elsewhere.example:443"),
        ]
        for change in wrong:
            assert isinstance(await answer_to(address, IDENTITIES[0], "attend", change), Turned)
        assert server.exchange.health()["attending"] == 0
        assert isinstance(await answer_to(address, IDENTITIES[0], "attend"), Attending)


async def test_only_members_of_a_session_meet() -> None:
    stranger = Identity.generate()
    # The port is not in the digest of a roster.
    digest = roster_at(RelayAddress("127.0.0.1", 1)).digest
    async with relay(admission=Admission.of({digest: frozenset(KEYS)})) as (_, address):
        assert isinstance(await answer_to(address, IDENTITIES[0], "attend"), Attending)
        for role in ("attend", "call", "answer"):
            told = await answer_to(address, stranger, role)
            assert isinstance(told, Turned)
            assert told.reason.endswith("Ask its operator to admit the sealed study")
        # A member with no ticket reaches nobody.
        assert isinstance(await answer_to(address, IDENTITIES[1], "answer"), Turned)


async def test_a_party_that_starts_anew_takes_its_place_and_one_that_checks_does_not() -> None:
    async with relay() as (server, address):
        first = await access(address, 0).open("attend")
        assert isinstance(await first.message(), Attending)
        visiting = await access(address, 0).open("visit")
        assert isinstance(await visiting.message(), Turned)
        second = await access(address, 0).open("attend")
        assert isinstance(await second.message(), Attending)
        assert isinstance(await first.message(), Turned)
        assert server.exchange.health()["attending"] == 1
        for stream in (first, visiting, second):
            stream.abort()


# --- who does harm ---------------------------------------------------------------------------------------------------

UPGRADE, _ = upgrade_request("127.0.0.1", "/quietmean/1")


async def told_by(address: RelayAddress, data: bytes) -> bytes:
    """All that the relay says to these bytes, until it closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    told = b""
    with contextlib.suppress(ConnectionError):
        while more := await reader.read(65_536):
            told += more
    writer.close()
    return told


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01garbage" + END_OF_HEAD, b"400"),
        (b"POST / HTTP/1.1\r\nHost: x" + END_OF_HEAD, b"400"),
        (b"GET / HTTP/1.1\r\nHost: x" + END_OF_HEAD, b"404"),
        (b"GET /quietmean/1 HTTP/1.1\r\nHost: x" + END_OF_HEAD, b"426"),
        (b"GET /health HTTP/1.1\r\nHost: x" + END_OF_HEAD, b"200"),
        (b"x" * 20_000, b"400"),
        (UPGRADE + b"\x81\x05Hello", b"101"),
        (UPGRADE + frame(BINARY, b"x" * 3000, masked=True), b"101"),
        (UPGRADE + frame(BINARY, b"garbage", masked=True), b"101"),
        (UPGRADE + frame(BINARY, encode_message(Attending()), masked=True), b"101"),
    ],
)
async def test_garbage_is_turned_away(data: bytes, status: bytes) -> None:
    async with relay() as (server, address):
        told = await told_by(address, data)
        # It may close before all was read, which takes its words back.
        assert not told or told.startswith(b"HTTP/1.1 " + status)
        while server.exchange.connections:
            await asyncio.sleep(0.01)


async def test_the_half_open_are_cut_off() -> None:
    async with relay(RelayLimits(unproven_seconds=0.3)) as (server, address):
        told = await asyncio.gather(
            *(told_by(address, data) for data in (b"", b"GET", UPGRADE, UPGRADE + b"\x82") for _ in range(5))
        )
        assert len(told) == 20
        assert server.exchange.counts.cut == 20
        assert not server.exchange.connections


async def test_five_hundred_who_only_knock_keep_nobody_out() -> None:
    limits = RelayLimits(unproven=64)
    with contextlib.ExitStack() as stack:
        async with relay(limits) as (server, address):
            loop = asyncio.get_running_loop()
            for number in range(500):
                knocking = stack.enter_context(socket.socket())
                knocking.setblocking(False)
                await loop.sock_connect(knocking, tuple(address))
                if number % 3:
                    await loop.sock_sendall(knocking, UPGRADE if number % 3 == 1 else b"GET /")
            parties = [Party(party, address) for party in range(3)]
            await all_ask(parties)
            assert server.exchange.counts.evicted >= 500 - 64
            await asyncio.gather(*(party.close() for party in parties))


async def test_one_address_and_one_identity_are_slowed() -> None:
    limits = RelayLimits(burst=5.0, rate=0.01)
    async with relay(limits) as (_, address):
        told = [await answer_to(address, IDENTITIES[0], "attend") for _ in range(8)]
        assert [isinstance(each, Attending) for each in told] == [True] * 5 + [False] * 3
        # Only that one.
        assert isinstance(await answer_to(address, IDENTITIES[1], "attend"), Attending)
    async with relay(RelayLimits(burst_of_network=5.0, rate_of_network=0.01)) as (server, address):
        told_bytes = [await told_by(address, b"GET / HTTP/1.1\r\nHost: x" + END_OF_HEAD) for _ in range(8)]
        assert [bool(each) for each in told_bytes] == [True] * 5 + [False] * 3
        assert server.exchange.counts.refused >= 3


async def joined(server: RelayServer, address: RelayAddress) -> tuple[socket.socket, socket.socket, list[RelayAccess]]:
    """The ends of a pair, as the parties' TLS would get them: caller, called."""
    caller, called = access(address, 0), access(address, 1)
    attending = await called.open("attend")
    assert isinstance(await attending.message(), Attending)
    calling = asyncio.create_task(caller.join(await caller.open("call", peer=KEYS[1])))
    call: Any = await attending.message()
    far = await called.join(await called.open("answer", ticket=call.ticket))
    return await calling, far, [caller, called]


@pytest.mark.parametrize("waits", [True, False])
async def test_who_reads_nothing_stops_who_sends_and_is_cut_off_at_last(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not waits:
        # A relay that reads on: what it holds is not bounded, which this test has to find.
        monkeypatch.setattr(RelayConnection, "read", lambda self, wanted: None)
    async with relay(RelayLimits(stalled_seconds=0.5, first_bytes=1)) as (server, address):
        near, far, accesses = await joined(server, address)
        loop, sent = asyncio.get_running_loop(), 0
        held: list[int] = []
        await loop.sock_sendall(far, b"x")
        with contextlib.suppress(OSError, TimeoutError):
            while True:
                async with asyncio.timeout(0.2):
                    await loop.sock_sendall(near, bytes(65_536))
                sent += 65_536
                held += [vars(each)["_transport"].get_write_buffer_size() for each in server.exchange.connections]
                if sent >= 2**26:
                    break
        assert (max(held) <= 96 * 1024) == waits
        while server.exchange.health()["pairs"]:
            await asyncio.sleep(0.05)
        assert server.exchange.counts.cut >= 1
        near.close()
        far.close()
        await asyncio.gather(*(each.close() for each in accesses))


async def test_pairs_without_a_handshake_are_cut_and_their_caller_slowed() -> None:
    async with relay(RelayLimits(first_seconds=0.2, failures=1.0, failure_rate=0.01)) as (server, address):
        near, far, accesses = await joined(server, address)
        while server.exchange.health()["pairs"]:
            await asyncio.sleep(0.05)
        with pytest.raises(RelayError, match="no handshake"):
            await accesses[0].join(await accesses[0].open("call", peer=KEYS[1]))
        # It may still call others, which are not there.
        waiting = asyncio.create_task(accesses[0].join(await accesses[0].open("call", peer=KEYS[2])))
        while not server.exchange.health()["waiting"]:
            await asyncio.sleep(0.01)
        waiting.cancel()
        near.close()
        far.close()
        await asyncio.gather(*(each.close() for each in accesses))


# --- a relay that lies -----------------------------------------------------------------------------------------------


class Liar(RelayConnection):
    """Does harm to what it passes on, at some of the first pieces that are long enough."""

    kind = ""
    # How many pieces were harmed, and when the next one is.
    lies = 0
    left = 6
    kept = b""

    def _take_data(self, piece: Piece) -> None:
        if self.partner is not None and self.passed > 2000 and len(piece.content) > 500 and Liar.left > 0 and self.kind:
            Liar.left -= 1
            Liar.lies += 1
            whole = piece.content
            match self.kind:
                case "drop":
                    return
                case "flip":
                    piece = piece._replace(content=whole[:400] + bytes([whole[400] ^ 1]) + whole[401:])
                case "cut":
                    piece = piece._replace(content=whole[:-100])
                case "replay":
                    super()._take_data(piece)
                case "reorder":
                    piece = piece._replace(content=whole[250:500] + whole[:250] + whole[500:])
                case "reflect":
                    self._write(frame(BINARY, whole, masked=False))
                case "insert":
                    piece = piece._replace(content=b"\x17\x03\x03\x00\x20" + bytes(32) + whole)
                case "hang up":
                    self.partner.abort()
        super()._take_data(piece)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["", "drop", "flip", "cut", "replay", "reorder", "reflect", "insert", "hang up"])
async def test_what_a_relay_changes_is_never_taken(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_server, "RelayConnection", Liar)
    monkeypatch.setattr(Liar, "kind", kind)
    monkeypatch.setattr(Liar, "lies", 0)
    monkeypatch.setattr(Liar, "left", 6)
    # One of two dials, however slow this machine is: if both do, their pair is joined twice without any harm.
    monkeypatch.setattr(link_module, "_HEAD_START", 60.0)
    async with relay() as (server, address):
        parties = [Party(party, address) for party in range(3)]
        await all_ask(parties)
        assert Liar.lies == (6 if kind else 0)
        # The harm made connections break; without any there are as many as pairs of parties.
        assert (server.exchange.counts.joined > 3) == bool(kind)
        for number, party in enumerate(parties):
            assert {peer for peer, _, _ in party.handled} == {0, 1, 2} - {number}
            # What was sent, and nothing else, however often it was sent again.
            assert all(payload == SHARE for _, _, payload in party.handled)
        await asyncio.gather(*(party.close() for party in parties))


class Nowhere:
    direct = False

    async def dial(self, context: object) -> ByteStream:
        raise RelayError("not today")


@pytest.mark.parametrize("kind", ["wrong party", "itself"])
async def test_a_relay_that_connects_the_wrong_ones_finds_no_belief(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Party 0 calls 1, and gets 2, or party 0 itself."""
    lies = [0]
    async with relay() as (server, address):
        find: Any = server.exchange._call

        def call(connection: RelayConnection, proof: Any) -> None:
            target = KEYS[0] if kind == "itself" else KEYS[2]
            group = Group(proof.group)
            if proof.key == KEYS[0] and proof.label == group.label(KEYS[1]) and lies[0] < 4:
                lies[0] += 1
                # Party 2 is told that somebody calls whom it knows, else it would not answer.
                caller = KEYS[1] if kind == "itself" else KEYS[0]
                connection.proof = proof = changed(label=group.label(target), key=caller)(proof)
            find(connection, proof)

        monkeypatch.setattr(server.exchange, "_call", call)
        parties = [Party(party, address) for party in range(3)]
        # Of 0 and 1 only 0 dials.
        vars(parties[1].links[0])["_route"] = Nowhere()
        answer = await parties[0].links[1].ask(share(), SHARE)
        assert answer.status == ACCEPTED
        assert lies[0] == 4
        assert [(peer, payload == SHARE) for peer, _, payload in parties[1].handled] == [(0, True)]
        assert not parties[2].handled
        assert not parties[0].handled
        assert "another key than the roster's answers at its address" in parties[0].refusals
        await asyncio.gather(*(party.close() for party in parties))


async def test_a_relay_that_floods_a_party_with_calls_and_garbage() -> None:
    """A false relay, which answers with whatever it likes."""
    dialled, ended = [0], [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from quietmean.node.tunnel import Call, upgrade_answer
        from quietmean.node.tunnel.websocket import FrameHead

        dialled[0] += 1
        with contextlib.suppress(OSError, EOFError):
            head = FrameHead.parse((await reader.readuntil(END_OF_HEAD))[:-4])
            writer.write(upgrade_answer(head))
            writer.write(frame(BINARY, encode_message(Nonce(bytes(32))), masked=False))
            parser = FrameParser(masked=True)
            said = b"".join(piece.content for piece in parser.feed(memoryview(await reader.read(4096))))
            if b"attend" in said:
                writer.write(frame(BINARY, encode_message(Attending()), masked=False))
                # In the name of a party, and of nobody.
                for caller in (KEYS[1], bytes(32)):
                    writer.write(frame(BINARY, encode_message(Call(bytes(16), caller)), masked=False) * 400)
                await writer.drain()
                await asyncio.sleep(0.5)
                # And then more than any message.
                writer.write(frame(BINARY, bytes(100_000), masked=False))
                await writer.drain()
            await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        ended[0] += 1

    false = await asyncio.start_server(serve, "127.0.0.1", 0)
    party = Party(0, RelayAddress("127.0.0.1", false.sockets[0].getsockname()[1]))
    await asyncio.sleep(0.4)
    # Two kinds of connection: the one that attends, and at most three answers to one party at a time.
    assert 2 <= dialled[0] <= 4
    await asyncio.sleep(0.4)
    assert not party.handled
    await party.close()
    while ended < dialled:
        await asyncio.sleep(0.01)
    false.close()


def test_messages_of_a_relay_are_known_ones() -> None:
    assert isinstance(decode_message(encode_message(Attending())), Attending)


def test_it_closes_its_socket_where_nobody_can_be_informed_that_it_listens() -> None:
    def broken() -> None:
        raise BrokenPipeError

    listening = socket.create_server(("127.0.0.1", 0))
    server = RelayServer(listening, Admission(anybody=True))
    with pytest.raises(BrokenPipeError):
        asyncio.run(server.run(asyncio.Event(), broken))
    assert listening.fileno() == -1
