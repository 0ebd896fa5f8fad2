"""GOPA: values are published under noise that pairs share. The noise shared with absent partners is rolled back."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from quietmean.core.arrays import Array, Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori, CoalitionBound, round_up
from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.schema import OPEN, filled
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.graphs.schedule import check_others
from quietmean.protocols import literature
from quietmean.protocols.collector import check_collector, from_collector, to_collector, with_collector
from quietmean.protocols.discrete import ON_GRID, step_of
from quietmean.protocols.gopa.design import check_partners, expected_left_over, kept_information, least_present, peer_design
from quietmean.protocols.gopa.outcome import GopaOutcome, PeerOutcome
from quietmean.protocols.gopa.party import (
    HERE,
    PEER_ROUNDS,
    ROUNDS,
    GopaAggregator,
    GopaParameters,
    GopaParty,
    GopaPeer,
    GopaPeerState,
    default_partners,
    default_peers,
    draw_pairs,
    exchange_schedule,
    list_bytes,
    pair_chance,
)
from quietmean.protocols.gopa.population import population
from quietmean.protocols.mechanism import Closing, Design, Mechanism, template_of
from quietmean.protocols.target import Target
from quietmean.protocols.traits import Checks, Planning, Traits, Volume
from quietmean.randomness import Seed

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion

# Why an eavesdropper learns no more than the public, without a collector.
_PUBLISHED = "all that a party sends is published, but for a word that it is there"
_SILENT = Assumption(
    Key.SILENT,
    "A party that published and then sent nothing is taken to have shared noise with every partner that heard it and was not "
    "known to be missed by it; its figure beforehand holds whatever it did.",
)


def _own_variance(protocol: GopaParameters, schedule: Schedule) -> Array | None:
    """With all partners there, who are no fewer than those that were; with a collector nobody sees a release alone."""
    if protocol.aggregator is not None:
        return None
    variance: Array = protocol.sigma_star**2 + schedule.partner_counts * protocol.sigma_delta**2
    return variance


def _check_parties(protocol: GOPA, parties: int) -> None:
    check_collector(protocol.aggregator, parties)
    if protocol.aggregator is None:
        check_partners(protocol.partners, protocol.least_partners, parties)
    elif protocol.least_partners:
        raise InputError(
            f"least_partners is {protocol.least_partners} but party {protocol.aggregator} collects: what it publishes "
            "is the total, leave one of the two out"
        )


def _finalised(protocol: GOPA, target: Target) -> GOPA:
    """The parameters on a grid, with as much more noise as whole numbers need."""
    from quietmean.privacy import GridLossConversion, mu_of_budget

    gridded = replace(protocol, **protocol.on_grid(target, [protocol.sigma_star, protocol.sigma_delta]))
    conversion = gridded._with_everyone(target.parties)
    if not isinstance(conversion, GridLossConversion):
        return gridded
    more = conversion.inflation(mu_of_budget(target.epsilon, target.delta), target.parties)
    return replace(gridded, sigma_star=round_up(protocol.sigma_star * more), sigma_delta=round_up(protocol.sigma_delta * more))


class GOPA(GopaParameters, Mechanism):
    """Without a collector two rounds: pairs tell each other that they share noise; then every party publishes its value.

    The noise shared with a party that was not there is left out before it is published, so that no rollback is seen. Everything
    published is public: the papers' reading. A party that leaves between the rounds leaves its noise with its partners.

    With a collector three rounds: send to it; receive the list of those that did; roll back the noise shared with the others.
    Only the collector and its coalition see what a party sends; the total is public. Calibration tries coalitions with it. It
    must stay, and its list of those that sent must be true: like all parties here it is honest but curious.
    """

    name = "gopa"
    TRAITS = Traits(
        summary="values are published under noise that pairs share; who stays takes out what absent partners left",
        sources=(literature.GOPA,),
        trust_with_collector="a collector that stays and says truly who published; it is not trusted with values",
        shares_noise=True,
        keeps_target=True,
        batchable=False,
        checks=Checks(own_release_variance=_own_variance),
        guarantee=(
            "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional; where a collector is "
            "asked for, if it says truly who published"
        ),
        unpromised_if_read="what whole numbers cost is proven for messages that only its collector sees, or everybody",
        grid=step_of,
        inputs=ON_GRID,
        check_parties=_check_parties,
        planning=Planning(finalised=_finalised),
    )

    @cached_property
    def traits(self) -> Traits:
        if self.aggregator is None:
            # Of a party that published and then left, the number of partners that it shared noise with is not known.
            return replace(self.TRAITS, refunds=False, already_public=_PUBLISHED, assumptions=(_SILENT,))
        sentence = f"The collector, party {self.aggregator}, stays and says truly who published; it may collude."
        return replace(
            with_collector(self.TRAITS, self.aggregator),
            keeps_target=False,
            promising_options="without aggregator",
            assumptions=(Assumption(Key.AGGREGATOR, sentence),),
        )

    @property
    def rounds(self) -> int:
        return PEER_ROUNDS if self.aggregator is None else ROUNDS

    def resolved(self, parties: int) -> Self:
        return super(GOPA, filled(self, partners=max(1, default_partners(parties)), least_partners=0)).resolved(parties)

    def defaults(self, target: Target) -> dict[str, Any]:
        if self.partners is not OPEN:
            check_others("partners", self.partners, target.parties)
        if self.aggregator is not None:
            return {"partners": max(1, default_partners(target.parties, target.colluding))}
        partners = filled(self, partners=default_peers(target.parties, target.colluding)).partners
        return {"partners": partners, "least_partners": least_present(target, min(partners, target.parties - 1))}

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        pairs = draw_pairs(parties, self.partners, seed)
        if self.aggregator is None:
            return exchange_schedule(parties, pairs)
        to, back = to_collector(parties, self.aggregator), from_collector(parties, self.aggregator)
        return Schedule.from_lists([to, back, to], parties, pairs)

    def traffic(self, parties: int, dimension: int) -> Volume:
        if self.aggregator is None:
            here = len(HERE)
            return Volume(float(here), pair_chance(parties, self.partners) * (parties - 1), here)
        return replace(super().traffic(parties, dimension), content_limit=list_bytes(parties))

    def ending(self, state: Any) -> Closing:
        least_partners = self.least_partners
        if not isinstance(state, GopaPeerState) or len(state.sharing) >= least_partners:
            return Closing(self)
        warning = (
            f"only {len(state.sharing)} partners were there to share noise: with fewer than {least_partners} a party "
            "publishes nothing"
        )
        return Closing(self, (warning,))

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        if self.aggregator is None:
            honest = self.least_partners - size
            information = kept_information(self.sigma_star**2, self.sigma_delta**2, honest)
            return self._with_everyone(parties).promise(
                sensitivity * math.sqrt(information),
                f"noise shared with {self.least_partners} partners: with fewer that are there a party publishes nothing"
                if honest > 0
                else "each party's own noise: the partners without whom it publishes nothing are no more than may collude",
            )
        # The party's own noise moves by the change itself, which is whole: nothing is rounded.
        draws = parties + (parties * (parties - 1) // 2 if self.sigma_delta else 0)
        why = "each party's own noise: a value that comes too late is seen, and others have taken its cover out"
        return self.own_promise(sensitivity, self.sigma_star, draws, why)

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        from quietmean.protocols.gopa.loss import worst_coalition

        return worst_coalition(self, schedule, trace, sensitivity, size)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        if self.aggregator is None:
            return PeerOutcome.of(self.least_partners, schedule, trace).published
        return GopaOutcome.of(self.aggregator, schedule, trace).arrived

    def machine(
        self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> GopaPeer | GopaParty | GopaAggregator:
        self.TRAITS.inputs.check(self, value)
        if self.aggregator is None:
            return GopaPeer(self, schedule, party, value, weight, noise)
        kind = GopaAggregator if party == self.aggregator else GopaParty
        return kind(self, schedule, party, value, weight, noise)

    population = population

    def design(self, target: Target) -> Design | None:
        """The optimum by formula, for every history; with a collector noise is calibrated."""
        if self.aggregator is not None:
            return None
        from quietmean.privacy import mu_of_budget

        start: GOPA = template_of(self, target)
        unit = (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2
        left_over = expected_left_over(target, start.partners)
        levels = peer_design(start.least_partners - target.colluding, left_over, unit)
        noisy = start.with_noise(round_up(math.sqrt(levels.own)), round_up(math.sqrt(levels.pair)))
        parameters = _finalised(noisy, target)
        noise = (parameters.sigma_star**2 + left_over * parameters.sigma_delta**2) / target.responding
        certificate = (
            f"any coalition of {target.colluding}, by formula, in every history: {parameters.least_partners} partners or more"
        )
        return Design(parameters, noise, target.dropout_bias(target.responding), certificate)

    def _with_everyone(self, parties: int) -> LossConversion:
        """The bound for whole numbers if everybody is there; without a collector that for every history."""
        from quietmean.protocols.gopa.loss import masked_loss, star_loss

        if self.aggregator is None:
            return star_loss(self, parties)
        schedule = self.draw_schedule(parties, Seed.public("figures"))
        return masked_loss(self, schedule, ExecutionTrace.everyone(self.rounds, parties))

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        from quietmean.protocols.gopa.loss import masked_loss

        return masked_loss(self, schedule, trace)
