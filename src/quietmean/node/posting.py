"""One file that is sent to a server by HTTPS, outside of any study's connections."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Any

# No answer is longer.
_MOST = 1 << 16


def post_file(place: str, content: bytes, seconds: float) -> tuple[int, bytes]:
    """Status and body of the answer, whose certificate is checked as the system does; it leads nowhere else.

    ``place``: a URL that was checked. Raises :class:`OSError` where there is no answer.
    """
    request = urllib.request.Request(place, data=content, method="POST")  # noqa: S310 - the caller names the schemes
    request.add_header("Content-Type", "application/octet-stream")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds) as response:
            return response.status, response.read(_MOST)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_MOST)
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: no HTTP") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        """An answer as any other."""
