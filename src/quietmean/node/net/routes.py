"""How the other parties are reached: what is below the links, and knows of addresses."""

from __future__ import annotations

import ssl
from typing import Protocol

from quietmean.node.net.roster import Address
from quietmean.node.net.stream import ByteStream
from quietmean.node.net.transport import dial_tcp


class Route(Protocol):
    """The way to one party. ``direct``: nobody stands in between, so "nobody listens" is the sign of an ended process."""

    direct: bool

    async def dial(self, context: ssl.SSLContext) -> ByteStream:
        """A stream to the party, with the TLS handshake between the parties done. Raises OSError or EOFError."""


class DirectRoute:
    """TCP to the party's address in the roster."""

    direct = True

    def __init__(self, address: Address) -> None:
        self._address = address

    async def dial(self, context: ssl.SSLContext) -> ByteStream:
        return await dial_tcp(self._address, context)
