"""The folder of a drop: segments that members read, and a journal of what was acknowledged, which comes last.

A contribution is in the segments of all members, on the disk, before the journal names it, and the journal is on the disk before
anybody learns it. After a crash the journal counts: what segments hold beyond it was said to nobody, and is cut off. What was
written last is written anew when the drop starts again: it may have ended after an fsync that failed.
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

from quietmean.core.errors import InputError, reason_of
from quietmean.core.outage import refuse_outage
from quietmean.core.output import require_version
from quietmean.core.portability import GrowingFile, make_folders, read_at, sync_folder, try_lock
from quietmean.drop.published import PublishedFiles
from quietmean.protocols.committee.contribution import ContributionError, Header
from quietmean.protocols.committee.lists import DropChain, UsedVouchers, record, segment_front
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.studies.agreement.contribution import PUBLISHED

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
    """The first contribution of a contributor: its header digest, and when it came, in seconds since 1970.

    ``chain``: of all that the drop took up to this one.
    """

    digest: bytes
    time: float
    chain: DropChain


@dataclass(frozen=True)
class WholeContribution:
    """What came: its header, which was checked, and the excerpt of each member."""

    header: Header
    excerpts: Sequence[bytes] = field(repr=False)


class DropBox:
    """Contributions to one session in ``folder``, which one process writes at a time. Close it at the end."""

    def __init__(self, folder: Path, session: CommitteeSession, journal: int) -> None:
        self._folder, self._session = folder, session
        self._members = session.parameters.members
        self._entry = struct.Struct(f"<32s32sdI{self._members}Q")
        self._segments: list[GrowingFile] = []
        self._first: dict[bytes, Dropped] = {}
        self._vouchered = UsedVouchers(session)
        self._chain = DropChain.of(session)
        self._number = 0
        self._alone = threading.Lock()
        self._journal = self._read(journal)

    @classmethod
    def open(cls, folder: Path, session: CommitteeSession) -> Self:
        """Continue where it stopped. Raises :class:`InputError` for a folder of another study, one that was changed or is in use,
        and one that cannot be written; :class:`StorageError` where the disk is full or fails."""
        path = folder / JOURNAL
        try:
            make_folders(folder)
            journal = os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o644)
            try:
                if not try_lock(journal):
                    raise InputError(f"another drop writes into folder {folder}. End that one, or name another with --folder.")
                return cls(folder, session, journal)
            except BaseException:
                os.close(journal)
                raise
        except OSError as error:
            refuse_outage(error, path)
            raise InputError(f"folder {folder} cannot be written ({reason_of(error)}). Name another with --folder.") from None

    @property
    def published(self) -> PublishedFiles:
        """What members published, in a folder of its own."""
        return PublishedFiles(self._folder / PUBLISHED)

    def close(self) -> None:
        """Close the files of the drop; contributions that were acknowledged are already durable."""
        with self._alone:
            self._close_segments()
            self._journal.close()

    def __len__(self) -> int:
        return len(self._first)

    def first(self, dealer: bytes) -> Dropped | None:
        """What came first of the contributor with this raw key."""
        return self._first.get(dealer)

    def add(self, batch: Sequence[WholeContribution], time: float) -> list[Dropped | ContributionError]:
        """Take the first contribution of each contributor, durable when this returns, or why it finds room nowhere.

        Raises :class:`OSError` where the disk fails: then nothing of it is here.
        """
        with self._alone:
            return self._add(batch, time)

    def _add(self, batch: Sequence[WholeContribution], time: float) -> list[Dropped | ContributionError]:
        answers: list[Dropped | ContributionError] = []
        # Nobody is shown it before it is durable.
        fresh: dict[bytes, Dropped] = {}
        wholes: list[WholeContribution] = []
        chain = self._chain
        for whole in batch:
            dealer = whole.header.dealer
            answer = self._first.get(dealer) or fresh.get(dealer)
            if answer is None:
                try:
                    self._vouchered.take(dealer)
                except ContributionError as error:
                    answers.append(error)
                    continue
                chain = chain.after(whole.header.digest)
                answer = fresh[dealer] = Dropped(whole.header.digest, time, chain)
                wholes.append(whole)
            answers.append(answer)
        if wholes:
            try:
                self._write(wholes, time)
            except OSError:
                self._vouchered = self._vouchers()
                raise
            self._first |= fresh
            self._chain = chain
        return answers

    def _write(self, wholes: Sequence[WholeContribution], time: float) -> None:
        self._settle()
        number = self._number
        try:
            if not self._segments or max(segment.end for segment in self._segments) >= SEGMENT_BYTES:
                self._begin_segment()
            entries = []
            for whole in wholes:
                for segment, excerpt in zip(self._segments, whole.excerpts, strict=True):
                    segment.write(record(excerpt, time))
                entries.append(self._packed(whole.header, time))
            for segment in self._segments:
                segment.sync()
            self._journal.write(b"".join(entries))
            self._journal.sync()
        except OSError:
            if self._number > number:
                self._close_segments()
                self._number = number
            # Members read none of it. What the disk refuses now is done before anything else is written.
            with suppress(OSError):
                self._settle()
            raise
        for file in (self._journal, *self._segments):
            file.keep()

    def _settle(self) -> None:
        """Take back what was written before an error, on the disk too. The journal's word goes first."""
        for file in (self._journal, *self._segments):
            file.settle()
        if not self._segments:
            self._remove_behind(self._number)

    def _packed(self, header: Header, time: float) -> bytes:
        packed = self._entry.pack(header.digest, header.dealer, time, self._number, *(segment.end for segment in self._segments))
        return packed + self._check(packed)

    def _check(self, packed: bytes) -> bytes:
        return hashlib.sha256(self._session.session + packed).digest()[:_CHECK]

    # --- segments ---

    def _path(self, number: int, member: int) -> Path:
        return self._folder / f"drop-{number:04}.m{member + 1:02}.parts"

    def _begin_segment(self) -> None:
        self._close_segments()
        self._number += 1
        for member in range(self._members):
            handle = os.open(self._path(self._number, member), os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o644)
            self._segments.append(GrowingFile(handle, 0))
            self._segments[-1].write(segment_front(self._session, member))
        sync_folder(self._folder)

    def _close_segments(self) -> None:
        for segment in self._segments:
            segment.close()
        self._segments = []

    def _remove_behind(self, number: int) -> None:
        for path in self._folder.glob("drop-*.parts"):
            with suppress(ValueError):
                if int(path.name.split(".")[0].removeprefix("drop-")) > number:
                    path.unlink()

    # --- what is there ---

    def _vouchers(self) -> UsedVouchers:
        taken = UsedVouchers(self._session)
        for dealer in self._first:
            taken.take(dealer)
        return taken

    def _read(self, handle: int) -> GrowingFile:
        """What the journal says. Raises :class:`InputError` for a folder that was changed."""
        content = self._journal_content(handle)
        size, place = self._entry.size + _CHECK, _FRONT.size
        # Of each entry: where its contribution ends, in which segments.
        ends: list[tuple[int, list[int]]] = []
        while len(content) - place >= size:
            packed = content[place : place + self._entry.size]
            if content[place + self._entry.size : place + size] != self._check(packed):
                break
            digest, dealer, time, self._number, *entry_ends = self._entry.unpack(packed)
            ends.append((self._number, entry_ends))
            self._chain = self._chain.after(digest)
            self._first[dealer] = Dropped(digest, time, self._chain)
            place += size
        if len(content) - place > BATCH * size:
            raise self._changed(f"{JOURNAL} has something else between what it acknowledged")
        self._vouchered = self._vouchers()
        self._require_segments(dict(ends))
        self._remove_behind(self._number)
        journal = GrowingFile(handle, place)
        self._open_segments(ends)
        # Segments first, as ever: what the journal names is on the disk.
        journal.settle()
        journal.write_anew(place - BATCH * size if len(ends) > BATCH else 0)
        return journal

    def _journal_content(self, handle: int) -> bytes:
        """The content of the journal. Raises :class:`InputError` for that of another study."""
        content = read_at(handle, os.fstat(handle).st_size, 0)
        front = _FRONT.pack(_MAGIC, self._session.session, self._members)
        if content.startswith(front):
            return content
        require_version(content[: len(_MAGIC)], _MAGIC, f"folder {self._folder}")
        if not front.startswith(content[: _FRONT.size]):
            raise InputError(f"folder {self._folder} is of a drop for another study. Name another with --folder.")
        if any(self._folder.glob("drop-*.parts")):
            raise self._changed(f"{JOURNAL} is missing")
        GrowingFile(handle, 0).write(front)
        sync_folder(self._folder)
        return front

    def _require_segments(self, segments: dict[int, list[int]]) -> None:
        """Raise :class:`InputError` if a segment that the journal names is missing, or shorter than the journal says."""
        for number, ends in segments.items():
            for member, end in enumerate(ends):
                path = self._path(number, member)
                if not path.is_file() or path.stat().st_size < end:
                    raise self._changed(f"{path.name} lacks what was acknowledged")

    def _open_segments(self, ends: Sequence[tuple[int, list[int]]]) -> None:
        """Those that the journal names last end where it says."""
        if not ends:
            return
        before = [places for number, places in ends[:-BATCH] if number == self._number]
        for member, end in enumerate(ends[-1][1]):
            segment = GrowingFile(os.open(self._path(self._number, member), os.O_RDWR | _BINARY), end)
            self._segments.append(segment)
            segment.settle()
            segment.write_anew(before[-1][member] if before else 0)

    def _changed(self, why: str) -> InputError:
        return InputError(
            f"folder {self._folder} is not as this drop left it ({why}). Restore it, or say so to members and contributors and "
            "name another with --folder."
        )


_BINARY: Final = getattr(os, "O_BINARY", 0)
