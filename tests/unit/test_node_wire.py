"""Frames: what is sent comes out again; anything else is a PeerError, and costs no memory."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.core.errors import PeerError
from quietmean.node.net import stream, wire
from quietmean.node.net.stream import read_frame
from quietmean.node.session import logs
from support.effort import examples
from support.refusals import raised

LIMITS = wire.Limits.of_study(parties=5, rounds=4, dimension=3)
VECTOR = bytes(stream.encode_vector(np.array([1.0, -2.0, 1e-300])))
FRAMES: list[tuple[wire.AnyFrame, bytes]] = [
    (wire.Hello(1, 2, "ab" * 32), b""),
    (wire.Welcome(1, 3), b""),
    (wire.Refused("study differs"), b""),
    (wire.Start(7, 1, (), b"", b"c" * 32), b""),
    (wire.Start(8, 2, (0, 2), b"g" * 64, b"c" * 32, (wire.Revealed(2, b"n" * 32, 2.5, b"x" * 32),), True), b""),
    (wire.Transfer(9, 1, 2, 0.25, 8000, b"12345678", 3), VECTOR),
    (wire.Transfer(9, 1, 2, 0.25, 8000, b"12345678", 3, b"known", 8), VECTOR),
    (wire.CancelTransfer(10, 1, 2), b""),
    (wire.ConfirmTransfer(11, 1, 2), b""),
    (wire.ResendRequest(12, 2, 1), b""),
    (wire.Heartbeat(12, 1, 2), b""),
    (wire.Log(13), logs.encode_log(logs.PartyLog((1, 2), ((1, 0),), ((2, 4),), (0, 1)))),
    (wire.AnswerFrame(13, "no", 3, 0, "why"), b""),
]


def parse(raw: bytes, limits: wire.Limits = LIMITS) -> tuple[wire.AnyFrame, wire.Payload, int]:
    async def read() -> tuple[wire.AnyFrame, wire.Payload, int]:
        reader = asyncio.StreamReader()
        reader.feed_data(raw)
        reader.feed_eof()
        return await read_frame(reader, limits)

    return asyncio.run(read())


@pytest.mark.parametrize(("frame", "payload"), FRAMES, ids=lambda part: type(part).__name__)
def test_round_trip(frame: wire.AnyFrame, payload: bytes) -> None:
    raw = wire.encode_frame(frame, len(payload)) + payload
    assert parse(raw) == (frame, payload, len(raw))


def test_vector_and_log_round_trip() -> None:
    np.testing.assert_array_equal(stream.decode_vector(VECTOR), [1.0, -2.0, 1e-300])
    log = logs.PartyLog((1, 4), ((1, 2), (4, 0)), ((3, 3),), (0, 4), audit=b"a" * 40)
    assert logs.decode_log(logs.encode_log(log), parties=5, rounds=4) == log


@settings(deadline=None, max_examples=examples(300))
@given(st.binary(max_size=200))
def test_garbage_is_a_peer_error_or_an_early_end(raw: bytes) -> None:
    raised((PeerError, EOFError), "", parse, raw)


@settings(deadline=None, max_examples=examples(300))
@given(st.sampled_from(FRAMES), st.integers(0, 300), st.integers(0, 255))
def test_a_changed_byte_gives_a_frame_or_a_peer_error(part: tuple[wire.AnyFrame, bytes], place: int, value: int) -> None:
    frame, payload = part
    raw = bytearray(wire.encode_frame(frame, len(payload)) + payload)
    raw[place % len(raw)] = value
    try:
        _, read, _ = parse(bytes(raw))
        assert len(read) <= max(8 * LIMITS.dimension, LIMITS.log)
    except (PeerError, EOFError):
        pass


@settings(deadline=None, max_examples=examples(200))
@given(
    st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(), st.lists)
)
def test_foreign_messagepack_headers(header: object) -> None:
    raw = msgspec.msgpack.encode(header)
    raised(PeerError, "", parse, struct.pack(">II", len(raw), 0) + raw)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_garbage_logs(raw: bytes) -> None:
    raised(PeerError, "", logs.decode_log, raw, 5, 4)


@pytest.mark.parametrize(
    ("header", "payload", "message"),
    [(2**32 - 1, 0, "header of"), (wire.HEADER_LIMIT + 1, 0, "header of"), (10, 2**32 - 1, "payload of")],
)
def test_oversized_announcements_reserve_nothing(header: int, payload: int, message: str) -> None:
    tracemalloc.start()
    try:
        raised(PeerError, message, parse, struct.pack(">II", header, payload))
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_an_allowed_but_absent_payload_reserves_nothing() -> None:
    limits = wire.Limits.of_study(2, 1, 10_000_000)
    frame = wire.Transfer(0, 1, 1, 1.0, 1000, b"", 10_000_000)
    tracemalloc.start()
    try:
        raised(EOFError, "", parse, wire.encode_frame(frame, 80_000_000), limits)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_strangers_get_small_limits() -> None:
    raised(PeerError, "limit is 1024", parse, struct.pack(">II", 2000, 0), wire.Limits.before_welcome())
    raised(PeerError, "limit is 0", parse, wire.encode_frame(wire.Log(0), 8) + bytes(8), wire.Limits.before_welcome())


def test_payload_must_fit_its_frame() -> None:
    raised(PeerError, "this study's have 3", parse, wire.encode_frame(wire.Transfer(0, 1, 1, 1.0, 1000, b"", 2), 16) + bytes(16))
    raised(PeerError, "leaves 8 of content", parse, wire.encode_frame(wire.Transfer(0, 1, 1, 1.0, 1000, b"", 3), 32) + bytes(32))
    raised(PeerError, "leaves -8 of content", parse, wire.encode_frame(wire.Transfer(0, 1, 1, 1.0, 1000, b"", 3), 16) + bytes(16))
    raised(PeerError, "no payload", parse, wire.encode_frame(wire.Heartbeat(0, 1, 1), 8) + bytes(8))


def test_content_comes_with_a_vector_or_without() -> None:
    limits = wire.Limits.of_study(parties=5, rounds=4, dimension=3, content=10)
    for dimension, size in ((3, 24), (3, 34), (0, 0), (0, 10)):
        frame = wire.Transfer(0, 1, 1, 1.0, 1000, b"", dimension)
        assert parse(wire.encode_frame(frame, size) + bytes(size), limits)[1] == bytes(size)
    for dimension, size in ((3, 35), (0, 11), (2, 16), (3, 23)):
        frame = wire.Transfer(0, 1, 1, 1.0, 1000, b"", dimension)
        raised(PeerError, "", parse, wire.encode_frame(frame, size) + bytes(size), limits)


GRID = 2.0**-20
LARGEST = 2**31 - 1


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(st.integers(-(2**53) + 1, 2**53 - 1), max_size=5), st.integers(-900, 900))
def test_vectors_on_a_grid_round_trip(units: list[int], power: int) -> None:
    """4 bytes a number where all fit, else 8; never another number."""
    grid = 2.0**power
    vector = np.array(units, dtype=np.float64) * grid
    raw = stream.encode_vector(vector, grid)
    fits = all(abs(unit) <= LARGEST for unit in units)
    assert len(raw) == (4 if fits else 8) * len(units)
    np.testing.assert_array_equal(stream.decode_vector(raw, 4 if fits else 8, grid), vector)


def test_what_was_encoded_tells_its_width() -> None:
    short, long = np.array([GRID, 0.0, -GRID]), np.array([GRID, 2.0**20, 0.0])
    codec = stream.VectorCodec(3, GRID)
    assert [codec.width(codec.encode(vector)) for vector in (short, long, np.zeros(0))] == [4, 8, 8]
    for vector in (short, long, np.zeros(0)):
        np.testing.assert_array_equal(codec.decode(codec.encode(vector)), vector)
        np.testing.assert_array_equal(stream.VectorCodec(3).decode(stream.VectorCodec(3).encode(vector)), vector)
    assert stream.VectorCodec(3).width(stream.VectorCodec(3).encode(short)) == 8


def test_integers_are_little_endian() -> None:
    assert bytes(stream.encode_vector(np.array([1.0, -2.0]) * GRID, GRID)) == struct.pack("<ii", 1, -2)
    np.testing.assert_array_equal(
        stream.decode_vector(struct.pack("<ii", -(2**31), LARGEST), 4, GRID) / GRID, [-(2**31), LARGEST]
    )


@pytest.mark.parametrize("value", [GRID / 2, 1 / 3, 2.0**53 * GRID, 1e300, 5e-324])
def test_what_is_off_the_grid_is_sent_as_it_is_and_refused(value: float) -> None:
    raw = stream.encode_vector(np.array([0.0, value]), GRID)
    assert len(raw) == 16
    raised(PeerError, "off the study's grid", stream.decode_vector, raw, 8, GRID)
    np.testing.assert_array_equal(stream.decode_vector(raw), [0.0, value])


@pytest.mark.parametrize(("size", "width", "grid"), [(8, 4, 0.0), (6, 4, GRID), (12, 8, GRID), (12, 8, 0.0)])
def test_bytes_that_are_no_vector(size: int, width: int, grid: float) -> None:
    raised(PeerError, "not of this study", stream.decode_vector, bytes(size), width, grid)


def test_short_values_need_a_grid_and_their_own_length() -> None:
    study = wire.Limits.of_study(parties=5, rounds=4, dimension=3, content=4, grid=GRID)
    for width, size in ((4, 12), (4, 16), (8, 24), (8, 28)):
        frame = wire.Transfer(0, 1, 1, 1.0, 1000, b"", 3, width=width)
        assert parse(wire.encode_frame(frame, size) + bytes(size), study)[1] == bytes(size)
    for width, size in ((4, 11), (4, 17), (4, 24), (8, 12), (8, 29)):
        with pytest.raises(PeerError, match="of content"):
            parse(wire.encode_frame(wire.Transfer(0, 1, 1, 1.0, 1000, b"", 3, width=width), size) + bytes(size), study)
    with pytest.raises(PeerError, match="values of 4 bytes, this study's have 8"):
        parse(wire.encode_frame(wire.Transfer(0, 1, 1, 1.0, 1000, b"", 3, width=4), 12) + bytes(12))
    for width in (0, 1, 6, 12, -4):
        with pytest.raises(PeerError, match="cannot be read"):
            parse(wire.encode_frame(wire.Transfer(0, 1, 1, 1.0, 1000, b"", 3, width=width), 12) + bytes(12), study)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_must_be_finite(bad: float) -> None:
    raised(PeerError, "not finite", stream.decode_vector, stream.encode_vector(np.array([0.0, bad])))
    raised(PeerError, "not finite", stream.decode_vector, stream.encode_vector(np.array([0.0, bad]), GRID), 8, GRID)
    raised(PeerError, "a weight of", wire.check_finite, bad, "weight")


@pytest.mark.parametrize(
    "log",
    [
        logs.PartyLog((5,), (), (), ()),
        logs.PartyLog((0,), (), (), ()),
        logs.PartyLog((), ((1, 5),), (), ()),
        logs.PartyLog((), (), ((9, 0),), ()),
        logs.PartyLog((), (), (), (5,)),
    ],
)
def test_logs_outside_the_study(log: logs.PartyLog) -> None:
    raised(PeerError, "outside", logs.decode_log, logs.encode_log(log), parties=5, rounds=4)


def test_how_far_an_audit_log_came_is_short() -> None:
    with pytest.raises(PeerError, match="cannot be read"):
        logs.decode_log(logs.encode_log(logs.PartyLog((), (), (), (), audit=bytes(logs.AUDIT_LIMIT + 1))), parties=5, rounds=4)


def test_the_largest_honest_log_fits() -> None:
    parties, rounds = 300, 40
    everyone = tuple((round_, party) for round_ in range(1, rounds + 1) for party in range(parties))
    log = logs.PartyLog(tuple(range(1, rounds + 1)), everyone, everyone, tuple(range(parties)), audit=bytes(logs.AUDIT_LIMIT))
    assert len(logs.encode_log(log)) <= wire.Limits.of_study(parties, rounds, 1).log
