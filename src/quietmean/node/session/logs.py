"""Logs of the mixing rounds: what a party sends of its own at the end, what is gossiped before, and what came of others.

Each message carries the logs that its sender has, its own up to the previous round: they are what the others know of a party that
never comes back.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Ints, Mask
from quietmean.core.codec import decode
from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.graphs import Schedule
from quietmean.node.net import Count, Limits, Payload

AUDIT_LIMIT = 64
Audit: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=AUDIT_LIMIT)]
ReleaseDigest: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class PartyLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """What a party says of its own rounds and messages.

    ``online``: rounds in which the party took part. ``sent``: (round, receiver) of its messages that arrived.

    ``received``: (round, sender) of messages that it accepted. ``heard``: parties whose release it has, or
    was handed and does not use. ``settled``: (round,
    receiver, later round) of cancelled shares that had been used, with the round at whose end they were taken out; 0 for never.
    ``seen``: (round, sender) of messages that were handed to it and that it does not use: refused, too late, or taken back.
    ``audit``: how far the audit log of its site had come, for the others to keep; opaque here, at most ``AUDIT_LIMIT`` bytes.
    ``releases``: (party, SHA-256) of each release that came to it, so that who sent others something else is found out.
    """

    online: tuple[Count, ...]
    sent: tuple[tuple[Count, Count], ...]
    received: tuple[tuple[Count, Count], ...]
    heard: tuple[Count, ...]
    settled: tuple[tuple[Count, Count, Count], ...] = ()
    seen: tuple[tuple[Count, Count], ...] = ()
    audit: Audit = b""
    releases: tuple[tuple[Count, ReleaseDigest], ...] = ()


class _Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A log by columns, ordered by party: this compresses much better than pairs."""

    online: tuple[Count, ...]
    sent_round: tuple[Count, ...]
    sent_to: tuple[Count, ...]
    received_round: tuple[Count, ...]
    received_from: tuple[Count, ...]
    heard: tuple[Count, ...]
    settled: tuple[tuple[Count, Count, Count], ...]
    seen: tuple[tuple[Count, Count], ...]
    audit: Audit
    releases: tuple[tuple[Count, ReleaseDigest], ...]


def encode_log(log: PartyLog) -> bytes:
    """Columns in MessagePack, compressed with zlib."""
    sent, received = (sorted(pairs, key=lambda pair: (pair[1], pair[0])) for pairs in (log.sent, log.received))
    columns = _Columns(
        online=log.online,
        sent_round=tuple(round_ for round_, _ in sent),
        sent_to=tuple(party for _, party in sent),
        received_round=tuple(round_ for round_, _ in received),
        received_from=tuple(party for _, party in received),
        heard=log.heard,
        settled=log.settled,
        seen=log.seen,
        audit=log.audit,
        releases=log.releases,
    )
    return zlib.compress(msgspec.msgpack.encode(columns))


def unfold(raw: Payload, limit: int, subject: str) -> bytes:
    """What was compressed, of which no more than ``limit`` bytes are made: a few could unfold to gigabytes. Raises PeerError."""
    unfolding = zlib.decompressobj()
    try:
        unfolded = unfolding.decompress(raw, limit)
    except zlib.error as error:
        raise PeerError(f"it sent {subject} that cannot be read ({error})") from None
    if not unfolding.eof or unfolding.unused_data:
        raise PeerError(f"it sent {subject} that does not end, or not within {limit} bytes")
    return unfolded


def decode_log(raw: Payload, parties: int, rounds: int) -> PartyLog:
    """The inverse of :func:`encode_log`. Raises :class:`PeerError` for a log that cannot be read or does not fit the study."""
    return _decoded(bytes(raw), parties, rounds)


# Parties of one process hear the same bytes, each from all others.
@lru_cache(maxsize=1024)
def _decoded(raw: bytes, parties: int, rounds: int) -> PartyLog:
    limit = Limits.of_study(parties, rounds, 0).log
    columns = decode(
        unfold(raw, limit, "a log"), _Columns, lambda reason: PeerError(f"it sent a log that cannot be read ({reason})")
    )
    pairs = (columns.sent_round, columns.sent_to), (columns.received_round, columns.received_from)
    if any(len(rounds_) != len(others) for rounds_, others in pairs):
        raise PeerError("it sent a log that cannot be read (columns of different lengths)")
    sent, received = (tuple(sorted(map(_pair, rounds_, others))) for rounds_, others in pairs)
    log = PartyLog(columns.online, sent, received, columns.heard, columns.settled, columns.seen, columns.audit, columns.releases)
    return check_log(log, parties, rounds)


# The same in the logs of all parties of one process.
@lru_cache(maxsize=2**16)
def _pair(round_: int, party: PartyId) -> tuple[int, PartyId]:
    return round_, party


def check_log(log: PartyLog, parties: int, rounds: int) -> PartyLog:
    """The log. Raises :class:`PeerError` unless its rounds and parties exist."""
    pairs = [*log.sent, *log.received, *log.seen]
    if any(not 1 <= round_ <= rounds for round_ in (*log.online, *(round_ for round_, _ in pairs))):
        raise PeerError(f"it sent a log with a round outside 1..{rounds}")
    if any(not 1 <= round_ <= rounds or later > rounds for round_, _, later in log.settled):
        raise PeerError(f"it sent a log with a settlement outside rounds 1..{rounds}")
    named = (
        *log.heard,
        *(party for party, _ in log.releases),
        *(party for _, party in pairs),
        *(party for _, party, _ in log.settled),
    )
    if any(party >= parties for party in named):
        raise PeerError(f"it sent a log with a party outside 0..{parties - 1}")
    return log


@dataclass(frozen=True)
class Received:
    """The releases that a party received.

    ``heard``: whose releases are in the total; ``impossible``: whose came and cannot be; ``digests``: of all of these.
    """

    heard: tuple[PartyId, ...] = ()
    impossible: tuple[PartyId, ...] = ()
    digests: tuple[tuple[PartyId, bytes], ...] = ()

    @classmethod
    def of(cls, state: Any) -> Received:
        """What was received by the last state of the machine that spread the logs; push-sum does not record whose are in
        its sums."""
        return cls(*(getattr(state, name, ()) for name in ("heard", "impossible", "digests")))

    @property
    def parties(self) -> tuple[PartyId, ...]:
        """Whose releases were seen."""
        return tuple(sorted({*self.heard, *self.impossible}))

    @property
    def left_out(self) -> tuple[tuple[PartyId, str], ...]:
        """Who released what cannot be, and its digest."""
        digests = dict(self.digests)
        return tuple((party, digests[party].hex()) for party in self.impossible)

    def equivocating(self, logs: Mapping[PartyId, PartyLog]) -> tuple[tuple[PartyId, str, PartyId, str], ...]:
        """(party, digest, other, digest): what a party released to this one, and what, as an other one says, to that one.

        Either the party sent them different things, or the other one lies about it.
        """
        own = dict(self.digests)
        return tuple(
            (party, own[party].hex(), other, digest.hex())
            for other, log in sorted(logs.items())
            for party, digest in log.releases
            if party in own and own[party] != digest
        )

    def not_there(self, logs: Mapping[PartyId, PartyLog]) -> tuple[tuple[PartyId, PartyId], ...]:
        """(party, other): whose release is in this total, and who else says that it is not in the one there.

        Who heard nobody else has none. What came to it after its total has no digest in its log.
        """
        return tuple(
            (party, other)
            for other, log in sorted(logs.items())
            for there in ({party for party, _ in log.releases} or {*log.heard},)
            if there - {other}
            for party in self.heard
            if party not in there
        )


# Bytes, less than a header's limit. What does not fit is left out, the others' logs first.
LIMIT = 48 * 1024


class _Packed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """``until`` by party, little-endian uint32; the bits of :class:`GossipedLogs` in order, each table padded to whole bytes."""

    until: bytes
    online: bytes
    sent: bytes
    received: bytes
    settled: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class PartialLog:
    """A log that is complete up to the end of round ``until`` and says nothing of later ones."""

    until: int
    log: PartyLog


class GossipedLogs:
    """The logs of parties, each up to the end of round ``until[party]``.

    ``online`` (T, n); ``sent`` (T, n, k_max) by sender and slot: the sender knows that this message arrived; ``received``
    likewise: its receiver accepted it. Bits of rounds after ``until`` are not set.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.until = np.zeros(schedule.parties, dtype=np.int64)
        self._online = np.zeros((schedule.rounds, schedule.parties), dtype=np.bool_)
        self._settled: dict[PartyId, tuple[tuple[int, PartyId, int], ...]] = {}

    @property
    def rounds(self) -> int:
        return self._schedule.rounds

    # As large as the schedule: made where logs are gossiped.
    @cached_property
    def _sent(self) -> Mask:
        return np.zeros(self._schedule.neighbours.shape, dtype=np.bool_)

    @cached_property
    def _received(self) -> Mask:
        return np.zeros(self._schedule.neighbours.shape, dtype=np.bool_)

    @cached_property
    def _receivers(self) -> Ints:
        return self._schedule.neighbours.astype(np.int64)

    def put(self, party: PartyId, log: PartyLog, until: int) -> None:
        """Take over a party's own log up to round ``until``, if that goes further than what was known of it."""
        if until <= self.until[party]:
            return
        self.until[party] = until
        self._online[:, party] = False
        self._online[[round_ - 1 for round_ in log.online if round_ <= until], party] = True
        self._sent[:, party] = False
        rounds, receivers = _pairs(log.sent, until)
        chosen, slots = np.nonzero(self._receivers[rounds, party] == receivers[:, None])
        self._sent[rounds[chosen], party, slots] = True
        own = self._receivers == party
        self._received[own] = False
        rounds, senders = _pairs(log.received, until)
        self._received[rounds, senders] |= own[rounds, senders]
        self._settled[party] = tuple(
            (round_, receiver, later if later <= until else 0) for round_, receiver, later in log.settled if round_ <= until
        )

    def merge(self, other: GossipedLogs) -> None:
        """Take over each log that goes further than the one known here."""
        newer = other.until > self.until
        if not newer.any():
            return
        self.until[newer] = other.until[newer]
        self._online[:, newer] = other._online[:, newer]
        self._sent[:, newer] = other._sent[:, newer]
        theirs = newer[self._receivers] & (self._receivers >= 0)
        self._received[theirs] = other._received[theirs]
        for party in np.nonzero(newer)[0].tolist():
            self._settled[party] = other._settled.get(party, ())

    def logs(self) -> dict[PartyId, PartialLog]:
        """The logs by party, for those with at least one known round."""
        logs = {}
        for party in np.nonzero(self.until)[0].tolist():
            online = tuple((np.nonzero(self._online[:, party])[0] + 1).tolist())
            rounds, slots = np.nonzero(self._sent[:, party])
            sent = tuple(sorted(zip((rounds + 1).tolist(), self._receivers[rounds, party, slots].tolist(), strict=True)))
            rounds, senders, _ = np.nonzero(self._received & (self._receivers == party))
            received = tuple(zip((rounds + 1).tolist(), senders.tolist(), strict=True))
            log = PartyLog(online, sent, received, (), self._settled.get(party, ()))
            logs[party] = PartialLog(int(self.until[party]), log)
        return logs

    def encode(self, own: PartyId, limit: int | None = None) -> bytes:
        """Encode the logs in ``limit`` bytes, :data:`LIMIT` by default: all if they fit, else that of ``own`` alone, else
        nothing."""
        limit, raw = LIMIT if limit is None else limit, self._packed()
        if len(raw) > limit:
            raw = self._only(own)._packed()
        return raw if len(raw) <= limit else b""

    def _only(self, party: PartyId) -> GossipedLogs:
        alone = GossipedLogs(self._schedule)
        alone.until[party] = self.until[party]
        alone._online[:, party] = self._online[:, party]
        alone._sent[:, party] = self._sent[:, party]
        alone._received = self._received & (self._receivers == party)
        alone._settled = {party: self._settled.get(party, ())}
        return alone

    def _packed(self) -> bytes:
        online, sent, received = (np.packbits(table).tobytes() for table in (self._online, self._sent, self._received))
        settled = tuple((party, *entry) for party, entries in sorted(self._settled.items()) for entry in entries)
        packed = _Packed(self.until.astype("<u4").tobytes(), online, sent, received, settled)
        return zlib.compress(msgspec.msgpack.encode(packed))

    @classmethod
    def decode(cls, raw: bytes, schedule: Schedule) -> GossipedLogs:
        """The inverse of :meth:`encode`. Raises :class:`PeerError` for what no correct party sends."""
        gossip = cls(schedule)
        if not raw:
            return gossip
        packed = _unfold(raw, schedule)
        if len(packed.until) != 4 * schedule.parties:
            raise PeerError(f"it sent knowledge of {len(packed.until) // 4} parties, there are {schedule.parties}")
        gossip.until = np.frombuffer(packed.until, dtype="<u4").astype(np.int64)
        if (gossip.until > schedule.rounds).any():
            raise PeerError(f"it sent knowledge of a round after the last, {schedule.rounds}")
        gossip._online = _unpack(packed.online, gossip._online)
        gossip._sent = _unpack(packed.sent, gossip._sent) & (schedule.neighbours >= 0)
        gossip._received = _unpack(packed.received, gossip._received) & (schedule.neighbours >= 0)
        settled: dict[PartyId, list[tuple[int, PartyId, int]]] = {}
        if len({entry[:3] for entry in packed.settled}) < len(packed.settled):
            # What is taken over is passed on, and nobody has to read more than there can be.
            raise PeerError("it sent knowledge that a share was settled twice")
        for party, round_, receiver, later in packed.settled:
            if not (
                0 <= party < schedule.parties
                and 0 < round_ <= schedule.rounds
                and 0 <= later <= schedule.rounds
                and (schedule.neighbours[round_ - 1, party] == receiver).any()
                and receiver >= 0
            ):
                raise PeerError("it sent knowledge of a settlement outside the schedule")
            settled.setdefault(party, []).append((round_, receiver, later))
        gossip._settled = {party: tuple(entries) for party, entries in settled.items()}
        return gossip


def _pairs(entries: tuple[tuple[int, PartyId], ...], until: int) -> tuple[Ints, Ints]:
    """Rounds, from 0, and parties."""
    table = np.array([entry for entry in entries if entry[0] <= until], dtype=np.int64).reshape(-1, 2)
    return table[:, 0] - 1, table[:, 1]


def _unfold(raw: bytes, schedule: Schedule) -> _Packed:
    # No more settlements than messages, at most 20 bytes each; a few bytes could unfold to gigabytes.
    limit = 64 + 5 * schedule.parties + 24 * schedule.neighbours.size + schedule.rounds * schedule.parties
    unfolded = unfold(raw, limit, "knowledge")
    return decode(unfolded, _Packed, lambda reason: PeerError(f"it sent knowledge that cannot be read ({reason})"))


def _unpack(raw: bytes, shaped: NDArray[Any]) -> Mask:
    if len(raw) != math.ceil(shaped.size / 8):
        raise PeerError(f"it sent a table of {len(raw)} bytes in what a party knows, instead of {math.ceil(shaped.size / 8)}")
    bits: Mask = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), count=shaped.size).astype(np.bool_)
    return bits.reshape(shaped.shape)
