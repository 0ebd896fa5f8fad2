"""Connections of a listening socket, taken as they come."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, ClassVar, Final

# What ends by itself: the system has no descriptor or memory for one more now.
_SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS: Final = 0.1


class Acceptor:
    """``taken`` gets each connection and the address of its caller. All is done in the loop in which :meth:`start` is called."""

    # So many are accepted one after the other before anything else is looked at.
    at_once: ClassVar[int] = 32

    def __init__(self, listening: socket.socket, taken: Callable[[socket.socket, Any], None]) -> None:
        self._listening = listening
        self._taken = taken

    def start(self) -> None:
        self._listening.setblocking(False)
        self._watch()

    def close(self) -> None:
        """Take no more; the socket is closed."""
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()

    def _watch(self) -> None:
        if self._listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(self.at_once):
            # Not the loop's sock_accept: cancelled at the wrong moment, it loses a connection without closing it.
            try:
                accepted, address = self._listening.accept()
            except OSError as error:
                if error.errno in _SCARCE:
                    self._pause()
                return
            self._taken(accepted, address)

    def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)
        loop.call_later(_PAUSE_SECONDS, self._watch)
