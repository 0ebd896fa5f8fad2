"""A drop: a small service that takes contributions to a committee and keeps them in a folder. It is trusted for nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from gzip import compress
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quietmean.core.codec import decode_json
from quietmean.core.errors import InputError
from quietmean.drop.box import BATCH, DropBox, Dropped, WholeContribution
from quietmean.node.net import Address, Identity, Purpose, is_signed, network_of
from quietmean.node.relay import Buckets, FrontLimits, open_entrance, web_server
from quietmean.node.tasks import Supervisor, Tasks
from quietmean.protocols.committee.contribution import ContributionError, largest_file, read_whole
from quietmean.protocols.committee.keys import raw_key
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.studies.agreement.contribution import PUBLISHED, DropPlace, DropReceipt
from quietmean.studies.agreement.deadlines import CommitteeTerms

# Where contributions go.
PLACE = "/contributions"
# Where the owner of a contributor's key asks for the receipt of its first contribution.
RECEIPTS = "/receipts"
_LARGEST_QUESTION = 512
# Of the page: it is shown in no frame, and tells nobody from where it was opened.
_OF_PAGES = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
_STATUS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex"><meta http-equiv="refresh" content="60">
<title>Answers</title></head><body><main><h1>TEXT</h1></main></body></html>
"""
# Networks that are remembered before those are forgotten that have sent nothing lately.
_MANY = 4096
# So often, in seconds, the clock is looked at, which may be set.
_LOOK = 60.0
_Waiting = tuple[WholeContribution, "asyncio.Future[Dropped | ContributionError]"]


@dataclass(frozen=True, kw_only=True)
class DropLimits:
    """The limits of a server that takes contributions.

    ``connections`` and ``memory`` bytes of contributions at a time; ``rate`` requests a second of one network, after a burst of
    ten times as many; ``slow``: seconds after which a connection is cut off."""

    connections: int = 256
    memory: int = 1 << 28
    rate: float = 200.0
    slow: float = 120.0


class RefusedError(Exception):
    """A request that is answered with an error and nothing else: its HTTP status and a sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class _Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    contributor: str
    signature: bytes


def _question(content: bytes) -> _Question:
    return decode_json(
        content, _Question, lambda reason: RefusedError(400, "this is not a question to a drop. Ask as its page does")
    )


@dataclass(eq=False)
class Drop:
    """What answers. ``until``: from then on, in seconds since 1970, nothing new is taken; ``clock`` says when that is.

    ``terms``: of the study, which say until when contributions come. ``page``: which is served to browsers, and the policy that
    comes with it (Content-Security-Policy)."""

    box: DropBox
    session: CommitteeSession
    identity: Identity
    until: float
    limits: DropLimits = field(default_factory=DropLimits)
    clock: Callable[[], float] = time.time
    page: tuple[bytes, str] | None = None
    terms: CommitteeTerms | None = None

    def __post_init__(self) -> None:
        self._largest = largest_file(self.session)
        self._networks = Buckets(max(10 * self.limits.rate, 1.0), self.limits.rate)
        self._bodies = asyncio.Semaphore(max(1, self.limits.memory // self._largest))
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue()

    def app(self) -> Starlette:
        """The web application of the box, for a server."""
        routes = [
            Route(PLACE, self.take, methods=["POST"]),
            Route(RECEIPTS, self.first, methods=["POST"]),
            Route("/health", self.health),
            Route("/status", self.status),
            Route(f"/{PUBLISHED}", self.published),
            Route(f"/{PUBLISHED}/{{name}}", self.published),
        ]
        if self.page is not None:
            content, policy = self.page
            headers = {**_OF_PAGES, "Content-Security-Policy": policy, "Vary": "Accept-Encoding"}
            shown = Response(content, media_type="text/html", headers=headers)
            # Packed once, for telephones: a third of the bytes.
            small = Response(compress(content, 9), media_type="text/html", headers={**headers, "Content-Encoding": "gzip"})
            routes.append(Route("/", lambda request: small if "gzip" in request.headers.get("accept-encoding", "") else shown))
        # A page on a disk may send here, too: no cookie and no password is in any answer.
        return Starlette(routes=routes, middleware=[Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["POST"])])

    @property
    def arrived(self) -> str:
        """How many contributions are there of how many that a result takes, and until when they come."""
        count, least = len(self.box), self.session.parameters.minimum
        if self.terms is None:
            return f"{count:,} of at least {least:,} contributions so far"
        return self.terms.arrived(count, least, datetime.fromtimestamp(self.clock(), UTC))

    async def tell(self, say: Callable[[str], None]) -> None:
        """May run beside the application: it says how many came, before the end and at the end."""
        due = [] if self.terms is None else self.terms.words_due(self.clock())
        for when in due:
            while (left := when - self.clock()) > 0:
                await asyncio.sleep(min(left, _LOOK))
            say(self.arrived)

    async def health(self, request: Request) -> Response:
        """How many contributions are there of how many, and of which study."""
        parameters = self.session.parameters
        counts = {"contributions": len(self.box), "of": parameters.contributors, "least": parameters.minimum}
        return JSONResponse({"session": self.session.session.hex(), **counts, "drop": self.identity.public_key})

    async def status(self, request: Request) -> Response:
        """How many contributions are there of how many, for people, and nothing else."""
        over = self.terms is not None and self.clock() >= self.terms.contribute_by.timestamp()
        text = f"{self.arrived}." if over else f"{self.arrived}. At most {self.session.parameters.contributors:,} may come."
        headers = {**_OF_PAGES, "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
        return Response(_STATUS.replace("TEXT", text), media_type="text/html", headers=headers)

    async def published(self, request: Request) -> Response:
        """The names of what members published, or one of these files: data for a page, which no browser shows by itself."""
        if not self._admits(request):
            return JSONResponse({"error": "the drop has too much to do. Ask again in a minute"}, 429, {"Retry-After": "60"})
        there, name = self.box.published, request.path_params.get("name")
        if name is None:
            return JSONResponse({"files": await asyncio.to_thread(there.names)})
        content = await asyncio.to_thread(there.content, name)
        if content is None:
            return JSONResponse({"error": "no member published this file. Choose one that is listed"}, 404)
        return Response(content, media_type="application/octet-stream", headers=_OF_PAGES)

    async def take(self, request: Request) -> Response:
        """Acknowledge a contribution once it is durable; a second one of its contributor is shown the receipt of the first."""
        try:
            if not self._admits(request):
                raise RefusedError(429, "the drop has too much to do. Send the contribution again in a minute")
            size = self._size(request, self._largest)
            async with self._bodies:
                return await self._answer(await self._body(request, size))
        except RefusedError as error:
            again = {"Retry-After": "60"} if error.status in (429, 503) else {}
            return JSONResponse({"error": error.why}, error.status, {**again, "Connection": "close"})

    async def first(self, request: Request) -> Response:
        """The receipt of the first contribution of a key, for its owner alone, who signs the question; null without one."""
        try:
            if not self._admits(request):
                raise RefusedError(429, "the drop has too much to do. Ask again in a minute")
            question = _question(await self._body(request, self._size(request, _LARGEST_QUESTION)))
            content = self.session.session
            if not is_signed(question.contributor, Purpose.COMMITTEE_QUESTION, content, question.signature):
                raise RefusedError(403, "the owner of this key did not sign the question. Sign it for this study")
        except (RefusedError, InputError) as error:
            status = error.status if isinstance(error, RefusedError) else 400
            return JSONResponse({"error": str(error)}, status, {"Connection": "close"})
        there = self.box.first(raw_key(question.contributor))
        text = None if there is None else self._receipt(question.contributor, there).signed.to_file().decode()
        return JSONResponse({"receipt": text})

    def _admits(self, request: Request) -> bool:
        """Whether this network has sent no more than it may: others do not wait for it."""
        now = time.monotonic()
        if len(self._networks) > _MANY:
            self._networks.forget_full(now)
        return self._networks.take(network_of(request.client.host if request.client else ""), now)

    def _size(self, request: Request, most: int) -> int:
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or len(length) > 12:
            raise RefusedError(411, "the contribution does not say its length. Send the file as it is")
        if int(length) > most:
            raise RefusedError(
                413, "the contribution is larger than any to this study. Make it again, and send the file as it is"
            )
        return int(length)

    async def _body(self, request: Request, size: int) -> bytes:
        content = bytearray()
        try:
            async with asyncio.timeout(self.limits.slow):
                async for piece in request.stream():
                    content += piece
                    if len(content) > size:
                        raise RefusedError(413, "the contribution is larger than it says. Send the file as it is")
        except TimeoutError:
            raise RefusedError(408, "the contribution came too slowly. Send it again") from None
        except ClientDisconnect:
            raise RefusedError(400, "the contribution is cut off. Send it again") from None
        return bytes(content)

    async def _answer(self, raw: bytes) -> Response:
        try:
            header, excerpts = await asyncio.to_thread(read_whole, self.session, raw)
        except ContributionError as error:
            raise RefusedError(400, str(error)) from None
        first = self.box.first(header.dealer)
        if first is None:
            first = await self._put(WholeContribution(header, excerpts))
        receipt = self._receipt(header.contributor, first)
        if first.digest == header.digest:
            return Response(receipt.signed.to_file(), media_type="application/json")
        why = f"only the first contribution of a contributor counts, and another one came at {receipt.came}"
        return JSONResponse({"error": why, "receipt": receipt.signed.to_file().decode()}, 409)

    async def _put(self, whole: WholeContribution) -> Dropped:
        if self.clock() > self.until:
            raise RefusedError(410, "the time for contributions to this study is over. Ask its coordinator for another study")
        done: asyncio.Future[Dropped | ContributionError] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((whole, done))
        try:
            answer = await done
        except OSError:
            raise RefusedError(
                503, "the drop's disk is full or fails, and nothing was taken. Send the contribution again later"
            ) from None
        if isinstance(answer, ContributionError):
            raise RefusedError(403, str(answer))
        return answer

    def _receipt(self, contributor: str, first: Dropped) -> DropReceipt:
        place = DropPlace(first.digest.hex(), first.chain.position, first.chain.head.hex())
        return DropReceipt.sign(self.identity, self.session.session.hex(), contributor, place, first.time)

    async def write_down(self) -> None:
        """Has to run beside the application. All that wait are written together: the disk is asked once for them."""
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < BATCH and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            wholes = [whole for whole, _ in batch]
            try:
                answers = await asyncio.to_thread(self.box.add, wholes, self.clock())
            except OSError as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                continue
            for (_, done), answer in zip(batch, answers, strict=True):
                if not done.done():
                    done.set_result(answer)


@dataclass(frozen=True)
class DropServer:
    """Listens on ``address``. ``certificate``: of the host, and its private key; None for plain HTTP.

    ``say``: hears now and then how many contributions came.
    """

    drop: Drop
    address: Address
    certificate: tuple[Path, Path] | None
    say: Callable[[str], None] | None = None

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        """Serve until the event is set: what was begun is answered then.

        Raises :class:`InputError` for an address that it cannot listen on.
        """
        supervisor = Supervisor()
        beside = Tasks(supervisor.fail)
        with open_entrance(self.address) as listening:
            server = self._server(listening)

            async def until_stopped() -> None:
                await stop.wait()
                server.should_exit = True

            beside.spawn(self.drop.write_down())
            beside.spawn(until_stopped())
            ready()
            if self.say is not None:
                beside.spawn(self.drop.tell(self.say))
            try:
                await supervisor.run(server.serve(sockets=[]))
            finally:
                await beside.stop()

    def _server(self, listening: Any) -> Any:
        chain, key = self.certificate or (None, None)
        limits = self.drop.limits
        return web_server(
            self.drop.app(),
            listening,
            FrontLimits(
                connections=limits.connections,
                burst=limits.connections,
                rate=limits.rate,
                handshake=limits.slow,
                longest=2 * limits.slow,
            ),
            ssl_certfile=chain,
            ssl_keyfile=key,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=10,
        )


__all__ = ["Drop", "DropBox", "DropLimits", "DropServer"]
