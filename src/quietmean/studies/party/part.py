"""One party takes part in a study, from its vector to its receipt."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from quietmean.core.errors import InputError, NothingPublished, NotStarted, NotYet, ProtocolFailure
from quietmean.core.query_statement import QueryStatement
from quietmean.core.readable import epsilon_text
from quietmean.core.start_quorum import least_minimum
from quietmean.ledger import Account
from quietmean.node import NodeResult, NodeSettings, Started, run_party
from quietmean.planning.gate import GateRefused
from quietmean.planning.possible import ImpossibleResult
from quietmean.protocols import Target
from quietmean.studies.outcome.opened import opened_of
from quietmean.studies.outcome.outcome import StudyOutcome, conclude_possible, save_impossible, save_refusal, save_without_result
from quietmean.studies.party.audit import Event
from quietmean.studies.party.ending import ended, not_started, notes_of, origin_of, unsettled
from quietmean.studies.party.files import Files
from quietmean.studies.party.preparing import PreparedStudy

# What the audit log has of it; the first that fits.
_UNFINISHED: dict[type[BaseException], str] = {
    NothingPublished: "nobody published anything",
    ProtocolFailure: "the protocol could not finish",
    InputError: "it could not begin",
    NotYet: "not over yet, it is continued by the same command",
    KeyboardInterrupt: "interrupted, it can be continued",
    asyncio.CancelledError: "interrupted, it can be continued",
}


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
        notes = notes_of(self.files.roster, self.result)
        if self.absent:
            notes.insert(0, f"{', '.join(self.absent)} took no part: not in at the start")
        return notes

    def to_json(self) -> dict[str, Any]:
        """What ``quietmean schema result`` describes, without how the protocol was chosen and where pages are."""
        return {
            **self.outcome.to_json(),
            **self.effort(),
            "refusals": list(self.result.refusals),
            **unsettled(self.result),
            "notes": self.notes,
            "not_counted": self.outcome.missing(self.names),
            **({} if self.absent is None else {"not_in_at_start": list(self.absent)}),
            "receipt": str(self.receipt),
        }

    def effort(self) -> dict[str, Any]:
        """Messages and bytes of this party, seconds."""
        return {"messages": self.result.transfers, "bytes": self.result.bytes_sent, "seconds": self.seconds}


async def take_part(ready: PreparedStudy, say: Callable[[str], None] = lambda text: None) -> Finished:
    """Run this party's node, certify what happened, settle what was charged, and write the receipt.

    ``say`` gets what is being done. Raises :class:`ProtocolFailure` for an execution without a result; what it cost is settled
    all the same.
    """
    files, settings, charge, auditor = ready.files, ready.settings, ready.charge, ready.auditor
    receipt = ready.receipt
    head = auditor.write(Event.STARTED, {"plan": settings.plan.digest, "charged": charge is not None})
    # The others keep it: who can write the log cannot change their receipts.
    settings = replace(settings, site=replace(settings.site, audit=head.to_bytes()))
    begun = time.monotonic()
    among = _PartySoFar(files, settings)
    try:
        result = await run_party(settings, among.start)
    except NotStarted as error:
        ended_so, approved = not_started(error, charge), _with_log(ready, result=False, reason="it did not start with this party")
        if charge is not None and not ended_so.refunded:
            raise NotStarted(_kept_without_result(ready, among, approved, ended_so)) from None
        raise ended_so from None
    except GateRefused as error:
        approved = _with_log(ready, result=False, reason="the gate before the release was closed")
        plan, origin = among.settings.plan, origin_of(among.files, among.settings, approved, start=among.start_json)
        save_refusal(receipt, plan.target, error.record, origin)
        if charge is not None:
            charge.settle_refusal(error.record, plan.charge)
        raise ProtocolFailure(f"{error}; receipt {receipt}") from None
    except tuple(_UNFINISHED) as error:
        if isinstance(error, NothingPublished) and charge is not None:
            charge.settle_unpublished(among.settings.plan.charge)
        why = next(why for kind, why in _UNFINISHED.items() if isinstance(error, kind))
        approved = _with_log(ready, result=False, reason=why)
        if charge is None or not isinstance(error, ProtocolFailure):
            raise
        raise type(error)(_kept_without_result(ready, among, approved, error)) from None
    say("certifying what happened")
    files, settings = among.files, among.settings
    execution, opened = opened_of(result, settings.plan)
    try:
        outcome = conclude_possible(settings.plan, files.workload, execution, opened, result.gate)
    except ImpossibleResult as error:
        _keep_impossible(ready, among, result, error)
        charged = "" if charge is None else "; what was reserved stays charged in full, for everything had been released"
        raise ImpossibleResult(f"{error}{charged}; receipt {receipt}", error.execution) from None
    outcome = replace(outcome, query=QueryStatement.of_json(ready.approval.get("query")))
    account = None if charge is None else charge.settle_outcome(outcome, files.party)
    if ready.settings.start is not None:
        try:
            require_enough(ready.settings.plan.target, outcome)
        except ProtocolFailure as error:
            approved = _with_log(ready, result=False, reason="too few parties are counted")
            raise ProtocolFailure(_kept_without_result(ready, among, approved, error)) from None
    origin = origin_of(files, settings, _with_log(ready, result=True), result, among.start_json)
    outcome.save_receipt(receipt, origin)
    files.forget_opening_keys()
    return Finished(files, outcome, result, account, origin, receipt, round(time.monotonic() - begun, 3), among.absent)


def _keep_impossible(ready: PreparedStudy, among: _PartySoFar, result: NodeResult, error: ImpossibleResult) -> None:
    """The receipt and the end of the log. The ledger keeps what was reserved: everything had been released."""
    approved = _with_log(ready, result=False, reason="a result that cannot be")
    origin = origin_of(among.files, among.settings, approved, result, among.start_json)
    save_impossible(ready.receipt, among.settings.plan.target, result.execution, error, origin)


def _kept_without_result(ready: PreparedStudy, among: _PartySoFar, approved: Mapping[str, Any], error: ProtocolFailure) -> str:
    """The sentence of an end without a result, with the receipt that says what was paid for."""
    plan, origin = among.settings.plan, origin_of(among.files, among.settings, approved, start=among.start_json)
    most = f"epsilon {epsilon_text(plan.epsilon_a_priori)} at delta {plan.target.delta:g} at most"
    charged = "nothing but the sampler's part of delta: nobody published anything"
    if not isinstance(error, NothingPublished):
        charged = f"all that was reserved, {most}" if math.isfinite(plan.epsilon_a_priori) else "all that was reserved"
    save_without_result(ready.receipt, plan.target, str(error), charged, origin)
    return f"{error}; receipt {ready.receipt}"


class _PartySoFar:
    """One party among those who are in; among all, until it is settled who they are."""

    def __init__(self, everybody: Files, settings: NodeSettings) -> None:
        self._everybody, self._waits_for_all = everybody, settings.start is None
        self._started: Started | None = None
        self.settings = settings

    def start(self, started: Started) -> None:
        """It is settled."""
        self._started, self.settings = started, started.settings

    @property
    def files(self) -> Files:
        return replace(self._everybody, roster=self.settings.roster, party=self.settings.party)

    @property
    def absent(self) -> Sequence[str] | None:
        """Who was not in at the start; None of a study that waits for all."""
        return None if self._started is None or self._waits_for_all else self._started.absent

    @property
    def start_json(self) -> dict[str, Any]:
        """For the receipt: who was in at the start; places are those of all parties, whose roster has this digest."""
        started = self._started
        if started is None or self._waits_for_all:
            return {}
        start = {"attempt": started.attempt, "members": list(started.members), "not_in_at_start": list(started.absent)}
        return {"start": {**start, "roster": self._everybody.roster.digest}}


def require_enough(target: Target, outcome: StudyOutcome) -> None:
    """Raises :class:`ProtocolFailure` for what is no result: another set of parties might have one, too."""
    least = least_minimum(target.parties, target.colluding)
    if outcome.parties_counted < least:
        raise ProtocolFailure(
            f"there is no result: {outcome.parties_counted} parties are counted, and one of {target.parties} parties of whom "
            f"{target.colluding} may collude needs {least}, so that no two results can be made; what it cost is in the ledger"
        )


def _with_log(ready: PreparedStudy, **end: Any) -> Mapping[str, Any]:
    return ended(ready.auditor, ready.approval, **end)
