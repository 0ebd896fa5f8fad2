"""What to expect of statistics before a study: widths, flags and power, from public numbers only.

Records are made up as a study expects them (:mod:`~quietmean.statistics.scenario`), studies are drawn from them with the planned
noise, and each is decoded: so every kind of statistic has its own errors, and what noise hides is hidden as often as it will be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.readable import UNKNOWN, either_side, plain
from quietmean.randomness import BitStream, Seed
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.columns import Column
from quietmean.statistics.estimate import known
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.scenario import ROWS, SyntheticRecords
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
from quietmean.statistics.statistic import Statistic
from quietmean.statistics.workload import Workload

Pair = tuple[float, float]

# The range of standard deviations of a column without a guess, in widths of its bounds.
SPREADS = (0.1, 1 / 3)
# Studies that are drawn: usually, for each spread of a column without a guess, and to see whether noise hides the answer.
STUDIES, _WITHOUT_GUESS, _TO_SEE = 200, 60, 51
# Up to this many records in all studies are drawn one by one; beyond, their frequencies are drawn as normal numbers.
_MOST_DRAWN = 8_000_000
# Vectors longer than this are drawn in fewer studies, and in this many at least.
_LONG, _FEWEST_STUDIES = 256, 12
_LARGEST_FACTOR = 2.0**40
_STEPS = 24
_STRIDE = 4.0
# The smallest factor of records, or of noise, that is searched.
_LEAST_FACTOR = 2.0**-10
_ENOUGH_DIGITS = 1.02
# Records that are encoded at a time.
_CHUNK = 2048
_FEWEST = 10.0
# How the names of ratios end that may be expected; from what part on records have another one than is stated.
RATIO, _AS_STATED = "-ratio", 0.1
# A standard deviation that hides nothing.
_NO_NOISE = 1e-12


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

    statistic: Statistic
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


@dataclass(frozen=True, eq=False)
class Expectation:
    """The statistics of a workload for a public number of ``records`` (parties, if they are the unit).

    ``noise``: the standard deviation that a study adds to each coordinate of the total of all records' vectors. ``step``: that of
    its grid, so that the study decodes with the same matrices. ``studies``: how many are drawn. ``law``: of the noise, which
    intervals and thresholds take their quantiles from; what is drawn is normal noise of the same variance.
    """

    workload: Workload
    noise: float
    records: float
    step: float = 0.0
    studies: int = STUDIES
    law: NoiseLaw | None = None

    @cached_property
    def expected(self) -> tuple[Expected, ...]:
        return tuple(self._of(statistic) for statistic in self.workload.statistics)

    @cached_property
    def hopeless(self) -> tuple[Expected, ...]:
        """The expectations that are hopeless, with widths from fewer studies."""
        return tuple(self._of(statistic, _WITHOUT_GUESS) for statistic in self.workload.statistics if self.hides(statistic))

    def hides(self, statistic: Statistic, more: float = 1.0, less_noise: float = 1.0) -> bool:
        """Would noise hide the answer of most studies, with so many times as many records and so many times less noise?

        Of a column without a guess, with a spread in the middle.
        """
        return fewer_than_half(*self._worth_asking(statistic, more, less_noise))

    def more_records(self, statistic: Statistic, rise: float = 0.0) -> float:
        """How many times as many records make noise not hide the answer, as far as that is seen; infinite where none do.

        ``rise``: with which power of their number the noise grows.
        """
        return _smallest(lambda factor: not self.hides(statistic, factor, factor**-rise))

    def _worth_asking(self, statistic: Statistic, more: float = 1.0, less_noise: float = 1.0) -> tuple[Iterator[bool], int]:
        """Whether each of so many studies is worth asking, when it is looked at."""
        count = self._count(_TO_SEE)
        return map(hopeful, self._decoded(statistic, USUAL_SPREAD, more, less_noise, count)), count

    def needed(self, does: Callable[[float, float], bool]) -> tuple[float, float]:
        """How many times as many records, and as little noise, a goal needs, which ``does`` tells of both; infinite where none
        does."""
        fewest = max(_LEAST_FACTOR, _FEWEST / self.records)
        return (
            _smallest(lambda factor: does(factor, 1.0), fewest),
            _smallest(lambda factor: does(1.0, factor), _LEAST_FACTOR),
        )

    def has_power(self, statistic: Statistic, goal: float, more: float = 1.0, less_noise: float = 1.0) -> bool:
        """Does a test at 5 % reject in this part of the drawn studies? No more of them are decoded than decide it."""
        count = self._count(self.studies)
        decoded = self._decoded(statistic, USUAL_SPREAD, more, less_noise, count)
        first = next(decoded)
        if not first.headline:
            # Which term is tested, all of them tell together.
            return summed_up([first, *decoded], statistic.null).power >= goal
        yes = no = 0
        for estimates in itertools.chain([first], decoded):
            rejected = rejects(estimates, first.headline[0], statistic.null) == 1
            yes, no = yes + rejected, no + (not rejected)
            if yes / count >= goal or (count - no) / count < goal:
                break
        return yes / count >= goal

    def assumed(self, statistic: Statistic) -> dict[str, float]:
        """The standard deviations that :meth:`needed` takes for columns of which nobody guessed one, by name."""
        columns, expect = self.workload.columns, dict(statistic.expect)
        return {
            name: USUAL_SPREAD * columns[name].width
            for name in columns_of(statistic, self.workload)
            if columns[name].numeric and not (columns[name].guess or columns[name].origin or columns[name].may_be_any)
            if not (name == statistic.subject and "sd" in expect)
        }

    def stated(self, statistic: Statistic) -> dict[str, float]:
        """The standard deviations that the study states for the columns of numbers, by name."""
        columns, expect = self.workload.columns, dict(statistic.expect)
        own = {statistic.subject: expect["sd"]} if statistic.subject is not None and "sd" in expect else {}
        guesses = {name: columns[name].guess for name in columns_of(statistic, self.workload) if columns[name].numeric}
        return {name: guess[1] for name, guess in guesses.items() if guess} | own

    def _spreads(self, statistic: Statistic) -> tuple[float, ...]:
        return (SPREADS[0], USUAL_SPREAD, SPREADS[1]) if self.assumed(statistic) else (USUAL_SPREAD,)

    @cached_property
    def _latest(self) -> dict[str, _Studies]:
        """What is drawn of a statistic, by its text: of the latest one only, for made-up records are large."""
        return {}

    def _studies_of(self, statistic: Statistic) -> _Studies:
        if statistic.text not in self._latest:
            self._latest.clear()
            self._latest[statistic.text] = _Studies(self.workload, statistic, self.step)
        return self._latest[statistic.text]

    def drawn(
        self,
        statistic: Statistic,
        spread: float = USUAL_SPREAD,
        more: float = 1.0,
        less_noise: float = 1.0,
        studies: int | None = None,
    ) -> Simulated:
        """Studies with ``more`` times as many records and ``less_noise`` times less noise."""
        count = self._count(self.studies if studies is None else studies)
        return summed_up(list(self._decoded(statistic, spread, more, less_noise, count)), statistic.null)

    def _count(self, studies: int) -> int:
        """Long vectors take long to decode, and their answers vary less: fewer studies tell as much."""
        return min(studies, max(_FEWEST_STUDIES, studies * _LONG // self.workload.dimension))

    def _decoded(self, statistic: Statistic, spread: float, more: float, less_noise: float, count: int) -> Iterator[Estimates]:
        """The answers of so many studies, each when it is asked for."""
        source, weight = self._studies_of(statistic), self.records * more
        noise = self.noise / less_noise / weight
        means, added = source.drawn(spread, weight, count)
        resolved, decoder = self.workload.with_columns(statistic), source.decoder
        for mean in means + noise * added:
            with np.errstate(all="ignore"):
                estimates = resolved.decode(decoder.of_quantities(mean, noise, weight, self.law))
            yield estimates

    def _of(self, statistic: Statistic, studies: int | None = None) -> Expected:
        spreads = self._spreads(statistic)
        count = studies or (self.studies if len(spreads) == 1 else min(self.studies, _WITHOUT_GUESS))
        by_spread = [self.drawn(statistic, spread, studies=count) for spread in spreads]
        middle = by_spread[len(by_spread) // 2]
        populations = [middle_of(expected.population) for expected in by_spread]
        power = middle.power
        worth, drawn = self._worth_asking(statistic)
        hidden, factors = 1 - sum(worth) / drawn, (1.0, 1.0)
        if hidden > MOST_HIDDEN:
            factors = (
                self.more_records(statistic),
                _smallest(lambda factor: not self.hides(statistic, 1.0, factor)),
            )
        return Expected(
            statistic,
            self.workload.budget_part(statistic),
            middle.term,
            _range([middle_of(expected.noise) for expected in by_spread]),
            None if np.isnan(populations).all() else _range(populations),
            _range([middle_of(expected.ratio) for expected in by_spread]),
            max(float(middle.flagged.mean()), hidden),
            None if math.isnan(power) else power,
            hidden,
            middle.width,
            *factors,
            self._at(statistic, middle.term) if middle.is_ratio else None,
        )

    def _at(self, statistic: Statistic, term: str) -> float:
        """The value of a ratio that the made-up records have: the one that is expected, where they have that, else to two digits.

        Without an effect it is 1."""
        stated = next((value for name, value in statistic.expect if name.endswith(RATIO)), 1.0)
        resolved, source = self.workload.with_columns(statistic), self._studies_of(statistic)
        quantities = source.decoder.of_quantities(source.middle(USUAL_SPREAD), _NO_NOISE, max(self.records, ROWS), self.law)
        with np.errstate(all="ignore"):
            estimates = resolved.decode(quantities)
        value = float(estimates.value[estimates.terms.index(term)])
        if not 0 < value < math.inf or abs(math.log(value / stated)) < _AS_STATED:
            return stated
        return float(f"{value:.2g}")


class _Studies:
    """Quantities that a statistic reads from studies of made-up records, with and without noise; others are left out."""

    def __init__(self, workload: Workload, statistic: Statistic, step: float) -> None:
        whole = workload.decoder(step)
        self._workload, self._statistic, self._step = workload, statistic, step
        self.decoder = whole.of_features(workload.with_columns(statistic).features)
        self._features = self.decoder.features_read({feature: whole.places[feature] for feature in workload.scales})
        self._places = np.concatenate([whole.places[feature] for feature in self._features])
        self._populations: dict[float, Array] = {}
        self._drawn: dict[tuple[float, float, int], tuple[Array, Array]] = {}

    def drawn(self, spread: float, weight: float, count: int) -> tuple[Array, Array]:
        """Draw ``count`` studies with so many records each, (count, q): the quantities, and noise for a deviation of 1.

        The same for the same question, whatever the number of records: more never does less by chance.
        """
        key = spread, weight, count
        if key not in self._drawn:
            # Of another number of records nothing is asked again.
            for other in [drawn for drawn in self._drawn if drawn[1] != weight]:
                del self._drawn[other]
            stream = BitStream(Seed.public("expectation", self._statistic.text, count))
            added = self.decoder.read.times(stream.standard_normal((count, self._workload.dimension)).T).T
            self._drawn[key] = self._read(spread, _samples(weight, count, stream)), added
        return self._drawn[key]

    def middle(self, spread: float) -> Array:
        """The quantities of all made-up records, (q,), without noise."""
        return self._read(spread, np.full(ROWS, 1 / ROWS))

    def _read(self, spread: float, weights: Array) -> Array:
        """The quantities, (..., q), of weighted sums of made-up records, by weights (..., ROWS)."""
        table, whole = self._population(spread), np.zeros((*weights.shape[:-1], self._workload.dimension))
        for begin in range(0, ROWS, _CHUNK):
            rows = slice(begin, begin + _CHUNK)
            # Few studies are read, and not each record.
            whole[..., self._places] += self._workload.sums(
                table[rows], weights[..., rows], step=self._step, features=self._features
            )
        quantities: Array = self.decoder.read.times(whole.T).T + self.decoder.offset
        return quantities

    def _population(self, spread: float) -> Array:
        """Made-up records, (ROWS, columns)."""
        if spread not in self._populations:
            scenario = SyntheticRecords(self._workload.columns, dict(self._statistic.expect), spread, self._statistic.subject)
            self._statistic.synthesize(scenario)
            self._populations[spread] = scenario.table(columns_of(self._statistic, self._workload))
        return self._populations[spread]


def columns_of(statistic: Statistic, workload: Workload) -> list[str]:
    """The columns that a statistic names, in fields and formulas; all of them where it names none."""
    named: set[str] = set()
    for value in statistic.agreed_fields().values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                named |= {text, *(word.strip() for side in text.split("~") for word in side.split("+"))}
    names = [name for name in workload.columns.names if name in named]
    if names and (condition := workload.with_columns(statistic).condition) is not None:
        names += [name for name in condition.sources if name not in names]
    return names or list(workload.columns.names)


def _samples(weight: float, studies: int, stream: BitStream) -> Array:
    """How much each made-up record counts in means of random samples of ``weight`` of them, (studies, ROWS)."""
    count = max(round(weight), 1)
    if count * studies <= _MOST_DRAWN:
        places = stream.integers(ROWS, count * studies) + np.repeat(np.arange(studies) * ROWS, count)
        weights = np.bincount(places, minlength=ROWS * studies).reshape(studies, ROWS) / count
    else:
        # Each record is drawn so often that its frequency is nearly normal.
        scattered = stream.standard_normal((studies, ROWS))
        weights = 1 / ROWS + (scattered - scattered.mean(axis=1, keepdims=True)) / math.sqrt(ROWS * weight)
    return np.asarray(weights)


def best_bins(column: Column, records: float, noise: float) -> int:
    """How many bins of equal width show a distribution best: least integrated squared error of the histogram as a density.

    ``noise``: the standard deviation in the part of the records in one bin. The error has a part from the width of the bins (of a
    normal distribution with the guessed deviation), one from sampling, and one from noise.
    """
    deviation = column.guess[1] if column.guess else USUAL_SPREAD * column.width
    bins = np.arange(2, 201)
    width = column.width / bins
    rough = width**2 / (12 * 4 * math.sqrt(math.pi) * deviation**3)
    error = rough + 1 / (records * width) + column.width * noise**2 / width**2
    return int(bins[int(np.argmin(error))])


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
