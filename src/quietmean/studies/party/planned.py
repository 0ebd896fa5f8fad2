"""A planned study: the plan that all its parties make, what its statistics can tell, and what would make them tell more."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, named
from quietmean.core.output import TableFile
from quietmean.core.readable import UNKNOWN, count_of, delta_shown, epsilon_shown, percent_text, plain
from quietmean.core.schema import MOST
from quietmean.core.tables import Kinds, table_html, table_text
from quietmean.ledger.account import over_gaussian, shared_budget_text
from quietmean.planning.automatic import AUTO, propose, where_more_is_promised
from quietmean.planning.other_noise import other_noise
from quietmean.privacy.analysis import cost_text
from quietmean.statistics.drawn_studies import STUDIES, Expected
from quietmean.studies.agreement.deadlines import in_hours, in_words
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.about_intervals import ABOUT_THESE
from quietmean.studies.outcome.feasible import feasible
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.influence import StudyInfluence
from quietmean.studies.outcome.needed import Needed
from quietmean.studies.party.contract import CommitteeWords

if TYPE_CHECKING:
    from quietmean.planning.automatic import Choice
    from quietmean.planning.plan import Plan
    from quietmean.privacy import Charge
    from quietmean.protocols import Target
    from quietmean.studies.agreement.any_study import AnyStudy
    from quietmean.studies.agreement.deadlines import Deadlines

# The columns of a planned study's rows. Widths are of whole intervals, from the narrowest to the widest of what may be.
_COLUMNS: Kinds = {
    **dict.fromkeys(("name", "term"), str),
    **dict.fromkeys(("width.low", "width.high", "noise.width.low", "noise.width.high", "noise.over.sampling", "power"), float),
    **dict.fromkeys(("budget.part", "flagged"), float),
}


@dataclass(frozen=True)
class Wanted:
    """What is known or wanted of a study: how many ``records`` all parties have together, how wide an interval may be, and the
    chance that a test sees what there is."""

    records: int | None = None
    width: float | None = None
    power: float | None = None

    def require_possible(self) -> None:
        """Raises :class:`InputError` for what no study reaches."""
        if self.width is not None and not 0 < self.width < math.inf:
            raise InputError(f"width {self.width:g} is not a possible width. Give {named('width')} a finite number above 0.")
        if self.power is not None and not 0 < self.power < 1:
            raise InputError(
                f"power {self.power:g} is not a chance of seeing an effect. Give {named('power')} a number between 0 and 1, such "
                "as 0.8."
            )
        if self.records is not None and not 1 <= self.records <= MOST:
            raise InputError(
                f"records is {self.records}. Give {named('records')} how many all parties have together, 1 to {MOST:g}."
            )

    def plan(
        self, study: AnyStudy, parties: int, *, by_file: bool = False, no_privacy: bool = False, hope: bool = True
    ) -> PlannedStudy:
        """The plan of a study of so many parties; ``by_file`` and so on as :func:`.feasible` has them.

        Raises :class:`InputError` for what cannot be planned, and with ``hope`` where the noise would hide everything.
        """
        self.require_possible()
        if self.records is not None and study.unit == PrivacyUnit.PARTY:
            raise InputError(f"{named('records')} has no effect where parties are the unit. Leave it out.")
        units = study.public_records(study.contributions_expected(parties), self.records)
        choice = feasible(
            study,
            parties,
            by_file=by_file,
            no_privacy=no_privacy,
            units=units,
            hope=hope and self.width is None and self.power is None,
        )
        return PlannedStudy(study, choice, study.public_records(parties, self.records), self)


@dataclass(frozen=True, eq=False, repr=False)
class PlannedStudy(TableFile):
    """A study with the plan that all its parties make, a row for each statistic, and for each term of a model by rounds.

    ``records``: how many units all have together, as far as is public: without it nothing is known of widths.
    """

    study: AnyStudy
    choice: Choice
    records: float | None
    wanted: Wanted

    @property
    def plan(self) -> Plan:
        """The plan itself, which :func:`quietmean.simulate` takes; of a model that of each round."""
        return self.choice.plan

    @property
    def epsilon_a_priori(self) -> float:
        """What any execution costs at most, against any coalition of the planned size, at the study's delta; rounded up."""
        return self.charge.epsilon(self.study.delta)

    @cached_property
    def charge(self) -> Charge:
        """What all that is released costs at most."""
        return self.study.charge_of(self.plan)

    @cached_property
    def _forecast(self) -> Forecast | None:
        return None if self.records is None else Forecast(self.study, self.plan, self.records, STUDIES)

    @cached_property
    def expected(self) -> tuple[Expected, ...]:
        """What each statistic will tell: the widths of its intervals, its power; nothing where records are not known."""
        return () if self._forecast is None else self._forecast.expected

    @cached_property
    def needed(self) -> Sequence[Needed]:
        """What each statistic needs for the ``width`` and the ``power`` that were asked for: records, or epsilon."""
        return () if self._forecast is None else self._forecast.needed(self.wanted.width, self.wanted.power)

    @cached_property
    def proposed(self) -> str | None:
        """A committee, where one would serve better. Who names a protocol by file asks for one message of each party."""
        one_message = self.study.protocol != AUTO and self.plan.protocol.traits.by_file
        can_have_one = isinstance(self.study, StudyTerms) and (one_message or self.study.protocol == AUTO)
        return propose(self.plan, one_message=one_message) if can_have_one else None

    @cached_property
    def influence(self) -> StudyInfluence | None:
        """How far one party can move each answer; None where that is not computed."""
        study = self.study
        return StudyInfluence.of_study(study, self.plan, self.wanted.records) if isinstance(study, StudyTerms) else None

    def document(self) -> dict[str, Any]:
        """What ``plan --json`` prints of a study."""
        plan = self.plan
        return {
            "target": self.target.describe(),
            "protocol": plan.protocol.name,
            "prediction": dict(plan.prediction),
            "epsilon_a_priori": self.epsilon_a_priori,
            "digest": plan.digest,
            "expected": () if self._forecast is None else self._forecast.to_json(),
            "needed": [remedy.to_json() for remedy in self.needed],
            "influence": None if self.influence is None else self.influence.to_json(),
            **({} if self.proposed is None else {"proposed": self.proposed}),
            **({"instead": dict(instead)} if self._forecast is not None and (instead := self._forecast.instead) else {}),
        }

    def first_screen(self, *, details: bool = False) -> Iterator[str]:
        """The protocol, the interval of each statistic, and what must not be hidden. ``details``: all else is below it."""
        plan, target, study = self.plan, self.target, self.study
        if first := plan.above_target or plan.nats_kept:
            yield from (f"! {sentence}" for sentence in (first, *where_more_is_promised(plan, plan.domain)))
        yield f"{count_of(target.parties, 'party', 'parties')}{self._of_records}, {plan.protocol.name}{self._in_rounds}"
        if self._forecast is not None:
            yield from (f"  {line}" for line in self._forecast.lines(self.needed))
            if not details:
                yield from (f"Better: {sentence}." for sentence in self._forecast.better)
            alone = all(term.population is None for term in self.expected)
            of = "the noise alone" if alone else "sampling and noise, where nothing else is said"
            of = of if any(term.population is None for term in self.expected) else "sampling and noise"
            yield ABOUT_THESE if study.about_these_records else f"Expected 95 % intervals. They cover {of}."
        if not first:
            yield f"Privacy: {self._promise}."
        if (times := over_gaussian(self.charge, target.delta)) is not None:
            yield shared_budget_text(times)
        if (words := self._committee) is not None:
            yield f"Who reads: {words.otherwise}"
        if study.deadlines is not None:
            yield _in_folder(study.deadlines, self.choice.plans)
        if not details:
            instead = ", a committee instead" if self.proposed else ""
            # Without records nothing is known of intervals and liars.
            liars = ", liars" if isinstance(study, StudyTerms) else ""
            listed = f" (ranges, noise{liars}{instead})" if self._forecast is not None else instead
            yield f"More: --details{listed}. Plan {plan.digest[:12]}."

    def sentences(self) -> Iterator[str]:
        """Say it in words, what is promised first."""
        plan, target = self.plan, self.target
        if first := plan.above_target or plan.nats_kept:
            yield from (first, *where_more_is_promised(plan, plan.domain))
        yield (
            f"{plan.protocol.name} for {target.parties} parties{self._in_rounds}: guaranteed "
            f"{cost_text(self.epsilon_a_priori, target.delta, below=self.charge.delta_below)} (plan {plan.digest[:12]})"
        )
        if (words := self._committee) is not None:
            yield from _of_committee(words)
        if self.study.deadlines is not None:
            yield _in_folder(self.study.deadlines, self.choice.plans)
        if self.proposed is not None:
            yield self.proposed
        if self._forecast is not None:
            yield from self._forecast.sentences()
            yield from self._forecast.compared
        if isinstance(self.study, StudyTerms) and (noise := other_noise(plan, self.study.options)) is not None:
            yield noise
        yield from (remedy.sentence for remedy in self.needed)
        if self.influence is not None:
            yield f"a party that lies can move {'; '.join(self.influence.moved())}"
            yield from self.influence.notes()

    def rows(self) -> list[dict[str, Any]]:
        """One for each statistic, or term of a model: the widths of the 95 % interval and of the noise's alone, from the
        narrowest to the widest; None for what is not known. No rows where records are not known."""
        return [_row(expected) for expected in self.expected]

    def kinds(self) -> Kinds:
        return _COLUMNS

    def __repr__(self) -> str:
        table = [table_text(self._printed())] if self.expected else []
        return "\n".join([self._title, *table, *self._below()])

    def _repr_html_(self) -> str:
        title, *below = (f"<p>{html.escape(line)}</p>" for line in [self._title, *self._below()])
        return "".join([title, table_html(self._printed()) if self.expected else "", *below])

    @property
    def _of_records(self) -> str:
        """How many records, and who said so; nothing where parties are counted."""
        if self.records is None or not self.study.unit.within_party:
            return ""
        stated = "as given" if self.wanted.records is not None else "stated in the study"
        return f", {self.records:,.0f} {self.study.counted} ({stated})"

    @property
    def target(self) -> Target:
        """What is planned for, all rounds together."""
        study, parties = self.study, self.plan.target.parties
        return study.terms(parties).whole_target if isinstance(study, SessionStudy) else self.plan.target

    @property
    def _in_rounds(self) -> str:
        """How many rounds a model has; nothing of one release."""
        return f", {count_of(self.study.rounds, 'round')}" if isinstance(self.study, SessionStudy) else ""

    @property
    def _committee(self) -> CommitteeWords | None:
        study = self.study
        if not isinstance(study, StudyTerms) or study.committee is None:
            return None
        return CommitteeWords(study.committee, None, study.workload)

    @property
    def _title(self) -> str:
        study, target = self.study, self.target
        known = self.records is not None and study.unit.within_party
        records = f", {plain(self.records or 0.0)} {study.counted}" if known else ""
        return (
            f"Study {study.name!r}, {count_of(target.parties, 'party', 'parties')}{records}: "
            f"{self.plan.protocol.name}{self._in_rounds}, {self._promise}"
        )

    @property
    def _promise(self) -> str:
        plan, target = self.plan, self.target
        if first := plan.above_target or plan.nats_kept:
            return first
        against = f"against any {target.colluding} of {target.parties} parties" if target.colluding else "if no party colludes"
        if (words := self._committee) is not None:
            against = f"against {words.against}"
        delta = delta_shown(target.delta, self.charge.delta_below)
        return f"epsilon {epsilon_shown(self.epsilon_a_priori)} (delta {delta}) per {target.unit}, guaranteed, {against}"

    def _printed(self) -> list[dict[str, str]]:
        """One row a statistic, with the columns that some statistic has."""
        rows = [_printed_row(expected) for expected in self.expected]
        kept = [head for head in (rows[0] if rows else ()) if any(row[head] not in ("", UNKNOWN) for row in rows)]
        return [{head: row[head] for head in kept} for row in rows]

    def _below(self) -> list[str]:
        """What the table does not say."""
        if self._forecast is None:
            return ["How wide the intervals will be is not known. Give records, how many all parties have together."]
        about = [ABOUT_THESE] if self.study.about_these_records else []
        return [*about, *self._forecast.lost, *self._forecast.better, *(remedy.sentence for remedy in self.needed)]


def _row(expected: Expected) -> dict[str, Any]:
    of_noise = expected.noise
    width = of_noise if expected.population is None else expected.population
    numbers = (*width, *of_noise, expected.ratio[1], expected.power, expected.budget_part, expected.flagged)
    texts = (expected.statistic.text, expected.term)
    return dict(zip(_COLUMNS, (*texts, *map(_known, numbers)), strict=True))


def _known(number: float | None) -> float | None:
    return None if number is None or math.isnan(number) else number


def _printed_row(expected: Expected) -> dict[str, str]:
    population = UNKNOWN if expected.population is None else expected.reach(expected.population)
    return {
        "statistic": expected.statistic.text,
        "term": ", ".join(filter(None, (expected.term, expected.if_so))),
        "95 % interval": population,
        "noise alone": expected.reach(expected.noise),
        "power": "" if expected.power is None else percent_text(expected.power),
    }


def _of_committee(words: CommitteeWords) -> Iterator[str]:
    """Who must not collude, and what the members check and admit."""
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
