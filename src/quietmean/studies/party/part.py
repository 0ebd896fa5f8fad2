"""One party takes part in a study, from its vector to its receipt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quietmean.core.assumptions import QueryStatement
from quietmean.core.errors import InputError, NothingPublished, NotStarted, NotYet, ProtocolFailure
from quietmean.core.limits import least_minimum
from quietmean.node import NodeResult, Started, run_party
from quietmean.planning import Plan
from quietmean.planning.gate import GateRefused
from quietmean.planning.influence import ImpossibleResult
from quietmean.protocols import Target
from quietmean.studies.outcome.outcome import (
    Failure,
    StudyOutcome,
    StudyRun,
    conclude_possible,
    opened_of,
    without_answer,
)
from quietmean.studies.party.admission import NodeGrant
from quietmean.studies.party.ending import lies_of, not_started, notes_of, origin_of, unsettled
from quietmean.studies.party.files import PartyContext

# What the audit log has of it; the first that fits.
_UNFINISHED: dict[type[BaseException], str] = {
    NothingPublished: "nobody published anything",
    ProtocolFailure: "the protocol could not finish",
    InputError: "it could not begin",
    NotYet: "not over yet, it is continued by the same command",
    KeyboardInterrupt: "interrupted, it can be continued",
    asyncio.CancelledError: "interrupted, it can be continued",
}


async def take_part(ready: NodeGrant, say: Callable[[str], None] = lambda text: None) -> StudyRun:
    """Run this party's node, certify what happened, settle what was charged, and write the receipt.

    ``say`` gets what is being done. Raises :class:`ProtocolFailure` for an execution without a result; what it cost is settled
    all the same.
    """
    charge, receipt = ready.charge, ready.receipt
    begun = time.monotonic()
    own = _PartySoFar(ready)
    try:
        result = await run_party(own.settings, own.start)
    except NotStarted as error:
        ended_so, origin = not_started(error, charge), own.ended("it did not start with this party")
        if charge is not None and not ended_so.refunded:
            raise own.without_answer(NotStarted(str(ended_so)), origin) from None
        raise ended_so from None
    except GateRefused as error:
        origin = own.ended("the gate before the release was closed")
        failure = own.without_answer(error, origin)
        if charge is not None:
            charge.settle_refusal(error.record, own.plan.charge)
        raise failure from None
    except tuple(_UNFINISHED) as error:
        if isinstance(error, NothingPublished) and charge is not None:
            charge.settle_unpublished(own.plan.charge)
        origin = own.ended(next(why for kind, why in _UNFINISHED.items() if isinstance(error, kind)))
        if not isinstance(error, ProtocolFailure):
            raise
        raise own.without_answer(error, origin) from None
    say("certifying what happened")
    files, plan = own.files, own.plan
    execution, opened = opened_of(result, plan)
    try:
        outcome = conclude_possible(plan, files.workload, execution, opened, result.gate)
    except ImpossibleResult as error:
        # The ledger keeps what was reserved: everything had been released.
        error.execution = result.execution
        raise own.without_answer(error, own.ended("a result that cannot be", result)) from None
    outcome = replace(outcome, query=QueryStatement.of_json(ready.approval.get("query")))
    account = None if charge is None else charge.settle_outcome(outcome, files.party)
    if ready.settings.start is not None:
        try:
            require_enough(ready.settings.plan.target, outcome)
        except ProtocolFailure as error:
            raise own.without_answer(error, own.ended("too few parties are counted")) from None
    origin = own.ended(None, result)
    outcome.save_receipt(receipt, origin)
    files.forget_opening_keys()
    notes = [*lies_of(files.roster, result), *notes_of(files.roster, result)]
    names = [entry.name for entry in files.roster.entries]
    if own.absent:
        notes.insert(0, f"{', '.join(own.absent)} took no part: not in at the start")
    return StudyRun(
        files.study,
        outcome,
        tuple(names),
        result.transfers,
        result.bytes_sent,
        round(time.monotonic() - begun, 3),
        receipt,
        tuple(notes),
        account,
        origin,
        None if own.absent is None else tuple(own.absent),
        f"{names[files.party]} alone",
        {"refusals": list(result.refusals), **unsettled(result)},
    )


class _PartySoFar:
    """One party of those who are in; of all, until it is settled who they are."""

    def __init__(self, ready: NodeGrant) -> None:
        self._ready = ready
        self._started: Started | None = None
        # The others keep it: who can write the log cannot change their receipts.
        site = replace(ready.settings.site, audit=ready.started().to_bytes())
        self.settings = replace(ready.settings, site=site)

    def start(self, started: Started) -> None:
        """Take over the settled start: who is in, and what it changes in the settings."""
        self._started, self.settings = started, started.settings

    @property
    def plan(self) -> Plan:
        return self.settings.plan

    @property
    def files(self) -> PartyContext:
        return replace(self._ready.files, roster=self.settings.roster, party=self.settings.party)

    @property
    def absent(self) -> Sequence[str] | None:
        """Who was not in at the start; None of a study that waits for all."""
        started = self._started
        return None if started is None or self._ready.settings.start is None else started.absent

    def ended(self, why_not: str | None, result: NodeResult | None = None) -> dict[str, Any]:
        """Write the end into the audit log, and why without a result: what the receipt says of the execution."""
        end = {"result": True} if why_not is None else {"result": False, "reason": why_not}
        return origin_of(self.files, self.settings, self._ready.ended(**end), result, self._start_json)

    def without_answer(self, error: Failure, origin: Mapping[str, Any]) -> Failure:
        """Write the receipt that says what was paid for; return the error with it."""
        paid_by = "in no ledger" if self._ready.charge is None else "all that was reserved"
        return without_answer(error, self._ready.receipt, self.plan, paid_by, origin)

    @property
    def _start_json(self) -> dict[str, Any]:
        """The start for the receipt: who was in; places are those of all parties, whose roster has this digest."""
        started = self._started
        if started is None or self.absent is None:
            return {}
        start = {"attempt": started.attempt, "members": list(started.members), "not_in_at_start": list(started.absent)}
        return {"start": {**start, "roster": self._ready.files.roster.digest}}


def require_enough(target: Target, outcome: StudyOutcome) -> None:
    """Raises :class:`ProtocolFailure` where too few parties are counted: another set of parties might have one, too."""
    least = least_minimum(target.parties, target.colluding)
    if outcome.parties_counted < least:
        raise ProtocolFailure(
            f"no result can be made. It counts {outcome.parties_counted} parties and needs {least}. With fewer, two results "
            f"could be made where {target.colluding} of {target.parties} parties may collude. Agree on a new study. What this "
            "one cost is in the ledger."
        )
