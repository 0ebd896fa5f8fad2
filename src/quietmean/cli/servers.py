"""Commands that serve others until they are stopped: the relay and the drop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, Protocol

from cyclopts import Parameter

from quietmean.cli.console import err, note, out, progress, warn
from quietmean.cli.identity import kept, load_identity, make_identity
from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra
from quietmean.core.logs import keep_logs_short
from quietmean.core.readable import count_of
from quietmean.form import FormPage, SignedPage
from quietmean.form.reach import require_reachable
from quietmean.node.net import KEY_PREFIX, Identity, RelayAddress, Roster, format_address, number_of, public_key_bytes
from quietmean.node.relay import (
    Admission,
    RelayLimits,
    RelayServer,
    connections_possible,
    open_entrance,
    outer_tls,
    parse_entrance,
)
from quietmean.node.tunnel import is_loopback
from quietmean.studies.agreement.contribution import session_of
from quietmean.studies.agreement.sealed import Sealed, sealed_with_committee
from quietmean.studies.agreement.signed import is_signed_document, read_bounded
from quietmean.studies.agreement.study_keys import Distrusted
from quietmean.studies.outcome.feasible import feasible_sealed


class PageServer(Protocol):
    """What runs until the event is set, and calls ``ready`` once it listens."""

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None: ...


async def serve(server: PageServer, ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM: the end that its operator wants, so no failure."""
    # The event loop reports each broken connection, and the HTTP server each request that is none.
    keep_logs_short("asyncio", "quietmean.node", "uvicorn.error")
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await server.run(stop, ready)


def tell_listening(json: bool, about: dict[str, Any], sentence: str) -> None:
    """Say on standard output, at once, where it listens: who started it waits for that."""
    if json:
        sys.stdout.write(f"{dumps(about)}\n")
    else:
        out.print(sentence)
    sys.stdout.flush()


def shown_entrance(host: str, port: int) -> str:
    """The address; an empty ``host`` means all of this machine."""
    return format_address((host or "0.0.0.0", port))  # noqa: S104


def on_loopback(host: str) -> bool:
    """Whether only this machine reaches who listens there; not at all addresses, the empty ``host``."""
    return bool(host) and is_loopback(host)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TlsOptions:
    """By what a server is known to those who connect.

    Parameters
    ----------
    certificate
        The certificate of this host, with its chain (PEM), from an authority that others' machines trust. Without it, the server
        uses no TLS: only on a loopback address, or behind a server that provides TLS.
    private_key
        The certificate's private key (PEM), without a passphrase.
    """

    certificate: Path | None = None
    private_key: Path | None = None

    @property
    def files(self) -> tuple[Path, Path] | None:
        """Certificate and key, or neither. Raises :class:`InputError` for one without the other."""
        if (self.certificate is None) != (self.private_key is None):
            raise InputError(
                "a certificate and its private key go together. Give both --certificate and --private-key, or neither."
            )
        return None if self.certificate is None or self.private_key is None else (self.certificate, self.private_key)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """How much a relay does at a time.

    Parameters
    ----------
    connections
        The most connections at the same time.
    pairs
        The most connected pairs of parties at the same time. Each takes at most 192 KiB of memory.
    rate
        How many connections one party may open each second, after a burst of 1024.
    stalled
        Seconds after which a party that reads none of its messages is disconnected.
    """

    connections: int = 10_400
    pairs: int = 5000
    rate: float = 64.0
    stalled: float = 120.0


def relay_command(
    *,
    listen: str,
    by: TlsOptions = TlsOptions(),
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
    admit
        Whom the relay serves; repeat for several. A signed study or a roster admits its parties, in that study. A file with one
        public key a line admits their owners, in any study. Default: nobody; on a loopback address, everybody.
    name
        The host in the parties' address relay:HOST:PORT, if the server in front of this relay uses another name. Repeat for
        several.
    json
        One JSON document on standard output, once it listens.
    """
    if not (0 < limit.rate < 1e9 and 0 < limit.stalled < 1e9):
        raise InputError("--rate and --stalled are a number of connections and of seconds. Choose numbers above 0.")
    if limit.pairs < 1 or limit.connections < 2 * limit.pairs:
        raise InputError(
            f"{limit.pairs} pairs and {limit.connections} connections. Choose 1 pair or more, and two connections for each "
            "or more."
        )
    files = by.files
    host, port = parse_entrance(listen)
    admission = _admission(admit or [], host)
    tls = None if files is None else outer_tls(*files)
    possible = connections_possible(limit.connections)
    if possible < limit.connections:
        warn(
            f"the system lets it hold {possible} connections, not {limit.connections}. Raise the limit of open files (ulimit -n)."
        )
    limits = RelayLimits(
        connections=possible, pairs=min(limit.pairs, possible // 2), rate=limit.rate, stalled_seconds=limit.stalled
    )
    server = RelayServer(open_entrance((host, port)), admission, limits, tls, name or [])
    if tls is None and not on_loopback(host):
        warn("it has no certificate, and parties speak TLS to it: a server that ends TLS has to stand in front")
    if tls is not None and on_loopback(host) and not name:
        warn("it has a certificate, and parties here speak no TLS to a loopback address. Leave --certificate out.")

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
    if not files:
        if not on_loopback(host):
            raise InputError("it would serve nobody. Name sealed studies, rosters or files of keys with --admit.")
        warn("it serves anybody, from this machine or through a server in front of it. Say with --admit whom to serve.")
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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DropLimitOptions:
    """How much a drop does at a time.

    Parameters
    ----------
    connections
        The most connections at the same time.
    rate
        How many contributions of one network to check each second, after a burst of ten times that number.
    stalled
        Seconds after which an upload without progress is cancelled.
    """

    connections: int = 256
    rate: float = 200.0
    stalled: float = 120.0


def drop_command(
    page: Path | None = None,
    /,
    *,
    study: Path,
    listen: str,
    folder: Path,
    key: Path | None = None,
    by: TlsOptions = TlsOptions(),
    limit: DropLimitOptions = DropLimitOptions(),
    json: bool = False,
) -> None:
    """Take contributions to a study with a committee over HTTPS, and keep them in a folder that its members read.

    It checks who sent each and that it is whole, and answers with a signed receipt once it is on the disk. It can read nothing
    of what it takes, and is trusted for nothing: it can leave contributions out, and sees who contributes when. Stopped or
    killed, the same command goes on. GET /health says how many contributions there are.

    Parameters
    ----------
    page
        A page for browsers, from quietmean study form. It is then served at this address. PAGE.signed has to be beside it.
    study
        The signed study.
    listen
        HOST:PORT to listen on, or :PORT for all addresses of this machine.
    folder
        The folder for contributions, as for quietmean join --contributions. It is created if it does not exist.
    key
        The private key with which receipts are signed. Default: FOLDER.key, which is made with a new folder.
    json
        One JSON document on standard output, once it listens.
    """
    for module in ("starlette", "uvicorn"):
        import_extra(module, "desk", "a drop")
    from quietmean.drop import Drop, DropBox, DropLimits, DropServer

    if not (0 < limit.rate < 1e9 and 0 < limit.stalled < 1e9):
        raise InputError("--rate and --stalled are a number of contributions and of seconds. Choose numbers above 0.")
    if not 1 <= limit.connections <= 1_000_000:
        raise InputError(f"{limit.connections} connections. Choose 1 or more with --connections.")
    tls = by.files
    host, port = parse_entrance(listen)
    sealed = sealed_with_committee(study)
    if sealed is None or sealed.study.committee is None:
        raise InputError(f"{study} is not a sealed study with a committee. Give one, others have no contributions to drop.")
    Distrusted().refuse(sealed.holders())
    served = None if page is None else _served(page, sealed)
    if served is not None:
        require_reachable(served.sends_to, host, tls=tls is not None)
    own = folder.with_name(f"{folder.name}.key")
    known = load_identity(key or own) if key is not None or own.exists() else None
    if tls is not None:
        outer_tls(*tls)
    elif not on_loopback(host):
        warn("it has no certificate, and contributors speak TLS to it: a server that ends TLS has to stand in front")
    with progress("calibrating the noise"):
        session = session_of(sealed, feasible_sealed(sealed).plan)
    limits = DropLimits(connections=limit.connections, rate=limit.rate, slow=limit.stalled)
    box = DropBox.open(folder, session)
    try:
        identity = known or _new_key(own, len(box))
        of_page = {} if served is None else {"page": f"{served.sends_to}/"}

        def ready() -> None:
            where, stored = shown_entrance(host, port), f"{count_of(len(box), 'contribution')} in {folder}"
            about = {"listening": where, "tls": tls is not None, "key": identity.public_key, "contributions": len(box)}
            said = f"drop: listening on {where}, with {stored}; it signs receipts as {identity.public_key}"
            there = "".join(f"\ndrop: its page is {address}, for each link of study vouchers" for address in of_page.values())
            tell_listening(json, about | of_page, said + there)

        terms = sealed.study.committee
        content = None if served is None else (served.content, served.policy)
        drop = Drop(box, session, identity, terms.lists_at, limits, page=content, terms=terms)
        asyncio.run(serve(DropServer(drop, (host, port), tls, lambda text: err.print(f"drop: {text}", soft_wrap=True)), ready))
        note(f"drop: ended; {count_of(len(box), 'contribution')} in {folder}")
    finally:
        box.close()


def _new_key(path: Path, acknowledged: int) -> Identity:
    """The key of a new drop. Raises :class:`InputError` where receipts are there, which another key signed."""
    if acknowledged:
        raise InputError(f"{path} is missing, and it signed the receipts of this drop. Restore it, or name the key with --key.")
    identity = make_identity(path)
    err.print("\n".join(kept(path)), soft_wrap=True)
    return identity


def _served(page: Path, sealed: Sealed) -> FormPage:
    """The page in a file. Raises :class:`InputError` for another file, and if the study's coordinator did not sign it."""
    try:
        form = FormPage.of_file(read_bounded(page))
    except InputError as error:
        raise InputError(f"{page}: {error}") from None
    SignedPage.beside(page, form.content, sealed)
    return form
