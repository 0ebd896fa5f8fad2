"""What rounding to a grid adds to the privacy of an execution: a proven bound.

On the grid the protocol after the injections is a fixed map F of whole numbers, and F commutes with some shifts: if what a party
holds changes by a multiple of (k + 1) steps, each of its k + 1 shares changes by exactly a (k + 1)-th of that, since halves are
always rounded up; if an injection changes by a multiple of a step, so does its rounded value. Now let the value of one party
change. In real numbers there is a change of the noise, of squared standardised norm mu^2, after which all that the adversary sees
is as before; the numbers it does not see change by some h. Round every h at random, without bias, to a multiple of k + 1 steps
(zero stays zero), and change the injections to match, all by whole steps: on the grid the adversary then sees exactly the same as
before. The change of the noise differs from the first one by something of mean zero and mean squared norm at most b^2 for each of
the d coordinates, so that some rounding costs at most mu^2 + d b^2. A constant shift of Gaussian noise that leaves the view as it
was bounds its trade-off function: the execution is sqrt(mu^2 + d b^2)-GDP, for any adversary, if no share is cut to 32 bits.

With discrete noise the noise itself must change by whole numbers. So every h is rounded to a multiple of (k + 1) F, for which the
changes of noise of :class:`~quietmean.protocols.push_sum.whole_shift.WholeShift` are whole, F the least common multiple of what
all parties need; and where changes of noise leave all injections as they are, their whole basis is rounded along, too: a quarter
of its squared norms is added for each party.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.push_sum.parameters import PushSumParameters
from quietmean.protocols.push_sum.rounds import next_online
from quietmean.protocols.push_sum.whole_shift import whole_shift

_RANK_TOLERANCE = 1e-9


def rounding_information(parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace) -> float:
    """b^2 of an execution, at most: its mu on a grid is sqrt(mu^2 + d b^2) for values of d coordinates. Replacement; no unit.

    mu is that of the same execution in real numbers, at its sensitivity; infinite if some injection has too little noise.
    """
    if not parameters.grid:
        return 0.0
    costs = _Costs(parameters, trace)
    return (costs.factor**2 * _of_shares(costs, schedule, trace) + costs.kernels) * parameters.grid**2 / 4.0


def _of_shares(costs: _Costs, schedule: Schedule, trace: ExecutionTrace) -> float:
    """The squared norms of the changes of noise that move one share by one step, over all shares."""
    if not costs.finite:
        return math.inf
    upcoming = next_online(trace)
    delivered, acknowledged = trace.deliveries(schedule)
    settled: dict[tuple[int, int], list[int]] = {}
    for sent, sender, _, later in trace.settled_slots(schedule):
        settled.setdefault((sent, sender), []).extend([later] if later else [])
    total = 0.0
    for round_ in range(schedule.rounds):
        holders = np.nonzero(trace.online[round_])[0]
        later = upcoming[round_, holders]
        has_left = later > schedule.rounds
        total += float(costs.of(holders[has_left], round_, round_).sum())
        holders, later = holders[~has_left], later[~has_left]
        parts = schedule.out_degree[later - 1, holders] + 1
        kept = 1.0 - acknowledged[later - 1, holders].sum(axis=1) / parts
        own = costs.of(holders, round_, round_) + kept**2 * costs.of(holders, later, later)
        own -= 2.0 * kept * costs.of(holders, round_, later)
        for index, (holder, sent) in enumerate(zip(holders.tolist(), later.tolist(), strict=True)):
            if (sent, holder) in settled:
                taken_out = [(back, 1.0 / parts[index]) for back in settled[sent, holder]]
                own[index] = costs.of_changes(holder, [(round_, 1.0), (sent, -kept[index]), *taken_out])
        total += float((parts**2 * own).sum())
        rows, slots = np.nonzero(delivered[later - 1, holders])
        receivers = schedule.neighbours[later[rows] - 1, holders[rows], slots].astype(np.int64)
        total += float(costs.of(receivers, later[rows], later[rows]).sum())
    return total


def widened(mu: Array, information: float, dimension: int) -> Array:
    """An upper bound for mu on the grid, elementwise in any shape, from mu in real numbers and :func:`rounding_information`."""
    return np.hypot(mu, math.sqrt(dimension * information))


class _Costs:
    """Squared standardised norms of the changes of a party's noise that make given changes of its injections.

    They are the least ones, or with discrete noise whole ones for changes by multiples of ``factor``; ``kernels`` is the sum over
    all parties of the squared norms of whole changes that change no injection.
    """

    def __init__(self, parameters: PushSumParameters, trace: ExecutionTrace) -> None:
        self._turns = np.cumsum(trace.online, axis=0) - 1
        # Parties online equally often, and alike in whether they finish, injected by the same rows.
        kinds, self._kind = np.unique(2 * trace.online.sum(axis=0) + trace.finished, return_inverse=True)
        size = parameters.rounds + 1
        self._products = np.zeros((kinds.size, size, size))
        self.factor, self.kernels = 1, 0.0
        for number, kind in enumerate(kinds.tolist()):
            count, finishes = kind // 2, bool(kind % 2)
            if parameters.whole:
                shift = whole_shift(parameters, count, finishes=finishes)
                self.factor = math.lcm(self.factor, shift.factor)
                self.kernels += shift.kernel * int((self._kind == number).sum())
                product = shift.product
            else:
                product = inverse_product(parameters, count, finishes=finishes)
            self._products[number, :count, :count] = product

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self._products).all())

    def of(self, parties: Ints, first: int | Ints, second: int | Ints) -> Array:
        """For each party, the product of the noise changes for unit changes of the injections of two rounds."""
        product: Array = self._products[self._kind[parties], self._turns[first, parties], self._turns[second, parties]]
        return product

    def of_changes(self, party: int, changes: Sequence[tuple[int, float]]) -> float:
        """The squared norm for changes (round, by how much) of one party's injections."""
        change = np.zeros(len(self._turns))
        for round_, by in changes:
            change[self._turns[round_, party]] += by
        return float(change @ self._products[self._kind[party]] @ change)


def inverse_product(parameters: PushSumParameters, count: int, finishes: bool) -> Array:
    """Entry (r, s): product of the least noise changes that change injections r and s by one; infinite if there are none."""
    injection = parameters.injections
    noise = injection.noise[:count].copy()
    if finishes:
        noise[-1] = -noise[:-1].sum(axis=0)
    guard = injection.portion[:count].copy()
    if finishes:
        guard[-1] = -guard[:-1].sum()
    deviations = [parameters.sigma_star, parameters.sigma_delta, parameters.sigma_guard]
    gains = np.column_stack([injection.portion[:count], noise, guard]) * np.repeat(deviations, [1, injection.noise_terms, 1])
    size = np.linalg.norm(gains, axis=1, keepdims=True)
    if (size == 0).any() or np.linalg.matrix_rank(gains / size, tol=_RANK_TOLERANCE) < count:
        return np.full((count, count), np.inf)
    inverse = np.linalg.pinv(gains)
    product: Array = inverse.T @ inverse
    return product
