"""How the other parties are reached: what is below the links, and knows of addresses."""

from __future__ import annotations

import ssl
from typing import Protocol, Self

from quietmean.core.party import PartyId
from quietmean.node.net.addresses import Address
from quietmean.node.net.identity import public_key_bytes
from quietmean.node.net.labels import Group
from quietmean.node.net.roster import Roster
from quietmean.node.net.stream import ByteStream
from quietmean.node.net.tls import foreign_issuer
from quietmean.node.net.transport import dial_tcp


class Route(Protocol):
    """The way to one party. ``direct``: nobody stands in between, so "nobody listens" is the sign of an ended process."""

    direct: bool

    async def dial(self, context: ssl.SSLContext) -> ByteStream:
        """A stream to the party, with the TLS handshake between the parties done. Raises OSError or EOFError."""


class DirectRoute:
    """TCP to the party's address in the roster. ``name``: the server name that is asked for there, if any."""

    direct = True

    def __init__(self, address: Address, name: str = "") -> None:
        self._address = address
        self._name = name

    @classmethod
    def to(cls, roster: Roster, party: PartyId) -> Self:
        """To one of the roster, also where a proxy leads from its port to several studies."""
        entry = roster.entries[party]
        return cls(entry.address, Group.of_session(roster.digest).server_name(public_key_bytes(entry.public_key)))

    async def dial(self, context: ssl.SSLContext) -> ByteStream:
        return await dial_tcp(self._address, context, self._name)

    async def issuer(self) -> str | None:
        """Who issued the certificate that is shown at the address, if it is none of a party's. Raises OSError or EOFError.

        Only for telling people what stands in between: nothing is sent there.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stream = await dial_tcp(self._address, context, self._name)
        try:
            return foreign_issuer(stream.certificate or b"")
        finally:
            stream.abort()
