"""Commands that serve others until they are stopped."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import Any, Protocol

from quietmean.cli.console import out
from quietmean.core.errors import InputError
from quietmean.core.summarise import keep_logs_short


class PageServer(Protocol):
    """What runs until the event is set, and calls ``ready`` once it listens."""

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None: ...


async def serve(server: PageServer, ready: Callable[[], None]) -> None:
    """Until SIGINT or SIGTERM: the end that its operator wants, so no failure."""
    # The event loop reports each broken connection.
    keep_logs_short("asyncio", "quietmean.node")
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await server.run(stop, ready)


def tell_listening(json: bool, about: dict[str, Any], sentence: str) -> None:
    """On standard output, at once: who started it waits for that."""
    if json:
        sys.stdout.write(f"{dumps(about)}\n")
    else:
        out.print(sentence)
    sys.stdout.flush()


def shown_entrance(host: str, port: int) -> str:
    """The address; an empty ``host`` means all of this machine."""
    from quietmean.node.net import format_address

    return format_address((host or "0.0.0.0", port))  # noqa: S104


def require_both(certificate: Path | None, private_key: Path | None) -> None:
    """Raises :class:`InputError` for one without the other."""
    if (certificate is None) != (private_key is None):
        raise InputError("a certificate and its private key go together: give both --certificate and --private-key, or neither")


def on_loopback(host: str) -> bool:
    """Whether only this machine reaches who listens there; not at all addresses, the empty ``host``."""
    from quietmean.node.tunnel import is_loopback

    return bool(host) and is_loopback(host)
