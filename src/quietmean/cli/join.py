"""``quietmean join``: run one party of a study, of a session or of a committee between machines."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

from cyclopts import Parameter

from quietmean import learning
from quietmean.cli.answers import Pages, ResultScreen, effort_text, near, no_answer_shown, saved_text, show_session
from quietmean.cli.by_file import CONTRIBUTIONS_STAY, OpenedPages, write_contribution
from quietmean.cli.common import EXAMPLES, make_folder
from quietmean.cli.console import (
    choice_document,
    print_json,
    print_lines,
    warn,
)
from quietmean.cli.identity import AtTerminal, load_identity
from quietmean.cli.ledger import balance_json, show_balance
from quietmean.cli.live import display
from quietmean.cli.options import NO_AGREEMENT_OPTIONS, AgreementOptions
from quietmean.core.arrays import Array
from quietmean.core.errors import InputError, ProtocolFailure, StorageError, in_sentences
from quietmean.core.file_kinds import require_program
from quietmean.core.output import Output, has_fields
from quietmean.core.readable import indented
from quietmean.core.site_options import SessionOptions, SiteOptions
from quietmean.form import page_of
from quietmean.node.secrecy import forbid_core_dumps, forbid_tracing
from quietmean.protocols.target import budget_warnings
from quietmean.studies.agreement.contribution import PUBLISHED
from quietmean.studies.agreement.sealed import sealed_with_committee
from quietmean.studies.agreement.session_study import MODEL
from quietmean.studies.agreement.study_keys import Distrusted
from quietmean.studies.data import account_name
from quietmean.studies.outcome.feasible import feasible_sealed
from quietmean.studies.outcome.opened_by_committee import OpenedStudy
from quietmean.studies.outcome.outcome import without_answer
from quietmean.studies.party import (
    Contract,
    Observers,
    PartyContext,
    Person,
    Policy,
    Preparation,
    auditor_for,
    ended,
    file_name,
    is_session,
    take_part,
)
from quietmean.studies.party.audit import Event
from quietmean.studies.party.member import MemberFiles, open_with_others

if TYPE_CHECKING:
    from quietmean.cli.live import NodeDisplay
    from quietmean.learning.models.model import ModelByRounds
    from quietmean.ledger import Account
    from quietmean.sessions.joined import Rounds
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.party.session_contract import SessionContract


def take_part_in_session(
    files: PartyContext, site: SiteOptions, options: SessionOptions, data: str | Path | None, shown: NodeDisplay
) -> tuple[dict[str, Any], Account | None]:
    """The document of this party's part, and the ledger's account. Raises :class:`InputError` before anything is sent."""
    from quietmean.api.sessions import PartOf
    from quietmean.sessions.joined import SessionPreparation

    program, own = options.program, None
    if files.session.study.purpose.get("kind") == MODEL:
        own = OwnModel.read(files, site, program, data, shown)
        options = replace(options, records=len(own.records))
    else:
        _require_program(program, data)
    preparation = SessionPreparation(files, site, _person(shown))
    shown.say("calibrating the noise")
    with shown.asking():
        contract = preparation.agree()
    ready = preparation.prepare(options.most, options.records)
    shown.warn(budget_warnings(contract.target))
    # What it prints is drawn over by nothing.
    part = PartOf(ready)
    if own is not None:
        with part as rounds:
            own.fit(rounds)
    elif program is not None:
        with shown.asking():
            rounds = part.run(program)
    document = _document(contract, rounds) | ({} if own is None else own.document())
    payer, account = preparation.payer, rounds.account
    if payer is not None and account is not None:
        document["ledger"] = {"file": str(payer.ledger), **balance_json(account)}
    return document, account


def _person(shown: NodeDisplay) -> Person:
    """The person at the terminal, on which the node is shown."""
    observers = Observers(shown.report, shown.observe)
    return Person(AtTerminal(shown.asking), warn, lambda sentence: shown.warn([sentence]), shown.tell_owner, observers)


def _require_program(program: Path | None, data: str | Path | None) -> None:
    """Raises :class:`InputError` unless there is a program, which reads its data by itself."""
    if data is not None:
        raise InputError("the vectors of a session are made by a program, which reads its data itself. Leave --data out.")
    if program is None:
        raise InputError("this is a session, of many means of vectors. Give --program FILE, what makes this party's vectors.")
    require_program(program)


@dataclass(frozen=True, eq=False, repr=False)
class OwnModel:
    """The model that a session fits, and this party's ``records`` in its columns."""

    files: PartyContext
    model: ModelByRounds
    records: Array
    kept: Path

    @classmethod
    def read(
        cls, files: PartyContext, site: SiteOptions, program: Path | None, data: str | Path | None, shown: NodeDisplay
    ) -> Self:
        """Read the records of this party for its model.

        Raises :class:`InputError` without data, and for a session of another model.
        """
        if program is not None:
            raise InputError("this session fits a model, which needs no program. Leave --program out, and give --data FILE.")
        if data is None:
            raise InputError("this session fits a model. Give --data FILE, the records of this party.")
        model, notes = learning.model_of(files.session.study, len(files.session.parties)), list[str]()
        records = model.read(data, notes.append)
        shown.warn([f"{note} (for you only)" for note in notes])
        store = files.store(site.store)
        return cls(files, model, records, store.with_name(f"{store.name.removesuffix('.store')}{learning.KEPT}"))

    def fit(self, rounds: Rounds) -> None:
        """All rounds of this party."""
        contract = self.files.session
        self.model.names_of_parties = [party.name for party in contract.parties]
        self.model.fit_in(rounds, self.records, contract.party, len(contract.parties), self.kept)

    def document(self) -> dict[str, Any]:
        """What came of it, the same at all parties."""
        return {"model": {**self.model.to_json(), "kept": str(self.kept)}}


def _document(contract: SessionContract, rounds: Rounds) -> dict[str, Any]:
    return {
        "session": contract.name,
        "party": contract.own.name,
        "contract": contract.digest,
        "rounds": {"agreed": contract.study.rounds, "begun": rounds.begun},
        "epsilon": rounds.epsilon,
        "delta": contract.study.delta,
        "receipt": str(rounds.receipt),
        **({} if rounds.absent is None else {"not_in_at_start": list(rounds.absent)}),
    }


def take_part_as_member(
    study: Path,
    sealed: Sealed,
    key: Path,
    data: str | Path | None,
    contributions: Path | None,
    site: SiteOptions,
    shown: NodeDisplay,
    json: bool,
) -> None:
    """Take part as a member of the committee, from the contributions in a folder to the result.

    Raises :class:`InputError` for who is not a member.
    """
    begun = time.monotonic()
    if contributions is None:
        raise InputError("a member needs the folder with the files that contributors handed in. Give --contributions FOLDER.")
    Distrusted().refuse(sealed.holders())
    with shown.asking():
        identity = load_identity(key)
    own = next((entry for entry in sealed.entries if entry.identity == identity.public_key), None)
    if own is not None and not own.member:
        raise InputError(f"{own.name} is not a member of the committee. Hand in its file with quietmean send.")
    files = PartyContext.load(study, None, key, lambda path: identity, site.store)
    shown.say("calibrating the noise")
    choice = feasible_sealed(sealed)
    if data is not None:
        with shown.asking():
            path = contributions / f"{file_name(files.name)}.contribution"
            try:
                write_contribution(study, sealed, identity, key, data, path, site.store, site)
            except InputError as error:
                late = files.study.committee is not None and datetime.now(UTC) >= files.study.committee.contribute_by
                raise (
                    InputError(in_sentences(error, "Without --data this member takes part all the same")) if late else error
                ) from None
    rules = Policy.load(site.policy)
    path = files.receipt(site.receipt)
    pages = OpenedPages(sealed, choice, path, origin={"party": files.name})
    auditor = auditor_for(rules, files.identity, Contract.by_file(sealed, files.identity, choice))
    auditor.write(Event.STARTED, {"plan": choice.plan.digest, "charged": data is not None, "member": True})
    member = MemberFiles(files, choice.plan, site, page_of(sealed, choice.plan))
    observers = Observers(shown.report, shown.observe)
    try:
        end = asyncio.run(open_with_others(member, contributions, observers, rules.folder, lambda text: shown.warn([text])))
    except ProtocolFailure as error:
        ended(auditor, {}, result=False, reason="this member got no sum of the committee")
        over = ProtocolFailure(
            in_sentences(
                error,
                "This member takes no part in this study again",
                "If others have the result, ask for one file NAME.sums, and run quietmean result with it",
            )
        )
        raise without_answer(over, path, choice.plan, CONTRIBUTIONS_STAY, pages.belongs) from None
    ended(auditor, {}, result=True)
    try:
        opened = OpenedStudy.of(sealed, choice.plan, end.checked, end.left_out)
    except ProtocolFailure as error:
        raise without_answer(error, path, choice.plan, CONTRIBUTIONS_STAY, pages.belongs) from None
    effort: dict[str, Any] = {
        "messages": end.result.transfers,
        "bytes": end.result.bytes_sent,
        "seconds": round(time.monotonic() - begun, 3),
        "sums": str(member.sums),
    }
    where = _hand_out(member, contributions)
    pages.write(opened, effort, json=json, details=shown.details)
    if not json:
        print_lines(indented("Publish", ", ".join(map(near, member.published))))
        print_lines(indented("", where))


def _hand_out(member: MemberFiles, contributions: Path) -> str:
    """Put what a member published where a drop hands it out, if its folder is here; and say where respondents find it."""
    if not any(contributions.glob("drop-*.parts")):
        return ""
    folder = contributions / PUBLISHED
    try:
        make_folder(folder)
        for path in member.published:
            ending = path.name.removeprefix(member.beside("").name)
            shared = Output(folder / f"member-{member.files.party + 1}{ending}", "the member's file", ends=(path.suffix,))
            shared.write(path.read_bytes())
    except (InputError, StorageError, OSError):
        return f"Send these to who runs the drop, for {near(folder)}. Its page shows them."
    return f"They are in {near(folder)}, too. The drop's page shows them."


# The fields of the result that the event "result" carries.
_RESULT_EVENT = (
    "columns",
    "estimate",
    "standard_error",
    "statistics",
    "epsilon",
    "delta",
    "parties_counted",
    "notes",
    "receipt",
)

Site: TypeAlias = Annotated[SiteOptions, Parameter(name="*")]


def join_command(
    study: Path,
    *,
    agreed: AgreementOptions = NO_AGREEMENT_OPTIONS,
    data: str | Path | None = None,
    contributions: Path | None = None,
    site: Site = SiteOptions(),  # noqa: B008 - it is frozen
    session: Annotated[SessionOptions, Parameter(name="*")] = SessionOptions(),  # noqa: B008
    events: bool | Path = False,
    details: bool = False,
    json: bool = False,
) -> None:
    """Take part in a study, or in a session, as one party. After a crash the same command continues where it stopped.

    After the end it shows the same result again, from the store, without the others. In a session, many means of vectors under
    one budget, --program makes this party's vectors.

    Parameters
    ----------
    study
        The signed study or session; or a study file or session file, if all parties have the same one.
    data
        This party's records: a file, or a database such as postgresql://HOST/DATABASE (docs/analyse/data.md). They never leave
        this machine. A session is many means of vectors under one budget. It needs none here: its program reads its own data.
    contributions
        For a committee member: the folder with the contributors' files.
    events
        Write each event to this file when it happens, one JSON object a line. Without a file: to standard error.
    details
        Also show what is assumed, notes, and what other adversaries learn.
    json
        One JSON document on standard output.
    """
    sealed = None
    if not is_session(study):
        sealed = sealed_with_committee(study)
        if sealed is None:
            data = needed_data("join", data)
            if contributions is not None:
                raise InputError("--contributions is for members of a committee, and this study has none. Leave it out.")
    forbid_core_dumps()
    forbid_tracing()
    with no_answer_shown(one_line=events is True), display(events) as shown:
        shown.details = details
        if sealed is not None:
            _refuse_session_options(session)
            take_part_as_member(study, sealed, agreed.key, data, contributions, site, shown, json)
            return
        with shown.asking():
            files = PartyContext.load(study, agreed.roster, agreed.key, load_identity, site.store)
        if shown.stream is not None:
            shown.stream.party = files.name
        if files.of_session:
            document, charged = take_part_in_session(files, site, session, data, shown)
            shown.result({name: document[name] for name in ("rounds", "epsilon", "delta", "receipt")})
            show_session(document, charged, details=details, json=json)
            return
        data = needed_data("join", data)
        _refuse_session_options(session)
        path = files.receipt(site.receipt)
        pages = Pages.beside(path)
        # Before minutes of calibration: it is not a receipt of another party or file of another kind.
        Output(path, "the receipt", "--receipt", own=has_fields("certify", "origin")).require_free()
        preparation = Preparation(files, site, account_name(data), _person(shown))
        shown.say("calibrating the noise")
        choice = files.plan(agreed.plan, agreed.no_privacy)
        with shown.asking():
            contract = preparation.agree(choice, data)
        ready = preparation.prepare(pages.outputs)
        shown.warn(budget_warnings(contract.plan.target))
        end = asyncio.run(take_part(ready, shown.say))
        shown.over(end.unsettled.get("silent", ()))
        document = {**end.document(), **choice_document(choice), **pages.to_json()}
        shown.result({name: document[name] for name in _RESULT_EVENT})
    charged, payer = end.account, preparation.payer
    if payer is not None and charged is not None:
        document["ledger"] = {"file": str(payer.ledger), **balance_json(charged)}
    # The answer first: it is paid for, and pages only show it.
    if json:
        print_json(document | {"expected": preparation.forecast.to_json()})
        pages.write(end)
        return
    receipt, command = end.outcome.receipt(end.origin), f"quietmean result {quote(near(path))}"
    screen = ResultScreen(receipt, document, command, details, shown.did_not_fit, effort_text(document))
    screen.show()
    saved = [path, *pages.write(end)]
    print_lines(indented("Saved", saved_text(saved)))
    if charged is not None:
        show_balance(charged, details=details)
    screen.show_more()


def needed_data(command: str, data: str | Path | None) -> str | Path:
    """The data of a study. Raises :class:`InputError` where there are none."""
    if data is None:
        raise InputError(f"{command} needs --data. Write for example {EXAMPLES[command]}.")
    return data


def _refuse_session_options(options: SessionOptions) -> None:
    """Raises :class:`InputError` for what says nothing about a study."""
    if set_options := [name for name, value in vars(options).items() if value is not None]:
        raise InputError(f"--{set_options[0]} is for a session, and this is a study of statistics. Leave it out.")
