"""The pages, rendered here: no build step, nothing from the internet, and without JavaScript but for live parts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.readable import phrase
from quietmean.desk.access import LOGIN, STATIC, AccessRule, Guard, LinkAccess, form_of, refusal
from quietmean.desk.site_folder import SiteFolder, asked_of, inbox, part_name, words_of
from quietmean.desk.starting import Here, Starter, consent_options
from quietmean.desk.views import (
    NO_ACCOUNT,
    NO_DAY,
    WRONG_ANSWER,
    WRONG_WORDS,
    Form,
    FormMistakes,
    compared_with,
    in_short,
    node_of,
    preferred,
    result_of,
    shown,
    templates,
    ticked_words,
)
from quietmean.ledger import Ledger
from quietmean.node import Identity
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.data import Location, Preview, account_name
from quietmean.studies.party import ASSUMED, Contract, OwnerApproval, Policy
from quietmean.studies.party.admission import own_data_at
from quietmean.studies.party.approval import DIGITS, require_digest
from quietmean.studies.party.audit import verify
from quietmean.studies.party.first_screen import NOTHING_OWN, FirstScreen, OwnData, to_compare

# Days for which an approval is valid by default.
_USUAL_DAYS = 30
# A report is one file with its pictures and styles; no script runs in it, and no frame may hold it.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox allow-popups"
)


@dataclass(frozen=True)
class Desk:
    """The pages of one site and what they need.

    ``site``: the site's folder; ``policy``: where its policy is, by default in the user's folder for settings.

    ``data``: of this site, to be looked at before a study is agreed to; only where there is one visitor. ``starter``: starts this
    site's part, where there is one visitor, too. ``say`` gets which visitor signed or refused what, where there are several.
    """

    site: SiteFolder
    access: AccessRule
    here: Here
    starter: Starter | None = None
    stop: Callable[[], None] = field(default=lambda: None)
    say: Callable[[str], None] = field(default=lambda text: None)
    # By the study's file, as its page read them last: a tick in the form reads nothing again.
    _owned: dict[str, OwnData] = field(default_factory=dict, repr=False)

    async def home(self, request: Request) -> Response:
        def content() -> dict[str, Any]:
            studies = inbox(self.site)
            listed, results = {name for study in studies for name in (study.part, study.result)}, self.site.results()
            return {
                "folder": self.site.folder.resolve(),
                "policy": Policy.load(self.here.policy),
                "studies": studies,
                # Of studies whose signed file is in another folder, and of other sites.
                "nodes": [node_of(self.site, name) for name in self.site.nodes() if name not in listed and name not in results],
                "results": [name for name in results if name not in listed],
            }

        return await self._page(request, "home.html", content)

    async def study(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.site.studies():
            return self.missing(request)
        return await self._page(request, "study.html", lambda: self._asked(name))

    def _asked(
        self, name: str, typed: Mapping[str, str] | None = None, mistakes: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """What a study's page shows, with what was ``typed`` and the ``mistakes`` in it, by the fields of the form."""
        sealed = self.site.sealed(name)
        contract, policy, answer = self.site.contract(sealed), Policy.load(self.here.policy), self.site.answer(sealed)
        part, lines, study = part_name(name, self.site.party), contract.lines(), asked_of(self.site, name, sealed)
        signs, starts = self.here.owner_key is not None, self.here.starts(sealed.terms)
        signed = bool(policy.rules.approvers) and answer == "signed"
        begun = study.has_begun or (self.starter is not None and self.starter.runs(part))
        broken = self.site.verdict(contract, policy)
        waits = not begun and not broken
        # For a yes alone.
        unread = self._read(name, sealed) if waits else ""
        asks = {
            "sign": waits and signs and not (signed and starts),
            "start": waits and starts and (signed or signs or not policy.rules.approvers),
        }
        return {
            "name": name,
            "contract": contract,
            "terms": [line for line in lines if line[0] != ASSUMED],
            "assumptions": [text for about, text in lines if about == ASSUMED],
            "short": in_short(contract, study.convener, study.decide_by),
            "screen": (screen := self._screen(name, sealed, policy, typed or {})),
            "says": {row.key: row.text for row in screen.rows},
            "unread": unread,
            "accept": contract.accept_digest[:DIGITS],
            "broken": broken,
            "begun": begun,
            "words": words_of(sealed.digest),
            "parties": to_compare(contract),
            "signs": signs,
            "asks_owner": bool(policy.rules.approvers),
            # Who signed has compared the words, and has said yes.
            "asks": asks,
            "coded": asks["sign"] or (asks["start"] and not policy.rules.approvers),
            "data": self.here.data is not None and isinstance(contract, Contract),
            "until": (datetime.now(UTC).date() + timedelta(days=_USUAL_DAYS)).isoformat(),
            "answer": answer,
            "starts": starts,
            "account": account_name(self.here.data) if self.here.data is not None else "",
            "result": study.result,
            "running": study.part or (part if self._started(part) else ""),
            "typed": typed or {},
            "mistakes": mistakes or {},
        }

    def _read(self, name: str, sealed: Sealed) -> str:
        """Read of this site's data what their owner has to see before a yes, and say why they cannot be read, if so."""
        self._owned.pop(name, None)
        if self.here.data is None or not isinstance(sealed.terms, StudyTerms):
            return ""
        try:
            step = self.site.contract(sealed).plan.value_step
            self._owned[name] = own_data_at(self.here.data, sealed.terms, step)
        except QuietmeanError as error:
            return str(error)
        return ""

    def _screen(self, name: str, sealed: Sealed, policy: Policy, fields: Mapping[str, str]) -> FirstScreen:
        """What stands above the button, with whom these ``fields`` say that the words were compared."""
        signed = policy.rules.approvers and self.site.answer(sealed) == "signed"
        known = signed or ticked_words(fields) == words_of(sealed.digest).words
        contract = self.site.contract(sealed)
        compared = compared_with(fields, to_compare(contract)) if known else ()
        return FirstScreen.of(contract, self._owned.get(name, NOTHING_OWN), compared)

    async def marks(self, request: Request) -> Response:
        """What must be seen before a yes, with what is ticked in the form by now."""
        name, fields = request.path_params["name"], dict(request.query_params)
        if name not in self.site.studies():
            return self.missing(request)

        def content() -> dict[str, Any]:
            return {"screen": self._screen(name, self.site.sealed(name), Policy.load(self.here.policy), fields)}

        return await self._page(request, "marks.html", content)

    def _started(self, part: str) -> bool:
        return self.starter is not None and self.starter.started(part)

    async def look(self, request: Request) -> Response:
        """What a study finds in the data of this site, before anybody says yes."""
        name, data = request.path_params["name"], self.here.data
        if name not in self.site.studies() or data is None:
            return self.missing(request)

        def content() -> dict[str, Any]:
            study = self.site.sealed(name).study
            preview = Preview.of(data, study.workload.columns)
            beside = Location.of(data).format_file
            name_of_format = "a file that #format= names" if beside is None else beside.name
            return {"name": name, "study": study.name, "preview": preview, "format": name_of_format}

        return await self._page(request, "data.html", content)

    async def accept(self, request: Request) -> Response:
        """Sign the study with the key of the data owner, start this site's part, or both, once its words are compared."""
        name, fields = request.path_params["name"], await form_of(request, self.access)
        if fields is None:
            return refusal(self.access)
        signs, starts = (way in fields.get("do", "").split() for way in ("sign", "start"))
        able = (self.here.owner_key is not None or not signs) and (self.starter is not None or not starts) and (signs or starts)
        if name not in self.site.studies() or not able:
            return self.missing(request)

        def content() -> dict[str, Any]:
            sealed, policy = self.site.sealed(name), Policy.load(self.here.policy)
            form, contract, screen = Form(fields), self.site.contract(sealed), self._screen(name, sealed, policy, fields)
            # The yes is to what was shown, and not to what may stand in the folder by now.
            require_digest(fields.get("accept", ""), contract)
            # Who signed has compared the words already, if it is somebody whom the policy names: join looks at that.
            if signs or not (policy.rules.approvers and self.site.answer(sealed) == "signed"):
                form.require("words", ticked_words(fields) == words_of(sealed.digest).words, WRONG_WORDS)
                said = screen.answer if screen.is_plain else fields.get("answer", "").strip()
                form.require("answer", said == screen.answer, WRONG_ANSWER)
            account = form.text("account", NO_ACCOUNT)
            until = form.day("until", NO_DAY) if signs else date.min
            form.require_right()
            signed = self._sign(request, name, account, until, fields.get("passphrase", "")) if signs else None
            consent = consent_options(contract, compared_with(fields, to_compare(contract)))
            if starts and self.starter is not None:
                payer = ("--new-account" if "new" in fields else "--account", account)
                self.starter.start(name, [*payer, *consent], fields.get("node-passphrase", ""))
            return {
                "name": name,
                "place": signed,
                "options": shlex.join(consent),
                "until": until,
                "account": account,
                "starts": self.here.starts(sealed.terms),
            }

        answer = await self._answer(request, name, "approved.html", content, fields)
        # So that a page that is loaded again starts nothing.
        started = starts and answer.status_code == 200
        return RedirectResponse(f"/node/{quote(part_name(name, self.site.party))}", 303) if started else answer

    def _sign(self, request: Request, name: str, account: str, until: date, passphrase: str) -> Path:
        """Write the owner's yes, and return where. Raises :class:`InputError` for a passphrase that opens no key, or another."""
        sealed = self.site.sealed(name)
        try:
            owner = Identity.load(self.here.owner_key or Path(), passphrase.encode)
        except InputError as error:
            raise FormMistakes({"passphrase": str(error)}) from None
        if owner.public_key in {entry.identity for entry in sealed.entries}:
            raise InputError(
                "this is the key of a party's node, not of the data owner. Start the pages with a key of that "
                "person, made with quietmean key new."
            )
        signed = OwnerApproval.sign(self.site.contract(sealed), Policy.load(self.here.policy), account, until, owner)
        path = self.site.sign(name, signed)
        self._tell(request, f"signed {name}")
        return path

    async def refuse(self, request: Request) -> Response:
        """Take away what was signed for a study, and note that it is refused."""
        name = request.path_params["name"]
        if await form_of(request, self.access) is None:
            return refusal(self.access)
        if name not in self.site.studies() or self.here.owner_key is None:
            return self.missing(request)

        def content() -> dict[str, Any]:
            stopped = self.starter is not None and self.starter.stop(part_name(name, self.site.party))
            taken = self.site.refuse(name, self.site.sealed(name))
            self._tell(request, f"refused {name}")
            return {"name": name, "taken": taken, "stopped": stopped}

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
        return {"nodes": [{**node_of(self.site, name), "failure": ""} for name in self.site.nodes()]}

    async def _node(self, template: str, request: Request) -> Response:
        name = request.path_params["name"]
        failure = self.starter.failure(name) if self.starter is not None else ""
        # The page is asked for every second: only who reads of a failure needs the way back to the study.
        studies = self.site.studies() if failure else ()
        file = next((study for study in studies if part_name(study, self.site.party) == name), "")
        if name in self.site.nodes():
            result = name in self.site.results()
            return await self._page(
                request, template, lambda: {**node_of(self.site, name), "failure": failure, "file": file, "result": result}
            )
        if not self._started(name):
            return self.missing(request)
        # It reads its data, or chooses the noise.
        done = self.starter is not None and not self.starter.runs(name)
        beginning = {"name": name, "study": None, "state": "finished" if done else "beginning", "failure": failure, "file": file}
        return await self._page(request, template, lambda: beginning)

    async def result(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.site.results():
            return self.missing(request)

        def content() -> dict[str, Any]:
            return {"name": name, "pages": self.site.pages_of(name), **result_of(self.site.receipt(name))}

        return await self._page(request, "result.html", content)

    async def report(self, request: Request) -> Response:
        path = self.site.pages().get(request.path_params["name"])
        if path is None:
            return self.missing(request)
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": _REPORT_POLICY})

    async def accounts(self, request: Request) -> Response:
        def content() -> dict[str, Any]:
            ledger_path = Policy.load(self.here.policy).ledger(self.here.ledger)
            if not Ledger.is_there(ledger_path):
                return {"place": ledger_path, "accounts": ()}
            with Ledger.open(ledger_path) as book:
                return {"place": ledger_path, "accounts": book.accounts()}

        return await self._page(request, "ledger.html", content)

    async def audit(self, request: Request) -> Response:
        def content() -> dict[str, Any]:
            log = Policy.load(self.here.policy).audit_log
            if not log.path.exists():
                return {"place": log.path, "verified": None}
            heads = self.site.heads()
            return {"place": log.path, "verified": verify(log, heads), "against": len(heads)}

        return await self._page(request, "audit.html", content)

    async def audit_file(self, request: Request) -> Response:
        """Return the log as it is, for anyone who keeps a copy of it."""
        path = Policy.load(self.here.policy).audit_log.path
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
        if name not in STATIC:
            return self.missing(request)
        return FileResponse(STATIC[name], media_type="text/css" if name.endswith(".css") else "text/javascript")

    async def _answer(
        self, request: Request, name: str, template: str, content: Callable[[], dict[str, Any]], fields: Mapping[str, str]
    ) -> Response:
        """The page that follows a form, or the form again with what is wrong beside each field: secrets alone are typed again."""
        try:
            context = await run_in_threadpool(content)
        except FormMistakes as wrong:
            typed = {field: text for field, text in fields.items() if not field.endswith("passphrase")}
            mistakes = wrong.mistakes
            return await self._page(request, "study.html", lambda: self._asked(name, typed, mistakes), 400)
        except QuietmeanError as error:
            return self._rendered(request, "mistake.html", {"mistake": str(error)}, 400)
        return self._rendered(request, template, context, 200)

    async def _page(self, request: Request, template: str, content: Callable[[], dict[str, Any]], status: int = 200) -> Response:
        try:
            context = await run_in_threadpool(content)
        except QuietmeanError as error:
            template, context, status = "mistake.html", {"mistake": str(error)}, 400
        return self._rendered(request, template, context, status)

    def missing(self, request: Request) -> Response:
        """The page for an unknown address."""
        return self._rendered(request, "mistake.html", {"mistake": phrase("This page does not exist.")}, 404)

    def _rendered(self, request: Request, template: str, content: dict[str, Any], status: int) -> Response:
        visit = {"form": self.access.form(request), "leaves": self.access.leaves, "visitor": self.access.visitor(request)}
        made = templates(preferred(request.headers.get("accept-language", "")))
        return HTMLResponse(made.get_template(template).render(**content, **visit), status)


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
            Route("/study/{name}/marks", desk.marks),
            Route("/study/{name}/accept", desk.accept, methods=["POST"]),
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
