"""What a relay and its parties are made of: frames of WebSocket, proofs of who somebody is, proxies, bounds."""

from __future__ import annotations

import contextlib
import hashlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.cli.servers import _admission
from quietmean.core.errors import PeerError
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import Group, Purpose, RelayAddress, format_address, parse_place, public_key_bytes
from quietmean.node.relay import Admission, connections_possible, parse_entrance
from quietmean.node.relay.connection import Buckets
from quietmean.node.tunnel import (
    BINARY,
    CLOSE,
    NONCE_BYTES,
    PING,
    FrameHead,
    FrameParser,
    Proof,
    decode_proof,
    encode_message,
    frame,
    is_proved,
)
from quietmean.node.tunnel.stream import decode_message, prove
from quietmean.node.tunnel.websocket import LONGEST_FRAME, WebProxy, accept_of, proxy_for, xored
from support.command_lines import fails
from support.refusals import raised, refused, refused_rows

IDENTITY, OTHER = Identity.generate(), Identity.generate()
SESSION = "ab" * 32
NONCE = bytes(range(NONCE_BYTES))


# --- frames ----------------------------------------------------------------------------------------------------------


def read(data: bytes, cuts: list[int], *, masked: bool) -> list[tuple[int, bytes]]:
    """Whole frames, however the bytes come."""
    parser, found = FrameParser(masked=masked), list[tuple[int, bytes]]()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for begin, end in pairwise(places):
        for piece in parser.feed(memoryview(data)[begin:end]):
            if piece.begins:
                found.append((piece.opcode, b""))
            found[-1] = piece.opcode, found[-1][1] + piece.content
    return found


@given(
    st.lists(st.tuples(st.sampled_from([BINARY, PING]), st.binary(max_size=125)), max_size=6),
    st.sampled_from([0, 125, 126, 127, 65_535, 65_536, 70_001]),
    st.lists(st.integers(0, 100_000), max_size=8),
    st.booleans(),
)
def test_frames_come_out_as_they_went_in(short: list[tuple[int, bytes]], size: int, cuts: list[int], masked: bool) -> None:
    sent = [*short, (BINARY, hashlib.shake_128(b"long").digest(size))]
    assert read(b"".join(frame(opcode, content, masked=masked) for opcode, content in sent), cuts, masked=masked) == sent


def test_as_the_standard_has_it() -> None:
    # RFC 6455, 1.3 and 5.7.
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert frame(PING, b"Hello", masked=False) == bytes.fromhex("890548656c6c6f")
    assert frame(BINARY, bytes(256), masked=False)[:4] == bytes.fromhex("827e0100")
    assert frame(BINARY, bytes(65_536), masked=False)[:10] == bytes.fromhex("827f0000000000010000")
    assert read(bytes.fromhex("8a8537fa213d7f9f4d5158"), [], masked=True) == [(0xA, b"Hello")]


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4), st.integers(0, 7))
def test_masks_are_those_of_the_standard(content: bytes, key: bytes, offset: int) -> None:
    assert xored(content, key, offset) == bytes(byte ^ key[(offset + place) % 4] for place, byte in enumerate(content))


@pytest.mark.parametrize(
    ("data", "masked"),
    [
        # As the server sends it, and as a client does, under a mask.
        (bytes.fromhex("820178"), True),
        (bytes.fromhex("82810102030479"), False),
        # Text, reserved bits, a kind that does not exist.
        (bytes.fromhex("810548656c6c6f"), False),
        (bytes.fromhex("c20178"), False),
        (bytes.fromhex("830178"), False),
        # Ping in parts, and one that is too long; what goes on without a beginning, and begins without an end.
        (bytes.fromhex("090178"), False),
        (bytes.fromhex("897e0080"), False),
        (bytes.fromhex("800178"), False),
        (bytes.fromhex("020178") + bytes.fromhex("820178"), False),
        (bytes.fromhex("827f") + (LONGEST_FRAME + 1).to_bytes(8, "big"), False),
        (bytes.fromhex("827fffffffffffffffff"), False),
    ],
)
def test_what_is_not_allowed_is_refused(data: bytes, masked: bool) -> None:
    raised(PeerError, "", read, data, [], masked=masked)


@given(st.binary(max_size=400), st.booleans())
def test_garbage_is_refused_or_read_and_nothing_else(data: bytes, masked: bool) -> None:
    with contextlib.suppress(PeerError):
        read(data, [7, 60], masked=masked)


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\r\nno colon", b"GET / HTTP/1.1\r\na: 1\r\nA: 2", b"GET / HTTP/1.1\r\n: 1"])
def test_heads_that_are_no_http(raw: bytes) -> None:
    raised(PeerError, "", FrameHead.parse, raw)


# --- proofs ----------------------------------------------------------------------------------------------------------


def proof(identity: Identity = IDENTITY, relay: str = "relay.example:443") -> Proof:
    return prove(identity, "attend", Group.of_session(SESSION), relay, NONCE)


def test_a_proof_holds_for_what_it_says_and_for_nothing_else() -> None:
    good = decode_proof(encode_message(proof()))
    assert is_proved(good, NONCE)
    assert not is_proved(good, bytes(NONCE_BYTES))
    other = Group.of_session("cd" * 32)
    changes: list[dict[str, object]] = [
        {"role": "visit"},
        {"role": "answer", "ticket": bytes(16)},
        {"relay": "other.example:443"},
        {"group": other.tag},
        {"label": other.label(public_key_bytes(IDENTITY.public_key))},
        {"key": public_key_bytes(OTHER.public_key)},
        {"signature": bytes(64)},
    ]
    for change in changes:
        assert not is_proved(replaced(good, **change), NONCE), change


def replaced(good: Proof, **change: object) -> Proof:
    fields = {name: getattr(good, name) for name in good.__struct_fields__}
    return Proof(**{**fields, **change})


def test_what_was_signed_for_another_purpose_is_no_proof() -> None:
    good = proof()
    # The same words under another label: the relay cannot make anybody sign a certificate, or use an entry as a proof.
    from quietmean.node.tunnel.stream import _signed

    content = _signed(good.role, good.group, good.label, good.relay, good.ticket, NONCE)
    assert good.signature == IDENTITY.sign(Purpose.RELAY, content)
    assert Purpose.RELAY.label == b"quietmean relay 1\0"
    for purpose in Purpose:
        assert is_proved(replaced(good, signature=IDENTITY.sign(purpose, content)), NONCE) == (purpose is Purpose.RELAY)


def test_a_nonce_of_another_length_is_not_signed() -> None:
    # It would be the relay's choice how much of it: a certificate, for example.
    raised(PeerError, "", prove, IDENTITY, "attend", Group.of_session(SESSION), "relay.example:443", b"x" * 900)


@given(st.binary(max_size=200))
def test_garbage_is_no_message(raw: bytes) -> None:
    for decode in (decode_proof, decode_message):
        with contextlib.suppress(PeerError):
            decode(raw)


def test_a_label_says_nothing_of_the_session_or_the_key() -> None:
    key = public_key_bytes(IDENTITY.public_key)
    labels = {Group.of_session(digest).label(key) for digest in ("00" * 32, "11" * 32)}
    assert len(labels) == 2
    assert not any(key[:8] in label for label in labels)


def test_who_is_admitted() -> None:
    member, friend, stranger = (public_key_bytes(Identity.generate().public_key) for _ in range(3))
    admission = Admission.of({SESSION: frozenset({member})}, frozenset({friend}))
    here, elsewhere = Group.of_session(SESSION).tag, Group.of_session("cd" * 32).tag
    assert [admission.admits(here, key) for key in (member, friend, stranger)] == [True, True, False]
    assert [admission.admits(elsewhere, key) for key in (member, friend, stranger)] == [False, True, False]
    assert Admission(anybody=True).admits(elsewhere, stranger)
    assert not Admission().admits(here, member)


# --- addresses and proxies -------------------------------------------------------------------------------------------


def test_addresses_at_relays() -> None:
    for text in ("relay:relay.example:443", "relay:[2001:db8::1]:443"):
        place = parse_place(text)
        assert isinstance(place, RelayAddress)
        assert format_address(place) == text
    # Ordinary ones stay what they are, also that of a host with this name.
    for text in ("relay:443", "north.example:7001"):
        assert not isinstance(parse_place(text), RelayAddress)
    refused("", parse_place, "relay:north.example:port")


def test_parties_share_a_relay_and_no_address_of_their_own() -> None:
    keys = [Identity.generate().public_key for _ in range(2)]
    roster = Roster(tuple(RosterEntry(f"p{k}", RelayAddress("relay.example", 443), key) for k, key in enumerate(keys)))
    assert 'address = "relay:relay.example:443"' in roster.to_toml()
    refused("twice", Roster, tuple(RosterEntry(f"p{k}", ("north.example", 443), key) for k, key in enumerate(keys)))


def test_where_to_listen() -> None:
    assert parse_entrance(":443") == ("", 443)
    assert parse_entrance("127.0.0.1:8443") == ("127.0.0.1", 8443)
    for wrong in ("443", ":0", ":x", ""):
        refused("", parse_entrance, wrong)
    assert 0 < connections_possible(100) <= 100


@pytest.mark.parametrize(
    ("environment", "host", "proxy"),
    [
        ({}, "relay.example", None),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, "relay.example", WebProxy("proxy.example", 3128)),
        ({"https_proxy": "proxy.example:3128"}, "relay.example", WebProxy("proxy.example", 3128)),
        ({"HTTPS_PROXY": "http://u:p%40s@proxy.example:8080"}, "relay.example", WebProxy("proxy.example", 8080, "u:p@s")),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, "127.0.0.1", None),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, "localhost", None),
        ({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "other.example,.example"}, "relay.example", None),
        ({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "*"}, "relay.example", None),
        ({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "10.0.0.0/8"}, "10.1.2.3", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "lay.example"}, "relay.example", WebProxy("p", 1)),
    ],
)
def test_which_proxy(environment: dict[str, str], host: str, proxy: WebProxy | None) -> None:
    assert proxy_for((host, 443), environment) == proxy


@pytest.mark.parametrize("text", ["socks5://proxy.example:1080", "http://user:secret@:3128", "http://proxy.example:seven"])
def test_a_proxy_in_another_form_is_named_without_its_password(text: str) -> None:
    assert "secret" not in refused("HTTPS_PROXY", proxy_for, ("relay.example", 443), {"HTTPS_PROXY": text})
    assert "secret" not in repr(WebProxy("p", 1, "user:secret"))


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_buckets_give_a_burst_and_then_a_rate() -> None:
    buckets = Buckets(burst=3.0, rate=0.5)
    assert [buckets.take("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert buckets.take("b", 0.0)
    assert [buckets.take("a", 2.0) for _ in range(2)] == [True, False]
    buckets.fine("a", 2.0, 5.0)
    assert not buckets.has("a", 3.9)
    assert buckets.has("a", 4.0)
    buckets.forget_full(100.0)
    assert len(buckets) == 0


def test_buckets_of_many_are_bounded() -> None:
    buckets = Buckets(burst=1.0, rate=1.0, most=10)
    for key in range(1000):
        buckets.take(key, 0.0)
        buckets.fine(key, 0.0, 1.0)
    assert len(buckets) == 10


def test_a_close_frame_is_read_whole() -> None:
    assert read(frame(CLOSE, b"\x03\xe8", masked=True), [1, 3, 5], masked=True) == [(CLOSE, b"\x03\xe8")]


# --- the command -----------------------------------------------------------------------------------------------------


@refused_rows("mistakes_are_named")
def test_mistakes_are_named(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.keys").write_text(f"# of north\n{IDENTITY.public_key}\n")
    Path("wrong.keys").write_text("ed25519:north\n")
    fails(["serve", "relay", *options], capsys, said)


def test_whom_files_admit(tmp_path: Path) -> None:
    keys, roster = tmp_path / "friends.keys", tmp_path / "roster.toml"
    keys.write_text(f"# of north\n\n{IDENTITY.public_key}\n")
    members = Roster(
        (RosterEntry("a", ("a.example", 1), IDENTITY.public_key), RosterEntry("b", ("b.example", 1), OTHER.public_key))
    )
    roster.write_text(members.to_toml())
    admission = _admission([keys, roster], "")
    here, elsewhere = Group.of_session(members.digest).tag, Group.of_session(SESSION).tag
    own, other = public_key_bytes(IDENTITY.public_key), public_key_bytes(OTHER.public_key)
    assert [admission.admits(group, key) for group in (here, elsewhere) for key in (own, other)] == [True, True, True, False]
    assert not admission.anybody
    assert _admission([], "127.0.0.1").anybody
