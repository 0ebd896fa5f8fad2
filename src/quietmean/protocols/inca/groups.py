"""The worst coalition of IncA by disjoint groups: what a party hides behind all others, not only those it exchanges shares with.

Divide the other parties into groups, and let only ways change whose members are party i and parties of one group. Then what the
others pay is a sum over groups. The least that group g pays for a change v of i's injections is v'X_g^+ v with the *admittance*
X_g = A_i,g' Q_g^-1 A_i,g. A_i,g are the changes of i's injections by the group's ways, Q_g the costs of its members: as of
conductors in parallel, with matrices over rounds for numbers. So with S_i the covariance of i's own injections, c the change with
its value,

    Lambda_ii <= c' (S_i + sum of X_g over the groups that no member of the coalition is in)^-1 c,

and a coalition of size k is in k groups at most. All sets of k groups are tried. Any division is valid, any ridge on Q_g, and
leaving out a part of X_g. The proof is in ``docs/proofs/coalitions.md``.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import PartyId
from quietmean.protocols.inca.hidden_shares import HiddenShares
from quietmean.randomness import BitStream, Seed

Places = Ints

# Divisions that are tried where not every party can be a group of its own.
_DIVISIONS = 3
# The most columns of a group: with more of them fewer groups could be tried.
_MOST_COLUMNS = 6
# The fixed cost of solving for one set of groups, in the units of its columns squared.
_PER_SET = 50
_BATCH = 4096
# A ridge, relative to the party's own costs: ways that cost the others nothing must not become infinitely good.
_RIDGE = 1e-4
# The largest residual of a solution, relative to its smallest eigenvalue; and the largest condition number.
_RESIDUAL, _CONDITION = 1e-10, 1e7
# A margin for rounding: checked by solving the worst set again.
MARGIN = 1e-6


def groups_bound(shares: HiddenShares, party: PartyId, size: int, effort: float) -> float:
    """Lambda_ii at most of ``party`` against every coalition of ``size``; infinite where nothing hides its value.

    ``effort``: what trying all sets of groups may cost; more makes more and smaller groups.
    """
    if not shares.hiding[party]:
        return math.inf
    own = shares.alone(party)
    others = [other for other in range(shares.parties) if other != party and len(shares.ways[other])]
    # Where all that it injected was forgotten, its value costs nothing.
    if size >= len(others) or not shares.products[party].any():
        return own
    count = _how_many(len(others), size, len(shares.ways[party]), effort / _DIVISIONS)
    divisions = 1 if count == len(others) else _DIVISIONS
    divided = (_columns(shares, party, divide(shares, party, others, count, number)) for number in range(divisions))
    return min([own, *(columns.worst(size) * (1 + MARGIN) for columns in divided if columns is not None)])


def _how_many(others: int, size: int, ways: int, effort: float) -> int:
    """How many groups are tried: as many as can be; with more of them a coalition takes less away."""

    def cost(count: int) -> float:
        columns = min(size, count - size) * min(_MOST_COLUMNS, math.ceil(ways / count))
        return math.comb(count, size) * (columns**2 + _PER_SET)

    return max((count for count in range(size + 1, others + 1) if cost(count) <= effort), default=size + 1)


def divide(shares: HiddenShares, party: PartyId, others: list[PartyId], count: int, number: int = 0) -> list[list[PartyId]]:
    """``others`` in ``count`` groups: first one of the parties that exchange most with ``party`` into each, then who fits best.

    ``number``: one of many such divisions, that differ where others fit as well.
    """
    stream = BitStream(Seed.public("groups", party, number))
    near = shares.exchanged[party]
    order = np.array(others)[np.argsort(-near[others] - 0.5 * stream.uniform(len(others)), kind="stable")]
    groups = [[int(first)] for first in order[:count]]
    fits = shares.exchanged[order[:count]].copy()
    # A party that exchanges with the party is wanted in any group.
    fits += 0.25 * near + 0.5 * stream.uniform(shares.parties)
    left = np.zeros(shares.parties, dtype=np.bool_)
    left[order[count:]] = True
    for group in itertools.cycle(range(count)):
        if not left.any():
            return groups
        best = int(np.argmax(np.where(left, fits[group], -np.inf)))
        left[best] = False
        groups[group].append(best)
        fits[group] += shares.exchanged[best]
    return groups


@dataclass(frozen=True, eq=False)
class GroupProducts:
    """X_g = U_g U_g' of all groups: ``own`` = c'P c, ``linear`` = U'P c (K,), ``full`` = 1 + U'P U (K, K).

    ``owner`` (K,): the group of each column. Handing over the change U z costs own - 2 linear'z + z' full z at most.
    """

    own: float
    linear: Array
    full: Array
    owner: Places
    groups: int

    def worst(self, size: int) -> float:
        """The least cost without any ``size`` of the groups, at the worst."""
        if size >= self.groups or float(np.linalg.eigvalsh(self.full)[-1]) > _CONDITION:
            return self.own
        if size == 0:
            return self._without(set())
        places = self._places()
        sets = np.array(list(itertools.combinations(range(self.groups), size)), dtype=np.int64)
        if 2 * size <= self.groups:
            inverse = np.asarray(np.linalg.inv(self.full), dtype=np.float64)
            solved = inverse @ self.linear
            without_any = self.own - float(self.linear @ solved)
            costs = without_any + _forms(inverse, solved, places, sets)
        else:
            # What is kept is less than what is lost.
            kept = np.ones((len(sets), self.groups), dtype=np.bool_)
            np.put_along_axis(kept, sets, False, axis=1)
            costs = self.own - _forms(self.full, self.linear, places, np.nonzero(kept)[1].reshape(len(sets), -1))
        worst = int(np.argmax(costs))
        again = self._without(set(sets[worst].tolist()))
        return max(float(costs[worst]), again) if math.isclose(costs[worst], again, rel_tol=MARGIN) else self.own

    def _without(self, lost: set[int]) -> float:
        """The cost of a solution without these groups, whatever its rounding."""
        kept = np.array([owner not in lost for owner in self.owner.tolist()], dtype=np.bool_)
        full, linear = self.full[np.ix_(kept, kept)], self.linear[kept]
        solved = np.linalg.solve(full, linear)
        return float(self.own - 2 * linear @ solved + solved @ full @ solved)

    def _places(self) -> Places:
        """The columns of each group, (groups, most); K where there are fewer."""
        counts = np.bincount(self.owner, minlength=self.groups)
        places = np.full((self.groups, max(int(counts.max(initial=0)), 1)), len(self.linear), dtype=np.int64)
        for group, count in enumerate(counts.tolist()):
            places[group, :count] = np.nonzero(self.owner == group)[0]
        return places


def _forms(matrix: Array, vector: Array, places: Places, sets: Places) -> Array:
    """v_S' M_SS^-1 v_S for each set of groups, (sets,); one more row and column means columns that are not there."""
    absent = len(vector)
    padded, filled = np.zeros((absent + 1, absent + 1)), np.append(vector, 0.0)
    padded[:absent, :absent] = matrix
    forms = []
    for first in range(0, len(sets), _BATCH):
        chosen = places[sets[first : first + _BATCH]].reshape(len(sets[first : first + _BATCH]), -1)
        matrices = padded[chosen[:, :, None], chosen[:, None, :]]
        diagonal = np.einsum("sii->si", matrices)
        diagonal[chosen == absent] = 1.0
        right = filled[chosen]
        forms.append((right * np.linalg.solve(matrices, right[:, :, None])[:, :, 0]).sum(axis=1))
    return np.concatenate(forms)


def _columns(shares: HiddenShares, party: PartyId, groups: list[list[PartyId]]) -> GroupProducts | None:
    """None where no group has a way to the party."""
    inside = _groups_of_ways(shares, party, groups)
    product, portion = shares.products[party], shares.portion(party)
    ridge = _RIDGE * float(np.trace(product)) / len(product)
    handed = (_handed(shares, party, members, inside == group, ridge) for group, members in enumerate(groups))
    useful = [columns for columns in handed if columns.shape[1]]
    if not useful:
        return None
    changes = np.hstack(useful)
    owner = np.repeat(np.arange(len(useful)), [columns.shape[1] for columns in useful])
    full, linear = np.eye(len(owner)) + changes.T @ product @ changes, changes.T @ product @ portion
    return GroupProducts(shares.alone(party), linear, full, owner, len(useful))


def _groups_of_ways(shares: HiddenShares, party: PartyId, groups: list[list[PartyId]]) -> Places:
    """The group that all members of each way but the party are in, (W,); -1 where there is none."""
    # The last place is that of nobody, as a member's number of -1 means.
    group_of = np.full(shares.parties + 1, -2, dtype=np.int64)
    for group, members in enumerate(groups):
        group_of[members] = group
    numbers = group_of[shares.members]
    counted = (shares.members >= 0) & (shares.members != party)
    lowest = np.where(counted, numbers, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    highest = np.where(counted, numbers, -2).max(axis=1, initial=-2)
    return np.where((lowest == highest) & (lowest >= 0), lowest, -1)


def _handed(shares: HiddenShares, party: PartyId, group: list[PartyId], inside: Mask, ridge: float) -> Array:
    """U_g (rounds online, columns), the best columns of a group."""
    own = np.nonzero(inside[shares.ways[party]])[0]
    ways = np.nonzero(inside)[0]
    index_of = np.full(len(inside), -1)
    index_of[ways] = np.arange(len(ways))
    costs = np.zeros((len(ways), len(ways)))
    for member in group:
        used = np.nonzero(inside[shares.ways[member]])[0]
        rows = index_of[shares.ways[member][used]]
        costs[np.ix_(rows, rows)] += shares.costs[member][np.ix_(used, used)]
    costs[np.diag_indices_from(costs)] += ridge
    rows = index_of[shares.ways[party][own]]
    units = np.zeros((len(ways), len(own)))
    units[rows, np.arange(len(own))] = 1.0
    solved = np.linalg.solve(costs, units)
    admitted = (solved[rows] + solved[rows].T) / 2
    values, vectors = np.linalg.eigh(admitted)
    # The change f = solved b costs b'(admitted + solved'(costs solved - units)) b.
    off = np.abs(solved.T @ (costs @ solved - units)).sum(axis=1).max(initial=0.0)
    if not len(own) or values[0] <= 0 or off > _RESIDUAL * values[0]:
        return np.zeros((shares.changes[party].shape[1], 0))
    handed: Array = shares.changes[party][own].T @ (vectors * np.sqrt(values))
    if handed.shape[1] > _MOST_COLUMNS:
        weights = handed.T @ shares.products[party] @ handed
        handed = handed @ np.linalg.eigh(weights)[1][:, -_MOST_COLUMNS:]
    return handed


Group = tuple[PartyId, ...]

# The most ways of a matrix that fits into memory.
_MOST_WAYS = 3000
# Coalitions of k are first bounded by unions of k groups, of k and this many more.
_MORE_GROUPS = 2
# A ridge, relative to the mean cost of a way: ways that cost nothing must not become infinitely good.
_BRANCH_RIDGE = 1e-6
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
    """Divide into as many groups, of fewer parties together; every choice of as many parties of the union lies in one of them."""
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
        ridge = _BRANCH_RIDGE * float(np.trace(self._quadratic)) / max(ways, 1)
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
