"""The pages, rendered here: no build step, nothing from the internet, and without JavaScript but for live parts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.folders import data_folder
from quietmean.core.readable import plain
from quietmean.desk.access import LOGIN, STATIC, AccessRule, Guard, LinkAccess, form_of, refusal
from quietmean.desk.site_folder import SiteFolder, words_of
from quietmean.ledger import Ledger
from quietmean.node import Identity
from quietmean.node.monitor import headline, traffic_text
from quietmean.report.words import moment, rounded_down, rounded_up
from quietmean.sessions.receipt import rounds_text
from quietmean.statistics.printed import in_all
from quietmean.studies.data import Location, Preview
from quietmean.studies.outcome.tables import ResultTable, tables_of
from quietmean.studies.party import Contract, OwnerApproval, Policy
from quietmean.studies.party.audit import verify

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
# Days for which an approval is valid by default.
_USUAL_DAYS = 30
# A report is one file with its pictures and styles; no script runs in it, and no frame may hold it.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox allow-popups"
)


@dataclass(frozen=True)
class Desk:
    """``site``: the site's folder; ``policy``: where its policy is, by default in the user's folder for settings.

    ``data``: of this site, to be looked at before a study is agreed to; only where there is one visitor. ``say`` gets which
    visitor signed or refused what, where there are several.
    """

    site: SiteFolder
    access: AccessRule
    policy: Path | None = None
    ledger: Path | None = None
    owner_key: Path | None = None
    data: str | Path | None = None
    stop: Callable[[], None] = field(default=lambda: None)
    say: Callable[[str], None] = field(default=lambda text: None)

    async def home(self, request: Request) -> Response:
        def content() -> dict[str, Any]:
            policy = Policy.load(self.policy)
            return {
                "folder": self.site.folder.resolve(),
                "policy": policy,
                "studies": list(self.site.studies()),
                "answers": {name: self.site.answer(name) for name in self.site.studies()},
                "nodes": [_node(self.site, name) for name in self.site.nodes()],
                "results": list(self.site.results()),
                "pages": self.site.pages(),
            }

        return await self._page(request, "home.html", content)

    async def study(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.site.studies():
            return self.missing(request)

        def content() -> dict[str, Any]:
            sealed = self.site.sealed(name)
            contract, policy = self.site.contract(sealed), Policy.load(self.policy)
            return {
                "name": name,
                "contract": contract,
                "policy": policy,
                "broken": self.site.verdict(contract, policy),
                "words": words_of(sealed.digest),
                "parties": [one.name for one in contract.others],
                "signs": self.owner_key is not None,
                "asks_owner": bool(policy.rules.approvers),
                "data": self.data is not None and isinstance(contract, Contract),
                "until": (datetime.now(UTC).date() + timedelta(days=_USUAL_DAYS)).isoformat(),
            }

        return await self._page(request, "study.html", content)

    async def look(self, request: Request) -> Response:
        """What a study finds in the data of this site, before anybody says yes."""
        name, data = request.path_params["name"], self.data
        if name not in self.site.studies() or data is None:
            return self.missing(request)

        def content() -> dict[str, Any]:
            study = self.site.sealed(name).study
            preview = Preview.of(data, study.workload.columns)
            beside = Location.of(data).format_file
            name_of_format = "a file that #format= names" if beside is None else beside.name
            return {"name": name, "study": study.name, "preview": preview, "format": name_of_format}

        return await self._page(request, "data.html", content)

    async def approve(self, request: Request) -> Response:
        """Sign the study with the key of who answers for the data, once they have read the words."""
        name, fields = request.path_params["name"], await form_of(request, self.access)
        if fields is None:
            return refusal(self.access)
        if name not in self.site.studies() or self.owner_key is None:
            return self.missing(request)
        owner_key = self.owner_key

        def content() -> dict[str, Any]:
            sealed = self.site.sealed(name)
            if fields.get("words", "").lower().split() != list(words_of(sealed.digest).words):
                raise InputError(
                    "these are not the words of the study: compare them with another party, and type what you compared"
                )
            until, account = _day(fields.get("until", "")), fields.get("account", "").strip()
            if not account:
                raise InputError("which data set it is about is not clear: type what the ledger calls it")
            owner = Identity.load(owner_key, lambda: fields.get("passphrase", "").encode())
            if owner.public_key in {entry.identity for entry in sealed.entries}:
                raise InputError(
                    "this is the key of a party's node, not of who answers for the data: start the pages with a key of that "
                    "person, made with quietmean keygen"
                )
            signed = OwnerApproval.sign(self.site.contract(sealed), Policy.load(self.policy), account, until, owner)
            path = self.site.sign(name, signed)
            self._tell(request, f"signed {name}")
            return {"name": name, "place": path, "until": until, "account": account}

        return await self._page(request, "approved.html", content)

    async def refuse(self, request: Request) -> Response:
        """Take away what was signed for a study, and note that it is refused."""
        name = request.path_params["name"]
        if await form_of(request, self.access) is None:
            return refusal(self.access)
        if name not in self.site.studies() or self.owner_key is None:
            return self.missing(request)

        def content() -> dict[str, Any]:
            taken = self.site.refuse(name)
            self._tell(request, f"refused {name}")
            return {"name": name, "taken": taken}

        return await self._page(request, "refused.html", content)

    def _tell(self, request: Request, what: str) -> None:
        if visitor := self.access.visitor(request):
            self.say(f"{datetime.now(UTC).isoformat(timespec='seconds')} {shown(visitor)} {shown(what)}")

    async def node(self, request: Request) -> Response:
        return await self._node("node.html", request)

    async def node_part(self, request: Request) -> Response:
        """The live part of a node's page."""
        return await self._node("node_part.html", request)

    async def board(self, request: Request) -> Response:
        """All that runs here, without what is this site's alone: for the other parties of its studies, too."""
        return await self._page(request, "board.html", self._running)

    async def board_part(self, request: Request) -> Response:
        """The live part of the board."""
        return await self._page(request, "board_part.html", self._running)

    def _running(self) -> dict[str, Any]:
        return {"nodes": [_node(self.site, name) for name in self.site.nodes()]}

    async def _node(self, template: str, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.site.nodes():
            return self.missing(request)
        return await self._page(request, template, lambda: _node(self.site, name))

    async def result(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.site.results():
            return self.missing(request)
        own = [page for page in self.site.pages() if page.startswith(f"{name}.")]

        def content() -> dict[str, Any]:
            receipt = self.site.receipt(name)
            tables = _tables(receipt)
            # Notes that all tables share are shown once here; a table that is used alone has them itself.
            shared = in_all([one.notes for one in tables])
            return {"name": name, "title": _title(receipt) or name, "receipt": receipt, "pages": own, "field": _field} | {
                "tables": tables,
                "shared": shared,
                "session": rounds_text(receipt),
            }

        return await self._page(request, "result.html", content)

    async def report(self, request: Request) -> Response:
        path = self.site.pages().get(request.path_params["name"])
        if path is None:
            return self.missing(request)
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": _REPORT_POLICY})

    async def accounts(self, request: Request) -> Response:
        def content() -> dict[str, Any]:
            budget = Policy.load(self.policy).budget
            ledger_path = self.ledger or (None if budget is None else budget.ledger) or data_folder() / "ledger"
            if not ledger_path.exists():
                return {"place": ledger_path, "accounts": ()}
            with Ledger.open(ledger_path) as book:
                return {"place": ledger_path, "accounts": book.accounts()}

        return await self._page(request, "ledger.html", content)

    async def audit(self, request: Request) -> Response:
        def content() -> dict[str, Any]:
            log = Policy.load(self.policy).audit_log
            if not log.path.exists():
                return {"place": log.path, "verified": None}
            heads = self.site.heads()
            return {"place": log.path, "verified": verify(log, heads), "against": len(heads)}

        return await self._page(request, "audit.html", content)

    async def audit_file(self, request: Request) -> Response:
        """The log as it is, for whoever keeps a copy of it."""
        path = Policy.load(self.policy).audit_log.path
        if not path.is_file():
            return self.missing(request)
        return FileResponse(path, media_type="application/jsonl", filename="audit.jsonl")

    async def login(self, access: LinkAccess, request: Request) -> Response:
        if request.method != "POST":
            return await self._page(request, "login.html", dict)
        fields = await form_of(request, None)
        session = None if fields is None else access.enter(fields.get("token", ""))
        if session is None:
            return refusal(access)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(access.cookie, session, httponly=True, samesite="strict", path="/")
        return answer

    async def leave(self, access: LinkAccess, request: Request) -> Response:
        if await form_of(request, access) is None:
            return refusal(access)
        access.leave()
        self.stop()
        return await self._page(request, "left.html", dict)

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        return FileResponse(_HERE / "static" / name, media_type=STATIC[name]) if name in STATIC else self.missing(request)

    async def _page(self, request: Request, template: str, content: Callable[[], dict[str, Any]]) -> Response:
        status = 200
        try:
            context = await run_in_threadpool(content)
        except QuietmeanError as error:
            template, context, status = "mistake.html", {"mistake": str(error)}, 400
        return self._rendered(request, template, context, status)

    def missing(self, request: Request) -> Response:
        """The page for an unknown address."""
        return self._rendered(request, "mistake.html", {"mistake": "There is no such page."}, 404)

    def _rendered(self, request: Request, template: str, content: dict[str, Any], status: int) -> Response:
        visit = {"form": self.access.form(request), "leaves": self.access.leaves, "visitor": self.access.visitor(request)}
        return HTMLResponse(_templates().get_template(template).render(**content, **visit), status)


def make_app(desk: Desk) -> ASGIApp:
    """The pages, behind the rule of access."""
    access = desk.access
    # Behind a proxy, people log in at the proxy, and no visitor can end the desk for all.
    by_link = (
        []
        if not isinstance(access, LinkAccess)
        else [
            Route(LOGIN, partial(desk.login, access), methods=["GET", "POST"]),
            Route("/leave", partial(desk.leave, access), methods=["POST"]),
        ]
    )
    app = Starlette(
        routes=[
            Route("/", desk.home),
            Route("/study/{name}", desk.study),
            Route("/study/{name}/data", desk.look),
            Route("/study/{name}/approve", desk.approve, methods=["POST"]),
            Route("/study/{name}/refuse", desk.refuse, methods=["POST"]),
            Route("/node/{name}", desk.node),
            Route("/node/{name}/part", desk.node_part),
            Route("/board", desk.board),
            Route("/board/part", desk.board_part),
            Route("/result/{name}", desk.result),
            Route("/report/{name}", desk.report),
            Route("/ledger", desk.accounts),
            Route("/audit", desk.audit),
            Route("/audit/file", desk.audit_file),
            Route("/static/{name}", desk.static),
            *by_link,
        ],
        exception_handlers={404: lambda request, error: desk.missing(request)},
    )
    return Guard(app, access)


def _node(site: SiteFolder, name: str) -> dict[str, Any]:
    view, status = site.node(name)
    state = "gone" if view.state == "running" and status.get("alive") is False else view.state
    peers = sorted(view.peers, key=lambda peer: (peer.name not in view.waiting_for, -peer.late))
    return {
        "name": name,
        "view": view,
        "state": state,
        "headline": headline(view),
        "traffic": traffic_text(view),
        "peers": peers,
        "study": status.get("study"),
    }


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError("the last day is no date: write it as 2030-12-31") from None


def _title(receipt: dict[str, Any]) -> Any:
    """The name of the study, which may be asked for with its columns or alone; None where the receipt does not say."""
    asked = _field(receipt, "origin", "study")
    return asked.get("study") if isinstance(asked, dict) else asked


def _tables(receipt: dict[str, Any]) -> list[ResultTable]:
    """The tables of the answers; none for a receipt of a study without a result, and one that somebody has changed."""
    result = receipt.get("result")
    with suppress(InputError):
        return tables_of(result) if isinstance(result, dict) else []
    return []


def _field(document: Any, *path: str) -> Any:
    """The field of a document at a path; None where there is none."""
    for part in path:
        document = document.get(part) if isinstance(document, dict) else None
    return document


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"shown": shown, "moment": _moment, "plain": plain, "rounded_up": rounded_up, "rounded_down": rounded_down}
    made.filters["said"] = _said
    return made


def _moment(value: Any) -> Any:
    """A time as a text to be read; what is no text stays."""
    return moment(value) if isinstance(value, str) else value


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def shown(text: object) -> str:
    """A stranger's text: characters that are not printed, or change the direction of writing, are shown by their code points."""
    return "".join(
        character
        if character.isprintable()
        else f"\N{LEFT WHITE SQUARE BRACKET}U+{ord(character):04X}\N{RIGHT WHITE SQUARE BRACKET}"
        for character in str(text)
    )
