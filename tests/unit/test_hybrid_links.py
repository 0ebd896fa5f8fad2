"""Links with ML-KEM inside TLS: who recorded them and later breaks TLS reads nothing, and who sits in between then is found."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quietmean.core.domain import Links
from quietmean.core.errors import PeerError
from quietmean.node import Identity
from quietmean.node.net import ACCEPTED, VERSION, Connection, Credentials, Limits, Purpose, key_exchange, open_socket, stream
from quietmean.node.net.key_exchange import NO_KEYS, NOT_SIGNED
from quietmean.node.net.stream import FrameCipher, FrameReader, read_frame
from quietmean.node.net.wire import (
    PART,
    TAG,
    AnyFrame,
    Begin,
    Hello,
    KeyAnswer,
    KeyOffer,
    Refused,
    Welcome,
    decode_header,
    encode_frame,
    encode_part,
)
from support.recorded_links import frames_of, opened, recorded
from support.refusals import raised
from support.two_parties import DIMENSION, IDENTITIES, LIMITS, STUDY, Party, Relayed, beat, share, two, unused

MARK = b"something that must not be read"


async def talk(parties: list[Party]) -> None:
    """Requests in both directions, a long one with a mark among them."""
    payload = MARK + bytes(8 * DIMENSION - len(MARK))
    answers = await asyncio.gather(
        *(party.link.ask(beat(k)) for party in parties for k in range(3)), parties[0].link.ask(share(), payload)
    )
    assert [answer.status for answer in answers] == [ACCEPTED] * 7


async def close(*parties: Party) -> None:
    await asyncio.gather(*(party.close() for party in parties))


async def both(links: Links, work: Callable[[list[Party]], Coroutine[Any, Any, None]]) -> None:
    parties = two(links=links)
    try:
        await work(parties)
    finally:
        await close(*parties)


@pytest.fixture
def salts(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The digests of all transcripts, which whoever records connections knows."""
    found: list[bytes] = []
    ciphers = key_exchange._Transcript.ciphers

    def noted(transcript: Any, secret: bytes) -> tuple[FrameCipher, FrameCipher]:
        found.append(transcript.digest)
        return ciphers(transcript, secret)

    monkeypatch.setattr(key_exchange._Transcript, "ciphers", noted)
    return found


def kinds(frames: Iterable[AnyFrame]) -> set[str]:
    return {type(frame).__name__ for frame in frames}


# --- recorded, and TLS broken later ------------------------------------------------------------------------------------


async def test_who_breaks_tls_later_reads_no_frame_and_nothing_of_a_payload(salts: list[bytes]) -> None:
    with recorded() as directions:
        await both(Links.HYBRID, talk)
    assert len(directions) >= 2
    assert salts
    assert opened(directions, salts) == []
    assert not any(MARK in each.raw for each in directions)
    # What is readable: hello and exchange, and nothing else.
    assert kinds(frame for each in directions for frame, _ in frames_of(each.raw)) == {"Hello", "KeyOffer", "KeyAnswer"}


async def test_that_reading_finds_what_is_not_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded() as directions:
        await both(Links.X25519, talk)
    assert kinds(opened(directions, [])) >= {"Welcome", "Begin", "Heartbeat", "Transfer", "AnswerFrame"}
    assert any(MARK in each.raw for each in directions)
    # Frames that are exchanged keys for, and left unsealed all the same.
    monkeypatch.setattr(Connection, "seal_sent", lambda self, cipher: None)
    monkeypatch.setattr(Connection, "open_received", lambda self, cipher: None)
    with recorded() as directions:
        await both(Links.HYBRID, talk)
    assert kinds(opened(directions, [])) >= {"KeyProof", "Welcome", "Begin", "Heartbeat", "Transfer"}


@pytest.mark.parametrize(
    "known", [lambda each: b"", lambda each: each.key, lambda each: each.ciphertext, lambda each: each.nonces[1]]
)
async def test_that_reading_finds_keys_that_do_not_rest_on_ml_kem(
    known: Callable[[Any], bytes], salts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    ciphers = key_exchange._Transcript.ciphers
    monkeypatch.setattr(key_exchange._Transcript, "ciphers", lambda each, secret: ciphers(each, known(each)))
    with recorded() as directions:
        await both(Links.HYBRID, talk)
    assert kinds(opened(directions, salts)) >= {"KeyProof", "Welcome", "Begin", "Heartbeat"}


async def test_no_number_comes_twice_under_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    used: Counter[tuple[bytes, bytes]] = Counter()

    class Counted:
        def __init__(self, key: bytes) -> None:
            self._key, self._cipher = key, AESGCM(key)

        def encrypt_into(self, nonce: bytes, *rest: Any) -> int:
            used[self._key, bytes(nonce)] += 1
            return self._cipher.encrypt_into(nonce, *rest)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cipher, name)

    monkeypatch.setattr(stream, "AESGCM", Counted)

    sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
    proxy = Relayed(sockets[1].getsockname()[:2])
    address = await proxy.start()
    parties = [Party(0, sockets[0], address, links=Links.HYBRID), Party(1, sockets[1], unused(), links=Links.HYBRID)]
    for _ in range(3):
        await talk(parties)
        # The same two processes, and keys of their own for the connection that follows.
        proxy.cut()
    await parties[0].link.ask(beat())
    await parties[1].close()
    # Another process of the same party.
    again = Party(1, open_socket(("127.0.0.1", 0)), unused(), links=Links.HYBRID)
    proxy.cut()
    proxy.retarget(vars(vars(again.listener)["_acceptor"])["_listening"].getsockname()[:2])
    await talk([parties[0], again])
    await close(parties[0], again)
    await proxy.stop()
    assert max(used.values()) == 1
    # Two directions of five connections at the least, which all begin at 0.
    assert len({key for key, _ in used}) >= 10
    assert len({key for key, nonce in used if nonce == bytes(12)}) == len({key for key, _ in used})


# --- in between, with the keys of both TLS ends --------------------------------------------------------------------------


class InBetween:
    """Puts an ML-KEM key of its own in place of the offered one, and encapsulates to that one what it opened."""

    def __init__(self) -> None:
        self.own = MLKEM768PrivateKey.generate()
        self.offered = b""
        self.with_listener = self.with_dialler = b""

    def change(self, data: bytes, before: bytes) -> bytes:
        frame = _frame(data)
        if isinstance(frame, KeyOffer):
            self.offered = frame.key
            return encode_frame(msgspec.structs.replace(frame, key=self.own.public_key().public_bytes_raw()))
        if isinstance(frame, KeyAnswer):
            self.with_listener = self.own.decapsulate(frame.ciphertext)
            self.with_dialler, ciphertext = MLKEM768PublicKey.from_public_bytes(self.offered).encapsulate()
            return encode_frame(msgspec.structs.replace(frame, ciphertext=ciphertext))
        return data


def _frame(data: bytes) -> AnyFrame | None:
    with contextlib.suppress(PeerError):
        return decode_header(data[8 : 8 + int.from_bytes(data[:4], "big")])
    return None


async def until_refused(parties: list[Party], reason: str) -> None:
    asking = asyncio.create_task(parties[0].link.ask(beat()))
    while not any(reason in said for party in parties for said in party.refusals):
        await asyncio.sleep(0.01)
    asking.cancel()


async def test_a_key_that_was_swapped_in_between_is_found(salts: list[bytes]) -> None:
    between = InBetween()

    async def work(parties: list[Party]) -> None:
        await until_refused(parties, NOT_SIGNED)
        assert not parties[1].handled

    with recorded(between.change) as directions:
        await both(Links.HYBRID, work)
    assert between.with_dialler
    # Nothing was sealed by keys that it has.
    assert opened(directions, salts, [between.with_dialler, between.with_listener]) == []


async def test_who_swaps_the_key_reads_where_nobody_looks_at_the_signature(
    salts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    between = InBetween()
    monkeypatch.setattr(key_exchange, "_require_signed", lambda *anything: None)

    async def work(parties: list[Party]) -> None:
        # The two ends do not understand each other, but whoever is in between understands both.
        await until_refused(parties, "did not seal")

    with recorded(between.change) as directions:
        await both(Links.HYBRID, work)
    assert kinds(opened(directions, salts, [between.with_dialler, between.with_listener])) == {"KeyProof"}


@pytest.mark.parametrize("liar", [0, 1])
async def test_each_side_looks_who_signed(liar: int) -> None:
    async def work(parties: list[Party]) -> None:
        parties[liar].credentials.identity = Identity.generate()
        await until_refused([parties[0], parties[1]], NOT_SIGNED)
        # It is the other one who says so first.
        assert NOT_SIGNED in parties[1 - liar].refusals
        assert not parties[1].handled

    await both(Links.HYBRID, work)


@pytest.mark.parametrize("liar", [0, 1])
async def test_the_signature_of_one_role_is_none_of_the_other(liar: int) -> None:
    other = {b"dials": b"listens", b"listens": b"dials"}

    class Reflecting(Identity):
        def sign(self, purpose: Purpose, content: bytes) -> bytes:
            role, _, rest = content.partition(b"\0")
            return super().sign(purpose, other[role] + b"\0" + rest)

    async def work(parties: list[Party]) -> None:
        parties[liar].credentials.identity = Reflecting(parties[liar].credentials.identity.private_key)
        await until_refused(parties, NOT_SIGNED)
        assert NOT_SIGNED in parties[1 - liar].refusals

    await both(Links.HYBRID, work)


def test_every_part_of_the_transcript_counts() -> None:
    transcript = key_exchange._Transcript("study", (b"i", b"j"), (b"c", b"d"), (b"n", b"m"), b"key", b"ciphertext")
    seen = {transcript.digest}
    for each in dataclasses.fields(transcript):
        value: Any = getattr(transcript, each.name)
        others: list[Any] = [value[::-1], (b"x", value[1]), (value[0], b"x")] if isinstance(value, tuple) else [value + value[:1]]
        for other in others:
            seen.add(dataclasses.replace(transcript, **{each.name: other}).digest)
    assert len(seen) == 1 + 3 * 3 + 3


def test_the_keys_of_a_known_transcript() -> None:
    """A vector for other implementations; it changes only with the version of the wire."""
    transcript = key_exchange._Transcript(
        "ab" * 32, (bytes(32), b"\1" * 32), (b"leaf of 0", b"leaf of 1"), (b"\2" * 32, b"\3" * 32), b"\4" * 1184, b"\5" * 1088
    )
    dials, listens = (bytes(cipher.seal(encode_frame(Begin(1, 3)), b"")) for cipher in transcript.ciphers(b"\6" * 32))
    assert transcript.digest.hex() == "a008066cfc817a4a88515031cde80c498d8a04621658d49e80b2011528ceca11"
    assert dials.hex() == "0000000500000000a338b8c0f8d26a2c3a989d064c2d92eca52503e9eb"
    assert listens.hex() == "0000000500000000d67fe8d2bf99268e607ae1151b0f36367242759c88"


def _flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: _flip(data, len(data) - 1),
        lambda data: _flip(data, 9),
        lambda data: _flip(data, 7),
        lambda data: data + data,
        lambda data: encode_frame(beat()),
    ],
    ids=["tag", "content", "length", "twice", "in clear"],
)
@pytest.mark.parametrize("frames", [1, 3])
async def test_a_sealed_frame_that_was_changed_ends_the_connection(change: Callable[[bytes], bytes], frames: int) -> None:
    sealed: list[bytes] = []

    def once(data: bytes, before: bytes) -> bytes:
        if _frame(data) is None:
            sealed.append(data)
            if len(sealed) == frames:
                return change(data)
        return data

    with recorded(once):
        # Whatever was asked comes again on another connection, and is answered there.
        await both(Links.HYBRID, talk)
    assert len(sealed) > frames


def test_frames_out_of_order_and_of_the_other_direction_do_not_open() -> None:
    one, other = FrameCipher(b"1" * 32), FrameCipher(b"2" * 32)
    first, second = (one.seal(encode_frame(beat(k)), b"") for k in range(2))
    reader = FrameCipher(b"1" * 32)
    raised(PeerError, "did not seal", reader.open, first[:8], other.seal(encode_frame(beat(0)), b"")[8:])
    raised(PeerError, "did not seal", FrameCipher(b"1" * 32).open, second[:8], second[8:])
    reader = FrameCipher(b"1" * 32)
    assert decode_header(reader.open(first[:8], first[8:])) == beat(0)
    raised(PeerError, "did not seal", reader.open, first[:8], first[8:])


def test_a_part_that_was_changed_and_a_message_taken_back_by_a_stranger() -> None:
    def raw(change: Callable[[bytes], bytes]) -> bytes:
        sealing_, payload = FrameCipher(b"k" * 32), bytes(8 * DIMENSION)
        parts = [bytes(sealing_.seal(encode_frame(share(), len(payload)), b""))]
        for begin in range(0, len(payload), PART):
            part = payload[begin : begin + PART]
            parts.append(bytes(sealing_.seal(encode_part(len(part)), part)))
        return parts[0] + change(parts[1]) + b"".join(parts[2:])

    async def read(raw: bytes) -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(raw)
        reader.feed_eof()
        frames = FrameReader(reader)
        frames.cipher = FrameCipher(b"k" * 32)
        return await frames.next(LIMITS)

    frame, payload = asyncio.run(read(raw(lambda part: part)))
    assert (frame, bytes(payload)) == (share(), bytes(8 * DIMENSION))
    taken_back = encode_part(0) + bytes(TAG)
    for change in (lambda part: _flip(part, 100), lambda part: taken_back, lambda part: taken_back + part):
        raised(PeerError, "did not seal", asyncio.run, read(raw(change)))


# --- peers that do not ---------------------------------------------------------------------------------------------------


async def test_a_peer_of_the_same_study_that_offers_no_key_is_refused() -> None:
    async def work(parties: list[Party]) -> None:
        context = Credentials(IDENTITIES[0], parties[0].roster, STUDY).client(1)
        host, port = vars(vars(parties[1].listener)["_acceptor"])["_listening"].getsockname()[:2]
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="")
        writer.write(encode_frame(Hello(VERSION, 0, STUDY)) + encode_frame(Begin(0, 0)))
        frame, _, _ = await read_frame(reader, Limits.before_reply())
        assert frame == Refused(NO_KEYS)
        assert await reader.read() == b""
        assert parties[1].refusals == [NO_KEYS]
        writer.close()

    await both(Links.HYBRID, work)


@pytest.mark.parametrize("key", [b"\xff" * 1184, bytes(1183), bytes(1185)])
async def test_an_offer_that_is_no_key_is_refused(key: bytes) -> None:
    async def work(parties: list[Party]) -> None:
        context = Credentials(IDENTITIES[0], parties[0].roster, STUDY).client(1)
        host, port = vars(vars(parties[1].listener)["_acceptor"])["_listening"].getsockname()[:2]
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="")
        writer.write(encode_frame(Hello(VERSION, 0, STUDY)) + encode_frame(KeyOffer(bytes(32), key)))
        assert await reader.read() == b""
        assert len(parties[1].refusals) == 1
        writer.close()

    await both(Links.HYBRID, work)


async def test_an_older_version_on_either_side_is_named() -> None:
    sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
    party = Party(0, sockets[0], sockets[1].getsockname()[:2], links=Links.HYBRID)
    older = Credentials(IDENTITIES[1], party.roster, STUDY)
    seen: list[AnyFrame] = []

    async def as_before(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame, _, _ = await read_frame(reader, Limits.before_welcome())
        seen.append(frame)
        writer.write(encode_frame(Refused("its version differs, 11 there and 10 here. Install the same version of quietmean")))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(as_before, sock=sockets[1], ssl=older.server)
    await until_refused([party], "version differs")
    # The first frame is as ever.
    assert isinstance(seen[0], Hello)
    server.close()
    # And the other way round.
    host, port = sockets[0].getsockname()[:2]
    reader, writer = await asyncio.open_connection(host, port, ssl=older.client(0), server_hostname="")
    writer.write(encode_frame(Hello(VERSION - 1, 1, STUDY)))
    frame, _, _ = await read_frame(reader, Limits.before_reply())
    assert isinstance(frame, Refused)
    assert "version differs" in frame.reason
    writer.close()
    await party.close()


async def test_a_listener_that_agrees_without_keys_is_refused() -> None:
    sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
    party = Party(0, sockets[0], sockets[1].getsockname()[:2], links=Links.HYBRID)
    without = Credentials(IDENTITIES[1], party.roster, STUDY)

    async def welcoming(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_frame(Welcome(1, 0)))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(welcoming, sock=sockets[1], ssl=without.server)
    await until_refused([party], NO_KEYS)
    server.close()
    await party.close()


async def test_nothing_secret_is_shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    secrets: list[bytes] = []
    ciphers = key_exchange._Transcript.ciphers

    def noted(transcript: Any, secret: bytes) -> tuple[FrameCipher, FrameCipher]:
        secrets.append(secret)
        return ciphers(transcript, secret)

    monkeypatch.setattr(key_exchange._Transcript, "ciphers", noted)
    shown: list[str] = []

    async def work(parties: list[Party]) -> None:
        await talk(parties)
        shown.extend(repr(vars(party)) + repr(vars(party.link)) + repr(party.refusals) for party in parties)
        connection = vars(vars(parties[0].link)["_current"])["_connection"]
        shown.append(repr(vars(connection)) + repr(vars(vars(connection)["_cipher"])))

    await both(Links.HYBRID, work)
    assert secrets
    assert not any(form in text for secret in secrets for form in (repr(secret), secret.hex()) for text in (*shown, caplog.text))
