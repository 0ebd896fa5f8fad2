"""The noise in the results of a given execution: local noise, and what is left of the noise on the edges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.graphs.undirected import static_schedule
from quietmean.protocols.consensus.analysis import Dynamics
from quietmean.protocols.consensus.edges_in_use import Deliveries
from quietmean.protocols.consensus.population import LinkVariables
from quietmean.protocols.consensus.quantiser import Quantisers
from quietmean.protocols.consensus.run import follow
from quietmean.protocols.consensus.spec import ConsensusParameters
from quietmean.randomness import BitStream, Seed
from quietmean.transcript.numbers import NumericReading, NumericRows

# Noise terms are propagated one by one, in blocks, up to this many steps of an edge in all; beyond, random draws are used.
_COLUMNS, _MOST_STEPS = 256, 2e8
_LOCAL_DRAWS, _EDGE_DRAWS = 256, 64
# Of the errors of cells, and by how much the variance of so many draws may be too small, but for a chance of 1e-7.
_CELL_DRAWS, _CELL_MARGIN = 1024, 1.3


def error_variance(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
    """Per coordinate, the largest over the parties that finished; without the error of quantisation. Weights (n,).

    Infinite where none of these has a result. Exact for executions that take some seconds. For larger ones it is an estimate,
    9 % off (one standard deviation), and 18 % in what is left of the noise on the edges.
    """
    ended = _with_results(parameters, schedule, trace)
    if not ended.any():
        return np.inf
    parties, links = parameters.parties, parameters.links
    squares, weight = np.zeros(parties), np.ones(parties)
    for values, z in _noise_terms(parameters):
        left, weight = _results(parameters, schedule, trace, values, weights, z)
        squares += (left**2).sum(axis=1)
    if not len(links):
        weight = weights
    return float((squares[ended] / weight[ended] ** 2).max())


class _DrawnErrors(Quantisers):
    """In place of the quantisers of a run: errors of the variance that theirs have on cells, drawn from a public seed."""

    def sent(self, iteration: int, target: Vector, rows: Ints, sends: Mask) -> Vector:
        drawn = BitStream(Seed.public("consensus cells", iteration)).standard_normal(
            (int(rows.max(initial=0)) + 1, target.shape[1])
        )
        return target + drawn[rows] * (self._settings.width(iteration) / math.sqrt(12))


def residual_quantisation(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
    """Variance that the errors of quantisers leave in a result where something was lost, the most over the parties; at least it.

    0 where all arrived: then it is what the last cells leave. Without overload.
    """
    settings, deliveries = parameters.quantisation, Deliveries.of(parameters, schedule, trace)
    ended = _with_results(parameters, schedule, trace)
    if settings is None or not ended.any() or (trace.finished.all() and trace.online.all() and deliveries.all_known):
        return 0.0
    silent = replace(parameters, local_noise="none", sigma_local=0.0)
    reading = NumericReading(np.zeros((parameters.parties, _CELL_DRAWS)))
    z = NumericRows(np.zeros((len(parameters.links), _CELL_DRAWS)))
    run = LinkVariables(silent, deliveries, trace.online, reading.values, weights, z, reading)
    run.quantisers = _DrawnErrors(settings, parameters.iterations)
    results = run.run()
    squares = (reading.vectors(results.rows) ** 2).mean(axis=1)
    return _CELL_MARGIN * float((squares[ended] / results.weight[ended] ** 2).max())


def unfinished(parameters: ConsensusParameters, half_range: float) -> float:
    """The mean squared error, per coordinate, of iterations that have not come to rest where nobody is ever away; 0 at rest.

    Of the noise on the edges as of :func:`error_variance`; of values at most ``half_range`` from the middle of their domain; and
    of cells that are still wider than the narrowest.
    """
    silent = replace(parameters.quantised(None), local_noise="none", sigma_local=0.0)
    schedule = static_schedule(parameters.edges, parameters.parties, parameters.rounds)
    trace, equal = ExecutionTrace.everyone(schedule.rounds, parameters.parties), np.ones(parameters.parties)
    off = np.zeros(parameters.parties)
    for first in range(0, parameters.parties, _COLUMNS):
        values = np.eye(parameters.parties, min(_COLUMNS, parameters.parties - first), -first)
        left, weight = _results(silent, schedule, trace, values, equal, np.zeros((len(parameters.links), values.shape[1])))
        off += np.abs(left / weight[:, None] - 1 / parameters.parties).sum(axis=1)
    settings = parameters.quantisation
    width = 0.0 if settings is None else settings.width(parameters.iterations)
    narrowest = 0.0 if settings is None else settings.delta_min
    cells = Dynamics.of(parameters).steady_state_mse(width, parameters.broadcast) if width > narrowest else 0.0
    return error_variance(silent, schedule, trace, equal) + float(half_range * off.max()) ** 2 + cells


def _with_results(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace) -> Mask:
    """Shape (n,): who finished, and told of its value."""
    ended: Mask = trace.finished & Deliveries.of(parameters, schedule, trace).tells()
    return ended


def _noise_terms(parameters: ConsensusParameters) -> Iterator[tuple[Vector, Vector]]:
    """(local noise (n, m), noise on the edges (2m, m)): in each column one term, or a random draw of the right size."""
    parties, links = parameters.parties, parameters.links
    stream = BitStream(Seed.public("consensus error"))
    local = parties if parameters.sigma_local else 0
    exact = parameters.iterations * len(links) * (local + len(links)) <= _MOST_STEPS
    for deviations, draws, kind in (
        (np.full(local, parameters.sigma_local), _LOCAL_DRAWS, 0),
        (links.sigma, _EDGE_DRAWS, 1),
    ):
        terms = len(deviations)
        drawn = not exact and terms > draws
        for first in range(0, draws if drawn else terms, _COLUMNS):
            size = min(_COLUMNS, (draws if drawn else terms) - first)
            noise = stream.standard_normal((terms, size)) / np.sqrt(draws) if drawn else np.eye(terms, size, -first)
            parts = np.zeros((parties, size)), np.zeros((len(links), size))
            parts[kind][:terms] = noise * deviations[:, None]
            yield parts


def _results(
    parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, z: Vector
) -> tuple[Vector, Array]:
    linear = replace(parameters.quantised(None), local_noise="none", sigma_local=0.0)
    run = follow(linear, Deliveries.of(linear, schedule, trace), trace.online, values, weights, z)
    return run.releases.vector, run.releases.weight


def value_reach(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
    """How far from the middle of the values' domain a result without noise may be, in half widths: the most over all results."""
    ended = _with_results(parameters, schedule, trace)
    if not ended.any():
        return np.inf
    sizes, total = np.zeros(parameters.parties), np.ones(parameters.parties)
    for first in range(0, parameters.parties, _COLUMNS):
        values = np.eye(parameters.parties, min(_COLUMNS, parameters.parties - first), -first)
        left, total = _results(parameters, schedule, trace, values, weights, np.zeros((len(parameters.links), values.shape[1])))
        sizes += np.abs(left) @ weights[first : first + values.shape[1]]
    return float((sizes[ended] / np.abs(total[ended])).max(initial=1.0))


def value_parts(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace) -> Array:
    """How much of each party's value is in the results, shape (n,): the mean over the parties that have one. Exact."""
    parties, links = parameters.parties, parameters.links
    parts, ended = np.zeros(parties), _with_results(parameters, schedule, trace)
    if not ended.any():
        return parts
    for first in range(0, parties, _COLUMNS):
        values = np.eye(parties, min(_COLUMNS, parties - first), -first)
        z = np.zeros((len(links), values.shape[1]))
        left, weight = _results(parameters, schedule, trace, values, np.ones(parties), z)
        parts[first : first + values.shape[1]] = (left[ended] / weight[ended, None]).mean(axis=0)
    return np.maximum(parts, 0.0)
