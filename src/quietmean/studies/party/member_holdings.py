"""What a member takes of the contributions in a folder, once, when their time is over: its parts, in a file beside its store.

Whatever becomes of the folder afterwards, the member lists and adds up what it took. The file is deleted at the end.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from quietmean.core.codec import decode_json
from quietmean.core.errors import InputError, named
from quietmean.core.outage import outage_of
from quietmean.core.output import require_version
from quietmean.core.portability import replacing
from quietmean.core.readable_days import by_this_clock
from quietmean.protocols.committee.contribution import (
    ContributionError,
    DealtParts,
    Header,
    Part,
    excerpt_of,
    front_bytes,
    header_digest,
    largest_file,
    open_excerpt,
    read_header,
)
from quietmean.protocols.committee.keys import Opener
from quietmean.protocols.committee.lists import FRONT_BYTES, Held, UsedVouchers, is_segment, read_segment
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.studies.agreement.deadlines import in_words

# The header of a contribution and its bytes. Raises OSError where the folder fails, and ContributionError.
_Read = Callable[[], tuple[Header, bytes]]
_MAGIC = b"qmheld3\n"
_LENGTH = 8
_PIECE = 1 << 20


class _Summary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands at the end of the file.

    ``left_out``: of each file that was not taken, the contributor's key if it is known, its name, and why.
    """

    session: str
    count: int
    left_out: tuple[tuple[str, str, str], ...]
    # Header digests, one behind the other, of all that stands in the segments of a drop, in their order.
    dropped: bytes


@dataclass(frozen=True)
class MemberHoldings:
    """One member's parts in the file ``path``, to be gone through as often as need be. ``left_out``, ``dropped``: see above."""

    path: Path
    session: CommitteeSession = field(repr=False)
    left_out: tuple[tuple[str, str, str], ...]
    count: int
    dropped: bytes = field(repr=False)

    @classmethod
    def load(cls, path: Path, session: CommitteeSession) -> MemberHoldings | None:
        """What was taken before; None if nothing was. Raises :class:`InputError` for a file that is not whole."""
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                start = file.read(len(_MAGIC))
                require_version(start, _MAGIC, f"file {path}")
                if start != _MAGIC or size < len(_MAGIC) + _LENGTH:
                    raise _changed(path)
                file.seek(size - _LENGTH)
                end = size - _LENGTH - int.from_bytes(file.read(_LENGTH), "little")
                if end < len(_MAGIC):
                    raise _changed(path)
                file.seek(end)
                summary = decode_json(file.read(size - _LENGTH - end), _Summary, lambda reason: _changed(path))
        except FileNotFoundError:
            return None
        except OSError:
            raise _changed(path) from None
        holdings = cls(path, session, summary.left_out, summary.count, summary.dropped)
        if summary.session != session.session.hex() or end != len(_MAGIC) + summary.count * holdings._record.itemsize:
            raise _changed(path)
        return holdings

    @classmethod
    def take(
        cls, path: Path, session: CommitteeSession, member: int, opener: Opener, folder: Path, until: float
    ) -> MemberHoldings:
        """Take this member's parts of all that is in ``folder`` now; durable when this returns.

        ``until``: what was written later, in seconds since 1970, comes too late. Raises :class:`InputError` for a folder that
        cannot be read, or in which nothing is for this study, and :class:`StorageError` where nothing fits and nothing was taken.
        """
        try:
            with replacing(path) as file:
                file.write(_MAGIC)
                summary = _take_all(file, session, member, opener, folder, until)
                content = msgspec.json.encode(summary)
                file.write(content + len(content).to_bytes(_LENGTH, "little"))
        except OSError as error:
            if (outage := outage_of(error, path)) is not None:
                raise outage from None
            raise InputError(
                f"file {path} cannot be written ({error.strerror}). Name a writable place with {named('store')}."
            ) from None
        holdings = cls.load(path, session)
        if holdings is None:
            raise _changed(path)
        return holdings

    @property
    def _record(self) -> np.dtype[np.void]:
        return _record_of(self.session)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Held]:
        if not self.count:
            return
        records = np.memmap(self.path, dtype=self._record, mode="r", offset=len(_MAGIC), shape=(self.count,))
        for record in records:
            yield self._held(record)

    def _held(self, record: np.void) -> Held:
        weight = float(record["weight"])
        dealer = record["dealer"].tobytes()
        values = np.array(record["values"][: self.session.dealt_numbers(False, weight)])
        part = Part(values, np.array(record["masks"]), self.session.layout_of(False, weight, dealer))
        return Held(record["digest"].tobytes(), dealer, weight, part)

    def delete(self) -> None:
        """Overwrite and delete the file."""
        delete_held(self.path)


def delete_held(path: Path) -> None:
    """Overwrite and delete what a member took, if it is there, and what it was writing when it was killed."""
    for old in (path, *path.parent.glob(f"{glob.escape(path.name)}.*.new")):
        _overwrite(old)


def _overwrite(path: Path) -> None:
    try:
        with path.open("r+b") as file:
            for _ in range(0, os.fstat(file.fileno()).st_size, _PIECE):
                file.write(bytes(_PIECE))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
    except FileNotFoundError:
        return


def contributions_in(folder: Path) -> list[Path]:
    """The files in a folder, in the order of their names. Raises :class:`InputError` where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and _is_file_or_lost(entry))
    except OSError as error:
        raise _unreadable(folder, str(error.strerror)) from None
    return [folder / name for name in names]


def _is_file_or_lost(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, or a link to one or to nothing, which counts as a file. Raises OSError where the folder fails."""
    if not entry.is_symlink():
        return entry.is_file()
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True


@dataclass(frozen=True)
class Survey:
    """What is in a folder: how many contributors there are, and (file, why) of what cannot count."""

    contributors: int
    left_out: tuple[tuple[str, str], ...]


def survey(session: CommitteeSession, member: int, folder: Path, until: float) -> Survey:
    """Look at what is public in ``folder``, as :meth:`MemberHoldings.take` does; nothing is opened or written.

    Raises :class:`InputError` for a folder that cannot be read.
    """
    dealers: set[bytes] = set()
    left_out: list[tuple[str, str]] = []
    for name, read in _contributions(session, member, folder, until, []):
        try:
            header, raw = read()
            excerpt_of(session, header, raw, member)
        except ContributionError as error:
            left_out.append((name, str(error)))
        except OSError as error:
            raise _unreadable(folder, f"{name}: {error.strerror}") from None
        else:
            dealers.add(header.dealer)
    return Survey(len(dealers), tuple(left_out))


def _take_all(file: IO[bytes], session: CommitteeSession, member: int, opener: Opener, folder: Path, until: float) -> _Summary:
    """Write this member's parts of what is in ``folder``, one after the other: of each only who it is from stays in memory."""
    left_out: list[tuple[str, str, str]] = []
    taken: dict[bytes, tuple[bytes, str]] = {}
    vouchered = UsedVouchers(session)
    dropped: list[bytes] = []
    for name, read in _contributions(session, member, folder, until, dropped):
        dealer = ""
        try:
            header, raw = read()
            dealer = header.contributor
            part = open_excerpt(session, header, excerpt_of(session, header, raw, member), member, opener)
            if header.dealer not in taken:
                vouchered.take(header.dealer)
        except ContributionError as error:
            left_out.append((dealer, name, str(error)))
            continue
        except OSError as error:
            raise _unreadable(folder, f"{name}: {error.strerror}") from None
        if header.dealer not in taken:
            taken[header.dealer] = header.digest, name
            file.write(_packed(session, header, part))
        elif taken[header.dealer][0] != header.digest:
            why = f"its contributor made another one, {taken[header.dealer][1]}, and one counts"
            left_out.append((dealer, name, why))
    if not taken:
        raise InputError(
            f"folder {folder} holds 0 contributions that came until {in_words(datetime.fromtimestamp(until, UTC))}, and a result "
            f"takes at least {session.parameters.minimum} ({len(left_out)} other files). Nothing was listed or opened. See that "
            f"the right folder is there, and start again; {by_this_clock(datetime.now(UTC))}."
        )
    return _Summary(session.session.hex(), len(taken), tuple(left_out), b"".join(dropped))


def _contributions(
    session: CommitteeSession, member: int, folder: Path, until: float, dropped: list[bytes]
) -> Iterator[tuple[str, _Read]]:
    """What to call each contribution in ``folder``, and what reads it: files of one, and the segments of a drop.

    ``dropped`` gets the header digests of these, whatever else is wrong with them.
    """
    for path in contributions_in(folder):
        # Anyone who put it there chose its name, which may be no text.
        name = path.name.encode(errors="backslashreplace").decode()
        try:
            with path.open("rb") as file:
                if not is_segment(file.read(FRONT_BYTES)):
                    yield name, partial(_read, session, path, until)
                    continue
                file.seek(0)
                yield from _in_segment(session, member, name, file, until, dropped)
        except ContributionError as error:
            yield name, partial(_fails, error)
        except OSError as error:
            yield name, partial(_fails, error, path)


def _in_segment(
    session: CommitteeSession, member: int, segment: str, file: IO[bytes], until: float, dropped: list[bytes]
) -> Iterator[tuple[str, _Read]]:
    try:
        for number, (raw, time) in enumerate(read_segment(session, file, member), 1):
            dropped.append(header_digest(raw) or hashlib.sha256(raw).digest())
            yield f"{segment}, contribution {number}", partial(_of_segment, session, raw, time > until)
    except ContributionError as error:
        yield segment, partial(_fails, error)


def _of_segment(session: CommitteeSession, raw: bytes, late: bool) -> tuple[Header, bytes]:
    return _checked(read_header(session, raw), raw, late)


def _checked(header: Header, raw: bytes, late: bool) -> tuple[Header, bytes]:
    if header.kind != DealtParts.VALUE:
        raise ContributionError("it is a member's noise, not a contribution")
    if late:
        raise ContributionError("it came too late")
    return header, raw


def _fails(error: Exception, path: Path | None = None) -> tuple[Header, bytes]:
    """Raises it. A file that is closed to this member, and a link that leads nowhere, say nothing against the folder."""
    if isinstance(error, PermissionError):
        raise ContributionError(f"it cannot be read ({error.strerror})") from None
    if isinstance(error, OSError) and path is not None and path.is_symlink():
        raise ContributionError(f"it is a link to a file that cannot be read ({error.strerror})") from None
    raise error


def _unreadable(folder: Path, why: str) -> InputError:
    return InputError(
        f"folder {folder} with contributions cannot be read ({why}). See that it is there and mounted, and start again; nothing "
        "was listed or opened."
    )


def _read(session: CommitteeSession, file: Path, until: float) -> tuple[Header, bytes]:
    """Read a file of a folder. Raises :class:`OSError` where the folder fails: nobody is left out for good for that."""
    try:
        status = file.stat()
        if status.st_size > largest_file(session):
            raise ContributionError("it is larger than any contribution to this study")
        with file.open("rb") as opened:
            front = opened.read(front_bytes(session))
            header = read_header(session, front)
            raw = front + opened.read()
    except OSError as error:
        _fails(error, file)
    return _checked(header, raw, status.st_mtime > until)


def _record_of(session: CommitteeSession) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("digest", "u1", 32),
            ("dealer", "u1", 32),
            ("weight", "<f8"),
            ("values", "<u4", (session.largest_dealing,)),
            ("masks", "<u4", (session.parameters.checks,)),
        ]
    )


def _packed(session: CommitteeSession, header: Header, part: Part) -> bytes:
    # All of one size, so that they are found by their number.
    values = np.zeros(session.largest_dealing, dtype="<u4")
    values[: len(part.values)] = part.values
    parts = values.tobytes() + np.asarray(part.masks, dtype="<u4").tobytes()
    packed = header.digest + header.dealer + np.float64(header.weight).tobytes() + parts
    if len(packed) != _record_of(session).itemsize:
        raise RuntimeError("a part of another size than the study's")
    return packed


def _changed(path: Path) -> InputError:
    return InputError(
        f"file {path} is not what this member took of the contributions, it was changed. Restore it. "
        "Without it this member takes no part any more."
    )
