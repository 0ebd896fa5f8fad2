"""What a relay needs of the machine: a listening socket, its certificate, and file descriptors for its connections."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Final

from quietmean.core.errors import InputError
from quietmean.core.portability import allow_descriptors
from quietmean.node.net import Address, format_address, parse_address

# Descriptors that a process has besides its connections.
_OTHER_DESCRIPTORS: Final = 64
_QUEUE: Final = 1024
_ANY_HOST: Final = "0.0.0.0"  # noqa: S104


def parse_entrance(text: str) -> Address:
    """HOST:PORT, or :PORT for all addresses of this machine, whose host is then empty. Raises :class:`InputError`."""
    if text.startswith(":") and text.count(":") == 1:
        return "", parse_address(f"{_ANY_HOST}{text}")[1]
    return parse_address(text)


def open_entrance(address: Address) -> socket.socket:
    """Bind and listen. Raises :class:`InputError` if that is not possible."""
    host, port = address
    both = not host and socket.has_dualstack_ipv6()
    try:
        family = socket.getaddrinfo(host or _ANY_HOST, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server(address, family=socket.AF_INET6 if both else family, backlog=_QUEUE, dualstack_ipv6=both)
    except OSError as error:
        raise InputError(
            f"cannot listen on {format_address((host or _ANY_HOST, port))} ({error.strerror}): stop what uses it, choose another "
            "address or port with --listen, or allow this account to use ports below 1024"
        ) from None


def outer_tls(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """For the ordinary TLS around everything. Raises :class:`InputError` that names the file."""
    for path in (certificate, private_key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): check the path and its rights") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A passphrase would be asked for at a terminal, which a service does not have.
        context.load_cert_chain(certificate, private_key, password=lambda: b"")
    except (ssl.SSLError, ValueError):
        raise InputError(
            f"{certificate} and {private_key} are no certificate and its private key without a passphrase: give both, as PEM"
        ) from None
    return context


def connections_possible(wanted: int) -> int:
    """So many connections, or what the system lets this process have; its own limit is raised as far as it may."""
    return allow_descriptors(wanted + _OTHER_DESCRIPTORS) - _OTHER_DESCRIPTORS
