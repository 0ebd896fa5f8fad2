"""A bound on the information about a value for *every* coalition of a size at once: a star of shares around its owner.

Let x_i change by one. Whatever change of the honest parties' noise leaves all that a coalition sees as it was bounds the
information about x_i: by its squared standardised norm. Changes are made of *links*. A message of u in round t has a link to each
party that used it: let its shares change by a, which the coalition does not see if no recipient is in it. What u holds is put
right by changes of u's injections before round t, by (k + 1) a, and in round t, by minus a for each share that was not
acknowledged, k + 1 in all less those that were (and by a once more in the round in which the share is settled); what a recipient
holds by -a in round t. So nothing else changes, in any other round, and links can be chosen freely.

q' P_u q is the least squared norm of changes of u's noise that change its injections by q, and c_u are the portions of its value
that u injected. So with link m to a partner, of pattern M_m at i and of cost rho_m at the others, flows x make the norm

    (M x - c)' P (M x - c) + sum_m rho_m x_m^2 = kappa (1 - sum_m x_m)^2 + x' N x,   kappa = c' P c,

with patterns scaled to M_m' P c = kappa, and N = M' (P - P c c' P / kappa) M + diag(rho). Only one link is kept for each partner,
and no two have a recipient in common: a coalition of s parties breaks at most s of them, whichever it is. What is left is bounded
in two ways, and the smaller bound counts.

* Flows x_m = f > 0 along all links of the set S that is left. Breaking K changes the sum of N's entries by -2 sum_(m in K) N_m1 +
  sum_(K x K) N, at most the sum over m in K of w_m = N_mm - 2 N_m1 + (the s - 1 largest of max(N_mm', 0)). With
  V = (sum of N) + (the s largest of max(w_m, 0)) and F = (links) - s, the best f gives 1 / (1 / kappa + F^2 / V): fewer broken
  links would only add to F.
* For flows >= 0, x' N x <= sum_m d_m x_m^2 with d_m = N_mm + sum_m' max(N_mm', 0). The best flows give
  1 / (1 / kappa + sum_(S) 1 / d_m): the worst coalition breaks the links of least d_m.

Without a link that is left, kappa remains: all that the party sends may be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.graphs.execution_trace import NEVER
from quietmean.protocols.inca.rounding import inverse_product
from quietmean.protocols.inca.rounds import previous_online
from quietmean.protocols.inca.spec import IncaParameters

Array = NDArray[np.float64]
# Patterns that carry less of a unit change are of no use.
_LEAST_PART = 1e-6


def star_information(parameters: IncaParameters, schedule: Schedule, trace: ExecutionTrace, size: int) -> Array:
    """Upper bounds on Lambda_ii against every coalition of ``size`` others, shape (n,): mu_i = D sqrt(Lambda_ii) at most.

    In real numbers, per squared unit of the values; infinite where some injection has too little noise. All recipients of the
    schedule count as having seen a message, whether it arrived or not.
    """
    costs = [_Cost(parameters, trace, party) for party in range(schedule.parties)]
    if not all(np.isfinite(cost.product).all() for cost in costs):
        return np.full(schedule.parties, np.inf)
    links: list[list[_Link]] = [[] for _ in costs]
    for message in _messages(schedule, trace):
        for party in message.patterns:
            links[party].append(_Link.of(message, party, costs))
    return np.array([_bound(costs[party], links[party], size) for party in range(schedule.parties)])


class _Cost:
    """``product``: P of one party; ``portion``: c of it."""

    def __init__(self, parameters: IncaParameters, trace: ExecutionTrace, party: PartyId) -> None:
        online = trace.online[:, party]
        count = int(online.sum())
        self.turns = np.cumsum(online) - 1
        self.product = inverse_product(parameters, count, finishes=bool(online[-1]))
        self.portion = parameters.injections.portion[:count]

    def of(self, pattern: dict[int, float]) -> tuple[Array, float]:
        """Changes by round as a vector over the party's own rounds, and their cost."""
        vector = np.zeros(len(self.product))
        for round_, by in pattern.items():
            vector[self.turns[round_]] += by
        return vector, float(vector @ self.product @ vector)


@dataclass(frozen=True)
class _Message:
    """``patterns``: by party, its changes of injections by round; ``seen_by``: its sender and all recipients of the schedule."""

    patterns: dict[PartyId, dict[int, float]]
    seen_by: frozenset[PartyId]


def _messages(schedule: Schedule, trace: ExecutionTrace) -> Iterator[_Message]:
    delivered, acknowledged = trace.deliveries(schedule)
    settled = {(sent, sender, slot): later for sent, sender, slot, later in trace.settled_slots(schedule)}
    before = previous_online(trace)
    for row, sender in np.argwhere(delivered.any(axis=2)).tolist():
        slots, round_ = np.nonzero(delivered[row, sender])[0].tolist(), row + 1
        recipients = schedule.recipients(round_, sender)
        kept = len(recipients) + 1 - int(acknowledged[row, sender].sum())
        own = {int(before[round_, sender]): len(recipients) + 1.0, round_: -float(kept)}
        for slot in slots:
            later = settled.get((round_, sender, slot), NEVER)
            if later != NEVER:
                own[later] = own.get(later, 0.0) + 1.0
        used = {int(schedule.neighbours[row, sender, slot]): {round_: -1.0} for slot in slots}
        yield _Message({sender: own, **used}, frozenset((sender, *recipients)))


@dataclass(frozen=True)
class _Link:
    """From one party's side: its ``pattern``, the ``cost`` of the same flow at the others, and who else can see or use it."""

    pattern: Array
    cost: float
    others: frozenset[PartyId]

    @classmethod
    def of(cls, message: _Message, party: PartyId, costs: list[_Cost]) -> _Link:
        vectors = {one: costs[one].of(pattern) for one, pattern in message.patterns.items()}
        cost = sum(price for one, (_, price) in vectors.items() if one != party)
        return cls(vectors[party][0], cost, message.seen_by - {party})


def _bound(cost: _Cost, links: list[_Link], size: int) -> float:
    weighted = cost.product @ cost.portion
    kappa = float(cost.portion @ weighted)
    if kappa <= 0:
        return 0.0
    remaining = cost.product - np.outer(weighted, weighted) / kappa
    chosen = _disjoint(links, weighted / kappa, remaining)
    if len(chosen) <= size:
        return kappa
    patterns = np.array([pattern for pattern, _ in chosen])
    norm = patterns @ remaining @ patterns.T + np.diag([price for _, price in chosen])
    return 1.0 / (1.0 / kappa + max(_equal_flows(norm, size), _separate_flows(norm, size)))


def _disjoint(links: list[_Link], carried: Array, remaining: Array) -> list[tuple[Array, float]]:
    """The cheapest links for unit flows, each to other parties than those before: pattern and cost."""
    candidates = []
    for number, link in enumerate(links):
        part = float(carried @ link.pattern)
        if abs(part) > _LEAST_PART:
            own = float(link.pattern @ remaining @ link.pattern)
            candidates.append(((own + link.cost) / part**2, number, link.pattern / part, link.cost / part**2))
    taken: set[PartyId] = set()
    chosen = []
    for _, number, pattern, price in sorted(candidates, key=lambda one: one[:2]):
        if not links[number].others & taken:
            taken |= links[number].others
            chosen.append((pattern, price))
    return chosen


def _equal_flows(norm: Array, size: int) -> float:
    """F^2 / V."""
    near = np.maximum(norm - np.diag(np.diag(norm)), 0.0)
    together = np.sort(near, axis=1)[:, ::-1][:, : max(size - 1, 0)].sum(axis=1)
    worse = np.maximum(np.diag(norm) - 2.0 * norm.sum(axis=1) + together, 0.0)
    largest = norm.sum() + np.sort(worse)[::-1][:size].sum()
    return float((len(norm) - size) ** 2 / largest)


def _separate_flows(norm: Array, size: int) -> float:
    """The sum of 1 / d over the links that are left."""
    resistance = np.diag(norm) + np.maximum(norm - np.diag(np.diag(norm)), 0.0).sum(axis=1)
    return float(np.sort(1.0 / resistance)[::-1][size:].sum())
