"""Records that nobody has, as a study expects them: public, for planning only.

Columns have the guessed means, deviations and parts of levels. What a statistic ``expect``s relates them: outcomes to scores,
times to arms. The same numbers on every machine, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.roots import root_between
from quietmean.core.schema import is_kind, nearest, parameter, wrong_field
from quietmean.randomness.sobol import sobol
from quietmean.statistics.columns import YES, Column, Columns
from quietmean.statistics.names import split, unquoted
from quietmean.statistics.transforms import Transform

# The field of expectations, for planning only, and what it may state of a column of numbers.
EXPECT = "expect"
OF_NUMBERS = ("mean", "sd", "median")
# What says nothing of an effect.
_NO_EFFECT = ("missing", *OF_NUMBERS, "rate", "sd-between")
# The range of each expectation; any other may be any number.
RANGES = dict.fromkeys(("missing", "proportion", "auc", "probability"), (0.0, 1.0))
RANGES |= dict.fromkeys(("sd", "odds-ratio", "hazard-ratio", "rate-ratio", "rate", "sd-between"), (0.0, math.inf))
RANGES |= {"correlation": (-1.0, 1.0)}
ROWS = 1 << 13
# Uniform numbers a record besides two for each column (value, missing): for the event, its time, and censoring.
_SPARE = 3
_SEED = 20_30
# The largest correlation of scores, log odds of one deviation, and relative variance of a beta distribution.
_MOST_RELATED, _MOST_LOG_ODDS, _MOST_SPREAD = 0.99, 12.0, 0.95
_ANY_RATE = (1e-9, 1e9)
# A normal distribution is assumed where both bounds are this many standard deviations away.
_FAR = 2.5
_LEAST_CHANCE, _USUAL_AREA = 1e-6, 0.7


def expectation_field() -> Any:
    """What is expected, for planning only: ``{auc = 0.7, missing = 0.1}`` in a study file, ``auc 0.7 missing 0.1`` in a text."""

    def read(raw: Any) -> tuple[tuple[str, float], ...]:
        wrong = wrong_field(EXPECT, raw, "names with numbers, such as {auc = 0.7} in a study file, auc 0.7 on the command line")
        if isinstance(raw, str):
            words = [unquoted(word) for word in split(raw, " ")]
            if len(words) % 2:
                raise wrong
            raw = dict(zip(words[::2], words[1::2], strict=True))
        if not isinstance(raw, Mapping):
            raise wrong
        try:
            expected = {str(name): float(value) for name, value in raw.items() if isinstance(value, str) or is_kind(value, float)}
        except ValueError:
            raise wrong from None
        if len(expected) < len(raw):
            raise wrong
        return tuple(sorted(expected.items()))

    return parameter(
        (),
        help="what is expected, for planning only: names and numbers",
        read=read,
        write=dict,
        written=lambda value: bool(value.expect),
    )


class Expecting(Protocol):
    """A statistic, as far as records are made up for it."""

    @property
    def subject(self) -> str | None: ...
    @property
    def expect(self) -> tuple[tuple[str, float], ...]: ...

    def synthesize(self, scenario: SyntheticRecords, /) -> None: ...


class SyntheticRecords:
    """A table in the making: ``values`` of each column, (rows,), related one step after the other.

    ``expect``: what the statistic expects. ``spread``: the standard deviation of a column without a guess, in widths of its
    bounds. ``subject``: the column that an expected mean and deviation are of.
    """

    def __init__(
        self, columns: Columns, expect: Mapping[str, float], spread: float, subject: str | None = None, rows: int = ROWS
    ) -> None:
        self.columns = columns
        self.expect = expect
        self._spread = spread
        self.rows = 1 << max(rows - 1, 1).bit_length()
        count = len(columns)
        # Scrambled, so that any two columns are independent also where there are many of them; the same for equal seeds.
        drawn = sobol(2 * count + _SPARE, self.rows.bit_length() - 1, _SEED)
        drawn = np.clip(drawn, 0.5 / self.rows, 1 - 0.5 / self.rows)
        self._drawn = {column.name: drawn[:, index] for index, column in enumerate(columns)}
        self._missing = {column.name: drawn[:, count + index] for index, column in enumerate(columns)}
        self.chance, self.other_chance, self.third_chance = drawn[:, 2 * count :].T
        self.values: dict[str, Array] = {}
        self._spread_out({} if subject is None else {subject: expect})

    @classmethod
    def of_study(cls, columns: Columns, asked: Sequence[Expecting], spread: float, rows: int) -> Self:
        """At least so many records as all questions of a study expect them; where two contradict each other, as the later."""
        scenario = cls(columns, {}, spread, None, rows)
        scenario._spread_out({each.subject: dict(each.expect) for each in asked if each.subject is not None})
        for each in asked:
            scenario.expect = dict(each.expect)
            each.synthesize(scenario)
        return scenario

    def _spread_out(self, expected: Mapping[str, Mapping[str, float]]) -> None:
        """The values of each column by itself, with what is expected of it by name; then of transforms."""
        for column in self.columns:
            if not column.origin:
                own = expected.get(column.name, {})
                self.values[column.name] = _marginal(column, self._drawn[column.name], self._spread, own)
        self.transform()

    def transform(self) -> None:
        """The values of transforms, as they follow from those of the columns that they are made of."""
        for column in self.columns:
            if column.origin:
                self.values[column.name] = np.asarray(Transform(column.origin).values(self.values), dtype=np.float64)

    def missing(self, name: str, part: float) -> Mask:
        """In which records a cell of a column is missing, (rows,), of that part of them."""
        missing: Mask = self._missing[name] < part
        return missing

    def expected(self, name: str) -> float | None:
        return self.expect.get(name)

    def standardised(self, name: str) -> Array:
        """Whether records are in the last group of a column, with mean 0 and deviation 1, (rows,)."""
        return self.unit((self.values[name] == len(self.columns[name].categories) - 1).astype(np.float64))

    def scores(self, name: str) -> Array:
        """Normal scores of a column, (rows,): independent of those of all others."""
        scores: Array = special.ndtri(self._drawn[name])
        return scores

    def sort_by(self, name: str, scores: Array) -> None:
        """The values of a column in the order of the scores, (rows,): each as often as before."""
        ranks = scores.argsort(kind="stable").argsort(kind="stable")
        self.values[name] = np.sort(self.values[name])[ranks]

    def correlate(self, name: str, causes: Sequence[Array], correlations: Sequence[float]) -> None:
        """A column with these correlations with independent standardised causes, (rows,) each."""
        squares = math.fsum(correlation**2 for correlation in correlations)
        shrink = min(1.0, _MOST_RELATED / math.sqrt(squares)) if squares > 0 else 1.0
        scores = math.sqrt(1 - shrink**2 * squares) * self.scores(name)
        for cause, own in zip(causes, correlations, strict=True):
            scores = scores + shrink * own * cause
        self.sort_by(name, scores)

    def happen(self, name: str, log_odds: Array, part: float | None = None) -> None:
        """A column of two levels whose second has the log odds, (rows,), and a constant: that of the part it has so far."""
        chance = float(np.mean(self.values[name] == 1)) if part is None else part
        self.values[name] = (self.chance < chances(log_odds, chance)).astype(np.float64)

    def normal(self, name: str) -> Array:
        """Normal scores of a column of numbers as it is now, (rows,)."""
        ranks = self.values[name].argsort(kind="stable").argsort(kind="stable")
        scores: Array = special.ndtri((ranks + 0.5) / self.rows)
        return scores

    def covariate(self, column: Column, level: str | None = None) -> Array:
        """The values of a covariate, (rows,): numbers in their units, a level as 1 and all others as 0."""
        values = self.values[column.name]
        if level is None:
            return values
        indicator: Array = (values == column.categories.index(level)).astype(np.float64)
        return indicator

    def unit(self, values: Array) -> Array:
        """The values moved and scaled to mean 0 and standard deviation 1."""
        spread = float(values.std())
        standardised: Array = (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))
        return standardised

    def score(self, name: str, outcome: str) -> None:
        """An outcome that a score tells of: with the expected area, else as the score itself says where it is a probability."""
        column, part = self.columns[name], part_of_events(self.columns[outcome])
        area = self.expected("auc")
        if area is None and 0 <= column.low < column.high <= 1:
            score = special.logit(np.clip(self.values[name], _LEAST_CHANCE, 1 - _LEAST_CHANCE))
            self.happen(outcome, score, float(self.values[name].mean()) if part is None else part)
            return
        score = self.normal(name)
        part = 0.5 if part is None else part
        self.happen(outcome, log_odds_of_area(score, part, _USUAL_AREA if area is None else area) * score, part)

    def times(
        self,
        time: str,
        event: str,
        by: str | None,
        ratio: float,
        *,
        median: float | None = None,
        rate: float | None = None,
        none: str | None = None,
    ) -> None:
        """Times to an event, or to leaving before it, at constant hazards, up to the upper bound of the column of times.

        ``ratio``: of the second group's hazard to the first's; ``median`` and ``rate`` are the first one's. ``none``: the level
        of no event, by default the first.
        """
        own, causes = self.columns[time], self.columns[event]
        levels = causes.categories
        censored = 0 if none is None else levels.index(none)
        part = None if not causes.guess else 1 - causes.guess[censored]
        mean = own.guess[0] if own.guess else None
        if rate is not None:
            median = math.log(2) / rate
        hazard, leaving = hazards(own.high, mean, part, median)
        second = self.arms(by) == 1
        each = np.where(second, hazard * ratio, hazard)
        if median is None and mean is not None:
            # As many events as guessed in both groups together.
            each = each / np.where(second, ratio, 1.0).mean()
        first = -np.log(self.chance) / each
        end = np.minimum(-np.log(self.other_chance) / leaving if leaving > 0 else math.inf, own.high)
        happened = first <= end
        self.values[time] = np.minimum(first, end)
        events = [level for level in range(len(levels)) if level != censored]
        weights = np.array([causes.guess[level] for level in events] if causes.guess else [1.0] * len(events))
        which = np.searchsorted(np.cumsum(weights / weights.sum()), self.third_chance, side="right")
        self.values[event] = np.where(happened, np.array(events)[np.minimum(which, len(events) - 1)], censored).astype(np.float64)

    def count(self, events: str, time: str, by: str | None, ratio: float, rate: float | None) -> None:
        """Numbers of events in the observed times; the guess of their mean and deviation says how they vary."""
        own, observed = self.columns[events], self.values[time]
        factor = np.where(self.arms(by) == 1, ratio, 1.0)
        guess = (own.guess[0], own.guess[1]) if own.guess else None
        usual = float(self.values[events].mean()) if guess is None else guess[0]
        each = usual / float((factor * observed).mean()) if rate is None else rate
        events_of_each = counted(each * factor * observed, guess, self.chance)
        self.values[events] = np.minimum(events_of_each, own.high)

    def arms(self, by: str | None) -> Array:
        """The place of each record's group, (rows,); 0 without groups."""
        return np.zeros(self.rows) if by is None else self.values[by]

    def shift_sites(self, column: str, by: str, between: float | None) -> None:
        """Sites whose means differ by a standard deviation, in the units of the column."""
        if between is None:
            return
        count = len(self.columns[by].categories)
        effects = special.ndtri((np.arange(count) + 0.5) / count)
        effects = effects / effects.std() * between * math.sqrt((count - 1) / count)
        own = self.columns[column]
        self.values[column] = np.clip(self.values[column] + effects[self.values[by].astype(np.int64)], own.low, own.high)

    def table(self, names: Sequence[str]) -> Array:
        """The records, (rows, columns), NaN where a cell of these columns is missing."""
        part = self.expect.get("missing", 0.0)
        by_column = {
            name: np.where(self.missing(name, part), np.nan, values) if part and name in names else values
            for name, values in self.values.items()
        }
        return np.column_stack(list(by_column.values()))


def chances(log_odds: Array, part: float) -> Array:
    """Chances with these log odds and a constant, so that their mean is ``part``."""
    part = min(max(part, 1e-6), 1 - 1e-6)
    constant = root_between(lambda shift: float(special.expit(shift + log_odds).mean()) - part, -800, 800)
    probabilities: Array = special.expit(constant + log_odds)
    return probabilities


def log_odds_of_area(score: Array, part: float, area: float) -> float:
    """The log odds a unit of a score, (rows,), with which an outcome of that part has this area under the ROC curve."""
    order = np.argsort(score, kind="stable")

    def excess(slope: float) -> float:
        chance = chances(slope * score, part)[order]
        rest = 1 - chance
        below = np.cumsum(rest) - rest / 2
        return float(chance @ below / (chance.sum() * rest.sum())) - area

    low, high = excess(-_MOST_LOG_ODDS), excess(_MOST_LOG_ODDS)
    if not low < 0 < high:
        return _MOST_LOG_ODDS if high <= 0 else -_MOST_LOG_ODDS
    return root_between(excess, -_MOST_LOG_ODDS, _MOST_LOG_ODDS, 1e-6)


def counted(mean: Array, spread: tuple[float, float] | None, drawn: Array) -> Array:
    """Whole numbers with these means, (rows,): Poisson, or negative binomial where a guess of mean and deviation is wider."""
    mean = np.maximum(mean, 1e-12)
    if spread is not None and spread[1] ** 2 > spread[0] > 0:
        size = spread[0] ** 2 / (spread[1] ** 2 - spread[0])
        part = size / (size + mean)
        return _least(special.nbdtrik(drawn, size, part), lambda number: special.betainc(size, number + 1, part) >= drawn)
    return _least(special.pdtrik(drawn, mean), lambda number: special.pdtr(number, mean) >= drawn)


def _least(about: NDArray[Any], enough: Callable[[Array], NDArray[Any]]) -> Array:
    """The least whole number for which it is enough, (rows,), next to where a real one is."""
    number = np.ceil(np.asarray(about, dtype=np.float64))
    before = np.maximum(number - 1, 0.0)
    return np.where(enough(before), before, number)


def hazards(limit: float, mean: float | None, part: float | None, median: float | None) -> tuple[float, float]:
    """The constant hazards of the event and of censoring, from what is expected of times that are observed up to a limit.

    ``mean`` of observed times, the ``part`` of records with the event, and the ``median`` time to it. Events are the hazard times
    the time observed; who is observed is left by both hazards.
    """
    if median is not None:
        event = math.log(2) / median
        if part is None:
            return event, 0.0
        return event, _root(lambda both: event / both * -math.expm1(-both * limit) - part, event) - event
    if mean is not None:
        both = _root(lambda rate: -math.expm1(-rate * limit) / rate - min(mean, limit * (1 - 1e-6)), 0.0)
        event = both if part is None else min(part / mean, both)
        return event, max(both - event, 0.0)
    if part is not None:
        return -math.log1p(-min(part, 1 - 1e-6)) / limit, 0.0
    return 2 * math.log(2) / limit, 0.0


def _root(falling: Callable[[float], float], lowest: float) -> float:
    """Where a falling function is 0, from ``lowest`` on; ``lowest`` where it is below 0 from there."""
    low, high = max(lowest, _ANY_RATE[0]), _ANY_RATE[1]
    return low if falling(low) <= 0 else root_between(falling, low, high)


def _marginal(column: Column, drawn: Array, spread: float, own: Mapping[str, float]) -> Array:
    """The values of a column from uniform numbers, (rows,)."""
    if not column.numeric:
        count = len(column.categories)
        parts = np.array(column.guess or (1 / count,) * count)
        if "proportion" in own and column.boolean:
            parts = np.array([1 - own["proportion"], own["proportion"]])
        return np.minimum(np.searchsorted(np.cumsum(parts), drawn, side="right"), count - 1).astype(np.float64)
    middle = (column.low + column.high) / 2
    guess = column.guess or (own.get("median", middle), spread * column.width)
    mean, deviation = own.get("mean", own.get("median", guess[0])), own.get("sd", guess[1])
    if column.scale == "log" and column.low >= 0:
        values = _lognormal(mean, deviation, own.get("median"), drawn)
    elif min(mean - column.low, column.high - mean) > _FAR * deviation:
        values = mean + deviation * special.ndtri(drawn)
    else:
        middle_part = min(max((mean - column.low) / column.width, 1e-3), 1 - 1e-3)
        # Between near bounds: a beta distribution has any mean, and up to nearly any variance.
        size = (
            middle_part * (1 - middle_part) / min((deviation / column.width) ** 2, _MOST_SPREAD * middle_part * (1 - middle_part))
            - 1
        )
        values = column.low + column.width * np.asarray(
            special.betaincinv(middle_part * size, (1 - middle_part) * size, drawn), dtype=np.float64
        )
        if "median" in own and "mean" not in own:
            values = values + own["median"] - float(np.median(values))
    values = np.clip(values, column.low, column.high)
    return np.round(values) if column.whole else values


def _lognormal(mean: float, deviation: float, median: float | None, drawn: Array) -> Array:
    mean = max(mean, 1e-12)
    width = math.sqrt(math.log1p((deviation / mean) ** 2))
    middle = math.log(mean) - width**2 / 2 if median is None else math.log(median)
    values: Array = np.exp(middle + width * special.ndtri(drawn))
    return values


def effects_in(names: Iterable[str]) -> list[str]:
    """Those of these expectations that are of an effect, which a test has a power for."""
    return [name for name in names if name not in _NO_EFFECT]


def require_expected(subject: str, expect: Mapping[str, float], names: Sequence[str]) -> None:
    """Raises :class:`InputError` for an expectation that the statistic does not know, or that cannot be."""
    for name, value in expect.items():
        if name not in names:
            near = nearest(name, names)
            raise InputError(f"{subject} cannot expect {name!r}{near}. Choose one of {', '.join(names)}.")
        low, high = RANGES.get(name, (-math.inf, math.inf))
        if not low < value < high or not math.isfinite(value):
            limits = f"above {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
            raise InputError(f"{subject} expects {name} = {value:g}, which cannot be. Choose a finite number {limits}.")


def part_of_events(column: Column) -> float | None:
    """The guessed part of a boolean column that is true; None without a guess."""
    return column.guess[column.categories.index(YES)] if column.guess else None


def between_groups(parts: Sequence[float], probability: float) -> float:
    """The correlation of normal scores with belonging to the second of two groups, with which it is above the first so often."""
    apart, product = math.sqrt(2) * float(special.ndtri(probability)), parts[0] * parts[1]
    return apart * math.sqrt(product / (1 + product * apart**2))
