"""The server name in the first words of TLS (RFC 8446, sections 4.1.2 and 5.1; RFC 6066, section 3)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

# Bytes of a connection that are looked at.
MOST: Final = 16 * 1024

_HANDSHAKE, _MAJOR_VERSION, _CLIENT_HELLO = 22, 3, 1
_RECORD_HEAD, _MESSAGE_HEAD = 5, 4
_SERVER_NAME, _HOST_NAME = 0, 0
_RANDOM: Final = 32


class Undecided(Enum):
    """``MORE``: it may be a ClientHello whose rest has not come. ``NONE``: it is none, or one without a server name."""

    MORE = auto()
    NONE = auto()


class _ShortError(Exception):
    """A part says that it is longer than what it is in."""


class _Fields:
    """Reads one field after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def __bool__(self) -> bool:
        return self._place < len(self._content)

    def take(self, size: int) -> bytes:
        end = self._place + size
        if end > len(self._content):
            raise _ShortError
        taken = self._content[self._place : end]
        self._place = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """What follows its own length, which has ``size`` bytes."""
        return self.take(self.number(size))


def server_name(seen: bytes | memoryview) -> str | Undecided:
    """The server name in the ClientHello with which these bytes begin. Any bytes are answered, and nothing is kept."""
    message, start = bytearray(), 0
    while True:
        head = bytes(seen[start : start + _RECORD_HEAD])
        # A stranger is known by its first bytes.
        if head[:1] not in (b"", bytes([_HANDSHAKE])) or head[1:2] not in (b"", bytes([_MAJOR_VERSION])):
            return Undecided.NONE
        if len(head) < _RECORD_HEAD:
            return Undecided.MORE
        length, start = int.from_bytes(head[3:], "big"), start + _RECORD_HEAD
        if not 0 < length <= MOST:
            return Undecided.NONE
        # A long one may come in several records.
        message += seen[start : start + length]
        if message and message[0] != _CLIENT_HELLO:
            return Undecided.NONE
        if len(message) >= _MESSAGE_HEAD:
            end = _MESSAGE_HEAD + int.from_bytes(message[1:_MESSAGE_HEAD], "big")
            if end > MOST:
                return Undecided.NONE
            if len(message) >= end:
                return _name_in(bytes(message[_MESSAGE_HEAD:end]))
        start += length
        if start > len(seen):
            return Undecided.MORE


def _name_in(hello: bytes) -> str | Undecided:
    try:
        fields = _Fields(hello)
        fields.take(2 + _RANDOM)
        for size in (1, 2, 1):
            # An old session, ciphers, compression.
            fields.vector(size)
        extensions = _Fields(fields.vector(2))
        while extensions:
            kind, content = extensions.number(2), extensions.vector(2)
            if kind == _SERVER_NAME:
                names = _Fields(_Fields(content).vector(2))
                if names.number(1) == _HOST_NAME:
                    return names.vector(2).decode("ascii")
                return Undecided.NONE
    except (_ShortError, UnicodeDecodeError):
        pass
    return Undecided.NONE
