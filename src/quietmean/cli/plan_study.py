"""``quietmean plan --study``: the plan that all parties of a study will make, and what its statistics can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.cli.console import out, print_json, progress, warn
from quietmean.cli.options import StudyOptions
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.core.readable import count_of, epsilon_text
from quietmean.planning.automatic import AUTO, propose, where_more_is_promised
from quietmean.protocols import resolve
from quietmean.protocols.target import budget_warnings
from quietmean.statistics.expectation import STUDIES
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.any_study import require_study
from quietmean.studies.agreement.deadlines import in_hours, in_words
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import is_signed_document
from quietmean.studies.outcome.feasible import Forecast, feasible
from quietmean.studies.outcome.influence import StudyInfluence
from quietmean.studies.party import agreed_terms
from quietmean.studies.party.contract import CommitteeWords

if TYPE_CHECKING:
    from quietmean.planning.automatic import Choice
    from quietmean.planning.plan import Plan
    from quietmean.statistics.workload import Workload
    from quietmean.studies.agreement.deadlines import CommitteeTerms, Deadlines
    from quietmean.studies.outcome.feasible import Needed


def plan_study(
    path: Path,
    options: StudyOptions,
    parties: int | None,
    plan_file: Output | None,
    *,
    protocol: str | None = None,
    no_privacy: bool = False,
    json: bool = False,
) -> None:
    """Plan a sealed study, or one for the parties of a roster, or so many.

    ``protocol``: instead of what the study names, to see what it would cost.
    Raises :class:`InputError` for what cannot be planned, or was agreed on already.
    """
    options.require_possible()
    study, count, sealed = _study_and_parties(path, options, parties)
    if options.records is not None and study.unit == PrivacyUnit.PARTY:
        raise InputError("--records has no effect where parties are the unit: leave it out")
    if protocol is not None:
        name, protocol_options = resolve(protocol, study.options)
        study = study.model_copy(update={"protocol": name, "options": protocol_options})
    records = study.public_records(count, options.records)
    with progress("calibrating"):
        choice = feasible(
            study,
            count,
            by_file=sealed is not None and sealed.by_file,
            no_privacy=no_privacy,
            units=study.public_records(study.contributions_expected(count), options.records),
            hope=options.width is None and options.power is None,
        )
    for sentence in budget_warnings(choice.plan.target, records):
        warn(sentence)
    if records is None:
        warn("how many records there are is not known, so no widths: give --records N, or records = N in the study file")
        widths = _Widths()
    else:
        widths = _widths(study, choice.plan, records, options)
    planned = _PlannedStudy(study, choice, widths, options.records)
    if plan_file is not None:
        plan_file.write_json(choice.plan.to_json())
    if json:
        print_json(planned.document())
        return
    for sentence in planned.sentences():
        out.print(sentence)


def _study_and_parties(path: Path, options: StudyOptions, parties: int | None) -> tuple[StudyTerms, int, Sealed | None]:
    """The study, how many parties it has, those of its seal or roster, or as many as are said; and the seal."""
    if parties is not None and options.roster is None and not is_signed_document(path):
        return StudyTerms.load(path), parties, None
    agreed = agreed_terms(path, options.roster)
    study, sealed = (agreed.terms, agreed) if isinstance(agreed, Sealed) else (agreed[0], None)
    count = agreed.admitted if isinstance(agreed, Sealed) else len(agreed[1])
    if parties not in (None, count):
        raise InputError(f"--parties {parties} cannot go with {count} parties that are known: leave it out")
    return require_study(study), count, sealed


@dataclass(frozen=True)
class _Widths:
    """How wide the intervals of a study will be, in sentences and as data, and what would make them as narrow as wanted."""

    sentences: Sequence[str] = ()
    expected: Sequence[Mapping[str, Any]] = ()
    remedies: Sequence[Needed] = ()


def _widths(study: StudyTerms, plan: Plan, records: float, options: StudyOptions) -> _Widths:
    forecast = Forecast(study, plan, records, STUDIES)
    with progress("drawing studies"):
        return _Widths(forecast.sentences(), forecast.to_json(), forecast.needed(options.width, options.power))


@dataclass(frozen=True)
class _PlannedStudy:
    """A study with the plan that all its parties make. ``records``: that all have together, where the command line says so."""

    study: StudyTerms
    choice: Choice
    widths: _Widths
    records: int | None

    @cached_property
    def proposed(self) -> str | None:
        """A committee, where one would serve better. Who names a protocol by file asks for one message of each party."""
        one_message = self.study.protocol != AUTO and self.choice.plan.protocol.traits.by_file
        return propose(self.choice.plan, one_message=one_message) if one_message or self.study.protocol == AUTO else None

    @cached_property
    def influence(self) -> StudyInfluence | None:
        return StudyInfluence.of_study(self.study, self.choice.plan, self.records)

    def document(self) -> dict[str, Any]:
        """What ``plan --json`` prints of a study."""
        plan = self.choice.plan
        return {
            "target": plan.target.describe(),
            "protocol": plan.protocol.name,
            "prediction": dict(plan.prediction),
            "epsilon_a_priori": plan.epsilon_a_priori,
            "digest": plan.digest,
            "expected": self.widths.expected,
            "needed": [remedy.to_json() for remedy in self.widths.remedies],
            "influence": None if self.influence is None else self.influence.to_json(),
            **({} if self.proposed is None else {"proposed": self.proposed}),
        }

    def sentences(self) -> Iterator[str]:
        """Say it in words, what is promised first."""
        plan, target = self.choice.plan, self.choice.plan.target
        if first := plan.above_target or plan.nats_kept:
            yield from (first, *where_more_is_promised(plan, plan.domain))
        yield (
            f"{plan.protocol.name} for {target.parties} parties: guaranteed epsilon {epsilon_text(plan.epsilon_a_priori)} "
            f"at delta {target.delta:g}; plan {plan.digest[:12]}"
        )
        if self.study.committee is not None:
            yield from _of_committee(self.study.committee, self.study.workload)
        if self.study.deadlines is not None:
            yield _in_folder(self.study.deadlines, self.choice.plans)
        if self.proposed is not None:
            yield self.proposed
        yield from self.widths.sentences
        yield from (remedy.sentence for remedy in self.widths.remedies)
        if self.influence is not None:
            yield f"one party can move {'; '.join(self.influence.sentences())}"


def _of_committee(committee: CommitteeTerms, workload: Workload) -> Iterator[str]:
    """Who must not collude, and what the members check and admit."""
    words = CommitteeWords(committee, None, workload)
    yield f"against {words.against}; {words.otherwise}; {words.liars}"
    if words.checked:
        yield f"checks: {words.checked}"
    if words.admits:
        yield f"admits: {words.admits}"


def _in_folder(deadlines: Deadlines, plans: Sequence[Plan]) -> str:
    """How long a study through a folder may take."""
    rounds = len(deadlines.timetable(plans).waits) - 1
    return (
        f"through a folder: {count_of(rounds, 'round')} of at most {in_hours(deadlines.interval)} after the start, for which it "
        f"waits until {in_words(deadlines.first)}; {in_hours(rounds * deadlines.interval)} in all at the most"
    )
