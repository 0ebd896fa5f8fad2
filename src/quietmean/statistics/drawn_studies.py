"""What to expect of a question before it is asked, from studies that are drawn: widths, flags and power."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.readable import UNKNOWN, either_side, plain
from quietmean.randomness import BitStream
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.columns import Column
from quietmean.statistics.estimate import known
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.simulated import (
    MOST_HIDDEN,
    Simulated,
    half_of,
    hopeful,
    middle_of,
    reach_text,
    rejects,
    summed_up,
)

Pair = tuple[float, float]

# The range of standard deviations of a column without a guess, in widths of its bounds.
SPREADS = (0.1, 1 / 3)
# Studies that are drawn: usually, for each spread of a column without a guess, and to see whether noise hides the answer.
STUDIES, _WITHOUT_GUESS, _TO_SEE = 200, 60, 51
# Up to this many records in all studies are drawn one by one; beyond, their frequencies are drawn as normal numbers.
_MOST_DRAWN = 8_000_000
_LARGEST_FACTOR = 2.0**40
_STEPS = 24
_STRIDE = 4.0
# The smallest factor of records, or of noise, that is searched.
_LEAST_FACTOR = 2.0**-10
_ENOUGH_DIGITS = 1.02
_FEWEST = 10.0


class PlannedQuestion(Protocol):
    """What is asked, as far as it is planned: as :class:`~quietmean.statistics.statistic.Statistic` has it."""

    @property
    def text(self) -> str: ...
    @property
    def null(self) -> float | None: ...
    @property
    def subject(self) -> str | None: ...
    @property
    def expect(self) -> tuple[tuple[str, float], ...]: ...
    @property
    def known_expectations(self) -> tuple[str, ...]: ...


Asked = TypeVar("Asked", bound=PlannedQuestion)


@dataclass(frozen=True, eq=False)
class Expected:
    """One statistic before a study. Pairs are ranges over what may be guessed of the spreads, in the units of its terms.

    ``noise`` and ``population``: widths of the two intervals of its headline ``term``, in the middle of the drawn studies.
    ``usual_width``: that of the population, or of the noise where there is no other, at a spread in the middle.
    ``ratio``: noise over sampling error. ``flagged``: part of the studies in which the term is flagged or unknown; ``hidden``:
    in which nothing it is asked for first is known better than its bounds tell already, at the usual spread, from as many
    studies for everybody; ``power``: part in which its test rejects at 5 %, None without a test. ``records`` and
    ``less_noise``: how many times as many records, or as little noise, would do where noise hides the answer.
    ``at``: of a ratio, the value at which its intervals are said; None for any other term.
    """

    statistic: PlannedQuestion
    budget_part: float
    term: str
    noise: Pair
    population: Pair | None
    ratio: Pair
    flagged: float
    power: float | None
    hidden: float
    usual_width: float
    records: float = 1.0
    less_noise: float = 1.0
    at: float | None = None

    @property
    def hopeless(self) -> bool:
        """Does noise hide it in most of the drawn studies? All who plan, check or start a study ask this alone."""
        return self.hidden > MOST_HIDDEN

    def reach(self, widths: Pair, digits: int = 2) -> str:
        """Intervals from the narrowest to the widest of these ``widths`` as text, as :func:`.reach_text` has each."""
        known = [width for width in widths if not math.isnan(width)]
        if self.at is not None:
            return ", at the widest ".join(dict.fromkeys(reach_text(width, self.at) for width in known)) or UNKNOWN
        half = " to ".join(dict.fromkeys(half_of(width, digits) for width in known))
        return either_side(half) if half else UNKNOWN

    @property
    def if_so(self) -> str:
        """The value of a ratio that the intervals are of, in words; "" for any other term."""
        return "" if self.at is None else f"if it is {plain(self.at)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.statistic.text,
            "term": self.term,
            "budget_part": self.budget_part,
            "width_usual": self.usual_width,
            "width_noise": known(list(self.noise)),
            "width_population": None if self.population is None else known(list(self.population)),
            "noise_over_sampling": known(list(self.ratio)),
            "flagged": self.flagged,
            "power": self.power,
            "hopeless": self.hopeless,
        }


class DrawnStudies(ABC, Generic[Asked]):
    """What to expect of questions for a public number of ``records`` (parties, if they are the unit), from drawn studies.

    ``noise``: the standard deviation that a release adds to each coordinate of the total of all records' vectors. ``studies``:
    how many are drawn.
    """

    noise: float
    records: float
    studies: int

    @property
    @abstractmethod
    def asked(self) -> Sequence[Asked]:
        """What is asked."""

    @abstractmethod
    def columns_of(self, question: Asked) -> Sequence[Column]:
        """The columns that a question is about."""

    @abstractmethod
    def most_drawn(self, studies: int) -> int:
        """How many studies to draw in place of so many, where each takes long."""

    @abstractmethod
    def answers(self, question: Asked, spread: float, more: float, less_noise: float, count: int) -> Iterator[Estimates]:
        """The answers of so many studies, each when it is asked for; the same for equal arguments.

        They have ``more`` times as many records and ``less_noise`` times less noise. ``spread``: the standard deviation of a
        column without a guess, in widths of its bounds.
        """

    def part_of(self, question: Asked) -> float:
        """Which part of the budget a question uses."""
        return 1.0

    def terms_of(self, first: Estimates) -> Sequence[str | None]:
        """The terms that are shown, None for the headline."""
        return (None,)

    def at(self, question: Asked, term: str) -> float:
        """The value of a ratio that the made-up records have."""
        return 1.0

    @cached_property
    def expected(self) -> tuple[Expected, ...]:
        return tuple(term for question in self.asked for term in self._of(question))

    @cached_property
    def hopeless(self) -> tuple[Expected, ...]:
        """The expectations that are hopeless, with widths from fewer studies."""
        hidden = (question for question in self.asked if self.hides(question))
        return tuple(term for question in hidden for term in self._of(question, _WITHOUT_GUESS))

    def hides(self, question: Asked, more: float = 1.0, less_noise: float = 1.0) -> bool:
        """Would noise hide the answer of most studies, with so many times as many records and so many times less noise?

        Of a column without a guess, with a spread in the middle.
        """
        return fewer_than_half(*self._worth_asking(question, more, less_noise))

    def more_records(self, question: Asked, rise: float = 0.0) -> float:
        """How many times as many records make noise not hide the answer, as far as that is seen; infinite where none do.

        ``rise``: with which power of their number the noise grows.
        """
        return _smallest(lambda factor: not self.hides(question, factor, factor**-rise))

    def _worth_asking(self, question: Asked, more: float = 1.0, less_noise: float = 1.0) -> tuple[Iterator[bool], int]:
        """Whether each of so many studies is worth asking, when it is looked at."""
        count = self.most_drawn(_TO_SEE)
        return map(hopeful, self.answers(question, USUAL_SPREAD, more, less_noise, count)), count

    def needed(self, does: Callable[[float, float], bool]) -> tuple[float, float]:
        """How many times as many records, and as little noise, a goal needs, which ``does`` tells of both; infinite where none
        does."""
        fewest = max(_LEAST_FACTOR, _FEWEST / self.records)
        return (
            _smallest(lambda factor: does(factor, 1.0), fewest),
            _smallest(lambda factor: does(1.0, factor), _LEAST_FACTOR),
        )

    def has_power(self, question: Asked, goal: float, more: float = 1.0, less_noise: float = 1.0) -> bool:
        """Does a test at 5 % reject in this part of the drawn studies? No more of them are decoded than decide it."""
        count = self.most_drawn(self.studies)
        decoded = self.answers(question, USUAL_SPREAD, more, less_noise, count)
        first = next(decoded)
        if not first.headline:
            # Which term is tested, all of them tell together.
            return summed_up([first, *decoded], question.null).power >= goal
        yes = no = 0
        for estimates in itertools.chain([first], decoded):
            rejected = rejects(estimates, first.headline[0], question.null) == 1
            yes, no = yes + rejected, no + (not rejected)
            if yes / count >= goal or (count - no) / count < goal:
                break
        return yes / count >= goal

    def assumed(self, question: Asked) -> dict[str, float]:
        """The standard deviations that :meth:`needed` takes for columns of which nobody guessed one, by name."""
        expect = dict(question.expect)
        return {
            column.name: USUAL_SPREAD * column.width
            for column in self.columns_of(question)
            if column.numeric and not (column.guess or column.origin or column.may_be_any)
            if not (column.name == question.subject and "sd" in expect)
        }

    def stated(self, question: Asked) -> dict[str, float]:
        """The standard deviations that the study states for the columns of numbers, by name."""
        expect = dict(question.expect)
        own = {question.subject: expect["sd"]} if question.subject is not None and "sd" in expect else {}
        return {column.name: column.guess[1] for column in self.columns_of(question) if column.numeric and column.guess} | own

    def spreads(self, question: Asked) -> tuple[float, ...]:
        return (SPREADS[0], USUAL_SPREAD, SPREADS[1]) if self.assumed(question) else (USUAL_SPREAD,)

    def drawn(
        self,
        question: Asked,
        spread: float = USUAL_SPREAD,
        more: float = 1.0,
        less_noise: float = 1.0,
        studies: int | None = None,
    ) -> Simulated:
        """Studies with ``more`` times as many records and ``less_noise`` times less noise."""
        count = self.most_drawn(self.studies if studies is None else studies)
        return summed_up(list(self.answers(question, spread, more, less_noise, count)), question.null)

    def _of(self, question: Asked, studies: int | None = None) -> list[Expected]:
        spreads = self.spreads(question)
        count = self.most_drawn(studies or (self.studies if len(spreads) == 1 else min(self.studies, _WITHOUT_GUESS)))
        by_spread = [list(self.answers(question, spread, 1.0, 1.0, count)) for spread in spreads]
        worth, drawn = self._worth_asking(question)
        hidden, factors = 1 - sum(worth) / drawn, (1.0, 1.0)
        if hidden > MOST_HIDDEN:
            factors = self.more_records(question), _smallest(lambda factor: not self.hides(question, 1.0, factor))
        terms = self.terms_of(by_spread[0][0])
        return [
            self._expected(question, [summed_up(each, question.null, term) for each in by_spread], hidden, factors)
            for term in terms
        ]

    def _expected(self, question: Asked, by_spread: Sequence[Simulated], hidden: float, factors: Pair) -> Expected:
        """One term, as the studies of each spread have it."""
        middle = by_spread[len(by_spread) // 2]
        populations = [middle_of(expected.population) for expected in by_spread]
        power = middle.power
        return Expected(
            question,
            self.part_of(question),
            middle.term,
            _range([middle_of(expected.noise) for expected in by_spread]),
            None if np.isnan(populations).all() else _range(populations),
            _range([middle_of(expected.ratio) for expected in by_spread]),
            max(float(middle.flagged.mean()), hidden),
            None if math.isnan(power) else power,
            hidden,
            middle.width,
            *factors,
            self.at(question, middle.term) if middle.is_ratio else None,
        )


def samples(weight: float, studies: int, rows: int, stream: BitStream) -> Array:
    """How much each of so many made-up ``rows`` counts in means of random samples of ``weight`` of them, (studies, rows)."""
    count = max(round(weight), 1)
    if count * studies <= _MOST_DRAWN:
        places = stream.integers(rows, count * studies) + np.repeat(np.arange(studies) * rows, count)
        weights = np.bincount(places, minlength=rows * studies).reshape(studies, rows) / count
    else:
        # Each record is drawn so often that its frequency is nearly normal.
        scattered = stream.standard_normal((studies, rows))
        weights = 1 / rows + (scattered - scattered.mean(axis=1, keepdims=True)) / math.sqrt(rows * weight)
    return np.asarray(weights)


def fewer_than_half(hold: Iterable[bool], count: int) -> bool:
    """Do fewer than half of ``count`` hold? No more of them are looked at than decide it."""
    yes = no = 0
    for holds in hold:
        yes, no = yes + holds, no + (not holds)
        if 2 * yes >= count or 2 * no > count:
            break
    return 2 * yes < count


def _range(values: list[float]) -> Pair:
    there = [value for value in values if not math.isnan(value)]
    return (min(there), max(there)) if there else (math.nan, math.nan)


def _smallest(does: Callable[[float], bool], lowest: float = 1.0) -> float:
    """The smallest factor that does, rounded up a little, at least ``lowest``; infinite if none does. More never does less."""
    low, high = 1.0, 1.0
    if does(1.0):
        while low > lowest and does(low / _STRIDE):
            low /= _STRIDE
        low, high = low / _STRIDE, low
        if high <= lowest:
            return high
    else:
        while not does(high):
            low, high = high, high * _STRIDE
            if high > _LARGEST_FACTOR:
                return math.inf
    for _ in range(_STEPS):
        if high / low < _ENOUGH_DIGITS:
            break
        middle = math.sqrt(low * high)
        low, high = (low, middle) if does(middle) else (middle, high)
    return high
