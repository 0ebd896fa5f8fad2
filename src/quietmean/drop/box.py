"""The folder of a drop: segments that members read, and a journal of what was acknowledged, which comes last.

A contribution is in the segments of all members, on the disk, before the journal names it, and the journal is on the disk before
anybody is told. After a crash the journal counts: what segments hold beyond it was told to nobody, and is cut off.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from quietmean.core.errors import InputError
from quietmean.core.output import require_version
from quietmean.core.portability import sync_data, sync_folder, try_lock
from quietmean.protocols.committee.contribution import ContributionError, Header
from quietmean.protocols.committee.holdings import Vouchered
from quietmean.protocols.committee.segments import record, segment_front
from quietmean.protocols.committee.session import CommitteeSession

# Hidden, as members look at all other files.
JOURNAL: Final = ".drop.journal"
# Once a member's file is larger, the next one begins.
SEGMENT_BYTES: Final = 1 << 28
# So many contributions are made durable together at most.
BATCH: Final = 64
_FRONT = struct.Struct("<8s32sH")
_MAGIC = b"qmdrop1\n"
_CHECK = 8


@dataclass(frozen=True)
class Dropped:
    """The first contribution of a contributor: its header digest, and when it came, in seconds since 1970."""

    digest: bytes
    time: float


@dataclass(frozen=True)
class WholeContribution:
    """What came: its header, which was checked, and the excerpt of each member."""

    header: Header
    excerpts: Sequence[bytes] = field(repr=False)


class DropBox:
    """Contributions to one session in ``folder``, which one process writes at a time. Close it at the end."""

    def __init__(self, folder: Path, session: CommitteeSession, journal: int) -> None:
        self._folder, self._session, self._journal = folder, session, journal
        self._members = session.parameters.members
        self._entry = struct.Struct(f"<32s32sdI{self._members}Q")
        self._segments: list[int] = []
        self._alone = threading.Lock()
        self._read()

    @classmethod
    def open(cls, folder: Path, session: CommitteeSession) -> Self:
        """Continue where it stopped. Raises :class:`InputError` for a folder of another study, one that was changed or is in use,
        and where it cannot be written."""
        path = folder / JOURNAL
        try:
            folder.mkdir(parents=True, exist_ok=True)
            journal = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        except OSError as error:
            raise InputError(f"folder {folder} cannot be written ({error.strerror}): name another with --folder") from None
        try:
            if not try_lock(journal):
                raise InputError(f"another drop writes into folder {folder}: end that one, or name another with --folder")
            return cls(folder, session, journal)
        except BaseException:
            os.close(journal)
            raise

    def close(self) -> None:
        """End it; all that was acknowledged is durable anyhow."""
        with self._alone:
            self._close_segments()
            os.close(self._journal)

    def __len__(self) -> int:
        return len(self._first)

    def first(self, dealer: bytes) -> Dropped | None:
        """What came first of the contributor with this raw key."""
        return self._first.get(dealer)

    def add(self, batch: Sequence[WholeContribution], time: float) -> list[Dropped | ContributionError]:
        """Of each contribution the first one of its contributor, durable when this returns, or why there is no place for it.

        Raises :class:`OSError` where the disk fails: then nothing of it is here.
        """
        with self._alone:
            return self._add(batch, time)

    def _add(self, batch: Sequence[WholeContribution], time: float) -> list[Dropped | ContributionError]:
        answers: list[Dropped | ContributionError] = []
        fresh: list[WholeContribution] = []
        for whole in batch:
            dealer = whole.header.dealer
            if dealer not in self._first:
                try:
                    self._vouchered.take(dealer)
                except ContributionError as error:
                    answers.append(error)
                    continue
                self._first[dealer] = Dropped(whole.header.digest, time)
                fresh.append(whole)
            answers.append(self._first[dealer])
        try:
            self._write(fresh, time)
        except OSError:
            # Back to what is durable.
            self._read()
            raise
        return answers

    def _write(self, fresh: Sequence[WholeContribution], time: float) -> None:
        if not fresh:
            return
        if not self._segments or max(self._ends) >= SEGMENT_BYTES:
            self._begin_segment()
        entries = []
        for whole in fresh:
            for member, excerpt in enumerate(whole.excerpts):
                content = record(excerpt, time)
                _write_all(self._segments[member], content)
                self._ends[member] += len(content)
            entries.append(self._packed(whole.header, time))
        for segment in self._segments:
            sync_data(segment)
        _write_all(self._journal, b"".join(entries))
        sync_data(self._journal)

    def _packed(self, header: Header, time: float) -> bytes:
        packed = self._entry.pack(header.digest, header.dealer, time, self._number, *self._ends)
        return packed + self._check(packed)

    def _check(self, packed: bytes) -> bytes:
        return hashlib.sha256(self._session.session + packed).digest()[:_CHECK]

    # --- segments ---

    def _path(self, number: int, member: int) -> Path:
        return self._folder / f"drop-{number:04}.m{member + 1:02}.parts"

    def _begin_segment(self) -> None:
        self._close_segments()
        self._number += 1
        fronts = [segment_front(self._session, member) for member in range(self._members)]
        for member, front in enumerate(fronts):
            handle = os.open(self._path(self._number, member), _APPENDED | os.O_CREAT | os.O_EXCL, 0o644)
            self._segments.append(handle)
            _write_all(handle, front)
        self._ends = [len(front) for front in fronts]
        sync_folder(self._folder)

    def _close_segments(self) -> None:
        for handle in self._segments:
            os.close(handle)
        self._segments = []

    # --- what is there ---

    def _read(self) -> None:
        """From the journal. Raises :class:`InputError` for a folder that was changed."""
        self._close_segments()
        self._first: dict[bytes, Dropped] = {}
        self._vouchered = Vouchered(self._session)
        self._number, self._ends = 0, [0] * self._members
        content = self._journal_content()
        size, place = self._entry.size + _CHECK, _FRONT.size
        segments: dict[int, list[int]] = {}
        while len(content) - place >= size:
            packed = content[place : place + self._entry.size]
            if content[place + self._entry.size : place + size] != self._check(packed):
                break
            digest, dealer, time, self._number, *self._ends = self._entry.unpack(packed)
            segments[self._number] = self._ends
            self._first[dealer] = Dropped(digest, time)
            self._vouchered.take(dealer)
            place += size
        if len(content) - place > BATCH * size:
            raise self._changed(f"{JOURNAL} has something else among what it acknowledged")
        os.ftruncate(self._journal, place)
        os.lseek(self._journal, place, os.SEEK_SET)
        self._cut(segments)

    def _journal_content(self) -> bytes:
        """Raises :class:`InputError` for that of another study."""
        os.lseek(self._journal, 0, os.SEEK_SET)
        with os.fdopen(os.dup(self._journal), "rb") as file:
            content = file.read()
        front = _FRONT.pack(_MAGIC, self._session.session, self._members)
        if content.startswith(front):
            return content
        require_version(content[: len(_MAGIC)], _MAGIC, f"folder {self._folder}")
        if not front.startswith(content[: _FRONT.size]):
            raise InputError(f"folder {self._folder} is of a drop for another study: name another with --folder")
        if any(self._folder.glob("drop-*.parts")):
            raise self._changed(f"{JOURNAL} is missing")
        os.ftruncate(self._journal, 0)
        os.lseek(self._journal, 0, os.SEEK_SET)
        _write_all(self._journal, front)
        sync_data(self._journal)
        sync_folder(self._folder)
        return front

    def _cut(self, segments: dict[int, list[int]]) -> None:
        """Segments end where the journal says, and nothing is behind them."""
        for number, ends in segments.items():
            for member, end in enumerate(ends):
                path = self._path(number, member)
                if not path.is_file() or path.stat().st_size < end:
                    raise self._changed(f"{path.name} lacks what was acknowledged")
        for path in self._folder.glob("drop-*.parts"):
            with suppress(ValueError):
                if int(path.name.split(".")[0].removeprefix("drop-")) > self._number:
                    path.unlink()
        if self._number:
            for member, end in enumerate(self._ends):
                handle = os.open(self._path(self._number, member), _APPENDED)
                self._segments.append(handle)
                os.ftruncate(handle, end)

    def _changed(self, why: str) -> InputError:
        return InputError(
            f"folder {self._folder} is not as this drop left it ({why}): restore it, or say so to members and contributors and "
            "name another with --folder"
        )


_APPENDED: Final = os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0)


def _write_all(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
