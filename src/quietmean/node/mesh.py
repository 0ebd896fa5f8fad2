"""All of one party's connections: a link to each of the others, dialled by either, and the place where they reach this party.

At their end is a :class:`Member`: a single study, one that starts with those who are there, or a series of rounds. They
are opened in one order and closed in one, whatever runs over them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from quietmean.core.party import PartyId
from quietmean.node.net import (
    Address,
    AnswerFrame,
    AnyRequest,
    Ending,
    Endpoint,
    Identity,
    Link,
    Listener,
    Payload,
    Readiness,
    Route,
)
from quietmean.node.phase import Phase, Position
from quietmean.node.tunnel import Dialer, Presence


class Member(Protocol):
    """A party as its connections see it."""

    @property
    def position(self) -> Position:
        """The position of this party, for the others."""

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
        """The answer to a request of another party."""

    def heard(self, peer: PartyId, position: Position) -> None:
        """Note that another party said where it is."""

    def answered(self, peer: PartyId, request: AnyRequest, answer: AnswerFrame) -> None:
        """Another party has answered a request of this one."""

    def refused(self, peer: str, reason: str) -> None:
        """Note that something was refused, by either side; ``peer``: a name or an address."""

    def fail(self, error: BaseException) -> None:
        """An error that no peer has made."""


class Mesh:
    """One party's connections with all others of its roster; :meth:`bind`, :meth:`start`, then :meth:`close` however it ends.

    ``member``: who answers; without one there are no links, and a caller only learns ``readiness``.
    ``on_check``: called with each party that asked.
    """

    def __init__(
        self,
        identity: Identity,
        endpoint: Endpoint,
        member: Member | None,
        readiness: Callable[[], Readiness],
        on_check: Callable[[PartyId], None] = lambda party: None,
    ) -> None:
        self._endpoint, self._member, self._readiness, self._asked = endpoint, member, readiness, on_check
        self._dialer = Dialer(identity, endpoint.roster)
        self._listening: socket.socket | None = None
        self._listener: Listener | None = None
        self.links: dict[PartyId, Link] = {}
        if member is not None:
            others = (party for party in range(len(endpoint.roster)) if party != endpoint.party)
            self.links = {party: Link(endpoint, party, self.route(party), member.handle, self._position) for party in others}

    def route(self, party: PartyId) -> Route:
        """The way to a party, at an address of its own or at a relay."""
        return self._dialer.route(party)

    def bind(self, listening: socket.socket | Address | None = None) -> None:
        """Take the place where the others reach this party: by default its address in the roster.

        A socket that listens already is closed at the end.
        Raises :class:`InputError` if that is not possible.
        """
        self._listening = listening if isinstance(listening, socket.socket) else self._dialer.open_socket(listening)

    def unbind(self) -> None:
        """Give back a place that was taken where nobody ever listened at it: what should follow has not begun."""
        if self._listener is None and self._listening is not None:
            self._listening.close()

    def start(self, role: Presence = "attend") -> None:
        """Let the others reach this party from now on, if they did not before.

        ``role``: with "visit", a study of it that has begun goes first at a relay.
        """
        if self._listener is not None:
            return
        member = self._member
        self._listener = Listener(
            self._endpoint,
            self._listening,
            None if member is None else member.handle,
            self._position,
            readiness=self._readiness,
            on_check=self._asked,
            links=self.links,
        )
        self._listener.start()
        self._dialer.attend(self._listener, self._endpoint.refusal, role)

    def disconnect(self, parties: Iterable[PartyId]) -> None:
        """Close the connection of a party: see :meth:`Listener.disconnect`."""
        if self._listener is not None:
            self._listener.disconnect(parties)

    def drop(self) -> None:
        """Drop the connection of a party: see :meth:`Listener.drop`."""
        if self._listener is not None:
            self._listener.drop()

    async def close(self, why: Ending | None = None) -> None:
        """End all of it: first what begins something new, then what lasts; the others learn ``why``.

        Each step is taken also where a cancellation ends the one before it: a socket that goes on listening would keep the party
        from taking its part again in this process.
        """
        # From the last to the first.
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(self._dialer.close)
            closing.push_async_callback(self._close_links, why)
            if self._listener is not None:
                closing.push_async_callback(self._listener.close, why)
            closing.push_async_callback(self._dialer.leave)
            self.unbind()
            for link in self.links.values():
                link.stop()

    async def _close_links(self, why: Ending | None) -> None:
        await asyncio.gather(*(link.close(why) for link in self.links.values()))

    def _position(self) -> Position:
        return (int(Phase.AGREEMENT), 0) if self._member is None else self._member.position
