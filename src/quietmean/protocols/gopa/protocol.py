"""GOPA: values are published under noise that pairs share. The noise shared with absent partners is removed again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.assumptions import SHARED_KEYS, Assumption, Key
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.rounding import round_up
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import literature
from quietmean.protocols.gopa.outcome import GopaOutcome
from quietmean.protocols.gopa.party import GopaAggregator, GopaParty
from quietmean.protocols.gopa.population import population
from quietmean.protocols.gopa.spec import ROUNDS, GopaParameters, default_partners, draw_pairs, list_bytes
from quietmean.protocols.kinds import Aggregated
from quietmean.protocols.protocol import Server
from quietmean.protocols.target import Target
from quietmean.randomness import Seed

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion


class GOPA(GopaParameters, Aggregated):
    """Three rounds: publish to the aggregator; receive the list of those that did; roll back the noise shared with the others.

    Only the aggregator and its coalition see what a party sends; the total is public. Against coalitions with the aggregator this
    is the papers' reading, in which everything published is public; calibration tries such coalitions. The aggregator must stay,
    and its list of those that published must be true: like all parties here it is honest but curious.
    """

    name = "gopa"
    sources = (literature.GOPA,)
    summary = "values are published under noise that pairs share; who stays takes out what absent partners left"
    server = Server.AGGREGATOR
    guarantee = (
        "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional, if the collector says truly "
        "who published"
    )
    trust = "a collector that stays and says truly who published; it is not trusted with values"
    unheard = "what whole numbers cost is proven for messages that only its collector sees, or everybody"
    rounds = ROUNDS

    def resolved(self, parties: int) -> Self:
        return super(GOPA, self.filled(partners=max(1, default_partners(parties)))).resolved(parties)

    def own_assumptions(self) -> tuple[Assumption, ...]:
        return (
            Assumption(
                Key.AGGREGATOR, f"The collector, party {self.aggregator}, stays and says truly who published; it may collude."
            ),
            SHARED_KEYS,
        )

    def defaults(self, target: Target) -> dict[str, Any]:
        return {"partners": max(1, default_partners(target.parties, target.colluding))}

    def with_noise(self, star: float, delta: float) -> Self:
        return replace(self, sigma_star=star, sigma_delta=delta)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        to, back = self.to_aggregator(parties), self.from_aggregator(parties)
        return Schedule.from_lists([to, back, to], parties, draw_pairs(parties, self.partners, seed))

    def content_limit(self, parties: int, dimension: int) -> int:
        return list_bytes(parties)

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        # The party's own noise moves by the change itself, which is whole: nothing is rounded.
        draws = parties + (parties * (parties - 1) // 2 if self.sigma_delta else 0)
        return self.grid_loss([self.sigma_star], draws).promise(
            sensitivity / self.sigma_star if self.sigma_star else np.inf,
            "each party's own noise: a value that comes too late is seen, and others have taken its cover out",
        )

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        from quietmean.protocols.gopa.worst_case import worst_coalition

        return worst_coalition(self, schedule, trace, sensitivity, size)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> NDArray[np.bool_]:
        return GopaOutcome.of(self.aggregator, schedule, trace).arrived

    def machine(
        self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> GopaParty | GopaAggregator:
        self.check_values(value)
        kind = GopaAggregator if party == self.aggregator else GopaParty
        return kind(self, schedule, party, value, weight, noise)

    population = population

    def finalize(self, target: Target) -> Self:
        """On a grid, with so much more noise as whole numbers need."""
        from quietmean.privacy import GridLossConversion, mu_of_budget
        from quietmean.protocols.gopa.loss import masked_loss

        found = replace(self, **self.on_grid(target, [self.sigma_star, self.sigma_delta]))
        schedule = found.draw_schedule(target.parties, Seed.public("figures"))
        conversion = masked_loss(found, schedule, ExecutionTrace.everyone(ROUNDS, target.parties))
        if not isinstance(conversion, GridLossConversion):
            return found
        more = conversion.inflation(mu_of_budget(target.epsilon, target.delta), target.parties)
        return replace(found, sigma_star=round_up(self.sigma_star * more), sigma_delta=round_up(self.sigma_delta * more))

    def loss_conversion(
        self, schedule: Schedule, trace: ExecutionTrace, weights: NDArray[np.float64], delta: float
    ) -> LossConversion:
        from quietmean.protocols.gopa.loss import masked_loss

        return masked_loss(self, schedule, trace)
