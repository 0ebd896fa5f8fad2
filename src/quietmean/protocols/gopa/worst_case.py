"""The worst coalition of GOPA by formula: all that is sent to the aggregator counts as public."""

from __future__ import annotations

import numpy as np

from quietmean.core.bounds import CoalitionBound
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.gopa.outcome import GopaOutcome
from quietmean.protocols.gopa.spec import PUBLISH, ROLL_BACK, GopaParameters
from quietmean.protocols.shared_noise import connected_information, connectivity, mu_of, star_variance, through_partner


def worst_coalition(
    parameters: GopaParameters, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int
) -> CoalitionBound:
    """For every coalition of ``size``. Whatever a party sent counts as seen, whether or not it arrived.

    Noise that either end rolled back hides nobody, and so a value that came too late has lost what it shares with those that
    rolled back.
    """
    own, pair = parameters.sigma_star**2, parameters.sigma_delta**2
    happened = GopaOutcome.of(parameters.aggregator, schedule, trace)
    sent = trace.online[PUBLISH]
    # Also a rollback that did not arrive was sent.
    rolling = happened.informed & trace.online[ROLL_BACK]
    rolling[parameters.aggregator] = happened.arrived[parameters.aggregator]
    partners = [schedule.partners(party) for party in range(schedule.parties)]
    hidden = np.zeros((schedule.parties, max(map(len, partners), default=0)))
    for party, others in enumerate(map(list, partners)):
        taken_out = (rolling[party] & ~happened.arrived[others]) | (rolling[others] & ~happened.arrived[party])
        each = np.where(sent[others], through_partner(own, pair), pair)
        hidden[party, : len(others)] = np.where(taken_out, 0.0, each)
    variance = star_variance(own, hidden, size)
    # Among those whose value arrived nothing is rolled back.
    connected = connectivity(schedule.parties, schedule.pairs, happened.arrived)
    information = connected_information(own, pair, connected, int(happened.arrived.sum()), size)
    mu = mu_of(sensitivity, variance, np.inf, sent)
    mu[happened.arrived] = mu_of(sensitivity, variance, information, sent)[happened.arrived]
    return CoalitionBound(mu, "the star of a party's partners, or the connectivity of the graph of those that published")
