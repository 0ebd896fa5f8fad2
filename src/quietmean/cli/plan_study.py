"""``quietmean plan --study``: the plan that all parties of a study will make, and what its statistics can tell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from quietmean.cli.console import out, print_json, progress, warn
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.core.readable import count_of, epsilon_text
from quietmean.core.schema import MOST

if TYPE_CHECKING:
    from quietmean.planning.automatic import Choice
    from quietmean.planning.plan import Plan
    from quietmean.statistics.workload import Workload
    from quietmean.studies import StudyTerms
    from quietmean.studies.agreement.committee import CommitteeTerms
    from quietmean.studies.agreement.deadlines import Deadlines
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.outcome.forecast import Needed
    from quietmean.studies.outcome.influence import StudyInfluence


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """A study to plan, and what is known or wanted of it.

    Parameters
    ----------
    study
        Plan this study instead of a target, and tell the expected widths of its intervals; refused if noise hides all. A sealed
        study, or a study file with --roster or --parties.
    roster
        Names, addresses and public keys of all parties of a study that is not sealed.
    records
        With --study: how many records all parties have together, as far as is public.
    width
        With --study: also say how many records or parties, or which epsilon, make the interval of each statistic's first answer
        no wider than this.
    power
        With --study: also say what gives each statistic's test this power at the 5 % level, such as 0.8, where the study's
        expect is true.
    """

    study: Path | None = None
    roster: Path | None = None
    records: int | None = None
    width: float | None = None
    power: float | None = None

    def require_possible(self) -> None:
        """Raises :class:`InputError` for what no study reaches."""
        if self.width is not None and not 0 < self.width < math.inf:
            raise InputError(f"width {self.width:g} is none that an interval can have: give --width a finite number above 0")
        if self.power is not None and not 0 < self.power < 1:
            raise InputError(
                f"power {self.power:g} is not a chance of seeing an effect: give --power a number between 0 and 1, such as 0.8"
            )
        if self.records is not None and not 1 <= self.records <= MOST:
            raise InputError(f"records is {self.records}: give --records how many all parties have together, 1 to {MOST:g}")

    def require_study(self) -> None:
        """Raises :class:`InputError` for what says nothing without a study."""
        for pair in (("width", "power"), ("roster", "records")):
            if any(getattr(self, name) is not None for name in pair):
                options = " and ".join(f"--{name}" for name in pair)
                raise InputError(f"{options} say nothing without a study: give --study FILE too, or leave them out")


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
    from quietmean.protocols import resolve
    from quietmean.protocols.target import budget_warnings
    from quietmean.studies.outcome.feasible import feasible

    study, count, sealed = _study_and_parties(path, options, parties)
    if options.records is not None and study.unit == PrivacyUnit.PARTY:
        raise InputError("--records says nothing where parties are the unit: leave it out")
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
    from quietmean.studies import StudyTerms
    from quietmean.studies.agreement.any_study import require_study
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.agreement.signed import is_signed_document
    from quietmean.studies.party import agreed_terms

    if parties is not None and options.roster is None and not is_signed_document(path):
        return StudyTerms.load(path), parties, None
    agreed = agreed_terms(path, options.roster)
    study, sealed = (agreed.terms, agreed) if isinstance(agreed, Sealed) else (agreed[0], None)
    count = agreed.admitted if isinstance(agreed, Sealed) else len(agreed[1])
    if parties not in (None, count):
        raise InputError(f"--parties {parties} stands beside {count} parties that are known: leave it out")
    return require_study(study), count, sealed


@dataclass(frozen=True)
class _Widths:
    """How wide the intervals of a study will be, in sentences and as data, and what would make them as narrow as wanted."""

    sentences: Sequence[str] = ()
    expected: Sequence[Mapping[str, Any]] = ()
    remedies: Sequence[Needed] = ()


def _widths(study: StudyTerms, plan: Plan, records: float, options: StudyOptions) -> _Widths:
    from quietmean.statistics.expectation import STUDIES
    from quietmean.studies.outcome.forecast import Forecast

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
        from quietmean.planning.automatic import AUTO, propose

        one_message = self.study.protocol != AUTO and self.choice.plan.protocol.traits.by_file
        return propose(self.choice.plan, one_message=one_message) if one_message or self.study.protocol == AUTO else None

    @cached_property
    def influence(self) -> StudyInfluence | None:
        from quietmean.studies.outcome.influence import StudyInfluence

        return StudyInfluence.of_study(self.study, self.choice.plan, self.records)

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints."""
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
        from quietmean.planning.automatic import where_more_is_promised

        plan, target = self.choice.plan, self.choice.plan.target
        if first := plan.above_target or plan.nats_kept:
            yield from (first, *where_more_is_promised(plan, plan.domain))
        yield (
            f"{plan.protocol.name} for {target.parties} parties: epsilon a priori {epsilon_text(plan.epsilon_a_priori)} at delta "
            f"{target.delta:g}; plan {plan.digest[:12]}"
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
    from quietmean.studies.party.contract import CommitteeWords

    words = CommitteeWords(committee, None, workload)
    yield f"against {words.against}; {words.otherwise}; {words.liars}"
    if words.checked:
        yield f"checks: {words.checked}"
    if words.admits:
        yield f"admits: {words.admits}"


def _in_folder(deadlines: Deadlines, plans: Sequence[Plan]) -> str:
    """How long a study through a folder may take."""
    from quietmean.studies.agreement.deadlines import in_hours, in_words

    rounds = len(deadlines.timetable(plans).waits) - 1
    return (
        f"through a folder: {count_of(rounds, 'round')} of at most {in_hours(deadlines.interval)} after the start, for which it "
        f"waits until {in_words(deadlines.first)}; {in_hours(rounds * deadlines.interval)} in all at the most"
    )
