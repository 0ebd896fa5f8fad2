"""Frames sealed once more inside TLS, by keys that do not rest on X25519.

``4 bytes header length | 4 bytes payload length | AES-256-GCM of header and payload, 16 bytes longer``. The lengths are those of
what is sealed, and are authenticated with it. The nonce is the number of the frame in its direction of this connection, which
nobody sends: a frame that is repeated, left out, or moved does not open. Each direction of each connection has a key of
its own, so no number comes twice under one key.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quietmean.core.errors import PeerError
from quietmean.node.net.wire import PREFIX, TAG, Payload

_NONCE: Final = 12


class FrameCipher:
    """One direction of one connection. ``key``: 32 bytes. Frames are sealed or opened in the order in which they are sent."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._number = 0

    def seal(self, head: bytes, payload: Payload) -> memoryview:
        """The bytes of a frame or part: ``head`` begins with its lengths."""
        lengths = head[: PREFIX.size]
        content = b"".join((head[PREFIX.size :], payload)) if len(head) > PREFIX.size else payload
        # Nothing is written to it twice.
        sealed = np.empty(PREFIX.size + len(content) + TAG, dtype=np.uint8).data
        sealed[: PREFIX.size] = lengths
        self._cipher.encrypt_into(self._next(), content, lengths, sealed[PREFIX.size :])
        return sealed

    def open(self, lengths: Payload, sealed: Payload) -> bytes:
        """What follows these lengths. Raises :class:`PeerError` for what was not sealed as the next frame of this direction."""
        try:
            return self._cipher.decrypt(self._next(), sealed, lengths)
        except InvalidTag:
            raise _forged() from None

    def open_into(self, lengths: Payload, sealed: Payload, buffer: memoryview) -> None:
        """Open a frame into ``buffer``, which is as long as the content."""
        try:
            self._cipher.decrypt_into(self._next(), sealed, lengths, buffer)
        except InvalidTag:
            raise _forged() from None

    def _next(self) -> bytes:
        number = self._number
        self._number += 1
        return number.to_bytes(_NONCE, "big")


def _forged() -> PeerError:
    return PeerError("a frame that the other end of this connection did not seal: somebody in between changed it")
