"""The worst coalition of GOPA by formula: all that is published, or sent to a collector, counts as public."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.bounds import CoalitionBound
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.gopa.outcome import GopaOutcome, PeerOutcome
from quietmean.protocols.gopa.spec import PUBLISH, ROLL_BACK, GopaParameters
from quietmean.protocols.shared_noise import connected_information, connectivity, mu_of, star_variance, through_partner

_PROOF = "the star of a party's partners, or the connectivity of the graph of those that published"


def worst_coalition(
    parameters: GopaParameters, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int
) -> CoalitionBound:
    """The bound for every coalition of ``size``."""
    program = _of_published if parameters.aggregator is None else _of_collected
    return program(parameters, schedule, trace, sensitivity, size)


def _of_published(
    parameters: GopaParameters, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int
) -> CoalitionBound:
    """A partner that published nothing, or without the noise that it shares with a party, hides it by all of that noise."""
    own, pair = parameters.sigma_star**2, parameters.sigma_delta**2
    happened = PeerOutcome.of(parameters.least_partners, schedule, trace)
    both, added = happened.added.all(axis=1), happened.added
    variance = star_variance(own, _padded(schedule, added, np.where(both, through_partner(own, pair), pair)), size)
    connected = connectivity(schedule.parties, schedule.pairs[both], happened.published)
    information = connected_information(own, pair, connected, int(happened.published.sum()), size)
    return CoalitionBound(mu_of(sensitivity, variance, information, happened.published), _PROOF)


def _padded(schedule: Schedule, added: Mask, hidden: Array) -> Array:
    """Row i: by how much each pair hides party i, of those with its noise in what i published; filled up with 0.

    ``added``, shape (M, 2), for the two ends of each pair; ``hidden``, shape (M,).
    """
    pair, end = added.nonzero()
    party = schedule.pairs[pair, end]
    order = np.argsort(party, kind="stable")
    degree = np.bincount(party, minlength=schedule.parties)
    column = np.arange(party.size) - np.repeat(np.cumsum(degree) - degree, degree)
    rows = np.zeros((schedule.parties, int(degree.max(initial=0))))
    rows[party[order], column] = hidden[pair[order]]
    return rows


def _of_collected(
    parameters: GopaParameters, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int
) -> CoalitionBound:
    """Whatever a party sent counts as seen, whether or not it arrived.

    Noise that either end rolled back hides nobody, and so a value that came too late has lost what it shares with those that
    rolled back.
    """
    own, pair = parameters.sigma_star**2, parameters.sigma_delta**2
    happened = GopaOutcome.of(parameters.collector, schedule, trace)
    sent = trace.online[PUBLISH]
    # A rollback that did not arrive was sent all the same, and may have been read.
    rolling = happened.informed & trace.online[ROLL_BACK]
    rolling[parameters.collector] = happened.arrived[parameters.collector]
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
    return CoalitionBound(mu, _PROOF)
