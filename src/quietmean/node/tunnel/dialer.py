"""How one party reaches the others and is reached by them: at addresses of their own, or at relays."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Literal, TypeAlias

from quietmean.core.party import PartyId
from quietmean.node.net import (
    Address,
    DirectRoute,
    Identity,
    Listener,
    RelayAddress,
    Roster,
    Route,
    open_socket,
    public_key_bytes,
)
from quietmean.node.tunnel.route import Attendance, RelayAccess, RelayRoute

# Whether the party takes all calls from now on, or only where no other process of it does.
Role: TypeAlias = Literal["attend", "visit"]


class Dialer:
    """The party of the roster with this identity. Nothing is dialled before it is asked for."""

    def __init__(self, identity: Identity, roster: Roster) -> None:
        self._identity = identity
        self._roster = roster
        self._accesses: dict[RelayAddress, RelayAccess] = {}
        self._attendance: Attendance | None = None

    def route(self, party: PartyId) -> Route:
        """The way to a party, whatever kind of address it has."""
        entry = self._roster.entries[party]
        if isinstance(entry.address, RelayAddress):
            return RelayRoute(self._access(entry.address), public_key_bytes(entry.public_key))
        return DirectRoute.to(self._roster, party)

    def open_socket(self, listen: Address | None = None) -> socket.socket | None:
        """Listen at an address, by default the party's own; None for a party that is reached at its relay only.

        Raises :class:`InputError` if that is not possible.
        """
        address = listen or self._own
        return None if isinstance(address, RelayAddress) else open_socket(address)

    def attend(self, listener: Listener, trouble: Callable[[str, str], None], role: Role = "attend") -> None:
        """From now on ``listener`` takes calls at this party's relay, if its address is at one.

        ``trouble``: called with the relay's name and a sentence, whenever it does not do its part.
        """
        if isinstance(self._own, RelayAddress):
            own = self._identity.public_key
            callers = {public_key_bytes(each.public_key): each.name for each in self._roster.entries if each.public_key != own}
            self._attendance = Attendance(self._access(self._own), callers, listener.take, trouble, role, listener.fail)
            self._attendance.start()

    async def leave(self) -> None:
        """Take no more calls."""
        if self._attendance is not None:
            await self._attendance.close()

    async def close(self) -> None:
        """Let what waits go out, for at most a second."""
        await asyncio.gather(*(access.close() for access in self._accesses.values()))

    @property
    def _own(self) -> Address:
        return self._roster.entries[self._roster.find(self._identity)].address

    def _access(self, address: RelayAddress) -> RelayAccess:
        if address not in self._accesses:
            self._accesses[address] = RelayAccess(address, self._identity, self._roster.digest)
        return self._accesses[address]
