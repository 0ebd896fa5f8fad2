"""Stores as files: which there are, and how one is removed that nobody uses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_file, refuse_other
from quietmean.core.outage import Trouble, outage_of, refuse_outage, trouble_of

_TABLES = {"fact", "inbox", "state"}
_LISTED = "Name one that quietmean site clean FOLDER lists."
_MAGIC = b"SQLite format 3\0"
# Behind the name of a store: of SQLite, of large vectors, and of the status.
_OWN = ("", "-wal", "-shm", "-journal", ".vectors")
# What a session keeps of its last round.
ROUND = ".round"
# The mean of the round before the one that goes on, and what a party put into a folder.
LAST, _OUTBOX = ".last", ".outbox"
_POSTED = tuple(kind + _OUTBOX + journal for kind in ("", ROUND) for journal in ("", "-journal"))
_BESIDE = (*_OWN, ".status.json", *(ROUND + ending for ending in _OWN), ROUND + LAST, *_POSTED)


def find_stores(folder: Path) -> list[Path]:
    """All stores in a folder, by their names. Raises :class:`InputError` if it is none."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".store" and path.is_file())
    except OSError as error:
        raise InputError(f"folder {folder} cannot be read ({error.strerror}). Name the folder that holds stores.") from None


def outbox_path(store: Path) -> Path:
    """Return where a party keeps what it puts into a folder: beside its store."""
    return store.with_name(store.name + _OUTBOX)


def size_of(store: Path) -> int:
    """The bytes of all files of a store."""
    return sum(path.stat().st_size for path in files_of(store))


def files_of(store: Path) -> list[Path]:
    """The files that belong to a store and exist."""
    return [path for ending in _BESIDE if (path := store.with_name(store.name + ending)).is_file()]


def in_use(store: Path) -> bool:
    """Does a process have it open? The store is not changed. Raises :class:`InputError` if the file is not a store."""
    with closing(_opened(store)) as database:
        try:
            _tables_of(database)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            return trouble_of(error) is Trouble.IN_USE
        return False


def remove_store(store: Path) -> list[Path]:
    """Remove all files of a store, in one step for anyone who would open it. Returns what was removed.

    Raises :class:`InputError` if it is not a store or in use.
    """
    with closing(_opened(store)) as database:
        if not _lock(database, store):
            raise InputError(f"store {store} is in use. Stop the process that has it open, then remove it.")
        # Anyone who comes now finds it locked, or gone.
        files = files_of(store)
        for path in files:
            path.unlink(missing_ok=True)
    for path in files_of(store):
        path.unlink(missing_ok=True)
    return files


def require_store(store: Path) -> None:
    """Raises :class:`InputError` for a file that is there and is not a store: before anything is charged."""
    vectors = store.with_name(f"{store.name}.vectors")
    if not store.exists() or (store.is_file() and not store.stat().st_size):
        if vectors.exists():
            raise InputError(f"file {vectors} is there without its store {store}. Name another store, nothing is overwritten.")
        return
    other = InputError(f"file {store} exists already and is not a store. Name another store, nothing is overwritten.")
    try:
        # With its log: a process or a disk may have ended while what is in that was copied here. SQLite takes the log away again.
        with closing(_opened(store, "mode=rw" if _has_log(store) else "immutable=1")) as database:
            tables = _tables_of(database)
    except sqlite3.Error as error:
        if trouble_of(error) is Trouble.IN_USE:
            # Of another process: the node says so.
            return
        # Of a place that forbids it, too: whose log cannot be read there may be this party's.
        if (outage := outage_of(error, store)) is not None:
            raise outage from None
        raise other from None
    except (InputError, UnicodeDecodeError):
        raise other from None
    if tables and not tables >= _TABLES:
        raise other


def empty(store: Path) -> None:
    """A store of this party that no process has open is empty then; at any moment its file is there, as it was or empty."""
    fresh = store.with_name(store.name + ".new")
    fresh.touch(mode=0o600)
    fresh.replace(store)
    for ending in _OWN[1:]:
        store.with_name(store.name + ending).unlink(missing_ok=True)


def _has_log(store: Path) -> bool:
    """Whether there is something beside it that belongs into it."""
    logs = (store.with_name(store.name + ending) for ending in ("-wal", "-journal"))
    return any(log.is_file() and log.stat().st_size for log in logs)


def _opened(store: Path, mode: str = "mode=rw") -> sqlite3.Connection:
    try:
        with store.open("rb") as file:
            start = file.read(len(_MAGIC))
        database = sqlite3.connect(f"file:{quote(str(store.absolute()))}?{mode}", uri=True, timeout=0, isolation_level=None)
    except FileNotFoundError:
        raise InputError(f"store {store} does not exist. {_LISTED}") from None
    except (OSError, sqlite3.Error) as error:
        refuse_outage(error, store)
        raise InputError(f"store {store} cannot be opened. Check the path and your access rights.") from None
    # The first page may be half written, and its journal takes it away again.
    if start != _MAGIC and not _has_log(store):
        database.close()
        refuse_other(kind_of_file(store), f"file {store}", FileKind.STORE)
        raise InputError(f"file {store} is not a store of quietmean. {_LISTED}")
    return database


def _tables_of(database: sqlite3.Connection) -> set[str]:
    return {row[0] for row in database.execute("SELECT name FROM sqlite_master").fetchall()}


def _lock(database: sqlite3.Connection, store: Path) -> bool:
    """Take the store for this process; False if another one has it."""
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        database.execute("BEGIN EXCLUSIVE")
        tables = _tables_of(database)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if trouble_of(error) is Trouble.IN_USE:
            return False
        refuse_outage(error, store)
        raise InputError(f"store {store} cannot be opened, it is damaged. Restore it.") from None
    if not tables >= _TABLES:
        refuse_other(kind_of_file(store), f"file {store}", FileKind.STORE)
        raise InputError(f"file {store} is not a store of quietmean. {_LISTED}")
    return True
