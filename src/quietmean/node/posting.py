"""One file that is sent to a server by HTTPS, or one question, outside of any study's connections."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

# No answer is longer.
_MOST = 1 << 16


@dataclass(frozen=True)
class ServerAnswer:
    """``date``: when the server says it is, if it does."""

    status: int
    body: bytes
    date: str | None


def post_file(place: str, content: bytes, seconds: float) -> tuple[int, bytes]:
    """Status and body of the answer, whose certificate is checked as the system does; it leads nowhere else.

    ``place``: a URL that was checked. Raises :class:`OSError` where none answers.
    """
    request = urllib.request.Request(place, data=content, method="POST")  # noqa: S310 - the caller names the schemes
    request.add_header("Content-Type", "application/octet-stream")
    answer = _answer(request, seconds)
    return answer.status, answer.body


def ask_server(place: str, seconds: float) -> ServerAnswer:
    """What a server says at a ``place``, as :func:`post_file`. Raises :class:`OSError` where none answers."""
    return _answer(urllib.request.Request(place), seconds)  # noqa: S310 - the caller names the schemes


def _answer(request: urllib.request.Request, seconds: float) -> ServerAnswer:
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds) as response:
            return ServerAnswer(response.status, response.read(_MOST), response.headers.get("Date"))
    except urllib.error.HTTPError as error:
        with error:
            return ServerAnswer(error.code, error.read(_MOST), error.headers.get("Date"))
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: no HTTP") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        """An answer as any other."""
