"""Certificates of executions with whole numbers."""

from __future__ import annotations

from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.privacy import LossConversion
from quietmean.protocols.gopa.outcome import GopaOutcome, PeerOutcome
from quietmean.protocols.gopa.spec import GopaParameters
from quietmean.protocols.masking import MaskedMessages


def masked_loss(parameters: GopaParameters, schedule: Schedule, trace: ExecutionTrace) -> LossConversion:
    """The bound for whole numbers; without a grid that in real arithmetic.

    Rollbacks are sums of noise shared with parties whose messages did not arrive: the best shift leaves it alone.
    """
    star, delta, aggregator, pairs = parameters.sigma_star, parameters.sigma_delta, parameters.aggregator, schedule.pairs
    if aggregator is None:
        # Noise that one end alone adds takes up less: its own noise is all that has to move with it.
        happened = PeerOutcome.of(parameters.least_partners, schedule, trace)
        arrived, pairs = happened.published, pairs[happened.added.any(axis=1)]
    else:
        arrived = GopaOutcome.of(aggregator, schedule, trace).arrived
    messages = MaskedMessages(star, delta, parameters.step, pairs, arrived, aggregator, symmetric=False)
    draws = schedule.parties + (len(schedule.pairs) if delta else 0)
    return parameters.grid_loss([star, delta], draws, messages.rounding, messages.most_rounding())


def star_loss(parameters: GopaParameters, parties: int) -> LossConversion:
    """The bound for whole numbers in every history without a collector; without a grid that in real arithmetic.

    Nobody's figure needs more than a shift along the pairs of one party, with the own noise of both ends.
    """
    star, delta, step = parameters.sigma_star, parameters.sigma_delta, parameters.step
    pairs = min(parties * (parties - 1) // 2, parties * parameters.partners) if delta else 0
    edge = (step / delta) ** 2 + 2 * (step / star) ** 2 if delta and star else 0.0
    rounding = (parties - 1) * edge / 4.0
    return parameters.grid_loss([star, delta], parties + pairs, lambda *_: rounding, rounding)
