"""What a machine refuses for now: which errors are of that kind, and the one sentence that each becomes."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError, StorageError
from quietmean.core.outage import Trouble as Kind
from quietmean.core.outage import outage_of, refuse_outage, require_space, trouble_of
from quietmean.core.output import Output
from quietmean.ledger import Ledger
from quietmean.node import Identity
from quietmean.node.folder.slot import Outbox
from quietmean.node.storage import Store
from quietmean.node.tasks import Supervisor, Tasks
from quietmean.randomness import Seed
from quietmean.studies.agreement.study_keys import Distrusted, write_private
from quietmean.studies.party.accounts import people_key
from quietmean.studies.party.executions import Register
from support.command_lines import fails
from support.disk import KINDS, STATEMENT_ERRORS, SYSTEM_ERRORS, Trouble, failing_disk
from support.refusals import raised

KEY = Identity.generate().public_key


def system(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("errors", [STATEMENT_ERRORS, SYSTEM_ERRORS], ids=["sqlite", "system"])
def test_errors_of_disk_and_memory_are_known(errors: dict[str, Callable[[], Exception]], kind: str) -> None:
    outage = outage_of(errors[kind](), Path("stay.store"))
    assert outage is not None
    assert outage.exit_code == 75
    assert "stay.store" in str(outage)
    assert str(outage).endswith(("ake room, the study goes on.", "End what else runs on this machine, the study goes on."))
    assert "another" not in str(outage)


@pytest.mark.parametrize("text", ["disk I/O error", "database or disk is full"])
def test_older_layers_have_words_only(text: str) -> None:
    assert outage_of(sqlite3.OperationalError(text), Path("s")) is not None


@pytest.mark.parametrize(
    "error",
    [
        system(errno.EACCES),
        system(errno.ENOENT),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        TimeoutError(),
        sqlite3.OperationalError("no such table: fact"),
        sqlite3.DatabaseError("database disk image is malformed"),
        sqlite3.IntegrityError("UNIQUE constraint failed"),
        ValueError("full"),
    ],
    ids=repr,
)
def test_other_errors_are_not(error: Exception) -> None:
    assert outage_of(error, Path("s")) is None


def of_sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = code
    return error


NOT_WRITABLE = [
    of_sqlite(sqlite3.SQLITE_CANTOPEN),
    of_sqlite(sqlite3.SQLITE_CANTOPEN | 2 << 8),
    of_sqlite(sqlite3.SQLITE_READONLY),
    of_sqlite(sqlite3.SQLITE_PERM),
]


@pytest.mark.parametrize("error", NOT_WRITABLE, ids=lambda error: str(error.sqlite_errorcode))
def test_what_cannot_be_opened_is_a_mistake_only_where_the_file_system_forbids_it(
    error: sqlite3.OperationalError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full or failing disk gives the same error as a folder without rights, also when a file is opened first."""
    path = tmp_path / "own.store"
    for _ in range(2):
        raised(StorageError, r"Repair it or make room, then run the same command again", refuse_outage, error, path)
        path.touch()
    refuse_outage(error, tmp_path / "nowhere" / "own.store")
    refuse_outage(error, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("quietmean.core.outage.is_mounted_read_only", lambda folder: True)
        refuse_outage(error, path)
    for forbidden in (tmp_path, path):
        with monkeypatch.context() as patch:
            patch.setattr(os, "access", lambda place, mode, forbidden=forbidden: place != forbidden)
            refuse_outage(error, path)


def test_every_error_of_sqlite_is_of_one_kind() -> None:
    """By its primary code, whatever the extended one is: a caller's word about a file follows from that alone."""
    expected = {
        Kind.FULL: {sqlite3.SQLITE_FULL},
        Kind.FAILS: {sqlite3.SQLITE_IOERR},
        Kind.MEMORY: {sqlite3.SQLITE_NOMEM},
        Kind.IN_USE: {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL},
        Kind.NOT_WRITABLE: {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM},
        Kind.DAMAGED: {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR},
    }
    found: dict[Kind | None, set[int]] = {}
    for code in range(1, 29):
        (trouble,) = {trouble_of(of_sqlite(code | extended << 8)) for extended in (0, 1, 3, 40)}
        found.setdefault(trouble, set()).add(code)
    assert {trouble: codes for trouble, codes in found.items() if trouble is not None} == expected
    # Memory is not a disk that fails.
    assert trouble_of(of_sqlite(sqlite3.SQLITE_IOERR_NOMEM)) is Kind.MEMORY


# --- a store -----------------------------------------------------------------------------------------------------------


def store_at(path: Path) -> Store:
    return Store.open(path, "a" * 64, np.zeros(2), 1.0, lambda: Seed(bytes(32)))


def test_a_store_on_a_full_disk_is_no_reason_for_another_one(tmp_path: Path) -> None:
    """Not when it is opened, and not later; it is the same store as before once there is room."""
    for place in range(3):
        with failing_disk(Trouble(0, place, "full")), pytest.raises(StorageError, match=r"no space beside .*0.store. Make room"):
            store_at(tmp_path / "0.store")
    store = store_at(tmp_path / "0.store")
    nonce = store.nonce
    store.close()
    with failing_disk() as disk:
        store_at(tmp_path / "0.store").close()
    with failing_disk(Trouble(0, len(disk.names[0]), "fsync", after=True, times=3)):
        store = store_at(tmp_path / "0.store")
        raised(StorageError, "fails or has no room", store.save_standing, b"somewhere")
    assert store.stalled
    # What is on the disk is not known: nothing of it is told.
    raised(StorageError, "", store.progress)
    store.reopen()
    assert not store.stalled
    assert store.nonce == nonce
    assert store.progress() is None
    store.save_standing(b"somewhere")
    assert store.progress() == b"somewhere"
    store.close()


def test_a_damaged_store_is_one_sentence(tmp_path: Path) -> None:
    store = store_at(tmp_path / "s")
    store._database.execute("DELETE FROM fact WHERE name = 'nonce'")
    with pytest.raises(InputError, match=r"damaged .*Check the disk"):
        _ = store.nonce
    store.close()


def test_an_outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(sqlite3.Connection):
        full = False

        def execute(self, *given: Any) -> sqlite3.Cursor:
            if self.full:
                raise STATEMENT_ERRORS["full"]()
            return super().execute(*given)

    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: plain(*given, **more, factory=Full))
    kept = Outbox(tmp_path / "o", "session", 0)
    Full.full = True
    raised(StorageError, "no space beside", kept.next_number, 1)
    kept.close()
    raised(StorageError, "no space beside", Outbox, tmp_path / "o", "session", 0)


def test_space_is_asked_for_before_the_start(tmp_path: Path) -> None:
    require_space(tmp_path / "s", 10)
    with pytest.raises(StorageError, match=r"MB are free, and this study takes .* MB or more. Make room, the study goes on"):
        require_space(tmp_path / "s", 10**18)


# --- what commands write -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_file_of_a_command(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise system(number)

    monkeypatch.setattr(os, "fsync", full)
    raised(StorageError, r"ake room, then run the same command again", Output(tmp_path / "plan.json", "the plan").write, b"{}")
    assert list(tmp_path.iterdir()) == []


def _keys(folder: Path) -> None:
    """As a key that is made once."""
    if not (folder / "keys").exists():
        write_private(folder / "keys", b"keys")


WRITTEN: dict[str, Callable[[Path], object]] = {
    "receipt": lambda folder: Output(folder / "receipt", "the receipt").write(b"{}"),
    "private file": _keys,
    "register": lambda folder: Register(folder).put("study", b"d" * 32, "north"),
    "distrusted keys": lambda folder: Distrusted(folder / "distrusted").add(KEY),
    "key for people": people_key,
}


@pytest.mark.parametrize("write", WRITTEN.values(), ids=list(WRITTEN))
def test_what_may_not_be_on_the_disk_is_written_anew(
    write: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name was there, and the folder's fsync failed: the same once more does all of it again, and not only says so."""
    sync, synced = os.fsync, list[bool]()

    def fails(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise system(errno.EIO)
        sync(handle)

    def recorded(handle: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(handle).st_mode))
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        raised(StorageError, "then run the same command again", write, tmp_path)
    monkeypatch.setattr(os, "fsync", recorded)
    write(tmp_path)
    assert synced[-2:] == [False, True]


def test_a_ledger(tmp_path: Path) -> None:
    class Full(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
            if sql.startswith("COMMIT"):
                raise STATEMENT_ERRORS["full"]()
            return super().execute(sql, *given)

    def connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, factory=Full)

    with pytest.raises(StorageError, match=r"no space beside .*ledger. Make room, then run the same command again"):
        Ledger.open(tmp_path / "ledger", create=True, connect=connect)


@pytest.mark.parametrize("error", [system(errno.ENOSPC), sqlite3.OperationalError("disk I/O error")], ids=repr)
def test_a_command_ends_with_75(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def find_stores(folder: Path) -> None:
        raise error

    monkeypatch.setattr("quietmean.cli.records.find_stores", find_stores)
    fails(["site", "clean", "."], capsys, "then run the same command again", code=75)


# --- tasks with an owner ---------------------------------------------------------------------------------------------------


async def raising(error: BaseException) -> None:
    raise error


async def test_the_first_error_beside_ends_the_work() -> None:
    supervisor = Supervisor()
    beside, ended = Tasks(supervisor.fail), []

    async def work() -> None:
        beside.spawn(raising(MemoryError()))
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(True)

    with pytest.raises(MemoryError):
        await supervisor.run(work())
    assert ended == [True]
    assert len(beside) == 0


def test_what_has_ended_before_an_error_counts() -> None:
    async def story() -> int:
        supervisor = Supervisor()

        async def work() -> int:
            supervisor.fail(MemoryError())
            return 7

        return await supervisor.run(work())

    assert asyncio.run(story()) == 7
