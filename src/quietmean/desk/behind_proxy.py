"""Behind a hospital's HTTPS and log-in: a socket that only the proxy reaches, and a header in which it names the user.

The proxy must set the header itself in every request, and take away one that a browser sent. Who may use the pages is a list; the
token of a form is different for every user, as one browser's forms must not do for another's.
"""

from __future__ import annotations

import contextlib
import hmac
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from quietmean.core.errors import InputError
from quietmean.core.portability import user_of_process
from quietmean.desk.access import BOARD, new_token

_LONGEST_NAME = 200


@dataclass(frozen=True)
class ProxyAccess:
    """``origin``: of the pages as browsers see them, such as https://desk.hospital.example. ``header``: with the user's name.

    ``users``: who may use the pages; ``viewers``: who may only see the board of what runs. Raises :class:`InputError` for an
    impossible origin, and without users.
    """

    origin: str
    header: str
    users: frozenset[str]
    viewers: frozenset[str] = frozenset()
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
        if len(named) != 1 or len(named[0]) > _LONGEST_NAME:
            return False
        return named[0] in self.users or (named[0] in self.viewers and scope["path"] in BOARD and scope["method"] != "POST")

    def visitor(self, request: Request) -> str:
        return request.headers[self.header]

    def form(self, request: Request) -> str:
        return hmac.new(self.secret.encode(), self.visitor(request).encode(), sha256).hexdigest()


def require_no_node_key(folder: Path, owner_key: Path | None) -> None:
    """Raises :class:`InputError` if this account could act as the site's node: pages that many reach are broken into."""
    if user_of_process() == 0:
        raise InputError("the pages behind a proxy are not to run as root: start them as an account of their own")
    for path in sorted(folder.glob("*.key")):
        if owner_key is not None and path.resolve() == owner_key.resolve():
            continue
        with contextlib.suppress(OSError), path.open("rb"):
            raise InputError(
                f"this account can read {path}, and so could anyone who breaks into the pages: start them as another account "
                "than the node's"
            )
