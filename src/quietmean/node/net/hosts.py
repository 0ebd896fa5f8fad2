"""What hosts lead to. In a study they are a stranger's choice, who may want this site to look into its own machine or network."""

from __future__ import annotations

import asyncio
import ipaddress
import socket


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
            raise PermissionError(f"{host} leads to {text}, an address inside a machine, which is not dialled by another name")
    return addresses
