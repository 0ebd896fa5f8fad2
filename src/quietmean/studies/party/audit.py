"""The audit log of a site: what was asked of it, who said yes, what it was charged, and how it ended. Never a value.

One JSON object a line. Each entry has the digest of the one before and is signed by the party that wrote it. Who can write the
file can still cut its end off, or make all of it anew: receipts, the own ones and those of the other parties of a study, tell how
far it had come (its head), and :func:`verify` finds that.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from quietmean.core.codec import convert, decode_json
from quietmean.core.errors import InputError, named, reason_of
from quietmean.core.file_kinds import SESSION_RECEIPT, FileKind, kind_of_file, refuse_other
from quietmean.core.outage import refuse_outage
from quietmean.core.portability import GrowingFile, lock, locked, make_folders, open_private, sync_folder
from quietmean.node import Identity
from quietmean.node.net import Purpose
from quietmean.studies.agreement.signed import Signed

# What the first entry says of the one before.
_NOTHING = "0" * 64
# How each line begins.
_START = b'{"entry":'
# So much of the end of a file is read at first: several entries.
_BLOCK = 1 << 14


class Event(StrEnum):
    SHOWN = "contract shown"
    REFUSED = "refused"
    YES = "yes"
    USED = "approvals used"
    CHARGED = "charged"
    STARTED = "started"
    ENDED = "ended"
    CONTRIBUTED = "contributed"


class LogEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the audit log.

    ``number``: from 1; ``previous``: digest of the entry before; ``torn``: of what stands between the two, or empty; ``time``:
    ISO 8601, UTC; ``key``: of the ``party`` that signed it; ``contract``: digest of what the study asks."""

    number: int
    previous: str
    torn: str
    time: str
    party: str
    key: str
    event: Event
    study: str
    contract: str
    about: dict[str, Any]


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    entry: msgspec.Raw
    signature: str


@dataclass(frozen=True)
class LogHead:
    """How far a log had come: ``entries`` of them, the last with this digest (hexadecimal), signed by ``key``."""

    entries: int
    digest: str
    key: str

    def to_json(self) -> dict[str, Any]:
        return {"entries": self.entries, "digest": self.digest, "key": self.key}

    def to_bytes(self) -> bytes:
        """The bytes of the head for the other parties, who know the key."""
        return struct.pack(">Q", self.entries) + bytes.fromhex(self.digest)

    @classmethod
    def from_bytes(cls, raw: bytes, key: str) -> LogHead | None:
        """What the party with this key said; None for what is none."""
        return cls(int.from_bytes(raw[:8]), raw[8:].hex(), key) if len(raw) == 40 else None


@dataclass(frozen=True)
class Written:
    """An entry as it stands in a file; its signature may be wrong. ``gap``: what stands before it besides entries."""

    entry: LogEntry
    signed: Signed
    gap: bytes = b""

    @property
    def head(self) -> LogHead:
        return LogHead(self.entry.number, self.signed.digest, self.entry.key)


All = Callable[[], Sequence[Written]]


@dataclass(frozen=True)
class AuditLog:
    path: Path

    def read(self) -> tuple[list[Written], bytes]:
        """All entries, and what stands after the last whole one: of a line that was torn. Raises :class:`InputError`."""
        try:
            with self.path.open("rb") as file:
                lock(file.fileno(), shared=True)
                entries, rest = _entries(file.read())
                self._require_log(bool(entries), rest)
                return entries, rest
        except FileNotFoundError:
            raise InputError(f"audit log {self.path} does not exist. Name it, if this site took part in something.") from None
        except OSError as error:
            refuse_outage(error, self.path)
            raise InputError(
                f"audit log {self.path} cannot be read ({error.strerror}). Check the path and your access rights."
            ) from None

    def append(self, identity: Identity, make: Callable[[All, int, str, str], LogEntry]) -> LogHead:
        """Sign and write what ``make`` returns for all entries before, its number, the digest before it and that of a torn line.

        It is on the disk when this returns. Raises :class:`InputError` where it cannot be.
        """
        try:
            with self._alone() as handle:
                last, rest, whole_lines, place = _end(handle)
                self._require_log(last is not None, rest)
                number, previous = (last.entry.number, last.signed.digest) if last else (0, _NOTHING)
                entry = make(lambda: _entries(_from(handle, 0))[0], number + 1, previous, _digest(rest))
                signed = Signed.sign(Purpose.AUDIT, msgspec.to_builtins(entry), identity)
                # A torn line stays as it is: nothing is ever taken out of this file.
                _append(handle, place, (b"" if whole_lines else b"\n") + _line(signed))
                return Written(entry, signed).head
        except OSError as error:
            refuse_outage(error, self.path)
            raise InputError(
                f"audit log {self.path} cannot be written ({reason_of(error)}), and nothing is done without it. Check your "
                "rights, or name another place in the policy."
            ) from None

    def _require_log(self, has_entries: bool, rest: bytes) -> None:
        """Raises :class:`InputError` for another file, in which nothing is a whole entry or the torn first one."""
        start = rest.lstrip(b"\0\n")[: len(_START)]
        if not has_entries and not _START.startswith(start):
            refuse_other(kind_of_file(self.path), f"file {self.path}", FileKind.AUDIT)
            raise InputError(f"file {self.path} is not an audit log. Name another, with {named('log')} or in the policy.")

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """The open file, which nobody else writes meanwhile."""
        if not self.path.exists():
            make_folders(self.path.parent, 0o700)
        handle = open_private(self.path, os.O_RDWR | os.O_CREAT)
        with locked(handle):
            if not os.fstat(handle).st_size:
                sync_folder(self.path.parent)
            yield handle


@dataclass(frozen=True)
class Auditor:
    """Writes what one ``party`` does about one contract, signed with its ``identity``."""

    log: AuditLog
    identity: Identity
    party: str
    study: str
    contract: str

    def write(
        self, event: Event, about: Mapping[str, Any] | None = None, allow: Callable[[Sequence[Written]], None] | None = None
    ) -> LogHead:
        """Write an entry of the audit log.

        ``allow`` gets all entries before, and raises if this one must not be written. Raises :class:`InputError`.
        """

        def make(before: All, number: int, previous: str, torn: str) -> LogEntry:
            if allow is not None:
                allow(before())
            return LogEntry(
                number=number,
                previous=previous,
                torn=torn,
                time=datetime.now(UTC).isoformat(timespec="seconds"),
                party=self.party,
                key=self.identity.public_key,
                event=event,
                study=self.study,
                contract=self.contract,
                about=dict(about or {}),
            )

        return self.log.append(self.identity, make)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Writes down why something was refused. For what is said of the study, never of the data."""
        try:
            yield
        except InputError as error:
            self.write(Event.REFUSED, {"reason": str(error)})
            raise

    def use(self, approvals: Sequence[str], execution: str) -> None:
        """Approvals, by digest, are for one execution. Raises :class:`InputError` for one that another has used."""

        def allow(entries: Sequence[Written]) -> None:
            for entry in entries:
                about = entry.entry.about
                used = set(approvals) & set(about.get("approvals", ()))
                if entry.entry.event == Event.USED and used and about.get("execution") != execution:
                    raise InputError(
                        f"approval {min(used)[:32]} was used up on {entry.entry.time[:10]}, by another execution of this study "
                        f"(entry {entry.entry.number} of {self.log.path}). Go on with its store, or ask for another approval."
                    )

        if approvals:
            self.write(Event.USED, {"approvals": list(approvals), "execution": execution}, allow)


@dataclass(frozen=True)
class Verified:
    """What a check of the audit log found.

    ``faults``: sentences about what was changed; ``notes``: about lines that were torn when they were written.
    """

    entries: tuple[LogEntry, ...]
    head: LogHead | None
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def verify(log: AuditLog, heads: Mapping[str, Sequence[LogHead]]) -> Verified:
    """Chain and signatures of all entries, and whether the ``heads`` of its keys are in it, by the receipt of each."""
    entries, rest = log.read()
    faults, notes = [], []
    number, previous = 0, _NOTHING
    for line in entries:
        entry = line.entry
        if (entry.number, entry.previous) != (number + 1, previous):
            faults.append(f"entry {entry.number} does not follow on entry {number}: entries were changed, moved or taken out")
        if not _is_signed(line):
            faults.append(f"entry {entry.number} does not match the signature of {entry.party}: it was changed")
        if _digest(line.gap) != entry.torn:
            faults.append(f"what stands before entry {entry.number} is not what was there when it was written")
        elif entry.torn:
            notes.append(f"before entry {entry.number} a line was torn, and entry {entry.number} says so")
        number, previous = entry.number, line.signed.digest
    if _digest(rest):
        notes.append(f"the line after entry {number} is torn: its writer was stopped, or its end was cut off")
    by_number = {line.entry.number: line for line in entries}
    keys = {line.entry.key for line in entries}
    for source, stated in heads.items():
        # A log without entries has no key: nothing tells whose heads are its own.
        own = [head for head in stated if head.key in keys or not keys]
        if not own:
            faults.append(f"{source} tells of no log with this one's key: it is of a study of others, or the log was made again")
        for head in own:
            own_entry = by_number.get(head.entries)
            if own_entry is None:
                faults.append(f"{source} tells of {head.entries} entries, here are {number}: the end was cut off")
            elif own_entry.head != head:
                faults.append(f"{source} tells of another entry {head.entries}: the log was made again")
    return Verified(tuple(line.entry for line in entries), entries[-1].head if entries else None, tuple(faults), tuple(notes))


def heads_in(receipt: Mapping[str, Any], source: str) -> list[LogHead]:
    """What a receipt says of the logs of its party and of others. Raises :class:`InputError` where it says nothing."""
    origin = receipt.get("origin")
    if receipt.get("format") == SESSION_RECEIPT and isinstance(origin, Mapping):
        # Of a session it stands with the yes.
        origin = origin.get("approval")
    origin = origin if isinstance(origin, Mapping) else {}
    wrong = InputError(f"receipt {source} says nothing of an audit log. Give receipts of join.")
    own = convert(origin.get("audit"), LogHead, lambda reason: wrong)
    return [own, *convert(origin.get("audits_of_others", {}), dict[str, LogHead], lambda reason: wrong).values()]


def _is_signed(line: Written) -> bool:
    try:
        return line.signed.is_by(line.entry.key)
    except InputError:
        return False


def _entries(content: bytes) -> tuple[list[Written], bytes]:
    entries: list[Written] = []
    gap: list[bytes] = []
    for line in content.split(b"\n"):
        parsed = _parsed(line)
        if parsed is None:
            gap.append(line)
        else:
            entries.append(Written(*parsed, b"\n".join(gap)))
            gap = []
    return entries, b"\n".join(gap)


def _end(handle: int) -> tuple[Written | None, bytes, bool, int]:
    """The last whole entry, what stands after it, whether that ends with its line, and where the entry begins.

    Those before are not read: there are more of them every year.
    """
    size, length = os.lseek(handle, 0, os.SEEK_END), _BLOCK
    while True:
        start = max(size - length, 0)
        lines = _from(handle, start).split(b"\n")
        # What the first one lacks stands further to the front.
        for number in reversed(range(0 if start == 0 else 1, len(lines))):
            if (parsed := _parsed(lines[number])) is not None:
                place = start + sum(len(line) + 1 for line in lines[:number])
                return Written(*parsed), b"\n".join(lines[number + 1 :]), not lines[-1], place
        if start == 0:
            return None, b"\n".join(lines), not lines[-1], 0
        length *= 4


def _parsed(line: bytes) -> tuple[LogEntry, Signed] | None:
    try:
        parts = decode_json(line, _Line, InputError)
        signed = Signed(Purpose.AUDIT, bytes(parts.entry), base64.b64decode(parts.signature, validate=True))
        return signed.decode(LogEntry), signed
    except (ValueError, InputError):
        return None


def _line(signed: Signed) -> bytes:
    # The entry stands as the bytes that were signed.
    return _START + signed.body + b',"signature":"' + base64.b64encode(signed.signature) + b'"}\n'


def _digest(gap: bytes) -> str:
    """Empty for nothing but ends of lines."""
    rest = gap.strip(b"\n")
    return hashlib.sha256(rest).hexdigest() if rest else ""


def _from(handle: int, start: int) -> bytes:
    parts = []
    os.lseek(handle, start, os.SEEK_SET)
    while part := os.read(handle, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _append(handle: int, place: int, content: bytes) -> None:
    """Append an entry durably, and not at all where that fails.

    It relies on the one before, at ``place``, which is written anew.
    """
    file = GrowingFile(handle, os.fstat(handle).st_size)
    file.write_anew(place)
    try:
        file.write(content)
        file.sync()
    except OSError:
        with suppress(OSError):
            file.settle()
        raise
