"""Certificates of executions with whole numbers."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.bounds import CoalitionBound
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.roots import root_between
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.privacy import LossConversion
from quietmean.protocols.execution import Execution
from quietmean.protocols.gopa.party import PUBLISH, ROLL_BACK, GopaOutcome, GopaParameters, PeerOutcome
from quietmean.protocols.shared_noise import (
    MaskedMessages,
    connected_information,
    connectivity,
    mu_of,
    star_variance,
    through_partner,
)


def masked_loss(parameters: GopaParameters, schedule: Schedule, trace: ExecutionTrace) -> LossConversion:
    """The bound for whole numbers; without a grid that in real arithmetic.

    Rollbacks are sums of noise shared with parties whose messages did not arrive: the best shift leaves it alone.
    """
    star, delta, aggregator, pairs = parameters.sigma_star, parameters.sigma_delta, parameters.aggregator, schedule.pairs
    if aggregator is None:
        # Noise that one end alone adds takes up less: its own noise is all that has to move with it.
        happened = PeerOutcome.of(parameters.least_partners, schedule, trace)
        arrived, pairs = happened.published, pairs[happened.added.any(axis=1)]
    else:
        arrived = GopaOutcome.of(aggregator, schedule, trace).arrived
    messages = MaskedMessages(star, delta, parameters.step, pairs, arrived, aggregator, symmetric=False)
    draws = schedule.parties + (len(schedule.pairs) if delta else 0)
    return parameters.grid_loss([star, delta], draws, messages.rounding, messages.most_rounding())


def star_loss(parameters: GopaParameters, parties: int) -> LossConversion:
    """The bound for whole numbers in every history without a collector; without a grid that in real arithmetic.

    Nobody's figure needs more than a shift along the pairs of one party, with the own noise of both ends.
    """
    star, delta, step = parameters.sigma_star, parameters.sigma_delta, parameters.step
    pairs = min(parties * (parties - 1) // 2, parties * parameters.partners) if delta else 0
    edge = (step / delta) ** 2 + 2 * (step / star) ** 2 if delta and star else 0.0
    rounding = (parties - 1) * edge / 4.0
    return parameters.grid_loss([star, delta], parties + pairs, lambda *_: rounding, rounding)


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


# Eigenvalues of a Laplacian below this share of the largest are zero: one for each connected component.
_CONNECTED = 1e-10


def laplacian(pairs: Ints, members: Collection[PartyId]) -> Array:
    """The Laplacian of the graph of the pairs (M, 2) of ``members``, shape (m, m), in rising order of the members."""
    order = np.array(sorted(members), dtype=np.int64)
    inside = pairs[np.isin(pairs, order).all(axis=1)]
    ends = np.searchsorted(order, inside)
    matrix = np.zeros((order.size, order.size))
    matrix[ends[:, 0], ends[:, 1]] = matrix[ends[:, 1], ends[:, 0]] = -1.0
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return matrix


def complete_graph(parties: int) -> Array:
    """Laplacian of the complete graph, shape (n, n)."""
    return parties * np.eye(parties) - np.ones((parties, parties))


def graph_mu(graph: Array, sigma_star: float, sigma_delta: float, sensitivity: float = 1.0) -> Array:
    """mu of each user, shape (m,), under replacement of its value by another at L2 distance ``sensitivity``.

    ``graph``: Laplacian of the pairs, shape (m, m).
    """
    eigenvalues, basis = np.linalg.eigh(graph)
    return sensitivity * np.sqrt(_information(eigenvalues, basis, sigma_star**2, sigma_delta**2))


def pairwise_sigma(graph: Array, sigma_star: float, largest_mu: float, sensitivity: float = 1.0) -> float:
    """The least sigma_delta with which no user of the graph has more than ``largest_mu``. ``graph``: its Laplacian (m, m).

    Raises :class:`InputError` where no pair noise suffices, since the own noise of a connected part does not hide its sum.
    """
    eigenvalues, basis = np.linalg.eigh(graph)
    information = (largest_mu / sensitivity) ** 2

    def excess(variance: float) -> float:
        return float(_information(eigenvalues, basis, sigma_star**2, variance).max()) / information - 1.0

    if excess(math.inf) >= 0:
        raise InputError(
            f"With sigma_star = {sigma_star:g}, sums of some honest parties are not hidden by any shared "
            "noise. Raise sigma_star or choose more partners."
        )
    if excess(0.0) <= 0:
        return 0.0
    high = sigma_star**2 + 1.0 / information
    while excess(high) > 0:
        high *= 4.0
    return math.sqrt(root_between(excess, 0.0, high, 1e-300, 1e-14))


def conservative_mu(execution: Execution, coalition: Collection[PartyId]) -> dict[PartyId, float]:
    """mu of every honest user who published, in the papers' reading of an execution of GOPA.

    Raises :class:`InputError` for an execution of another protocol.
    """
    protocol = _parameters_of(execution)
    published = execution.contributors()
    members = [party for party in np.nonzero(published)[0].tolist() if party not in set(coalition)]
    graph = laplacian(shared_pairs(execution), members)
    mu_of_members = graph_mu(graph, protocol.sigma_star, protocol.sigma_delta, execution.sensitivity) if members else ()
    return {party: float(mu) for party, mu in zip(members, mu_of_members, strict=True)}


def shared_pairs(execution: Execution) -> Ints:
    """The pairs, shape (M, 2), whose noise hides both ends of an execution of GOPA, as far as both published.

    Raises :class:`InputError` for an execution of another protocol.
    """
    protocol = _parameters_of(execution)
    schedule, trace = execution.schedule, execution.trace
    if protocol.aggregator is not None:
        return schedule.pairs
    return schedule.pairs[PeerOutcome.of(protocol.least_partners, schedule, trace).added.all(axis=1)]


def _parameters_of(execution: Execution) -> GopaParameters:
    protocol = execution.protocol
    if not isinstance(protocol, GopaParameters):
        raise InputError(f"protocol {protocol.name} is not gopa, of which this is an account. Give an execution of gopa.")
    return protocol


def _information(eigenvalues: Array, basis: Array, star: float, delta: float) -> Array:
    """The diagonal of (star I + delta L)^-1, shape (m,)."""
    free = eigenvalues <= _CONNECTED * max(float(eigenvalues.max(initial=0.0)), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(free, 1.0 / star, 1.0 / (star + np.where(free, 0.0, delta * eigenvalues)))
    information: Array = (basis**2) @ precision
    return information
