"""``quietmean join``: run one party of a study between machines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from quietmean.cli.console import (
    choice_document,
    number,
    out,
    print_choice,
    print_json,
    print_not_counted,
    print_privacy,
    print_statistics,
    printable,
)
from quietmean.cli.ledger import Payer, balance_json, refuse_without_ledger, show_balance
from quietmean.cli.live import display
from quietmean.cli.preparation import Files, Show
from quietmean.cli.privacy_page import write_pages

if TYPE_CHECKING:
    from quietmean.node import NodeResult, NodeSettings, Roster
    from quietmean.node.phase import Phase
    from quietmean.studies.outcome import StudyOutcome
    from quietmean.studies.study import Study


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
    account: str | None = None,
    group: int | None = None,
    events: Annotated[bool | Path, Parameter(negative="")] = False,
    accept: str | None = None,
    compared: list[str] | None = None,
    listen: str | None = None,
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
        Charge the study to this ledger before the first message leaves, and refuse it if the budget does not allow it. By default
        nothing is charged anywhere.
    account
        The ledger's account for these data; by default the name of the data file without its ending.
    group
        Charge for so many units that change together, by default one: the most rows of one person, or all records of this party
        for an account that counts per party.
    events
        Write what happens as it happens, one JSON object a line, to this file; to standard error if no file is named.
    accept
        Say yes to a sealed study by its digest, or the first 32 digits of it or more, instead of at the terminal.
    compared
        A party with whom the words of the sealed study were compared; repeat for several. The others count as colluders.
    listen
        HOST:PORT to listen on here, where it is not the address in the roster: 0.0.0.0:7001 behind a router that forwards a
        port. A party that nobody can dial takes part too, as long as it can dial the others.
    no_privacy
        Take part although the study's protocol protects nothing; refused otherwise.
    json
        One JSON document on standard output.
    """
    import asyncio

    from quietmean.cli.approval import approve
    from quietmean.core.errors import InputError, NothingPublished, ProtocolFailure
    from quietmean.node import run_party
    from quietmean.node.secrecy import forbid_core_dumps, forbid_tracing
    from quietmean.planning.gate import GateRefused
    from quietmean.protocols.target import budget_warnings
    from quietmean.studies import conclude, save_refusal
    from quietmean.studies.data import account_name

    refuse_without_ledger(ledger, account, group)
    forbid_core_dumps()
    forbid_tracing()
    with display(events) as shown:
        with shown.asking():
            files = Files.load(study, roster, key, store)
            if files.keys is not None and files.keys.given is not None:
                raise InputError(f"{files.name} contributed to this study by file: a second time would tell more than was agreed")
            approval = approve(files, accept, compared or ())
        if shown.stream is not None:
            shown.stream.party = files.name
        shown.say("calibrating the noise")
        choice = files.plan(plan, no_privacy)
        shared = choice.plan
        records = files.records(data)
        forecast = files.forecast(shared, records)
        encoded = files.encode(records, shared)
        shown.tell_owner(encoded, files.owner_notes)
        settings = files.settings(shared, encoded, files.store(store), Show(shown.report, shown.observe), listen)
        charge = None
        if ledger is not None:
            payer = Payer(ledger, account or account_name(data), group, list(records.T))
            charge = payer.reserve(files.study.name, settings)
            # What holds the columns is not kept while the study runs.
            del payer
        del records
        shown.warn(budget_warnings(shared.target))
        begun = time.monotonic()
        try:
            result = asyncio.run(run_party(settings))
        except GateRefused as error:
            path = files.receipt(receipt)
            save_refusal(path, shared.target, error.record, _origin(files, settings, approval))
            if charge is not None:
                charge.settle_refusal(error.record, settings.plan.charge)
            raise ProtocolFailure(f"{error}; receipt {path}") from None
        except NothingPublished:
            if charge is not None:
                charge.give_back(settings.plan.charge)
            raise
        shown.say("certifying what happened")
        outcome = conclude(files.workload, shared.target, result.execution, result.mean, result.gate)
        charged = None if charge is None else charge.settle(outcome, files.party)
        path = files.receipt(receipt)
        origin = _origin(files, settings, approval) | _of_result(result)
        outcome.save_receipt(path, origin)
        names = [entry.name for entry in files.roster.entries]
        effort = {
            "messages": result.transfers,
            "bytes": result.bytes_sent,
            "seconds": round(time.monotonic() - begun, 3),
        }
        notes = notes_of(files.roster, result)
        shown_to: dict[str, Any] = {"names": names, "origin": origin, "account": charged, "notes": tuple(notes), **effort}
        document = outcome.to_json() | {
            **choice_document(choice),
            **effort,
            "refusals": list(result.refusals),
            **_loose_ends(result),
            "notes": notes,
            "not_counted": outcome.missing(names),
            "expected": forecast.to_json(),
            "receipt": str(path),
            **write_pages(path, files.study.name, outcome, **shown_to),
        }
        fields = (
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
        shown.result({name: document[name] for name in fields})
    if charged is not None:
        document["ledger"] = {"file": str(ledger), **balance_json(charged)}
    if json:
        print_json(document)
    else:
        _show(files.study, outcome, document)
        if charged is not None:
            show_balance(charged)


def _loose_ends(result: NodeResult) -> dict[str, Any]:
    """What the execution could not settle; parties by their place in the roster."""
    return {
        "silent": list(result.silent),
        "unresolved": [list(transfer) for transfer in result.unresolved],
        "counted_twice": [list(transfer) for transfer in result.counted_twice],
        "counted_twice_part": result.counted_twice_part,
    }


def notes_of(roster: Roster, result: NodeResult) -> list[str]:
    """What the execution could not settle, in sentences for the user."""
    from quietmean.node.phase import Phase

    notes = list(result.remarks)
    if result.gate is not None and not result.gate.published:
        notes.append(f"this party published nothing at the gate before the release: {result.gate.reason}; the others did")
    if result.silent:
        names = ", ".join(roster.name(party) for party in result.silent)
        notes.append(f"{names} told nothing at the end: that part of this execution is known from the others only")
    if missing := _without_release(result):
        names = ", ".join(roster.name(party) for party in missing)
        notes.append(f"nothing published by {names} arrived here: this result is without it, and differs from that of who has it")
    if result.counted_twice:
        places = "; ".join(
            f"round {round_}, {roster.name(sender)} to {roster.name(receiver)}"
            for round_, sender, receiver in result.counted_twice
        )
        notes.append(
            "parties were cut off from each other until the end, and what these messages carried counts twice, with the receiver "
            f"and with the sender: {places}; it is at most {result.counted_twice_part:.2g} of the result's weight, so a mean is "
            "off by at most that part of the distance between its bounds, and the privacy figures take it into account"
        )
    if shares := _places(roster, result, Phase.MIXING):
        notes.append(
            f"own messages were taken back, and nobody told whether their receivers had used them: {shares}; nothing that these "
            "made of them is in this result, and the privacy figures count as seen what came while they may still have been there"
        )
    if sums := _places(roster, result, Phase.DISSEMINATION):
        notes.append(
            f"own messages of published sums were taken back, and whether their receivers had used them is not known: {sums}; "
            "the results of the parties may differ by what these carried"
        )
    return notes


def _without_release(result: NodeResult) -> list[int]:
    """Who was there in the last round, and what it published did not come."""
    protocol, execution = result.execution.protocol, result.execution
    if not protocol.releases_are_public:
        return []
    published = protocol.releasers(execution.parties) - set(result.heard)
    return [party for party in sorted(published) if execution.trace.finished[party]]


def _places(roster: Roster, result: NodeResult, phase: Phase) -> str:
    """Whom the unresolved messages of a phase went to, and when."""
    rounds: dict[int, list[str]] = {}
    for sent_in, round_, receiver in result.unresolved:
        if sent_in == phase:
            rounds.setdefault(receiver, []).append(str(round_))
    return "; ".join(f"to {roster.name(receiver)} in {_rounds(sent)}" for receiver, sent in sorted(rounds.items()))


def _rounds(sent: list[str]) -> str:
    return f"round {sent[0]}" if len(sent) == 1 else f"rounds {', '.join(sent)}"


def _of_result(result: NodeResult) -> dict[str, Any]:
    """What the origin of a receipt has besides, where there is a result."""
    return {"public_seed": result.public_seed, **_loose_ends(result)}


def _origin(files: Files, settings: NodeSettings, approval: dict[str, Any]) -> dict[str, Any]:
    """For the receipt: which software, study, plan and parties this execution belongs to."""
    from quietmean.node.monitor import now
    from quietmean.node.preflight import package_version

    plan = settings.plan
    return {
        "quietmean": package_version(),
        "study": plan.context,
        "target": plan.target.describe(),
        "plan": plan.digest,
        "roster": files.roster.digest,
        "session": settings.study,
        "party": files.party,
        "names": [entry.name for entry in files.roster.entries],
        "finished": now(),
        **({"sealed": approval} if approval else {}),
    }


def _show(study: Study, outcome: StudyOutcome, document: dict[str, Any]) -> None:
    from quietmean.statistics import combined

    found = combined(outcome.answers)
    for name, estimate, error in zip(found.terms, found.value, found.standard_error, strict=True):
        out.print(f"{name}: {number(estimate, error)}, standard error of the privacy noise {number(error, error)}")
    print_statistics(document)
    print_choice(document)
    print_privacy(document, study)
    out.print(
        f"{document['parties_counted']} of {len(outcome.execution.weights)} parties counted; "
        f"{document['messages']} messages, {document['bytes'] / 1000:.1f} kB, {document['seconds']:.1f} s"
    )
    print_not_counted(document)
    for note in document["notes"]:
        out.print(f"note: {printable(note)}", markup=False)
    out.print(f"receipt {document['receipt']}")
    if document["privacy_page"] is not None:
        out.print(f"report  {document['report']}")
        out.print(f"privacy {document['privacy_page']}")
