"""The worst coalition of CorDP-DME by formula: all messages count as public, and colluders tell what they share."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.bounds import CoalitionBound
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.cordp_dme.spec import CordpDmeParameters
from quietmean.protocols.shared_noise import connected_information, connectivity, mu_of, star_variance, through_partner


def worst_coalition(
    parameters: CordpDmeParameters, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int
) -> CoalitionBound:
    """For every coalition of ``size``; exact without an aggregator where noise is shared in all pairs.

    A party that was online in the round has sent its message, and it counts as seen whether or not it arrived.
    """
    own, pair, sent = parameters.sigma_own**2, parameters.sigma_pair**2, trace.online[1]
    if schedule.all_paired:
        information = all_pairs_information(own, pair, int(sent.sum()), int((~sent).sum()), size)
        return CoalitionBound(mu_of(sensitivity, np.zeros(schedule.parties), information, sent), "formula for noise in all pairs")
    hidden = hidden_by_partners(schedule, np.where(sent, through_partner(own, pair), pair))
    everyone = np.ones(schedule.parties, dtype=np.bool_)
    # Fewer messages disclose less: the bound is that of all parties sending one.
    information = connected_information(
        own, pair, connectivity(schedule.parties, schedule.pairs, everyone), schedule.parties, size
    )
    mu = mu_of(sensitivity, star_variance(own, hidden, size), information, sent)
    return CoalitionBound(mu, "the star of a party's partners, or the connectivity of the graph of partners")


def hidden_by_partners(schedule: Schedule, variance: Array) -> Array:
    """Row i: the ``variance``, (n,), that each partner of party i has, padded with 0."""
    partners = [schedule.partners(party) for party in range(schedule.parties)]
    hidden = np.zeros((schedule.parties, max(map(len, partners), default=0)))
    for party, others in enumerate(partners):
        hidden[party, : len(others)] = variance[list(others)]
    return hidden


def all_pairs_information(own: float, pair: float, sent: int, absent: int, size: int) -> float:
    """Lambda_ii against the worst ``size`` of ``sent`` parties that sent a message and ``absent`` ones that did not.

    An honest absent party hides each message by one more shared term. All coalitions with as many absent members are alike.
    """
    worst = 0.0
    for quiet in range(min(size, absent) + 1):
        alone = own + (absent - quiet) * pair
        honest = max(sent - (size - quiet), 1)
        worst = max(worst, connected_information(alone, pair, float(honest), honest, 0))
    return worst
