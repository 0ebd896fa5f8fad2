"""The system's Firefox, driven by its own protocol (Marionette): a length, a colon and JSON over one connection."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.javascript import DRIVER, FORM
from support.ports import reserved

PATIENCE = 60.0
_PAGE = b"<!doctype html><title>Sealing</title>"
_ASK = """const [questions, done] = arguments;
(async () => {
  const { answering } = await import(`${location.origin}/sealing.mjs`);
  const answer = await answering(`${location.origin}/form`);
  const answers = [];
  for (const question of questions) answers.push(await answer(question));
  return answers;
})().then(done, (error) => done(String(error)));"""


@dataclass
class Firefox:
    """One window. ``connection``: to a Firefox that was started for it."""

    connection: socket.socket
    number: int = 0
    unread: bytes = b""

    def goto(self, address: str) -> None:
        self.told("Navigate", url=address)

    def script(self, source: str, *given: Any, waits: bool = False) -> Any:
        """What a script in the page returns, or where it ``waits``, what it gives its last argument."""
        name = "ExecuteAsyncScript" if waits else "ExecuteScript"
        return self.told(name, script=source, args=list(given), sandbox=None, scriptTimeout=int(1000 * PATIENCE))["value"]

    def click(self, selector: str) -> None:
        """As with a mouse: only what is seen is clicked."""
        found = self.told("FindElement", using="css selector", value=selector)["value"]
        self.told("ElementClick", id=next(iter(found.values())))

    def type(self, selector: str, text: str) -> None:
        """With the keyboard, or of a field for files, their paths."""
        found = self.told("FindElement", using="css selector", value=selector)["value"]
        self.told("ElementSendKeys", id=next(iter(found.values())), text=text)

    def press(self, keys: str) -> None:
        """Keys one after the other, wherever the focus is; as in WebDriver, U+E004 is Tab and U+E007 is Enter."""
        pressed = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.told("PerformActions", actions=[{"type": "key", "id": "keyboard", "actions": pressed}])

    def wait(self, selector: str, text: str) -> None:
        """Until an element has this text."""
        end = time.monotonic() + PATIENCE
        while text not in (found := self.script("return document.querySelector(arguments[0]).innerText", selector)):
            assert time.monotonic() < end, found
            time.sleep(0.02)

    def told(self, command: str, **given: Any) -> Any:
        self.number += 1
        message = json.dumps([0, self.number, f"WebDriver:{command}", given]).encode()
        self.connection.sendall(b"%d:%b" % (len(message), message))
        _, _, error, answer = self.read()
        assert error is None, error["message"]
        return answer

    def read(self) -> Any:
        while b":" not in self.unread:
            self._receive()
        size, _, _ = self.unread.partition(b":")
        begin, end = len(size) + 1, len(size) + 1 + int(size)
        while len(self.unread) < end:
            self._receive()
        message, self.unread = self.unread[begin:end], self.unread[end:]
        return json.loads(message)

    def _receive(self) -> None:
        more = self.connection.recv(1 << 16)
        assert more, "Firefox has ended"
        self.unread += more


def downloads_of(profile: Path) -> Path:
    """Where it puts what is downloaded."""
    return profile / "downloads"


@contextmanager
def firefox(profile: Path) -> Iterator[Firefox]:
    """A Firefox of its own, whose ``profile`` is a new folder; a test is skipped where there is none."""
    program = os.environ.get("QUIETMEAN_FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("no Firefox here: apt-get install firefox-esr, or name one in QUIETMEAN_FIREFOX")
    with reserved(1) as (port,):
        pass
    profile.mkdir()
    settings = {
        "marionette.port": port,
        "browser.download.folderList": 2,
        "browser.download.dir": str(downloads_of(profile)),
        "browser.download.always_ask_before_handling_new_types": False,
    }
    lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items())
    (profile / "user.js").write_text("".join(lines))
    command = [program, "--headless", "--no-remote", "--marionette", "--profile", str(profile)]
    environment = os.environ | {"HOME": str(profile), "MOZ_DISABLE_CONTENT_SANDBOX": "1"}
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        with _connected(port) as connection:
            window = Firefox(connection)
            window.read()
            window.told("NewSession", capabilities={})
            yield window
    finally:
        running.terminate()
        running.wait(PATIENCE)


def _connected(port: int) -> socket.socket:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 2 * PATIENCE)
        except OSError:
            assert time.monotonic() < end, "Firefox does not listen"
            time.sleep(0.1)


def asked_in_firefox(questions: Sequence[dict[str, Any]], profile: Path) -> list[dict[str, Any]]:
    """The answer or the error of each question to the modules that seal."""
    files = {path.name: path.read_bytes() for path in (DRIVER, *FORM.glob("*.js"))} | {"": _PAGE}

    class Serving(BaseHTTPRequestHandler):
        def log_message(self, format: str, *given: Any) -> None:  # noqa: A002 - named by the standard library
            """Nothing is told."""

        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            self.send_response(200 if name in files else 404)
            self.send_header("Content-Type", "text/javascript" if name else "text/html")
            self.end_headers()
            self.wfile.write(files.get(name, b""))

    with ThreadingHTTPServer(("127.0.0.1", 0), Serving) as server, firefox(profile) as window:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        window.goto(f"http://127.0.0.1:{server.server_port}/")
        answers = window.script(_ASK, list(questions), waits=True)
        server.shutdown()
    assert isinstance(answers, list), answers
    return answers
