"""A PostgreSQL server of the tests' own on this machine, where one is installed: make test-postgresql installs it."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

# Who runs the server where the tests are run by root, whom it refuses.
_USERS = ("postgres", "nobody")
PASSWORD = "Sentinel-Password"  # noqa: S105


def binaries() -> Path | None:
    """The folder with the programs of a server, the newest that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    here = shutil.which("initdb")
    return found[-1].parent if found else Path(here).resolve().parent if here else None


@functools.cache
def server() -> str:
    """The address of a database on a server that ends with this process. Skips the test where none is installed."""
    pytest.importorskip("adbc_driver_postgresql")
    folder = binaries()
    if folder is None or os.name == "nt":
        pytest.skip("no PostgreSQL server is installed here: make test-postgresql")
    home = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    atexit.register(shutil.rmtree, home, True)
    user = next((name for name in _USERS if os.getuid() == 0 and _exists(name)), None)
    if user is not None:
        shutil.chown(home, user)
    (home / "password").write_text(PASSWORD)
    as_user: dict[str, Any] = {"user": user, "cwd": home, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}}
    as_user |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = functools.partial(subprocess.run, check=True, **as_user)
    # Whoever connects by the socket is let in; by the network with a password.
    ways = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={home / 'password'}"]
    run([folder / "initdb", "-D", home / "data", "-U", "owner", "-E", "UTF8", "--no-sync", *ways])
    options = f"-c listen_addresses=127.0.0.1 -p {_port()} -k {home} -c fsync=off -c full_page_writes=off"
    run([folder / "pg_ctl", "-D", home / "data", "-w", "-o", options, "-l", home / "log", "start"])
    atexit.register(lambda: run([folder / "pg_ctl", "-D", home / "data", "-m", "immediate", "stop"]))
    return f"postgresql:///postgres?host={home}&port={_port()}&user=owner"


@functools.cache
def _port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def by_network() -> str:
    """The same server by an address that wants the password."""
    server()
    return f"postgresql://owner@127.0.0.1:{_port()}/postgres"


def _exists(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@functools.cache
def connection() -> Any:
    """With which tests make tables."""
    from adbc_driver_postgresql import dbapi

    opened = dbapi.connect(server(), autocommit=True)
    atexit.register(opened.close)
    return opened


def execute(*statements: str) -> None:
    with connection().cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
