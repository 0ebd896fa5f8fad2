"""Connections that arrive at a port whose process is another one, and are handed over through a folder of this account.

In the folder each process that takes part in a study has a Unix socket, named after the party (:meth:`Group.socket_name`). The
owner of the port connects to it, passes the descriptor of a connection with one byte, and forgets it: neither has to know the
other, and either may be started again at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quietmean.core.errors import InputError
from quietmean.core.outage import refuse_outage
from quietmean.core.portability import locked, user_of_process
from quietmean.core.site_options import NodeOptions
from quietmean.node.net.account_socket import user_of_peer
from quietmean.node.net.addresses import Address, format_address, parse_address
from quietmean.node.net.labels import DIGITS
from quietmean.node.net.listener import Acceptor

# Longest path of a Unix socket that all systems take, in bytes.
_LONGEST_PATH: Final = 103
# Connections that were handed over and not taken yet: whoever takes none is as good as not there.
_QUEUE: Final = 128
# How long a descriptor may take after its connection (s): of a process of this account, which sends it at once.
_LATE_SECONDS: Final = 1.0
# So often it is looked whether the socket is still in its place, which a cleaner of old files may have removed (s).
_LOOK_SECONDS: Final = 2.0
_BYTE: Final = b"\1"
# What to call the dialling side, and its host.
Take = Callable[[socket.socket, str, str], None]


def runtime_folder(path: Path) -> Path:
    """The whole path of the folder, made if it is not there, with this account as the only one that may look into it.

    Raises :class:`InputError` for one of another account, or open to others, and on Windows.
    """
    if sys.platform == "win32":
        raise InputError("several studies on one port need Linux or macOS: on Windows give each study a port of its own")
    path = path.absolute()
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
    except OSError as error:
        refuse_outage(error, path)
        raise InputError(
            f"runtime folder {path} cannot be used ({error.strerror}): choose one that this account can make"
        ) from None
    if status.st_uid != user_of_process():
        raise InputError(f"runtime folder {path} is another account's: choose one that this account has made")
    if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"runtime folder {path} is open to other accounts: close it with chmod 700 {path}")
    if len(os.fsencode(path / ("0" * DIGITS))) > _LONGEST_PATH:
        raise InputError(f"runtime folder {path} has too long a path for a socket: choose a shorter one, such as /run/quietmean")
    return path


def listening_place(options: NodeOptions) -> Address | Path | None:
    """Where a party listens: HOST:PORT, or the runtime folder of a port that several studies share. None: where the roster says.

    Raises :class:`InputError`.
    """
    if options.listen_through is None:
        return None if options.listen is None else parse_address(options.listen)
    if options.listen is not None:
        raise InputError("listen and listen_through exclude each other: leave out listen, the owner of the port has the address")
    # Before anything is charged.
    return runtime_folder(options.listen_through)


class HandedOver:
    """The sockets of connections that the owner of a port hands over to this process."""

    def __init__(self, folder: Path, socket_name: str) -> None:
        """Raises :class:`InputError` where another process has this socket, or the folder cannot hold one."""
        self._place = runtime_folder(folder) / socket_name
        self._listening = self._open()
        self._inode = self._place.stat().st_ino
        self._acceptor: Acceptor | None = None
        self._take: Take | None = None
        self._coming: set[socket.socket] = set()
        self._looking: asyncio.TimerHandle | None = None

    def start(self, take: Take) -> None:
        """From now on ``take`` gets each connection, what to call its dialling side, and the host."""
        self._take = take
        self._watch()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Take no more. Connections that are handed over and not taken yet are closed."""
        if self._looking is not None:
            self._looking.cancel()
        self._forget()
        for coming in list(self._coming):
            self._drop(coming)
        with contextlib.suppress(OSError), _alone(self._place.parent):
            if self._place.stat().st_ino == self._inode:
                self._place.unlink()

    # --- the socket in the folder --------------------------------------------------------------------------------------

    def _open(self) -> socket.socket:
        if sys.platform == "win32":
            raise InputError("several studies on one port need Linux or macOS")
        # While this process is alone with the folder, it has no other.
        fresh = self._place.with_name("new")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Nobody finds it before it listens; one that refuses is therefore of a process that has ended.
            with _alone(self._place.parent):
                if _answers(self._place):
                    raise InputError(
                        f"another process takes this party's connections in this study through {self._place.parent}: end that "
                        "one first; with a roster that is not sealed, run one study at a time there"
                    )
                fresh.unlink(missing_ok=True)
                listening.bind(str(fresh))
                fresh.chmod(0o600)
                listening.listen(_QUEUE)
                fresh.replace(self._place)
        except OSError as error:
            listening.close()
            raise InputError(
                f"no socket can be made in the runtime folder {self._place.parent} ({error.strerror or error}): choose a folder "
                "that this account writes to"
            ) from None
        except InputError:
            listening.close()
            raise
        return listening

    def _watch(self) -> None:
        self._acceptor = Acceptor(self._listening, self._accepted)
        self._acceptor.start()

    def _look(self) -> None:
        """Where the socket is gone from its place, make it anew."""
        with contextlib.suppress(OSError, InputError):
            if not self._place.exists():
                runtime_folder(self._place.parent)
                self._forget()
                self._listening = self._open()
                self._inode = self._place.stat().st_ino
                self._watch()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _forget(self) -> None:
        # Before it closes: the loop must not watch a descriptor that may be reused.
        if self._listening.fileno() >= 0:
            (self._acceptor or self._listening).close()

    # --- what comes ----------------------------------------------------------------------------------------------------

    def _accepted(self, coming: socket.socket, address: object) -> None:
        # Where the system does not tell, the folder's rights have decided.
        if user_of_peer(coming) not in (None, user_of_process()) or len(self._coming) >= _QUEUE:
            coming.close()
            return
        coming.setblocking(False)
        self._coming.add(coming)
        loop = asyncio.get_running_loop()
        loop.add_reader(coming, self._receive, coming)
        loop.call_later(_LATE_SECONDS, self._drop, coming)

    def _drop(self, coming: socket.socket) -> None:
        if coming in self._coming:
            self._coming.remove(coming)
            asyncio.get_running_loop().remove_reader(coming)
            coming.close()

    def _receive(self, coming: socket.socket) -> None:
        if sys.platform == "win32":
            return
        handles: list[int] = []
        try:
            _, handles, _, _ = socket.recv_fds(coming, len(_BYTE), 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # The owner of the port closed it.
            handles = []
        self._drop(coming)
        for handle in handles:
            self._begin(handle)

    def _begin(self, handle: int) -> None:
        os.set_inheritable(handle, False)
        try:
            connected = socket.socket(fileno=handle)
        except OSError:
            # The descriptor of a file, or of something else that is no socket.
            os.close(handle)
            return
        try:
            address = connected.getpeername()
            taken = connected.family in (socket.AF_INET, socket.AF_INET6) and connected.type == socket.SOCK_STREAM
        except OSError:
            # It is gone already.
            taken = False
        if taken and self._take is not None:
            self._take(connected, format_address(address[:2]), address[0])
        else:
            connected.close()


def hand_over(folder: Path, socket_name: str, connected: socket.socket) -> bool:
    """Give a connection to the process that has this socket, without waiting; whether there is one that may take it.

    The caller closes its own descriptor. The process has only what nobody has read of it.
    """
    if sys.platform == "win32":
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
        way.setblocking(False)
        try:
            way.connect(str(folder / socket_name))
            if user_of_peer(way) not in (None, user_of_process()):
                return False
            socket.send_fds(way, [_BYTE], [connected.fileno()])
        except OSError:
            return False
    return True


def _answers(path: Path) -> bool:
    """Whether a process has the socket there."""
    if sys.platform == "win32":
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
        way.setblocking(False)
        try:
            way.connect(str(path))
        except BlockingIOError:
            # Its queue is full.
            return True
        except OSError:
            return False
    return True


def _alone(folder: Path) -> contextlib.AbstractContextManager[int]:
    """A lock on the folder: meanwhile no other process looks up, makes or removes a socket there."""
    return locked(os.open(folder, os.O_RDONLY))
