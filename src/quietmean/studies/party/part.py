"""One party takes part in a study, from its vector to its receipt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from quietmean.core.errors import InputError, NothingPublished, ProtocolFailure
from quietmean.ledger import Account
from quietmean.node import NodeResult, run_party
from quietmean.planning.gate import GateRefused
from quietmean.studies.audit import Event
from quietmean.studies.outcome import StudyOutcome, conclude, save_refusal
from quietmean.studies.party.ending import loose_ends, notes_of, origin_of
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

    @cached_property
    def names(self) -> list[str]:
        return [entry.name for entry in self.files.roster.entries]

    @cached_property
    def notes(self) -> list[str]:
        """What the execution could not settle, in sentences for the user."""
        return notes_of(self.files.roster, self.result)

    def to_json(self) -> dict[str, Any]:
        """What ``quietmean schema result`` describes, without how the protocol was chosen and where pages are."""
        return {
            **self.outcome.to_json(),
            **self.effort(),
            "refusals": list(self.result.refusals),
            **loose_ends(self.result),
            "notes": self.notes,
            "not_counted": self.outcome.missing(self.names),
            "receipt": str(self.receipt),
        }

    def effort(self) -> dict[str, Any]:
        """Messages and bytes of this party, seconds."""
        return {"messages": self.result.transfers, "bytes": self.result.bytes_sent, "seconds": self.seconds}


async def take_part(ready: Prepared, receipt: Path, say: Callable[[str], None] = lambda text: None) -> Finished:
    """Run this party's node, certify what happened, settle what was charged, and write ``receipt``.

    ``say`` gets what is being done. Raises :class:`ProtocolFailure` for an execution without a result; what it cost is settled
    all the same.
    """
    files, settings, charge, auditor = ready.files, ready.settings, ready.charge, ready.auditor
    auditor.write(Event.STARTED, {"plan": settings.plan.digest, "charged": charge is not None})
    begun = time.monotonic()
    target = settings.plan.target
    try:
        result = await run_party(settings)
    except GateRefused as error:
        approved = _with_log(ready, result=False, reason="the gate before the release was closed")
        save_refusal(receipt, target, error.record, origin_of(files, settings, approved))
        if charge is not None:
            charge.settle_refusal(error.record, settings.plan.charge)
        raise ProtocolFailure(f"{error}; receipt {receipt}") from None
    except NothingPublished:
        if charge is not None:
            charge.give_back(settings.plan.charge)
        _with_log(ready, result=False, reason="nobody published anything")
        raise
    except ProtocolFailure:
        _with_log(ready, result=False, reason="the protocol could not finish")
        raise
    except InputError:
        _with_log(ready, result=False, reason="it could not begin")
        raise
    except (KeyboardInterrupt, asyncio.CancelledError):
        _with_log(ready, result=False, reason="interrupted, it can be continued")
        raise
    say("certifying what happened")
    outcome = conclude(files.workload, target, result.execution, result.mean, result.gate)
    account = None if charge is None else charge.settle(outcome, files.party)
    origin = origin_of(files, settings, _with_log(ready, result=True), result)
    outcome.save_receipt(receipt, origin)
    return Finished(files, outcome, result, account, origin, receipt, round(time.monotonic() - begun, 3))


def _with_log(ready: Prepared, **end: Any) -> Mapping[str, Any]:
    """Write the end into the audit log: what a receipt says of the yes, and how far the log has come.

    A result is not lost to a log that cannot be written: its receipt says so instead.
    """
    try:
        audit: dict[str, Any] = ready.auditor.write(Event.ENDED, end).to_json()
    except InputError as error:
        audit = {"not_written": str(error)}
    return {**ready.approval, "audit": audit}
