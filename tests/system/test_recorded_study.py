"""A whole study that somebody records, who later breaks TLS and every key of X25519: no frame of it opens."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.domain import Links
from quietmean.node import Identity, LinkKeys, NodeResult, NodeSettings, PlannedValue, Roster, RosterEntry, Waits, run_party
from quietmean.node.net import RelayAddress, key_exchange
from quietmean.node.relay import Admission, RelayServer
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from support.recorded_links import frames_of, opened, recorded

PARTIES, DIMENSION = 3, 10_000
TARGET = Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=DIMENSION)
# Nothing is added to the value, and the shares of it are of the same size: what is sent in clear is seen.
PLAN = Plan(TARGET, IncA(rounds=3, sigma_star=0.0, sigma_delta=1e-9))
VALUES = np.random.default_rng(19).uniform(size=(PARTIES, DIMENSION)) / np.sqrt(DIMENSION)


@contextlib.asynccontextmanager
async def relay() -> AsyncIterator[RelayAddress]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = RelayServer(listening, Admission(anybody=True))
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(server.run(stop, ready.set))
    await ready.wait()
    try:
        yield RelayAddress("127.0.0.1", listening.getsockname()[1])
    finally:
        stop.set()
        await running


async def study(directory: Path, links: Links, through_relay: bool) -> list[NodeResult]:
    async with contextlib.AsyncExitStack() as stack:
        identities = [Identity.generate() for _ in range(PARTIES)]
        sockets: list[socket.socket | None] = [None] * PARTIES
        if through_relay:
            places: list[Any] = [await stack.enter_async_context(relay())] * PARTIES
        else:
            sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(PARTIES)]
            places = [bound.getsockname()[:2] for bound in sockets if bound is not None]
        entries = [RosterEntry(f"p{k}", places[k], identities[k].public_key) for k in range(PARTIES)]
        settings = [
            NodeSettings(
                identity=identities[k],
                roster=Roster(tuple(entries)),
                brought=PlannedValue(PLAN, PLAN.admit(VALUES[k])),
                store=directory / f"{k}.store",
                waits=Waits(round=60.0, start=60.0),
                transport=sockets[k],
                keys=LinkKeys(links=links),
            )
            for k in range(PARTIES)
        ]
        return list(await asyncio.gather(*map(run_party, settings)))


@pytest.fixture
def salts(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The digests of all transcripts of keys, which whoever records connections knows."""
    found: list[bytes] = []
    ciphers = key_exchange._Transcript.ciphers

    def noted(transcript: Any, secret: bytes) -> Any:
        found.append(transcript.digest)
        return ciphers(transcript, secret)

    monkeypatch.setattr(key_exchange._Transcript, "ciphers", noted)
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize("through_relay", [False, True], ids=["direct", "relay"])
def test_nothing_of_a_recorded_study_opens(tmp_path: Path, salts: list[bytes], through_relay: bool) -> None:
    with recorded() as directions:
        results = asyncio.run(study(tmp_path, Links.HYBRID, through_relay))
    for result in results:
        np.testing.assert_allclose(result.mean, VALUES.mean(axis=0), atol=1e-9)
    # Megabytes were sent, of which the first frames are readable and nothing else.
    assert sum(len(each.raw) for each in directions) > 8 * DIMENSION * PARTIES
    assert len(salts) >= PARTIES * (PARTIES - 1)
    assert opened(directions, salts) == []
    seen = {type(frame).__name__ for each in directions for frame, _ in frames_of(each.raw)}
    assert seen == {"Hello", "KeyOffer", "KeyAnswer"}


def test_the_same_finds_everything_where_links_rest_on_x25519(tmp_path: Path) -> None:
    with recorded() as directions:
        asyncio.run(study(tmp_path, Links.X25519, False))
    kinds = {type(frame).__name__ for frame in opened(directions, [])}
    assert kinds >= {"Welcome", "Begin", "Start", "Transfer", "AnswerFrame"}
