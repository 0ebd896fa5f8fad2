"""``quietmean site desk``: the site's pages in a browser, for the data owner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.console import err
from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra
from quietmean.core.file_kinds import FileKind, kind_of_file, refuse_other, require_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProxyOptions:
    """The pages behind a proxy, for several people.

    Parameters
    ----------
    behind_proxy
        https://HOST of the pages, if they are behind your own HTTPS proxy with log-in, for several people
        (docs/answer/policy.md). Linux only.
    socket
        The Unix socket for the proxy. It is created.
    proxy_user
        The user account of the proxy. Connections of all other accounts are refused.
    user_header
        The header in which the proxy names the logged-in user. The proxy must delete this header if a browser sends it.
    users
        Names of the users who may use the pages.
    viewers
        Names of users who may only see the overview of all studies that run here, such as people of other parties.
    """

    behind_proxy: str | None = None
    socket: Path | None = None
    proxy_user: str | None = None
    user_header: str = "X-Remote-User"
    users: Annotated[list[str] | None, Parameter(consume_multiple=1)] = None
    viewers: Annotated[list[str] | None, Parameter(consume_multiple=1)] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class HereOptions:
    """Pages on this machine.

    Parameters
    ----------
    data
        This site's records, as for join. A study's page then shows what it finds in them, before the yes. Only for pages on
        this machine.
    program
        For sessions: the Python program that makes this site's vectors, as for join. Needs --key.
    records
        For sessions that protect records: how many records this site has in every round, as for join.
    key
        The node's private key, with --data or --program. With it, a study's page can start this site's part, as join does. Only
        for pages on this machine.
    port
        The port on this machine. Default: a free one.
    no_browser
        Print the link, but do not open a browser.
    """

    data: str | Path | None = None
    program: Path | None = None
    records: int | None = None
    key: Path | None = None
    port: int = 0
    no_browser: bool = False


def desk_command(
    folder: Path = Path(),
    *,
    party: str | None = None,
    policy: Path | None = None,
    ledger: Path | None = None,
    owner_key: Path | None = None,
    here: HereOptions = HereOptions(),
    proxy: ProxyOptions = ProxyOptions(),
) -> None:
    """Show studies, contracts, running nodes, results and the budget in a browser on this machine.

    Only this machine and this user reach the pages, by a link that works once, or those who are logged in at a proxy. They read
    what lies in the folder, write approvals there, and start this site's part in a study only where --key is given.

    Parameters
    ----------
    folder
        The folder with this site's signed studies, stores and receipts. Default: the current folder.
    party
        The name of this site in its studies. The pages show its terms.
    policy
        This site's rules for taking part. Default: policy.toml in the user's settings folder.
    ledger
        The ledger file. Default: the policy's, or this user's own.
    owner_key
        The private key of the data owner. With it, studies can be signed on their pages, as with site approve.
    """
    for module in ("starlette", "uvicorn", "jinja2"):
        import_extra(module, "desk", "the desk")
    from quietmean.desk import Here, ProxyAccess, SiteFolder, serve, serve_behind_proxy

    if not folder.is_dir():
        raise InputError(f"folder {folder} does not exist. Name the one with this site's studies.")
    # The data may be the address of a database.
    data = None if here.data is None or ":/" in str(here.data) else Path(here.data)
    if ledger is not None and ledger.exists():
        refuse_other(kind_of_file(ledger) or FileKind.DATA, f"file {ledger}", FileKind.LEDGER)
    given = {policy: FileKind.POLICY, owner_key: FileKind.KEY, here.key: FileKind.KEY, data: FileKind.DATA}
    for path, kind in given.items():
        if path is None:
            continue
        if not path.exists():
            raise InputError(f"file {path} does not exist. Check the path.")
        if path.is_dir() and kind != FileKind.DATA:
            raise InputError(f"{path} is a folder, not {kind.words}. Name the file.")
        also = (FileKind.STORE, FileKind.LEDGER, FileKind.AUDIT) if kind == FileKind.DATA else ()
        found = kind_of_file(path)
        refuse_other(found, f"file {path}", kind, *also)
        if found is None and kind == FileKind.KEY:
            raise InputError(f"{path} is not a private key. Name the one from quietmean key new.")
    if here.program is None and here.records is not None:
        raise InputError("--records is for sessions. Give --program too, or leave --records out.")
    if here.key is None and (here.program is not None or here.records is not None):
        raise InputError("--program and --records take part in sessions. Give --key with the node's private key, too.")
    if proxy.behind_proxy is not None:
        if proxy.socket is None or proxy.proxy_user is None:
            raise InputError(
                "pages behind a proxy need a socket and the account that the proxy runs as. Give --socket PATH and "
                "--proxy-user ACCOUNT."
            )
        if here.port or here.no_browser:
            raise InputError("--port and --no-browser are for pages on this machine. Leave them out behind a proxy.")
        if here.data is not None:
            raise InputError("--data shows cells to anyone who sees the pages, and is for pages on this machine. Leave it out.")
        if here.key is not None:
            raise InputError("--key would let anyone who breaks into the pages act as the node. Leave it out behind a proxy.")
        access = ProxyAccess(proxy.behind_proxy, proxy.user_header, frozenset(proxy.users or ()), frozenset(proxy.viewers or ()))

        def tell(line: str) -> None:
            err.print(line, soft_wrap=True)

        socket_and_user = (proxy.socket, proxy.proxy_user)
        own = Here(policy=policy, ledger=ledger, owner_key=owner_key)
        serve_behind_proxy(SiteFolder(folder, party), own, access, socket_and_user, tell)
        return
    if proxy.socket or proxy.proxy_user or proxy.users or proxy.viewers:
        raise InputError(
            "--socket, --proxy-user, --users and --viewers are for pages behind a proxy. Give --behind-proxy https://HOST too."
        )
    if not 0 <= here.port <= 65535:
        raise InputError(f"port is {here.port}. Choose one in 1..65535, or none for a free one.")

    if here.key is not None and ((here.data is None and here.program is None) or party is None):
        raise InputError(
            "--key starts this site's part in studies. Give --data with its records, or --program for sessions, and --party with "
            "its name, too."
        )
    if here.program is not None:
        require_program(here.program)

    def say(link: str) -> None:
        err.print(f"open {link} within a minute; Ctrl-C ends it", soft_wrap=True)

    own = Here(
        policy=policy,
        ledger=ledger,
        owner_key=owner_key,
        data=here.data,
        program=here.program,
        records=here.records,
        key=here.key,
    )
    serve(SiteFolder(folder, party), own, say, port=here.port, browser=not here.no_browser)
