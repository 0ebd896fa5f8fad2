"""Where processes that share a port meet, what is typed for it, and by which name a party is asked for there."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.core.site_options import NodeOptions
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import (
    NOT_A_PARTY,
    Credentials,
    DirectRoute,
    Endpoint,
    Group,
    Heartbeat,
    Limits,
    Link,
    listening_place,
    open_socket,
    public_key_bytes,
    runtime_folder,
    socket_name_in,
)
from quietmean.node.port import MOST, PortServer, server_name
from quietmean.node.preflight import Agreed, CheckSession
from support.shared_port import short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


# --- the folder, and what is typed -----------------------------------------------------------------------------------


def test_a_folder_that_others_may_use_is_refused(folder: Path) -> None:
    assert runtime_folder(folder / "new").stat().st_mode & 0o777 == 0o700
    for mode in (0o755, 0o720, 0o701):
        (folder / "new").chmod(mode)
        with pytest.raises(InputError, match="open to other accounts: close it with chmod 700"):
            runtime_folder(folder / "new")
    with pytest.raises(InputError, match="too long a path"):
        runtime_folder(folder / ("x" * 100))
    with pytest.raises(InputError, match="cannot be used"):
        runtime_folder(folder / "missing" / "too")
    (folder / "file").touch(mode=0o600)
    with pytest.raises(InputError, match="cannot be used"):
        runtime_folder(folder / "file")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="to own nothing needs root")
def test_a_folder_of_another_account_is_refused(folder: Path) -> None:
    os.chown(runtime_folder(folder / "new"), 65534, 65534)
    with pytest.raises(InputError, match="another account's"):
        runtime_folder(folder / "new")


def test_windows_is_refused_in_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(InputError, match="need Linux or macOS"):
        listening_place(NodeOptions(listen_through=folder / "run"))
    assert not (folder / "run").exists()


def test_one_place_to_listen(folder: Path) -> None:
    assert listening_place(NodeOptions()) is None
    assert listening_place(NodeOptions(listen="127.0.0.1:7001")) == ("127.0.0.1", 7001)
    assert listening_place(NodeOptions(listen_through=folder / "run")) == folder / "run"
    with pytest.raises(InputError, match="listen and listen_through exclude each other"):
        listening_place(NodeOptions(listen="127.0.0.1:7001", listen_through=folder / "run"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--listen", "8443", "--runtime-dir", "run"], "address '8443' is not host:port"),
        (["--listen", "192.0.2.1:8443", "--runtime-dir", "run"], "cannot listen on 192.0.2.1:8443"),
        (["--listen", "127.0.0.1:8443", "--runtime-dir", "."], "is open to other accounts"),
        (["--listen", "127.0.0.1:8443", "--runtime-dirr", "run"], "--runtime-dir"),
    ],
)
def test_mistakes_in_the_command(
    options: list[str], sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    folder.chmod(0o755)
    with pytest.raises(SystemExit) as end:
        main(["port", *options])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert sentence in " ".join(said.split())
    assert "Traceback" not in said


# --- who is asked for ------------------------------------------------------------------------------------------------


def test_the_name_that_is_asked_for_is_the_beginning_of_the_label() -> None:
    identities = [Identity.generate() for _ in range(2)]
    listening = open_socket(("127.0.0.1", 0))
    address = listening.getsockname()
    entries = [RosterEntry(f"p{place}", (address[0], address[1] + place), one.public_key) for place, one in enumerate(identities)]
    roster = Roster(tuple(entries))
    group = Group.of_session(roster.digest)
    label = group.label(public_key_bytes(identities[0].public_key)).hex()

    async def asked() -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        dialling = asyncio.create_task(DirectRoute.to(roster, 0).dial(context))
        connected, _ = await asyncio.to_thread(listening.accept)
        seen = await asyncio.to_thread(connected.recv, MOST)
        connected.close()
        await asyncio.gather(dialling, return_exceptions=True)
        found = server_name(seen)
        assert isinstance(found, str)
        return found

    found = asyncio.run(asked())
    listening.close()
    assert found == f"{label[:32]}.invalid"
    assert socket_name_in(found) == label[:32] == group.socket_name(public_key_bytes(identities[0].public_key))
    # Another party, another study: another name.
    others = {Group.of_session("ab" * 32).socket_name(public_key_bytes(identities[0].public_key)), socket_name_in(found)}
    assert len(others | {group.socket_name(public_key_bytes(identities[1].public_key))}) == 3


def test_a_party_that_has_not_started_behind_its_port_is_named_so(folder: Path) -> None:
    """By a link of a study that runs, and by a check."""
    identities = [Identity.generate() for _ in range(2)]
    listening = open_socket(("127.0.0.1", 0))
    address = listening.getsockname()
    entries = [RosterEntry(f"p{place}", (address[0], address[1] - place), one.public_key) for place, one in enumerate(identities)]
    roster = Roster(tuple(entries))
    nobody = Limits.before_welcome()

    async def work() -> str:
        stop = asyncio.Event()
        serving = asyncio.create_task(PortServer(listening, folder).run(stop))
        credentials = Credentials(identities[1], roster, "study")
        endpoint = Endpoint(1, roster, "study", credentials, nobody, lambda who, why: None, lambda party, position: None)
        link = Link(endpoint, 0)
        asking = asyncio.create_task(link.ask(Heartbeat(0, 1, 0)))
        try:
            async with asyncio.timeout(20.0):
                while link.trouble != NOT_A_PARTY:
                    await asyncio.sleep(0.01)
            assert not link.unreachable
            check = CheckSession(identities[1], roster, Agreed(bytes(32), bytes(32), bytes(32), "1"))
            # Itself behind the same port.
            check.listen(folder)
            assert len(list(folder.iterdir())) == 1
            await check.run(0.0)
            assert list(folder.iterdir()) == []
            return check.standings[0].trouble
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await link.close()
            stop.set()
            await serving

    assert asyncio.run(work()) == NOT_A_PARTY
