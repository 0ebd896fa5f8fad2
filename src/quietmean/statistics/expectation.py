"""What to expect of statistics before a study: widths, flags and power, from public numbers only.

Records are made up as a study expects them (:mod:`~quietmean.statistics.scenario`), studies are drawn from them with the planned
noise, and each is decoded: so every kind of statistic has its own errors, and what noise hides is hidden as often as it will be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.noise_law import NoiseLaw
from quietmean.randomness import BitStream, Seed
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.columns import Column
from quietmean.statistics.drawn_studies import STUDIES, DrawnStudies, samples
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.scenario import ROWS, SyntheticRecords
from quietmean.statistics.statistic import Statistic
from quietmean.statistics.workload import Workload

# Vectors longer than this are drawn in fewer studies, and in this many at least.
_LONG, _FEWEST_STUDIES = 256, 12
# Records that are encoded at a time.
_CHUNK = 2048
# How the names of ratios end that may be expected; from what part on records have another one than is stated.
RATIO, _AS_STATED = "-ratio", 0.1
# A standard deviation that hides nothing.
_NO_NOISE = 1e-12


@dataclass(frozen=True, eq=False)
class Expectation(DrawnStudies[Statistic]):
    """What to expect of the statistics of a workload for a public number of ``records`` (parties, if they are the unit).

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

    @property
    def asked(self) -> Sequence[Statistic]:
        return self.workload.statistics

    def columns_of(self, question: Statistic) -> Sequence[Column]:
        return [self.workload.columns[name] for name in columns_of(question, self.workload)]

    def part_of(self, question: Statistic) -> float:
        return self.workload.budget_part(question)

    @cached_property
    def _latest(self) -> dict[str, _Studies]:
        """What is drawn of a statistic, by its text: of the latest one only, for made-up records are large."""
        return {}

    def _studies_of(self, statistic: Statistic) -> _Studies:
        if statistic.text not in self._latest:
            self._latest.clear()
            self._latest[statistic.text] = _Studies(self.workload, statistic, self.step)
        return self._latest[statistic.text]

    def most_drawn(self, studies: int) -> int:
        """Long vectors take long to decode, and their answers vary less: fewer studies tell as much."""
        return min(studies, max(_FEWEST_STUDIES, studies * _LONG // self.workload.dimension))

    def answers(self, question: Statistic, spread: float, more: float, less_noise: float, count: int) -> Iterator[Estimates]:
        source, weight = self._studies_of(question), self.records * more
        noise = self.noise / less_noise / weight
        means, added = source.drawn(spread, weight, count)
        resolved, decoder = self.workload.with_columns(question), source.decoder
        for mean in means + noise * added:
            with np.errstate(all="ignore"):
                estimates = resolved.decode(decoder.of_quantities(mean, noise, weight, self.law))
            yield estimates

    def at(self, question: Statistic, term: str) -> float:
        """The value of a ratio that the made-up records have: the one that is expected, where they have that, else to two digits.

        Without an effect it is 1."""
        stated = next((value for name, value in question.expect if name.endswith(RATIO)), 1.0)
        resolved, source = self.workload.with_columns(question), self._studies_of(question)
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
            self._drawn[key] = self._read(spread, samples(weight, count, ROWS, stream)), added
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
    return list(workload.with_columns(statistic).uses)


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
