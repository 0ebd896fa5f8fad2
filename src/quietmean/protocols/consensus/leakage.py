"""What consensus reveals, in closed form, from the Laplacian of the graph between honest parties.

Corrupt parties learn of every group H of honest ones that are connected by edges between honest parties

    y = s_H + N(0, sigma_local^2 I + (sigma_z^2 / 2) L_H),

so without local noise the sum over H exactly, whatever c, theta and the number of iterations are.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.graphs.undirected import components
from quietmean.privacy.mutual_information import gaussian_entropy, of_interval_intersection
from quietmean.protocols.consensus.spec import ConsensusParameters


def honest_components(parameters: ConsensusParameters, corrupt: Collection[PartyId]) -> list[tuple[PartyId, ...]]:
    """The honest parties by group connected without corrupt ones: each group's sum is disclosed if there is no local noise."""
    honest, label = _honest_labels(parameters, corrupt)
    return [tuple(honest[label[honest] == name].tolist()) for name in np.unique(label[honest])]


def _honest_labels(parameters: ConsensusParameters, corrupt: Collection[PartyId]) -> tuple[Ints, Ints]:
    wrong = [party for party in corrupt if not 0 <= party < parameters.parties]
    if wrong:
        raise InputError(f"corrupt party {min(wrong)} does not exist: parties are numbered 0..{parameters.parties - 1}")
    is_honest = np.ones(parameters.parties, dtype=np.bool_)
    is_honest[list(corrupt)] = False
    inside = parameters.edges[is_honest[parameters.edges].all(axis=1)]
    return np.nonzero(is_honest)[0], components(inside, parameters.parties)


def hiding_covariance(parameters: ConsensusParameters, corrupt: Collection[PartyId]) -> Array:
    """Covariance of the noise over all honest values, in rising order of the parties: shape (n_H, n_H)."""
    honest, _ = _honest_labels(parameters, corrupt)
    index_of = np.full(parameters.parties, -1)
    index_of[honest] = np.arange(honest.size)
    variance = parameters.deviations**2
    total = variance.sum(axis=1)
    shared = np.divide(variance[:, 0] * variance[:, 1], total, out=np.zeros(len(total)), where=total > 0)
    ends = index_of[parameters.edges]
    inside = (ends >= 0).all(axis=1)
    (first, second), weight = ends[inside].T, shared[inside]
    covariance = np.zeros((honest.size, honest.size))
    np.add.at(covariance, (first, second), -weight)
    np.add.at(covariance, (second, first), -weight)
    covariance[np.diag_indices(honest.size)] = -covariance.sum(axis=1)
    if parameters.local_noise == "gaussian":
        covariance[np.diag_indices(honest.size)] += parameters.sigma_local**2
    return covariance


def mutual_information(parameters: ConsensusParameters, corrupt: Collection[PartyId], prior_sd: float) -> Array:
    """I(S_i; view) in nats for every honest party, infinite for one without honest neighbour: shape (n_H,).

    -1/2 ln(1 - [(I + noise / prior_sd^2)^-1]_ii) for independent values N(0, prior_sd^2), against a coalition of at least one
    party (in unicast an outsider learns less). Upper bound with quantised messages, and with local noise that is not Gaussian.
    Raises :class:`InputError` without any corrupt party, and for one that does not exist.
    """
    if not corrupt:
        raise InputError("the closed form is against a coalition: name at least one corrupt party")
    return nats_of_hidden(hiding_covariance(parameters, corrupt), prior_sd)


def nats_of_hidden(covariance: Array, prior_sd: float) -> Array:
    """I(S_i; S + N) in nats, (n,), for values N(0, prior_sd^2) and noise N of that ``covariance``, (n, n)."""
    noise = covariance / prior_sd**2
    # 1 - [(I + N)^-1]_ii as [(I + N)^-1 N]_ii: no difference of nearly equal numbers.
    unexplained = np.diag(np.linalg.solve(np.eye(len(noise)) + noise, noise))
    alone = np.diag(noise) == 0
    with np.errstate(divide="ignore"):
        return np.where(alone, np.inf, -0.5 * np.log(np.where(alone, 1.0, unexplained)))


@dataclass(frozen=True)
class QuantisedLeak:
    """``nats`` all messages of a run reveal together of one value, ``largest_of_one`` the last (narrowest) alone."""

    nats: float
    largest_of_one: float
    messages: int


def cumulative_leakage(parameters: ConsensusParameters, party: PartyId, prior_sd: float) -> QuantisedLeak:
    """What n - 1 corrupt parties learn of the last honest one from its quantised messages, for Gaussian values: an approximation.

    Every unicast message is a fresh s_i + Uniform of width |c_ik| Delta_t, c_ik = (1 + c d_i) / (2 c (1 - theta)): they know
    everything else. The posterior is the intersection of the intervals. It never stops shrinking, so there is no bound for all
    time; with ``delta_min`` = 0 it shrinks to a point. This is not differential privacy: for that, add Gaussian local noise.
    """
    settings = parameters.quantisation
    if settings is None:
        return QuantisedLeak(math.inf, math.inf, parameters.iterations)
    degree = int(parameters.links.degree[party])
    # A broadcast carries x_i itself, once for all neighbours.
    per_round = 1 if parameters.broadcast else degree
    factor = (1 + parameters.c * degree) * (1.0 if parameters.broadcast else 1 / (2 * parameters.c * (1 - parameters.theta)))
    widths = np.array([factor * settings.width(t) for t in range(1, parameters.iterations + 1)])
    entropy = gaussian_entropy(prior_sd)
    messages = per_round * parameters.iterations
    everything = of_interval_intersection(entropy, np.repeat(widths, per_round))
    return QuantisedLeak(everything, float(entropy - np.log(widths.min())), messages)
