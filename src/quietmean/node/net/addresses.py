"""Addresses of parties and of relays, and sockets of an account on this machine."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from quietmean.core.errors import InputError


def number_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The number that a host is, in any spelling that dialling understands (127.1, ::ffff:127.0.0.1); None for a name."""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return (number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None) or number


def is_never_dialled(host: str) -> bool:
    """Whether a host is a number of no machine, of many, or of one network's inside: 0.0.0.0, multicast, link-local."""
    number = number_of(host.partition("%")[0])
    return number is not None and (
        number.is_link_local or number.is_multicast or number.is_unspecified or str(number) == "255.255.255.255"
    )


async def numbers_to_dial(address: tuple[str, int]) -> list[str]:
    """What the host leads to, asked once. Raises OSError for a name that leads into this machine: it is a stranger's choice.

    A host that is written as a number, or as localhost, says what it is: a site's policy has judged it.
    """
    host, port = address
    if number_of(host) is not None or host == "localhost" or host.endswith(".localhost"):
        return [host]
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
    for text in addresses:
        number = number_of(text.partition("%")[0])
        if is_never_dialled(text) or (number is not None and number.is_loopback):
            raise PermissionError(f"{host} leads to {text}, an address inside a machine, to which no other name may lead")
    return addresses


Address: TypeAlias = tuple[str, int]
_AT_RELAY: Final = "relay:"
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_QUOTES = re.compile("[\"'“”„«»‘’]")
_LABEL = re.compile(r"(?!-)[\w-]{1,63}(?<!-)")
# A last label that dialling takes for a part of a number (RFC 1123, 2.1).
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
_LONGEST_HOST = 253


class RelayAddress(NamedTuple):
    """The address of a relay, where a party can be called that nobody can dial."""

    host: str
    port: int


def format_address(address: Address) -> str:
    """Write an address as :func:`parse_place` reads it."""
    host, port = address
    relay = _AT_RELAY if isinstance(address, RelayAddress) else ""
    return f"{relay}[{host}]:{port}" if ":" in host else f"{relay}{host}:{port}"


def parse_address(text: str) -> Address:
    """Host and port of host:port, the host without the brackets of IPv6. Raises :class:`InputError`."""
    host, colon, port = text.rpartition(":")
    objection = _objection(text) or (host and colon and _host_objection(host, port))
    if objection:
        raise InputError(f"address {text!r} {objection}")
    if not host or _PORT.fullmatch(port) is None or int(port) > 65535:
        raise InputError(f"address {text!r} is not host:port. Write for example 192.0.2.7:7001, with a port in 1..65535.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_place(text: str) -> Address:
    """Where a party can be dialled: host:port, or relay:host:port. Raises :class:`InputError`."""
    relayed = text.removeprefix(_AT_RELAY)
    # A host may have the name relay.
    at_relay = relayed != text and ":" in relayed
    host, port = parse_address(relayed if at_relay else text)
    if is_never_dialled(host):
        raise InputError(f"nobody can connect to address {text!r}. Write one at which other parties reach this party.")
    return RelayAddress(host, port) if at_relay else (host, port)


def _objection(text: str) -> str:
    """What is not of an address in a text, and what to write; empty where nothing is."""
    plain = _QUOTES.sub("", text)
    scheme = _SCHEME.match(plain.strip())
    bare = "".join(plain.split()) if len(plain.split()) == 1 or re.search(r":\s", plain) else plain
    bare = re.split(r"[/?#]", _SCHEME.sub("", bare, count=1) if scheme else bare)[0]
    what = (
        "has a scheme in front of it" if scheme
        else "has a blank in it" if any(sign.isspace() for sign in text)
        else "has a user in front of it" if "@" in text
        else "has a path in it" if re.search(r"[/?#]", text)
        else "has quotation marks in it" if plain != text
        else ""
    )  # fmt: skip
    if not what:
        return ""
    with suppress(InputError):
        if bare != text:
            parse_address(bare)
            return f"{what}. Write {bare}."
    return f"{what}. Write host:port alone, such as 192.0.2.7:7001."


def _host_objection(host: str, port: str) -> str:
    """Why a host is none, and what to write; empty where it can be one."""
    if "[" in host or "]" in host or ":" in host:
        inner = host.removeprefix("[").removesuffix("]")
        try:
            ipaddress.IPv6Address(inner)
        except ValueError:
            return "has brackets or colons that belong to IPv6 alone. Write for example [2001:db8::1]:7001."
        if inner == host:
            return f"has an IPv6 host without brackets. Write [{host}]:{port}."
        return "" if host == f"[{inner}]" else "has one of two brackets. Write both, such as [2001:db8::1]:7001."
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        with suppress(ValueError):
            ipaddress.IPv4Address(host)
            return ""
        return f"has the impossible IPv4 host {host}. Write four numbers from 0 to 255 with points between."
    if len(host) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)):
        return "has an impossible host. Write names of letters, digits and hyphens with points between."
    return ""


# Process, user and group of the peer.
_CREDENTIALS = struct.Struct("3i")


class AccountSocket(socket.socket):
    """Listens at a path, and takes connections from processes of the given users alone."""

    users: frozenset[int] = frozenset()

    def accept(self) -> tuple[socket.socket, object]:
        while True:
            connected, address = super().accept()
            if user_of_peer(connected) in self.users:
                return connected, address
            connected.close()


def user_of_peer(connection: socket.socket) -> int | None:
    """The number of the user whose process is at the other end of a Unix socket; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def open_account_socket(path: Path, user: str) -> AccountSocket:
    """A socket in the file system for the processes of one account, ``user``, by name or number.

    Raises :class:`InputError` where there are no such sockets, for an unknown account, and for a folder in which others could put
    a socket of theirs.
    """
    if sys.platform != "linux":
        raise InputError("this needs Linux, which tells who owns a connecting process. Use the pages on the machine itself.")
    number = _number_of(user)
    try:
        mode = path.parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise InputError(f"folder {path.parent} can be written by everybody. Choose one that only this account writes to.")
        if path.is_socket():
            # Of a process that ended.
            path.unlink()
        listening = AccountSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        # Who may connect is asked of the kernel; the rights of the folder hold besides.
        path.chmod(0o666)
    except OSError as error:
        raise InputError(
            f"socket {path} cannot be made ({error.strerror or error}). Choose a folder that this account writes to."
        ) from None
    listening.users = frozenset({number})
    listening.listen()
    return listening


def _number_of(user: str) -> int:
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        if sys.platform != "win32":
            import pwd

            return pwd.getpwnam(user).pw_uid
        raise KeyError(user)
    except KeyError:
        raise InputError(f"account {user!r} does not exist on this machine. Give the one whose processes may connect.") from None
