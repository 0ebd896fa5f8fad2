"""Secret-sharing consensus behind the common interface."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.input_domain import Box
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Vector
from quietmean.core.schema import OPEN
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.graphs.undirected import diameter, static_schedule
from quietmean.protocols import literature
from quietmean.protocols.graph_fields import EDGES_ARE_MADE
from quietmean.protocols.protocol import Protocol, Releases
from quietmean.protocols.secret_sharing.party import SecretSharingParty
from quietmean.protocols.secret_sharing.spec import STEP_BITS, SecretSharingParameters
from quietmean.protocols.target import Target
from quietmean.randomness import Seed
from quietmean.transcript import Transcript


class SecretSharing(SecretSharingParameters, Protocol):
    """Consensus on additive shares over the integers modulo p: exact sums, no noise."""

    name = "secret-sharing"
    sources = (literature.SECRET_SHARING_CONSENSUS,)
    summary = "averages additive secret shares: the exact sum and nothing else, no noise, for comparison"
    guarantee = "the sum over every group of connected honest parties is exact and all that is learnt; no differential privacy"
    private = False
    reveals = "the exact sum of all values, from which whoever knows the others' values takes out the one that is left"
    linear = False
    releases_are_public = False
    batchable = False
    has_transcript = False

    def resolved(self, parties: int) -> Self:
        """Complete, for so many parties. Raises :class:`InputError` for a missing field, or for too few iterations."""
        self.require_complete()
        placed = replace(self, edges=self.graph_edges(parties), parties=parties, **EDGES_ARE_MADE)
        needed = iterations_needed(placed)
        if self.iterations is not OPEN and self.iterations < needed:
            raise InputError(
                f"iterations is {self.iterations}: this graph needs {needed} to average shares to within 1/(2n), fewer give a "
                "wrong sum"
            )
        return placed.filled(iterations=needed)

    def defaults(self, target: Target) -> dict[str, Any]:
        return {"bound": 1.0} if self.edges is not OPEN else {"bound": 1.0, "graph": "geometric"}

    def is_overheard(self, round_: int) -> bool:
        return round_ > 1

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> NDArray[np.bool_]:
        """All parties if every message arrived, else none: shape (n,)."""
        whole = bool(trace.delivered(schedule)[schedule.neighbours >= 0].all())
        return np.full(self.parties, whole)

    def content_limit(self, parties: int, dimension: int) -> int:
        return 1 + self.number_bytes * dimension

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return self.fixed_schedule(parties)

    def fixed_schedule(self, parties: int) -> Schedule:
        return static_schedule(self.edges, parties, self.rounds)

    def machine(
        self,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> SecretSharingParty:
        return SecretSharingParty(self, party, value, weight, noise)

    def value_region(self, target: Target, weight: float = 1.0) -> Box:
        return Box(size=target.dimension, low=-self.bound, high=self.bound)

    def project_to_domain(self, values: Vector, weights: NDArray[np.float64]) -> Vector:
        """Values (n, d) clipped to [-1, 1]."""
        return np.clip(values, -1.0, 1.0)

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """Raises :class:`InputError`: there is no Gaussian noise."""
        raise InputError("secret-sharing has no Gaussian noise to account: compare consensus, whose account is of the same kind")

    def batch(
        self,
        schedule: Schedule,
        trace: ExecutionTrace,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
    ) -> Releases:
        # Exact integers have no faster kernel than the machines themselves.
        from quietmean.transcript import run_lockstep

        parties = range(self.parties)
        machines = [self.machine(schedule, i, values[i], float(weights[i]), noise.party(i)) for i in parties]
        delivered = trace.delivered(schedule)

        def arrives(round_: int, sender: PartyId, receiver: PartyId) -> bool:
            return bool((delivered[round_ - 1, sender] & (schedule.neighbours[round_ - 1, sender] == receiver)).any())

        done = run_lockstep(machines, trace, arrives)
        vector, weight, by = np.zeros_like(values), np.zeros(len(values)), np.zeros(len(values), dtype=np.bool_)
        for party, release in done.releases.items():
            vector[party], weight[party], by[party] = release.vector, release.weight, True
        return Releases(vector, weight, by)


def iterations_needed(parameters: SecretSharingParameters) -> int:
    """How many iterations bring every estimate within 1/(16 n) of the mean share for certain, and inform all of a late loss.

    About ln(2 n p / sqrt 12) / (-ln rho), computed without asymptotics for the worst shares; then as many more as the diameter.
    Raises :class:`InputError` if averaging on the graph does not converge.
    """
    from quietmean.protocols.consensus.analysis import Dynamics

    dynamics = Dynamics(parameters.edges, parameters.parties, 0.0, parameters.step / 2**STEP_BITS)
    goal = -math.log(16 * parameters.parties * parameters.modulus)
    if not dynamics.rho < 1:
        raise InputError(f"averaging on this graph does not converge with c = {dynamics.c:g}: choose another c")
    tried = 64 + math.ceil(2 * -goal / -math.log(min(max(dynamics.rho, 0.01), 1 - 1e-6)))
    worst = dynamics.worst_error(tried)
    # Complex roots make the error oscillate: it must stay below from here on.
    missed = np.nonzero(worst > goal)[0]
    return int(missed[-1]) + 1 + diameter(parameters.edges, parameters.parties) if missed.size else 1
