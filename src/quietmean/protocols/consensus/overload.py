"""Do quantisers never overload, but for a chance of 1e-13? Then what they leave in a result has tails no heavier than Gaussian.

Without overload every error is uniform on a cell and independent of all else (:mod:`.quantiser`), so that an input is a sum of
values, of Gaussian noise and of such errors. By Chernoff's inequality it is beyond a range of r cells with a chance of at most

    2 exp(-a (r - v) + a^2 s^2 / 2 + sum_k log(sinh(a w_k / 2) / (a w_k / 2)))

for every a > 0: v is what values can make, s the deviation of the noise, w_k the width of an error, all in cells. A uniform
number has tails no heavier than the Gaussian of its variance, and so has the result.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.consensus.design import quantisation_error
from quietmean.protocols.consensus.edges_in_use import Deliveries
from quietmean.protocols.consensus.population import LinkVariables
from quietmean.protocols.consensus.quantiser import Quantisers
from quietmean.protocols.consensus.spec import ConsensusParameters
from quietmean.transcript.numbers import NumericReading, NumericRows
from quietmean.transcript.population import Rows

# Of all inputs of a run together.
_CHANCE = 1e-13
# Numbers of a run with a column for each value, perturbation and error: for more of them nothing is shown.
_MOST_NUMBERS = 5e7
# The a that are tried, times r over the logarithm of the chance; and which a w_k / 2 are so small that x^2 / 6 does as well.
_TRIED, _SMALL = np.geomspace(1.1, 8.0, 10), 0.3
# Of what errors may leave in a result, in variances of its noise, and in largest values: less is rounding.
_LITTLE, _ROUNDING = 0.01, 1e-8


def never_overloads(
    parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace, weights: Array, largest: float, dimension: int
) -> bool:
    """Of ``dimension`` numbers of size ``largest`` or less a unit of ``weights`` (n,); False where that is not shown."""
    # What was lost is made up for later, by larger differences.
    if not (trace.finished.all() and trace.online.all() and Deliveries.of(parameters, schedule, trace).all_known):
        return False
    return _shown(parameters, tuple((np.maximum(weights, 1.0) * largest).tolist()), dimension)


@lru_cache(maxsize=16)
def _shown(parameters: ConsensusParameters, sizes: tuple[float, ...], dimension: int) -> bool:
    """Of vectors whose coordinates are at most as large as ``sizes`` (n,), if every message arrives."""
    inputs = _Inputs(parameters, np.array(sizes), dimension)
    if inputs.numbers > _MOST_NUMBERS or inputs.overload():
        return False
    rounding = (_ROUNDING * max(sizes)) ** 2
    return inputs.left() <= quantisation_error(parameters) + _LITTLE * parameters.sigma_local**2 / len(sizes) + rounding


class _Inputs(Quantisers):
    """In place of the quantisers of a run: a column for each value, for each z^(0), and for each error of the first iteration.

    ``sizes`` (n,): how large the values are at most.
    """

    def __init__(self, parameters: ConsensusParameters, sizes: Array, dimension: int) -> None:
        settings, links, iterations = parameters.quantisation, len(parameters.links), parameters.iterations
        assert settings is not None  # noqa: S101 - for the type checker
        super().__init__(settings, iterations)
        self._parameters, self._sizes = parameters, sizes
        self._errors = np.eye(parameters.parties if parameters.broadcast else links)
        self._before = parameters.parties + links
        self.numbers = iterations * links * (self._before + len(self._errors))
        self._least = -math.log(2 * dimension * links * iterations / _CHANCE)
        self._tried = _TRIED * -self._least / settings.largest_input
        self._uniform, self._seen = np.zeros((links, _TRIED.size)), [0.0]
        # The largest logarithm of an input's chance, with the best of the a that are tried.
        self._highest = -math.inf

    def overload(self) -> bool:
        """May one of them?"""
        parameters, links = replace(self._parameters, local_noise="none", sigma_local=0.0), self._parameters.links
        columns = self._before + len(self._errors)
        z = np.eye(len(links), columns, parameters.parties) * links.sigma[:, None]
        reading, deliveries = NumericReading(np.eye(parameters.parties, columns)), Deliveries.complete(parameters)
        online = np.ones((parameters.rounds + 1, parameters.parties), dtype=np.bool_)

        def watch(iteration: int, x: Rows) -> None:
            self._seen.append(float((reading.vectors(x)[:, self._before :] ** 2).sum(axis=1).max()))

        weights = np.ones(parameters.parties)
        run = LinkVariables(parameters, deliveries, online, reading.values, weights, NumericRows(z), reading, watch)
        run.quantisers = self
        run.run()
        return self._highest > self._least

    def left(self) -> float:
        """Variance of what the errors leave in a result, of the party of which it is most."""
        widths = [self._settings.width(iteration) for iteration in range(1, self._parameters.iterations + 1)]
        # What enters in an iteration is seen in the estimates from the next one on.
        return float(np.square(widths[::-1]) @ self._seen[2:]) / 12

    def sent(self, iteration: int, target: Vector, rows: Ints, sends: Mask) -> Vector:
        if self._highest <= self._least:
            self._count(iteration, target)
        return target + np.pad(self._errors, ((0, 0), (self._before, 0)))[rows] * (iteration == 1)

    def _count(self, iteration: int, target: Vector) -> None:
        settings, tried, parties = self._settings, self._tried, self._parameters.parties
        width, values, errors = settings.width(iteration), target[:, :parties], np.abs(target[:, self._before :])
        # Its own error is not among an input. Next to a later cell none is wider than without a smallest width.
        self._uniform += _log_of_uniform(errors * settings.gamma ** (1 - iteration) / 2 * (iteration > 1), tried)
        noise = (target[:, parties : self._before] ** 2).sum(axis=1)
        noise = (noise + self._parameters.sigma_local**2 * (values**2).sum(axis=1)) / width**2
        room = settings.largest_input - np.abs(values) @ self._sizes / width
        exponents = self._uniform + noise[:, None] * tried**2 / 2 - room[:, None] * tried
        self._highest = max(self._highest, float(exponents.min(axis=1).max()))


def _log_of_uniform(half_widths: Array, tried: Array) -> Array:
    """For rows of half widths (m, k) and each a (p,): the sum of log(sinh(x) / x), x = a times a half width. Shape (m, p)."""
    large = half_widths * tried[-1] > _SMALL
    row = np.nonzero(large)[0]
    x = half_widths[large][:, None] * tried
    exact = x + np.log1p(-np.exp(-2 * x)) - np.log(2 * x)
    total: Array = (np.where(large, 0.0, half_widths) ** 2).sum(axis=1)[:, None] * tried**2 / 6
    np.add.at(total, row, exact)
    return total
