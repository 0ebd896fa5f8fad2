"""The worst coalition of IncA by branch and bound: what every set of parties that contains a coalition leaves of all shares.

With b_i = A_i'P_i c and Q = sum of A_j'P_jA_j over all parties, i included, handing over the change f of shares costs

    Lambda_ii <= c'P_i c - 2 b_i'f + f'Qf

for any f on ways without corrupt members: the same Q for all parties, so that one factorisation serves them all. A coalition
knows no more than any set that contains it. So divide the parties into a few groups: a coalition of size k lies in the union of
k of them. The worst of these unions is divided further, as long as the effort allows: one of its groups G into halves A and B, so
that a coalition lies in the union without A, or without B, or it has members in both, and then none in one of the other groups.
At any time the worst that is left is a bound, and when the worst is a union of single parties it is the worst coalition. The
proof is in ``docs/mathematics/coalitions.md``.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from quietmean.core.arrays import Array
from quietmean.core.party import PartyId
from quietmean.protocols.inca.hidden_shares import HiddenShares
from quietmean.randomness import BitStream, Seed

Group = tuple[PartyId, ...]

# The most ways of a matrix that fits into memory.
_MOST_WAYS = 3000
# Coalitions of k are first bounded by unions of k groups, of k and this many more.
_MORE_GROUPS = 2
# A ridge, relative to the mean cost of a way: ways that cost nothing must not become infinitely good.
_RIDGE = 1e-6
# Digits to which all machines compute the same number.
_DIGITS = 6
# The fixed cost of one more member, in multiplications.
_PER_MEMBER = 3e5


def branch_and_bound(shares: HiddenShares, bound_before: Array, size: int, effort: float) -> Array:
    """Lambda_ii of each party at most against every coalition of ``size``, (n,): at most ``bound_before``, which holds already.

    ``effort``: what may be spent on it, in multiplications. The largest is made smaller first.
    """
    able = [party for party in range(shares.parties) if len(shares.ways[party])]
    if not able or size >= len(able) or len(shares.members) > _MOST_WAYS:
        return bound_before
    costs = HandingOver(shares)
    values: dict[frozenset[PartyId], Array] = {}
    order = [able[index] for index in BitStream(Seed.public("branches")).permutation(len(able)).tolist()]
    count = min(len(able), size + _MORE_GROUPS)
    groups = [tuple(order[first::count]) for first in range(count)]
    open_: list[tuple[float, int, tuple[Group, ...], Array]] = []
    number = itertools.count()
    branches: list[tuple[tuple[Group, ...], Array]] = [(union, bound_before) for union in itertools.combinations(groups, size)]
    while True:
        for union, above in branches:
            corrupt = frozenset(itertools.chain.from_iterable(union))
            if corrupt not in values:
                values[corrupt] = costs.information(sorted(corrupt))
            # The bound of the set that it was divided from still holds.
            smaller = np.minimum(values[corrupt], above)
            heapq.heappush(open_, (-_largest(smaller, bound_before), next(number), union, smaller))
        worst, smaller = open_[0][2:]
        if costs.spent > effort or all(len(group) == 1 for group in worst):
            break
        heapq.heappop(open_)
        branches = [(part, smaller) for part in divided(worst)]
    improved: Array = np.max([smaller for *_, smaller in open_], axis=0)
    return improved


def _largest(information: Array, bound: Array) -> float:
    """Where a bound is infinite nothing can be made smaller. Rounded, so that all machines divide the same unions."""
    return float(f"{information[np.isfinite(bound)].max(initial=0.0):.{_DIGITS}g}")


def divided(union: tuple[Group, ...]) -> Iterator[tuple[Group, ...]]:
    """As many groups each, of fewer parties together; every choice of as many parties of the union lies in one of them."""
    largest = max(range(len(union)), key=lambda index: len(union[index]))
    others, middle = union[:largest] + union[largest + 1 :], len(union[largest]) // 2
    halves = union[largest][:middle], union[largest][middle:]
    yield from ((*others, half) for half in halves)
    yield from ((*others[:index], *others[index + 1 :], *halves) for index in range(len(others)))


class HandingOver:
    """Q and b_i for all ways of an execution; ``spent``: multiplications of all calls of :meth:`information` so far."""

    def __init__(self, shares: HiddenShares) -> None:
        ways, parties = len(shares.members), shares.parties
        self._quadratic, self._linear = np.zeros((ways, ways)), np.zeros((ways, parties))
        self._own = np.full(parties, np.inf)
        self._touched = np.zeros((ways, parties), dtype=np.bool_)
        for party in range(parties):
            used, portion = shares.ways[party], shares.portion(party)
            if shares.hiding[party]:
                self._own[party] = shares.alone(party)
            if len(used):
                self._quadratic[np.ix_(used, used)] += shares.costs[party]
                self._linear[used, party] = shares.changes[party] @ (shares.products[party] @ portion)
        for members in shares.members.T:
            there = np.nonzero(members >= 0)[0]
            self._touched[there, members[there]] = True
        ridge = _RIDGE * float(np.trace(self._quadratic)) / max(ways, 1)
        self._quadratic[np.diag_indices(ways)] += ridge
        # What a Cholesky factorisation may be off is at most ways * eps * condition number, of what it takes away.
        largest = float(np.abs(self._quadratic).sum(axis=1).max(initial=0.0))
        self._rounding = np.finfo(np.float64).eps * ways * largest / ridge if ridge else 0.0
        self.spent = 0.0

    def information(self, corrupt: Collection[PartyId]) -> Array:
        """Lambda_ii of each party if all of ``corrupt`` but itself collude, (n,)."""
        try:
            return self._information(list(corrupt))
        except np.linalg.LinAlgError:
            # What own noise alone hides is never too little.
            return self._own

    def _information(self, members: list[PartyId]) -> Array:
        touched = self._touched[:, members]
        count = touched.sum(axis=1)
        free, once = np.nonzero(count == 0)[0], np.nonzero(count == 1)[0]
        self.spent += len(free) ** 2 * (len(free) / 3 + len(self._own) + len(once)) + _PER_MEMBER * (1 + len(members))
        factor = cholesky(self._quadratic[np.ix_(free, free)], lower=True, check_finite=False)
        solved = _below(factor, self._linear[free])
        taken = (solved**2).sum(axis=0)
        # Of its own ways a member has those without any other of them.
        shared = _below(factor, self._quadratic[np.ix_(free, once)])
        for index, party in enumerate(members):
            own = np.nonzero(touched[once, index])[0]
            if len(own):
                across, ways = shared[:, own], once[own]
                left = cholesky(self._quadratic[np.ix_(ways, ways)] - across.T @ across, lower=True, check_finite=False)
                rest = _below(left, (self._linear[ways, party] - across.T @ solved[:, party])[:, None])
                taken[party] += float((rest**2).sum())
        return np.asarray(self._own - taken * (1 - self._rounding), dtype=np.float64)


def _below(factor: Array, right: Array) -> Array:
    """L^-1 times ``right``; nothing where there are no rows."""
    if not right.size:
        return right
    return np.asarray(solve_triangular(factor, right, lower=True, check_finite=False), dtype=np.float64)
