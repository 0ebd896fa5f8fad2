"""SecAgg: secure aggregation by double masking, with distributed discrete Gaussian noise.

Bonawitz et al. 2017; the noise is that of Kairouz, Liu and Steinke 2021.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.codec import digest
from quietmean.core.domain import REPLACED
from quietmean.core.grid import Numbers, WholeNumbers
from quietmean.core.input_domain import Ball, InputDomain
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Vector
from quietmean.core.schema import filled
from quietmean.graphs import ExecutionTrace, Schedule, complete_pairs
from quietmean.protocols import literature
from quietmean.protocols.mechanism import Closing, Design, Mechanism, Releases
from quietmean.protocols.packed_sharing.spec import sum_error, sum_released, sum_transcript
from quietmean.protocols.publishing import check_collector, from_collector, to_collector, with_collector
from quietmean.protocols.secagg.batch import follow, least_unknown_of_each, release
from quietmean.protocols.secagg.client import KEYS_BYTES, ClientRules
from quietmean.protocols.secagg.design import around, complete_shape, counted_parties, designed
from quietmean.protocols.secagg.keys import REASON_LIMIT, SEALED_BYTES, SHARE_BYTES, set_size
from quietmean.protocols.secagg.party import ROUNDS, AggregatorParty, ClientParty
from quietmean.protocols.secagg.spec import DEFAULTS, SecAggParameters, check_numbers
from quietmean.protocols.target import Target
from quietmean.protocols.traits import WRAPS, AcceptedValues, Checks, Planning, PlanningCost, Server, Traits, Volume
from quietmean.randomness import Seed
from quietmean.transcript import Transcript

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion


# Bytes on real runs: for each partner (keys, sealed shares there and back, opened shares), and besides.
_BYTES_PER_PARTNER, _OTHER_BYTES = 424, 120


def _check_parties(protocol: SecAgg, parties: int) -> None:
    check_collector(protocol.aggregator, parties)
    check_numbers(protocol, parties)


def _rounding_step(protocol: SecAgg) -> float:
    return protocol.granularity


def _domain(protocol: SecAgg, target: Target) -> InputDomain:
    """The ball to which values are clipped anyway, no wider than the sensitivity."""
    return InputDomain.ball(target.dimension, min(protocol.clip, target.sensitivity / 2), protocol.centre)


def _region(protocol: SecAgg, target: Target, weight: float) -> Ball:
    return Ball(size=target.dimension, radius=weight * protocol.clip, centre=weight * protocol.centre)


def _planned_for(protocol: SecAgg, target: Target, domain: InputDomain) -> SecAgg:
    """Itself where the domain lies in its ball, or where that ball was asked for; else with one around the domain."""
    held = _region(protocol, target, 1.0).contains(domain)
    return protocol if held else around(protocol, target, domain, protocol.graph_failure(target.parties))


def _noise_law(protocol: SecAgg, inputs: int) -> NoiseLaw | None:
    return protocol.law(inputs)


def _noise_variance(protocol: SecAgg, target: Target) -> float:
    return protocol.party_variance / counted_parties(target)


class SecAgg(SecAggParameters, Mechanism):
    """Secure aggregation (Bonawitz et al. 2017) with the distributed discrete Gaussian (Kairouz, Liu and Steinke 2021).

    The declared transcript is the ideal functionality: one sum over the counted parties is published, with the noise of each
    known to it alone, as continuous Gaussians. That the real run shows no more is the computational claim; certificates do
    not use the continuous noise but the bound for the discrete one in :mod:`~quietmean.protocols.secagg.certificate`.
    """

    name = "secagg"
    TRAITS = Traits(
        summary="masked inputs, one aggregator that learns only their noisy sum: error near a curator's, secrecy by cryptography",
        sources=(literature.SECAGG, literature.DISTRIBUTED_DISCRETE_GAUSSIAN),
        keeps_target=True,
        agrees_on_keys=True,
        server=Server.AGGREGATOR,
        trust="an aggregator that follows the protocol",
        guarantee=(
            f"{REPLACED}, against parties that cannot break the encryption. It is an upper bound. "
            "It assumes X25519, HKDF-SHA256, AES-256 and AES-GCM, and an aggregator that follows the protocol"
        ),
        linear=False,
        unpromised_if_read="its claim takes for granted that nobody reads shares of keys",
        hides_counts=False,
        # Schedules of all rounds, to everybody.
        planning_cost=PlanningCost(numbers=10.0),
        checks=Checks(rounding_step=_rounding_step, unnoticed=(WRAPS,), noise_law=_noise_law),
        check_parties=_check_parties,
        inputs=AcceptedValues(_domain, _region, planned_for=_planned_for),
        planning=Planning(noise_variance=_noise_variance),
    )
    rounds = ROUNDS

    def resolved(self, parties: int) -> Self:
        return super(SecAgg, filled(self, **DEFAULTS)).resolved(parties)

    @cached_property
    def traits(self) -> Traits:
        assumptions = (
            Assumption(
                Key.AGGREGATOR,
                f"The aggregator (party {self.aggregator}) gives everybody the same lists. "
                "It follows the protocol as all parties do, but may collude.",
            ),
            Assumption(
                Key.COMPUTING,
                "Nobody can break the encryption (X25519, HKDF-SHA256, AES-256, AES-GCM), and each key came from its owner.",
            ),
        )
        collected = with_collector(self.TRAITS, self.aggregator)
        return replace(collected, assumptions=assumptions, largest_weight=self.largest_weight)

    def numbers(self) -> Numbers:
        return WholeNumbers(self.granularity) if self.is_whole else super().numbers()

    def design(self, target: Target) -> Design:
        check_collector(self.aggregator, target.parties)
        parameters, mse_noise, certificate = designed(self, target, complete_shape(self, target))
        return Design(parameters, mse_noise, target.dropout_bias(counted_parties(target)), certificate)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        inward, outward = to_collector(parties, self.aggregator), from_collector(parties, self.aggregator)
        star = [inward if round_ % 2 else outward for round_ in range(1, ROUNDS + 1)]
        return Schedule.from_lists(star, parties, self._pairs(parties, seed))

    def _pairs(self, parties: int, seed: Seed) -> Ints:
        """The pairs that share a mask, shape (M, 2): all pairs."""
        return complete_pairs(parties)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        return follow(self, schedule, trace).counted

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
        counted = self.contributors(schedule, trace)
        return sum_error(counted, weights, counted.sum() * self.party_variance)

    def traffic(self, parties: int, dimension: int) -> Volume:
        """Averaged over all that one party sends and, as its share, what the aggregator sends for it."""
        partners = parties - 1 if self.neighbours is None else self.neighbours
        masked = (2 if self.bits <= 16 else 4) * self.words(dimension)
        items = (partners + 1) * max(SEALED_BYTES, KEYS_BYTES, 1 + SHARE_BYTES)
        limit = 1 + max(masked, 2 * set_size(parties) + items, REASON_LIMIT)
        return Volume((_BYTES_PER_PARTNER * partners + _OTHER_BYTES + masked) / ROUNDS, content_limit=limit)

    def ending(self, state: Any) -> Closing:
        return Closing(self, (state.failure,) if state.failure else ())

    def machine(
        self,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> ClientParty | AggregatorParty:
        kind = AggregatorParty if party == self.aggregator else ClientParty
        return kind(self.rules(schedule.parties), schedule, party, value, weight, noise)

    def rules(self, parties: int) -> ClientRules:
        """The parameters that all machines of a run share."""
        return ClientRules(self, parties, digest({"protocol": self.name, "parties": parties, **self.describe()}))

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        return sum_transcript(schedule, self.contributors(schedule, trace), self.deviation, by=self.aggregator)

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        from quietmean.protocols.secagg.certificate import DiscreteLossConversion, stated_dimension

        graph = self.graph_failure(schedule.parties)
        return DiscreteLossConversion(self, schedule, follow(self, schedule, trace), stated_dimension(self), delta, graph)

    def graph_failure(self, parties: int) -> float:
        """The chance that the graph of shares does not hide what plans count on; 0 where all parties share."""
        return 0.0

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        from quietmean.protocols.secagg.certificate import promised

        schedule = self.draw_schedule(parties, Seed.public("a priori"))
        return promised(self, schedule, size, sensitivity, delta, self.graph_failure(parties))

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        outcome = follow(self, schedule, trace)
        unknown, chance = least_unknown_of_each(self, schedule, outcome, size)
        with np.errstate(divide="ignore"):
            hidden = sensitivity / (np.sqrt(unknown) * self.deviation)
        whose = "counted parties" if outcome.counted.any() else "parties"
        proof = f"noise of {int(unknown.max())} {whose} that no coalition knows"
        return CoalitionBound(np.where(unknown > 0, hidden, 0.0), proof, chance)

    def batch(
        self, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, noise: PopulationNoise
    ) -> Releases:
        counted = np.nonzero(self.contributors(schedule, trace))[0].tolist()
        by = (np.arange(len(values)) == self.aggregator) & bool(counted)
        nothing = np.zeros(values.shape[1]), 0.0
        return sum_released(by, values, *(release(self, counted, values, weights, noise) if counted else nothing))


__all__ = ["PROTOCOL", "SecAgg", "SecAggParameters"]

PROTOCOL = SecAgg
