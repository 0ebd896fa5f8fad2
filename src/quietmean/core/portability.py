"""Calls of the operating system that are not the same everywhere: Linux, macOS and Windows behind one seam.

docs/measurements/platforms.md says what is weaker on other systems than on Linux.

Nothing of a file that grows at its end counts that an fsync did not bring to the disk. After an fsync that failed the system
calls what it still holds written: the next one succeeds without writing it, and anyone who reads sees it until the power is cut.
So what such a call was about is cut off, on the disk too, or written anew before it counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl
    import resource

# Windows locks bytes, also such as the file does not have yet: this one is far behind its end.
_LOCK_AT = 1 << 62


def lock(handle: int, *, shared: bool = False) -> None:
    """Wait until this process alone has the open file, or with others that only read it, until the file is closed.

    Windows knows no shared locks here: readers exclude each other, too.
    """
    if sys.platform == "win32":
        os.lseek(handle, _LOCK_AT, os.SEEK_SET)
        while True:
            # Windows gives up waiting after ten seconds.
            with contextlib.suppress(OSError):
                msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
                break
        os.lseek(handle, 0, os.SEEK_SET)
    else:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(handle: int) -> bool:
    """Whether this process alone has the open file from now on, until it is closed; without waiting for others."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, _LOCK_AT, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def locked(handle: int) -> Iterator[int]:
    """While this process alone has the open file, which is closed at the end."""
    try:
        lock(handle)
        yield handle
    finally:
        os.close(handle)


def return_free_memory() -> None:
    """What was freed goes back to the system. The C library of Linux keeps blocks of up to 32 MB for later ones of their size."""
    if sys.platform == "linux":
        # Other C libraries have no such function, and keep less.
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def sync_data(handle: int) -> None:
    """The content of an open file is on the disk when this returns."""
    if sys.platform == "linux":
        os.fdatasync(handle)
    elif sys.platform == "darwin":
        # fsync leaves it in the cache of the disk there.
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Names of new files in ``folder`` are on the disk when this returns; Windows does that by itself."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folders(folder: Path, mode: int = 0o777) -> None:
    """Make a folder, and those that it is in, where they are missing: their names are on the disk when this returns."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode, exist_ok=True)
    # The folder may be of a process that ended here.
    for place in missing or [folder]:
        sync_folder(place.parent)


def is_mounted_read_only(folder: Path) -> bool:
    """Whether nothing can be written in the file system of a folder; never on Windows, which does not say. Raises OSError."""
    return sys.platform != "win32" and bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def read_at(handle: int, size: int, offset: int) -> bytes:
    """``size`` bytes from ``offset`` on, or fewer at the end of the file. For one thread at a time."""
    if sys.platform == "win32":
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)
    return os.pread(handle, size, offset)


def write_at(handle: int, content: memoryview, offset: int) -> int:
    """Write from ``offset`` on, and return how many bytes it took. For one thread at a time."""
    if sys.platform == "win32":
        os.lseek(handle, offset, os.SEEK_SET)
        return os.write(handle, content)
    return os.pwrite(handle, content, offset)


class TooManyCellsError(Exception):
    """A file has more cells than memory is for, and than are to be read."""


def limit_process(memory: int, seconds: int) -> None:
    """This process gets no more bytes and seconds of processor time, or what it had to be content with before; not on Windows.

    Its system ends it where it takes more time, also when the process that began it is gone. Nor does it write an image of itself
    where it ends.
    """
    if sys.platform != "win32":
        for kind, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
            hard = resource.getrlimit(kind)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(kind, (limit, limit))


def open_private(path: Path, flags: int) -> int:
    """Open a file of bytes; a new one is its owner's alone. On Windows its folder decides who may read it.

    Raises :class:`OSError` for a pipe or a device, which keeps nothing.
    """
    if sys.platform == "win32":
        flags |= os.O_BINARY
    handle = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EEXIST, "it is not a plain file")
    return handle


def open_strange(path: str | Path) -> int:
    """Open a file that somebody else may have put there, to read it: no link is followed, and no pipe is waited for."""
    flags = os.O_RDONLY
    if sys.platform == "win32":
        flags |= os.O_BINARY
    else:
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
    return os.open(path, flags)


def owner_only(handle: int) -> None:
    """Let nobody but its owner read or write an open file, whatever the umask of this process; does nothing on Windows."""
    if sys.platform != "win32":
        os.fchmod(handle, 0o600)


def mode_of(path: Path) -> int:
    """The rights in a file's mode, such as 0o640. Windows has none there, only for its owner. Raises :class:`OSError`."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return mode & stat.S_IRWXU if sys.platform == "win32" else mode


def replace_durably(path: Path, content: bytes) -> None:
    """Write a private file whole or not at all: after a crash it holds the old content or the new. Raises :class:`OSError`."""
    replace_whole(path, content, durable=True)


def replace_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace a file whole for its readers; what a crash of the machine leaves is not known, unless ``durable``."""
    with replacing(path, durable=durable) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Replace a file that is written piece by piece: it is there whole once the ``with`` statement ends normally."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    # Left by a process with the same number that crashed.
    fresh.unlink(missing_ok=True)
    new = not path.exists()
    try:
        with os.fdopen(open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            owner_only(file.fileno())
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if durable:
        try:
            sync_folder(path.parent)
        except OSError:
            # Who finds it later would take it for one whose name is on the disk.
            if new:
                path.unlink(missing_ok=True)
            raise


def put_inside(root: Path, folders: Sequence[str], name: str, fresh: str, content: bytes) -> None:
    """Write ``root``/folders/name whole or not at all, first as ``fresh``, and durably. The folders are made where needed.

    Others may write in ``root``: a link in place of one of the folders is not followed. Raises :class:`OSError`.
    """
    if sys.platform == "win32":
        target = root
        for folder in folders:
            target /= folder
            target.mkdir(exist_ok=True)
            if target.is_symlink() or target.resolve() != target.parent.resolve() / folder:
                raise NotADirectoryError(errno.ENOTDIR, "it is a link, which is not followed", str(target))
        try:
            with (target / fresh).open("xb") as file:
                write_down(file, content)
            (target / fresh).replace(target / name)
        except BaseException:
            (target / fresh).unlink(missing_ok=True)
            raise
        return
    flags = os.O_RDONLY | os.O_DIRECTORY
    with contextlib.ExitStack() as stack:
        opened = [os.open(root, flags)]
        stack.callback(os.close, opened[0])
        for folder in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, dir_fd=opened[-1])
            opened.append(os.open(folder, flags | os.O_NOFOLLOW, dir_fd=opened[-1]))
            stack.callback(os.close, opened[-1])
        inner = opened[-1]
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=inner)
            with os.fdopen(handle, "wb") as file:
                write_down(file, content)
            os.rename(fresh, name, src_dir_fd=inner, dst_dir_fd=inner)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh, dir_fd=inner)
            raise
        for one_handle in reversed(opened):
            os.fsync(one_handle)


def write_down(file: IO[bytes], content: bytes) -> None:
    """All of it is on the disk when this returns."""
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def allow_descriptors(count: int) -> int:
    """Raise the limit on open files and sockets to ``wanted`` as far as it may be raised; return how many are possible."""
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < count:
            soft = count if hard == resource.RLIM_INFINITY else min(count, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft != resource.RLIM_INFINITY:
            return min(count, soft)
    return count


def user_of_process() -> int | None:
    """The number of the user whose process this is; None on Windows, which has none."""
    if sys.platform != "win32":
        return os.getuid()
    return None


_PIECE = 1 << 20


def write_log_anew(database: Path) -> None:
    """What is in the write-ahead log of a database, which no other process writes now, is on the disk when this returns.

    SQLite reads there what a process before this one wrote, and builds on it, though its fsync may have failed.
    """
    log = database.with_name(f"{database.name}-wal")
    if log.exists():
        file = GrowingFile(open_private(log, os.O_RDWR), log.stat().st_size)
        try:
            file.write_anew(0)
        finally:
            file.close()


class GrowingFile:
    """An open file that only this process writes; its first ``end`` bytes are certain. What is written behind counts once kept.

    All methods raise :class:`OSError`. After one, :meth:`settle` goes back to what is certain.
    """

    def __init__(self, handle: int, end: int) -> None:
        self.handle = handle
        self._certain = self._end = end
        self._unsure = os.fstat(handle).st_size != end

    @property
    def end(self) -> int:
        """Where the next bytes go."""
        return self._end

    def close(self) -> None:
        os.close(self.handle)

    def write_anew(self, start: int) -> None:
        """What a process before this one wrote from ``start`` on: it may have ended between an fsync that failed and its word."""
        for place in range(start, self._certain, _PIECE):
            self._write(read_at(self.handle, min(_PIECE, self._certain - place), place), place)
        self.sync()

    def write(self, content: bytes) -> None:
        """Behind what was written before."""
        self._unsure = True
        self._write(content, self._end)
        self._end += len(content)

    def sync(self) -> None:
        """What was written is on the disk when this returns."""
        sync_data(self.handle)

    def keep(self) -> None:
        """Count what was written as certain, after :meth:`sync` of this file and of all that belongs to it."""
        self._certain, self._unsure = self._end, False

    def settle(self) -> None:
        """Go back to what is certain, on the disk too, before anything is written after an error."""
        if self._unsure:
            self._end = self._certain
            os.ftruncate(self.handle, self._certain)
            sync_data(self.handle)
            self._unsure = False

    def _write(self, content: bytes, place: int) -> None:
        rest = memoryview(content)
        while rest:
            written = write_at(self.handle, rest, place)
            rest, place = rest[written:], place + written
