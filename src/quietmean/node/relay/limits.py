"""The bounds of a relay: how many, how fast, how long."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from quietmean.node.net import Group

# At most this much of what one connection has sent waits in memory to be sent on, besides one piece that is being read.
WRITE_BUFFER = 32 * 1024


@dataclass
class Counts:
    """Since the start; nothing about anybody."""

    accepted: int = 0
    refused: int = 0
    evicted: int = 0
    attended: int = 0
    called: int = 0
    joined: int = 0
    absent: int = 0
    cut: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class RelayLimits:
    """Numbers are those of one relay process, times in seconds.

    ``connections``: of all kinds; ``unproven``: of those, who has not proved an identity, and for at most ``unproven_seconds``.
    ``pairs``: joined pairs of parties at a time; a pair holds at most 2 * (32 + 64) KiB of their bytes. ``pairs_of_two``: at a
    time, dialled by one of two parties to the other. ``parties_of_session``, ``sessions_of_identity``: who can be called.
    ``calls``: waiting for their receivers, and ``calls_of_identity`` by one caller.
    ``burst`` and ``rate``: connections that an identity may begin at once, and a second; ``burst_of_network`` and
    ``rate_of_network``: those of one network address before any proof.
    ``first_bytes``, ``first_seconds``: each of a pair must have sent so much in that time, else their handshake cannot be
    complete and the pair is cut; after ``failures`` such pairs a caller may call the same party ``failure_rate`` times a second.
    ``stalled_seconds``: a receiver that takes nothing
    for so long is cut off.
    """

    connections: int = 10_400
    unproven: int = 256
    unproven_seconds: float = 10.0
    pairs: int = 5000
    pairs_of_two: int = 2
    parties_of_session: int = 1024
    sessions_of_identity: int = 16
    calls: int = 5000
    calls_of_identity: int = 256
    burst: float = 1024.0
    rate: float = 64.0
    burst_of_network: float = 4096.0
    rate_of_network: float = 256.0
    first_bytes: int = 512
    first_seconds: float = 15.0
    failures: float = 8.0
    failure_rate: float = 0.5
    stalled_seconds: float = 120.0


class Buckets:
    """Token buckets by key. A full bucket is not kept, so memory is that of those who have come lately, and bounded besides."""

    def __init__(self, burst: float, rate: float, most: int = 65_536) -> None:
        self._burst, self._rate, self._most = burst, rate, most
        # Tokens, and when they were so many.
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def has(self, key: Hashable, now: float) -> bool:
        """Whether there is a token."""
        return self._level(key, now) >= 1.0

    def take(self, key: Hashable, now: float) -> bool:
        """Take a token, if there is one; whether there was."""
        if not self.has(key, now) or (key not in self._levels and len(self._levels) >= self._most):
            return False
        self._levels[key] = self._level(key, now) - 1.0, now
        return True

    def fine(self, key: Hashable, now: float, price: float) -> None:
        """Take so many, whether or not they are there, but never below none."""
        if key in self._levels or len(self._levels) < self._most:
            self._levels[key] = max(self._level(key, now) - price, 0.0), now

    def forget_full(self, now: float) -> None:
        self._levels = {key: (level, then) for key, (level, then) in self._levels.items() if self._level(key, now) < self._burst}

    def _level(self, key: Hashable, now: float) -> float:
        level, then = self._levels.get(key, (self._burst, now))
        return min(self._burst, level + (now - then) * self._rate)


@dataclass(frozen=True)
class Admission:
    """Who may use a relay.

    ``sessions``: by the tag of a sealed study's group, the keys (32 bytes) of its members; ``keys``: identities that may meet
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
