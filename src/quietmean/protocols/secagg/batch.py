"""The parties that are counted in an execution; and the sum itself, without any key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import PartyId, PopulationNoise, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.secagg.spec import SecAggParameters, decode_sum, empty_sum, encode, wrap

INPUT_ROUND = 5


@dataclass(frozen=True, eq=False)
class SecAggOutcome:
    """The outcome of many parties' secure aggregation.

    ``counted``, shape (n,): the parties whose input is in the sum; none if the run failed, at the stage ``failure``.

    A run that failed may have shown more than nothing. ``requested``, shape (n,): the parties for whose sum shares were asked
    for: too few for a result may be enough for an aggregator that colludes with holders of others. ``handed``, shape (n,): the
    parties whose masked input the aggregator has, in time or not.
    """

    counted: Mask
    requested: Mask
    handed: Mask
    failure: str = ""

    @classmethod
    def of(cls, counted: Mask) -> SecAggOutcome:
        """All inputs are in the sum, and no others were handed over."""
        return cls(counted, counted, counted)


def follow(parameters: SecAggParameters, schedule: Schedule, trace: ExecutionTrace) -> SecAggOutcome:
    """What the machines do under a trace: whose messages arrive at each stage, and whether the masks can be removed."""
    holders = _share_holders(schedule)
    aggregator, nobody = parameters.aggregator, np.zeros(schedule.parties, dtype=np.bool_)
    away = "" if trace.online[1:, aggregator].all() else "the aggregator was away"
    responded, informed = _exchanges(parameters, schedule, trace)
    shared = arrived = present = np.ones(schedule.parties, dtype=np.bool_)
    handed = nobody
    for stage, sent_kind in enumerate(("keys", "shares", "inputs")):
        if sent_kind == "inputs":
            handed = present & trace.handed(schedule)[INPUT_ROUND - 1].any(axis=1)
        present = present & responded[stage]
        if present.sum() < parameters.minimum:
            return SecAggOutcome(nobody, nobody, handed, away or f"too few {sent_kind}")
        arrived = present
        # A client goes on only if enough holders of its shares are still online.
        present = present & informed[stage] & (holders @ arrived.astype(np.int64) >= parameters.threshold)
        if sent_kind == "shares":
            shared = arrived
    answering = present & responded[3]
    shares = holders @ answering.astype(np.int64)
    # A dropped party's key is needed if a pair mask with it is in the sum.
    masking = (holders @ arrived.astype(np.int64)) > 0
    needed = arrived | (shared & masking)
    if away or (shares[needed] < parameters.threshold).any():
        return SecAggOutcome(nobody, arrived, handed, away or "too few shares to unmask")
    return SecAggOutcome(arrived, arrived, handed)


def _share_holders(schedule: Schedule) -> Ints:
    """Who holds a share of whom, (n, n): 1 where one party holds one of the other, and on the diagonal."""
    holders = np.eye(schedule.parties, dtype=np.int64)
    low, high = schedule.pairs.T
    holders[low, high] = holders[high, low] = 1
    return holders


def _exchanges(parameters: SecAggParameters, schedule: Schedule, trace: ExecutionTrace) -> tuple[list[Mask], list[Mask]]:
    """Masks (n,): of rounds 1, 3, 5, 7 the parties that responded, of 2, 4, 6 those that have the aggregator's message."""
    delivered, aggregator = trace.delivered(schedule), parameters.aggregator
    responded: list[Mask] = []
    informed: list[Mask] = []
    for round_ in range(schedule.rounds):
        mask = np.zeros(schedule.parties, dtype=np.bool_)
        if round_ % 2 == 0:
            mask |= delivered[round_].any(axis=1)
        else:
            mask[schedule.neighbours[round_, aggregator][delivered[round_, aggregator]]] = True
        mask[aggregator] = True
        (informed if round_ % 2 else responded).append(mask)
    return responded, informed


def release(
    parameters: SecAggParameters, counted: list[PartyId], values: Vector, weights: Array, noise: PopulationNoise
) -> tuple[Vector, float]:
    """The ideal functionality: the decoded sum of the counted parties' inputs, shape (d,), and their total weight.

    ``values`` have shape (n, d), ``weights`` (n,).
    """
    dimension = values.shape[1]
    total = empty_sum(parameters, dimension)
    for party in counted:
        total += encode(parameters, values[party], float(weights[party]), noise.party(party))
    weight = float(sum(float(weights[party]) for party in counted))
    return decode_sum(parameters, wrap(total, parameters.bits), weight, dimension), weight
