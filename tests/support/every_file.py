"""More kinds of file than :mod:`support.site_files` has: every document of the program, no plain files, and files of others."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from quietmean.cli.main import main
from quietmean.learning import SharedModel
from quietmean.node.storage import Store
from support.arguments import arguments_of
from support.kinds import SESSION
from support.meeting import meet
from support.site_files import KINDS, Site
from support.site_policy import write_policy

# An account of this machine that is not the one that runs the tests.
NOBODY = 65534
DOCUMENTS = (
    "store", "ledger", "audit log", "log", "approval", "entry", "study's keys", "revocation", "policy", "vouched invitation",
    "session", "sealed session", "model", "format", "utf-16", "empty",
)  # fmt: skip
SPECIAL = ("pipe", "device", "socket", "of somebody else", "in a folder of somebody else")
EVERY_KIND = KINDS + DOCUMENTS + SPECIAL


def documents(site: Site, folder: Path) -> dict[str, Path]:
    """One of each kind, outside the site's folder, which is as it was."""
    made = {kind: folder / kind.replace("'", "") for kind in DOCUMENTS}
    Store.open(made["store"], "00" * 32, np.zeros(1), 1.0).close()
    main(shlex.split(f"site budget --ledger {shlex.quote(str(made['ledger']))} --account ages --budget 1 1e-6"))
    made["log"].write_text("2026-01-01T00:00:00+0000 INFO a line\n")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        main(shlex.split("site contract study.toml --roster roster.toml --key ada.key --policy owned.toml --json"))
    main(
        shlex.split(
            "site approve study.toml --roster roster.toml --party ada --owner-key owner.key --account ages --until 2090-01-01 "
            f"--policy owned.toml --accept {json.loads(shown.getvalue())['accept']} --out {made['approval']}"
        )
    )
    meeting = meet(folder / "met", tables=SESSION.tables)
    made["sealed session"].write_bytes(meeting.seal().signed.to_file())
    SESSION.write(folder)
    (folder / "study.toml").rename(made["session"])
    SharedModel({"w": np.zeros(3)}).save(made["model"])
    write_policy(made["policy"], least_colluding=0)
    made["utf-16"].write_bytes(Path("study.toml").read_text().encode("utf-16"))
    made["empty"].touch()
    made["format"].write_text('dates = "%d/%m/%Y"\n')
    (keys,) = site.folder.glob("south-*.studykeys")
    for kind, name in {
        "audit log": "share/quietmean/audit.jsonl",
        "entry": "south.entry",
        "study's keys": keys.name,
        "revocation": "south.key.revocation",
        "vouched invitation": "vouched.invitation",
    }.items():
        shutil.copy(site.folder / name, made[kind])
    return made


def put(site: Site, made: dict[str, Path], kind: str, place: Path) -> None:
    """A file of this kind, or what is no file."""
    if kind in made:
        shutil.copy(made[kind], place)
        place.chmod(0o600)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    elif kind == "socket":
        with contextlib.chdir(place.parent), socket.socket(socket.AF_UNIX) as one:
            one.bind(place.name)
    elif kind.endswith("somebody else"):
        if "folder" in kind:
            place.mkdir(mode=0o700)
            os.chown(place, NOBODY, NOBODY)
        else:
            site.put("csv", place)
            place.chmod(0o600)
            os.chown(place, NOBODY, NOBODY)
    else:
        site.put(kind, place)


@contextmanager
def nobody_waits(pipe: Path) -> Iterator[None]:
    """At the other end of a pipe somebody reads all the time, and writes nothing: what is read from it is empty."""
    over = threading.Event()
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def keep_open() -> None:
        while not over.wait(0.001):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

    thread = threading.Thread(target=keep_open)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.close(reader)


def rights(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What kind of file each is, who may use it, and whose it is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        found[str(path.relative_to(folder))] = (state.st_mode, state.st_uid, state.st_gid)
    return found


def path_options(command: str) -> Iterator[tuple[str, int | None]]:
    """Every option whose value is text or a path, by its name, with its place where it needs no name."""
    for one in arguments_of(command):
        if "Path" in str(one.hint) or "str" in str(one.hint):
            yield one.names[0], one.index
