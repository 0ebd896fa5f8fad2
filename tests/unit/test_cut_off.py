"""Before a gate over real sockets: who is cut off is read no more, and as it comes back it learns that it must send no share."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

import pytest

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import (
    ACCEPTED,
    AnswerFrame,
    AnyRequest,
    Credentials,
    Endpoint,
    Heartbeat,
    Limits,
    Link,
    Listener,
    Payload,
    Transfer,
    WithheldError,
    open_socket,
)
from quietmean.node.phase import Phase, Position

STUDY = "f" * 64
MIXING, GATE = (int(Phase.MIXING), 3), (int(Phase.GATE), 1)


@dataclass
class Two:
    """Party 0 listens, party 1 dials."""

    position: Position = MIXING
    read: list[AnyRequest] = field(default_factory=list)
    heard: list[Position] = field(default_factory=list)

    def __post_init__(self) -> None:
        listening = open_socket(("127.0.0.1", 0))
        identities = [Identity.generate(), Identity.generate()]
        addresses = [listening.getsockname()[:2], ("127.0.0.1", 1)]
        entries = (RosterEntry(f"party-{n}", addresses[n], identities[n].public_key) for n in range(2))
        roster = Roster(tuple(entries))

        def endpoint(party: int) -> Endpoint:
            credentials = Credentials(identities[party], roster, STUDY)
            limits = Limits.of_study(2, 4, 2)
            return Endpoint(party, roster, STUDY, credentials, limits, lambda who, why: None, lambda _, at: self.heard.append(at))

        self.listener = Listener(endpoint(0), listening, self.handle, lambda: self.position)
        self.link = Link(endpoint(1), 0)

    async def handle(self, party: int, request: AnyRequest, payload: Payload) -> AnswerFrame:
        self.read.append(request)
        return AnswerFrame(request.number, ACCEPTED, *self.position)

    async def close(self) -> None:
        await self.link.close()
        await self.listener.close()


def share() -> Transfer:
    return Transfer(0, *MIXING, 1.0, 1000, b"", 2)


async def test_who_is_cut_off_comes_back_and_withholds() -> None:
    two = Two()
    two.listener.start()

    def closed() -> bool:
        return any(position >= GATE for position in two.heard)

    try:
        async with asyncio.timeout(60):
            await two.link.ask(share(), bytes(16), unless=closed)
            assert len(two.read) == 1
            two.position = GATE
            two.listener.disconnect([1])
            # It does not know yet; what it sends is lost with the connection, and the next welcome tells.
            with pytest.raises(WithheldError):
                await two.link.ask(share(), bytes(16), unless=closed)
            assert len(two.read) == 1
            assert two.heard[-1] == GATE
            # Everything else passes.
            await two.link.ask(Heartbeat(0, *MIXING))
            assert isinstance(two.read[-1], Heartbeat)
    finally:
        await two.close()


async def test_without_being_cut_off_it_would_be_read() -> None:
    two = Two()
    two.listener.start()
    try:
        async with asyncio.timeout(60):
            await two.link.ask(share(), bytes(16))
            two.position = GATE
            with contextlib.suppress(WithheldError):
                await two.link.ask(share(), bytes(16), unless=lambda: any(position >= GATE for position in two.heard))
            assert len(two.read) == 2
    finally:
        await two.close()
