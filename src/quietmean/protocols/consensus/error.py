"""The noise in the results of a given execution: local noise, and what is left of the noise on the edges."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId, Vector
from quietmean.graphs import ExecutionTrace, Schedule, components, static_schedule
from quietmean.privacy.mutual_information import gaussian_entropy, of_interval_intersection
from quietmean.protocols.consensus.analysis import Dynamics
from quietmean.protocols.consensus.population import LinkVariables, follow
from quietmean.protocols.consensus.quantiser import Quantisers
from quietmean.protocols.consensus.spec import ConsensusParameters, Deliveries
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
    """Errors in place of the quantisers of a run, of the variance that theirs have on cells, drawn from a public seed."""

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
    """Who finished, and sent of its value, shape (n,)."""
    ended: Mask = trace.finished & Deliveries.of(parameters, schedule, trace).tells()
    return ended


def _noise_terms(parameters: ConsensusParameters) -> Iterator[tuple[Vector, Vector]]:
    """The local noise (n, m) and that on the edges (2m, m): in each column one term, or a random draw of the right size."""
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


def honest_components(parameters: ConsensusParameters, corrupt: Collection[PartyId]) -> list[tuple[PartyId, ...]]:
    """The honest parties by group connected without corrupt ones: each group's sum is disclosed without local noise."""
    honest, label = _honest_labels(parameters, corrupt)
    return [tuple(honest[label[honest] == name].tolist()) for name in np.unique(label[honest])]


def _honest_labels(parameters: ConsensusParameters, corrupt: Collection[PartyId]) -> tuple[Ints, Ints]:
    wrong = [party for party in corrupt if not 0 <= party < parameters.parties]
    if wrong:
        raise InputError(f"corrupt party {min(wrong)} does not exist. Choose one of 0..{parameters.parties - 1}.")
    is_honest = np.ones(parameters.parties, dtype=np.bool_)
    is_honest[list(corrupt)] = False
    inside = parameters.edges[is_honest[parameters.edges].all(axis=1)]
    return np.nonzero(is_honest)[0], components(inside, parameters.parties)


def hiding_covariance(parameters: ConsensusParameters, corrupt: Collection[PartyId]) -> Array:
    """Covariance of the noise over all honest values, in rising order of the parties: shape (n_H, n_H)."""
    honest, _ = _honest_labels(parameters, corrupt)
    index_of = np.full(parameters.parties, -1)
    index_of[honest] = np.arange(honest.size)
    variance = parameters.deviations**2
    total = variance.sum(axis=1)
    shared = np.divide(variance[:, 0] * variance[:, 1], total, out=np.zeros(len(total)), where=total > 0)
    ends = index_of[parameters.edges]
    inside = (ends >= 0).all(axis=1)
    (first, second), weight = ends[inside].T, shared[inside]
    covariance = np.zeros((honest.size, honest.size))
    np.add.at(covariance, (first, second), -weight)
    np.add.at(covariance, (second, first), -weight)
    covariance[np.diag_indices(honest.size)] = -covariance.sum(axis=1)
    if parameters.local_noise == "gaussian":
        covariance[np.diag_indices(honest.size)] += parameters.sigma_local**2
    return covariance


def mutual_information(parameters: ConsensusParameters, corrupt: Collection[PartyId], prior_sd: float) -> Array:
    """I(S_i; view) in nats for every honest party, infinite for one without honest neighbour: shape (n_H,).

    -1/2 ln(1 - [(I + noise / prior_sd^2)^-1]_ii) for independent values N(0, prior_sd^2), against a coalition of at least one
    party (in unicast an outsider learns less). Upper bound with quantised messages, and with local noise that is not Gaussian.
    Raises :class:`InputError` without any corrupt party, and for one that does not exist.
    """
    if not corrupt:
        raise InputError("the closed form is against a coalition. Name at least one corrupt party.")
    return nats_of_hidden(hiding_covariance(parameters, corrupt), prior_sd)


def nats_of_hidden(covariance: Array, prior_sd: float) -> Array:
    """I(S_i; S + N) in nats, (n,), for values N(0, prior_sd^2) and noise N of that ``covariance``, (n, n)."""
    noise = covariance / prior_sd**2
    # 1 - [(I + N)^-1]_ii as [(I + N)^-1 N]_ii: no difference of nearly equal numbers.
    unexplained = np.diag(np.linalg.solve(np.eye(len(noise)) + noise, noise))
    alone = np.diag(noise) == 0
    with np.errstate(divide="ignore"):
        return np.where(alone, np.inf, -0.5 * np.log(np.where(alone, 1.0, unexplained)))


@dataclass(frozen=True)
class QuantisedLeak:
    """``nats`` all messages of a run reveal together of one value, ``largest_of_one`` the last (narrowest) alone."""

    nats: float
    largest_of_one: float
    messages: int


def cumulative_leakage(parameters: ConsensusParameters, party: PartyId, prior_sd: float) -> QuantisedLeak:
    """What n - 1 corrupt parties learn of the last honest one from its quantised messages, for Gaussian values: an approximation.

    Every unicast message is a fresh s_i + Uniform of width |c_ik| Delta_t, c_ik = (1 + c d_i) / (2 c (1 - theta)): they know
    everything else. The posterior is the intersection of the intervals. It never stops shrinking, so nothing is a bound for all
    time; with ``delta_min`` = 0 it shrinks to a point. This is not differential privacy: for that, add Gaussian local noise.
    """
    settings = parameters.quantisation
    if settings is None:
        return QuantisedLeak(math.inf, math.inf, parameters.iterations)
    degree = int(parameters.links.degree[party])
    # A broadcast carries x_i itself, once for all neighbours.
    per_round = 1 if parameters.broadcast else degree
    factor = (1 + parameters.c * degree) * (1.0 if parameters.broadcast else 1 / (2 * parameters.c * (1 - parameters.theta)))
    widths = np.array([factor * settings.width(t) for t in range(1, parameters.iterations + 1)])
    entropy = gaussian_entropy(prior_sd)
    messages = per_round * parameters.iterations
    everything = of_interval_intersection(entropy, np.repeat(widths, per_round))
    return QuantisedLeak(everything, float(entropy - np.log(widths.min())), messages)
