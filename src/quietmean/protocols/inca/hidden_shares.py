"""The shares of an execution of IncA behind which parties hide: what changing them does to injections, and what that costs.

A *way* is a round in which a party sends shares. If all its receivers are honest, the shares may be something else without
anybody seeing it: the sender holds (k + 1) f more before it sends, so that each of its k shares is f more; in the round it
injects less by what it kept, and each receiver that used its share injects f less. No other share changes, and no release. A
change u of a party's injections is one of its noise, of squared norm u'P u at least, P the inverse of the covariance of its
injections.

Whether a share may be seen is decided by the schedule, whether an honest party used it by the trace. So there are ways of which
nobody used a share: nothing moves then, but what the sender held before may be different. What a party that left held last was
sent to nobody and may change freely: P' is what is left of P where it does.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.push_sum.fixed_point import inverse_product
from quietmean.protocols.push_sum.parameters import PushSumParameters
from quietmean.protocols.push_sum.party import forgotten

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
