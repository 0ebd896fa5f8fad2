"""Who gets in, and nothing that another page makes them send. On this machine: one browser of this user, by the printed link.

Every refusal is 403 and the same: not the host and port by name, another site's page behind the request, another user of this
machine, no session, a form without its token.

Behind a hospital's HTTPS and log-in: a socket that only the proxy reaches, and a header in which it names the user. The proxy
must set the header itself in every request, and take away one that a browser sent.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quietmean.core.errors import InputError
from quietmean.core.portability import user_of_process
from quietmean.randomness import fresh_bytes
from quietmean.report.words import TEMPLATES

# Seconds for which the printed link is valid, once.
LINK_LASTS = 60.0
LOGIN = "/login"
# Files that are served without a session, by their names.
_FILES = Path(__file__).parent / "static"
STATIC = {path.name: path for path in (TEMPLATES / "style.css", *(_FILES / name for name in ("desk.css", "desk.js", "login.js")))}
_OPEN = frozenset({LOGIN, *(f"/static/{name}" for name in STATIC)})
# The pages of the board, which show nothing private: for those who may only watch.
BOARD = frozenset({"/board", "/board/part", *(f"/static/{name}" for name in STATIC)})
# The largest form, in bytes.
_LARGEST_FORM = 65536
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    # To nobody else; with no-referrer browsers send "Origin: null" with this page's own forms.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def new_token() -> str:
    """32 random bytes, for a link, a cookie or a form."""
    return base64.urlsafe_b64encode(fresh_bytes(32)).decode().rstrip("=")


class AccessRule(Protocol):
    """Which requests are admitted. ``leaves``: can a visitor end the desk?"""

    @property
    def leaves(self) -> bool: ...

    @property
    def origin(self) -> str: ...

    def admits(self, headers: Headers, scope: Scope) -> bool:
        """Whether this visitor may see the page; what all rules have in common was checked before."""

    def form(self, request: Request) -> str:
        """The token in each form of this visitor."""

    def visitor(self, request: Request) -> str:
        """Who it is, for the desk's own log; empty where there is one user alone."""


@dataclass
class LinkAccess:
    """Access to the pages by a link that opens one session, on this machine.

    ``port``: on 127.0.0.1. ``link``: opens a session once, within :data:`LINK_LASTS` seconds of ``clock``.

    ``session``: in the cookie of the one browser that is in; ``token``: in each of its forms.
    """

    port: int
    clock: Callable[[], float] = time.monotonic
    link: str = field(default_factory=new_token, repr=False)
    session: str | None = field(default=None, repr=False)
    token: str = field(default_factory=new_token, repr=False)
    leaves: bool = True

    def __post_init__(self) -> None:
        self._until = self.clock() + LINK_LASTS

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """The link that is printed. The token is behind #, which no browser sends, so that it is in no log."""
        return f"{self.origin}/login#{self.link}"

    @property
    def cookie(self) -> str:
        """Named by the port, as browsers do not tell the ports of a machine apart."""
        return f"quietmean_{self.port}"

    def enter(self, token: str) -> str | None:
        """A new session for the token of the link; None for another token, the second time, or too late."""
        right = hmac.compare_digest(token.encode(), self.link.encode())
        if not right or self.clock() > self._until:
            return None
        # The link is used up, also for anyone else who has it.
        self._until = -1.0
        self.session = new_token()
        return self.session

    def leave(self) -> None:
        self.session = None

    def has_session(self, cookies: str) -> bool:
        try:
            presented = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return (
            self.session is not None
            and presented is not None
            and hmac.compare_digest(presented.value.encode(), self.session.encode())
        )

    def form(self, request: Request) -> str:
        return self.token

    def visitor(self, request: Request) -> str:
        return ""

    def admits(self, headers: Headers, scope: Scope) -> bool:
        client, path = scope.get("client"), str(scope["path"])
        if client is None or not same_user(int(client[1]), self.port):
            return False
        return path in _OPEN or self.has_session(headers.get("cookie", ""))


class Guard:
    """Lets through what may reach the app, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, access: AccessRule) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                header_names = {name for name, _ in message["headers"]}
                more = [(name.encode(), text.encode()) for name, text in _HEADERS.items() if name.encode() not in header_names]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        if scope["type"] == "http" and self._allowed(scope):
            await self._app(scope, receive, send_with_headers)
        elif scope["type"] == "http":
            await refusal(self._access)(scope, receive, send_with_headers)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _allowed(self, scope: Scope) -> bool:
        headers, access = Headers(scope=scope), self._access
        path, changes = str(scope["path"]), scope["method"] == "POST"
        if headers.getlist("host") != [urlsplit(access.origin).netloc] or scope["method"] not in ("GET", "HEAD", "POST"):
            return False
        site = headers.get("sec-fetch-site", "none")
        if changes and (headers.getlist("origin") != [access.origin] or site not in ("same-origin", "none")):
            return False
        # The file that opens the page is none of its own.
        if site not in ("same-origin", "none") and path != LOGIN:
            return False
        return access.admits(headers, scope)


def refusal(access: AccessRule) -> Response:
    """The answer to every request that is refused, the same for every reason."""
    advice = (
        "Start quietmean site desk again, and open the link that it prints." if access.leaves else "Ask who runs these pages."
    )
    return PlainTextResponse(f"Refused. {advice}\n", 403)


async def form_of(request: Request, access: AccessRule | None) -> dict[str, str] | None:
    """The fields of a form; None for one that is too large, or without this visitor's token, if ``access`` is given."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_FORM:
            return None
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        return None
    if access is None or hmac.compare_digest(fields.get("form", "").encode(), access.form(request).encode()):
        return fields
    return None


def same_user(client: int, server: int) -> bool:
    """Whether the connection from port ``client`` to ``server`` of 127.0.0.1 is one of this user's processes.

    Asked of the kernel where it says so, on Linux; otherwise it is taken to be.
    """
    table = Path("/proc/net/tcp")
    if not table.exists():
        return True
    loopback = "0100007F"
    for line in table.read_text().splitlines()[1:]:
        local, remote, uid = (line.split()[field] for field in (1, 2, 7))
        if (local, remote) == (f"{loopback}:{client:04X}", f"{loopback}:{server:04X}"):
            return int(uid) == user_of_process()
    return False


_LONGEST_NAME = 200


@dataclass(frozen=True)
class ProxyAccess:
    """Access to the pages through a proxy that says who the user is.

    ``origin``: of the pages as browsers see them, such as https://desk.hospital.example. ``header``: with the user's name.

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
                f"--behind-proxy is {self.origin!r}. Give the pages' address as browsers see it, https://HOST in small "
                "letters and nothing after it."
            )
        if not self.users:
            raise InputError("nobody may use the pages. Name those who may with --users.")
        if not all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in self.header) or not self.header:
            raise InputError(f"--user-header is {self.header!r}. Give the name of a header, such as X-Remote-User.")

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
        raise InputError("the pages behind a proxy are not to run as root. Start them as an account of their own.")
    for path in sorted(folder.glob("*.key")):
        if owner_key is not None and path.resolve() == owner_key.resolve():
            continue
        with contextlib.suppress(OSError), path.open("rb"):
            raise InputError(
                f"this account can read {path}, and so could anyone who breaks into the pages. Start them as another account "
                "than the node's."
            )
