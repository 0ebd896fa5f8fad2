"""The server name that a ClientHello asks for: from real ones in any number of pieces, and from anything else."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quietmean.node.net import socket_name_in
from quietmean.node.port import MOST, Undecided, server_name
from support.shared_port import client_hello

NAME = "00112233445566778899aabbccddeeff.invalid"
REAL = client_hello(NAME)
# Where a long message is cut into records again.
HEAD, LARGEST = 5, 16_384


def in_records(cuts: list[int]) -> bytes:
    """The same ClientHello in records that end at these places."""
    message, places = REAL[HEAD:], sorted({0, *cuts, len(REAL) - HEAD})
    pieces = [message[begin:end] for begin, end in pairwise(places)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def test_a_real_one() -> None:
    assert server_name(REAL) == NAME
    # What follows it is not its concern.
    assert server_name(REAL + b"more") == NAME
    assert server_name(client_hello("example.org")) == "example.org"
    assert server_name(client_hello(None)) is Undecided.NONE
    assert socket_name_in(NAME) == NAME.removesuffix(".invalid")


@given(st.integers(0, len(REAL) - 1))
def test_a_part_of_one_waits_for_more(size: int) -> None:
    assert server_name(REAL[:size]) is Undecided.MORE
    assert server_name(memoryview(bytearray(REAL))[:size]) is Undecided.MORE


@given(st.lists(st.integers(1, len(REAL) - HEAD - 1), max_size=20), st.data())
def test_several_records(cuts: list[int], data: st.DataObject) -> None:
    split = in_records(cuts)
    assert server_name(split) == NAME
    assert server_name(split[: data.draw(st.integers(0, len(split) - 1))]) is Undecided.MORE


@given(st.binary(max_size=300))
@example(b"\x16\x03")
@example(b"GET / HTTP/1.1\r\n\r\n")
def test_random_bytes_are_answered(seen: bytes) -> None:
    assert isinstance(server_name(seen), str | Undecided)
    if seen[:1] not in (b"", b"\x16"):
        assert server_name(seen) is Undecided.NONE


@given(st.binary(max_size=300), st.integers(0, 3))
def test_random_bytes_behind_a_true_beginning_are_answered(seen: bytes, kind: int) -> None:
    """Of a record; of a message; of all that is before the extensions; of the list of extensions, with its length."""
    before = REAL[HEAD + 4 : HEAD + 4 + 34] + b"\0" + b"\0\2\x13\1" + b"\1\0"
    hello = [seen, seen, before + seen, before + len(seen).to_bytes(2, "big") + seen][kind]
    message = seen if kind == 0 else b"\1" + len(hello).to_bytes(3, "big") + hello
    record = b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message
    assert isinstance(server_name(record), str | Undecided)


@given(st.data())
def test_one_with_changed_bytes_is_answered(data: st.DataObject) -> None:
    changed = bytearray(REAL)
    for place in data.draw(st.lists(st.integers(0, len(REAL) - 1), min_size=1, max_size=8)):
        changed[place] = data.draw(st.integers(0, 255))
    found = server_name(bytes(changed))
    assert isinstance(found, str | Undecided)
    # Whatever name it is: only a label leads to a file.
    assert not isinstance(found, str) or socket_name_in(found) is None or "/" not in found


def test_what_would_be_longer_than_what_is_looked_at() -> None:
    claimed = b"\1" + (MOST + 1).to_bytes(3, "big")
    assert server_name(b"\x16\x03\x01" + LARGEST.to_bytes(2, "big") + claimed) is Undecided.NONE
    assert server_name(b"\x16\x03\x01" + (LARGEST + 1).to_bytes(2, "big")) is Undecided.NONE
    assert server_name(b"\x16\x03\x01\0\0") is Undecided.NONE


@given(st.integers(1, 0xFF))
def test_a_length_that_is_not_there(more: int) -> None:
    place = REAL.index(NAME.encode()) - 2
    length = int.from_bytes(REAL[place : place + 2], "big") + more
    lie = REAL[:place] + length.to_bytes(2, "big") + REAL[place + 2 :]
    assert server_name(lie) is Undecided.NONE


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "0" * 31 + ".invalid", "0" * 33 + ".invalid", "A" * 32 + ".invalid", "0" * 32, NAME + "\n"]
)
def test_no_other_name_is_that_of_a_socket(name: str) -> None:
    assert socket_name_in(name) is None
