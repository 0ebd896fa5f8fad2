"""Ports of this machine for servers that tests start."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved(count: int) -> Iterator[list[int]]:
    """So many ports on which nobody listens, kept from everybody else meanwhile.

    A port that was merely closed again may be another connection's a moment later.
    """
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _ in range(count)]
        for holder in holders:
            # Bound and not listening: whoever sets this option too, as servers do, can listen; the system gives it to nobody.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
        yield [holder.getsockname()[1] for holder in holders]
