"""The shares of an execution of IncA behind which parties hide: what changing them does to injections, and what that costs.

A *way* is a round in which a party sends shares. If all its receivers are honest, the shares may be something else without
anybody seeing it: the sender holds (k + 1) f more before it sends, so that each of its k shares is f more; in the round it
injects less by what it kept, and each receiver that used its share injects f less. No other share changes, and no release. A
change u of a party's injections is one of its noise, of squared norm u'P u at least, P the inverse of the covariance of its
injections.

Whether a share may be seen is decided by the schedule, whether an honest party used it by the trace. So there are ways of which
nobody used a share: nothing moves then, but what the sender held before may be different. What a party that left held last was
sent to nobody and may change freely: P' is what is left of P where it does.

The worst coalition of IncA by a flow: what a party hands over by its own ways, decided before anybody knows who colludes.

Ways are those of :mod:`~quietmean.protocols.inca.worst_case`. A *flow* is one number f_w for each way w in which party i takes
part. With h_w = 1 where a member of the coalition takes part in w, else 0, the ways that are left carry g_w = f_w (1 - h_w), and

    Lambda_ii <= c'P_i c - 2 b'g + g'Q g      for every f.

So the bound is a quadratic form of h, and no coalition is tried. Let u_j be 1 where party j colludes. A way with one other member
has h = u: the form is one of u. A way with k other members has s / k <= h <= s with s the sum of their u: the upper side serves
where h, or h_v h_w, has a positive coefficient, and the lower side otherwise. What c of the others add is at most the sum of the
c largest rows, each with its c - 1 largest entries besides the diagonal. That holds for exactly c of those who exchange shares
with i, and so for fewer: a coalition knows no less with more members. The proof is in ``docs/proofs/coalitions.md``.

Any flow is valid, so the search for a good one needs no care: it only has to do the same on all machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.push_sum import forgotten
from quietmean.protocols.push_sum.fixed_point import inverse_product
from quietmean.protocols.push_sum.parameters import PushSumParameters

Places = Ints

# Fills rows of a table of members.
_NOBODY = -1


class HiddenShares:
    """All ways of one execution. ``corrupt`` parties are in the coalition whatever else: ways with one of them are left out.

    ``members`` (W, k + 1): of each way the sender and all receivers of the schedule, -1 where there are fewer. ``ways[j]`` (w,):
    those in which party j's injections may change; ``changes[j]`` (w, rounds online): by how much, for f = 1; ``products[j]``:
    P or P'; ``costs[j]`` (w, w): the squared norms, changes P changes'. ``hiding`` (n,): not so of a party that was never online,
    or whose noise hides nothing; it has no ways.
    """

    def __init__(
        self, parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace, corrupt: frozenset[PartyId] = frozenset()
    ) -> None:
        self.parties = schedule.parties
        self._parameters = parameters
        self._schedule, self._trace = schedule, trace
        self._turns = np.cumsum(trace.online, axis=0) - 1
        self._count = trace.online.sum(axis=0).astype(np.int64)
        self._kinds: dict[tuple[int, bool], Array] = {}
        self.products = [self._product(party) for party in range(self.parties)]
        finite = np.array([bool(product.size and np.isfinite(product).all()) for product in self.products])
        self.hiding = finite & ~np.isin(np.arange(self.parties), list(corrupt))
        self.members, self.ways, self.changes = self._all_ways()
        self.costs = [
            change @ product @ change.T if len(change) else np.zeros((0, 0))
            for change, product in zip(self.changes, self.products, strict=True)
        ]

    def portion(self, party: PartyId) -> Array:
        """By how much a party's injections change with its value, shape (rounds online,)."""
        portion: Array = self._parameters.injections.portion[: int(self._count[party])]
        return portion

    def alone(self, party: PartyId) -> float:
        """Lambda_ii of a party that hands nothing over: behind its own noise."""
        portion = self.portion(party)
        return float(portion @ self.products[party] @ portion)

    @cached_property
    def exchanged(self) -> Array:
        """How many shares each two parties exchanged, those to several receivers in parts; shape (n, n)."""
        together = np.zeros((self.parties, self.parties))
        others = np.maximum((self.members != _NOBODY).sum(axis=1) - 1, 1)
        width = self.members.shape[1] if len(self.members) else 0
        for first in range(width):
            for second in range(width):
                if first != second:
                    there = (self.members[:, first] != _NOBODY) & (self.members[:, second] != _NOBODY)
                    np.add.at(together, (self.members[there, first], self.members[there, second]), 1.0 / others[there])
        return together

    def _product(self, party: PartyId) -> Array:
        kind = int(self._count[party]), bool(self._trace.finished[party])
        if kind not in self._kinds:
            self._kinds[kind] = self._product_of(*kind) if kind[0] else np.zeros((0, 0))
        return self._kinds[kind]

    def _product_of(self, count: int, finishes: bool) -> Array:
        product = inverse_product(self._parameters, count, finishes=finishes)
        if finishes or not np.isfinite(product).all():
            return product
        last = product[:, -1]
        left: Array = product - np.outer(last, last) / last[-1] if last[-1] > 0 else product.copy()
        left[-1] = left[:, -1] = 0.0
        return left

    def _all_ways(self) -> tuple[Places, list[Places], list[Array]]:
        schedule, trace = self._schedule, self._trace
        settled = {(round_, sender) for round_, sender, _, _ in trace.settled_slots(schedule)}
        delivered, is_forgotten = trace.delivered(schedule), forgotten(trace)
        members: list[list[PartyId]] = []
        changes: list[dict[int, list[tuple[int, float]]]] = [{} for _ in range(self.parties)]
        for round_index, sender in np.argwhere(trace.online[1:] & (self._turns[1:] > 0)).tolist():
            round_ = round_index + 1
            everybody = [sender, *schedule.recipients(round_, sender)]
            if (round_, sender) in settled or not self.hiding[everybody].all():
                continue
            used = schedule.neighbours[round_index, sender, np.nonzero(delivered[round_index, sender])[0]].tolist()
            way, parts = len(members), int(schedule.out_degree[round_index, sender]) + 1
            turn = int(self._turns[round_, sender])
            own = changes[sender].setdefault(way, [(turn - 1, float(parts))])
            if not is_forgotten[round_, sender]:
                own.append((turn, float(len(used) - parts)))
            for receiver in used:
                turn = int(self._turns[round_, receiver])
                changes[receiver][way] = [] if is_forgotten[round_, receiver] else [(turn, -1.0)]
            members.append(everybody)
        width = max(map(len, members), default=1)
        table = np.full((len(members), width), _NOBODY, dtype=np.int64)
        for way, everybody in enumerate(members):
            table[way, : len(everybody)] = everybody
        return (
            table,
            [np.array(list(by_way), dtype=np.int64) for by_way in changes],
            list(map(self._dense, range(self.parties), changes)),
        )

    def _dense(self, party: PartyId, changes: dict[int, list[tuple[int, float]]]) -> Array:
        dense = np.zeros((len(changes), int(self._count[party])))
        for row, terms in enumerate(changes.values()):
            for turn, by in terms:
                dense[row, turn] += by
        return dense


# Steps of the search for a flow; what it hopes to gain by one, of the bound; how much of the last step it takes again.
_STEPS, _HOPE, _MOMENTUM = 30, 0.1, 0.5
# How slowly both the hope and the width at which rows count in part fall, as 1 / (1 + rate * step).
_HOPE_RATE, _WIDTH_RATE = 0.1, 0.3
# Rows and entries that are this near to the last that counts, relative to the mean, count in part.
_WIDTH = 0.3
_RIDGE = 1e-12


def flow_bound(shares: HiddenShares, party: PartyId, size: int) -> float:
    """Lambda_ii at most of ``party`` against every coalition of ``size``; infinite where nothing hides its value."""
    if not shares.hiding[party]:
        return math.inf
    ways = OwnWays.of(shares, party)
    # Where all that it injected was forgotten, its value costs nothing.
    if size >= ways.partners or not ways.own > 0:
        return ways.own
    try:
        return min(ways.own, ways.least(size)[0])
    except np.linalg.LinAlgError:
        return ways.own


@dataclass(frozen=True, eq=False)
class OwnWays:
    """The ways, m of them, in which a party takes part with others, p of them: the flow f costs own - 2 linear'f + f'quadratic f.

    ``own`` c'P c, ``linear`` (m,), ``quadratic`` (m, m); ``members`` (m, p): which of the others take part.
    """

    own: float
    linear: Array
    quadratic: Array
    members: Mask

    @classmethod
    def of(cls, shares: HiddenShares, party: PartyId) -> OwnWays:
        ways = shares.ways[party]
        place = np.full(len(shares.members), -1)
        place[ways] = np.arange(len(ways))
        there = shares.members[ways]
        others = np.unique(there[(there >= 0) & (there != party)])
        quadratic = shares.costs[party].copy()
        members = np.zeros((len(ways), len(others)), dtype=np.bool_)
        for index, other in enumerate(others.tolist()):
            rows = place[shares.ways[other]]
            shared = rows >= 0
            quadratic[np.ix_(rows[shared], rows[shared])] += shares.costs[other][np.ix_(shared, shared)]
            # Also a receiver that used nothing sees what it is sent.
            members[:, index] = (there == other).any(axis=1)
        linear = shares.changes[party] @ (shares.products[party] @ shares.portion(party))
        return cls(shares.alone(party), linear, quadratic, members)

    @property
    def partners(self) -> int:
        return int(self.members.shape[1])

    def bound(self, flow: Array, size: int) -> float:
        """Lambda_ii at most against every coalition of ``size``, less than :attr:`partners`; rounded up, for any flow."""
        return _Rows.of(self, flow).bound(size)

    def least(self, size: int) -> tuple[float, Array]:
        """The least :meth:`bound` that a search finds, and its flow.

        Each step is along the gradient of those terms that count, in the metric of the mean over all coalitions.
        """
        count = np.maximum(self.members.sum(axis=1), 1)
        kept = (1.0 - size / self.partners) ** count
        mean = np.outer(kept, kept) * self.quadratic
        np.fill_diagonal(mean, kept * self.quadratic.diagonal() * (1 + _RIDGE))
        factor = cho_factor(mean)
        flow = cho_solve(factor, kept * self.linear)
        best, chosen, last = math.inf, flow, np.zeros_like(flow)
        for step in range(_STEPS):
            rows = _Rows.of(self, flow)
            bound = rows.bound(size)
            if bound < best:
                best, chosen = bound, flow
            slope = rows.slope(size, _WIDTH / (1 + _WIDTH_RATE * step))
            direction = cho_solve(factor, slope)
            gain = float(slope @ direction)
            if not gain > 0:
                break
            wanted = bound - best * (1 - _HOPE / (1 + _HOPE_RATE * step))
            last = _MOMENTUM * last + min(1.0, wanted / gain) * direction
            flow = flow - last
        return best, chosen


@dataclass(frozen=True, eq=False)
class _Rows:
    """What a flow costs if nobody colludes, and by how much more at most who does: by rows ``single`` (p,), ``pairs`` (p, p).

    ``parts`` (m,) and ``products`` (m, m): what of a coefficient counts, by its sign. ``rounding``: what all sums may be off.
    """

    ways: OwnWays
    flow: Array
    nobody: float
    single: Array
    pairs: Array
    parts: Array
    products: Array
    rounding: float

    @classmethod
    def of(cls, ways: OwnWays, flow: Array) -> _Rows:
        members, quadratic, linear = ways.members.astype(np.float64), ways.quadratic, ways.linear
        count = np.maximum(members.sum(axis=1), 1.0)
        carried = quadratic @ flow
        crossed = flow[:, None] * quadratic * flow
        # A way is hit or not, so its square is itself.
        alone = 2.0 * flow * (linear - carried) + crossed.diagonal()
        np.fill_diagonal(crossed, 0.0)
        parts = np.where(alone >= 0, 1.0, 1.0 / count)
        products = np.where(crossed >= 0, 1.0, 1.0 / np.outer(count, count))
        pairs = members.T @ (products * crossed) @ members
        single = (parts * alone) @ members + pairs.diagonal()
        np.fill_diagonal(pairs, 0.0)
        most, size = float(count.max(initial=1.0)), np.abs(flow)
        straight, across = float(np.abs(linear) @ size), float(size @ np.abs(quadratic) @ size)
        added = ways.own + 2 * (1 + most) * straight + (1 + 3 * most + most**2) * across
        terms = 2 * sum(members.shape) + 16
        nobody = float(ways.own - 2.0 * linear @ flow + flow @ carried)
        return cls(ways, flow, nobody, single, pairs, parts, products, terms * float(np.finfo(np.float64).eps) * added)

    def bound(self, size: int) -> float:
        rows = self.single + _largest(self._beside(), size - 1)[0]
        return self.nobody + float(_largest(rows, size)[0]) + self.rounding

    def slope(self, size: int, width: float) -> Array:
        """Half the gradient of the bound by the flow, (m,), where terms within ``width`` of the last count in part.

        So it is continuous, and machines that round differently take the same steps.
        """
        ways, members = self.ways, self.ways.members.astype(np.float64)
        added, last = _largest(self._beside(), size - 1)
        rows = self.single + added
        chosen = _ramp(rows, _largest(rows, size)[1], width)
        pairs = chosen[:, None] * _ramp(self._beside(), last[:, None], width)
        np.fill_diagonal(pairs, chosen)
        hit = self.parts * (members @ chosen)
        both = self.products * (members @ ((pairs + pairs.T) / 2) @ members.T)
        np.fill_diagonal(both, hit)
        weights = 1.0 - hit[:, None] - hit + both
        slope: Array = (ways.quadratic * weights) @ self.flow - ways.linear * (1.0 - hit)
        return slope

    def _beside(self) -> Array:
        """The entries of each row besides the diagonal, which is none of them."""
        entries = self.pairs.copy()
        np.fill_diagonal(entries, -np.inf)
        return entries


def _largest(values: Array, count: int) -> tuple[Array, Array]:
    """The sum of the ``count`` largest along the last axis, and what lies between the last of these and the next."""
    before = values.shape[-1] - count
    if count <= 0:
        return np.zeros(values.shape[:-1]), np.full(values.shape[:-1], np.inf)
    ordered = np.partition(values, [before - 1, before], axis=-1)
    return ordered[..., before:].sum(axis=-1), (ordered[..., before] + ordered[..., before - 1]) / 2


def _ramp(values: Array, last: Array, width: float) -> Array:
    """1 for values above ``last``, 0 for those below, and in between within ``width`` of the mean size."""
    finite = np.abs(values[np.isfinite(values)])
    scale = 2 * width * float(finite.mean()) if finite.size else 0.0
    if not scale > 0:
        return (values > last).astype(np.float64)
    ramp: Array = np.clip((values - last) / scale + 0.5, 0.0, 1.0)
    return ramp
