"""What sites keep, made by one release and opened by the next, by commands alone.

    python tools/kept_files.py make FOLDER QUIETMEAN
    python tools/kept_files.py open FOLDER QUIETMEAN

``make`` has three parties take part in a study and in a session: stores, ledgers, audit logs, receipts, a sealed study and keys
stay in FOLDER. One party begins a second study alone and is killed: a store of a running study is there, too. ``open`` has
QUIETMEAN, the command of another release, look at all of it. It prints what it did, and fails where one is not opened.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

NAMES = ("north", "south", "east")
PATIENCE = 120.0
STUDY = '"mean(age in 20..90)" --name ages --colluding 1 --epsilon 4 --delta 1e-6 --protocol cordp-dme'
POLICY = "[policy]\nunattended = true\n"
SESSION = """\
[session]
name = "rounds"
epsilon = 4.0
delta = 1e-6
colluding = 1
dimension = 2
rounds = 2
unit = "party"
"""
PROGRAM = """\
import quietmean as qm

rounds = qm.joined()
while not rounds.over:
    rounds.mean([0.1, 0.2])
"""
# Of each party's folder: what the next release has to say 0 to.
OPENED = (
    "verify receipt ages.receipt.json",
    "result ages.receipt.json",
    "verify receipt rounds.receipt.json",
    "site budget --ledger own.ledger",
    "site status ages.store",
    "site audit verify",
    "verify words ages.sealed --key own.key",
)
# It says so, where it does not go on with a study that another release began.
BEGUN = "site status second.store"


class KeptError(Exception):
    """A command that did not do what it has to."""


def environment(place: Path) -> dict[str, str]:
    """Of a user of its own."""
    own = {f"XDG_{kind}_HOME": str(place / f"home-{kind.lower()}") for kind in ("DATA", "CONFIG", "CACHE")}
    return {**os.environ, **own}


def started(command: str, place: Path, line: str) -> subprocess.Popen[str]:
    words = [*shlex.split(command), *shlex.split(line)]
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(words, cwd=place, env=environment(place), text=True, stdin=nothing, stdout=pipe, stderr=pipe)


def ended(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise KeptError(f"{process.args!r} ends with {process.returncode}: {errors.strip()[-600:]}")
    return output


def run(command: str, place: Path, line: str) -> str:
    return ended(started(command, place, line))


def agreed(command: str, folder: Path, name: str, new: str | None) -> None:
    """A sealed study of the three, in the folder of each; ``new``: the options of a new one, None for its file that is there."""
    north, invitation = folder / "north", f"{name}.invitation"
    if new is not None:
        run(command, north, f"study new {new} --out {name}.toml")
    run(command, north, f"study invite {name}.toml --key own.key --out {invitation}")
    entries = []
    with ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _ in NAMES]
        for party, holder in zip(NAMES, holders, strict=True):
            holder.bind(("127.0.0.1", 0))
            place = folder / party
            (place / invitation).write_bytes((north / invitation).read_bytes())
            address = f"127.0.0.1:{holder.getsockname()[1]}"
            run(command, place, f"accept {invitation} --key own.key --name {party} --address {address} --out {name}.entry")
            (north / f"{name}.{party}.entry").write_bytes((place / f"{name}.entry").read_bytes())
            entries.append(f"{name}.{party}.entry")
    run(command, north, f"study seal {invitation} {' '.join(entries)} --key own.key --out {name}.sealed")
    for party in NAMES[1:]:
        (folder / party / f"{name}.sealed").write_bytes((north / f"{name}.sealed").read_bytes())


def joining(name: str, data: str) -> str:
    own = f"--store {name}.store --ledger own.ledger --receipt {name}.receipt.json --policy policy.toml --yes --json"
    return f"join {name}.sealed --key own.key {data} {own}"


def make(folder: Path, command: str) -> None:
    """Take part, in folders of the three."""
    for number, party in enumerate(NAMES):
        place = folder / party
        place.mkdir(parents=True)
        run(command, place, "key new --key own.key")
        (place / "policy.toml").write_text(POLICY)
        (place / "policy.toml").chmod(0o600)
        (place / "ages.csv").write_text("age\n" + "\n".join(map(str, range(20 + number, 60))) + "\n")
        (place / "program.py").write_text(PROGRAM)
    (folder / "north" / "rounds.toml").write_text(SESSION)
    for name, new, data in (
        ("ages", STUDY, "--data ages.csv --new-account ages"),
        ("rounds", None, "--program program.py --account ages"),
    ):
        agreed(command, folder, name, new)
        for process in [started(command, folder / party, joining(name, data)) for party in NAMES]:
            ended(process)
    agreed(command, folder, "second", STUDY.replace("--name ages", "--name second"))
    begun = started(command, folder / "north", joining("second", "--data ages.csv --account ages"))
    store, end = folder / "north" / "second.store", time.monotonic() + PATIENCE
    while not store.exists() and time.monotonic() < end and begun.poll() is None:
        time.sleep(0.05)
    time.sleep(1.0)
    begun.kill()
    begun.communicate()
    about = {"quietmean": run(command, folder, "--version").strip(), "opened": OPENED}
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")


def opened(folder: Path, command: str) -> list[str]:
    """What was opened of each party. Raises :class:`KeptError` for what was not."""
    about = json.loads((folder / "about.json").read_text())
    done = []
    for party in NAMES:
        for line in about["opened"]:
            run(command, folder / party, line)
            done.append(f"{party}: {line}")
    look = started(command, folder / "north", BEGUN)
    output, errors = look.communicate(timeout=PATIENCE)
    # It is read, as that of a node that ended, or refused in a sentence that names the version.
    if look.returncode not in (0, 2, 3) or (look.returncode == 2 and "version of quietmean" not in errors):
        raise KeptError(f"{BEGUN} ends with {look.returncode}: {errors.strip()[-600:]}")
    return [*done, f"north: {BEGUN}: {(output + errors).strip().partition(chr(10))[0]}"]


def main() -> int:
    what, folder, command = sys.argv[1:]
    try:
        if what == "make":
            make(Path(folder), command)
        else:
            print("\n".join(opened(Path(folder), command)))
    except KeptError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
