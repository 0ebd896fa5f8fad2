"""Behind a hospital's HTTPS and log-in: a socket that only the proxy reaches, and a header in which it names the user.

The proxy must set the header itself in every request, and take away one that a browser sent. Who may use the pages is a list; the
token of a form is different for every user, as one browser's forms must not do for another's.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import stat
import struct
import sys
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from quietmean.core.errors import InputError
from quietmean.core.portability import user_of_process
from quietmean.desk.door import new_token

_LONGEST_NAME = 200
# Process, user and group of the peer.
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class ProxyDoor:
    """``origin``: of the pages as browsers see them, such as https://desk.hospital.example. ``header``: with the user's name.

    ``users``: who may use the pages. Raises :class:`InputError` for an impossible origin, and without users.
    """

    origin: str
    header: str
    users: frozenset[str]
    secret: str = field(default_factory=new_token, repr=False)
    leaves: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.origin)
        if not parts.netloc or self.origin != f"https://{parts.netloc.lower()}":
            raise InputError(
                f"--behind-proxy is {self.origin!r}: give the pages' address as browsers see it, https://HOST in small "
                "letters and nothing after it"
            )
        if not self.users:
            raise InputError("nobody may use the pages: name those who may with --users")
        if not all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in self.header) or not self.header:
            raise InputError(f"--user-header is {self.header!r}: give the name of a header, such as X-Remote-User")

    def admits(self, headers: Headers, scope: Scope) -> bool:
        # Two of them: one may be the browser's.
        named = headers.getlist(self.header)
        return len(named) == 1 and len(named[0]) <= _LONGEST_NAME and named[0] in self.users

    def visitor(self, request: Request) -> str:
        return request.headers[self.header]

    def form(self, request: Request) -> str:
        return hmac.new(self.secret.encode(), self.visitor(request).encode(), sha256).hexdigest()


class ProxySocket(socket.socket):
    """Listens at a path, and takes connections from processes of the given users alone."""

    users: frozenset[int] = frozenset()

    def accept(self) -> tuple[socket.socket, object]:
        while True:
            found, address = super().accept()
            if user_of_peer(found) in self.users:
                return found, address
            found.close()


def user_of_peer(connection: socket.socket) -> int | None:
    """The number of the user whose process is at the other end of a Unix socket; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def open_proxy_socket(path: Path, user: str) -> ProxySocket:
    """``user``: the account of the proxy, by name or number.

    Raises :class:`InputError` where there are no such sockets, for an unknown account, and for a folder in which others could put
    a socket of theirs.
    """
    if sys.platform != "linux":
        raise InputError("--behind-proxy needs Linux, which tells whose process comes: use the pages on the own machine")
    number = _number_of(user)
    try:
        mode = path.parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise InputError(f"folder {path.parent} can be written by everybody: choose one that only this account writes to")
        if path.is_socket():
            # Of a process that ended.
            path.unlink()
        listening = ProxySocket(socket.AF_UNIX, socket.SOCK_STREAM)
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
        raise InputError(
            f"--proxy-user is {user!r}: this machine has no such account, give the one that the proxy runs as"
        ) from None


def require_no_node_key(folder: Path, owner_key: Path | None) -> None:
    """Raises :class:`InputError` if this account could act as the site's node: pages that many reach are broken into."""
    if user_of_process() == 0:
        raise InputError("the pages behind a proxy are not to run as root: start them as an account of their own")
    for path in sorted(folder.glob("*.key")):
        if owner_key is not None and path.resolve() == owner_key.resolve():
            continue
        with contextlib.suppress(OSError), path.open("rb"):
            raise InputError(
                f"this account can read {path}, and so could whoever breaks into the pages: start them as another account than "
                "the node's"
            )
