"""Consensus for all parties and coordinates at once: the machines' numbers to the last bit, so that quantisers agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PopulationNoise, Vector
from quietmean.graphs import History, Schedule
from quietmean.protocols.consensus.edges_in_use import Deliveries, still_in_use
from quietmean.protocols.consensus.local_noise import local_noise
from quietmean.protocols.consensus.quantiser import dither, quantise, reconstruct
from quietmean.protocols.consensus.spec import ConsensusParameters, Quantisation
from quietmean.protocols.protocol import Releases

Flags = NDArray[np.bool_]

# Hears after each iteration t = 1, 2, ... the estimates x^(t), shape (n, d).
Watch = Callable[[int, Vector], None]


def _nobody(iteration: int, x: Vector) -> None:
    """Nobody watches."""


@dataclass(frozen=True, eq=False)
class ConsensusRun:
    """``releases`` of all parties; ``overloads`` (iterations,) how many entries overloaded a quantiser in each iteration.

    ``active`` (2m,): which links their senders used to the end. ``peaks`` (iterations,): the largest input of a quantiser, in
    cells.
    """

    releases: Releases
    overloads: NDArray[np.int64]
    active: Flags
    peaks: NDArray[np.float64]


def run_consensus(
    parameters: ConsensusParameters,
    schedule: Schedule,
    history: History,
    values: Vector,
    weights: NDArray[np.float64],
    noise: PopulationNoise,
    watch: Watch = _nobody,
    initial: Vector | None = None,
) -> ConsensusRun:
    """Run on values (n, d). ``initial``: z^(0) of every link, shape (2m, d), instead of drawn noise: for tests and figures."""
    noisy = _noisy_values(parameters, values, noise)
    z = _perturbation(parameters, values.shape[1], noise) if initial is None else initial.copy()
    return follow(parameters, Deliveries.of(parameters, schedule, history), history.online, noisy, weights, z, watch)


def follow(
    parameters: ConsensusParameters,
    deliveries: Deliveries,
    online: Flags,
    values: Vector,
    weights: NDArray[np.float64],
    z: Vector,
    watch: Watch = _nobody,
) -> ConsensusRun:
    """From noisy values (n, d) and z^(0) (2m, d), which is changed, on: nothing is drawn any more."""
    run = _Run(parameters, deliveries, online, values, weights, z)
    for iteration in range(1, parameters.iterations + 1):
        watch(iteration, run.x)
        run.iterate(iteration)
    watch(parameters.iterations + 1, run.x)
    return ConsensusRun(Releases(run.x, run.weight, online[-1]), run.overloads, run.active, run.peaks)


def _noisy_values(parameters: ConsensusParameters, values: Vector, noise: PopulationNoise) -> Vector:
    if parameters.local_noise in ("uniform", "laplace"):
        return np.array([local_noise(parameters, values[i], noise.party(i)) for i in range(len(values))])
    if parameters.local_noise == "gaussian":
        return values + noise.normal("star", 0, values.shape[1]) * parameters.sigma_local
    return values


def _perturbation(parameters: ConsensusParameters, dimension: int, noise: PopulationNoise) -> Vector:
    links, slots = parameters.links, parameters.links.slot
    z = np.empty((len(links), dimension))
    for slot in range(int(slots.max(initial=-1)) + 1):
        here = np.nonzero(slots == slot)[0]
        z[here] = noise.normal("delta", slot, dimension)[links.sender[here]] * links.sigma[here][:, None]
    return z


class _Run:
    """At link (i, j), shape (2m, d): ``own`` is z_{i|j}, ``other`` what i takes z_{j|i} for; the same unless i is not told that
    a message of its arrived.
    """

    def __init__(
        self,
        parameters: ConsensusParameters,
        deliveries: Deliveries,
        online: Flags,
        values: Vector,
        weights: NDArray[np.float64],
        z: Vector,
    ) -> None:
        links = parameters.links
        self._parameters, self._links, self._deliveries, self._online = parameters, links, deliveries, online
        self._dimension = values.shape[1]
        self._values, self._weights = values, weights
        self._own, self._other = z, z[links.reverse]
        self._own_weight, self._other_weight = np.zeros(len(links)), np.zeros(len(links))
        self.active = deliveries.opened()
        self._silent = np.zeros(len(links), dtype=np.int64)
        self._own_before, self._other_before = self._own, self._other
        self._told, self._heard = np.zeros_like(z), np.zeros_like(z)
        self.overloads = np.zeros(parameters.iterations, dtype=np.int64)
        self.peaks = np.zeros(parameters.iterations)
        self._estimate()

    def _estimate(self) -> None:
        links, parties = self._links, len(self._values)
        total, total_weight, slots = np.zeros_like(self._values), np.zeros(parties), links.slot
        # Edge by edge in the machines' order: another order of additions would round differently.
        for slot in range(int(slots.max(initial=-1)) + 1):
            here = np.nonzero((slots == slot) & self.active)[0]
            total[links.sender[here]] = self._own[here] * links.sign[here][:, None] + total[links.sender[here]]
            total_weight[links.sender[here]] += self._own_weight[here] * links.sign[here]
        degree = np.bincount(links.sender[self.active], minlength=parties)
        share = 1.0 / (1.0 + self._parameters.c * degree)
        self.x: Vector = (self._values - total) * share[:, None]
        self.weight: NDArray[np.float64] = (self._weights - total_weight) * share

    def iterate(self, iteration: int) -> None:
        links = self._links
        told, heard = self._deliveries.exchanged(iteration, self.active)
        outward, inward = self._broadcast_steps(iteration, told, heard) if self._parameters.broadcast else self._steps(iteration)
        weight_out = self._step(self._own_weight, self._other_weight, self.weight[links.sender], 1.0)
        weight_in = weight_out[links.reverse]
        if self._parameters.broadcast:
            weight_in = self._step(self._other_weight, self._own_weight, self.weight[links.receiver], -1.0)
        self._own_before, self._other_before = self._own.copy(), self._other.copy()
        # A message from i to j moves z_{j|i}.
        self._other[told] += outward[told]
        self._own[heard] += inward[heard]
        self._other_weight[told] += weight_out[told]
        self._own_weight[heard] += weight_in[heard]
        self.active, self._silent = still_in_use(self.active, self._silent, told | heard, self._parameters.patience)
        self._estimate()

    def _step(self, from_: Vector, to: Vector, x: Vector, end: float) -> Vector:
        """z_{j|i}^(t+1) - z_{j|i}^(t) of equation (11), ``x`` that of the end that moves it."""
        pull = 2.0 * self._parameters.c * self._links.sign * end
        pulled: Vector = (from_ - to + x * (pull if x.ndim == 1 else pull[:, None])) * (1.0 - self._parameters.theta)
        return pulled

    def _steps(self, iteration: int) -> tuple[Vector, Vector]:
        """Of z_{j|i} as i computes it, and of z_{i|j} as i reads it in what j sends."""
        links, settings = self._links, self._parameters.quantisation
        step = self._step(self._own, self._other, self.x[links.sender], 1.0)
        if settings is None:
            return step, step[links.reverse]
        rows = np.arange(len(links))
        if not settings.two_step:
            sent = self._quantise(settings, iteration, step, rows)
            return sent, sent[links.reverse]
        lag = self._other - self._other_before
        sent = self._quantise(settings, iteration, step + lag, rows)
        return sent - lag, sent[links.reverse] - (self._own - self._own_before)

    def _broadcast_steps(self, iteration: int, told: Flags, heard: Flags) -> tuple[Vector, Vector]:
        links, settings = self._links, self._parameters.quantisation
        mine, theirs = self.x[links.sender], self.x[links.receiver]
        if settings is not None:
            sent = self._quantise(settings, iteration, mine - self._told, links.sender)
            mine, theirs = self._told + sent, self._heard + sent[links.reverse]
        outward, inward = self._step(self._own, self._other, mine, 1.0), self._step(self._other, self._own, theirs, -1.0)
        self._told[told], self._heard[heard] = mine[told], theirs[heard]
        return outward, inward

    def _quantise(self, settings: Quantisation, iteration: int, target: Vector, rows: NDArray[np.int64]) -> Vector:
        shift = dither(settings, iteration, 0, int(rows.max(initial=0)) + 1, self._dimension)[rows]
        indices, overloaded = quantise(settings, iteration, target, shift)
        sent = self.active & self._online[iteration + 1, self._links.sender]
        count = np.zeros(int(rows.max(initial=0)) + 1, dtype=np.int64)
        np.maximum.at(count, rows[sent], overloaded[sent].sum(axis=1))
        self.overloads[iteration - 1] = count.sum()
        self.peaks[iteration - 1] = np.abs(target[sent]).max(initial=0.0) / settings.width(iteration)
        return reconstruct(settings, iteration, indices, shift)
