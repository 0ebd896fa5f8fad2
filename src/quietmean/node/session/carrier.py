"""What carries the requests of one party to the others, whatever the transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from quietmean.core.party import PartyId
from quietmean.node.folder import FolderTransport
from quietmean.node.net import AnswerFrame, AnyRequest, Payload
from quietmean.node.phase import Position

Made = TypeVar("Made")


class PeerLink(Protocol):
    """The connection to a peer. ``trouble``: in words, why it does not answer; ``unreachable``: nobody listens at its address."""

    trouble: str

    @property
    def unreachable(self) -> bool: ...

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: Callable[[AnswerFrame], None] = lambda answer: None,
        unless: Callable[[], bool] = lambda: False,
    ) -> AnswerFrame:
        """The peer's answer; the request is repeated after every loss of the connection, until the caller cancels.

        ``on_answer`` is called as the answer is read: an answer that came in before the caller cancelled is never lost.
        ``unless``: see :meth:`quietmean.node.net.Link.ask`.
        """

    async def close(self) -> None: ...


async def _here(work: Callable[[], Any]) -> Any:
    return work()


def never(party: PartyId, request: AnyRequest, payload: Payload) -> None:
    """Whoever is elsewhere has to be waited for."""


def _anew(key: object, make: Callable[[], Made]) -> Made:
    return make()


class MadeOnce(Protocol):
    """What has equal keys is equal, and may be made once for all parties of a process."""

    def __call__(self, key: object, make: Callable[[], Made]) -> Made: ...


# The answer of a party to a request where nothing has to be waited for; None where it was not asked, or not answered.
Now: TypeAlias = Callable[[PartyId, AnyRequest, Payload], AnswerFrame | None]


@dataclass(frozen=True)
class Carrier:
    """What carries the requests of one party: ``links`` to the others, and what else its kind of transport does.

    ``disconnect`` drops the connections of some parties before a gate. ``closed`` returns when nobody is waited for at a position
    any more, present or not; by default time-outs tell. ``came``: who has ever been there, where that is kept. ``compute`` runs
    what takes long, in a thread where there are threads. ``now``: see :data:`Now`; ``shared``: see :class:`MadeOnce`.
    """

    links: Mapping[PartyId, PeerLink]
    disconnect: Callable[[Iterable[PartyId]], None] = lambda parties: None
    closed: Callable[[Position], Coroutine[Any, Any, None]] | None = None
    came: Callable[[], Iterable[PartyId]] = tuple
    compute: Callable[[Callable[[], Any]], Awaitable[Any]] = _here
    now: Now = never
    shared: MadeOnce = _anew

    @classmethod
    def by_folder(cls, post: FolderTransport) -> Self:
        """Return what carries requests as files, until the times of the folder."""
        return cls(post.links, closed=post.closed, came=post.came, compute=asyncio.to_thread)

    def between(self, members: Sequence[PartyId]) -> Carrier:
        """Return what carries the requests between some of the parties, which are numbered in their order from here on."""
        links = {index: self.links[member] for index, member in enumerate(members) if member in self.links}
        return replace(
            self,
            links=links,
            disconnect=lambda parties: self.disconnect(members[index] for index in parties),
            now=never if self.now is never else lambda index, request, payload: self.now(members[index], request, payload),
        )
