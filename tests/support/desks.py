"""``quietmean site desk`` as a process, in the folder that is the current one."""

from __future__ import annotations

import http.client
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

from quietmean.studies.party.approval import fingerprint


@dataclass
class Running:
    process: subprocess.Popen[str]
    port: int
    token: str


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


def ticked(digest: str) -> dict[str, str]:
    """The fields of a form in which each word of a study's safety code is ticked."""
    return {f"word.{number}": word for number, word in enumerate(fingerprint(digest).words, 1)}


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
