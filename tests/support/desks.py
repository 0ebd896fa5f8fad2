"""``quietmean site desk`` as a process, in the folder that is the current one."""

from __future__ import annotations

import asyncio
import hmac
import http.client
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote, urlencode

from quietmean.desk import Desk, Here, ProxyAccess, SiteFolder, make_app
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party.approval import DIGITS, fingerprint
from quietmean.studies.party.session_contract import contract_for


@dataclass
class Running:
    process: subprocess.Popen[str]
    port: int
    token: str


@dataclass
class Browser:
    """Requests as a browser makes them, but for what a test changes."""

    port: int
    cookie: str = ""
    sent: dict[str, str] = field(default_factory=dict)

    def ask(
        self, path: str, body: dict[str, str] | None = None, method: str | None = None, **headers: str
    ) -> tuple[int, str, Any]:
        given = {"Host": f"127.0.0.1:{self.port}", "Sec-Fetch-Site": "same-origin"}
        if self.cookie:
            given["Cookie"] = self.cookie
        data = None
        if body is not None:
            data = urlencode(body)
            given |= {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/x-www-form-urlencoded"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method or ("GET" if body is None else "POST"), path, skip_host=True)
            for name, value in given.items():
                connection.putheader(name, value)
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(None if data is None else data.encode())
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), {name.lower(): text for name, text in answer.getheaders()}
        finally:
            connection.close()

    def enter(self, token: str) -> int:
        status, _, headers = self.ask("/login", {"token": token})
        if status == 303:
            self.cookie = headers["set-cookie"].partition(";")[0]
            assert all(part in headers["set-cookie"] for part in ("HttpOnly", "SameSite=strict", f"quietmean_{self.port}="))
        return status

    def form(self) -> str:
        found = re.search(r'name="form" value="([^"]+)"', self.ask("/")[1])
        assert found is not None
        return found.group(1)


class Pages:
    """The pages of a site without a process or a network, for one user."""

    def __init__(self, site: SiteFolder, here: Here, language: str = "en") -> None:
        access = ProxyAccess("https://desk.example", "X-User", frozenset({"anna"}))
        self._app, self._token = (
            make_app(Desk(site, access, here)),
            hmac.new(access.secret.encode(), b"anna", "sha256").hexdigest(),
        )
        self._language = language

    def ask(self, path: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        """The code and the page; of a form where there are ``fields``."""
        body = b"" if fields is None else urlencode({"form": self._token, **fields}).encode()
        headers = {"host": "desk.example", "x-user": "anna", "accept-language": self._language, "origin": "https://desk.example"}
        headers |= {"content-type": "application/x-www-form-urlencoded"} if body else {}
        address, _, query = path.partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST" if body else "GET",
            "path": unquote(address),
            "query_string": query.encode(),
        }
        scope |= {"headers": [(name.encode(), text.encode()) for name, text in headers.items()], "client": ("127.0.0.1", 1)}
        told: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            told.append(message)

        asyncio.run(cast("Any", self._app)(scope, receive, send))
        return told[0]["status"], b"".join(part.get("body", b"") for part in told[1:]).decode()


@contextmanager
def running(*more: str, party: str = "south") -> Iterator[Running]:
    """A desk of this folder."""
    command = [sys.executable, "-m", "quietmean", "site", "desk", ".", "--party", party, "--no-browser", *more]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert select.select([process.stderr], [], [], 300)[0]
            line = process.stderr.readline()
            found = re.fullmatch(r"open http://127\.0\.0\.1:(\d+)/login#([\w-]+) within a minute; Ctrl-C ends it\n", line)
            assert found is not None, line
            yield Running(process, int(found.group(1)), found.group(2))
        finally:
            # A test that fails does not wait for it for ever.
            process.send_signal(signal.SIGINT)


def ticked(sealed: Sealed, party: str = "south") -> dict[str, str]:
    """The fields of a form in which each word of a study's safety code is ticked, with what was shown to this party."""
    words = {f"word.{number}": word for number, word in enumerate(fingerprint(sealed.digest).words, 1)}
    return words | {"accept": contract_for(party, sealed).accept_digest[:DIGITS]}


def entered(desk: Running) -> tuple[str, str]:
    """The name and the value of the cookie that the link gives."""
    connection = http.client.HTTPConnection("127.0.0.1", desk.port, timeout=30)
    try:
        heads = {
            "Origin": f"http://127.0.0.1:{desk.port}",
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        connection.request("POST", "/login", urlencode({"token": desk.token}), heads)
        answer = connection.getresponse()
        assert answer.status == 303
        name, _, value = (answer.getheader("set-cookie") or "").partition(";")[0].partition("=")
        return name, value
    finally:
        connection.close()
