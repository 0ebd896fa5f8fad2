"""A port whose process hands connections over, and the processes that wait for them: limits, rights, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from quietmean.core.errors import InputError
from quietmean.core.portability import lock
from quietmean.node.net import (
    HandedOver,
    hand_over,
    handover,
    open_socket,
)
from quietmean.node.port import MOST, PortLimits, PortServer, server_name
from quietmean.node.port import server as server_module
from support.shared_port import client_hello, short_folder

SOCKET_NAME = "00112233445566778899aabbccddeeff"
NAME = f"{SOCKET_NAME}.invalid"
HELLO = client_hello(NAME)
# So long something is waited for that must not come, and for what must.
SOON, LONG = 0.3, 20.0


@dataclass
class Study:
    """A process's part: what it was handed over."""

    sockets: list[socket.socket] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, connected: socket.socket, address: str, host: str) -> None:
        assert address.startswith(f"{host}:")
        self.sockets.append(connected)
        self.hosts.append(host)
        self.came.set()

    def close(self) -> None:
        for each in self.sockets:
            each.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


@contextlib.contextmanager
def study(folder: Path, socket_name: str = SOCKET_NAME) -> Iterator[Study]:
    found, waiting = Study(), HandedOver(folder, socket_name)
    waiting.start(found.take)
    try:
        yield found
    finally:
        waiting.close()
        found.close()


@contextlib.asynccontextmanager
async def port(folder: Path, limits: PortLimits | None = None) -> AsyncIterator[tuple[PortServer, tuple[str, int]]]:
    listening, stop = open_socket(("127.0.0.1", 0)), asyncio.Event()
    server = PortServer(listening, folder, limits)
    address = listening.getsockname()
    running = asyncio.create_task(server.run(stop))
    await asyncio.sleep(0)
    try:
        yield server, address
    finally:
        stop.set()
        await running


async def closed(reader: asyncio.StreamReader, within: float = LONG) -> bool:
    """Whether the other side closes, without a word."""
    try:
        async with asyncio.timeout(within):
            return await reader.read(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


# --- handing over ----------------------------------------------------------------------------------------------------


def test_a_connection_goes_to_its_study_unread(folder: Path) -> None:
    async def work() -> None:
        async with port(folder) as (server, address):
            with study(folder) as mine, study(folder, "f" * 32) as other:
                reader, writer = await asyncio.open_connection(*address)
                writer.write(HELLO + b"and more")
                async with asyncio.timeout(LONG):
                    await mine.came.wait()
                (connected,) = mine.sockets
                connected.settimeout(LONG)
                content = await asyncio.to_thread(connected.recv, MOST, socket.MSG_WAITALL | socket.MSG_PEEK)
                assert content == HELLO + b"and more"
                assert mine.hosts == ["127.0.0.1"]
                assert not os.get_inheritable(connected.fileno())
                # The port is out of it: what the study answers arrives, and only the study closes.
                await asyncio.to_thread(connected.sendall, b"here")
                assert await reader.readexactly(4) == b"here"
                assert other.sockets == []
                writer.close()
            assert server.counts.handed_over == 1

    asyncio.run(work())


def test_it_may_come_in_pieces(folder: Path) -> None:
    async def work() -> None:
        async with port(folder) as (_, address):
            with study(folder) as mine:
                _, writer = await asyncio.open_connection(*address)
                for place in range(0, len(HELLO), 150):
                    assert not mine.came.is_set()
                    writer.write(HELLO[place : place + 150])
                    await asyncio.sleep(0.05)
                async with asyncio.timeout(LONG):
                    await mine.came.wait()
                writer.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    "words",
    [
        client_hello("f" * 32 + ".invalid"),
        client_hello("example.org"),
        client_hello(None),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + bytes(100),
        bytes(MOST),
    ],
    ids=["another study", "a host", "no name", "HTTP", "garbage", "zeros"],
)
def test_whoever_asks_for_nobody_here_is_closed_at_once(folder: Path, words: bytes) -> None:
    async def work() -> None:
        # Not because it took too long.
        async with port(folder, PortLimits(seconds=600.0)) as (server, address):
            with study(folder) as mine:
                reader, writer = await asyncio.open_connection(*address)
                writer.write(words)
                assert await closed(reader)
                writer.close()
                assert mine.sockets == []
            counts = server.counts
            assert counts.refused + counts.absent == counts.accepted == 1

    asyncio.run(work())


@pytest.mark.parametrize("words", [b"", HELLO[:1], HELLO[:-1], b"\x16\x03\x01\x40\x00\x01\x00\x30\x00" + bytes(8)])
def test_whoever_does_not_say_in_time_is_closed(folder: Path, words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(seen: memoryview) -> object:
        nonlocal looks
        looks += 1
        return server_name(seen)

    monkeypatch.setattr(server_module, "server_name", counted)

    async def work() -> None:
        async with port(folder, PortLimits(seconds=SOON)) as (server, address):
            with study(folder):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(words)
                assert await closed(reader)
                writer.close()
            assert server.counts.late == 1
        # What has come is still there unread: it must not be looked at all the time.
        assert looks <= 12

    asyncio.run(work())


def test_a_crowd_gives_way_and_a_party_gets_in(folder: Path) -> None:
    """Twice as many as it holds, from one address: the oldest go, and who asks for a study is handed over."""
    limits = PortLimits(undecided=40, undecided_of_network=30, seconds=600.0)

    async def work() -> None:
        async with port(folder, limits) as (server, address):
            with study(folder) as mine:
                mute = [await asyncio.open_connection(*address) for _ in range(80)]
                _, writer = await asyncio.open_connection(*address)
                writer.write(HELLO)
                async with asyncio.timeout(LONG):
                    await mine.came.wait()
                assert server.counts.evicted == 80 + 1 - limits.undecided_of_network
                assert all(await asyncio.gather(*(closed(reader) for reader, _ in mute[:50])))
                assert not await closed(mute[-1][0], SOON)
                for each in (writer, *(writer for _, writer in mute)):
                    each.close()

    asyncio.run(work())


def test_both_may_be_started_again(folder: Path) -> None:
    """What was handed over lives on without the port; a new study process and a new port find each other."""

    async def ask(address: tuple[str, int], mine: Study) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        mine.came.clear()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HELLO)
        async with asyncio.timeout(LONG):
            await mine.came.wait()
        return reader, writer

    async def work() -> None:
        with study(folder) as mine:
            for _ in range(2):
                async with port(folder) as (_, address):
                    reader, writer = await ask(address, mine)
                await asyncio.to_thread(mine.sockets[-1].sendall, b"here")
                assert await reader.readexactly(4) == b"here"
                writer.close()
        async with port(folder) as (_, address):
            with study(folder) as again:
                _, writer = await ask(address, again)
                writer.close()

    asyncio.run(work())
    assert list(folder.iterdir()) == []


def test_without_descriptors_both_wait_a_little(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def none_left(listening: socket.socket) -> tuple[socket.socket, object]:
        asked.append(listening.family)
        raise OSError(errno.EMFILE, "Too many open files")

    async def work() -> None:
        far = socket.create_server(("127.0.0.1", 0))
        near = socket.create_connection(far.getsockname())
        async with port(folder) as (_, address):
            with study(folder) as mine:
                with monkeypatch.context() as patch:
                    patch.setattr(socket.socket, "accept", none_left)
                    _, writer = await asyncio.open_connection(*address)
                    writer.write(HELLO)
                    assert hand_over(folder, SOCKET_NAME, near)
                    await asyncio.sleep(SOON)
                # Not as fast as the machine can.
                assert 2 <= len(asked) <= 10
                assert set(asked) == {socket.AF_INET, socket.AF_UNIX}
                async with asyncio.timeout(LONG):
                    while len(mine.sockets) < 2:
                        await asyncio.sleep(0.01)
                writer.close()
        near.close()
        far.close()

    asyncio.run(work())


# --- who has a socket ------------------------------------------------------------------------------------------------

_HOLDER = """
import sys
from pathlib import Path
from quietmean.node.net import HandedOver
held = HandedOver(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone(folder: Path) -> None:
    async def served() -> None:
        async with port(folder) as (_, address):
            with study(folder) as mine:
                _, writer = await asyncio.open_connection(*address)
                writer.write(HELLO)
                async with asyncio.timeout(LONG):
                    await mine.came.wait()
                writer.close()

    command = [sys.executable, "-c", _HOLDER, str(folder), SOCKET_NAME]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="another process takes this party's connections"):
            HandedOver(folder, SOCKET_NAME)
        # Of another study.
        HandedOver(folder, "f" * 32).close()
        first.kill()
        first.wait()
    # Its socket is still there, and is taken over.
    assert [path.name for path in folder.iterdir()] == [SOCKET_NAME]
    asyncio.run(served())
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_of_many_that_come_at_once_one_gets_the_socket(folder: Path) -> None:
    # Left behind.
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(folder / SOCKET_NAME))
    command = [sys.executable, "-c", _HOLDER, str(folder), SOCKET_NAME]
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)) for _ in range(3)
        ]
        said = []
        for each in processes:
            assert each.stdout is not None
            said.append(each.stdout.readline())
        for each in processes:
            each.kill()
    assert sorted(said) == [b"", b"", b"held\n"]


def test_a_socket_that_was_cleaned_away_comes_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_LOOK_SECONDS", 0.05)

    async def work() -> None:
        async with port(folder) as (_, address):
            with study(folder) as mine:
                (folder / SOCKET_NAME).unlink()
                folder.rmdir()
                async with asyncio.timeout(LONG):
                    while not (folder / SOCKET_NAME).exists():
                        await asyncio.sleep(0.02)
                _, writer = await asyncio.open_connection(*address)
                writer.write(HELLO)
                async with asyncio.timeout(LONG):
                    await mine.came.wait()
                writer.close()

    asyncio.run(work())


_STRANGER = """
import os, socket, sys
far = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(far.getsockname())
os.setgroups([]); os.setgid(65534); os.setuid(65534)
way = socket.socket(socket.AF_UNIX)
way.connect(sys.argv[1])
try:
    socket.send_fds(way, [b"x"], [near.fileno()])
    way.settimeout(20)
    way.recv(1)
except ConnectionError:
    pass
# Where it was taken, somebody still has the other descriptor.
near.close()
held = far.accept()[0]
held.settimeout(1)
try:
    print("closed" if held.recv(1) == b"" else "taken")
except TimeoutError:
    print("taken")
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="to be somebody else needs root")
def test_another_account_gives_nothing(folder: Path) -> None:
    async def work() -> None:
        with study(folder) as mine:
            # As a mistaken administrator would.
            folder.chmod(0o755)
            (folder / SOCKET_NAME).chmod(0o666)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _STRANGER, str(folder / SOCKET_NAME), stdout=subprocess.PIPE
            )
            output, _ = await process.communicate()
            assert output == b"closed\n"
            assert mine.sockets == []
            folder.chmod(0o700)

    asyncio.run(work())


def test_one_socket_is_opened_at_a_time(folder: Path) -> None:
    handle, opened = os.open(folder, os.O_RDONLY), threading.Event()
    lock(handle)

    def take_socket() -> None:
        held = HandedOver(folder, SOCKET_NAME)
        opened.set()
        held.close()

    other = threading.Thread(target=take_socket, daemon=True)
    other.start()
    assert not opened.wait(SOON)
    os.close(handle)
    assert opened.wait(LONG)
    other.join()


def test_only_one_connection_of_the_network_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a process of this account passes: no file, no second descriptor, and nothing after a wait."""
    monkeypatch.setattr(handover, "_LATE_SECONDS", SOON)

    async def work() -> None:
        with study(folder) as mine:
            before = len(list(Path("/proc/self/fd").iterdir()))
            far = socket.create_server(("127.0.0.1", 0))
            near = socket.create_connection(far.getsockname())
            for handles in ([], [folder_handle := os.open(folder, os.O_RDONLY)], [near.fileno(), folder_handle]):
                with socket.socket(socket.AF_UNIX) as way:
                    way.connect(str(folder / SOCKET_NAME))
                    socket.send_fds(way, [b"x"], handles)
                    await asyncio.sleep(0.05)
            # Who connects and says nothing holds no place for long.
            with socket.socket(socket.AF_UNIX) as mute:
                mute.connect(str(folder / SOCKET_NAME))
                await asyncio.sleep(0.05)
                assert hand_over(folder, SOCKET_NAME, near)
                async with asyncio.timeout(LONG):
                    while len(mine.sockets) < 2:
                        await asyncio.sleep(0.01)
                mute.settimeout(LONG)
                assert await asyncio.to_thread(mute.recv, 1) == b""
            assert {each.getpeername() for each in mine.sockets} == {far.getsockname()}
            os.close(folder_handle)
            mine.close()
            far.close()
            near.close()
            await asyncio.sleep(0.05)
            # Nothing that came besides is kept open.
            assert len(list(Path("/proc/self/fd").iterdir())) <= before

    asyncio.run(work())
