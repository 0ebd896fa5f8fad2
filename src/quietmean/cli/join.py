"""``quietmean join``: run one party of a study between machines."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from quietmean.cli.console import number, out, print_json, print_privacy, progress, read_json, show_log
from quietmean.cli.ledger import Charge, balance_json, balance_text
from quietmean.core.errors import InputError

if TYPE_CHECKING:
    from quietmean.planning.plan import Plan
    from quietmean.studies.outcome import StudyOutcome
    from quietmean.studies.study import Study

NAME = "join"


def command(
    study: Path,
    *,
    roster: Path,
    data: Path,
    key: Path = Path("quietmean.key"),
    plan: Path | None = None,
    store: Path | None = None,
    receipt: Path | None = None,
    ledger: Path | None = None,
    account: str | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    clip: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Take part in a study as one party. After a crash the same command continues where it stopped.

    Parameters
    ----------
    study
        The study file that all parties agreed on.
    roster
        Names, addresses and public keys of all parties.
    data
        This party's records: a CSV or Parquet file. They never leave this machine.
    key
        This party's private key, from quietmean keygen.
    plan
        A plan that all parties share, from quietmean plan; by default each makes the same one from the study.
    store
        Where this party keeps its state; by default STUDY-PARTY.store beside the study.
    receipt
        Where to write the receipt; by default STUDY-PARTY.receipt.json beside the study.
    ledger
        Charge the study to this ledger before the first message leaves, and refuse it if the budget does not allow it. By default
        nothing is charged anywhere.
    account
        The ledger's account for these data; by default the name of the data file without its ending.
    missing
        refuse: an empty cell is an error; drop: leave its row out.
    clip
        Clip values to the bounds instead of refusing them.
    json
        One JSON document on standard output.
    """
    import asyncio

    from quietmean.node import Identity, NodeSettings, Roster, run_party
    from quietmean.queries import read_columns
    from quietmean.studies import Study, conclude

    show_log("quietmean.node")
    if account is not None and ledger is None:
        raise InputError(f"account {account!r} is in no ledger: give --ledger FILE with it")
    agreed = Study.load(study)
    query = agreed.query()
    members = Roster.load(roster)
    identity = Identity.load(key)
    me = members.entries[members.find(identity)].name
    records, rows = read_columns(data, query.columns, missing=missing)
    encoded = query.encode(records, clip=clip, row_names=rows)
    stem = study.with_suffix("").name
    with progress("calibrating the noise") as line:
        shared = _plan(agreed, plan, len(members.entries))

        def report(event: dict[str, Any]) -> None:
            line.say(_sentence(event))

        settings = NodeSettings(
            identity=identity,
            roster=members,
            plan=shared,
            value=encoded.vector,
            weight=encoded.weight,
            store=store or study.parent / f"{stem}-{me}.store",
            round_timeout=agreed.round_timeout,
            start_timeout=agreed.start_timeout,
            report=report,
        )
        charge = None if ledger is None else Charge.reserve(ledger, account or data.stem, agreed.name, settings)
        begun = time.monotonic()
        result = asyncio.run(run_party(settings))
    outcome = conclude(query, shared.target, result.execution, result.mean)
    charged = None if charge is None else charge.settle(outcome, members.find(identity))
    path = receipt or study.parent / f"{stem}-{me}.receipt.json"
    outcome.save_receipt(path)
    document = outcome.to_json() | {
        "clipped": encoded.clipped,
        "messages": result.transfers,
        "bytes": result.bytes_sent,
        "seconds": round(time.monotonic() - begun, 3),
        "refusals": list(result.refusals),
        "counted_twice": [list(transfer) for transfer in result.counted_twice],
        "receipt": str(path),
    }
    if charged is not None:
        document["ledger"] = {"file": str(ledger), **balance_json(charged)}
    if json:
        print_json(document)
    else:
        _show(agreed, outcome, document)
        if charged is not None:
            out.print(balance_text(charged), markup=False)


def _plan(study: Study, path: Path | None, parties: int) -> Plan:
    from quietmean.planning.plan import Plan

    if path is None:
        return study.plan(parties)
    plan = Plan.from_json(read_json(path))
    wanted, given = study.target(parties).describe(), plan.target.describe()
    for name, value in wanted.items():
        if given[name] != value:
            raise InputError(f"the plan is for {name} = {given[name]} but the study and roster say {value}: make the plan anew")
    # A plan made from a target alone leaves open what the coordinates mean: the study says it.
    if plan.context and plan.context != study.context():
        raise InputError(f"the plan {path} was made for other columns, bounds or unit than the study: make the plan anew")
    return replace(plan, context=study.context())


def _sentence(event: dict[str, Any]) -> str:
    if event["event"] == "round":
        waiting = event.get("waiting_for") or []
        late = f", waiting for {', '.join(waiting)}" if waiting else ""
        return f"{event['phase']}: round {event['round']} of {event['of']}{late}"
    waiting = event.get("waiting_for") or []
    return f"{event['event']}" + (f": waiting for {', '.join(waiting)}" if waiting else "")


def _show(study: Study, outcome: StudyOutcome, document: dict[str, Any]) -> None:
    for name, estimate, error in zip(outcome.query.columns, outcome.estimate, outcome.standard_error, strict=True):
        out.print(f"{name}: {number(estimate, error)}, standard error of the privacy noise {number(error, error)}")
    print_privacy(document, study)
    out.print(
        f"{document['parties_counted']} of {len(outcome.execution.weights)} parties counted; "
        f"{document['messages']} messages, {document['bytes'] / 1000:.1f} kB, {document['seconds']:.1f} s"
    )
    out.print(f"receipt {document['receipt']}")
