"""Muffliato: local noise once, then gossip on a fixed graph (Cyffers, Even, Bellet and Massoulié 2022). For comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.domain import GAUSSIAN_GUARANTEE
from quietmean.core.errors import InputError
from quietmean.core.lazy import optimize
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.schema import OPEN
from quietmean.graphs import ExecutionTrace, Schedule, churn
from quietmean.graphs.schedule import check_others
from quietmean.protocols import literature
from quietmean.protocols.discrete import ON_GRID, least_deviation
from quietmean.protocols.mechanism import Design, Mechanism, template_of
from quietmean.protocols.muffliato.party import (
    ACCELERATED,
    MuffliatoParameters,
    MuffliatoParty,
    default_rounds,
    gossip_schedule,
    mixed,
    population,
)
from quietmean.protocols.target import Target
from quietmean.protocols.traits import Checks, Planning, PlanningCost, Traits
from quietmean.randomness import BitStream, Seed


def mean_renyi_epsilon(order: float, rounds: int, degree: int, parties: int, sigma: float, sensitivity: float = 1.0) -> float:
    """alpha T d_i D^2 / (2 n sigma^2), a mean over observers, of Renyi order alpha: Muffliato, equation (7); IncA, (65)."""
    return order * rounds * degree * sensitivity**2 / (2.0 * parties * sigma**2)


def rounds_for(parties: int, gap: float) -> int:
    """ceil(ln n / sqrt(gap)): Muffliato, Theorem 2 (variance at least 1). ``gap``: spectral gap of the gossip matrix."""
    return math.ceil(math.log(parties) / math.sqrt(gap))


@dataclass(frozen=True)
class NetworkDesign:
    """Noise for a pairwise network target: ``sigma`` per coordinate, at Renyi ``order``; ``mse`` without gossip error."""

    sigma: float
    order: float
    rounds: int
    parties: int

    @property
    def mse(self) -> float:
        """Per coordinate, if every party reached the mean of the noisy values."""
        return self.sigma**2 / self.parties


def network_design(
    parties: int, degree: int, rounds: int, epsilon: float, delta: float, sensitivity: float = 1.0
) -> NetworkDesign:
    """The least noise whose mean pairwise loss, converted from Renyi, is (epsilon, delta): IncA, equations (66) to (68).

    Raises :class:`InputError` unless epsilon > 0 and 0 < delta < 1.

    sigma^2 = (ln(1/delta) / (epsilon - e) + 1) T d D^2 / (2 n e) over 0 < e < epsilon, least where its derivative vanishes.
    """
    if not (epsilon > 0 and 0 < delta < 1):
        raise InputError(f"epsilon is {epsilon:g} and delta {delta:g}. Choose epsilon > 0 and 0 < delta < 1.")
    log_delta = math.log(1.0 / delta)

    def variance(spent: float) -> float:
        order = log_delta / (epsilon - spent) + 1.0
        return order * rounds * degree * sensitivity**2 / (2.0 * parties * spent)

    bounds = (1e-9 * epsilon, (1.0 - 1e-9) * epsilon)
    spent = float(optimize.minimize_scalar(variance, bounds=bounds, method="bounded", options={"xatol": 1e-12 * epsilon}).x)
    return NetworkDesign(math.sqrt(variance(spent)), log_delta / (epsilon - spent) + 1.0, rounds, parties)


def neighbour_epsilon(sigma: float, delta: float, sensitivity: float = 1.0) -> float:
    """The exact epsilon against a neighbour, that of local DP with the same noise: its first message is x + noise."""
    from quietmean.privacy import GAUSSIAN

    return GAUSSIAN.epsilon(sensitivity / sigma, delta)


# The predicted error averages this many executions, each probed with this many random vectors where n is larger.
_EXECUTIONS, _PROBES = 8, 256
# Parties whose influences are followed at once.
_COLUMNS = 1024
# Where records are protected, the part of differences that gossip may leave: with a million records less than the noise.
_CONVERGED, _MOST_ROUNDS = 1e-9, 4096
# Certificates of float64 noise are widened by the solver's error: this much more noise keeps them within the target.
_MARGIN = 1.0001


def _reach(protocol: Muffliato, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
    """Momentum makes some parts negative."""
    sizes, total = np.zeros(len(weights)), np.zeros(len(weights))
    for own, shares in protocol.shares(schedule, trace):
        sizes += np.abs(shares) @ weights[own]
        total += shares @ weights[own]
    finished = trace.finished
    return float((sizes[finished] / np.abs(total[finished])).max(initial=1.0))


def _figures(protocol: Muffliato, target: Target) -> dict[str, Any]:
    degree = int(protocol.draw_schedule(target.parties, Seed.public("figures")).out_degree.max())
    order_two = (2.0, protocol.rounds, degree, target.parties, protocol.sigma, target.sensitivity)
    return {
        "pairwise_network_renyi_epsilon_order_2": mean_renyi_epsilon(*order_two),
        "pairwise_network_renyi_epsilon_is": "in real arithmetic, mean over observers: no bound for any one observer",
    }


def _least_mse(protocol: Muffliato, target: Target) -> float | None:
    """Every party's own noise hides its value from everybody, and no weights have less than 1/n of its variance."""
    if target.nats is not None:
        return None
    from quietmean.privacy import mu_of_budget

    return (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2 / target.parties


def _parts(protocol: Muffliato, schedule: Schedule, trace: ExecutionTrace) -> Array:
    parts = np.zeros(schedule.parties)
    for own, shares in protocol.shares(schedule, trace):
        parts[own] = shares[trace.finished].sum(axis=0)
    return parts


class Muffliato(MuffliatoParameters, Mechanism):
    """Nothing is released: every party ends with an estimate of its own, computed from the gossip messages alone.

    Against a coalition with a neighbour this is local DP, so that is what a plan is designed for and what certificates state.
    Neither the exchanges nor ``momentum`` change what a neighbour learns. The pairwise network loss, a mean over single observers
    in real arithmetic, is one of the figures.
    """

    name = "muffliato"
    TRAITS = Traits(
        summary="every party adds full noise once, then gossips: no second phase; against colluders no better than local DP",
        sources=(literature.MUFFLIATO,),
        keeps_target=True,
        guarantee=(f"{GAUSSIAN_GUARANTEE}. If a neighbour of a party colludes, only its own noise protects the party"),
        releases_are_public=False,
        exposed=True,
        planning_cost=PlanningCost(seconds=1.5e-7),
        checks=Checks(reach=_reach),
        counts_intercepted=True,
        inputs=ON_GRID,
        planning=Planning(figures=_figures, least_mse=_least_mse),
        parts=_parts,
    )

    def resolved(self, parties: int) -> Self:
        return super(Muffliato, self.on_graph(parties)).resolved(parties)

    def defaults(self, target: Target) -> dict[str, Any]:
        if self.out_degree is not OPEN:
            check_others("neighbours", self.out_degree, target.parties)
        graph = self.on_graph(target.parties)
        rounds = default_rounds(graph.schedule, target.parties, graph.out_degree)
        return {"rounds": rounds, "momentum": ACCELERATED}

    def with_noise(self, star: float, delta: float) -> Self:
        return replace(self, sigma=star)

    def design(self, target: Target) -> Design:
        from quietmean.privacy import mu_of_budget

        mu = mu_of_budget(target.epsilon, target.delta)
        sigma = least_deviation(target.sensitivity, mu) * _MARGIN
        grid = self.on_grid(target, [sigma])
        if grid:
            sigma = least_deviation(target.sensitivity, mu, grid["step"])
        parameters: Muffliato = replace(template_of(self, target), sigma=sigma, **grid)
        if self.rounds is OPEN and target.unit.within_party:
            # Sums over records differ between parties by as much as their numbers do.
            parameters = replace(parameters, rounds=parameters._rounds_to(_CONVERGED, target.parties))
        squares, bias = parameters._influence(target)
        certificate = "local DP of the noisy value, which neighbours receive, against every coalition; nothing is published"
        return Design(parameters, sigma**2 * squares, target.value_variance * bias, certificate)

    def _influence(self, target: Target) -> tuple[float, float]:
        """sum_j w_j^2 and sum_j (w_j - 1/n)^2 for the weights w in a party's estimate, averaged over executions and parties."""
        parties = target.parties
        squares, bias = [], []
        for number in range(_EXECUTIONS if target.dropouts else 2):
            seed = Seed.public("muffliato", parties, number)
            schedule = self.draw_schedule(parties, seed.derive("schedule"))
            trace = churn(seed.derive("churn"), schedule.rounds, parties, permanent=target.dropouts)
            everyone = _probes(parties, seed)
            weights = mixed(self, schedule, trace, everyone)[trace.finished]
            squares.append(float((weights**2).sum(axis=1).mean()))
            bias.append(float(((weights - everyone.mean(axis=0)) ** 2).sum(axis=1).mean()))
        return float(np.mean(squares)), float(np.mean(bias))

    def _rounds_to(self, accuracy: float, parties: int) -> int:
        """Rounds until no party's estimate differs from the mean by more than ``accuracy`` of the length of all values."""
        everyone = _probes(parties, Seed.public("muffliato rounds", parties))

        def error(rounds: int) -> float:
            tried = replace(self, rounds=rounds)
            schedule = tried.draw_schedule(parties, Seed.public("muffliato", parties, 0).derive("schedule"))
            left = mixed(tried, schedule, ExecutionTrace.everyone(rounds, parties), everyone) - everyone.mean(axis=0)
            return float(np.sqrt((left**2).sum(axis=1).max()))

        few, many = 0, self.rounds
        while error(many) > accuracy:
            if many > _MOST_ROUNDS:
                raise InputError(
                    f"gossip over {parties} parties takes more than {_MOST_ROUNDS} rounds to converge. Name another protocol."
                )
            few, many = many, 2 * many
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if error(middle) <= accuracy else (middle, many)
        return many

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
        """Exact for the exchanges that took place: the largest over the parties that finished. Weights (n,)."""
        parties = len(weights)
        squares, total = np.zeros(parties), np.zeros(parties)
        for own, shares in self.shares(schedule, trace):
            squares += (shares**2).sum(axis=1)
            total += shares @ weights[own]
        finished = trace.finished
        if not finished.any():
            return np.inf
        return float(self.sigma**2 * (squares[finished] / total[finished] ** 2).max())

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        """The parties whose values are in what somebody who finished holds: also of those who left after some exchanges."""
        counted: Mask = _parts(self, schedule, trace) != 0
        return counted

    def shares(self, schedule: Schedule, trace: ExecutionTrace) -> Iterator[tuple[Ints, Array]]:
        """Some of the parties (m,), and how much of each one's value every party holds in the end: (n, m)."""
        for first in range(0, schedule.parties, _COLUMNS):
            own = np.arange(first, min(first + _COLUMNS, schedule.parties))
            unit = np.zeros((schedule.parties, own.size))
            unit[own, own - first] = 1.0
            yield own, mixed(self, schedule, trace, unit)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return gossip_schedule(self, parties, seed)

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        return self.own_promise(sensitivity, self.sigma, parties, "each party's own noise")

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        return self.own_bound(schedule.parties, sensitivity, "the party's own noise")

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> MuffliatoParty:
        self.TRAITS.inputs.check(self, value)
        return MuffliatoParty(self, schedule, party, value, weight, noise)

    population = population


def _probes(parties: int, seed: Seed) -> Array:
    """Rows whose inner products are 1 for the same party and else 0, or so on average: shape (n, n) or fewer columns."""
    if parties <= _PROBES:
        return np.eye(parties)
    drawn: Array = BitStream(seed).standard_normal((parties, _PROBES)) / np.sqrt(_PROBES)
    return drawn


__all__ = ["PROTOCOL", "Muffliato", "MuffliatoParameters"]

PROTOCOL = Muffliato
