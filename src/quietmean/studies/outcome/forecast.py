"""How wide the intervals of a study will be, and what would make them narrower, before its start."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, named
from quietmean.core.lazy import fitted_studies
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.readable import bound_of, bound_text, either_side, for_terminal, percent_text
from quietmean.planning.plan import Plan
from quietmean.privacy import mu_of_budget
from quietmean.protocols.mechanism import is_private
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.complete_records import Regression
from quietmean.statistics.drawn_studies import SPREADS, DrawnStudies, Expected, PlannedQuestion
from quietmean.statistics.expectation import RATIO, Expectation, best_bins
from quietmean.statistics.features.table import cut_evenly
from quietmean.statistics.kinds.counts import Histogram
from quietmean.statistics.models import ModelQuestion, asked_in_one_release
from quietmean.statistics.registry import read_text
from quietmean.statistics.scenario import effects_in
from quietmean.statistics.simulated import Simulated, reach_text
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.about_intervals import ABOUT_THESE
from quietmean.studies.outcome.needed import Needed, of_this_size, round_up, short_number
from quietmean.studies.outcome.one_or_rounds import OneOrRounds, compared

# A larger budget is none that anybody should be advised to take, and a smaller one says nothing.
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-3, 100.0
_ENOUGH_DIGITS = 1.01
# What would do is tried as it is said: so often, each time with more, and with as many parties as are planned in seconds.
_TRIES, _A_LITTLE_MORE, _MOST_PLANNED, _FURTHER = 8, 1.1, 2000, 4
_STUDIES = 50
_WORTH_SAYING = 0.02


def noise_of_total(plan: Plan) -> float:
    """Standard deviation of the noise on each coordinate of the total, with as many dropouts as planned."""
    stated = plan.protocol.TRAITS.planning.noise_variance(plan.protocol, plan.target)
    predicted = float(plan.prediction.get("mse_noise", 0.0))
    # As predictions are written.
    return math.sqrt(predicted if stated is None else float(f"{stated:.6g}")) * plan.target.parties


@dataclass(frozen=True, eq=False)
class Forecast:
    """A study, its plan, and how many ``records`` it has, as far as is public (parties, if they are the unit).

    ``plan`` is that of each round where a model is fitted.
    """

    study: AnyStudy
    plan: Plan
    records: float
    # How many studies are drawn; a party that takes part need not know to the percent.
    studies: int = _STUDIES

    @property
    def parties(self) -> int:
        return self.plan.target.parties

    @property
    def drawn(self) -> float:
        """How many records are drawn: one at least, as nothing is to be expected of none."""
        return max(self.records, 1.0)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on each coordinate of the total, with as many dropouts as planned."""
        return noise_of_total(self.plan)

    @cached_property
    def law(self) -> NoiseLaw | None:
        """The law of that noise; None for Gaussian noise."""
        protocol, target = self.plan.protocol, self.plan.target
        return protocol.traits.checks.noise_law(protocol, target.responding)

    @cached_property
    def expectation(self) -> DrawnStudies[Any]:
        study, drawn = self.study, (self.noise, self.drawn)
        if isinstance(study, SessionStudy):
            fits: DrawnStudies[ModelQuestion] = fitted_studies(study, self.parties, *drawn, self.studies)
            return fits
        return Expectation(study.workload, *drawn, self.plan.value_step, self.studies, self.law)

    @property
    def expected(self) -> tuple[Expected, ...]:
        # Without an effect that somebody expects, a power is only how often a test is wrong.
        each = self.expectation.expected
        return tuple(replace(term, power=None) if _without_effect(term.statistic) else term for term in each)

    def to_json(self) -> list[dict[str, Any]]:
        return [term.to_json() | self._remedies(term) | self._bins(term) for term in self.expected]

    def sentences(self) -> list[str]:
        """The sentences of the forecast, one for each statistic, and what the intervals are about where that is not usual."""
        return [*dict.fromkeys(map(self._sentence, self.expected)), *([ABOUT_THESE] if self.study.about_these_records else [])]

    @property
    def lost(self) -> list[str]:
        """The statistics whose first answers noise would hide, with what would do, a sentence each."""
        return list(dict.fromkeys(self._hopeless(term) for term in self.expected if term.hopeless))

    @cached_property
    def choices(self) -> list[OneOrRounds]:
        """Whether one release or rounds have the smaller error, of each regression that both can answer."""
        study, expectation = self.study, self.expectation
        if isinstance(study, SessionStudy):
            one = self._in_one_release
            return [] if one is None else [replace(each, by_rounds=study.model) for each in one.choices]
        if not isinstance(expectation, Expectation):
            return []
        asked = [statistic for statistic in study.workload.statistics if isinstance(statistic, Regression)]
        each = [compared(study, statistic, expectation, self.parties) for statistic in asked]
        return [choice for choice in each if choice is not None]

    @cached_property
    def _in_one_release(self) -> Forecast | None:
        """The regression of one release that asks what a model does; None where there is none."""
        study = self.study
        question = asked_in_one_release(study.purpose) if isinstance(study, SessionStudy) else ""
        if not question:
            return None
        alike = {"name", "epsilon", "delta", "colluding", "dropouts", "protocol", "options"}
        columns = study.purpose["columns"] if isinstance(study, SessionStudy) else []
        try:
            fields = {"column": columns, "statistic": [read_text(question)], **study.model_dump(include=alike)}
            asked = StudyTerms.parse(fields)
            return Forecast(asked, asked.plan(self.parties), self.records, self.studies)
        except InputError:
            return None

    @property
    def instead(self) -> dict[str, str]:
        """The question to type in place of one that is asked, where that has a smaller error."""
        return {asked: choice.typed(choice.better) for asked, choice in self._asked_choices if choice.better not in ("", asked)}

    @property
    def better(self) -> list[str]:
        """The questions to type that have a smaller error, in place of those that are asked, a sentence each."""
        return [choice.sentence(asked) for asked, choice in self._asked_choices if asked in self.instead]

    @property
    def compared(self) -> list[str]:
        """How one release and rounds compare, whichever is better, a sentence each."""
        return [choice.sentence(asked) for asked, choice in self._asked_choices]

    @property
    def _asked_choices(self) -> list[tuple[str, OneOrRounds]]:
        """The choices by the question that is asked."""
        by_rounds = isinstance(self.study, SessionStudy)
        return [(choice.by_rounds if by_rounds else choice.one, choice) for choice in self.choices]

    def lines(self, needed: Sequence[Needed] = ()) -> list[str]:
        """Half of each statistic's interval at the usual spread, and beside it what is ``needed`` for another one."""
        lines, before = list[str](), ""
        for term in self.expected:
            if term.hopeless:
                lines += [] if term.statistic.text == before else [f"! {self._hopeless(term)}"]
                before = term.statistic.text
                continue
            # What several terms are of is said once.
            # What several terms of a model have alike is said once.
            alike, before = term.statistic.text == before, term.statistic.text
            asked = term.term if alike else ", ".join(filter(None, (term.statistic.text, term.term)))
            noise = "" if term.population is not None else " from the noise alone"
            spreads = [short_number(spread) for spread in self.expectation.assumed(term.statistic).values()]
            taken = [f"say yours: {example}"] if term.at == 1 and (example := _example(term.statistic)) else []
            if _depends_on_spread(term):
                taken += [_if_so(spreads)] if spreads and not alike else []
            elif guesses := self.expectation.stated(term.statistic):
                taken += [f"standard deviation {' and '.join(map(short_number, guesses.values()))}: stated in the study"]
            assumed = " ".join(["", *filter(None, (term.if_so, f"({'; '.join(taken)})" if taken else ""))])
            own = [remedy.clause for remedy in needed if remedy.statistic == term.statistic.text and not alike]
            flagged = (
                [f"flagged or hidden in {percent_text(term.flagged)} of studies{_of_them_hidden(term)}"]
                if term.flagged >= _WORTH_SAYING
                else []
            )
            power = [] if term.power is None else [f"power {100 * term.power:.0f} %"]
            half = either_side(bound_text(term.usual_width / 2)) if term.at is None else reach_text(term.usual_width, term.at)
            interval = f"95 % interval {for_terminal(half)}{noise}{assumed}"
            lines.append(f"{asked}: {'; '.join([interval, *own, *power, *flagged])}")
        return lines

    def shortly(self) -> list[str]:
        """Return how far the noise moves each statistic, half the width of its 95 % interval, in a few words."""
        about = "noise; these records alone" if self.study.about_these_records else "noise"
        return [
            f"{term.statistic.text} hidden by noise"
            if term.hopeless
            else f"{term.statistic.text} {term.reach(term.noise)} ({'; '.join(filter(None, (about, term.if_so)))})"
            for term in self.expected
        ]

    def require_hope(self) -> None:
        """Raises :class:`InputError` for statistics whose first answers noise would hide, with what would do.

        Not where the study says ``accept_wide``.
        """
        if isinstance(self.study, StudyTerms) and self.study.accept_wide:
            return
        lost = self.expectation.hopeless
        if lost:
            wide = named("accept-wide", "True", file="accept_wide = true")
            raise InputError(
                f"{'; '.join([*(self._hopeless(term) for term in lost), *self.better])}. Change the study, or accept intervals "
                f"wider than what is known already with {wide}."
            )

    def _sentence(self, term: Expected) -> str:
        if term.hopeless:
            return self._hopeless(term)
        of = ", ".join(filter(None, (f"of {term.term}" if term.term else "", term.if_so)))
        of_term = f" ({of})" if of else ""
        text = f"{term.statistic.text}: expected 95 % interval{of_term} {term.reach(term.noise, 3)} from the noise"
        if term.population is not None:
            text += f", {term.reach(term.population, 3)} for the population; noise is {_range(term.ratio)} times sampling error"
        if _depends_on_spread(term):
            text += f"; the range is for values whose standard deviation is {SPREADS[0]:.0%} to {SPREADS[1]:.0%} of the bounds"
        if term.power is not None:
            text += f"; power {100 * term.power:.0f} % at the 5 % level"
        if term.flagged >= _WORTH_SAYING:
            text += f"; flagged or hidden in {100 * term.flagged:.0f} % of such studies"
        alone = math.sqrt(1 / term.budget_part) if term.budget_part > 0 else 1.0
        if alone > _ENOUGH_DIGITS:
            text += f"; it uses {percent_text(term.budget_part)} of the budget, alone it would be {alone:.1f} times sharper"
        bins = self._bins(term).get("best_bins")
        return for_terminal(f"{text}; about {bins} bins serve best" if bins else text)

    def _hopeless(self, term: Expected) -> str:
        needed = self._remedies(term)
        ways = []
        if "records_needed" in needed:
            ways.append(f"about {needed['records_needed']:,.0f} {self.study.counted} in all")
        if "parties_needed" in needed and self.study.unit.within_party:
            ways.append(of_this_size(needed["parties_needed"]))
        if "epsilon_needed" in needed:
            ways.append(f"epsilon {bound_text(needed['epsilon_needed'])}")
        would = (
            f"At least half of such studies show an answer with {' or '.join(ways)}"
            if ways
            else f"No number of {self._counted} and no epsilon that was tried would help"
        )
        return f"{term.statistic.text}: noise hides the answer. {would}"

    def _remedies(self, term: Expected) -> dict[str, float]:
        """What would do, each as it is said and tried: planned again with it, noise does not hide the answer."""
        if not term.hopeless:
            return {}
        if term.statistic.text in self._tried:
            return self._tried[term.statistic.text]
        statistic, found = term.statistic, dict[str, float | None]()
        if math.isfinite(term.records):
            factor = self.expectation.more_records(statistic, rise) if (rise := self._rise) > _WORTH_SAYING else term.records
            parties = self._enough(statistic, self.parties * factor, lambda count: self._of_parties(int(count)))
            within = self.study.unit.within_party
            found["records_needed"] = (
                self._enough(statistic, self.drawn * term.records, lambda count: replace(self, records=count))
                if within
                else parties
            )
            found["parties_needed"] = parties
        if (epsilon := self._epsilon(term.less_noise)) is not None:
            found["epsilon_needed"] = self._enough(statistic, epsilon, self._of_epsilon, rounded=bound_of)
        self._tried[statistic.text] = {name: value for name, value in found.items() if value is not None}
        return self._tried[statistic.text]

    @cached_property
    def _tried(self) -> dict[str, dict[str, float]]:
        """What :meth:`_remedies` found, by statistic: it takes long."""
        return {}

    @cached_property
    def _rise(self) -> float:
        """With which power of the number of parties the noise on their total grows: half where each adds its own."""
        more = self._of_parties(_FURTHER * self.parties)
        return 0.0 if more is None else math.log(more.noise / self.noise) / math.log(_FURTHER)

    def _enough(
        self,
        statistic: PlannedQuestion,
        start: float,
        planned: Callable[[float], Forecast | None],
        rounded: Callable[[float], float] = lambda count: round_up(math.ceil(count)),
    ) -> float | None:
        """The first of a few numbers from ``start`` on, as they are said, with which noise hides no answer; None where none does.

        ``planned``: the study with such a number; None where it cannot be planned.
        """
        number = start
        for _ in range(_TRIES):
            number = rounded(number)
            if (forecast := planned(number)) is None or not forecast.expectation.hides(statistic):
                return None if forecast is None else number
            number *= _A_LITTLE_MORE
        return None

    def _of_parties(self, parties: int) -> Forecast | None:
        """Planned again for so many parties that are as large."""
        if parties > _MOST_PLANNED:
            return None
        try:
            return replace(self, plan=self._plan(self.study, parties), records=self.records * parties / self.parties)
        except InputError:
            return None

    def _of_epsilon(self, epsilon: float) -> Forecast | None:
        """Planned again with this epsilon."""
        study = self.study.model_copy(update={"epsilon": epsilon})
        try:
            return None if epsilon > _LARGEST_EPSILON else replace(self, study=study, plan=self._plan(study, self.parties))
        except InputError:
            return None

    def _plan(self, study: AnyStudy, parties: int) -> Plan:
        return study.plan(parties, no_privacy=not is_private(self.plan.protocol))

    def needed(self, width: float | None, power: float | None) -> list[Needed]:
        """The smallest numbers for a width of the headline term's interval, or a power at 5 %, of each statistic that has it."""
        needed, expected = [], self.expected
        spread, at = (
            {term.statistic.text for term in expected if _depends_on_spread(term)},
            {term.statistic.text: term.at for term in expected},
        )
        for statistic in self.expectation.asked:
            for aim, goal in (("width", width), ("power", power)):
                if goal is None:
                    continue

                def does(more: float, less: float, one: PlannedQuestion = statistic, aim: str = aim, goal: float = goal) -> bool:
                    if aim == "power":
                        return self.expectation.has_power(one, goal, more, less)
                    return self.expectation.drawn(one, USUAL_SPREAD, more, less).width <= goal

                if aim == "power" and (untested := self._untested(statistic)):
                    needed.append(Needed(statistic.text, "", aim, goal, None, None, None, reason=untested))
                    continue
                more, less_noise = self.expectation.needed(does)
                possible = math.isfinite(more)
                needed.append(
                    Needed(
                        statistic.text,
                        self.expectation.drawn(statistic).term,
                        aim,
                        goal,
                        math.ceil(self.drawn * more) if possible else None,
                        math.ceil(self.parties * more) if possible else None,
                        self._epsilon(less_noise),
                        counted=self._counted,
                        planned=self.drawn,
                        interval=_interval(self.expectation.drawn(statistic)) if aim == "width" else "",
                        assumed=self.expectation.assumed(statistic) if statistic.text in spread else {},
                        at=at[statistic.text],
                    )
                )
        return needed

    def _untested(self, statistic: PlannedQuestion) -> str:
        """Why a statistic has no power; "" where it has one."""
        if self.study.about_these_records:
            return "a study of these records alone has no test"
        if isinstance(statistic, ModelQuestion):
            return _without_effect(statistic)
        return "it has no test" if math.isnan(self.expectation.drawn(statistic).power) else _without_effect(statistic)

    @property
    def _counted(self) -> str:
        return self.study.counted if self.study.unit == PrivacyUnit.PERSON else "records"

    def _epsilon(self, less_noise: float) -> float | None:
        """The budget with so many times less noise, at the same delta; None beyond any sensible one."""
        if self.plan.target.nats is not None:
            return None
        # Of a model by rounds, all of them together.
        target = self.study
        if self.law is not None:
            # The scale of Laplace noise goes with 1 / epsilon.
            epsilon = target.epsilon * less_noise
            return epsilon if epsilon <= _LARGEST_EPSILON else None
        needed_mu = mu_of_budget(target.epsilon, target.delta) * less_noise
        if mu_of_budget(_LARGEST_EPSILON, target.delta) < needed_mu:
            return None
        low, high = target.epsilon if less_noise >= 1 else _LEAST_EPSILON, _LARGEST_EPSILON
        while high / low > _ENOUGH_DIGITS:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if mu_of_budget(middle, target.delta) >= needed_mu else (middle, high)
        return high

    def _bins(self, term: Expected) -> dict[str, int]:
        """Which number of bins serves best, for a histogram with one."""
        statistic, study = term.statistic, self.study
        if not isinstance(study, StudyTerms) or not isinstance(statistic, Histogram) or statistic.edges is not None:
            return {}
        column = study.workload.columns[statistic.column]
        if not cut_evenly(column):
            return {}
        share = math.sqrt(term.budget_part) or 1.0
        # One record more in a cell: the released vector has sensitivity sqrt(budget part) times the whole for it.
        deviation = self.noise / self.drawn / (study.workload.sensitivity * share / math.sqrt(2))
        return {"best_bins": best_bins(column, self.drawn, deviation)}


def _of_them_hidden(term: Expected) -> str:
    return f", hidden in {percent_text(term.hidden)}" if term.hidden >= _WORTH_SAYING else ""


def _interval(drawn: Simulated) -> str:
    """Say which interval's width is asked for."""
    return "population" if drawn.sampled else "noise"


def _depends_on_spread(term: Expected) -> bool:
    """Is its width a range, over what nobody guessed?"""
    return any(pair is not None and pair[0] != pair[1] for pair in (term.noise, term.population))


def _range(pair: tuple[float, float], digits: int = 3) -> str:
    low, high = (short_number(end, digits) for end in pair)
    return low if low == high else f"{low} to {high}"


def _if_so(spreads: Sequence[str]) -> str:
    """Say which standard deviations are taken, as nobody stated any."""
    many = "s are" if spreads[1:] else " is"
    return f"if the standard deviation{many} {' and '.join(spreads)}: by default {percent_text(USUAL_SPREAD)} of the range"


def _example(statistic: PlannedQuestion) -> str:
    """How to say which ratio is expected; "" for a statistic that takes none, or has it."""
    name = next((name for name in effects_in(statistic.known_expectations) if name.endswith(RATIO)), "")
    return f"expect={name} 2" if name and name not in dict(statistic.expect) else ""


def _without_effect(statistic: PlannedQuestion) -> str:
    """What to do where a study does not say which effect it expects, and could; "" where it says one."""
    if isinstance(statistic, ModelQuestion):
        return "as no effect can be stated of a model by rounds"
    effects = effects_in(statistic.known_expectations)
    if not effects or effects_in(name for name, _ in statistic.expect):
        return ""
    return f"as no effect is stated. Say what you expect, such as expect={effects[0]} NUMBER"
