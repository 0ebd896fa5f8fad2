"""The page on networks: its commands, typed by two parties whose only way out is a proxy, to a relay with a certificate."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quietmean.cli.main import main
from support.consent import accept as yes_of
from support.outside import HOST, Authority, Proxy
from support.pages import commands

PAGE = "take-part/connect.md"
PARTIES = ("north", "south")


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[tuple[Proxy, int]]:
    """A proxy in a thread of its own; whatever host is asked for is the relay at this port."""
    loop, proxy, started = asyncio.new_event_loop(), Proxy(port), threading.Event()
    place: list[int] = []

    async def serve() -> None:
        door = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        place.append(door.sockets[0].getsockname()[1])
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        door.close()
        # What it still passes on.
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    serving = loop.create_task(serve())

    def run() -> None:
        loop.run_until_complete(serving)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(30)
    try:
        yield proxy, place[0]
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(30)


class Sites:
    """A folder and a user configuration for each party, and one for the relay."""

    def __init__(self, folder: Path, port: int, authority: Authority, proxy: int, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._port, self._patch = folder, port, patch
        trusted = dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_BUNDLE"), str(authority.file))
        self._outside = {**trusted, "https_proxy": f"http://127.0.0.1:{proxy}"}
        for name in (*PARTIES, "relay"):
            (folder / name).mkdir()

    def file(self, site: str, name: str) -> Path:
        return self._folder / site / name

    def start(self, site: str, line: str) -> subprocess.Popen[str]:
        words = shlex.split(line)
        command = [sys.executable, "-m", "quietmean.cli.main", *words[1:]] if words[0] == "quietmean" else words
        # Ports below 1024 are the system's: the proxy leads to another one.
        command = [f"127.0.0.1:{self._port}" if word == ":443" else word for word in command]
        environment = {**os.environ, "XDG_CONFIG_HOME": str(self._folder / site)}
        for name in ("no_proxy", "NO_PROXY"):
            environment.pop(name, None)
        return subprocess.Popen(
            command,
            cwd=self._folder / site,
            env={**environment, **self._outside},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def here(self, site: str, line: str) -> None:
        """In this process, which is quicker: what the other pages test in one of its own."""
        self._patch.chdir(self._folder / site)
        self._patch.setenv("XDG_CONFIG_HOME", str(self._folder / site))
        main(shlex.split(line)[1:])

    def type(self, site: str, line: str) -> str:
        return finished(self.start(site, line))


def finished(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


@pytest.mark.slow
def test_the_commands_of_the_page(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, authority = free_ports(1)[0], Authority(tmp_path, "authority")
    relay, health, accept, *_, check, join = commands(PAGE)
    with proxy_to(port) as (proxy, way), contextlib.ExitStack() as stack:
        sites = Sites(tmp_path, port, authority, way, monkeypatch)
        new = "quietmean study new --name ages 'mean(age in 0..100)' --colluding 1 --protocol local-dp --out study.toml"
        for line in (new, "quietmean key new --key north.key --name north --address relay:relay.example:443"):
            sites.here("north", line)
        sites.here("north", "quietmean study invite study.toml --key north.key --out study.invitation")
        for number, name in enumerate(PARTIES):
            if name != "north":
                shutil.copy(sites.file("north", "study.invitation"), sites.file(name, "study.invitation"))
            sites.here(name, accept.replace("south", name))
            if name != "north":
                shutil.copy(sites.file(name, f"{name}.entry"), sites.file("north", f"{name}.entry"))
            sites.file(name, f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20 + 10 * number, 60 + 10 * number))))
        entries = " ".join(f"{name}.entry" for name in PARTIES)
        sites.here("north", f"quietmean study seal study.invitation {entries} --key north.key --out study.sealed")
        for name in ("south", "relay"):
            shutil.copy(sites.file("north", "study.sealed"), sites.file(name, "study.sealed"))
        for file, name in zip(authority.leaf(HOST), ("relay.pem", "relay.key"), strict=True):
            shutil.copy(file, sites.file("relay", name))

        serving = sites.start("relay", relay)
        stack.callback(serving.communicate)
        stack.callback(serving.kill)
        assert serving.stdout is not None
        assert "listening" in serving.stdout.readline()
        assert json.loads(sites.type("south", health))["status"] == "ok"

        for process in [sites.start(name, check.replace("south", name)) for name in PARTIES]:
            assert "ready: 2 of 2" in finished(process)
        digests = {name: yes_of(name, sites.file("north", "study.sealed")) for name in PARTIES}
        started = [sites.start(name, join.replace("south", name).replace("DIGEST", digests[name])) for name in PARTIES]
        for process in started:
            assert "2 of 2 parties" in finished(process)
        counts = json.loads(sites.type("south", health))["since_start"]
        # In the check and in the study; everybody came through the proxy.
        assert counts["joined"] >= 2
        assert set(proxy.asked) == {b"CONNECT relay.example:443 HTTP/1.1"}
        serving.terminate()
        serving.communicate(timeout=30)
        assert serving.returncode == 0
