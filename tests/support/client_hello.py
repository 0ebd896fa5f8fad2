"""The first words of TLS, and the server name in them."""

from __future__ import annotations

import contextlib
import ssl


def client_hello(name: str | None) -> bytes:
    """What Python's TLS says first, to a server of this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody has answered yet")


def server_name(seen: bytes) -> str | None:
    """What a proxy reads in the first bytes of a connection, without an answer; None where there is no name yet."""
    found: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda tls, name, _: found.append(name)
    incoming = ssl.MemoryBIO()
    incoming.write(seen)
    with contextlib.suppress(ssl.SSLError):
        context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
    return found[0] if found else None
