"""Frames by their tags and fields, as since version 5, whatever the classes behind them are called."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import msgspec
import numpy as np
import pytest

from golden.interfaces import reframed, vector_bytes

VECTOR = struct.pack("<3d", 1.0, -2.0, 1e-300)
STEPS = struct.pack("<3i", 2, -4, 2**31 - 1)
FRAMES: list[tuple[list[Any], bytes]] = [
    (["H", 5, 2, "ab" * 32], b""),
    (["K", b"n" * 32, b"k" * 1184], b""),
    (["E", b"n" * 32, b"c" * 1088, b"g" * 64], b""),
    (["S", b"g" * 64], b""),
    (["W", 1, 3], b""),
    (["b", 1, 3], b""),
    (["N", "study differs"], b""),
    (["t", 9, 1, 2, 0.25, 8000, b"12345678", 3, b"", 8], VECTOR),
    (["t", 9, 1, 2, 0.25, 8000, b"12345678", 3, b"known", 4], STEPS),
    (["t", 9, 0, 2, 0.0, 8000, b"12345678", 0, b"", 8], b"a content"),
    (["w", 10, 1, 2], b""),
    (["f", 11, 1, 2], b""),
    (["g", 12, 2, 1], b""),
    (["p", 12, 1, 2], b""),
    (["l", 13, b""], b"a log"),
    (["k", 14, 2], b"logs"),
    (["v", 15, b"d" * 32, True], b""),
    (["a", 13, "no", 3, 0, "why"], b""),
    (["s", 16, 2, (0, 2), b"g" * 64, b"h" * 32, ([0, b"n" * 32, 2.5, b"x" * 32],), True, b"e" * 1088], b""),
    (["i", 17, 3, msgspec.msgpack.encode(["p", 0, 1, 2])], b""),
    (["i", 18, 3, msgspec.msgpack.encode(["l", 0, b""])], b"a log"),
]


def as_sent(fields: list[Any], payload: bytes) -> bytes:
    header = msgspec.msgpack.encode(fields)
    return struct.pack(">II", len(header), len(payload)) + header + payload


@pytest.mark.parametrize(("fields", "payload"), FRAMES, ids=lambda part: part[0] if isinstance(part, list) else "")
def test_a_frame_is_read_and_sent_as_it_was(fields: list[Any], payload: bytes) -> None:
    raw = as_sent(fields, payload)
    assert reframed(raw) == (fields, payload, raw)


def test_the_bytes_of_all_frames() -> None:
    # Frame b is of version 9, and frames s and i were added to it; frames K, E and S are of version 11, of studies with hybrid
    # links. From version 11 on every study starts by frame s: there are no frames c and r. All others have their bytes of before.
    everything = b"".join(as_sent(*frame) for frame in FRAMES if frame[0][0] not in ("b", "s", "i", "K", "E", "S"))
    assert hashlib.sha256(everything).hexdigest() == "13fa388b240166d9819cc2a7570c89c4f0165c4d43f0825277a8d0ef8668085e"
    (begin,) = (as_sent(*frame) for frame in FRAMES if frame[0][0] == "b")
    assert begin.hex() == "000000050000000093a1620103"


def test_vectors() -> None:
    assert vector_bytes(np.array([1.0, -2.0, 1e-300]), 0.0) == VECTOR
    assert vector_bytes(np.array([1.0, -2.0, 0.5 * (2**31 - 1)]), 0.5) == STEPS
    # Too many steps for 32 bits: as they are.
    assert vector_bytes(np.array([2.0**31]), 0.5) == struct.pack("<d", 2.0**31)
    assert vector_bytes(np.zeros(0), 0.0) == b""
