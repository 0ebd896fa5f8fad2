"""Average consensus on additive secret shares over the integers modulo p: exact, for comparison with consensus.

Li, Cascudo and Christensen 2019.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import InputError
from quietmean.core.input_domain import Box, InputDomain
from quietmean.core.party import NoiseGroup, NoiseSource, PartyId, Vector
from quietmean.core.schema import OPEN, filled, require_complete
from quietmean.graphs import Edges, ExecutionTrace, Schedule, diameter, static_schedule
from quietmean.protocols import literature
from quietmean.protocols.fields import EDGES_ARE_MADE
from quietmean.protocols.mechanism import Closing, Mechanism
from quietmean.protocols.secret_sharing.party import STEP_BITS, SecretSharingParameters, SecretSharingParty, SecretSharingState
from quietmean.protocols.target import Target
from quietmean.protocols.traits import AcceptedValues, Checks, Traits, Volume
from quietmean.randomness import Seed
from quietmean.transcript import Transcript, TranscriptBuilder


def masked_values(edges: Edges, reach: float, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
    """Each party's value with the shares on it, where it averages them in public; all else is a function of these.

    An edge's mask is the difference of the two shares that went over it, which both ends know. It is uniform over all residues,
    and those are ``reach`` wide in the units of the values; here it is Gaussian of the variance of such a difference. What is
    disclosed is the same: only sums in which every mask occurs at both of its ends.
    """
    builder = TranscriptBuilder(schedule.parties)
    complete = _whole(schedule, trace)
    masks: list[dict[int, float]] = [{} for _ in range(schedule.parties)]
    for low, high in edges.tolist():
        mask = builder.add_noise([low, high], reach * math.sqrt(2.0 / 12.0), NoiseGroup.CANCELLING)
        masks[low][mask], masks[high][mask] = 1.0, -1.0
    for party in np.nonzero(complete)[0].tolist():
        builder.add_message(party, 2, values={party: 1.0}, noise=masks[party], released=True)
    return builder.build()


def _whole(schedule: Schedule, trace: ExecutionTrace) -> Mask:
    """The parties that got a share from every neighbour and whose own all arrived, shape (n,): others send no values."""
    sent = schedule.neighbours[0] >= 0
    lost = sent & ~trace.delivered(schedule)[0]
    complete: Mask = trace.online[1] & ~lost.any(axis=1)
    complete[schedule.neighbours[0][lost]] = False
    return complete


# The most records of a party that there is room for, where records are the units.
_MOST_RECORDS = 2.0**20
_INCOMPLETE = (
    "secret-sharing needs every message of all parties, and one was away or sent what cannot be. Run the study again, as a new "
    "one, when all are there"
)


def _planned_for(protocol: SecretSharing, target: Target, domain: InputDomain) -> SecretSharing:
    """The parameters with a bound for as many units as a party may have, where that is more."""
    needed = domain.largest * most_units(target)
    if protocol.bound >= needed:
        return protocol
    return replace(protocol, bound=needed, iterations=OPEN).resolved(target.parties)


def _region(protocol: SecretSharing, target: Target, weight: float) -> Box:
    return Box(size=target.dimension, low=-protocol.bound, high=protocol.bound)


def _fitted(protocol: SecretSharing, values: Vector, weights: Array) -> Vector:
    """Values (n, d) clipped to [-1, 1]."""
    return np.clip(values, -1.0, 1.0)


def _rounding_step(protocol: SecretSharing) -> float:
    return 2.0**-protocol.fraction_bits


class SecretSharing(SecretSharingParameters, Mechanism):
    """Consensus on additive shares over the integers modulo p: exact sums, no noise."""

    name = "secret-sharing"
    TRAITS = Traits(
        summary="averages additive secret shares: the exact sum and nothing else, no noise, for comparison",
        sources=(literature.SECRET_SHARING_CONSENSUS,),
        guarantee="the sum over every group of connected honest parties is exact and all that is learnt; no differential privacy",
        private=False,
        reveals=(
            "the exact sum of all values. Parties that collude also learn the sum of each group of others "
            "that stay connected without them. Nothing else is revealed"
        ),
        linear=False,
        unpromised_if_read="it has no privacy",
        releases_are_public=False,
        batchable=False,
        tolerates_dropouts=False,
        overheard=True,
        fixed_schedule=True,
        inputs=AcceptedValues(region=_region, fitted=_fitted, planned_for=_planned_for),
        checks=Checks(rounding_step=_rounding_step),
    )

    def resolved(self, parties: int) -> Self:
        """The parameters, complete, for this number of parties.

        Raises :class:`InputError` for a missing field, or for too few iterations.
        """
        require_complete(self)
        placed = replace(self, edges=self.graph_edges(parties), parties=parties, **EDGES_ARE_MADE)
        needed = iterations_needed(placed)
        if self.iterations is not OPEN and self.iterations < needed:
            raise InputError(
                f"iterations is {self.iterations}. Choose {needed}, which this graph needs to average shares to within 1/(2n)."
            )
        return filled(placed, iterations=needed)

    def defaults(self, target: Target) -> dict[str, Any]:
        """The default parameters for a target.

        Raises :class:`InputError` for planned dropouts: without one of its parties nobody has a result.
        """
        if target.dropouts > 0:
            raise InputError(
                f"dropouts of {target.dropouts:g}: secret-sharing has no result without all of its parties. Plan it with "
                "dropouts 0 or take another protocol."
            )
        bound = {"bound": most_units(target)}
        return bound if self.edges is not OPEN else {**bound, "graph": "geometric"}

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        """All parties if every message arrived, else none: shape (n,)."""
        complete = bool(trace.delivered(schedule)[schedule.neighbours >= 0].all())
        return np.full(self.parties, complete)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return static_schedule(self.edges, parties, self.rounds)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> SecretSharingParty:
        return SecretSharingParty(self, party, value, weight, noise)

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        return masked_values(self.edges, math.ldexp(self.modulus, -self.fraction_bits), schedule, trace)

    def traffic(self, parties: int, dimension: int) -> Volume:
        return replace(super().traffic(parties, dimension), content_limit=1 + self.number_bytes * dimension)

    def ending(self, state: SecretSharingState) -> Closing:
        """Add the reason where nobody has a result."""
        return Closing(self, (_INCOMPLETE,) if state.broken else ())

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float:
        """The variance of the error: no noise, or no result; values are rounded to 2^-``fraction_bits``."""
        return 0.0 if self.contributors(schedule, trace).all() else math.inf


def most_units(target: Target) -> float:
    """The most units that a value may be the sum of: room for them costs 20 bits a number."""
    return _MOST_RECORDS if target.unit.within_party else 1.0


def iterations_needed(parameters: SecretSharingParameters) -> int:
    """How many iterations bring every estimate within 1/(16 n) of the mean share for certain, and inform all of a late loss.

    About ln(2 n p / sqrt 12) / (-ln rho), computed without asymptotics for the worst shares; then as many more as the diameter.
    Raises :class:`InputError` if averaging on the graph does not converge.
    """
    from quietmean.protocols.consensus.analysis import Dynamics

    dynamics = Dynamics(parameters.edges, parameters.parties, 0.0, parameters.step / 2**STEP_BITS)
    goal = -math.log(16 * parameters.parties * parameters.modulus)
    if not dynamics.rho < 1:
        raise InputError(f"averaging on this graph does not converge with c = {dynamics.c:g}. Choose another c.")
    tried = 64 + math.ceil(2 * -goal / -math.log(min(max(dynamics.rho, 0.01), 1 - 1e-6)))
    worst = dynamics.worst_error(tried)
    # Complex roots make the error oscillate: it must stay below from here on.
    missed = np.nonzero(worst > goal)[0]
    return int(missed[-1]) + 1 + diameter(parameters.edges, parameters.parties) if missed.size else 1


__all__ = ["PROTOCOL", "SecretSharing"]

PROTOCOL = SecretSharing
