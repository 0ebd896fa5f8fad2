"""One party takes part in a study, from its vector to its receipt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from quietmean.core.errors import InputError, NothingPublished, NotStarted, NotYet, ProtocolFailure
from quietmean.ledger import Account
from quietmean.node import NodeResult, NodeSettings, Started, run_party, run_quorum
from quietmean.node.quorum import least_minimum
from quietmean.planning.gate import GateRefused
from quietmean.planning.possible import ImpossibleResult
from quietmean.studies.audit import Event
from quietmean.studies.opened import opened_of
from quietmean.studies.outcome import StudyOutcome, conclude, require_possible_result, save_impossible, save_refusal
from quietmean.studies.party.ending import ended, loose_ends, notes_of, origin_of
from quietmean.studies.party.files import Files
from quietmean.studies.party.preparing import Prepared


@dataclass(frozen=True)
class Finished:
    """What a party has at the end. ``origin``: what its ``receipt`` says of the execution; ``seconds``: with the certificate."""

    files: Files
    outcome: StudyOutcome
    result: NodeResult
    account: Account | None
    origin: Mapping[str, Any]
    receipt: Path
    seconds: float
    # Of a study that started with those who were there: who was not.
    absent: Sequence[str] | None = None

    @cached_property
    def names(self) -> list[str]:
        return [entry.name for entry in self.files.roster.entries]

    @cached_property
    def notes(self) -> list[str]:
        """What the execution could not settle, in sentences for the user."""
        found = notes_of(self.files.roster, self.result)
        if self.absent:
            found.insert(0, f"{', '.join(self.absent)} took no part: not in at the start")
        return found

    def to_json(self) -> dict[str, Any]:
        """What ``quietmean schema result`` describes, without how the protocol was chosen and where pages are."""
        return {
            **self.outcome.to_json(),
            **self.effort(),
            "refusals": list(self.result.refusals),
            **loose_ends(self.result),
            "notes": self.notes,
            "not_counted": self.outcome.missing(self.names),
            **({} if self.absent is None else {"not_in_at_start": list(self.absent)}),
            "receipt": str(self.receipt),
        }

    def effort(self) -> dict[str, Any]:
        """Messages and bytes of this party, seconds."""
        return {"messages": self.result.transfers, "bytes": self.result.bytes_sent, "seconds": self.seconds}


async def take_part(ready: Prepared, say: Callable[[str], None] = lambda text: None) -> Finished:
    """Run this party's node, certify what happened, settle what was charged, and write the receipt.

    ``say`` gets what is being done. Raises :class:`ProtocolFailure` for an execution without a result; what it cost is settled
    all the same.
    """
    files, settings, charge, auditor = ready.files, ready.settings, ready.charge, ready.auditor
    receipt = ready.receipt
    head = auditor.write(Event.STARTED, {"plan": settings.plan.digest, "charged": charge is not None})
    # The others keep it: who can write the log cannot change their receipts.
    settings = replace(settings, audit=head.to_bytes())
    begun = time.monotonic()
    beginning: list[Started] = []
    try:
        if settings.quorum is None:
            result = await run_party(settings)
        else:
            result = await run_quorum(settings, beginning.append)
    except NotStarted as error:
        told = ""
        if charge is not None:
            given = charge.never_started()
            told = ", and what was reserved in the ledger is given back" if given else ", what was reserved stays in the ledger"
        _with_log(ready, result=False, reason="it did not start with this party")
        raise NotStarted(f"{error}{told}") from None
    except GateRefused as error:
        approved = _with_log(ready, result=False, reason="the gate before the release was closed")
        inside, within = _among(files, settings, beginning)
        save_refusal(
            receipt, within.plan.target, error.record, origin_of(inside, within, approved, start=_start(files, beginning))
        )
        if charge is not None:
            charge.settle_refusal(error.record, within.plan.charge)
        raise ProtocolFailure(f"{error}; receipt {receipt}") from None
    except NothingPublished:
        if charge is not None:
            charge.give_back(_among(files, settings, beginning)[1].plan.charge)
        _with_log(ready, result=False, reason="nobody published anything")
        raise
    except ProtocolFailure:
        _with_log(ready, result=False, reason="the protocol could not finish")
        raise
    except InputError:
        _with_log(ready, result=False, reason="it could not begin")
        raise
    except NotYet:
        _with_log(ready, result=False, reason="not over yet, it is continued by the same command")
        raise
    except (KeyboardInterrupt, asyncio.CancelledError):
        _with_log(ready, result=False, reason="interrupted, it can be continued")
        raise
    say("certifying what happened")
    files, settings = _among(files, settings, beginning)
    try:
        require_possible_result(settings.plan, files.workload, *opened_of(result, settings.plan))
    except ImpossibleResult as error:
        _keep_impossible(ready, (files, settings), result, error, _start(ready.files, beginning))
        charged = "" if charge is None else "; what was reserved stays charged in full, for everything had been released"
        raise ImpossibleResult(f"{error}{charged}; receipt {receipt}", error.execution) from None
    outcome = conclude(files.workload, settings.plan.target, result.execution, result.mean, result.gate)
    account = None if charge is None else charge.settle(outcome, files.party)
    if beginning:
        require_enough(ready, outcome)
    absent = beginning[0].absent if beginning else None
    origin = origin_of(files, settings, _with_log(ready, result=True), result, _start(ready.files, beginning))
    outcome.save_receipt(receipt, origin)
    files.forget_opening_keys()
    return Finished(files, outcome, result, account, origin, receipt, round(time.monotonic() - begun, 3), absent)


def _keep_impossible(
    ready: Prepared,
    inside: tuple[Files, NodeSettings],
    result: NodeResult,
    error: ImpossibleResult,
    start: Mapping[str, Any],
) -> None:
    """The receipt and the end of the log. The ledger keeps what was reserved: everything had been released."""
    files, settings = inside
    approved = _with_log(ready, result=False, reason="a result that cannot be")
    save_impossible(
        ready.receipt, settings.plan.target, result.execution, error, origin_of(files, settings, approved, result, start)
    )


def _among(files: Files, settings: NodeSettings, beginning: Sequence[Started]) -> tuple[Files, NodeSettings]:
    """This party among those who were in at the start; among all, where a study waits for all."""
    if not beginning:
        return files, settings
    inside = beginning[0].settings
    return replace(files, roster=inside.roster, party=inside.party), inside


def _start(files: Files, beginning: Sequence[Started]) -> dict[str, Any]:
    """For the receipt: who was in at the start; places are those of all parties, whose roster has this digest."""
    if not beginning:
        return {}
    started = beginning[0]
    place = {"attempt": started.attempt, "members": list(started.members), "not_in_at_start": list(started.absent)}
    return {"start": {**place, "roster": files.roster.digest}}


def require_enough(ready: Prepared, outcome: StudyOutcome) -> None:
    """Raises :class:`ProtocolFailure` for what is no result: another set of parties might have one, too."""
    target = ready.settings.plan.target
    least = least_minimum(target.parties, target.colluding)
    if outcome.parties_counted < least:
        _with_log(ready, result=False, reason="too few parties are counted")
        raise ProtocolFailure(
            f"there is no result: {outcome.parties_counted} parties are counted, and one of {target.parties} parties of whom "
            f"{target.colluding} may collude needs {least}, so that no two results can be made; what it cost is in the ledger"
        )


def _with_log(ready: Prepared, **end: Any) -> Mapping[str, Any]:
    return ended(ready.auditor, ready.approval, **end)
