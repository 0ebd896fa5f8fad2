"""Group masks: values are published under noise that cancels within small public groups of parties."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quietmean.core.bounds import round_up
from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.schema import filled, parameter
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import Design, Mechanism, Target, Traits
from quietmean.randomness import BitStream, Seed
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows
from quietmean_groups.party import GroupMasksParty
from quietmean_groups.population import population

DEVIATION = "choose a finite number >= 0"
# sigma_delta^2 / sigma_star^2 is searched on this grid; among ratios within 1 % of the best the smallest is taken.
RATIOS = np.geomspace(1e-2, 1e4, 121)


def check_parties(protocol: GroupMasks, parties: int) -> None:
    if protocol.group_size > parties:
        raise InputError(f"group_size is {protocol.group_size} with {parties} parties. Choose 2..{parties}")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupMasks(Mechanism):
    """Parties are put into random public groups. All pairs of a group share noise, which cancels in the group's sum.

    What a party publishes is hidden by the honest ones of its group together, so the noise that stays in the result is divided
    between them. A party that drops out leaves behind what it shared with its own group only.
    """

    name = "group-masks"
    TRAITS = Traits(
        summary="values are published under noise that cancels within small public groups",
        shares_noise=True,
        check_parties=check_parties,
    )
    rounds = 1

    group_size: int = parameter(
        help="how many parties at least share noise with each other",
        option=True,
        at_least=2,
        remedy="choose at least 2 parties",
    )
    sigma_star: float = parameter(help="standard deviation of every party's own noise", at_least=0, remedy=DEVIATION)
    sigma_delta: float = parameter(help="standard deviation of every pair's noise", at_least=0, remedy=DEVIATION)

    def design(self, target: Target) -> Design:
        """The least noise that hides a value among the honest parties of its group, whichever others collude or drop out.

        With own noise of variance v and pair noise of variance r v, the noise of h honest parties of a group has covariance
        v (I + r L), L the Laplacian of the complete graph: a value leaks (1 / h + (1 - 1 / h) / (1 + h r)) / v.
        """
        from quietmean.privacy import mu_of_budget

        chosen = filled(self, group_size=min(target.parties, 2 * target.colluding + 4))
        check_parties(chosen, target.parties)
        honest = max(1, chosen.group_size - target.colluding)
        leak = 1 / honest + (1 - 1 / honest) / (1 + honest * RATIOS)
        star = leak * (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2
        gone = 1 - target.responding / target.parties
        left_over = (target.parties / chosen._groups(target.parties) - 1) * gone
        error = star * (1 + RATIOS * left_over) / target.responding
        best = int(np.argmax(error <= 1.01 * error.min()))
        return Design(
            replace(
                chosen,
                sigma_star=round_up(float(np.sqrt(star[best]))),
                sigma_delta=round_up(float(np.sqrt(star[best] * RATIOS[best]))),
            ),
            float(error[best]),
            target.dropout_bias(target.responding),
            f"exact for {honest} honest parties in a group, whoever else colludes",
        )

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        order = BitStream(seed.derive("groups")).permutation(parties)
        groups = np.array_split(order, self._groups(parties))
        pairs = [np.sort(group)[np.column_stack(np.triu_indices(len(group), 1))] for group in groups]
        listed = np.unique(np.concatenate(pairs), axis=0).astype(np.int64)
        return replace(Schedule.silent(self.rounds, parties), pairs=listed)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> GroupMasksParty:
        return GroupMasksParty((self.sigma_star, self.sigma_delta), schedule, party, value, weight, noise)

    def population(
        self,
        schedule: Schedule,
        trace: ExecutionTrace,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        return population((self.sigma_star, self.sigma_delta), schedule, trace, values, weights, noise, out)

    def _groups(self, parties: int) -> int:
        """How many groups there are: none is smaller than was asked for."""
        return max(1, parties // self.group_size)
