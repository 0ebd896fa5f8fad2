"""How wide the intervals of a study will be, and what would make them narrower, before its start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, named
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.readable import bound_text, count_of, either_side, for_terminal, percent_text, plain
from quietmean.planning.plan import Plan
from quietmean.privacy import mu_of_budget
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.expectation import RATIO, SPREADS, Expectation, Expected, best_bins
from quietmean.statistics.features.table import cut_evenly
from quietmean.statistics.kinds.counts import Histogram
from quietmean.statistics.kinds.linear_regression import LinearRegression
from quietmean.statistics.scenario import effects_in
from quietmean.statistics.simulated import Simulated, reach_text
from quietmean.statistics.statistic import Statistic
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.about_intervals import ABOUT_THESE

# A larger budget is none that anybody should be advised to take, and a smaller one says nothing.
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-3, 100.0
_ENOUGH_DIGITS = 1.01
_STUDIES = 50
_WORTH_SAYING = 0.02
# Least squares by rounds, where it was measured: with so many records, epsilon and delta its error was at most so many times that
# of pooled data, on so many of the data sets. The noise of both goes with the square root of the records, times the budget.
_MEASURED, _BY_ROUNDS, _ON = (10_000, 1.0, 1e-6), 2.5, "8 of 11 data sets"


@dataclass(frozen=True)
class Needed:
    """What a statistic needs for a ``goal``, a width of its interval or a power: so many records, parties of the planned size, or
    such an epsilon with as many as planned; None where none would do."""

    statistic: str
    term: str
    what: str
    goal: float
    records: int | None
    parties: int | None
    epsilon: float | None
    reason: str = ""
    counted: str = "records"
    # How many there are as planned.
    planned: float = math.inf
    # Of which interval a width is, and the standard deviations that nobody guessed, by column.
    interval: str = ""
    assumed: Mapping[str, float] = field(default_factory=dict)
    # Of a ratio, the value at which its interval is said.
    at: float | None = None

    def to_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name not in ("counted", "planned", "at")}
        return {name: value for name, value in fields.items() if value not in ("", None, {}) or name == "epsilon"}

    @property
    def _goal(self) -> str:
        half = for_terminal(reach_text(self.goal, self.at, 6))
        return f"a width of {self.goal:g} ({half})" if self.what == "width" else f"a power of {100 * self.goal:g} %"

    @property
    def _enough(self) -> float:
        """How many records, rounded up, but not beyond those planned where these do."""
        records = float(self.records or 0)
        return min(_round_up(records), self.planned) if records <= self.planned else _round_up(records)

    @property
    def clause(self) -> str:
        """What is needed beside the planned interval, in short."""
        if self.reason:
            return f"no {self.what}, {self.reason}"
        ways = [] if self.records is None else [f"{self._enough:,.0f} {self.counted}"]
        if self.epsilon is not None:
            ways.append(f"epsilon {bound_text(self.epsilon)} with {self.planned:,.0f}")
        return f"for {self._goal} you need {self._or_nothing(ways)}"

    @property
    def sentence(self) -> str:
        interval = "the population's interval" if self.interval == "population" else "the noise's interval"
        goal = f"{self._goal} of {interval}" if self.what == "width" else self._goal
        of = f" of {self.term}" if self.term else ""
        if self.reason:
            return f"{self.statistic}: no {self.what}, {self.reason}"
        ways = []
        if self.records is not None:
            parties = _of_this_size(self.parties or 1)
            ways.append(f"{self._enough:,.0f} {self.counted} ({parties})")
        if self.epsilon is not None:
            ways.append(f"epsilon {bound_text(self.epsilon)} with the {self.counted} planned")
        spreads = " and ".join(f"{_short(spread)} of {name}" for name, spread in self.assumed.items())
        typical = f"; assumes a standard deviation of {spreads}" if spreads else ""
        return f"{self.statistic}: {goal}{of} needs {self._or_nothing(ways)}{typical}"

    def _or_nothing(self, ways: Sequence[str]) -> str:
        return ", or ".join(ways) or f"more than any number of {self.counted}, at any epsilon"


def noise_of_total(plan: Plan) -> float:
    """Standard deviation of the noise on each coordinate of the total, with as many dropouts as planned."""
    stated = plan.protocol.TRAITS.planning.noise_variance(plan.protocol, plan.target)
    predicted = float(plan.prediction.get("mse_noise", 0.0))
    # As predictions are written.
    return math.sqrt(predicted if stated is None else float(f"{stated:.6g}")) * plan.target.parties


@dataclass(frozen=True, eq=False)
class Forecast:
    """A study, its plan, and how many ``records`` it has, as far as is public (parties, if they are the unit)."""

    study: StudyTerms
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
    def expectation(self) -> Expectation:
        return Expectation(self.study.workload, self.noise, self.drawn, self.plan.value_step, self.studies, self.law)

    @property
    def expected(self) -> tuple[Expected, ...]:
        # Without an effect that somebody expects, a power is only how often a test is wrong.
        each = self.expectation.expected
        return tuple(replace(term, power=None) if _without_effect(term.statistic) else term for term in each)

    def to_json(self) -> list[dict[str, Any]]:
        return [term.to_json() | self._remedies(term) | self._bins(term) for term in self.expected]

    def sentences(self) -> list[str]:
        """The sentences of the forecast, one for each statistic, and what the intervals are about where that is not usual."""
        return [*map(self._sentence, self.expected), *([ABOUT_THESE] if self.study.workload.these_records else [])]

    @property
    def lost(self) -> list[str]:
        """The statistics whose first answers noise would hide, with what would do, a sentence each."""
        return [self._hopeless(term) for term in self.expected if term.hopeless]

    @property
    def by_rounds(self) -> list[str]:
        """The linear regressions whose error is above what rounds had where they were measured, a sentence each with the call."""
        target, (records, epsilon, delta) = self.plan.target, _MEASURED
        if target.nats is not None or self.study.unit != PrivacyUnit.RECORD or self.study.workload.these_records:
            return []
        if mu_of_budget(target.epsilon, target.delta) * math.sqrt(self.drawn) < mu_of_budget(epsilon, delta) * math.sqrt(records):
            return []
        return [
            f"{term.statistic.text}: one release has more than {_BY_ROUNDS} times the error of pooled data. "
            f"Rounds had less on {_ON}: "
            f'quietmean.learning.GeneralizedLinearModel("{term.statistic.formula}", columns, family="gaussian", '
            f"epsilon={target.epsilon:g}, delta={target.delta:g})"
            for term in self.expected
            if isinstance(term.statistic, LinearRegression) and (term.hopeless or math.hypot(1, term.ratio[0]) > _BY_ROUNDS)
        ]

    def lines(self, needed: Sequence[Needed] = ()) -> list[str]:
        """Half of each statistic's interval at the usual spread, and beside it what is ``needed`` for another one."""
        lines = []
        for term in self.expected:
            if term.hopeless:
                lines.append(f"! {self._hopeless(term)}")
                continue
            of_term = f", {term.term}" if term.term else ""
            noise = "" if term.population is not None else " from the noise alone"
            spreads = [_short(spread) for spread in self.expectation.assumed(term.statistic).values()]
            taken = [f"say yours: {example}"] if term.at == 1 and (example := _example(term.statistic)) else []
            taken += [_if_so(spreads)] if spreads and _depends_on_spread(term) else []
            assumed = " ".join(["", *filter(None, (term.if_so, f"({'; '.join(taken)})" if taken else ""))])
            own = [remedy.clause for remedy in needed if remedy.statistic == term.statistic.text]
            flagged = (
                [f"flagged or hidden in {percent_text(term.flagged)} of studies{_of_them_hidden(term)}"]
                if term.flagged >= _WORTH_SAYING
                else []
            )
            power = [] if term.power is None else [f"power {100 * term.power:.0f} %"]
            half = either_side(bound_text(term.usual_width / 2)) if term.at is None else reach_text(term.usual_width, term.at)
            interval = f"interval {for_terminal(half)}{noise}{assumed}"
            lines.append(f"{term.statistic.text}{of_term}: {'; '.join([interval, *own, *power, *flagged])}")
        return lines

    def shortly(self) -> list[str]:
        """Return how far the noise moves each statistic, half the width of its 95 % interval, in a few words."""
        about = "noise; these records alone" if self.study.workload.these_records else "noise"
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
        if self.study.accept_wide:
            return
        lost = self.expectation.hopeless
        if lost:
            wide = named("accept-wide", "True", file="accept_wide = true")
            raise InputError(
                f"{'; '.join(self._hopeless(term) for term in lost)}. Change the study, or accept intervals wider than what is "
                f"known already with {wide}."
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
            text += f"; ranges are over standard deviations of {SPREADS[0]:.0%} to {SPREADS[1]:.0%} of the bounds"
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
            ways.append(f"about {_round_up(needed['records_needed']):,.0f} {self.study.workload.counted} in all")
        if "parties_needed" in needed and self.study.unit.within_party:
            ways.append(_of_this_size(needed["parties_needed"]))
        if "epsilon_needed" in needed:
            ways.append(f"epsilon {bound_text(needed['epsilon_needed'])}")
        would = f"Enough would be {' or '.join(ways)}" if ways else f"No number of {self._counted} and no epsilon would help"
        return f"{term.statistic.text}: noise hides the answer. {would}"

    def _remedies(self, term: Expected) -> dict[str, float]:
        if not term.hopeless:
            return {}
        remedies = {}
        if math.isfinite(term.records):
            remedies["records_needed"] = math.ceil(self.drawn * term.records)
            remedies["parties_needed"] = math.ceil(self.parties * term.records)
        epsilon = self._epsilon(term.less_noise)
        return remedies | ({} if epsilon is None else {"epsilon_needed": epsilon})

    def needed(self, width: float | None, power: float | None) -> list[Needed]:
        """The smallest numbers for a width of the headline term's interval, or a power at 5 %, of each statistic that has it."""
        needed, expected = [], self.expected
        spread, at = (
            {term.statistic.text for term in expected if _depends_on_spread(term)},
            {term.statistic.text: term.at for term in expected},
        )
        for statistic in self.study.workload.statistics:
            for aim, goal in (("width", width), ("power", power)):
                if goal is None:
                    continue

                def enough(drawn: Simulated, aim: str = aim, goal: float = goal) -> bool:
                    return drawn.width <= goal if aim == "width" else drawn.power >= goal

                if aim == "power" and (untested := self._untested(statistic)):
                    needed.append(Needed(statistic.text, "", aim, goal, None, None, None, reason=untested))
                    continue
                more, less_noise = self.expectation.needed(statistic, enough)
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

    def _untested(self, statistic: Statistic) -> str:
        """Why a statistic has no power; "" where it has one."""
        if self.study.workload.these_records:
            return "a study of these records alone has no test"
        if math.isnan(self.expectation.drawn(statistic).power):
            return "it has no test"
        return _without_effect(statistic)

    @property
    def _counted(self) -> str:
        return self.study.workload.counted if self.study.workload.of_persons else "records"

    def _epsilon(self, less_noise: float) -> float | None:
        """The budget with so many times less noise, at the same delta; None beyond any sensible one."""
        target = self.plan.target
        if target.nats is not None:
            return None
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
        statistic, columns = term.statistic, self.study.workload.columns
        if not isinstance(statistic, Histogram) or statistic.edges is not None or not cut_evenly(columns[statistic.column]):
            return {}
        share = math.sqrt(term.budget_part) or 1.0
        # One record more in a cell: the released vector has sensitivity sqrt(budget part) times the whole for it.
        deviation = self.noise / self.drawn / (self.study.workload.sensitivity * share / math.sqrt(2))
        return {"best_bins": best_bins(columns[statistic.column], self.drawn, deviation)}


def _of_them_hidden(term: Expected) -> str:
    return f", hidden in {percent_text(term.hidden)}" if term.hidden >= _WORTH_SAYING else ""


def _interval(drawn: Simulated) -> str:
    """Say which interval's width is asked for."""
    return "population" if drawn.sampled else "noise"


def _depends_on_spread(term: Expected) -> bool:
    """Is its width a range, over what nobody guessed?"""
    return any(pair is not None and pair[0] != pair[1] for pair in (term.noise, term.population))


def _range(pair: tuple[float, float], digits: int = 3) -> str:
    low, high = (_short(end, digits) for end in pair)
    return low if low == high else f"{low} to {high}"


def _short(number: float, digits: int = 3) -> str:
    return plain(float(f"{number:.{digits}g}"))


def _if_so(spreads: Sequence[str]) -> str:
    """Say which standard deviations are taken, as nobody stated any."""
    many = "s are" if spreads[1:] else " is"
    return f"if the standard deviation{many} {' and '.join(spreads)}, a guess: {percent_text(USUAL_SPREAD)} of the range"


def _of_this_size(parties: float) -> str:
    return f"{count_of(int(_round_up(parties)), 'party', 'parties')} of this size"


def _round_up(value: float) -> float:
    """Round up to two digits."""
    step = 10.0 ** max(math.floor(math.log10(value)) - 1, 0)
    return math.ceil(value / step) * step


def _example(statistic: Statistic) -> str:
    """How to say which ratio is expected; "" for a statistic that takes none, or has it."""
    name = next((name for name in effects_in(statistic.known_expectations) if name.endswith(RATIO)), "")
    return f"expect={name} 2" if name and name not in dict(statistic.expect) else ""


def _without_effect(statistic: Statistic) -> str:
    """What to do where a study does not say which effect it expects, and could; "" where it says one."""
    effects = effects_in(statistic.known_expectations)
    if not effects or effects_in(name for name, _ in statistic.expect):
        return ""
    return f"as no effect is stated. Say what you expect, such as expect={effects[0]} NUMBER"
