"""``quietmean drop``: a place to which contributors to a committee send their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from quietmean.cli.console import note, progress, warn
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DropLimitOptions:
    """How much a drop does at a time.

    Parameters
    ----------
    connections
        How many connections to hold at a time.
    rate
        How many contributions to look at in a second, after a burst of ten times as many.
    stalled
        Seconds after which a contribution that does not come is given up.
    """

    connections: int = 256
    rate: float = 200.0
    stalled: float = 120.0


def drop_command(
    *,
    study: Path,
    listen: str,
    folder: Path,
    key: Path = Path("quietmean.key"),
    certificate: Path | None = None,
    private_key: Path | None = None,
    limit: DropLimitOptions = DropLimitOptions(),
    json: bool = False,
) -> None:
    """Take contributions to a study with a committee over HTTPS, and keep them in a folder that its members read.

    It checks who sent each and that it is whole, and answers with a signed receipt once it is on the disk. It can read nothing
    of what it takes, and is trusted for nothing: it can leave contributions out, and sees who contributes when. Stopped or
    killed, the same command goes on. GET /health says how many contributions there are.

    Parameters
    ----------
    study
        The sealed study.
    listen
        HOST:PORT to listen on, or :PORT for all addresses of this machine.
    folder
        Where to keep contributions, for quietmean join --contributions; made if it is not there.
    key
        The private key with which receipts are signed, from quietmean keygen.
    certificate
        The certificate of this host, with its chain (PEM), from an authority that contributors' machines trust. Without one it
        speaks plain HTTP: on a loopback address, or behind a server that ends TLS.
    private_key
        The certificate's private key (PEM), without a passphrase.
    json
        One JSON document on standard output, once it listens.
    """
    import asyncio

    from quietmean.cli.identity import load_identity
    from quietmean.cli.serving import on_loopback, require_both, serve, shown_entrance, tell_listening
    from quietmean.core.extras import import_extra

    for module in ("starlette", "uvicorn"):
        import_extra(module, "desk", "a drop")
    from quietmean.drop import Drop, DropBox, DropLimits, DropServer
    from quietmean.node.relay import outer_tls, parse_entrance
    from quietmean.studies.agreement.committee_session import session_of
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.sealed import sealed_with_committee
    from quietmean.studies.outcome.feasible import feasible_sealed

    if not (0 < limit.rate < 1e9 and 0 < limit.stalled < 1e9):
        raise InputError("--rate and --stalled are a number of contributions and of seconds: choose numbers above 0")
    if not 1 <= limit.connections <= 1_000_000:
        raise InputError(f"{limit.connections} connections: choose 1 or more with --connections")
    require_both(certificate, private_key)
    host, port = parse_entrance(listen)
    sealed = sealed_with_committee(study)
    if sealed is None or sealed.study.committee is None:
        raise InputError(f"{study} is not a sealed study with a committee: others have no contributions to drop")
    Distrusted().refuse(sealed.holders())
    identity = load_identity(key)
    tls = None
    if certificate is not None and private_key is not None:
        outer_tls(certificate, private_key)
        tls = certificate, private_key
    elif not on_loopback(host):
        warn("it has no certificate, and contributors speak TLS to it: a server that ends TLS has to stand in front")
    with progress("calibrating the noise"):
        session = session_of(sealed, feasible_sealed(sealed).plan)
    limits = DropLimits(connections=limit.connections, rate=limit.rate, slow=limit.stalled)
    box = DropBox.open(folder, session)

    def ready() -> None:
        where, stored = shown_entrance(host, port), f"{count_of(len(box), 'contribution')} in {folder}"
        about = {"listening": where, "tls": tls is not None, "key": identity.public_key, "contributions": len(box)}
        tell_listening(json, about, f"drop: listening on {where}, with {stored}; receipts are by {identity.public_key}")

    try:
        drop = Drop(box, session, identity, sealed.study.committee.lists_at, limits)
        asyncio.run(serve(DropServer(drop, (host, port), tls), ready))
        note(f"drop: ended; {count_of(len(box), 'contribution')} in {folder}")
    finally:
        box.close()
