"""HTTP proxies: which one the environment names for a relay, and the way through it (CONNECT)."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from quietmean.core.errors import InputError
from quietmean.node.net import Address, format_address
from quietmean.node.tunnel.websocket import END_OF_HEAD, LONGEST_HEAD


@dataclass(frozen=True)
class WebProxy:
    """``login``: user and password, or empty."""

    host: str
    port: int
    login: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return format_address((self.host, self.port))


def is_loopback(host: str) -> bool:
    """Whether an address, or the name localhost, never leaves this machine."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def proxy_for(address: Address, environment: Mapping[str, str] = os.environ) -> WebProxy | None:
    """The proxy of ``https_proxy`` or ``HTTPS_PROXY``, unless ``no_proxy`` or ``NO_PROXY`` exempts the host; never for loopback.

    Raises :class:`InputError` for a proxy in a form that is not known.
    """
    host, _ = address
    text = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    if not text or is_loopback(host) or _exempt(host, environment.get("no_proxy") or environment.get("NO_PROXY") or ""):
        return None
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    # The text may hold a password: it is not shown.
    if parts.scheme != "http" or not parts.hostname or not port:
        raise InputError("the proxy in HTTPS_PROXY is not http://[USER:PASSWORD@]HOST:PORT: write it so, or unset it")
    login = "" if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return WebProxy(parts.hostname, port, login)


def _exempt(host: str, text: str) -> bool:
    host = host.lower().rstrip(".")
    for entry in (part.strip().lower() for part in text.split(",")):
        if entry == "*":
            return True
        name = entry.lstrip("*").lstrip(".").rpartition(":")[0] if entry.count(":") == 1 else entry.lstrip("*").lstrip(".")
        if name and (host == name or host.endswith(f".{name}") or _in_network(host, name)):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


async def connect_through(proxy: WebProxy, address: Address) -> socket.socket:
    """A socket at whose other end is ``address``. Raises OSError that says what the proxy answered."""
    connected = await _connected((proxy.host, proxy.port), f"nobody listens at the proxy {proxy.name}")
    try:
        await _ask(connected, proxy, format_address(address))
    except BaseException:
        connected.close()
        raise
    return connected


async def _ask(connected: socket.socket, proxy: WebProxy, target: str) -> None:
    loop = asyncio.get_running_loop()
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.login:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(proxy.login.encode()).decode()}")
    await loop.sock_sendall(connected, "\r\n".join(lines).encode() + END_OF_HEAD)
    answer = b""
    while END_OF_HEAD not in answer:
        more = await loop.sock_recv(connected, 4096)
        if not more or len(answer) > LONGEST_HEAD:
            raise ConnectionError(f"the proxy {proxy.name} closed the connection, or is not an HTTP proxy")
        answer += more
    status = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    code = status[1] if len(status) > 1 else ""
    if code == "407":
        raise ConnectionError(f"the proxy {proxy.name} wants another login: write it in HTTPS_PROXY (Basic only)")
    if code != "200" or not answer.endswith(END_OF_HEAD):
        shown = code if code.isdigit() and len(code) == 3 else "no HTTP"
        raise ConnectionError(f"the proxy {proxy.name} does not connect to {target} (its answer: {shown})")


async def _connected(address: Address, trouble: str) -> socket.socket:
    loop = asyncio.get_running_loop()
    last: OSError = ConnectionRefusedError(trouble)
    for family, kind, protocol, _, endpoint in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        trying = socket.socket(family, kind, protocol)
        trying.setblocking(False)
        try:
            await loop.sock_connect(trying, endpoint)
        except ConnectionRefusedError:
            trying.close()
        except OSError as error:
            trying.close()
            last = error
        except BaseException:
            trying.close()
            raise
        else:
            return trying
    raise last
