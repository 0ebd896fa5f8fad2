"""The log of a party's mixing rounds, which it sends to all others at the end."""

from __future__ import annotations

import zlib
from typing import Annotated, TypeAlias

import msgspec

from quietmean.core.codec import decode
from quietmean.core.errors import PeerError
from quietmean.node.net import Count, Limits, Payload

AUDIT_LIMIT = 64
Audit: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=AUDIT_LIMIT)]
ReleaseDigest: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class PartyLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """``online``: rounds in which the party took part. ``sent``: (round, receiver) of its messages that arrived.

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
        raise PeerError(f"{subject} that cannot be read ({error})") from None
    if not unfolding.eof or unfolding.unused_data:
        raise PeerError(f"{subject} that does not end, or not within {limit} bytes")
    return unfolded


def decode_log(raw: Payload, parties: int, rounds: int) -> PartyLog:
    """The inverse of :func:`encode_log`. Raises :class:`PeerError` for a log that cannot be read or does not fit the study."""
    limit = Limits.of_study(parties, rounds, 0).log
    columns = decode(unfold(raw, limit, "a log"), _Columns, lambda reason: PeerError(f"a log that cannot be read ({reason})"))
    pairs = (columns.sent_round, columns.sent_to), (columns.received_round, columns.received_from)
    if any(len(rounds_) != len(others) for rounds_, others in pairs):
        raise PeerError("a log that cannot be read (columns of different lengths)")
    sent, received = (tuple(sorted(zip(rounds_, others, strict=True))) for rounds_, others in pairs)
    log = PartyLog(columns.online, sent, received, columns.heard, columns.settled, columns.seen, columns.audit, columns.releases)
    return check_log(log, parties, rounds)


def check_log(log: PartyLog, parties: int, rounds: int) -> PartyLog:
    """The log. Raises :class:`PeerError` unless its rounds and parties exist."""
    pairs = [*log.sent, *log.received, *log.seen]
    if any(not 1 <= round_ <= rounds for round_ in (*log.online, *(round_ for round_, _ in pairs))):
        raise PeerError(f"a log with a round outside 1..{rounds}")
    if any(not 1 <= round_ <= rounds or later > rounds for round_, _, later in log.settled):
        raise PeerError(f"a log with a settlement outside rounds 1..{rounds}")
    named = (
        *log.heard,
        *(party for party, _ in log.releases),
        *(party for _, party in pairs),
        *(party for _, party, _ in log.settled),
    )
    if any(party >= parties for party in named):
        raise PeerError(f"a log with a party outside 0..{parties - 1}")
    return log
