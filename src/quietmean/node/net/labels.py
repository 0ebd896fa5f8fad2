"""What a party is called where strangers may read it: by a number that says nothing to who does not know the session."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

# Of a label, in a server name: enough for no two to be the same, and short enough for the path of a socket.
DIGITS: Final = 32
# Never a host of anybody (RFC 2606).
_ENDING: Final = ".invalid"
_SERVER_NAME: Final = re.compile(rf"([0-9a-f]{{{DIGITS}}}){re.escape(_ENDING)}")


@dataclass(frozen=True)
class Group:
    """The members of one session, as a relay knows them: by a number that says nothing of the session to who does not know it."""

    tag: bytes

    @classmethod
    def of_session(cls, digest: str) -> Group:
        """``digest``: hexadecimal, of the sealed study or of the roster."""
        return cls(hmac.digest(bytes.fromhex(digest), b"quietmean relay group 1", hashlib.sha256))

    def label(self, key: bytes) -> bytes:
        """The name at the relay of the party with this key (32 bytes)."""
        return hmac.digest(self.tag, key, hashlib.sha256)

    def socket_name(self, key: bytes) -> str:
        """The beginning of the party's label (hexadecimal), after which its socket behind a shared port is named."""
        return self.label(key).hex()[:DIGITS]

    def server_name(self, key: bytes) -> str:
        """What the TLS of whoever dials the party asks for, in clear."""
        return self.socket_name(key) + _ENDING


def socket_name_in(server_name: str) -> str | None:
    """The socket of the party that a server name stands for; None for a name that no party dials."""
    match = _SERVER_NAME.fullmatch(server_name)
    return None if match is None else match[1]
