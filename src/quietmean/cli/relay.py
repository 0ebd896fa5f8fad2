"""``quietmean relay``: where parties meet that nobody can dial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from quietmean.cli.console import note, warn
from quietmean.core.errors import InputError

if TYPE_CHECKING:
    from quietmean.node.relay import Admission


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """How much a relay does at a time.

    Parameters
    ----------
    connections
        How many connections to hold at a time.
    pairs
        How many pairs of parties to hold at a time; each takes at most 192 KiB of memory here.
    rate
        How many connections one party may begin each second, after a burst of 1024.
    stalled
        Seconds after which who takes nothing of what is sent to it is cut off.
    """

    connections: int = 10_400
    pairs: int = 5000
    rate: float = 64.0
    stalled: float = 120.0


def relay_command(
    *,
    listen: str,
    certificate: Path | None = None,
    private_key: Path | None = None,
    admit: list[Path] | None = None,
    name: list[str] | None = None,
    limit: LimitOptions = LimitOptions(),
    json: bool = False,
) -> None:
    """Let parties meet here that nobody can dial: each dials out to this relay, and it passes on what two of them exchange.

    It cannot read or change that: the parties' own TLS, pinned to their keys, runs inside. It learns who is in a study, when, and
    how many bytes they exchange. It keeps no files: stop it and start it again at any time, and the parties come back.
    GET /health answers with counts.

    Parameters
    ----------
    listen
        HOST:PORT to listen on, or :PORT for all addresses of this machine.
    certificate
        The certificate of this relay's host, with its chain (PEM), from an authority that the parties' machines trust. Without
        one it speaks plain WebSocket: on a loopback address, or behind a server that ends TLS.
    private_key
        The certificate's private key (PEM), without a passphrase.
    admit
        Whom it serves; repeat for several: a sealed study or a roster, whose parties may meet in that study; or a file with one
        public key a line, whose owners may meet in any. By default nobody, but on a loopback address anybody.
    name
        The host in the parties' address relay:HOST:PORT, if the server in front of this one asks for another; repeat for several.
    json
        One JSON document on standard output, once it listens.
    """
    import asyncio

    from quietmean.cli.serving import on_loopback, require_both, serve, shown_entrance, tell_listening
    from quietmean.node.net import RelayAddress, format_address, number_of
    from quietmean.node.relay import RelayLimits, RelayServer, connections_possible, open_entrance, outer_tls, parse_entrance

    if not (0 < limit.rate < 1e9 and 0 < limit.stalled < 1e9):
        raise InputError("--rate and --stalled are a number of connections and of seconds: choose numbers above 0")
    if limit.pairs < 1 or limit.connections < 2 * limit.pairs:
        raise InputError(
            f"{limit.pairs} pairs and {limit.connections} connections: choose 1 pair or more, and two connections for each "
            "or more"
        )
    require_both(certificate, private_key)
    host, port = parse_entrance(listen)
    admission = _admission(admit or [], host)
    tls = None if certificate is None or private_key is None else outer_tls(certificate, private_key)
    possible = connections_possible(limit.connections)
    if possible < limit.connections:
        warn(
            f"the system lets it hold {possible} connections, not {limit.connections}: raise the limit of open files (ulimit -n)"
        )
    limits = RelayLimits(
        connections=possible, pairs=min(limit.pairs, possible // 2), rate=limit.rate, stalled_seconds=limit.stalled
    )
    server = RelayServer(open_entrance((host, port)), admission, limits, tls, name or [])
    if tls is None and not on_loopback(host):
        warn("it has no certificate, and parties speak TLS to it: a server that ends TLS has to stand in front")
    if tls is not None and on_loopback(host) and not name:
        warn("it has a certificate, and parties here speak no TLS to a loopback address: leave --certificate out")

    def ready() -> None:
        # Of all addresses of this machine at once, none is one that parties can dial.
        number = number_of(host) if host else None
        dialled = host if host and not (number and number.is_unspecified) else "HOST"
        shown, where = shown_entrance(host, port), format_address(RelayAddress((name or [dialled])[0], port))
        about = {"listening": shown, "tls": tls is not None, "connections": limits.connections, "pairs": limits.pairs}
        about["anybody"] = admission.anybody
        tell_listening(json, about, f"relay: listening on {shown}; the address of its parties is {where}")

    asyncio.run(serve(server, ready))
    counts = server.exchange.counts
    note(f"relay: ended; {counts.joined} pairs joined, {counts.bytes} bytes passed on, {counts.refused} connections refused")


def _admission(files: Sequence[Path], host: str) -> Admission:
    """Whom the files name. Raises :class:`InputError`."""
    from quietmean.cli.serving import on_loopback
    from quietmean.node.net import public_key_bytes
    from quietmean.node.relay import Admission

    if not files:
        if not on_loopback(host):
            raise InputError("it would serve nobody: name sealed studies, rosters or files of keys with --admit")
        warn("it serves anybody, from this machine or through a server in front of it: say with --admit whom to serve")
        return Admission(anybody=True)
    sealed: dict[str, frozenset[bytes]] = {}
    keys: set[bytes] = set()
    for path in files:
        digest, public_keys = _members(path)
        members = frozenset(map(public_key_bytes, public_keys))
        if digest is None:
            keys |= members
        else:
            sealed[digest] = members
    return Admission.of(sealed, frozenset(keys))


def _members(path: Path) -> tuple[str | None, list[str]]:
    """The session, None for any, and public keys."""
    from quietmean.node.net import KEY_PREFIX, Roster
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.agreement.signed import is_signed_document

    if is_signed_document(path):
        sealed = Sealed.load(path)
        Distrusted().refuse(sealed.holders())
        return sealed.digest, [entry.identity for entry in sealed.entries]
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        # Reading it as a roster below says what is wrong with the file.
        lines = []
    keys = [line for line in lines if line.startswith(KEY_PREFIX)]
    if keys and all(not line or line.startswith(("#", KEY_PREFIX)) for line in lines):
        return None, keys
    roster = Roster.load(path)
    return roster.digest, [entry.public_key for entry in roster.entries]
