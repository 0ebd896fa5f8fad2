"""Push-sum with injections (IncA, Algorithm 2), one party of it: what IncA, gossip averaging and broadcasts of results share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.grid import numbers_for
from quietmean.core.party import Message, NoiseGroup, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import ExecutionTrace, Flow, Schedule, arrivals, share_flow
from quietmean.protocols.push_sum.parameters import GUARD_TERM, PushSumParameters, Terms
from quietmean.transcript.numbers import NoTerms, NumericReading
from quietmean.transcript.population import InjectedRows, PopulationTerms, Reading, Results, Rows


@dataclass(frozen=True, slots=True)
class PushSumState:
    """The state of a party of a push-sum protocol.

    ``held`` is y, shape (d,); ``weight`` the portion of values in it; ``injections`` how many rows (c, Z) were used.
    """

    round: int
    held: Vector
    weight: float
    injections: int


class PushSumParty:
    """Holds y, sends equal shares of it each round, adds the next portion of its noisy value."""

    state_type = PushSumState

    def __init__(
        self,
        parameters: PushSumParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> None:
        self._parameters = parameters
        self._schedule = schedule
        self._party = party
        self._weight = weight
        numbers = self._numbers = numbers_for(value, parameters.numbers())
        star, delta, guard = parameters.sigma_star, parameters.sigma_delta, parameters.sigma_guard
        size = value.size
        self._noisy_value = numbers.value(value) + numbers.noise(noise, NoiseGroup.INDEPENDENT, 0, star, size)
        # A row mostly subtracts the noise that the one before it added: that need not be drawn twice.
        self._cancelled_noise = lru_cache(maxsize=2)(lambda index: numbers.draw(noise, NoiseGroup.CANCELLING, index, delta, size))
        self._guard = lru_cache(maxsize=1)(lambda: numbers.draw(noise, NoiseGroup.GUARD, 0, guard, size))

    @property
    def rounds(self) -> int:
        return self._parameters.rounds

    def start(self) -> Step[PushSumState]:
        portion = float(self._parameters.injections.portion[0])
        injected = self._injection(portion, self._parameters.terms(0, last=False))
        return self._proceed(PushSumState(1, injected, portion * self._weight, 1))

    def end_round(self, state: PushSumState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[PushSumState]:
        injection = self._parameters.injections
        last = state.round == self.rounds
        portion = float(injection.portion[state.injections])
        terms = self._parameters.terms(state.injections, last=last)
        parts = self._parts(state.round)
        kept = self._numbers.kept(state.held, parts, len(delivered))
        weight = state.weight * (1.0 - len(delivered) * (1.0 / parts)) + portion * self._weight
        # In a fixed order, so that a restarted party gets the same sum to the last bit.
        messages = sorted(received, key=lambda message: (message.sender, message.round))
        for message in messages:
            weight += message.weight
        held = self._numbers.total([kept, self._injection(portion, terms), *(message.vector for message in messages)])
        return self._proceed(PushSumState(state.round + 1, held, weight, state.injections + 1))

    def miss_round(self, state: PushSumState) -> Step[PushSumState]:
        later = replace(state, round=state.round + 1)
        return Step(later) if later.round > self.rounds else self._proceed(later)

    def expects(self, state: PushSumState) -> frozenset[PartyId]:
        return self._schedule.senders(state.round, self._party)

    def _proceed(self, state: PushSumState) -> Step[PushSumState]:
        if state.round > self.rounds:
            return Step(state, release=Release(state.held, state.weight))
        recipients = self._schedule.recipients(state.round, self._party)
        if not recipients:
            return Step(state)
        parts = self._parts(state.round)
        share, weight = self._numbers.share(state.held, parts), state.weight * (1.0 / parts)
        return Step(state, (Message(self._party, recipients, state.round, share, weight),))

    def _parts(self, round_: int) -> int:
        return len(self._schedule.recipients(round_, self._party)) + 1

    def _injection(self, portion: float, terms: Terms) -> Vector:
        vector = self._noisy_value * portion
        for index, coefficient in terms:
            array, factor = self._guard() if index == GUARD_TERM else self._cancelled_noise(index)
            vector = vector + array * (coefficient * factor)
        # On a grid with discrete noise this is whole up to rounding, and becomes so exactly.
        return self._numbers.injected(vector)


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


def next_online(trace: ExecutionTrace) -> Ints:
    """The first round after t in which i is online, entry (t, i) of shape (T + 1, n); T + 1 if there is none."""
    rounds = len(trace.online) - 1
    upcoming = np.full(trace.online.shape, rounds + 1)
    for round_ in range(rounds - 1, -1, -1):
        upcoming[round_] = np.where(trace.online[round_ + 1], round_ + 1, upcoming[round_ + 1])
    return upcoming


def forgotten(trace: ExecutionTrace) -> Mask:
    """Is what a party holds after a round never sent or released, since it left? Shape (T + 1, n)."""
    is_forgotten: Mask = next_online(trace) >= len(trace.online)
    # What it holds after the last round is its release.
    is_forgotten[-1] = False
    return is_forgotten
