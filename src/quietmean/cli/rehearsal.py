"""``quietmean demo STUDY``: a survey by link from its study file to its result, on this machine, with keys that are made for it.

Page, drop, vouchers, members and their result are those of the real day. Contributors are not people with browsers: the encoding
program of the page deals their made-up records, and their files are sent to the drop by HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from quietmean.cli.console import err, progress
from quietmean.core.arrays import Array
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.file_kinds import package_version
from quietmean.core.output import Output
from quietmean.drop import Drop, DropBox, DropServer
from quietmean.form import FormPage, SignedPage, form_page, place_of, result_page
from quietmean.node.committee import IdentitySigner, MailboxOpener, MailboxSealer, run_members
from quietmean.node.net import Identity
from quietmean.node.relay import open_entrance
from quietmean.planning.automatic import Choice
from quietmean.protocols.committee.contribution import make_contribution, read_header
from quietmean.protocols.committee.member import CommitteeMachine
from quietmean.protocols.committee.result import check_result, read_result
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.noise import SecureNoise
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.studies.agreement.contribution import RESULT_PAGE, DropLog, DropReceipt, session_of, with_own_program
from quietmean.studies.agreement.deadlines import CommitteeTerms
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.program import EncodingProgram
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_keys import StudyKeys, keys_path
from quietmean.studies.agreement.voucher import Registrar
from quietmean.studies.outcome.feasible import require_sealable
from quietmean.studies.party.handing_in import send_to_drop
from quietmean.studies.party.member_holdings import MemberHoldings

# So long the made-up study takes contributions: nobody waits for that.
_OPEN = timedelta(hours=1)


@dataclass(frozen=True)
class RehearsedSurvey:
    """A survey of made-up people: its ``study``, and ``number`` of those who have vouchers.

    Its public files are in ``folder``, and what members keep to themselves is in ``secrets``, both of which are there.
    """

    study: StudyTerms
    number: int
    folder: Path
    secrets: Path

    @cached_property
    def _until(self) -> float:
        """When a member lists what it has, in seconds since 1970: nobody waits for that."""
        return (datetime.now(UTC) + _OPEN).timestamp()

    def __post_init__(self) -> None:
        vouchers = self._terms.vouchers
        if vouchers is None:
            raise InputError("the study has no vouchers, and a survey by link needs them. Make it with --vouchers.")
        if not 1 <= self.number <= vouchers:
            raise InputError(f"number is {self.number}, and the study has {vouchers} vouchers. Choose 1 to {vouchers}.")

    @property
    def _terms(self) -> CommitteeTerms:
        if self.study.committee is None:
            raise InputError("the study has no committee, and a survey by link needs one. Make it with --committee.")
        return self.study.committee

    @cached_property
    def registrar(self) -> Identity:
        return Identity.generate()

    @cached_property
    def _members(self) -> dict[str, tuple[Identity, StudyKeys]]:
        """By name, with keys in the folder; the first one is the coordinator."""
        made = {}
        for number in range(1, self._terms.members + 1):
            name, identity = f"member-{number}", self._coordinator if number == 1 else Identity.generate()
            path = keys_path(self.secrets / f"{name}.key", self.invitation.digest)
            # An address that nobody dials: they talk to each other in this process.
            made[name] = identity, StudyKeys.make(path, self.invitation, identity, name, f"127.0.0.1:{number}", member=True)
        return made

    @cached_property
    def _coordinator(self) -> Identity:
        return Identity.generate()

    @cached_property
    def invitation(self) -> Invitation:
        """To the same study, with another name, registrar and time; so few contributions are enough."""
        changed = {
            "contribute_by": datetime.fromtimestamp(self._until, UTC),
            "minimum": min(self._terms.minimum or 1, self.number),
            "registrar": self.registrar.public_key,
        }
        committee = self._terms.model_copy(update=changed)
        study = self.study.model_copy(update={"name": f"Rehearsal of {self.study.name}", "committee": committee})
        return Invitation.make(study, self._coordinator)

    @cached_property
    def _verdict(self) -> tuple[Sealed, Choice]:
        sealed = Sealed.make(self.invitation, [keys.entry for _, keys in self._members.values()], self._coordinator)
        choice = require_sealable(sealed, datetime.now(UTC))
        return with_own_program(sealed, choice.plan, self._coordinator), choice

    @property
    def sealed(self) -> Sealed:
        return self._verdict[0]

    @property
    def choice(self) -> Choice:
        return self._verdict[1]

    @cached_property
    def session(self) -> CommitteeSession:
        return session_of(self.sealed, self.choice.plan)

    def run(self) -> list[Path]:
        """The members' files, from which anybody opens the result. All other files of the day are in the folder, too.

        Raises :class:`InputError` for a study that no page can ask, and :class:`ProtocolFailure` where no result comes of it.
        """
        with progress("calibrating the noise"):
            session = self.session
        self._put("study.sealed", self.sealed.signed.to_file())
        number_of_people = f"{self.number} made-up people of {self.sealed.admitted - len(self.sealed.entries)} with vouchers"
        # Free now; the page has to say where it sends before its drop listens.
        with open_entrance(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        with self._served(port, self._page(f"http://127.0.0.1:{port}")) as address:
            receipts = self._contribute(address)
        err.print(f"Rehearsal: {number_of_people} answered, and each has a receipt. Nothing here is real.", soft_wrap=True)
        written = [
            self._put(f"{Path(name).stem}.receipt", receipt.signed.to_file()) for name, receipt in list(receipts.items())[:1]
        ]
        machines, dropped = {}, {}
        for number, entry in enumerate(self.sealed.computing):
            identity, keys = self._members[entry.name]
            if keys.mailbox is None:
                raise InputError(f"{entry.name} has no mailbox. Give the same command again.")
            opener, path = MailboxOpener(keys.mailbox), self.secrets / f"{entry.name}.held"
            held = MemberHoldings.take(path, session, number, opener, self.folder / "box", self._until)
            dropped[entry.name] = held.dropped
            signer, noise = IdentitySigner(identity), SecureNoise(Seed.from_os())
            machines[number] = CommitteeMachine(session, number, signer, MailboxSealer(), opener, held, noise)
        states, _ = run_members(machines)
        done = next((state for state in states.values() if state.has_result), None)
        if done is None:
            raise ProtocolFailure("no member has a result. Try more contributors with --number.")
        page = result_page(self.sealed, self.choice.plan, check_result(session, read_result(session, done.result.content)))
        self._put(f"members{RESULT_PAGE}", page)
        for name, read in dropped.items():
            log = DropLog.sign(self._members[name][0], session, read, {}, page)
            written.append(self._put(f"{name}.dropped", log.to_file()))
        return [self._put("members.sums", done.result.content), *sorted(written)]

    def _put(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        Output(path, "a file of the rehearsal", ends=(path.suffix,)).write(content)
        return path

    def _page(self, address: str) -> FormPage:
        """The page, and beside it what its coordinator signs."""
        made = form_page(self.sealed, self.choice, address)
        signed = SignedPage.sign(made.content, self.sealed, self._coordinator, package_version()).signed
        self._put(place_of(self._put("form.html", made.content)).name, signed.to_file())
        return made

    def _contribute(self, address: str) -> dict[str, DropReceipt]:
        """Each record is dealt as the page does it, and sent; the receipts, by voucher."""
        program = EncodingProgram.of(self.sealed.study.workload, self.choice.plan)
        uniform = BitStream(Seed.from_os()).uniform(self.number * len(program.lows)).reshape(self.number, -1)
        numbers = program.numbers(self._records(), uniform)
        registrar, receipts = Registrar.of(self.invitation, self.registrar), {}
        vouchers = registrar.make(self.number, None).vouchers
        for place, (dealt, (name, voucher)) in enumerate(zip(numbers, vouchers.items(), strict=True), 1):
            identity = registrar.own(place)
            signer, seed = IdentitySigner(identity), Seed.from_os()
            raw = make_contribution(self.session, signer, MailboxSealer(), dealt, 1.0, seed, voucher.admission)
            digest = read_header(self.session, raw).digest.hex()
            receipts[name] = send_to_drop(address, raw, self.sealed.digest, identity.public_key, digest)
        return receipts

    def _records(self) -> Array:
        """Made-up records, one a row, as the study describes them."""
        columns, asked = self.study.workload.columns, self.study.workload.statistics
        made = SyntheticRecords.of_study(columns, asked, USUAL_SPREAD, self.number).values
        return np.column_stack([made[name][: self.number] for name in columns.names])

    @contextmanager
    def _served(self, port: int, page: FormPage) -> Iterator[str]:
        """The address of a drop that serves the page, and takes contributions on this machine alone."""
        box = DropBox.open(self.folder / "box", self.session)
        drop = Drop(box, self.session, Identity.generate(), self._until, page=(page.content, page.policy))
        server, ready, running = DropServer(drop, ("127.0.0.1", port), None), Event(), list[Any]()

        async def run() -> None:
            stop = asyncio.Event()
            running.append((asyncio.get_running_loop(), stop))
            await server.run(stop, ready.set)

        thread = Thread(target=lambda: asyncio.run(run()), daemon=True)
        thread.start()
        try:
            if not ready.wait(60):
                raise ProtocolFailure("the drop does not start. Give the same command again.")
            yield f"http://127.0.0.1:{port}"
        finally:
            for loop, stop in running:
                loop.call_soon_threadsafe(stop.set)
            thread.join(30)
            box.close()
