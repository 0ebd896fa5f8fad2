"""CorDP-DME: one message a party, hidden by its own noise and by noise that it shares with others and that cancels in the sum.

Vithana, Cadambe, Calmon and Jeong 2025.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.bounds import APriori, CoalitionBound, round_up
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.input_domain import Ball, Box, InputDomain
from quietmean.core.party import NoiseSource, PartyId, Release, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import literature
from quietmean.protocols.cordp_dme.design import (
    SensitivityConvention,
    all_pairs_information,
    ball_sensitivity,
    biased_mse,
    gaussian_variance,
    least_error,
    optimal_design,
    place_information,
    responder_curve,
    shrinkage,
    sparse_design,
    worst_coalition,
)
from quietmean.protocols.cordp_dme.party import (
    CordpDmeParameters,
    CordpDmeParty,
    MeanDecoder,
    all_pairs,
    place_pairs,
    population,
    sparse_pairs,
)
from quietmean.protocols.discrete import check_on_grid, grid_region, step_of
from quietmean.protocols.mechanism import Design, Mechanism, template_of
from quietmean.protocols.publishing import ALL_PUBLISHED, check_collector, to_collector, with_collector
from quietmean.protocols.target import Target
from quietmean.protocols.traits import AcceptedValues, Checks, Planning, PlanningCost, Traits, unit_cube
from quietmean.randomness import Seed

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion


def decode_total(
    parameters: CordpDmeParameters, parties: int, vector: Vector, weight: float, responding: int | None = None
) -> Vector:
    """The estimate (d,) from the sums of messages (d,) and of weights, by the parameters' decoder.

    ``responding``: of how many parties; by default each weighs 1. Raises :class:`InputError` if that cannot be.
    """
    mean: Vector = vector / weight
    if parameters.decoder == MeanDecoder.UNBIASED or parameters.radius is None:
        return mean
    return mean * shrinkage_of(parameters, parties, vector.size, weight, responding)


def shrinkage_of(
    parameters: CordpDmeParameters, parties: int, dimension: int, weight: float, responding: int | None = None
) -> float:
    """1 / (1 + x), where x is the squared L2 error of the mean of all responders over radius^2 (CorDP-DME, Proposition 1).

    Public weights are a scale: a party of weight w holds the sum of w vectors in the ball, so the mean of all lies in the ball
    as well, whatever the weights; and the noise in the sum does not depend on them. With W the ``weight`` of all, the error is
    that noise over W^2, and of all multiples of the mean this one has the least worst-case error over the ball.

    Raises :class:`InputError` where the weights do not tell how many are ``responding``.
    """
    if parameters.radius is None:
        return 1.0
    number = round(weight) if responding is None else responding
    if not 1 <= number <= parties or (responding is None and abs(weight - number) > 1e-9 * parties):
        raise InputError(f"the weights sum to {weight:g}. Say how many parties responded, or give every party weight 1.")
    return shrinkage(dimension * parameters.noise_in_sum(parties, number) / weight**2, parameters.radius)


class LateDecoder:
    """Estimates that improve with every late message.

    Privacy is accounted as if all n messages arrived, so a late one costs nothing. Its shared noise cancels against that of the
    messages that arrived before. Raises :class:`InputError` if there is an aggregator, since late messages then go to it.
    """

    def __init__(self, parameters: CordpDmeParameters, parties: int) -> None:
        if parameters.aggregator is not None:
            raise InputError(f"party {parameters.aggregator} aggregates: late messages go to it. Give no single ones.")
        self._parameters = parameters
        self._parties = parties
        self._releases: dict[PartyId, Release] = {}

    def add(self, party: PartyId, release: Release) -> None:
        """Add one more message, with a vector (d,). The same message again changes nothing.

        Raises :class:`InputError` for an unknown party, and for a second, different message of a party.
        """
        if not 0 <= party < self._parties:
            raise InputError(f"party {party} does not exist. Choose one of 0..{self._parties - 1}.")
        earlier = self._releases.setdefault(party, release)
        if not np.array_equal(earlier.vector, release.vector) or earlier.weight != release.weight:
            raise InputError(f"party {party} sent two different messages. Keep the first, the second one would reveal more.")

    @property
    def responding(self) -> int:
        return len(self._releases)

    def estimate(self) -> Vector:
        """The estimate from all messages so far, shape (d,). Raises :class:`ProtocolFailure` if there are none."""
        if not self._releases:
            raise ProtocolFailure("no message has arrived. Wait for one, there is nothing to decode.")
        # In the order of the parties: the same messages give the same sum to the last bit, in whatever order they came.
        releases = [self._releases[party] for party in sorted(self._releases)]
        vector: Vector = np.sum([release.vector for release in releases], axis=0)
        weight = sum(release.weight for release in releases)
        return decode_total(self._parameters, self._parties, vector, weight, len(releases))

    def predicted_mse(self) -> float:
        """Noise variance per coordinate of the unbiased mean of the messages so far, weights 1."""
        return self._parameters.noise_in_sum(self._parties, self.responding) / self.responding**2


def _own_variance(protocol: CordpDmeParameters, schedule: Schedule) -> Array | None:
    """Under what it shares with all partners; with a collector nobody sees a release alone."""
    if protocol.aggregator is not None:
        return None
    variance: Array = protocol.sigma_own**2 + schedule.partner_counts * protocol.sigma_pair**2
    return variance


def _noise_of_sum(protocol: CordpDmeParameters, schedule: Schedule, counted: Mask) -> float:
    # What two partners share cancels if both responded.
    cut = int((counted[schedule.pairs[:, 0]] != counted[schedule.pairs[:, 1]]).sum()) if schedule.pairs.size else 0
    return int(counted.sum()) * protocol.sigma_own**2 + cut * protocol.sigma_pair**2


def _released_variance(protocol: CorDPDME, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
    counted = protocol.contributors(schedule, trace)
    if not counted.any():
        return math.inf
    return _noise_of_sum(protocol, schedule, counted) / float(weights[counted].sum()) ** 2


def _check_parties(protocol: CorDPDME, parties: int) -> None:
    """Raises :class:`InputError` for an unknown aggregator, and for an odd or impossible number of partners."""
    check_collector(protocol.aggregator, parties)
    partners = protocol.partners
    if partners is not None and (partners < 2 or partners % 2 or partners >= parties):
        raise InputError(
            f"partners is {partners} with {parties} parties. Choose an even number >= 2 and below the number of parties, "
            "or leave it out to share noise with everybody."
        )


def _planned_for(protocol: CorDPDME, target: Target, domain: InputDomain) -> CorDPDME:
    """The target with a ball around 0 that holds any domain, unless another one was asked for."""
    by_default = protocol.decoder == MeanDecoder.BIASED and protocol.radius == round_up(target.sensitivity / 2)
    held = Ball(size=target.dimension, radius=protocol.radius).contains(domain) if protocol.radius is not None else True
    return replace(protocol, radius=round_up(domain.farthest(0.0))) if by_default and not held else protocol


def _domain(protocol: CorDPDME, target: Target) -> InputDomain:
    """The ball of the stated radius, no wider than the sensitivity; without a radius as for other protocols."""
    if protocol.radius is None:
        return unit_cube(protocol, target)
    return InputDomain.ball(target.dimension, min(protocol.radius, target.sensitivity / 2))


def _region(protocol: CorDPDME, target: Target, weight: float) -> Box | Ball | None:
    """The ball of the stated radius, for which its decoder and its error are made; without a radius that of the grid."""
    if protocol.radius is None:
        return grid_region(protocol, target, weight)
    return Ball(size=target.dimension, radius=weight * protocol.radius)


def _figures(protocol: CorDPDME, target: Target) -> dict[str, Any]:
    """The figures in the paper's terms: errors are squared L2 errors, total over coordinates, for the planned responders."""
    degree = protocol.degree(target.parties)
    sigma2 = protocol.sigma_own**2 + degree * protocol.sigma_pair**2
    responding = target.responding
    unbiased = _error(replace(protocol, decoder=MeanDecoder.UNBIASED), target, responding)
    figures = {
        "responding": responding,
        "sigma2": sigma2,
        "rho": -(protocol.sigma_pair**2) / sigma2 if sigma2 else 0.0,
        "mse_unbiased": unbiased,
    }
    if protocol.radius is not None:
        figures["mse_biased"] = biased_mse(unbiased, protocol.radius)
        figures["epsilon_on_ball"] = _epsilon_on_ball(target, protocol.radius)
    unit = gaussian_variance(target.epsilon, target.delta, target.sensitivity)
    least_variance = least_error(target.parties, responding, target.colluding, unit)
    figures["mse_unbiased_least"] = target.dimension * least_variance / responding
    return figures


def _noise_variance(protocol: CorDPDME, target: Target) -> float:
    """Before the biased decoder shrinks the mean: the most that its error can be."""
    return _predicted(replace(protocol, decoder=MeanDecoder.UNBIASED), target)[0]


class CorDPDME(CordpDmeParameters, Mechanism):
    """One round. Before it every pair expands its shared noise; in it each party publishes one message, or sends it.

    A party that misses the round publishes nothing: it dropped out after the noise was agreed.
    """

    name = "cordp-dme"
    TRAITS = Traits(
        summary="one message a party; paired noise cancels unless a party drops out; error between local-dp's and a curator's",
        sources=(literature.CORDP_DME,),
        keeps_target=True,
        batchable=False,
        shares_noise=True,
        checks=Checks(own_release_variance=_own_variance, released_variance=_released_variance),
        unpromised_if_read="its messages go to a collector, and what each alone would tell is not planned for",
        grid=step_of,
        check_parties=_check_parties,
        inputs=AcceptedValues(_domain, _region, check=check_on_grid, planned_for=_planned_for),
        planning=Planning(noise_variance=_noise_variance, figures=_figures),
        decode=decode_total,
    )
    rounds = 1

    @cached_property
    def traits(self) -> Traits:
        everybody, alone = self.partners is None, self.aggregator is None
        return replace(
            with_collector(self.TRAITS, self.aggregator),
            # Any other graph is drawn from a public seed, which by file has no owner.
            by_file=everybody and alone,
            already_public=ALL_PUBLISHED if alone else None,
            # The biased decoder knows how far a mean of records reaches only if it knows how many they are.
            hides_counts=self.decoder == MeanDecoder.UNBIASED,
            # All pairs are listed.
            planning_cost=PlanningCost(numbers=0.0 if self.partners else 2.7),
        )

    def with_noise(self, star: float, delta: float) -> Self:
        return replace(self, sigma_own=star, sigma_pair=delta)

    def design(self, target: Target) -> Design:
        """The optimum by formula; on a sparse graph where all coalitions can be tried, by exact accounting of all."""
        start: CorDPDME = template_of(self._with_radius(target.sensitivity / 2), target)
        unit = gaussian_variance(target.epsilon, target.delta, target.sensitivity)
        levels, certificate = start._levels(target, unit)
        levels = levels._with_grid(target)
        noise, lost = _predicted(levels, target)
        return Design(levels, noise, lost, certificate)

    def _with_grid(self, target: Target) -> Self:
        """The parameters on a grid, with as much more noise as whole numbers need."""
        from quietmean.privacy import GridLossConversion, mu_of_budget
        from quietmean.protocols.cordp_dme.design import grid_bound

        gridded = replace(self, **self.on_grid(target, [self.sigma_own, self.sigma_pair]))
        pairs = gridded.draw_schedule(target.parties, Seed.public("figures")).pairs
        conversion = grid_bound(gridded, pairs, np.ones(target.parties, dtype=np.bool_))
        if not isinstance(conversion, GridLossConversion):
            return gridded
        more = conversion.inflation(mu_of_budget(target.epsilon, target.delta), target.parties)
        return replace(gridded, sigma_own=round_up(gridded.sigma_own * more), sigma_pair=round_up(gridded.sigma_pair * more))

    def _levels(self, target: Target, unit: float) -> tuple[Self, str]:
        """The noise of the least error, and how it is certified; ``unit`` is s, the variance of the Gaussian mechanism."""
        responding = target.responding
        if self.partners is None:
            design = optimal_design(target.parties, responding, target.colluding, unit)
            own, pair = design.own, design.pair
            certificate = f"any coalition of {target.colluding}, by formula, as if all {target.parties} messages arrived"
            if design.excess:
                certificate += f"; within {design.excess:.2g} of the least error that unlimited shared noise would reach"
        else:
            sparse = sparse_design(target.parties, responding, target.colluding, unit, self.partners)
            own, pair = sparse.own, sparse.pair
            how = "exact" if sparse.exhaustive else "by formula"
            error = f"error {sparse.cost:.3g} times the least with noise shared in all pairs"
            certificate = f"any coalition of {target.colluding}, {how}; {error}"
        return replace(self, sigma_own=round_up(math.sqrt(own)), sigma_pair=round_up(math.sqrt(pair))), certificate

    def _with_radius(self, least: float) -> Self:
        """The parameters with a ball that the biased decoder can use, of this radius where none was asked for."""
        needed = self.decoder == MeanDecoder.BIASED and self.radius is None
        return replace(self, radius=round_up(least)) if needed else self

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float | None:
        """The error of the biased decoder: shrunk noise, plus the square of the largest bias in one coordinate."""
        if self.decoder == MeanDecoder.UNBIASED or self.radius is None:
            return None
        counted = self.contributors(schedule, trace)
        number, weight = int(counted.sum()), float(weights[counted].sum())
        if not number:
            return math.inf
        noise = _noise_of_sum(self, schedule, counted) / weight**2
        if self.dimension is None:
            # Float64 noise is not planned for a number of coordinates: by how much it shrinks is not known here.
            return max(noise, self.radius**2)
        kept = shrinkage_of(self, schedule.parties, self.dimension, weight, number)
        return kept**2 * noise + ((1 - kept) * self.radius) ** 2

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        pairs = all_pairs(parties) if self.partners is None else sparse_pairs(parties, self.partners, seed)
        return Schedule.from_lists([to_collector(parties, self.aggregator)], parties, pairs)

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        own, pair = self.sigma_own**2, self.sigma_pair**2
        if self.partners is None:
            information = all_pairs_information(own, pair, parties, 0, size)
        else:
            information = place_information(own, pair, parties, self.partners, size)
        pairs = all_pairs(parties) if self.partners is None else place_pairs(parties, self.partners)
        from quietmean.protocols.cordp_dme.design import grid_bound

        conversion = grid_bound(self, pairs, np.ones(parties, dtype=np.bool_))
        return conversion.promise(
            sensitivity * math.sqrt(information), "the planned noise, as if all messages arrived: fewer tell less"
        )

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        return worst_coalition(self, schedule, trace, sensitivity, size)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        publishes = trace.online[1] & (schedule.out_degree[0] == 0)
        arrived = trace.delivered(schedule)[0] & publishes[schedule.neighbours[0]]
        counted: Mask = publishes | arrived.any(axis=1)
        return counted

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> CordpDmeParty:
        self.TRAITS.inputs.check(self, value)
        return CordpDmeParty(self, schedule, party, value, weight, noise)

    population = population

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        from quietmean.protocols.cordp_dme.design import masked_loss

        return masked_loss(self, schedule, self.contributors(schedule, trace))


def _predicted(parameters: CordpDmeParameters, target: Target) -> tuple[float, float]:
    """Per coordinate: noise, and lost values that are uniform over the domain."""
    # An aggregator that would have left stays: then one more responds.
    chances = target.responding_with(indispensable=0 if parameters.aggregator is None else 1)
    noise = sum(chance * _error(parameters, target, count) / target.dimension for count, chance in chances.items())
    lost = sum(chance * target.dropout_bias(count) for count, chance in chances.items())
    return noise, lost


def _error(parameters: CordpDmeParameters, target: Target, responding: int) -> float:
    """Squared L2 error for ``responding`` parties; of the biased decoder, in the worst case."""
    unbiased = target.dimension * parameters.noise_in_sum(target.parties, responding) / responding**2
    if parameters.decoder == MeanDecoder.BIASED and parameters.radius is not None:
        return biased_mse(unbiased, parameters.radius)
    return unbiased


def _epsilon_on_ball(target: Target, radius: float) -> float:
    """What the noise is worth, at the same delta, if a value may become any other in the ball."""
    from quietmean.privacy import GAUSSIAN, mu_of_budget

    mu = mu_of_budget(target.epsilon, target.delta) * ball_sensitivity(radius) / target.sensitivity
    return GAUSSIAN.epsilon(mu, target.delta)


__all__ = [
    "PROTOCOL",
    "CorDPDME",
    "LateDecoder",
    "SensitivityConvention",
    "ball_sensitivity",
    "gaussian_variance",
    "least_error",
    "optimal_design",
    "responder_curve",
    "sparse_design",
]

PROTOCOL = CorDPDME
