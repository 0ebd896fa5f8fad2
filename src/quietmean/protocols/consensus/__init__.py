"""Average consensus by PDMM, ADMM or anything between, with subspace perturbation and adaptive differential quantisation.

ADQSP, by Li, Gundersen, Lopuhaä-Zwakenberg and Heusdens; exact means, hidden by Li, Heusdens and Christensen 2020.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.schema import AUTO, OPEN, given_value, require_complete
from quietmean.graphs import ExecutionTrace, Schedule, components, static_schedule
from quietmean.protocols import literature
from quietmean.protocols.consensus.design import complete, designed, quantisation_error
from quietmean.protocols.consensus.party import ConsensusParty, holds_back
from quietmean.protocols.consensus.population import population
from quietmean.protocols.consensus.quantiser import most_bytes, packed_size
from quietmean.protocols.consensus.spec import ALL, ConsensusParameters, Quantisation
from quietmean.protocols.discrete import ON_GRID
from quietmean.protocols.mechanism import NOTHING_BOUNDS, Closing, Design, Mechanism
from quietmean.protocols.target import ALL_AFTER_FIRST, Target
from quietmean.protocols.traits import Attack, Checks, Traits, Volume
from quietmean.randomness import Seed
from quietmean.transcript import Transcript

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion

HELD_BACK = (
    "the first messages over an edge of this party did not both arrive, so it sent nothing of its value. Start again once all "
    "parties can be reached"
)


def _linear(protocol: Consensus) -> Consensus | None:
    """The protocol without a quantiser: the first differences before they are quantised determine all that is sent."""
    if protocol.local_noise not in ("none", "gaussian"):
        return None
    return protocol if protocol.quantisation is None else protocol.quantised(None)


def _tails(protocol: Consensus, dimension: int) -> float:
    """Tails of quantisers are bounded, too, where no error is larger than half a cell.

    A uniform number has tails no heavier than the Gaussian of its variance, and each error is independent of all else
    (:mod:`.quantiser`).
    """
    known = protocol.quantisation is None or protocol.send_overloads
    return 1.0 if known and protocol.local_noise in ("none", "gaussian") else math.inf


def _reach(protocol: Consensus, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
    """Iterations that have not come to rest hold negative parts of some values."""
    from quietmean.protocols.consensus.error import value_reach

    return value_reach(protocol, schedule, trace, weights)


def _parts(protocol: Consensus, schedule: Schedule, trace: ExecutionTrace) -> Array:
    if not protocol.keeps_edges:
        return protocol.contributors(schedule, trace).astype(np.float64)
    from quietmean.protocols.consensus.error import value_parts

    return value_parts(protocol, schedule, trace) * protocol.contributors(schedule, trace)


class Consensus(ConsensusParameters, Mechanism):
    """PDMM or ADMM on a graph; noise on the edges never reaches the result, noise on the values does."""

    name = "consensus"
    TRAITS = Traits(
        summary="PDMM or ADMM on a graph with noise that never reaches the result; no party may leave for good early",
        sources=(literature.ADQSP, literature.SUBSPACE_PERTURBATION, literature.PDMM, literature.ADMM),
        aliases=MappingProxyType({"adqsp": {}, "pdmm": {"theta": 0.0}, "admm": {"theta": 0.5}}),
        tolerates_dropouts=False,
        trust="no server; parties must stay to the end",
        guarantee=(
            "sums of connected parties are exact. The information matrix bounds all else. "
            "It gives (epsilon, delta) only with Gaussian local noise, and mutual information in any case. "
            "It is an upper bound where messages are quantised"
        ),
        releases_are_public=False,
        refuses_messages=True,
        batchable=False,
        keeps_nats=True,
        overheard=True,
        # Only the first messages are not public, and the transcripts count them for each edge.
        ignores_unused=True,
        fixed_schedule=True,
        after_first_public="every message after the first round counts as overheard by everybody",
        attack=Attack(linear=_linear),
        transcript_is_full=False,
        checks=Checks(reach=_reach, tails=_tails),
        unpromised_if_read=f"an edge whose first message is read hides nothing; {ALL_AFTER_FIRST} is what it always counts with",
        inputs=ON_GRID,
        parts=_parts,
    )
    # Not one of the protocols that are compared by default: a plan with dropouts is refused.
    # Over an edge that it has given up, though the other end may not have.

    @cached_property
    def traits(self) -> Traits:
        # What a quantiser leaves is not Gaussian, nor is noise of other kinds.
        linear = self.bits is None and self.local_noise in ("none", "gaussian")
        options = "" if self.open_edges == ALL else f"open_edges = {ALL}"
        return replace(self.TRAITS, linear=linear, gaussian_noise=linear, promising_options=options)

    def resolved(self, parties: int) -> Self:
        require_complete(self)
        return complete(self, parties)

    def defaults(self, target: Target) -> dict[str, Any]:
        usual = {"theta": 0.2, "c": AUTO, "local_noise": "gaussian"}
        return usual if self.edges is not OPEN else {**usual, "graph": "geometric"}

    def with_noise(self, star: float, delta: float) -> Self:
        local = given_value(self.local_noise, "none") if star > 0 else "none"
        return replace(
            self,
            sigma_local=star,
            local_noise="gaussian" if star > 0 and local == "none" else local,
            sigma_z=float(delta),
        )

    def design(self, target: Target) -> Design:
        parameters, error, certificate = designed(self, target)
        return Design(parameters, error, 0.0, certificate)

    def ending(self, state: Any) -> Closing:
        if holds_back(self, state.edges):
            return Closing(self, (HELD_BACK,))
        if not state.overloads:
            return Closing(self)
        warning = (
            f"{state.overloads} entries overloaded this party's quantisers, the last in iteration {state.last_overload}: "
            "its error is larger than predicted, take more bits or a slower gamma"
        )
        return Closing(self, (warning,))

    def traffic(self, parties: int, dimension: int) -> Volume:
        if self.quantisation is None:
            return Volume(8.0 * dimension)
        packed = packed_size(self.quantisation, dimension)
        average = (8.0 * dimension + (self.rounds - 1) * packed) / self.rounds
        return Volume(average, content_limit=most_bytes(self.quantisation, dimension))

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
        from quietmean.protocols.consensus.error import error_variance, residual_quantisation

        return error_variance(self, schedule, trace, weights) + max(
            quantisation_error(self), residual_quantisation(self, schedule, trace, weights)
        )

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        if self.open_edges == ALL:
            from quietmean.protocols.consensus.loss import promise

            if (size, sensitivity) not in self._promises:
                self._promises[size, sensitivity] = promise(self, size, sensitivity)
            return self._promises[size, sensitivity]
        draws = parties + self.deviations.size
        if self.local_noise != "gaussian" or not self.sigma_local:
            # Nor does anything bound mu; what is sampled is counted all the same.
            why = "an edge whose first messages do not both arrive hides nothing" if self.keeps_edges else NOTHING_BOUNDS
            return self.grid_loss([], draws).promise(math.inf, why)
        why = "the noise on each value: an edge that is given up no longer hides anything"
        return self.own_promise(sensitivity, self.sigma_local, draws, why)

    @cached_property
    def _promises(self) -> dict[tuple[int, float], APriori]:
        return {}

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound | None:
        from quietmean.protocols.consensus.loss import worst_coalition

        return worst_coalition(self, schedule, trace, sensitivity, size)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        """The largest group of parties that are connected by edges in use at the end: they end with their common mean.

        Where no edge is given up, what a party left on its edges stays in the mean: it counts in part (:attr:`Traits.parts`).
        """
        from quietmean.protocols.consensus.spec import Deliveries, edges_in_use

        used = edges_in_use(self, schedule, trace)
        # An edge to a party that left is in use until it has been silent for long enough: who left is then not counted.
        counting = Deliveries.of(self, schedule, trace).tells() if self.keeps_edges else trace.finished
        group = components(self.edges[used & counting[self.edges].all(axis=1)], self.parties)
        sizes = np.bincount(group[trace.finished & counting], minlength=self.parties)
        # Where nobody has a result nobody is in it.
        together: Mask = counting & (group == int(np.argmax(sizes))) & bool(sizes.any())
        return together

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        """The loss on a grid, the bound for whole numbers; without one, that of the view in real arithmetic."""
        if not self.step:
            return self.grid_loss([], 0)
        from quietmean.protocols.consensus.loss import whole_loss

        return whole_loss(self, schedule, trace)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return static_schedule(self.edges, parties, self.rounds)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> ConsensusParty:
        self.TRAITS.inputs.check(self, value)
        return ConsensusParty(self, party, value, weight, noise)

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        # Running parties need no matrices: they start without this import.
        from quietmean.protocols.consensus.transcript import least_transcript

        return least_transcript(self, schedule, trace)

    population = population


__all__ = ["PROTOCOL", "Consensus", "Quantisation"]

PROTOCOL = Consensus
