"""Consensus for all parties and coordinates at once: the machines' numbers to the last bit, so that quantisers agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PopulationNoise, Vector
from quietmean.graphs import History, Schedule
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

    ``active`` (2m,): which links were in use to the end.
    """

    releases: Releases
    overloads: NDArray[np.int64]
    active: Flags


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
    run = _Run(parameters, link_deliveries(parameters, schedule, history), history.online, values, weights, noise, initial)
    for iteration in range(1, parameters.iterations + 1):
        watch(iteration, run.x)
        run.iterate(iteration)
    watch(parameters.iterations + 1, run.x)
    return ConsensusRun(Releases(run.x, run.weight, history.finished), run.overloads, run.active)


def link_deliveries(parameters: ConsensusParameters, schedule: Schedule, history: History) -> Flags:
    """Shape (T, 2m): did a message over this link arrive in this round?"""
    links = parameters.links
    return history.delivered(schedule)[:, links.sender, links.slot]


class _Run:
    """``z`` (2m, d) holds z_{i|j} at link (i, j): what i holds, and what j knows that i holds."""

    def __init__(
        self,
        parameters: ConsensusParameters,
        delivered: Flags,
        online: Flags,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
        initial: Vector | None,
    ) -> None:
        links = parameters.links
        self._parameters, self._links, self._delivered, self._online = parameters, links, delivered, online
        self._dimension = values.shape[1]
        if parameters.local_noise in ("uniform", "laplace"):
            parts = [local_noise(parameters, values[i], noise.party(i)) for i in range(len(values))]
            self._values: Vector = np.array(parts)
        elif parameters.local_noise == "gaussian":
            self._values = values + noise.normal("star", 0, self._dimension) * parameters.sigma_local
        else:
            self._values = values
        self._weights = weights
        self.z = self._perturbation(noise) if initial is None else initial.copy()
        self.z_weight = np.zeros(len(links))
        self.active = delivered[0] & delivered[0][links.reverse]
        self._silent = np.zeros(len(links), dtype=np.int64)
        self._before = self.z.copy()
        self._told = np.zeros_like(self.z)
        self.overloads = np.zeros(parameters.iterations, dtype=np.int64)
        self._estimate()

    def _perturbation(self, noise: PopulationNoise) -> Vector:
        links, slots = self._links, self._links.slot
        z = np.empty((len(links), self._dimension))
        for slot in range(int(slots.max(initial=-1)) + 1):
            here = np.nonzero(slots == slot)[0]
            z[here] = noise.normal("delta", slot, self._dimension)[links.sender[here]] * links.sigma[here][:, None]
        return z

    def _estimate(self) -> None:
        links, parties = self._links, len(self._values)
        total, total_weight, slots = np.zeros_like(self._values), np.zeros(parties), links.slot
        # Edge by edge in the machines' order: another order of additions would round differently.
        for slot in range(int(slots.max(initial=-1)) + 1):
            here = np.nonzero((slots == slot) & self.active)[0]
            total[links.sender[here]] = self.z[here] * links.sign[here][:, None] + total[links.sender[here]]
            total_weight[links.sender[here]] += self.z_weight[here] * links.sign[here]
        degree = np.bincount(links.sender[self.active], minlength=parties)
        share = 1.0 / (1.0 + self._parameters.c * degree)
        self.x: Vector = (self._values - total) * share[:, None]
        self.weight: NDArray[np.float64] = (self._weights - total_weight) * share

    def iterate(self, iteration: int) -> None:
        parameters, links = self._parameters, self._links
        reverse, settings = links.reverse, parameters.quantisation
        arrived = self._delivered[iteration] & self.active
        pull, rest = 2.0 * parameters.c * links.sign, 1.0 - parameters.theta
        x = self.x[links.sender]
        if parameters.broadcast:
            heard = x if settings is None else self._told + self._quantise(settings, iteration, x - self._told, links.sender)
            step = (self.z - self.z[reverse] + heard * pull[:, None]) * rest
            self._told[arrived] = heard[arrived]
        else:
            step = (self.z - self.z[reverse] + x * pull[:, None]) * rest
            if settings is not None:
                step = self._quantised_step(settings, iteration, step)
        weight_step = (self.z_weight - self.z_weight[reverse] + self.weight[links.sender] * pull) * rest
        self._before = self.z.copy()
        # A message from i to j moves z_{j|i}.
        self.z[reverse[arrived]] += step[arrived]
        self.z_weight[reverse[arrived]] += weight_step[arrived]
        heard_of = arrived | arrived[reverse]
        self._silent = np.where(heard_of, 0, self._silent + 1)
        given_up = self.active & (self._silent >= parameters.patience)
        self.active = self.active & ~given_up
        self._estimate()

    def _quantised_step(self, settings: Quantisation, iteration: int, step: Vector) -> Vector:
        if not settings.two_step:
            return self._quantise(settings, iteration, step, np.arange(len(self._links)))
        lag = (self.z - self._before)[self._links.reverse]
        return self._quantise(settings, iteration, step + lag, np.arange(len(self._links))) - lag

    def _quantise(self, settings: Quantisation, iteration: int, target: Vector, rows: NDArray[np.int64]) -> Vector:
        shift = dither(settings, iteration, 0, int(rows.max(initial=0)) + 1, self._dimension)[rows]
        indices, overloaded = quantise(settings, iteration, target, shift)
        sent = self.active & self._online[iteration + 1, self._links.sender]
        count = np.zeros(int(rows.max(initial=0)) + 1, dtype=np.int64)
        np.maximum.at(count, rows[sent], overloaded[sent].sum(axis=1))
        self.overloads[iteration - 1] = count.sum()
        return reconstruct(settings, iteration, indices, shift)
