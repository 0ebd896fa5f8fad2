"""IncA: incremental averaging with correlated noise that each party cancels itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.input_domain import Box
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.rounding import round_up
from quietmean.core.schema import OPEN
from quietmean.graphs import ExecutionTrace, Schedule, make_schedule
from quietmean.protocols import literature
from quietmean.protocols.discrete import NoiseKind
from quietmean.protocols.eavesdropping import Eavesdropping
from quietmean.protocols.inca.before_release import guarded, hidden_variance
from quietmean.protocols.inca.connection import rounds_that_connect
from quietmean.protocols.mechanism import Mechanism, is_private
from quietmean.protocols.push_sum.fixed_point import check_room, choose_grid, grid_figures, region_of, share_bytes, whole_grid
from quietmean.protocols.push_sum.parameters import Injection, PushSumParameters
from quietmean.protocols.push_sum.party import PushSumParty
from quietmean.protocols.push_sum.population import contributing, parts_released, population
from quietmean.protocols.target import Target
from quietmean.protocols.traits import PlanningCost, ReleaseGate, Traits
from quietmean.randomness import Seed

if TYPE_CHECKING:
    from quietmean.privacy import GridLossConversion, LossConversion


# Certificates of more parties take far longer with noise that is all injected at once: its terms last over all rounds.
MOST_EARLY = 60


# From how many rounds to how many the best number is searched, and in which steps.
_FEWEST_ROUNDS, _MOST_ROUNDS, _STEP = 8, 128, 1.5
# Of few parties more rounds than half their number are tried as long as executions have no more messages.
_QUICK_MESSAGES = 2400

# Where most messages are read, more rounds than this many times the usual number do not pay.
_MOST_TIMES = 4


def default_rounds(parties: int, eavesdropping: Eavesdropping | None = None) -> int:
    """Enough rounds that unseen messages connect the honest parties, also when half of all parties collude.

    As many more as an eavesdropper reads, if it is chance which messages; no number of rounds helps where all are, or all later
    ones.
    """
    usual = math.ceil(math.log2(parties)) + 6
    if not isinstance(eavesdropping, float | int) or eavesdropping >= 1:
        return usual
    return math.ceil(usual * min(1 / (1 - eavesdropping), _MOST_TIMES))


def _worst_coalition(parameters: PushSumParameters, schedule: Schedule, *of: Any) -> CoalitionBound:
    # Running parties need no proofs: they start without this import.
    from quietmean.protocols.inca.worst_case import worst_coalition

    return worst_coalition(parameters, schedule, *of)


class IncA(PushSumParameters, Mechanism):
    """Parties mix shares of what they hold for some rounds; the noise that hides them is cancelled meanwhile (PETS 2026)."""

    name = "inca"
    TRAITS = Traits(
        summary="peer to peer, cancels low-variance correlated noise incrementally; central accuracy without dropouts",
        sources=(literature.INCA,),
        keeps_target=True,
        transfers_mass=True,
        coordinate_bytes=share_bytes,
        planning_cost=PlanningCost(seconds_a_party=1.2e-2),
        gate=ReleaseGate(hidden_variance, guarded, _worst_coalition),
        counts_intercepted=True,
    )

    def defaults(self, target: Target) -> dict[str, Any]:
        given, discrete = self.injection, self.noise != NoiseKind.INSECURE_FLOAT64
        if isinstance(given, Injection) and discrete and not given.portions:
            replace(self, rounds=given.rounds).require_whole()
        # In whole numbers values that are injected at once need no finer steps than the noise.
        # But a party that leaves then takes more uncancelled noise along; and of few honest parties some cannot pass it all on.
        early = discrete and target.parties <= MOST_EARLY and not target.dropouts and 2 * target.colluding < target.parties
        usual = "early" if early else "incremental"
        own = default_rounds(target.parties, target.eavesdropping)
        return {"rounds": given.rounds if isinstance(given, Injection) else own, "injection": usual}

    def alternatives(self, target: Target) -> list[Self]:
        if self.rounds is OPEN and not isinstance(self.injection, Injection):
            return [self.filled(rounds=rounds) for rounds in self._rounds_to_try(target)]
        if self.injection is OPEN and self.noise != NoiseKind.INSECURE_FLOAT64 and target.parties <= MOST_EARLY:
            return [self.filled(injection=injection) for injection in ("early", "incremental")]
        return []

    def _rounds_to_try(self, target: Target) -> list[int]:
        """From as many as connect the honest parties to half the number of parties; more help against what leavers leave."""
        usual = default_rounds(target.parties, target.eavesdropping)
        if target.eavesdropping is not None:
            return [usual]
        quick = min(_MOST_TIMES * usual, _QUICK_MESSAGES // target.parties)
        most = max(usual, min(max(target.parties // 2, quick), _MOST_ROUNDS))
        gone = target.colluding + target.parties - target.responding
        least = _FEWEST_ROUNDS
        if self.out_degree == 1:
            least = max(least, rounds_that_connect(target.parties, min(gone, target.parties), self.schedule, most))
        elif least < usual:
            least = usual
        steps = max(1, math.ceil(math.log(most / least) / math.log(_STEP)))
        return sorted({round(least * (most / least) ** (step / steps)) for step in range(steps + 1)})

    def resolved(self, parties: int) -> Self:
        return super(IncA, self.filled(injection="incremental")).resolved(parties)

    def with_noise(self, star: float, delta: float) -> Self:
        return replace(self, sigma_star=star, sigma_delta=delta)

    @property
    def traits(self) -> Traits:
        # Without noise that is cancelled there is only that of each party's own, which is calibrated for itself. What rounding
        # adds is proven for attendance that is not chosen from what was seen.
        gate = self.TRAITS.gate if self.sigma_delta else None
        return replace(self.TRAITS, gate=gate, refunds=not self.grid)

    def finalize(self, target: Target) -> Self:
        """The parameters on a grid, with as much more noise as whole numbers need."""
        if self.noise == NoiseKind.INSECURE_FLOAT64:
            if self.value_bits == 64:
                return self
            grid, largest = choose_grid(self, target)
            return replace(self, grid=grid, largest_value=largest, dimension=target.dimension)
        if not is_private(self):
            return self
        from quietmean.privacy import mu_of_budget
        from quietmean.protocols.inca.loss import own_noise_loss, planned_loss

        gridded = replace(self, **whole_grid(self, target))
        loss: GridLossConversion
        if not gridded.sigma_delta:
            loss = own_noise_loss(gridded, target.parties)
        else:
            loss = planned_loss(gridded, gridded.draw_schedule(target.parties, Seed.public("figures")), target.dropouts)
        more = loss.inflation(mu_of_budget(target.epsilon, target.delta), target.parties)
        levels: dict[str, Any] = {
            name: round_up(getattr(self, name) * more) for name in ("sigma_star", "sigma_delta", "sigma_guard")
        }
        return replace(gridded, **levels)

    def report_fields(self, target: Target) -> dict[str, Any]:
        """With a grid: its step over the smallest standard deviation of any noise, and what it adds to mu squared at most."""
        return grid_figures(self, self.draw_schedule(target.parties, Seed.public("figures")), target)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return make_schedule(self.schedule, seed, parties, self.rounds, self.out_degree)

    def value_region(self, target: Target, weight: float = 1.0) -> Box | None:
        return region_of(self, target.dimension)

    def check_values(self, values: Vector) -> None:
        check_room(self, values)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        return contributing(self, schedule, trace)

    def parts(self, schedule: Schedule, trace: ExecutionTrace) -> Array:
        return parts_released(self, schedule, trace)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PushSumParty:
        self.check_values(value)
        return PushSumParty(self, schedule, party, value, weight, noise)

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        mu = sensitivity / self.sigma_star if self.sigma_star else np.inf
        why = "each party's own noise: all that is cancelled may lose its cover if shares are lost"
        if not self.whole:
            return APriori(mu, why)
        from quietmean.protocols.inca.loss import own_noise_loss

        return own_noise_loss(self, parties).promise(mu, why)

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        return _worst_coalition(self, schedule, trace, sensitivity, size)

    population = population

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        if not self.grid:
            return super().loss_conversion(schedule, trace, weights, delta)
        from quietmean.protocols.inca.loss import RoundedLossConversion, whole_loss

        return whole_loss(self, schedule, trace) if self.whole else RoundedLossConversion(self, schedule, trace)
