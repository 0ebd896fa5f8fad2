"""A socket that takes connections of one account of this machine alone, as the kernel names it."""

from __future__ import annotations

import socket
import stat
import struct
import sys
from pathlib import Path

from quietmean.core.errors import InputError

# Process, user and group of the peer.
_CREDENTIALS = struct.Struct("3i")


class AccountSocket(socket.socket):
    """Listens at a path, and takes connections from processes of the given users alone."""

    users: frozenset[int] = frozenset()

    def accept(self) -> tuple[socket.socket, object]:
        while True:
            connected, address = super().accept()
            if user_of_peer(connected) in self.users:
                return connected, address
            connected.close()


def user_of_peer(connection: socket.socket) -> int | None:
    """The number of the user whose process is at the other end of a Unix socket; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def open_account_socket(path: Path, user: str) -> AccountSocket:
    """A socket in the file system for the processes of one account, ``user``, by name or number.

    Raises :class:`InputError` where there are no such sockets, for an unknown account, and for a folder in which others could put
    a socket of theirs.
    """
    if sys.platform != "linux":
        raise InputError("this needs Linux, which tells whose process comes: use the pages on the own machine")
    number = _number_of(user)
    try:
        mode = path.parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise InputError(f"folder {path.parent} can be written by everybody: choose one that only this account writes to")
        if path.is_socket():
            # Of a process that ended.
            path.unlink()
        listening = AccountSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        # Who may connect is asked of the kernel; the rights of the folder hold besides.
        path.chmod(0o666)
    except OSError as error:
        raise InputError(
            f"socket {path} cannot be made ({error.strerror or error}): choose a folder that this account writes to"
        ) from None
    listening.users = frozenset({number})
    listening.listen()
    return listening


def _number_of(user: str) -> int:
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        if sys.platform != "win32":
            import pwd

            return pwd.getpwnam(user).pw_uid
        raise KeyError(user)
    except KeyError:
        raise InputError(f"account {user!r} does not exist on this machine: give the one whose processes may connect") from None
