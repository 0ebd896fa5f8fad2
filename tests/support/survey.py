"""A survey by link: a sealed study with vouchers, its page, and a drop that serves it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import Any

from quietmean.core.party import Units
from quietmean.drop import Drop, DropBox, DropServer
from quietmean.form import FormPage, form_page, result_page
from quietmean.node.committee import IdentitySigner, MailboxOpener, MailboxSealer, run_members
from quietmean.node.net import Identity
from quietmean.planning.automatic import Choice
from quietmean.protocols.committee.contribution import excerpt_of, header_digest, open_excerpt, read_header
from quietmean.protocols.committee.lists import HeldInMemory
from quietmean.protocols.committee.member import CommitteeMachine
from quietmean.protocols.committee.result import CheckedResult, check_result, read_result
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.packed_sharing.packing import open_sums
from quietmean.randomness import Seed
from quietmean.randomness.noise import SecureNoise
from quietmean.studies.agreement.contribution import PUBLISHED, RESULT_PAGE, DropLog, session_of
from quietmean.studies.agreement.program import EncodingProgram
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.voucher import MadeVouchers, Registrar
from support.committee_study import CommitteeStudy

ASK = (
    "group-means(pay in 0..200000, sex in {f, m})",
    "mean(hired in 2000-01-01..2026-12-31)",
    "proportion(union in yes/no)",
    "proportion(job in {cook, waiter, manager, driver, clerk, nurse, guard, other})",
)
MEMBERS = ("m1", "m2", "m3", "m4", "m5")


@dataclass
class Survey:
    """``ask`` of records, or of parties, with a committee that checks ranges, and so many ``vouchers``."""

    folder: Path
    name: str = "Wages"
    ask: tuple[str, ...] = ASK
    vouchers: int = 40
    committee: dict[str, Any] = field(default_factory=dict)
    drop: str = "https://drop.example.org"
    unit: str = "record"
    members: tuple[str, ...] = MEMBERS
    fields: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registrar, self.drop_identity = Identity.generate(), Identity.generate()
        fields = {"unit": self.unit, "delta": 1e-6, "ask": list(self.ask), "name": self.name, **self.fields}
        given = {
            "registrar": self.registrar.public_key,
            "vouchers": self.vouchers,
            "verified": True,
            "largest_weight": 1.0,
            "minimum": 1,
        }
        self.study = CommitteeStudy(self.folder, fields, {**given, "verified": True, **self.committee}, self.members, ())
        self.sealed: Sealed = self.study.sealed
        self.choice: Choice = self.sealed.choice()

    @cached_property
    def session(self) -> CommitteeSession:
        return session_of(self.sealed, self.choice.plan)

    @cached_property
    def program(self) -> EncodingProgram:
        return EncodingProgram.of(self.sealed.study.workload, self.choice.plan)

    @cached_property
    def page(self) -> FormPage:
        return form_page(self.sealed, self.choice, self.drop)

    @cached_property
    def made(self) -> MadeVouchers:
        return Registrar.of(self.sealed.invitation, self.registrar).make(self.vouchers, None)

    def fragment(self, number: int) -> str:
        """What a link to the page has behind #, of a voucher from 1 on."""
        return list(self.made.fragments.values())[number - 1]

    def opened(self, files: Sequence[bytes]) -> CheckedResult:
        """What the members open of these files, by their own keys and code."""
        return check_result(self.session, read_result(self.session, self.result_of(files)))

    def numbers_of(self, raw: bytes) -> Units:
        """The whole numbers that a file deals, (d,), which all members together can read."""
        header, shares = read_header(self.session, raw), {}
        for number, entry in enumerate(self.sealed.computing):
            mailbox = self.study.keys[entry.name].mailbox
            assert mailbox is not None
            own = excerpt_of(self.session, header, raw, number)
            part = open_excerpt(self.session, header, own, number, MailboxOpener(mailbox))
            shares[number] = part.summed(self.session.parameters.prime)
        return open_sums(self.session.parameters.packing, shares, self.session.parameters.dimension)

    def log_of(self, member: int, files: Sequence[bytes], left_out: Mapping[str, str], page: bytes = b"") -> bytes:
        """What a member says that it read of the drop: these files, of which it leaves some out; and the page of its result."""
        digests = b"".join(header_digest(raw) or b"" for raw in files)
        identity = self.study.identities[self.sealed.computing[member].name]
        return DropLog.sign(identity, self.session, digests, left_out, page).to_file()

    def publish(self, files: Sequence[bytes], counted: Sequence[bytes], left_out: Mapping[str, str]) -> bytes:
        """Put what all members publish of these files where the drop hands it out, and return the page of the result."""
        result = self.result_of(counted)
        page = result_page(self.sealed, self.choice.plan, check_result(self.session, read_result(self.session, result)))
        folder = self.folder / "box" / PUBLISHED
        folder.mkdir(exist_ok=True)
        (folder / "m1.sums").write_bytes(result)
        (folder / f"m1{RESULT_PAGE}").write_bytes(page)
        for member, entry in enumerate(self.sealed.computing):
            (folder / f"{entry.name}.dropped").write_bytes(self.log_of(member, files, left_out, page))
        return page

    def result_of(self, files: Sequence[bytes]) -> bytes:
        """The file with the result that members sign."""
        sealer, machines = MailboxSealer(), {}
        for number, entry in enumerate(self.sealed.computing):
            mailbox = self.study.keys[entry.name].mailbox
            assert mailbox is not None
            opener = MailboxOpener(mailbox)
            held = HeldInMemory(self.session, number, opener)
            for raw in files:
                held.take(raw)
            signer, noise = IdentitySigner(self.study.identities[entry.name]), SecureNoise(Seed.from_os())
            machines[number] = CommitteeMachine(self.session, number, signer, sealer, opener, held, noise)
        states, _ = run_members(machines)
        done = next(state for state in states.values() if state.has_result)
        return done.result.content

    @contextmanager
    def served(self, port: int, page: FormPage | None = None, clock: Callable[[], float] = time.time) -> Iterator[DropBox]:
        """A drop on this port, whose page is the survey's own, or another one."""
        form, terms = page or self.page, self.sealed.study.committee
        assert terms is not None
        box = DropBox.open(self.folder / "box", self.session)
        drop = Drop(box, self.session, self.drop_identity, terms.lists_at, clock=clock, page=(form.content, form.policy))
        server, ready, loops = DropServer(drop, ("127.0.0.1", port), None), Event(), list[Any]()

        async def run() -> None:
            stop = asyncio.Event()
            loops.append((asyncio.get_running_loop(), stop))
            await server.run(stop, ready.set)

        thread = Thread(target=lambda: asyncio.run(run()))
        thread.start()
        try:
            assert ready.wait(20)
            yield box
        finally:
            ((loop, stop),) = loops
            loop.call_soon_threadsafe(stop.set)
            thread.join(20)
            box.close()


def answer_of(drop: Drop, method: str, path: str, content: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of what the application of a drop answers."""
    given = {"content-length": str(len(content)), **headers}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "client": ("192.0.2.1", 1),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "query_string": b"",
        "http_version": "1.1",
    }
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    asyncio.run(drop.app()(scope, receive, send))
    answered = {name.decode().lower(): value.decode() for name, value in told[0]["headers"]}
    return told[0]["status"], answered, b"".join(one.get("body", b"") for one in told[1:])
