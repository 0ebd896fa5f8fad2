"""Names of hosts in a study are a stranger's: one that leads into this machine is not dialled."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest

from quietmean.node.net import DirectRoute, number_of, numbers_to_dial
from support.refusals import raised


def leads_to(monkeypatch: pytest.MonkeyPatch, *numbers: str) -> list[str]:
    """A name server says so of every host, and is seen being asked."""
    asked: list[str] = []

    def found(host: str, port: int, *more: Any, **options: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in numbers]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return asked


@pytest.mark.parametrize(
    ("host", "number"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("127.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("north.example", "None"),
        ("127.0.0.1.example", "None"),
    ],
)
def test_a_host_in_any_spelling(host: str, number: str) -> None:
    assert str(number_of(host)) == number


@pytest.mark.parametrize(
    "number", ["127.0.0.1", "127.0.1.1", "::1", "169.254.169.254", "fe80::1%2", "::", "224.0.0.1", "::ffff:127.0.0.1"]
)
def test_a_name_that_leads_inside(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, "192.0.2.7", number)
    with pytest.raises(PermissionError, match=r"north\.example leads to .*, an address inside a machine"):
        asyncio.run(numbers_to_dial(("north.example", 7001)))


def test_names_are_asked_once_and_numbers_never(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = leads_to(monkeypatch, "192.0.2.7", "192.0.2.8", "192.0.2.7")
    assert asyncio.run(numbers_to_dial(("north.example", 7001))) == ["192.0.2.7", "192.0.2.8"]
    assert asked == ["north.example"]
    for host in ("127.0.0.1", "::1", "localhost"):
        assert asyncio.run(numbers_to_dial((host, 7001))) == [host]
    assert asked == ["north.example"]


def test_nothing_is_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        address = ("north.example", listening.getsockname()[1])
        leads_to(monkeypatch, "127.0.0.1")
        raised(OSError, "inside a machine", asyncio.run, DirectRoute(address).dial(ssl.create_default_context()))
        raised(BlockingIOError, "", listening.accept)
