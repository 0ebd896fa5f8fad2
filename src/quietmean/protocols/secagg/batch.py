"""The parties that are counted in an execution; and the sum itself, without any key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import PartyId, PopulationNoise, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.secagg.design import assess
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


# A random graph that fails with a larger probability is not relied on.
LEAST_BITS = 39.0


def least_unknown(parameters: SecAggParameters, schedule: Schedule, counted: int, size: int) -> tuple[int, float]:
    """The shares of noise that no coalition of ``size`` knows, and the chance over the random graph that this fails.

    ``counted`` parties are in the sum. Fewer colluders than the threshold open no mask, and masks connect all honest parties: for
    certain where all pairs share one, else but for that chance, for coalitions that were fixed before the graph was drawn. What
    the colluders can open leaves a party its own share.
    """
    if counted < 1:
        return 0, 0.0
    hidden = max(1, counted - size)
    if parameters.neighbours is None or schedule.all_paired:
        return (hidden if size < parameters.threshold else 1), 0.0
    parties = schedule.parties
    neighbourhood = assess(parties, size, parties - counted, parameters.neighbours, parameters.threshold)
    return (hidden, 2.0**-neighbourhood.security_bits) if neighbourhood.security_bits >= LEAST_BITS else (1, 0.0)


def least_unknown_of_each(
    parameters: SecAggParameters, schedule: Schedule, outcome: SecAggOutcome, size: int
) -> tuple[Ints, float]:
    """:func:`least_unknown` of each party after a run, shape (n,): 0 for those of whom no coalition sees anything.

    An input that was handed over and is in no sum shows itself only to those who hold enough shares of both its secrets.
    """
    unknown, chance = least_unknown(parameters, schedule, int(outcome.requested.sum()), size)
    alone = int(_opens_one(parameters, schedule, size))
    return np.where(outcome.requested, unknown, np.where(outcome.handed, alone, 0)), chance


def _opens_one(parameters: SecAggParameters, schedule: Schedule, size: int) -> bool:
    """Can ``size`` parties hold enough shares of some other one's secrets?"""
    if parameters.neighbours is None or schedule.all_paired:
        return size >= parameters.threshold
    neighbourhood = assess(schedule.parties, size, 0, parameters.neighbours, parameters.threshold)
    return neighbourhood.security_bits < LEAST_BITS
