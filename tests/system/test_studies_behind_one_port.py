"""Two studies at once of three parties, each behind one port of a proxy that passes TLS on by the server name in it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry, Waits, run_party
from quietmean.node.net import NOT_A_PARTY, Address, Group, Seal, public_key_bytes
from quietmean.node.preflight import Agreed, CheckSession
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from support.client_hello import client_hello, server_name

PAGE = Path(__file__).parents[2] / "docs" / "take-part" / "connect.md"
NAMES = ("north", "south", "east")
# Digests as if the same parties had sealed two studies, and what the parties bring to each.
STUDIES = {"a" * 64: (0.1, 0.3, 0.5), "b" * 64: (0.5, 0.4, 0.0)}
PLAN = Plan(Target(parties=3, epsilon=1.0, delta=1e-6, dimension=3), IncA(rounds=4, sigma_star=0.0, sigma_delta=1.0))


class NameProxy:
    """Passes connections on to the address of the server name in their first bytes, as ``ssl_preread`` does."""

    def __init__(self, backends: dict[str, Address]) -> None:
        self._backends = backends
        self.passed: list[str] = []
        self.refused = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            seen = b""
            while (name := server_name(seen)) is None and (more := await reader.read(16 * 1024)):
                seen += more
            if name not in self._backends:
                self.refused += 1
                return
            inner_reader, inner = await asyncio.open_connection(*self._backends[name])
            self.passed.append(name)
            inner.write(seen)
            with contextlib.closing(inner):
                await asyncio.gather(_pass_on(reader, inner), _pass_on(inner_reader, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await reader.read(64 * 1024):
            writer.write(content)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def served(proxy: NameProxy, address: Address) -> AsyncIterator[None]:
    server = await asyncio.start_server(proxy.accept, *address)
    try:
        yield
    finally:
        server.close()
        for task in proxy.tasks:
            task.cancel()
        await asyncio.gather(*proxy.tasks, return_exceptions=True)


def name_by_the_page(digest: str, identity: Identity, capsys: pytest.CaptureFixture[str]) -> str:
    """As the page computes it."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    exec(  # noqa: S102 - a block of a page of ours
        block.replace("DIGEST", digest).replace("ed25519:KEY", identity.public_key),
        {},
    )
    return capsys.readouterr().out.strip()


def test_two_studies_at_once_behind_one_port(
    tmp_path: Path, free_ports: Callable[[int], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    identities = {name: Identity.generate() for name in NAMES}
    addresses = [("127.0.0.1", port) for port in free_ports(9)]
    outer, inner = addresses[:3], addresses[3:]
    entries = tuple(RosterEntry(name, address, identities[name].public_key) for name, address in zip(NAMES, outer, strict=True))
    places = dict(zip([(digest, name) for digest in STUDIES for name in NAMES], inner, strict=True))
    proxies = {
        name: NameProxy({name_by_the_page(digest, identities[name], capsys): places[digest, name] for digest in STUDIES})
        for name in NAMES
    }

    def settings(digest: str, index: int) -> NodeSettings:
        name = NAMES[index]
        return NodeSettings(
            identity=identities[name],
            roster=Roster(entries, Seal(digest, (0, 1, 2))),
            brought=PlannedValue(PLAN, PLAN.admit(np.full(3, STUDIES[digest][index]))),
            store=tmp_path / f"{digest[0]}-{name}.store",
            waits=Waits(round=60.0, start=120.0),
            transport=places[digest, name],
        )

    async def everybody() -> list[np.ndarray]:
        async with contextlib.AsyncExitStack() as stack:
            for name, address in zip(NAMES, outer, strict=True):
                await stack.enter_async_context(served(proxies[name], address))
            reader, stranger = await asyncio.open_connection(*outer[0])
            stranger.write(client_hello("example.org"))
            assert await reader.read() == b""
            stranger.close()
            await stranger.wait_closed()
            parties = (run_party(settings(digest, index)) for digest in STUDIES for index in range(3))
            return [result.mean for result in await asyncio.gather(*parties)]

    means = asyncio.run(asyncio.wait_for(everybody(), 120.0))
    for values, found in zip(STUDIES.values(), (means[:3], means[3:]), strict=True):
        np.testing.assert_allclose(found, np.full((3, 3), np.mean(values)), atol=1e-6)
    assert proxies["north"].refused == 1
    # Of any two of a study one dials the other, and nobody but by a name that the page gives.
    assert sum(len(proxy.passed) for proxy in proxies.values()) >= 6
    assert {name for proxy in proxies.values() for name in proxy.passed} <= {
        Group.of_session(digest).server_name(public_key_bytes(identity.public_key))
        for digest in STUDIES
        for identity in identities.values()
    }


def test_a_party_that_has_not_started_behind_its_port_is_named_so(free_ports: Callable[[int], list[int]]) -> None:
    identities = [Identity.generate() for _ in range(2)]
    addresses = [("127.0.0.1", port) for port in free_ports(2)]
    entries = [RosterEntry(f"p{index}", addresses[index], one.public_key) for index, one in enumerate(identities)]

    async def trouble() -> str:
        async with served(NameProxy({}), addresses[0]):
            check = CheckSession(identities[1], Roster(tuple(entries)), Agreed(bytes(32), bytes(32), bytes(32), "1"))
            await check.run(0.0)
            return check.standings[0].trouble

    assert asyncio.run(trouble()) == NOT_A_PARTY
