"""What keeps browsers from a drop: a page that they get at one address may not send to every other one."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from quietmean.core.errors import InputError
from quietmean.node.tunnel import is_loopback


def is_private(host: str) -> bool:
    """Whether an address is of a network of one's own. Names are not looked up."""
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".lan", ".home.arpa"))


def only_here(address: str) -> str:
    """A remark on the address of a page that each machine takes for itself; empty for another one."""
    return " They work on this machine alone." if is_loopback(urlsplit(address).hostname or "") else ""


def require_reachable(sends_to: str, listens: str, *, tls: bool) -> None:
    """Require that browsers which get a page from here may send where it sends.

    ``sends_to``: scheme and host of the page's drop; ``listens``: the host at which this one listens, empty for all addresses;
    ``tls``: whether it speaks TLS itself. Raises :class:`InputError`.
    """
    place = urlsplit(sends_to)
    host = place.hostname or ""
    if is_loopback(host) and not is_loopback(listens):
        raise InputError(
            f"the page sends to {sends_to}, which each browser takes for its own machine. Listen on that address for a trial, or "
            "make the page again with the address that respondents have."
        )
    if tls and place.scheme == "http":
        raise InputError(
            f"the page sends to {sends_to}, and with a certificate this drop takes https alone. Leave the certificate out, or "
            "make the page again with https."
        )
    if is_private(host) and not is_loopback(host) and _is_public(listens):
        raise InputError(
            f"the page sends to {sends_to}, a private address, and comes from {listens}, a public one: browsers forbid that. "
            "Listen on the private address, or make the page again with the address that respondents have."
        )


def _is_public(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:
        return False
