"""The one record of a run: what came out of a study, who took part, how it went and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.core.party import PartyId
from quietmean.planning.influence import ReleasedSum
from quietmean.protocols.execution import Execution
from quietmean.statistics import Answer, column_means
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.outcome import StudyOutcome

if TYPE_CHECKING:
    from quietmean.ledger import Account
    from quietmean.node.session import NodeResult
    from quietmean.planning.plan import Plan


@dataclass(frozen=True, eq=False, repr=False)
class StudyRun:
    """A study that has ended, as one party knows it, or the machine that ran all parties, or who opened what came by file.

    ``names``: of all parties, in order. ``messages``, ``bytes`` and ``seconds``: what the exchange took, of those whom
    ``sent_by`` names in words. ``receipt``: the file with the public record; ``notes``: what the execution could not settle;
    ``account``: the ledger's after the study; ``origin``: what the receipt says of the execution; ``absent``: the parties without
    whom it began, where it need not wait for all. ``unsettled``: what could not be settled, as fields of JSON.
    Of a run on one machine: ``truth``, what the clamped records that count give without noise; of parties that count in part as
    much as counts, so that the stated error is about the distance from it. ``killed``: the parties that were made to drop out;
    ``remark``: of how many parties the result is not the one that is shown, empty where all agree.
    """

    study: StudyTerms
    outcome: StudyOutcome
    names: tuple[str, ...]
    messages: int
    bytes: int
    seconds: float
    receipt: Path | None = None
    notes: tuple[str, ...] = ()
    account: Account | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] | None = None
    sent_by: str = ""
    unsettled: Mapping[str, Any] = field(default_factory=dict)
    truth: tuple[Answer, ...] | None = None
    killed: tuple[PartyId, ...] = ()
    remark: str = ""

    def to_json(self) -> dict[str, Any]:
        """The run as ``quietmean run --json`` prints it, without what only a command knows."""
        begun = {} if self.absent is None else {"not_in_at_start": list(self.absent)}
        return self.outcome.to_json() | {"not_counted": self.outcome.missing(self.names), **begun}

    def document(self) -> dict[str, Any]:
        """What ``quietmean schema result`` describes, without how the protocol was chosen and where pages are."""
        document = self.to_json()
        effort = {"messages": self.messages, "bytes": self.bytes, "seconds": self.seconds, "receipt": str(self.receipt)}
        if self.truth is None:
            return document | effort | {**self.unsettled, "notes": list(self.notes)}
        for entry, answer in zip(document["statistics"], self.truth, strict=True):
            entry["true_value"] = answer.estimates.by_term(answer.estimates.value)
        means = {name: float(mean.value[0]) for name, mean in column_means(self.truth).items()}
        return document | effort | {"true_mean": self.outcome.by_column(means), "killed": list(self.killed)}

    def reported(self) -> dict[str, Any]:
        """What a report shows of it, by the names of :meth:`quietmean.report.StudyReport.of_outcome`."""
        return {
            "title": self.study.name,
            "outcome": self.outcome,
            "names": self.names,
            "truth": self.truth,
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "sent_by": self.sent_by,
            "killed": [self.names[party] for party in self.killed],
            "notes": self.notes,
            "account": self.account,
            "receipt": "receipt.json" if self.receipt is None else self.receipt.name,
        }


def opened_of(result: NodeResult, plan: Plan) -> tuple[Execution, ReleasedSum]:
    """The execution without what did not arrive here, and the sum of what did.

    Where shares are passed on, and some are in doubt or count twice, or a party said nothing at the end, it does not say exactly
    what is in the sum.
    """
    missing, execution = result.arrived(plan)
    doubtful = result.unresolved or result.counted_twice or result.silent or missing
    settled = not (plan.protocol.traits.transfers_mass and doubtful)
    return execution, ReleasedSum(result.total_vector, result.total_weight, settled)
