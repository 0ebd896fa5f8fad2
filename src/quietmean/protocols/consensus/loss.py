"""Certificates of executions with whole numbers.

Everything that is sent follows from the whole numbers u_i = s~_i - sum_j B z_{i|j} and w_ij = z_{i|j} - z_{j|i}, from z^(0) of
edges that were given up, and from messages themselves, in whatever arithmetic. So the adversary is given all of u and w, and
z^(0) of every edge that not both ends used to the end or whose first message was intercepted. That is a linear view: the honest
values with noise of covariance sigma_local^2 I + L, L the Laplacian of the remaining edges between honest parties, of weight
s_i^2 s_j^2 / (s_i^2 + s_j^2) for standard deviations s of z^(0). Whole changes that leave it as it was are one for each of these
edges: 1 on both ends of z^(0), and -B on their own noise, of squared norm 1 / s_i^2 + 1 / s_j^2 + 2 / sigma_local^2.

Where all edges have to be open, a party sends what follows from its u and its w with all of its edges, or nothing. Then u and w
are all that there is to give away, no matter who leaves when and whichever messages arrive, and no edge drops out of L.

The worst coalition of consensus by formula, while no edge drops out: every message arrives, or all have to be open at first.

A coalition learns s_H + N(0, sigma_local^2 I + b L_H) of the honest parties, with b = sigma_z^2 / 2: what neighbours share hides
as in protocols where pairs share noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence, Set
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.domain import half_range
from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule, survives
from quietmean.privacy import Adversary, GridLossConversion
from quietmean.privacy.loss import nats_of_whole_numbers
from quietmean.protocols.consensus.error import nats_of_hidden
from quietmean.protocols.consensus.spec import ALL, ConsensusParameters, Deliveries, edges_in_use
from quietmean.protocols.shared_noise import connected_information, connectivity, mu_of, star_variance, through_partner

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion
    from quietmean.privacy.information import InformationMatrix

# The relative error that linear algebra may make.
_MARGIN = 1e-9
# Squared norms of the kernel's basis, all together: then what smoothing leaves is below e^-98 a vector.
_SHORT = 0.2
# The most coalitions that are tried one by one.
MOST_TRIED = 500
# The most pairs of parties between which paths are counted.
_MOST_FLOWS = 20_000


class ConsensusLossConversion(GridLossConversion):
    """The bound for whole numbers that are given away as above, or that of the own noise of each party."""

    def __init__(self, parameters: ConsensusParameters, used: Mask, silent: frozenset[PartyId] = frozenset()) -> None:
        """``used``, shape (m,): the edges of which z^(0) is not given away. ``silent``: parties that sent nothing of a value."""
        deviations = self._deviations = parameters.deviations
        self._parties, self._silent = parameters.parties, silent
        self._own, self._edges = parameters.sigma_local, parameters.edges
        self._all_or_none = parameters.open_edges == ALL
        noisy = (deviations > 0).all(axis=1)
        self._hiding = used & noisy
        with np.errstate(divide="ignore"):
            inverse = deviations**-2.0
        # Of the change along an edge, and what it shares.
        self._norms = inverse.sum(axis=1) + (2.0 / self._own**2 if self._own else math.inf)
        self._weights = np.divide(1.0, inverse.sum(axis=1), out=np.zeros(len(inverse)), where=noisy)
        self._unit = parameters.step**2
        self.coordinates = parameters.dimension
        super().__init__(
            step=parameters.step,
            dimension=parameters.dimension or 1,
            deviations=[self._own, *deviations[deviations > 0].tolist()],
            draws=parameters.parties + deviations.size,
            most_rounding=float(self._norms[self._hiding].sum()) * self._unit / 4.0,
        )

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        if not self._own:
            return np.where(view > 0, np.inf, 0.0)
        hiding = self._hidden(adversary, honest)
        at_least = np.maximum(view, sensitivity * np.sqrt(self._information(honest, hiding)) * (1 + _MARGIN))
        # What was not sent is not given away.
        at_least = np.where(view > 0, at_least, 0.0)
        rounded = float(self._norms[hiding].sum()) * self._unit / 4.0
        return np.minimum(self._widened(at_least, rounded), self._alone(sensitivity))

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        if not self._own:
            return np.where(view > 0, np.inf, 0.0)
        return np.minimum(super().mu_against_any(size, view, sensitivity), self._alone(sensitivity))

    def _hidden(self, adversary: Adversary, honest: Sequence[PartyId]) -> Mask:
        """The edges between honest parties of which z^(0) is not known."""
        revealed = {party for party, round_ in adversary.observed if round_ <= 1}
        members = np.array(sorted(set(honest) - revealed), dtype=np.int64)
        hidden: Mask = self._hiding & np.isin(self._edges, members).all(axis=1)
        return hidden

    def nats(self, adversary: Adversary, honest: Sequence[PartyId], information: InformationMatrix, prior_sd: float) -> Array:
        seen, hiding = information.mutual_information(prior_sd), self._hidden(adversary, honest)
        hidden = nats_of_hidden(self._covariance(honest, hiding), prior_sd)
        # What was not sent is not given away.
        return np.where(seen > 0, self._in_whole_numbers(np.maximum(seen, hidden), prior_sd), 0.0)

    def nats_against_any(self, size: int, prior_sd: float) -> float:
        """Every coalition is tried where there are few; else by the connectivity of the graph of edges that hide."""
        parties = range(self._parties)
        if math.comb(self._parties, size) <= MOST_TRIED:
            worst = max(self._given(set(parties) - set(corrupt), prior_sd) for corrupt in combinations(parties, size))
        else:
            worst = self._by_connectivity(size, prior_sd)
        return float(self._in_whole_numbers(np.array(worst), prior_sd))

    def _given(self, honest: Set[PartyId], prior_sd: float) -> float:
        """Nats of the worst party that is not silent. Where no edge drops out, the u of silent ones is given away as well."""
        members = sorted(honest if self._all_or_none else honest - self._silent)
        hiding = self._hiding & np.isin(self._edges, members).all(axis=1)
        is_visible = ~np.isin(members, sorted(self._silent))
        return float(nats_of_hidden(self._covariance(members, hiding), prior_sd)[is_visible].max(initial=0.0))

    def _by_connectivity(self, size: int, prior_sd: float) -> float:
        """1 / n_H of the value's variance by the sum, and the rest by differences: see :mod:`.design`."""
        value, honest = prior_sd**2, self._parties - size
        connected = connected_without(size, self._edges[self._hiding], self._parties)
        pair = float(self._weights[self._hiding].min(initial=np.inf)) if self._hiding.any() else 0.0
        explained = [value / (value + self._own**2 + pair * max(level, 0.0)) for level in (0.0, connected)]
        share = (explained[0] + (honest - 1) * explained[1]) / honest
        return math.inf if share >= 1 else -0.5 * math.log1p(-share)

    def _in_whole_numbers(self, nats: Array, prior_sd: float) -> Array:
        """For values and noise on the grid: see docs/proofs/whole-numbers.md, where the kernel needs a short basis."""
        value = prior_sd**2 / self._unit
        smallest_variance = min(
            [value, *(self._weights[self._hiding] / self._unit), *([self._own**2 / self._unit] if self._own else [])]
        )
        noise = float(np.min(self._deviations[self._deviations > 0], initial=np.inf)) ** 2 / self._unit
        kernel = int(self._hiding.sum()) * (4.0 / noise + 2.0 / value)
        return (
            nats_of_whole_numbers(nats * (1 + _MARGIN), smallest_variance)
            if kernel <= _SHORT
            else np.where(nats > 0, np.inf, 0.0)
        )

    def _information(self, honest: Sequence[PartyId], hiding: Mask) -> Array:
        """The diagonal of (sigma_local^2 I + L)^-1, shape (n_H,)."""
        information: Array = np.diag(np.linalg.inv(self._covariance(honest, hiding))).copy()
        return information

    def _covariance(self, honest: Sequence[PartyId], hiding: Mask) -> Array:
        """sigma_local^2 I + L, shape (n_H, n_H)."""
        index_of = {party: row for row, party in enumerate(honest)}
        covariance = np.eye(len(honest)) * self._own**2
        for (low, high), weight in zip(self._edges[hiding].tolist(), self._weights[hiding].tolist(), strict=True):
            first, second = index_of[low], index_of[high]
            covariance[[first, second], [first, second]] += weight
            covariance[[first, second], [second, first]] -= weight
        return covariance

    def _alone(self, sensitivity: float) -> float:
        return sensitivity / self._own * math.sqrt(self.correction)


def connected_without(size: int, edges: Ints, parties: int) -> float:
    """The second eigenvalue of the Laplacian of what is left of a graph, (m, 2), without any ``size`` parties, at least."""
    by_eigenvalue = connectivity(parties, edges, np.ones(parties, dtype=np.bool_)) - size
    if (size + 1) * parties > _MOST_FLOWS or not survives(edges, parties, size):
        return by_eigenvalue
    return max(by_eigenvalue, 2.0 * (1.0 - math.cos(math.pi / (parties - size))))


def whole_loss(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace) -> ConsensusLossConversion:
    """The loss of an execution."""
    # Messages of the first round do not depend on a value.
    tells = trace.online[2:].any(axis=0) & Deliveries.of(parameters, schedule, trace).tells()
    silent = frozenset(np.nonzero(~tells)[0].tolist())
    if parameters.open_edges == ALL:
        return whatever_happens(parameters, silent)
    return ConsensusLossConversion(parameters, edges_in_use(parameters, schedule, trace), silent)


def whatever_happens(parameters: ConsensusParameters, silent: frozenset[PartyId] = frozenset()) -> ConsensusLossConversion:
    """The loss of any execution in which all edges have to be open; ``silent``: parties that sent nothing about a value."""
    return ConsensusLossConversion(parameters, np.ones(len(parameters.edges), dtype=np.bool_), silent)


_SLACK_OF_BOUND = 1e-9


def worst_coalition(
    parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int
) -> CoalitionBound | None:
    """The worst coalition of ``size``; None without Gaussian noise on the values, and where edges may have dropped out."""
    if parameters.local_noise != "gaussian":
        return None
    if parameters.open_edges == ALL:
        # None drops out, whichever messages arrive.
        return lasting_bound(parameters, sensitivity, size)
    if not Deliveries.of(parameters, schedule, trace).all_known:
        return None
    return complete_bound(parameters, sensitivity, size)


def lasting_bound(parameters: ConsensusParameters, sensitivity: float, size: int) -> CoalitionBound:
    """Bound mu for all executions, with what is certain of the graph that is left, or every coalition where there are few."""
    from quietmean.protocols.consensus.error import hiding_covariance

    parties, own = parameters.parties, parameters.sigma_local**2
    pair, hiding = _shared(parameters), (parameters.deviations > 0).all(axis=1)
    if math.comb(parties, size) > MOST_TRIED:
        by_formula, smallest_pair = complete_bound(parameters, sensitivity, size), float(pair[hiding].min(initial=np.inf))
        left = connected_without(size, parameters.edges[hiding], parties)
        information = connected_information(own, smallest_pair, left + size, parties, size) if hiding.any() else np.inf
        return CoalitionBound(np.minimum(by_formula.mu, sensitivity * math.sqrt(information)), by_formula.proof)
    worst = np.zeros(parties)
    for corrupt in itertools.combinations(range(parties), size):
        honest = np.setdiff1d(np.arange(parties), corrupt)
        by_party = np.diag(np.linalg.inv(hiding_covariance(parameters, corrupt)))
        worst[honest] = np.maximum(worst[honest], by_party)
    # A margin for the rounding of linear algebra.
    return CoalitionBound(sensitivity * np.sqrt(worst) * (1 + _SLACK_OF_BOUND), "the graph that is left, coalition by coalition")


def promise(parameters: ConsensusParameters, size: int, sensitivity: float) -> APriori:
    """What is known before the start where all edges have to be open: of every execution against ``size`` colluders.

    Who tells anything tells what follows from the noisy value minus z^(0) of all its edges, and from differences of z^(0):
    what leavers and lost messages change is a function of that.
    """

    if not parameters.step:
        conversion: LossConversion = parameters.grid_loss([], 0)
    else:
        conversion = whatever_happens(parameters)
    mu, nats = math.inf, conversion.nats_against_any(size, half_range(sensitivity))
    if parameters.local_noise == "gaussian":
        view = lasting_bound(parameters, sensitivity, size).mu
        mu = float(conversion.mu_against_any(size, view, sensitivity).max())
    why = "each party's edges: it tells nothing of its value before all of them are open"
    return APriori(mu, why, conversion.beta, conversion.tv, nats=math.inf if nats is None else nats)


def complete_bound(parameters: ConsensusParameters, sensitivity: float, size: int) -> CoalitionBound:
    """The bound if no edge drops out."""
    own, shared = parameters.sigma_local**2, _shared(parameters)
    near: list[list[float]] = [[] for _ in range(parameters.parties)]
    for (low, high), pair in zip(parameters.edges.tolist(), shared.tolist(), strict=True):
        for party in (low, high):
            near[party].append(through_partner(own, pair))
    hidden = np.zeros((parameters.parties, max(map(len, near), default=0)))
    for party, variances in enumerate(near):
        hidden[party, : len(variances)] = variances
    everyone = np.ones(parameters.parties, dtype=np.bool_)
    connected = connectivity(parameters.parties, parameters.edges, everyone)
    smallest_pair = float(shared.min(initial=np.inf)) if shared.size else 0.0
    information = connected_information(own, smallest_pair, connected, parameters.parties, size)
    mu = mu_of(sensitivity, star_variance(own, hidden, size), information, everyone)
    return CoalitionBound(mu, "the star of a party's neighbours, or the connectivity of the graph")


def _shared(parameters: ConsensusParameters) -> Array:
    """The weight of every edge in the Laplacian, (m,): s_i^2 s_j^2 / (s_i^2 + s_j^2) for standard deviations s of z^(0)."""
    variance = parameters.deviations**2
    total = variance.sum(axis=1)
    weight: Array = np.divide(variance[:, 0] * variance[:, 1], total, out=np.zeros(len(total)), where=total > 0)
    return weight
