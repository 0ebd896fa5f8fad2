"""GOPA for all parties at once."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.party import NoiseGroup
from quietmean.graphs import ExecutionTrace, Flow, Schedule
from quietmean.protocols.gopa.outcome import GopaOutcome, PeerOutcome
from quietmean.protocols.gopa.party import PEER_ROUNDS, PUBLISH, ROLL_BACK, ROUNDS, GopaParameters
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


def population(
    parameters: GopaParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """``values`` have n rows (d,), ``weights`` the shape (n,)."""
    program = _published if parameters.aggregator is None else _collected
    return program(parameters, schedule, trace, values, weights, noise, out)


def _published(
    parameters: GopaParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Every party publishes its value under its own noise and that of the pairs whose other end is there.

    What parties say in the first round depends on no value and on no noise.
    """
    happened = PeerOutcome.of(parameters.least_partners, schedule, trace)
    used = happened.added.any(axis=1)
    pairs, added = schedule.pairs[used], happened.added[used]
    # The larger number adds what a pair shares, the smaller subtracts it.
    term, end = added.nonzero()
    masks = Flow.of((schedule.parties, len(pairs)), pairs[term, end], term, np.where(end == 1, 1.0, -1.0))
    noisy = values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma_star)
    noisy += masks @ noise.shared_normal(pairs, NoiseGroup.CANCELLING, 0, parameters.sigma_delta)
    released = out.release(noisy, happened.published, PEER_ROUNDS + 1)
    return Results(released, weights * happened.published, happened.published)


def _collected(
    parameters: GopaParameters,
    schedule: Schedule,
    trace: ExecutionTrace,
    values: Rows,
    weights: Array,
    noise: PopulationTerms,
    out: Reading,
) -> Results[Rows]:
    """Masked values go to the aggregator; then the rollbacks, which remove the noise shared with parties whose value is missing.

    Every adversary knows which parties were online, and so which of them roll back: the aggregator's list reveals nothing new.
    """
    parties, pairs, aggregator = schedule.parties, schedule.pairs, parameters.collector
    happened = GopaOutcome.of(aggregator, schedule, trace)
    is_aggregator = np.arange(parties) == aggregator
    # Each pair twice, once from either end: the larger number adds what they share, the smaller subtracts it.
    party, partner = (np.concatenate([pairs[:, end], pairs[:, 1 - end]]) for end in (0, 1))
    term, sign = np.tile(np.arange(len(pairs)), 2), np.repeat([-1.0, 1.0], len(pairs))
    absent = ~happened.arrived[partner]
    missing = np.bincount(party[absent], minlength=parties) > 0

    noisy = out.keep(values + noise.normal(NoiseGroup.INDEPENDENT, 0, parameters.sigma_star), np.ones(parties, dtype=np.bool_), 0)
    shared = noise.shared_normal(pairs, NoiseGroup.CANCELLING, 0, parameters.sigma_delta)
    masks = Flow.of((parties, len(pairs)), party, term, sign) @ shared
    rollbacks = Flow.of((parties, len(pairs)), party[absent], term[absent], -sign[absent]) @ shared

    def collected(rows: Rows, senders: Mask, arrived: Mask, round_: int) -> Rows:
        """The sum, in the aggregator's row, of the rows of ``senders`` that ``arrived`` there, and of its own."""
        arrived_from = np.nonzero(arrived & ~is_aggregator)[0]
        sent = out.send(rows, senders & ~is_aggregator, round_, (arrived_from, np.full(arrived_from.size, aggregator)))
        added = np.append(arrived_from, aggregator)
        return Flow.of((parties, parties), np.full(added.size, aggregator), added) @ sent

    # A message that did not arrive in time may have been read.
    total = collected(noisy + masks, trace.online[PUBLISH], happened.arrived, PUBLISH)
    rolling = happened.informed & trace.online[ROLL_BACK] & missing
    total += collected(rollbacks, rolling, happened.rolled_back & missing, ROLL_BACK)
    releases = is_aggregator & happened.released
    return Results(out.release(total, releases, ROUNDS + 1), is_aggregator * weights[happened.arrived].sum(), releases)
