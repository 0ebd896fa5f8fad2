"""The worst coalition of IncA by a star of shares: what a party hides behind those it exchanges shares with.

A change of party i's value is undone, in all that others see, by a change of noise. Take a round in which a party sends shares,
all of its receivers are honest, and party i is the sender or a receiver. The sender holds (k + 1) f more before it sends, so that
each of its k shares is f more; it injects less by what it kept, and each receiver injects f less in the same round. Nothing else
changes: no other share, and no release. Doing so in several rounds moves some of i's change to others. The squared norm of the
change of noise bounds Lambda_ii, for any numbers f; the best are the solution of a small least-squares problem. A coalition can
only take rounds away: those in which one of its members is the sender or a receiver. So the worst one depends only on whom party
i exchanges shares with. Where these are too many to try all sets of them, a diagonal bound of the quadratic form shows what any
set can take, and so does one f for all sets (:mod:`~quietmean.protocols.inca.hidden_shares`). The proof is in
``docs/proofs/coalitions.md``.

Dropouts are no exception. Whether a share may be seen is decided by the schedule, whether an honest party used it by the trace.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.bounds import CoalitionBound
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.inca.groups import branch_and_bound, groups_bound
from quietmean.protocols.inca.hidden_shares import HiddenShares, flow_bound
from quietmean.protocols.push_sum import forgotten
from quietmean.protocols.push_sum.fixed_point import inverse_product
from quietmean.protocols.push_sum.parameters import PushSumParameters

PROOF = "the shares that hide each party, by flows, by groups of the others and by branch and bound"
# The effort of trying sets of groups for all parties together, in the units of :func:`groups_bound`.
_EFFORT = 1e8
# The effort of branch and bound, in multiplications.
_BRANCHING = 6e10
# Least-squares problems that are solved for all parties together; where more are needed, the diagonal bound serves.
_MOST_SETS = 60_000
_BATCH = 4096
# Margins for rounding: the bound holds for any f, and its squared norm is computed for the solution at hand.
_RIDGE, _MARGIN = 1e-13, 1e-9
_TOLERANCE = 1e-9


def worst_coalition(
    parameters: PushSumParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    sensitivity: float,
    size: int,
    given: frozenset[int] = frozenset(),
    watched: frozenset[int] | None = None,
) -> CoalitionBound:
    """The worst coalition of ``size``, together with the parties ``given``; of the protocol in real numbers.

    Of each party the best of three, its own star of shares, one flow through it, and all shares in disjoint groups of the others;
    then the worst-off parties' bounds are made smaller by branch and bound. ``watched``: of whom it is asked; the others' are
    infinite.
    """
    stars, shares = Stars(parameters, schedule, trace), HiddenShares(parameters, schedule, trace, given)
    effort = _EFFORT / schedule.parties
    information = np.full(schedule.parties, np.inf)
    for party in range(schedule.parties) if watched is None else sorted(watched):
        star = stars.of(party).without(given)
        information[party] = star.worst_information(size, schedule.parties)
        if party in given:
            continue
        # One flow for all sets of partners is not better than the best one for each.
        flow = math.inf if star.tries_all(size, schedule.parties) else flow_bound(shares, party, size)
        information[party] = min(information[party], flow, groups_bound(shares, party, size, effort))
    if watched is None:
        information = branch_and_bound(shares, information, size, _BRANCHING)
    return CoalitionBound(sensitivity * np.sqrt(information) * (1 + _MARGIN), PROOF)


@dataclass(frozen=True, eq=False)
class Star:
    """The ways, m of them, to change noise with a party's value. Lambda_ii <= c - 2 b'f + f'Qf for any f, shape (m,).

    ``quadratic`` Q (m, m), ``linear`` b (m,), ``constant`` c. ``diagonal``, shape (m,): f may also be chosen so that
    Lambda_ii <= 1 / (1 / c + sum diagonal) over any of the ways. ``members``: the other parties in each way.
    """

    quadratic: Array
    linear: Array
    constant: float
    diagonal: Array
    members: tuple[frozenset[int], ...]

    def without(self, corrupt: frozenset[int]) -> Star:
        """The ways that are left if these parties are corrupt."""
        left = [way for way, members in enumerate(self.members) if not members & corrupt]
        if len(left) == len(self.members):
            return self
        members = tuple(self.members[way] for way in left)
        return Star(self.quadratic[np.ix_(left, left)], self.linear[left], self.constant, self.diagonal[left], members)

    def worst_information(self, size: int, parties: int) -> float:
        """Lambda_ii at most against every coalition of ``size`` of the other parties; infinite if nothing hides the value."""
        if not self.members or not math.isfinite(self.constant):
            return self.constant
        ways = self._ways_by_member()
        if size < len(ways) and self.tries_all(size, parties):
            return max(float(_least(self, usable).max()) for usable in self._usable(list(ways), size))
        # What one member takes, summed over the worst of them: ways with several members are counted more than once.
        taken = sorted(sum(self.diagonal[way] for way in range(len(self.members)) if mask >> way & 1) for mask in ways.values())
        left = float(self.diagonal.sum()) - float(sum(taken[len(taken) - min(size, len(taken)) :]))
        return 1.0 / (1.0 / self.constant + max(left, 0.0) * (1 - _MARGIN)) if self.constant else 0.0

    def tries_all(self, size: int, parties: int) -> bool:
        """Are there so few sets of partners that each gets its own flow? All are corrupt where they are no more than ``size``."""
        return math.comb(len(frozenset().union(*self.members)), size) <= max(1, _MOST_SETS // parties)

    def _ways_by_member(self) -> dict[int, int]:
        """The ways that each other party takes away, as the bits of a number."""
        ways: dict[int, int] = {}
        for way, members in enumerate(self.members):
            for member in members:
                ways[member] = ways.get(member, 0) | 1 << way
        return ways

    def _usable(self, members: list[int], size: int) -> Iterator[Mask]:
        """Masks (sets, m) of the ways that each coalition leaves, in batches."""
        ways = self._ways_by_member()
        taken = sorted({_union(ways[member] for member in chosen) for chosen in itertools.combinations(members, size)})
        for first in range(0, len(taken), _BATCH):
            yield np.array([[not mask >> way & 1 for way in range(len(self.members))] for mask in taken[first : first + _BATCH]])


class Stars:
    """The stars of all parties in one execution."""

    def __init__(self, parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace) -> None:
        self._parameters, self._schedule, self._trace = parameters, schedule, trace
        self._turns = np.cumsum(trace.online, axis=0) - 1
        self._forgotten = forgotten(trace)
        self._products: dict[tuple[int, bool], Array] = {}
        self._settled = {(round_, sender) for round_, sender, _, _ in trace.settled_slots(schedule)}
        # The ways in which each party takes part: (sender, round, receivers that used the share).
        self._ways: list[list[tuple[int, int, list[int]]]] = [[] for _ in range(schedule.parties)]
        delivered = trace.delivered(schedule)
        for round_index, sender in np.argwhere(delivered.any(axis=2)).tolist():
            used = schedule.neighbours[round_index, sender, np.nonzero(delivered[round_index, sender])[0]].tolist()
            if (round_index + 1, sender) in self._settled:
                continue
            for party in (sender, *used):
                self._ways[party].append((sender, round_index + 1, used))

    def of(self, party: int) -> Star:
        portion = self._parameters.injections.portion[: int(self._trace.online[:, party].sum())]
        product = self._product(party)
        if not np.isfinite(product).all():
            return Star(np.zeros((0, 0)), np.zeros(0), math.inf, np.zeros(0), ())
        ways = [way for way in self._ways[party] if all(np.isfinite(self._product(other)).all() for other in (way[0], *way[2]))]
        members = [frozenset((sender, *self._schedule.recipients(round_, sender))) - {party} for sender, round_, _ in ways]
        changes = self._changes(ways)
        if not self._trace.finished[party]:
            # What it held last was sent to nobody, and may change freely.
            own = changes.setdefault(party, np.zeros((len(ways), portion.size)))
            changes = {other: np.vstack([change, np.zeros((1, change.shape[1]))]) for other, change in changes.items()}
            changes[party] = np.vstack([own, np.eye(portion.size)[-1:]])
            members.append(frozenset())
        own = changes.pop(party, np.zeros((0, portion.size)))
        others = np.zeros((len(members), len(members)))
        for other, change in changes.items():
            rows = np.nonzero(change.any(axis=1))[0]
            others[np.ix_(rows, rows)] += change[rows] @ self._product(other) @ change[rows].T
        quadratic = own @ product @ own.T + others
        constant = float(portion @ product @ portion)
        diagonal = self._diagonal(own, others, portion) if self._trace.finished[party] else np.zeros(len(members))
        return Star(quadratic, own @ product @ portion, constant, diagonal, tuple(members))

    def _changes(self, ways: list[tuple[int, int, list[int]]]) -> dict[int, Array]:
        """The injections of each party that change, in each way, for f = 1; rows for the ways, columns for its rounds online."""
        changes: dict[int, Array] = {}

        def change(party: int) -> Array:
            turns = int(self._trace.online[:, party].sum())
            return changes.setdefault(party, np.zeros((len(ways), turns)))

        for way, (sender, round_, used) in enumerate(ways):
            turn, parts = int(self._turns[round_, sender]), int(self._schedule.out_degree[round_ - 1, sender]) + 1
            change(sender)[way, turn - 1] += parts
            if not self._forgotten[round_, sender]:
                change(sender)[way, turn] += len(used) - parts
            for receiver in used:
                if not self._forgotten[round_, receiver]:
                    change(receiver)[way, int(self._turns[round_, receiver])] -= 1.0
        return changes

    def _diagonal(self, own: Array, others: Array, portion: Array) -> Array:
        """What each way adds to the variance of a party's value that finished, whichever other ways there are.

        The noise that stays takes 1 - sum_w n_w f_w of the change, n_w what the party injects more, in values; the noise that is
        cancelled makes up the rounds. What the latter and the other parties cost is at most diagonal, by the rows' sums.
        """
        if abs(portion.sum()) < _TOLERANCE:
            return np.zeros(len(own))
        moved = own.sum(axis=1) / portion.sum()
        shape = own - np.outer(moved, portion)
        noise = self._parameters.injections.noise[: portion.size] * self._parameters.sigma_delta
        noise[-1] = -noise[:-1].sum(axis=0)
        solved = shape @ np.linalg.pinv(noise).T
        if not np.allclose(solved @ noise.T, shape, atol=_TOLERANCE * max(1.0, float(np.abs(shape).max(initial=0.0)))):
            return np.zeros(len(own))
        sums = np.abs(solved @ solved.T + others).sum(axis=1)
        worth: Array = np.divide(moved**2, sums, out=np.zeros(len(own)), where=sums > 0)
        return worth

    def _product(self, party: int) -> Array:
        kind = int(self._trace.online[:, party].sum()), bool(self._trace.finished[party])
        if kind not in self._products:
            self._products[kind] = inverse_product(self._parameters, kind[0], finishes=kind[1])
        return self._products[kind]


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _least(star: Star, usable: Mask) -> Array:
    """The least squared norm over the usable ways, for each row of ``usable`` (sets, m)."""
    chosen = usable.astype(np.float64)
    scale = float(np.trace(star.quadratic)) / len(star.linear) or 1.0
    matrices = star.quadratic * chosen[:, :, None] * chosen[:, None, :]
    matrices += np.eye(len(star.linear)) * (scale * (1.0 - chosen + _RIDGE))[:, :, None]
    linear = star.linear * chosen
    solutions = np.linalg.solve(matrices, linear[:, :, None])[:, :, 0] * chosen
    norms = (
        star.constant - 2.0 * (solutions * linear).sum(axis=1) + np.einsum("si,ij,sj->s", solutions, star.quadratic, solutions)
    )
    norms_within: Array = np.clip(norms, 0.0, star.constant)
    return norms_within
