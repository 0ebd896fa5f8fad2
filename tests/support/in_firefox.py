"""Firefox runs the modules that seal: it opens a page, which asks for questions and posts their answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.javascript import DRIVER, FORM

PAGE = """<!doctype html><title>Sealing</title><script type="module">
let answers;
try {
  const { answering } = await import("/sealing.mjs");
  const answer = await answering("/form");
  answers = [];
  for (const question of await (await fetch("/questions")).json()) answers.push(await answer(question));
} catch (error) {
  answers = String(error);
}
await fetch("/answers", { method: "POST", body: JSON.stringify(answers) });
</script>"""
PATIENCE = 120.0


def asked_in_firefox(questions: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The answer or the error of each question; ``folder``: for a profile that is new."""
    program = os.environ.get("QUIETMEAN_FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("no Firefox here: apt-get install firefox-esr, or name one in QUIETMEAN_FIREFOX")
    files = {path.name: path.read_bytes() for path in (DRIVER, *FORM.glob("*.js"))}
    files |= {"": PAGE.encode(), "questions": json.dumps(questions).encode()}
    answers: list[Any] = []
    answered = threading.Event()

    class Answering(BaseHTTPRequestHandler):
        def log_message(self, format: str, *given: Any) -> None:  # noqa: A002 - named by the standard library
            """Nothing is told."""

        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            self.send_response(200 if name in files else 404)
            self.send_header("Content-Type", "text/javascript" if "." in name else "application/json" if name else "text/html")
            self.end_headers()
            self.wfile.write(files.get(name, b""))

        def do_POST(self) -> None:
            answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            answered.set()

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [program, "--headless", "--no-remote", "--profile", str(folder), f"http://127.0.0.1:{server.server_port}/"]
        environment = os.environ | {"HOME": str(folder), "MOZ_DISABLE_CONTENT_SANDBOX": "1"}
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        try:
            assert answered.wait(PATIENCE), "Firefox does not answer"
        finally:
            running.terminate()
            running.wait(PATIENCE)
            server.shutdown()
    assert isinstance(answers[0], list), answers[0]
    return answers[0]
