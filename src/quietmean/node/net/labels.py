"""What a party is called where strangers may read it: by a number that says nothing to who does not know the session."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

# Of a label, in a server name: enough for no two to be the same.
_DIGITS: Final = 32
# Never a host of anybody (RFC 2606).
_ENDING: Final = ".invalid"


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

    def server_name(self, key: bytes) -> str:
        """The name in clear that TLS asks the party for, by which a proxy may tell the studies behind one port apart."""
        return self.label(key).hex()[:_DIGITS] + _ENDING
