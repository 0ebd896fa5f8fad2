"""Whom a relay serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quietmean.node.net import Group


@dataclass(frozen=True)
class Admission:
    """``sessions``: by the tag of a sealed study's group, the keys (32 bytes) of its members; ``keys``: identities that may meet
    in any session; ``anybody``: anyone who proves any identity.
    """

    sessions: Mapping[bytes, frozenset[bytes]] = field(default_factory=dict)
    keys: frozenset[bytes] = frozenset()
    anybody: bool = False

    @classmethod
    def of(
        cls, sealed: Mapping[str, frozenset[bytes]], keys: frozenset[bytes] = frozenset(), *, anybody: bool = False
    ) -> Admission:
        """``sealed``: the members of sealed studies by their digests (hexadecimal)."""
        return cls({Group.of_session(digest).tag: members for digest, members in sealed.items()}, keys, anybody)

    def admits(self, group: bytes, key: bytes) -> bool:
        return self.anybody or key in self.keys or key in self.sessions.get(group, frozenset())
