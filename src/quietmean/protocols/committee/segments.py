"""Segments: many contributions in few files, of each member one with what that member reads of them and nothing else.

``8 bytes magic | 32 bytes session | 2 bytes member`` and then for each contribution ``4 bytes length | 8 bytes time | excerpt``:
its header and the member's ciphertext. ``time``: when it came, seconds since 1970. Who wrote it is not trusted for anything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Final

from quietmean.core.output import require_version
from quietmean.protocols.committee.contribution import ContributionError, front_bytes, largest_part
from quietmean.protocols.committee.session import CommitteeSession

_FRONT = struct.Struct("<8s32sH")
_RECORD = struct.Struct("<Id")
_MAGIC = b"qmsegm1\n"
FRONT_BYTES: Final = _FRONT.size


def segment_front(session: CommitteeSession, member: int) -> bytes:
    """The first bytes of a segment for a member."""
    return _FRONT.pack(_MAGIC, session.session, member)


def record(excerpt: bytes, time: float) -> bytes:
    """One contribution in a segment."""
    return _RECORD.pack(len(excerpt), time) + excerpt


def is_segment(start: bytes) -> bool:
    """Whether a file that begins so is meant to be a segment. Raises :class:`ContributionError` for one of another version."""
    require_version(start[: len(_MAGIC)], _MAGIC, "it", ContributionError)
    return start.startswith(_MAGIC)


def read_segment(session: CommitteeSession, file: IO[bytes], member: int) -> Iterator[tuple[bytes, float]]:
    """The excerpts for a member and when they came, one after the other; none from another member's segment.

    Raises :class:`ContributionError` for the segment of another study, and where one ends within a contribution.
    """
    start = file.read(FRONT_BYTES)
    if len(start) < FRONT_BYTES:
        raise ContributionError("it is cut off, or was changed on the way")
    _, digest, number = _FRONT.unpack(start)
    if digest != session.session:
        raise ContributionError("it is for another study")
    if number != member:
        return
    largest = front_bytes(session) + largest_part(session)
    while front := file.read(_RECORD.size):
        # A drop that was killed leaves a contribution that it did not acknowledge.
        if len(front) < _RECORD.size:
            raise ContributionError("it ends within a contribution")
        length, time = _RECORD.unpack(front)
        if length > largest:
            raise ContributionError("it has something larger than any contribution: it was changed on the way from there on")
        excerpt = file.read(length)
        if len(excerpt) < length:
            raise ContributionError("it ends within a contribution")
        yield excerpt, time
