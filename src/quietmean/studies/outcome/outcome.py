"""The outcome of a study: the result with its error, its privacy and a receipt, and the record of its run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from quietmean.core.assumptions import OUTSIDERS, Assumption, QueryStatement, assumptions_json, for_unit
from quietmean.core.bounds import APriori
from quietmean.core.codec import to_plain
from quietmean.core.domain import counted_text
from quietmean.core.errors import NothingPublished, ProtocolFailure
from quietmean.core.file_kinds import study_and_party
from quietmean.core.output import Output, json_object
from quietmean.core.party import PartyId, Vector
from quietmean.core.readable import Fact, delta_shown, epsilon_shown, listed
from quietmean.ledger.account import over_gaussian
from quietmean.planning.accuracy import curators_variance, stated_law, stated_variance
from quietmean.planning.gate import GateRecord, GateRefused, kept_at_gate
from quietmean.planning.influence import ImpossibleResult, Influence, ReleasedSum, influence_of, require_possible
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge, CoalitionCertificate, PrivacyAnalysis
from quietmean.privacy.analysis import privacy_facts
from quietmean.protocols import Target
from quietmean.protocols.execution import Execution
from quietmean.protocols.target import budget_warnings
from quietmean.statistics import Answer, Workload, column_means
from quietmean.statistics.estimate import in_part, known
from quietmean.statistics.kinds.first_look import FirstLook
from quietmean.statistics.models import asked_by_rounds
from quietmean.statistics.question_texts import with_domains
from quietmean.studies.agreement.first_look import LookBudget
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.influence import StudyInfluence, checked_text

if TYPE_CHECKING:
    from quietmean.ledger import Account
    from quietmean.node.session import NodeResult

Failure = TypeVar("Failure", bound=ProtocolFailure)


@dataclass(frozen=True, eq=False, repr=False)
class StudyOutcome:
    """A finished study: the estimates of its statistics, its privacy, and how far one party can have moved them.

    ``mean``: of the parties' vectors, (d,), with noise. Standard errors are those of the privacy noise in this very execution
    (exact, from its transcript); they do not include the values lost with parties that dropped out. ``query``: what the owner of
    the data declared of the one over them.
    """

    workload: Workload
    target: Target
    execution: Execution
    mean: Vector
    answers: tuple[Answer, ...]
    privacy: PrivacyAnalysis
    certificate: CoalitionCertificate
    party_epsilon: float | None
    gate: GateRecord | None = None
    influence: StudyInfluence | None = None
    query: QueryStatement = field(default_factory=QueryStatement)

    def __repr__(self) -> str:
        cost = self.certificate.terms.figures(self.a_priori, self.epsilon)
        return f"StudyOutcome({self.execution.protocol.name}, {len(self.answers)} answers: {cost})"

    @property
    def epsilon(self) -> float:
        """Epsilon of the worst-off party against every coalition of the certificate's size, at the target's delta; rounded up."""
        return self.certificate.max_epsilon

    @property
    def nats(self) -> dict[str, Any] | None:
        """The target in nats, and the most that a coalition of the certificate's size learnt about a coordinate of another
        party's value; None for a target in epsilon. See :meth:`PrivacyAnalysis.nats_of_target`.
        """
        target_nats = self.target.nats
        return None if target_nats is None else self.privacy.nats_of_target(self.certificate.size, target_nats)

    @property
    def everyone_else_epsilon(self) -> float:
        """Epsilon of the worst-off party if all others collude; rounded up."""
        return self.privacy.alone

    @property
    def parties_counted(self) -> int:
        """The number of parties whose values are in the result, with those that dropped out after contributing."""
        return int(self.execution.contributors().sum())

    def missing(self, names: Sequence[str]) -> list[str]:
        """The names of the parties whose values are not in the result; ``names``: of all parties, in their order."""
        return [name for name, counted in zip(names, self.execution.contributors().tolist(), strict=True) if not counted]

    @property
    def a_priori(self) -> APriori:
        """The privacy bound that was promised before the start and holds in every execution."""
        return self.execution.a_priori(self.certificate.size, self.target.delta)

    @property
    def epsilon_a_priori(self) -> float:
        """Epsilon of :attr:`a_priori` at the target's delta; rounded up."""
        return self.privacy.terms.epsilon_promised(self.a_priori)

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """What it cost, each figure with the adversary against whom it holds."""
        counted = counted_text(self.target.unit, self.rows)
        return privacy_facts(self.privacy, self.certificate, str(self.target.unit), self.party_epsilon, counted)

    def charge(self, party: int) -> Charge:
        """The privacy cost of this execution for one party: its certificate, capped at the bound that was promised."""
        return self.certificate.charge(party).capped(Charge.promised(self.a_priori))

    @property
    def rows(self) -> str | int | None:
        """Which of a person's rows count; None where persons are not the unit."""
        return self.workload.rows if self.workload.of_persons else None

    @property
    def sites_per_person(self) -> int:
        return self.workload.sites_per_person

    @property
    def these_records(self) -> bool:
        return self.workload.these_records

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """All that the certificate takes for granted, with what the study says of persons, and this party's owner of a query."""
        progress = for_unit(self.certificate.assumptions, self.target.unit, self.workload.sites_per_person)
        return (*progress, *self.query.assumptions)

    def certificate_json(self) -> dict[str, Any]:
        return {
            **self.certificate.to_json(),
            "unit": str(self.target.unit),
            "neighbouring": str(self.target.neighbouring),
            "sensitivity": self.target.sensitivity,
            "everyone_else_epsilon": self.everyone_else_epsilon,
            "worst_found": None if self.certificate.found is None else self.certificate.found.to_json(),
            "whole_party_epsilon": self.party_epsilon,
            "guarantee": self.privacy.guarantee,
            "against": self.against,
            "trust": self.trust,
            "facts": [dict(vars(fact)) for fact in self.facts],
            "assumptions": assumptions_json(self.assumptions),
            **({} if self.rows is None else {"rows": self.rows, "sites_per_person": self.sites_per_person}),
            **({} if self.influence is None else {"influence": self.influence.to_json()}),
            **(
                {}
                if self.execution.protocol.traits.checks.by is None
                else {"checked_by": dict(self.execution.protocol.traits.checks.by)}
            ),
        }

    @property
    def against(self) -> str:
        """Who may collude, in a few words: "any 2 of 20"."""
        if self.certificate.terms.conversion.coalition is not None:
            return self.certificate.terms.conversion.coalition
        if not self.certificate.size:
            return OUTSIDERS
        trusted = "".join(f", not party {party}" for party in sorted(self.certificate.trusted))
        return f"any {self.certificate.size} of {self.execution.parties}{trusted}"

    @property
    def trust(self) -> str:
        """Who is between the parties, in a few words."""
        traits, committee = self.execution.protocol.traits, self.target.committee
        if not traits.private:
            return "no privacy"
        return traits.trust if committee is None else f"opened by {committee.members} members"

    @property
    def over_curator(self) -> float:
        """The noise's standard deviation over that of a trusted curator of the same records; NaN without a target in epsilon."""
        counted = self.execution.counted_weight()
        if self.target.nats is not None or not self.execution.protocol.traits.private or not counted:
            return math.nan
        central = curators_variance(self.target, self.execution.protocol)
        return float(np.sqrt(stated_variance(self.execution) / central)) * counted

    @property
    def influence_sentences(self) -> tuple[str, ...]:
        """How far one party can have moved the answers, for people; none where nobody said."""
        sentences = () if self.influence is None else tuple(self.influence.sentences())
        return sentences if self.checked is None else (*sentences, self.checked)

    @property
    def checked(self) -> str | None:
        """By how many sums of members it was checked, and how many wrong ones would have been noticed, in a sentence."""
        by = self.execution.protocol.traits.checks.by
        return None if by is None else checked_text(by)

    def to_json(self) -> dict[str, Any]:
        """The fields of the result that ``quietmean run`` and ``join`` print as JSON."""
        means, nats, promised = column_means(self.answers), self.nats, Charge.promised(self.a_priori)
        return {
            "columns": list(self.workload.columns.names),
            "estimate": self.by_column({name: float(mean.value[0]) for name, mean in means.items()}),
            "standard_error": self.by_column({name: float(mean.standard_error[0]) for name, mean in means.items()}),
            "epsilon_a_priori": self.epsilon_a_priori,
            "enforced_by": self.a_priori.enforced_by,
            "epsilon": self.epsilon,
            "delta": self.target.delta,
            **({} if (below := promised.delta_below) is None else {"delta_below": below}),
            **({} if (times := over_gaussian(promised, self.target.delta)) is None else {"over_gaussian": times}),
            "certificate": self.certificate_json(),
            "parties_counted": self.parties_counted,
            "without": np.flatnonzero(~self.execution.contributors()).tolist(),
            "over_curator": known(self.over_curator),
            "statistics": [{**answer.to_json(), **self._by_rounds(answer)} for answer in self.answers],
            "warnings": budget_warnings(self.target, float(self.execution.weights.sum())),
            **({} if nats is None else {"nats": nats}),
            **({} if self.gate is None else {"gate": gate_summary(self.gate)}),
        }

    def by_column(self, values: Mapping[str, float]) -> Any:
        """Values of means for JSON: of several columns an object by name, of one column its number.

        A mean that is not known is null, and so is that of the only column if it was not asked for.
        """
        shown = {name: known(value) for name, value in values.items()}
        return shown if len(self.workload.columns) > 1 else shown.get(self.workload.columns.names[0])

    def save_receipt(self, path: Path, origin: Mapping[str, Any] | None = None) -> None:
        """Write :meth:`receipt` to a file. Raises :class:`InputError` for another file that is there; see :func:`receipt_at`."""
        receipt_at(path, origin).write_json(self.receipt(origin))

    def _by_rounds(self, answer: Answer) -> dict[str, str]:
        """The question to type for a model by rounds, where the noise hides a term of a regression."""
        question = asked_by_rounds(answer.statistic.text) if np.isnan(answer.estimates.value).any() else ""
        return {"by_rounds": with_domains(question, self.workload.columns)} if question else {}

    def receipt(self, origin: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The execution, how to certify it, and the public result. ``origin``: the party and study, an additional entry."""
        return {
            **self.execution.to_json(),
            "certify": _how_to_certify(self.target),
            "result": to_plain(self.to_json()),
            **({} if origin is None else {"origin": to_plain(origin)}),
            **({} if self.gate is None else {"gate": self.gate.to_json(self.execution)}),
        }


def without_answer(error: Failure, path: Path, plan: Plan, paid_by: str, origin: Mapping[str, Any] | None = None) -> Failure:
    """Write the receipt of a study that was paid for and has no answer: why, what stays charged, and how to certify.

    Return the error with both. ``paid_by``: by what it stays charged, such as "all that was reserved". The execution is in it as
    far as the error knows it.
    """
    record = error.record if isinstance(error, GateRefused) else None
    happened = record.execution if record is not None else error.execution if isinstance(error, ImpossibleResult) else None
    delta, most = plan.target.delta, plan.epsilon_a_priori
    if record is not None:
        most = min(most, replace(plan.charge, mu=record.before_release).epsilon(delta))
        paid_by = "for nothing was released from here"
    elif happened is not None:
        paid_by += ": everything had been released"
    bound = (
        f"epsilon {epsilon_shown(most)} (delta {delta_shown(delta)}) at most" if math.isfinite(most) else "what nothing bounds"
    )
    charged = f"{bound}, {paid_by}"
    if isinstance(error, NothingPublished):
        charged = "nothing but the sampler's part of delta: nobody published anything"
    receipt = {
        **({} if happened is None else happened.to_json()),
        "certify": _how_to_certify(plan.target),
        **({} if origin is None else {"origin": to_plain(origin)}),
        **({} if record is None else {"gate": record.to_json(record.execution)}),
        "no_result": {"reason": str(error), "charged": charged},
    }
    receipt_at(path, origin).write_json(receipt)
    return error.paid(charged, path)


def receipt_at(path: Path, origin: Mapping[str, Any] | None) -> Output:
    """The file of a receipt with this ``origin``, which may overwrite a receipt of the same party in the same study only.

    So a party that continues after a crash, or combines contributions again, replaces its own receipt.
    """
    whose = study_and_party(origin)

    def own(content: bytes) -> bool:
        existing = json_object(content).get("origin")
        return bool(whose) and isinstance(existing, Mapping) and study_and_party(existing) == whose

    return Output(path, "the receipt", "--receipt", own=own, ends=(".json",))


def gate_summary(record: GateRecord) -> dict[str, Any]:
    """The fields of the gate in a result."""
    return {
        "published": record.published,
        "reason": record.reason,
        "supporters": record.supporters,
        "parties": record.execution.parties,
        "mu": record.decision.mu,
        "limit": record.decision.limit,
    }


def _how_to_certify(target: Target) -> dict[str, Any]:
    level = {"epsilon": target.epsilon} if target.nats is None else {"nats": target.nats}
    read = {} if target.eavesdropping is None else {"eavesdropping": target.eavesdropping}
    return {"colluding": target.colluding, "delta": target.delta, **level, **read}


def require_possible_result(plan: Plan, workload: Workload, execution: Execution, opened: ReleasedSum) -> None:
    """Raises :class:`ImpossibleResult` for a sum that honest parties do not release; see :mod:`quietmean.planning.influence`."""
    require_possible(plan, execution, opened, partial(workload.never_negative, plan.protocol.numbers().step))


def conclude_possible(
    plan: Plan, workload: Workload, execution: Execution, opened: ReleasedSum, gate: GateRecord | None = None
) -> StudyOutcome:
    """What :func:`conclude` makes of a sum that can be, with the bound on what one party can have done to it.

    Raises :class:`ImpossibleResult` for one that cannot.
    """
    require_possible_result(plan, workload, execution, opened)
    mean, influence = execution.decode(opened.total, opened.weight), influence_of(plan, execution, settled=opened.settled)
    return conclude(workload, plan.target, execution, mean, gate, influence)


def conclude(
    workload: Workload,
    target: Target,
    execution: Execution,
    mean: Vector,
    gate: GateRecord | None = None,
    influence: Influence | None = None,
) -> StudyOutcome:
    """Decode the result and certify the execution. ``mean``: the noisy mean of the parties' vectors, shape (d,).

    ``gate``: the record of the gate, if there was one. ``influence``: how far one party can have moved the mean.
    """
    if gate is not None:
        execution = kept_at_gate(target, execution)
    privacy = execution.privacy(target.delta)
    certificate = privacy.coalitions(target.colluding)
    changes = workload.largest_party_change(execution.weights)
    # A party without a record loses nothing.
    most = int(np.argmax(np.multiply(certificate.mu, changes, out=np.zeros_like(changes), where=changes > 0)))
    counted = execution.counted_weight()
    step = execution.protocol.numbers().step
    noise = float(np.sqrt(stated_variance(execution))) if counted else np.inf
    answers = workload.decode(mean, noise, counted, step=step, law=stated_law(execution) if counted else None)
    if parts := execution.in_part:
        answers = tuple(answer.flagged(in_part(parts.values(), execution.parties)) for answer in answers)
    return StudyOutcome(
        workload,
        target,
        execution,
        mean,
        answers,
        privacy,
        certificate,
        privacy.group_epsilon(float(certificate.mu[most]), float(changes[most])) if (changes > 1).any() else None,
        gate,
        None if influence is None else StudyInfluence.of(workload, influence, step, mean, noise, answers),
    )


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
        # A run on one machine has its name from a file: what it asks says more.
        asked = listed([answer.statistic.text for answer in self.outcome.answers])
        looks = all(isinstance(answer.statistic, FirstLook) for answer in self.outcome.answers)
        budget = LookBudget.of_result(self.outcome.to_json()) if looks else None
        return {
            "title": self.study.name if self.truth is None else f"{asked} in {self.study.name}",
            "outcome": self.outcome,
            "names": self.names,
            "truth": self.truth,
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "sent_by": self.sent_by,
            "killed": [self.names[party] for party in self.killed],
            "notes": self.notes if budget is None else (*self.notes, budget.left),
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
