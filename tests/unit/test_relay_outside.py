"""The way to a relay from a network that lets only HTTPS out: its certificate, CONNECT proxies, and proxies that look inside."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import ByteStream, Credentials, RelayAddress, open_socket
from quietmean.node.preflight import Agreed, CheckSession, PeerReadiness
from quietmean.node.relay import Admission, RelayServer, outer_tls
from quietmean.node.tunnel import Dialer, RelayError
from quietmean.node.tunnel.route import RelayAccess
from quietmean.node.tunnel.stream import Attending
from support.outside import HOST, Authority, Proxy
from support.refusals import refused

IDENTITIES = [Identity.generate() for _ in range(2)]
ROSTER = Roster(tuple(RosterEntry(f"party-{k}", RelayAddress(HOST, 443), each.public_key) for k, each in enumerate(IDENTITIES)))


@contextlib.asynccontextmanager
async def outside(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, later: float = 0.0, **options: Any
) -> AsyncIterator[Proxy]:
    """A relay with a certificate, and a proxy as the only way to it."""
    listening = open_socket(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = RelayServer(listening, Admission(anybody=True), tls=outer_tls(*authority.leaf(HOST, later)))
    stop = asyncio.Event()
    running = asyncio.create_task(server.run(stop))
    proxy = Proxy(port, **options)
    door = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    login = "user:secret@" if "login" in options else ""
    monkeypatch.setenv("https_proxy", f"http://{login}127.0.0.1:{door.sockets[0].getsockname()[1]}")
    try:
        yield proxy
    finally:
        stop.set()
        await running
        door.close()
        # The proxy's last connections end with the relay.
        await asyncio.sleep(0.1)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    found = Authority(tmp_path, "hospital")
    monkeypatch.setenv("SSL_CERT_FILE", str(found.file))
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.mark.parametrize("inside", [False, True], ids=["connect", "intercepting"])
async def test_parties_meet_through_a_proxy(inside: bool, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = (outer_tls(*authority.leaf(HOST)), ssl.create_default_context()) if inside else None
    async with outside(authority, monkeypatch, inside=contexts, login=b"Basic dXNlcjpzZWNyZXQ=") as proxy:
        said = await exchange()
        assert said == [b"quietly" * 1000, b"indeed" * 1000]
        assert set(proxy.asked) == {b"CONNECT relay.example:443 HTTP/1.1"}
        # What it looks into is TLS once more.
        assert (b"/quietmean/1" in proxy.seen) == inside
        assert b"quietly" not in proxy.seen


async def exchange() -> list[bytes]:
    """What two parties hear of each other."""
    credentials = [Credentials(each, ROSTER, "f" * 64) for each in IDENTITIES]
    accesses = [RelayAccess(RelayAddress(HOST, 443), each, ROSTER.digest) for each in IDENTITIES]
    attending = await accesses[1].open("attend")
    assert isinstance(await attending.message(), Attending)
    reach = Dialer(IDENTITIES[0], ROSTER)
    calling = asyncio.create_task(reach.route(1).dial(credentials[0].client(1)))
    call: Any = await attending.message()
    joined = await accesses[1].join(await accesses[1].open("answer", ticket=call.ticket))
    far = ByteStream()
    await asyncio.get_running_loop().connect_accepted_socket(lambda: far, joined, ssl=credentials[1].server)
    near = await calling
    await near.write(b"quietly" * 1000)
    await far.write(b"indeed" * 1000)
    heard = [bytes(await far.readexactly(7000)), bytes(await near.readexactly(6000))]
    for stream in (near, far):
        stream.abort()
    attending.abort()
    await asyncio.gather(reach.close(), *(each.close() for each in accesses))
    return heard


async def test_a_relay_whose_certificate_is_not_trusted(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path, "another").file))
    async with outside(authority, monkeypatch):
        with pytest.raises(RelayError, match="not trusted here"):
            await exchange()


async def test_a_relay_with_a_certificate_at_a_loopback_address(authority: Authority) -> None:
    """The natural first try on one machine: parties speak no TLS there, and say what to do."""
    listening = open_socket(("127.0.0.1", 0))
    server = RelayServer(listening, Admission(anybody=True), tls=outer_tls(*authority.leaf("localhost")))
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(server.run(stop, ready.set))
    await ready.wait()
    access = RelayAccess(RelayAddress("localhost", listening.getsockname()[1]), IDENTITIES[0], ROSTER.digest)
    try:
        with pytest.raises(RelayError, match="Start the relay without --certificate"):
            await access.open("call", peer=bytes(32))
    finally:
        await access.close()
        stop.set()
        await running


@pytest.mark.parametrize(("later", "how"), [(3.0, "not yet valid"), (-3.0, "has expired")])
async def test_a_certificate_that_is_not_good_by_this_clock(
    later: float, how: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine's clock is wrong, or the certificate old: the sentence says what to look at, and what time it is here."""
    async with outside(authority, monkeypatch, later):
        with pytest.raises(RelayError, match=f"{how}.* UTC by this machine's clock, set that if it is wrong") as caught:
            await exchange()
        assert "\n" not in str(caught.value)


async def test_a_proxy_that_wants_another_login(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    async with outside(authority, monkeypatch, login=b"another login"):
        with pytest.raises(RelayError, match="wants another login") as caught:
            await exchange()
        assert "secret" not in str(caught.value)


async def test_a_proxy_that_is_none(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    listening = open_socket(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    listening.close()
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    with pytest.raises(RelayError, match=f"nobody listens at the proxy 127.0.0.1:{port}"):
        await exchange()


async def test_a_relay_whose_name_leads_into_this_machine(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    def inside(*asked: Any, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 443))]

    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", inside)
    with pytest.raises(RelayError, match=r"no connection to the relay relay\.example:443 is made: .*inside a machine"):
        await exchange()


def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    refused("are not a certificate and its key", outer_tls, wrong, wrong)
    refused("cannot be read", outer_tls, tmp_path / "missing.pem", wrong)


def checked(first: tuple[str, int], wait: float = 1.0) -> PeerReadiness:
    """What a check of party 0 says of party 1 at this address."""
    entries = (
        RosterEntry("north", ("127.0.0.1", 1), IDENTITIES[0].public_key),
        RosterEntry("south", first, IDENTITIES[1].public_key),
    )
    roster = Roster(entries)
    session = CheckSession(IDENTITIES[0], roster, Agreed(bytes(32), bytes(32), bytes(32), "1"))
    asyncio.run(session.run(wait))
    return session.standings[1]


def test_a_proxy_that_replaced_a_certificate_is_named_with_its_issuer(authority: Authority) -> None:
    """Of a party that is dialled directly."""
    contexts = {
        "hospital": outer_tls(*authority.leaf(HOST)),
        # The certificate of a party, of another key than the roster's: no proxy.
        "": Credentials(Identity.generate(), ROSTER, "f" * 64).server,
    }
    for issuer, context in contexts.items():
        with tls_server(context) as address:
            progress = checked(address)
        said = " ".join(progress.problems)
        if issuer:
            assert f"a proxy replaced the certificate, or a web server is at its address (issuer: {issuer})" in said
            assert "meet at a relay" in said
        else:
            assert "another key than the roster's answers at its address" in said


@contextlib.contextmanager
def tls_server(context: ssl.SSLContext) -> Iterator[tuple[str, int]]:
    """Shakes hands in a thread of its own, and says nothing."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listening.accept()
                accepted.settimeout(5.0)
                with accepted, contextlib.suppress(OSError), context.wrap_socket(accepted, server_side=True) as connected:
                    connected.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(20.0)


def test_a_check_names_the_relay_that_is_not_there(free_ports: Callable[[int], list[int]]) -> None:
    port = free_ports(1)[0]
    progress = checked(RelayAddress("127.0.0.1", port))
    assert f"nobody listens at the relay 127.0.0.1:{port}" in " ".join(progress.problems)
