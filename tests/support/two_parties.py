"""Two parties with a link and a listener each, over real sockets, and what may stand between them."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from quietmean.core.domain import Links
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import (
    ACCEPTED,
    Address,
    AnswerFrame,
    AnyRequest,
    Credentials,
    Endpoint,
    Heartbeat,
    Limits,
    Link,
    Listener,
    Payload,
    Traffic,
    Transfer,
    open_socket,
    public_key_bytes,
)

STUDY = "f" * 64
DIMENSION = 40_000
LIMITS = Limits.of_study(2, 4, DIMENSION)
IDENTITIES = sorted((Identity.generate() for _ in range(2)), key=lambda each: public_key_bytes(each.public_key))


def unused() -> Address:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        host, port = probe.getsockname()
        return host, port


class Relayed:
    """A TCP proxy: connections that can be cut, or left without a word."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self.writers: list[asyncio.StreamWriter] = []
        self.mute = False
        self.accepted = 0

    async def start(self) -> Address:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self.writers += [writer, far_writer]

        async def one_way(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while chunk := await source.read(65536):
                    if not self.mute:
                        target.write(chunk)
                        await target.drain()
            target.transport.abort()

        await asyncio.gather(one_way(reader, far_writer), one_way(far_reader, writer))

    def retarget(self, target: Address) -> None:
        """Where connections go from now on."""
        self._target = target

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def stop(self) -> None:
        self.cut()
        self._server.close()
        await asyncio.sleep(0)


class Party:
    """One of two parties, 0 with the smaller key. ``dials``: where it thinks that the other one is; ``leaf``: the study in its
    certificate.
    """

    def __init__(
        self, party: int, listening: socket.socket, dials: Address, leaf: str = STUDY, links: Links = Links.X25519
    ) -> None:
        entries = [RosterEntry(f"party-{k}", dials if k != party else unused(), IDENTITIES[k].public_key) for k in range(2)]
        roster = Roster(tuple(entries))
        self.refusals: list[str] = []
        self.handled: list[AnyRequest] = []
        self.traffic = Traffic()
        self.hold: asyncio.Event | None = None
        self.roster, self.credentials = roster, Credentials(IDENTITIES[party], roster, leaf)
        endpoint = Endpoint(
            party,
            roster,
            STUDY,
            self.credentials,
            LIMITS,
            lambda who, why: self.refusals.append(why),
            lambda peer, position: None,
            self.traffic,
            links=links,
        )
        self.link = Link(endpoint, 1 - party, handle=self.handle)
        self.listener = Listener(endpoint, listening, self.handle, lambda: (0, 0), links={1 - party: self.link})
        self.listener.start()

    async def handle(self, peer: int, request: AnyRequest, payload: Payload) -> AnswerFrame:
        self.handled.append(request)
        if self.hold is not None:
            await self.hold.wait()
        return AnswerFrame(request.number, ACCEPTED, 0, 0)

    @property
    def connections(self) -> int:
        return sum(map(len, vars(self.listener)["_connections"].values()))

    async def close(self) -> None:
        self.link.stop()
        await self.listener.close()
        await self.link.close()


def beat(number: int = 0) -> Heartbeat:
    return Heartbeat(0, 1, number)


def share() -> Transfer:
    return Transfer(0, 1, 1, 1.0, 1000, b"", DIMENSION)


def two(dialable: tuple[bool, bool] = (True, True), links: Links = Links.X25519) -> list[Party]:
    sockets = [open_socket(("127.0.0.1", 0)) for _ in range(2)]
    addresses = [each.getsockname()[:2] if can else unused() for each, can in zip(sockets, dialable, strict=True)]
    return [Party(party, sockets[party], addresses[1 - party], links=links) for party in range(2)]
