"""Push-sum with injections (IncA, Algorithm 2) for all parties at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.noise import NoiseGroup
from quietmean.graphs import ExecutionTrace, Flow, Schedule, arrivals, share_flow
from quietmean.protocols.push_sum.parameters import GUARD_TERM, PushSumParameters
from quietmean.transcript.numbers import NoTerms, NumericReading
from quietmean.transcript.population import InjectedRows, PopulationTerms, Reading, Results, Rows

# Parties whose values are followed at once.
_COLUMNS = 1024


def population(
    parameters: PushSumParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Each round, parties send what they hold in equal shares and keep what did not arrive; then they inject the next portion.

    ``values`` have n rows (d,), ``weights`` the shape (n,). IncA, Algorithm 2.
    """
    delivered, acknowledged = trace.deliveries(schedule)
    late = _late_settlements(schedule, trace)
    noisy = out.keep(values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma_star), trace.online[0], 0)
    held, weight = out.zeros(), np.zeros(schedule.parties)
    kept: list[tuple[_Late, Rows, float]] = []
    for round_ in range(schedule.rounds + 1):
        if round_ > 0:
            parts = schedule.out_degree[round_ - 1] + 1
            share, rest = out.divided(held, parts)
            arrived = arrivals(schedule, delivered, round_)
            share, sent_weight = out.send(share, trace.online[round_], round_, arrived), weight / parts
            flow = share_flow(schedule, arrived, acknowledged, round_)
            held, weight = flow @ share + rest, flow.numbers(sent_weight)
            kept += [
                (settlement, settlement.share @ share, float(sent_weight[settlement.sender]))
                for settlement in late
                if settlement.used == round_
            ]
            for settlement, its_share, its_weight in kept:
                if settlement.settled == round_:
                    held -= settlement.holder @ its_share
                    weight[settlement.sender] -= its_weight
        injections = list(_injections(parameters, trace, round_, noisy, noise))
        for injection in injections:
            weight[injection.members] += injection.terms[0][0] * weights[injection.members]
        held = out.injected(held, injections)
    held = out.release(held, trace.finished, schedule.rounds + 1)
    # What dropped-out parties hold is never sent.
    held = out.keep(held, ~trace.finished, schedule.rounds + 1)
    return Results(held, weight, trace.finished)


def parts_released(parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace) -> Array:
    """How much of each party's value those who finished hold, shape (n,)."""
    parties, parts = schedule.parties, np.zeros(schedule.parties)
    for first in range(0, parties, _COLUMNS):
        own = np.arange(first, min(first + _COLUMNS, parties))
        reading = NumericReading(np.eye(parties)[:, own])
        noise = NoTerms(parties, own.size)
        held = population(parameters, schedule, trace, reading.values, np.ones(parties), noise, reading)
        parts[own] = reading.vectors(held.rows)[trace.finished].sum(axis=0)
    return parts


def contributing(parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace) -> Mask:
    """The parties of whose values a part is in the result, shape (n,): also who left and had sent some of it to one that stayed,
    at once or through others."""
    delivered, online = trace.delivered(schedule), trace.online
    before = online.cumsum(axis=0) - online
    injects = online & (parameters.injections.portion[np.minimum(before, schedule.rounds)] != 0)
    # Whether something of what a party holds after a round ends up in the result: of what it held earlier, more does.
    arrives = trace.finished.copy()
    counted: Mask = injects[-1] & arrives
    for round_ in range(schedule.rounds, 0, -1):
        arrives |= (delivered[round_ - 1] & arrives[schedule.neighbours[round_ - 1]]).any(axis=1)
        counted |= injects[round_ - 1] & arrives
    return counted


def _injections(
    parameters: PushSumParameters, trace: ExecutionTrace, round_: int, noisy: Rows, noise: PopulationTerms
) -> Iterator[InjectedRows]:
    """What the parties online in a round inject, grouped by how often they were online before: first of all a portion of x~."""
    injection = parameters.injections
    online = trace.online[round_].nonzero()[0]
    before = trace.online[:round_].sum(axis=0)[online]
    for count in np.bincount(before).nonzero()[0].tolist():
        terms = [
            (coefficient, _noise(parameters, index, noise))
            for index, coefficient in parameters.terms(count, last=round_ == parameters.rounds)
        ]
        yield InjectedRows(online[before == count], [(float(injection.portion[count]), noisy), *terms])


def _noise(parameters: PushSumParameters, index: int, noise: PopulationTerms) -> Rows:
    if index == GUARD_TERM:
        return noise.normal(NoiseGroup.GUARD, 0, parameters.sigma_guard)
    return noise.normal(NoiseGroup.CANCELLING, index, parameters.sigma_delta)


class _Late(NamedTuple):
    """A share that its receiver used in round ``used``, but that its sender removed from its holdings only in round ``settled``.

    ``share`` picks the sender's row, ``holder`` puts one row there.
    """

    used: int
    settled: int
    sender: int
    share: Flow
    holder: Flow


def _late_settlements(schedule: Schedule, trace: ExecutionTrace) -> list[_Late]:
    zero, settlements = np.zeros(1, dtype=np.int64), []
    for used, sender, _, settled in trace.settled_slots(schedule):
        row = np.array([sender])
        share, holder = Flow.of((1, schedule.parties), zero, row), Flow.of((schedule.parties, 1), row, zero)
        settlements.append(_Late(used, settled, sender, share, holder))
    return settlements
