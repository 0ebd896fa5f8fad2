"""``quietmean join``: run one party of a study between machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from quietmean.cli import join_member, join_session
from quietmean.cli.agreed import NO_AGREEMENT_OPTIONS, AgreementOptions
from quietmean.cli.answers import print_answers
from quietmean.cli.console import (
    choice_document,
    out,
    print_choice,
    print_json,
    print_not_counted,
    print_privacy,
    printable,
    warn,
)
from quietmean.cli.help_texts import EXAMPLES
from quietmean.cli.ledger import balance_json, show_balance
from quietmean.cli.live import display
from quietmean.cli.pages import Pages
from quietmean.core.errors import InputError
from quietmean.core.output import Output, has_fields
from quietmean.core.site_options import SessionOptions, SiteOptions

if TYPE_CHECKING:
    from quietmean.studies.agreement.study import StudyTerms
    from quietmean.studies.outcome.outcome import StudyOutcome

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
    json: bool = False,
) -> None:
    """Take part in a study, or in a session, as one party. After a crash the same command continues where it stopped.

    After the end it shows the same result again, from the store, without the others. In a session, many means of vectors under
    one budget, --program makes this party's vectors.

    Parameters
    ----------
    study
        The sealed study or session, or a study file or session file that all parties agreed on.
    data
        This party's records: a file, or a database such as postgresql://HOST/DATABASE (docs/how-to/data.md). They never leave
        this machine. Of a session there are none: its program reads what it needs.
    contributions
        Of a member of a committee: the folder with the files that contributors handed in.
    events
        Write what happens as it happens, one JSON object a line, to this file; to standard error if no file is named.
    json
        One JSON document on standard output.
    """
    import asyncio

    from quietmean.cli.asking import AtTerminal
    from quietmean.cli.identity import load_identity
    from quietmean.node.secrecy import forbid_core_dumps, forbid_tracing
    from quietmean.protocols.target import budget_warnings
    from quietmean.sessions.files import SessionFiles, is_session, load_files
    from quietmean.studies.agreement.sealed import sealed_with_committee
    from quietmean.studies.data import account_name
    from quietmean.studies.party import Observers, Person, Preparation, take_part

    sealed = None
    if not is_session(study):
        sealed = sealed_with_committee(study)
        if sealed is None:
            data = needed_data("join", data)
            if contributions is not None:
                raise InputError("--contributions is for members of a committee, and this study has none: leave it out")
    forbid_core_dumps()
    forbid_tracing()
    with display(events) as shown:
        if sealed is not None:
            _refuse_session_options(session)
            join_member.take_part(study, sealed, agreed.key, data, contributions, site, shown, json)
            return
        with shown.asking():
            files = load_files(study, agreed.roster, agreed.key, load_identity, site.store)
        if shown.stream is not None:
            shown.stream.party = files.name
        if isinstance(files, SessionFiles):
            document, charged = join_session.take_part(files, site, session, data, shown)
            shown.result({name: document[name] for name in ("rounds", "epsilon", "delta", "receipt")})
            join_session.show(document, charged, json)
            return
        data = needed_data("join", data)
        _refuse_session_options(session)
        path = files.receipt(site.receipt)
        pages = Pages.beside(path)
        # Before minutes of calibration: it is not a receipt of another party or file of another kind.
        Output(path, "the receipt", "--receipt", own=has_fields("certify", "origin")).require_free()
        observers = Observers(shown.report, shown.observe)
        person = Person(AtTerminal(shown.asking), warn, lambda sentence: shown.warn([sentence]), shown.tell_owner, observers)
        preparation = Preparation(files, site, account_name(data), person)
        shown.say("calibrating the noise")
        choice = files.plan(agreed.plan, agreed.no_privacy)
        with shown.asking():
            contract = preparation.agree(choice, data)
        ready = preparation.prepare(pages.outputs)
        shown.warn(budget_warnings(contract.plan.target))
        end = asyncio.run(take_part(ready, shown.say))
        document = {**end.to_json(), **choice_document(choice), **pages.to_json()}
        shown.result({name: document[name] for name in _RESULT_EVENT})
    outcome, charged, payer = end.outcome, end.account, preparation.payer
    if payer is not None and charged is not None:
        document["ledger"] = {"file": str(payer.ledger), **balance_json(charged)}
    if json:
        print_json(document | {"expected": ready.forecast.to_json()})
    else:
        _show(files.study, outcome, document)
        if charged is not None:
            show_balance(charged)
    # The answer first: it is paid for, and pages only show it.
    shown_to: dict[str, Any] = {"names": end.names, "origin": end.origin, "account": charged, "notes": tuple(end.notes)}
    own = f"{contract.own.name} alone"
    pages.write(files.study.name, outcome, tell=not json, sent_by=own, **shown_to, **end.effort())


def needed_data(command: str, data: str | Path | None) -> str | Path:
    """The data of a study. Raises :class:`InputError` where there are none."""
    if data is None:
        raise InputError(f"{command} needs --data: write for example {EXAMPLES[command]}")
    return data


def _refuse_session_options(options: SessionOptions) -> None:
    """Raises :class:`InputError` for what says nothing about a study."""
    if set_options := [name for name, value in vars(options).items() if value is not None]:
        raise InputError(f"--{set_options[0]} is for a session, and this is a study of statistics: leave it out")


def _show(study: StudyTerms, outcome: StudyOutcome, document: dict[str, Any]) -> None:
    print_answers(outcome.answers, document)
    print_choice(document)
    print_privacy(outcome, document, study)
    out.print(
        f"{document['parties_counted']} of {len(outcome.execution.weights)} parties counted; "
        f"{document['messages']} messages, {document['bytes'] / 1000:.1f} kB, {document['seconds']:.1f} s"
    )
    print_not_counted(document)
    for note in document["notes"]:
        out.print(f"note: {printable(note)}")
    out.print(f"receipt {document['receipt']}")
