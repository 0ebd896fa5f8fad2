"""Where the files are: a folder that all parties see, on a disk of theirs or a share."""

from __future__ import annotations

import contextlib
import heapq
import os
import ssl
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol, Self, TypeAlias
from urllib.parse import SplitResult, urlsplit

from quietmean.core.errors import InputError, PeerError
from quietmean.core.extensions import import_extra, loaded
from quietmean.core.portability import open_strange, put_inside
from quietmean.node.folder.slot import OVERHEAD, Parties, Slot, is_valid, open_file
from quietmean.node.mailbox import Mailbox
from quietmean.randomness import fresh_bytes

# A server that says nothing for so many seconds is gone.
_LONGEST_ANSWER: Final = 60.0


@dataclass(frozen=True)
class _Opened:
    """``rename`` replaces a file in one step; None where an upload is whole or not at all by itself."""

    files: Any
    root: str
    rename: Callable[[str, str], Any] | None = None


def _bucket(url: SplitResult) -> _Opened:
    import s3fs

    return _Opened(s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True), f"{url.netloc}{url.path}")


def _sftp(url: SplitResult) -> _Opened:
    import paramiko
    from fsspec.implementations.sftp import SFTPFileSystem

    class OfKnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
        """As ssh without a terminal: a host is known, or refused. By itself the library would take any key."""

        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            files = (Path.home() / ".ssh" / "known_hosts", Path("/etc/ssh/ssh_known_hosts"))
            if not any(paramiko.HostKeys(str(file)).check(hostname, key) for file in files if file.exists()):
                raise OSError(f"the key of {hostname} is not the one in known_hosts: log in once with ssh, and compare it")

    # Without a name, this account's.
    address = {name: value for name, value in (("port", url.port), ("username", url.username)) if value}
    files = SFTPFileSystem(
        url.hostname, timeout=_LONGEST_ANSWER, host_key_policy=OfKnownHosts(), skip_instance_cache=True, **address
    )
    files.ftp.get_channel().settimeout(_LONGEST_ANSWER)
    return _Opened(files, url.path, files.mv)


def _webdav(url: SplitResult) -> _Opened:
    import httpx
    from webdav4.fsspec import WebdavFileSystem

    auth = httpx.NetRCAuth() if (Path.home() / ".netrc").exists() else None
    # The system's certificates, rather than the library's own.
    files = WebdavFileSystem(f"https://{url.netloc}{url.path}", auth, verify=ssl.create_default_context())
    return _Opened(files, "", lambda old, new: files.client.move(old, new, overwrite=True))


# By scheme: the library that it needs besides fsspec, and what opens it.
REMOTE: Final = {"s3": ("s3fs", _bucket), "sftp": ("paramiko", _sftp), "webdavs": ("webdav4", _webdav)}


class RemotePlace:
    """A folder on another machine.

    ``url``: of the folder, one of :data:`REMOTE`. Raises :class:`InputError` where a library is missing.
    """

    def __init__(self, url: str, session: str) -> None:
        self._url, self._session = urlsplit(url), session[:32]
        import_extra("fsspec", "folder", "a folder that is not mounted")
        import_extra(REMOTE[self._url.scheme][0], "folder", f"a folder at {self._url.scheme}://")
        self._opened: _Opened | None = None

    def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
        try:
            with self._place() as opened:
                # What was listed before is old.
                opened.files.invalidate_cache()
                entries = opened.files.ls(self._path(opened, round_), detail=True)
        except FileNotFoundError:
            return
        for entry in entries:
            name = str(entry["name"]).rpartition("/")[2]
            if entry.get("type") == "file" and name.rpartition("-")[0] + "-" in prefixes:
                yield name, int(entry.get("size") or 0), _time_of(entry)

    def read(self, round_: str, name: str, limit: int) -> bytes | None:
        try:
            with self._place() as opened:
                content = bytes(opened.files.cat_file(self._path(opened, round_, name), start=0, end=limit + 1))
        except FileNotFoundError:
            return None
        return content if len(content) <= limit else None

    def put(self, round_: str, name: str, file: bytes) -> None:
        """Write a file, whole or not at all."""
        with self._place() as opened:
            path = self._path(opened, round_, name)
            if opened.rename is None:
                opened.files.pipe_file(path, file)
                return
            # A bucket has no folders to be made.
            opened.files.makedirs(self._path(opened, round_), exist_ok=True)
            partial = self._path(opened, round_, f".{fresh_bytes(8).hex()}")
            opened.files.pipe_file(partial, file)
            opened.rename(partial, path)

    def _path(self, opened: _Opened, *parts: str) -> str:
        return "/".join([opened.root.rstrip("/"), self._session, *parts])

    @contextlib.contextmanager
    def _place(self) -> Iterator[_Opened]:
        """Connected, again if that was lost. Each library has errors of its own, whose texts may hold names of accounts."""
        try:
            if self._opened is None:
                self._opened = REMOTE[self._url.scheme][1](self._url)
            yield self._opened
        except (FileNotFoundError, InputError):
            raise
        except OSError:
            self._opened = None
            raise
        except Exception as error:
            self._opened = None
            raise OSError(type(error).__name__) from None


def _time_of(entry: dict[str, Any]) -> float:
    """When a file was changed, as far as the place tells; only used to see whether it was."""
    for name in ("LastModified", "mtime", "modified", "created"):
        modified = entry.get(name)
        if isinstance(modified, datetime):
            return modified.timestamp()
        if isinstance(modified, int | float):
            return float(modified)
    return 0.0


# At the end of each name, of a digest.
_DIGITS: Final = 32


class FolderStorage(Protocol):
    """Files in rounds, of one session. All raise OSError where the place cannot be reached.

    What keeps the place is not trusted: it may hide files, cut them short or show old ones. Another distribution brings one as
    an entry point of the group ``quietmean.folders``, named by the scheme of its URLs: a function of URL and session.
    """

    def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
        """Name, size in bytes and time of change of the files of a round whose names are a prefix and 32 more signs."""

    def read(self, round_: str, name: str, limit: int) -> bytes | None:
        """A file's content; None if it is gone, no file, or longer than ``limit``."""

    def put(self, round_: str, name: str, file: bytes) -> None:
        """Write a file, whole or not at all, and durably."""


class DiskPlace:
    """A folder of the file system; each session has one of its own in it."""

    def __init__(self, folder: Path, session: str) -> None:
        self._folder = folder / session[:32]

    def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
        try:
            entries = os.scandir(self._folder / round_)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                # Whatever else lies there costs no more than its name.
                if entry.name[:-_DIGITS] not in prefixes:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    # Links lead anywhere.
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield entry.name, status.st_size, status.st_mtime

    def read(self, round_: str, name: str, limit: int) -> bytes | None:
        try:
            # No Path: each name that it has ever seen, strangers' too, goes into a table of this process.
            handle = open_strange(f"{self._folder}{os.sep}{round_}{os.sep}{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            # A link, or not to be read by this user: perhaps later.
            return None
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            content = file.read(limit + 1)
        return content if len(content) <= limit else None

    def put(self, round_: str, name: str, file: bytes) -> None:
        # Anyone who rules the folder must not lead this party to another place.
        root, session = self._folder.parent, self._folder.name
        put_inside(root, (session, round_), name, f".{fresh_bytes(8).hex()}", file)


def parse_folder(text: str) -> Callable[[str], FolderStorage]:
    """The place that a site named, for a session by its digest: a folder that exists, or a URL.

    Raises :class:`InputError` for what is neither, for credentials in a URL, and where a library is missing.
    """
    if "::" in text:
        raise InputError(f"folder {text.partition('::')[0]}::... is a chain of places. Name one place.")
    parts = urlsplit(text)
    if "://" in text:
        # Whose account it is at the other end of ssh is public.
        if parts.password is not None or (parts.username is not None and parts.scheme != "sftp"):
            raise InputError(
                "the folder's URL has credentials in it, which others can see. Leave them to the system's own settings."
            )
        if parts.scheme in REMOTE:
            RemotePlace(text, "")
            return partial(RemotePlace, text)
        others = {entry.name: entry for entry in entry_points(group="quietmean.folders")}
        if parts.scheme in others:
            return partial(loaded(others[parts.scheme], "folder"), text)
        schemes = ", ".join(f"{scheme}://" for scheme in (*REMOTE, *sorted(others)))
        raise InputError(f"folder {parts.scheme}://... cannot be used. Give a path, or one of {schemes}.")
    folder = Path(text)
    if not folder.is_dir():
        raise InputError(f"folder {text!r} does not exist. Make it, or mount it, or give the path of one.")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise InputError(f"folder {text!r} cannot be read and written here. Ask who keeps it for the right to do so.")
    return partial(DiskPlace, folder.resolve())


# Looked at so many files of one slot at a time.
CANDIDATES: Final = 256
# No more is opened in a look once so many bytes were read in vain (8 MiB): who writes there chooses how long its files are.
_IN_VAIN: Final = 8 << 20
# Files remembered as refused, by slot; then all are looked at again.
_REMEMBERED: Final = 100_000
# Name, size and time of a file, as a place lists it.
_Listed: TypeAlias = tuple[str, int, float]


@dataclass(frozen=True)
class OwnFile:
    """A file of this party, under the name that it has in the folder."""

    name: str
    file: bytes = field(repr=False)

    @classmethod
    def of(cls, slot: Slot, file: bytes) -> Self:
        return cls(slot.name(file), file)


@dataclass(frozen=True)
class Seen:
    """What one look into a slot found: ``content`` of the one valid file, or what is wrong with its sender. ``size``: as read."""

    slot: Slot
    size: int
    content: bytes = b""
    fault: str = ""


class Poller:
    """Looks for the messages of others in a folder.

    ``largest``: size in bytes of the longest file that can be valid.
    """

    def __init__(self, place: FolderStorage, parties: Parties, mailbox: Mailbox, largest: int) -> None:
        self._place, self._parties, self._mailbox, self._largest = place, parties, mailbox, largest
        # By hashes of name, size and time, which nobody outside knows: files that are not valid, own ones that are as put.
        self._refused: dict[Slot, set[int]] = {}
        self._intact: dict[Slot, int] = {}
        # Bytes that the last look read of files that are none of a party's: of many, one may be valid.
        self.in_vain = 0
        # A look whose caller was cancelled goes on in its thread: the next one waits for its end.
        self._looking = Lock()

    def look(self, outgoing: Mapping[Slot, OwnFile], due: Collection[Slot], own: Collection[Slot]) -> list[Seen]:
        """Put what is missing, read what is due. ``own``: where a message of this party would be that its store does not know.

        Raises OSError where the place cannot be reached, :class:`InputError` where the store is not the newest of this party.
        """
        with self._looking:
            return self._look(outgoing, due, own)

    def _look(self, outgoing: Mapping[Slot, OwnFile], due: Collection[Slot], own: Collection[Slot]) -> list[Seen]:
        self.in_vain = 0
        rounds: dict[str, list[Slot]] = {}
        for slot in (*outgoing, *due, *own):
            rounds.setdefault(slot.round, []).append(slot)
        files, expected = [], set(due)
        for round_, slots in rounds.items():
            names = {outgoing[slot].name for slot in slots if slot in outgoing}
            listed, put = self._list(round_, slots, names)
            for slot in slots:
                there = listed.get(slot.prefix, [])
                if slot in expected:
                    if (seen := self._read(slot, there)) is not None:
                        files.append(seen)
                    continue
                self._require_newest(slot, there)
                if slot in outgoing:
                    self._keep_there(slot, outgoing[slot], put.get(outgoing[slot].name))
        return files

    def _keep_there(self, slot: Slot, own: OwnFile, listed: _Listed | None) -> None:
        """Put a file, again where somebody took it away, cut it short or wrote over it."""
        if listed is not None and hash(listed) == self._intact.get(slot):
            return
        if listed is None or self._place.read(slot.round, own.name, len(own.file)) != own.file:
            self._place.put(slot.round, own.name, own.file)
        else:
            self._intact[slot] = hash(listed)

    def _list(
        self, round_: str, slots: Collection[Slot], own: Collection[str]
    ) -> tuple[dict[str, list[_Listed]], dict[str, _Listed]]:
        """List at most so many candidates of each slot, without those that were refused and did not change; and the
        ``own`` ones."""
        by_prefix = {slot.prefix: slot for slot in slots}
        listed: dict[str, list[_Listed]] = {}
        put: dict[str, _Listed] = {}
        for each in self._place.names(round_, by_prefix.keys()):
            prefix = each[0].rpartition("-")[0] + "-"
            if each[0] in own:
                put[each[0]] = each
                continue
            possible = prefix in by_prefix and OVERHEAD <= each[1] <= self._largest
            if possible and hash(each) not in self._refused.get(by_prefix[prefix], ()):
                candidates = listed.setdefault(prefix, [])
                candidates.append(each)
                if len(candidates) > 16 * CANDIDATES:
                    listed[prefix] = heapq.nsmallest(CANDIDATES, candidates)
        return {prefix: heapq.nsmallest(CANDIDATES, candidates) for prefix, candidates in listed.items()}, put

    def forget(self, slot: Slot) -> None:
        """Look for no messages there any more: none is due."""
        self._refused.pop(slot, None)

    def _files(self, slot: Slot, there: Collection[_Listed]) -> dict[str, bytes]:
        """The valid ones of a slot, by name. Others are not looked at again until they change."""
        files = {}
        for each in there:
            if self.in_vain >= _IN_VAIN:
                break
            name = each[0]
            file = self._place.read(slot.round, name, self._largest)
            if file is not None and is_valid(self._parties, slot, name, file):
                files[name] = file
                continue
            refused = self._refused.setdefault(slot, set())
            if len(refused) >= _REMEMBERED:
                refused.clear()
            refused.add(hash(each))
            self.in_vain += each[1]
        return files

    def _read(self, slot: Slot, there: Collection[_Listed]) -> Seen | None:
        files = self._files(slot, there)
        if len(files) > 1:
            size = sum(map(len, files.values()))
            return Seen(slot, size, fault=f"it put {len(files)} different files in one place: its store was copied, or it lies")
        for name, file in files.items():
            try:
                return Seen(slot, len(file), open_file(self._parties, slot, name, file, self._mailbox))
            except PeerError as error:
                return Seen(slot, len(file), fault=str(error))
        return None

    def _require_newest(self, slot: Slot, others: Collection[_Listed]) -> None:
        """Raises :class:`InputError` where a valid file of this party is there that its outbox does not have."""
        if self._files(slot, others):
            raise InputError(
                "the folder has a file of this party that is not in its store. So the store was restored or copied. "
                "Go on with the newest store, or stay out of this study."
            )
