"""``quietmean join``: run one party of a study between machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

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
from quietmean.cli.ledger import balance_json, show_balance
from quietmean.cli.live import display
from quietmean.cli.pages import Pages
from quietmean.core.output import Output, has_fields

if TYPE_CHECKING:
    from quietmean.node import NodeSettings
    from quietmean.studies.outcome import StudyOutcome
    from quietmean.studies.study import Study

# What the event "result" has of the result.
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


def command(
    study: Path,
    *,
    data: Path,
    roster: Path | None = None,
    key: Path = Path("quietmean.key"),
    plan: Path | None = None,
    store: Path | None = None,
    receipt: Path | None = None,
    ledger: Path | None = None,
    no_ledger: Annotated[bool, Parameter(negative="")] = False,
    account: str | None = None,
    group: int | None = None,
    events: Annotated[bool | Path, Parameter(negative="")] = False,
    policy: Path | None = None,
    accept: str | None = None,
    yes: Annotated[bool, Parameter(negative="")] = False,
    approval: list[Path] | None = None,
    compared: list[str] | None = None,
    listen: str | None = None,
    listen_through: Path | None = None,
    folder: str | None = None,
    once: Annotated[bool, Parameter(negative="")] = False,
    no_privacy: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Take part in a study as one party. After a crash the same command continues where it stopped.

    After the end it shows the same result again, from the store, without the others.

    Parameters
    ----------
    study
        The sealed study, or a study file that all parties agreed on.
    roster
        Names, addresses and public keys of all parties; for a study that is not sealed.
    data
        This party's records: CSV, Excel, Parquet, SQLite or DuckDB (docs/how-to/data.md). They never leave this machine.
    key
        This party's private key, from quietmean keygen.
    plan
        A plan that all parties share, from quietmean plan; by default each makes the same one from the study.
    store
        Where this party keeps its state: a file, or a folder; by default STUDY-PARTY.store beside the study.
    receipt
        Where to write the receipt; by default STUDY-PARTY.receipt.json beside the study.
    ledger
        Charge the study to this ledger before the first message leaves, and refuse it if the budget does not allow it; by default
        the policy's, or this user's own, where an account is made at the first study of a data set.
    no_ledger
        Charge nothing: for rehearsals, and where something else keeps account.
    account
        The ledger's account for these data; by default the name of the data file without its ending.
    group
        Charge for so many units that change together, by default one: the most rows of one person, or all records of this party
        for an account that counts per party.
    events
        Write what happens as it happens, one JSON object a line, to this file; to standard error if no file is named.
    policy
        What this site takes part in (docs/how-to/policy.md); by default policy.toml in the user's folder for settings.
    accept
        Say yes to the study by the digest of its contract, or the first 32 digits of it or more, instead of at the terminal.
    yes
        Say yes without naming the digest: only for a site whose policy says unattended = true.
    approval
        A yes that was signed by who answers for the data, from approve; repeat for several.
    compared
        A party with whom the words of the sealed study were compared; repeat for several. The others count as colluders.
    listen
        HOST:PORT to listen on here, where it is not the address in the roster: 0.0.0.0:7001 behind a router that forwards a
        port. A party that nobody can dial takes part too, as long as it can dial the others.
    listen_through
        The runtime folder of quietmean port, where several studies of this site share one port: its connections for this study
        are taken from there, and nothing is listened on here.
    folder
        Where the folder of the study is at this site, if its messages are files (docs/how-to/folder.md); by default the policy's.
    once
        Do what can be done now with the files in the folder, and end: with exit code 4 if the study goes on. For a schedule, such
        as cron, that runs the same command again and again.
    no_privacy
        Take part although the study's protocol protects nothing; refused otherwise.
    json
        One JSON document on standard output.
    """
    import asyncio

    from quietmean.cli.asking import AtTerminal
    from quietmean.cli.identity import load_identity
    from quietmean.node.secrecy import forbid_core_dumps, forbid_tracing
    from quietmean.protocols.target import budget_warnings
    from quietmean.studies.data import account_name
    from quietmean.studies.outcome import receipt_at
    from quietmean.studies.party import Answer, Contract, Files, OwnerApproval, Policy, Show, agree, payer_for, prepare, take_part
    from quietmean.studies.party.ending import origin_of

    forbid_core_dumps()
    forbid_tracing()
    rules = Policy.load(policy)
    with display(events) as shown:
        with shown.asking():
            files = Files.load(study, roster, key, load_identity, store)
        path = files.receipt(receipt)
        pages = Pages.beside(path)
        # Before minutes of calibration: it is no receipt of another party or file of another kind.
        Output(path, "the receipt", "--receipt", own=has_fields("certify", "origin")).require_free()
        if shown.stream is not None:
            shown.stream.party = files.name
        payer = payer_for(
            rules,
            files.study.unit,
            account_name(data),
            ledger=ledger,
            account=account,
            group=group,
            without=no_ledger,
            tell=lambda sentence: shown.warn([sentence]),
        )
        shown.say("calibrating the noise")
        choice = files.plan(plan, no_privacy)
        contract, place = Contract.of(files, choice), files.store(store)
        with shown.asking():
            answer = Answer(accept, compared or (), yes, [OwnerApproval.load(path) for path in approval or ()])
            data_set = account or account_name(data) if payer is None else payer.account
            agreed = agree(files, contract, rules, place, answer, AtTerminal(), warn, data_set)

        def outputs(settings: NodeSettings) -> list[Output]:
            belongs = origin_of(files, settings, agreed)
            return [receipt_at(path, belongs), *pages.outputs(belongs)]

        ready = prepare(
            files,
            contract,
            rules,
            agreed,
            data,
            place,
            payer,
            shown.tell_owner,
            show=Show(shown.report, shown.observe),
            listen=listen,
            listen_through=listen_through,
            folder=folder,
            once=once,
            outputs=outputs,
        )
        shown.warn(budget_warnings(contract.plan.target))
        end = asyncio.run(take_part(ready, path, shown.say))
        document = {
            **end.to_json(),
            **choice_document(choice),
            "expected": ready.forecast.to_json(),
            **pages.to_json(),
        }
        shown.result({name: document[name] for name in _RESULT_EVENT})
    outcome, charged = end.outcome, end.account
    if payer is not None and charged is not None:
        document["ledger"] = {"file": str(payer.ledger), **balance_json(charged)}
    if json:
        print_json(document)
    else:
        _show(files.study, outcome, document)
        if charged is not None:
            show_balance(charged)
    # The answer first: it is paid for, and pages only show it.
    shown_to: dict[str, Any] = {"names": end.names, "origin": end.origin, "account": charged, "notes": tuple(end.notes)}
    pages.write(files.study.name, outcome, tell=not json, **shown_to, **end.effort())


def _show(study: Study, outcome: StudyOutcome, document: dict[str, Any]) -> None:
    print_answers(outcome.answers, document)
    print_choice(document)
    print_privacy(document, study)
    out.print(
        f"{document['parties_counted']} of {len(outcome.execution.weights)} parties counted; "
        f"{document['messages']} messages, {document['bytes'] / 1000:.1f} kB, {document['seconds']:.1f} s"
    )
    print_not_counted(document)
    for note in document["notes"]:
        out.print(f"note: {printable(note)}", markup=False)
    out.print(f"receipt {document['receipt']}", markup=False)
