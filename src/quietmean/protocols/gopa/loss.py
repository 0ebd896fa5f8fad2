"""Certificates of executions with whole numbers."""

from __future__ import annotations

from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.privacy import LossConversion
from quietmean.protocols.gopa.outcome import GopaOutcome
from quietmean.protocols.gopa.spec import GopaParameters
from quietmean.protocols.masking import MaskedMessages


def masked_loss(parameters: GopaParameters, schedule: Schedule, trace: ExecutionTrace) -> LossConversion:
    """The bound for whole numbers; without a grid that in real arithmetic.

    Rollbacks are sums of noise shared with parties whose messages did not arrive: the best shift leaves it alone.
    """
    star, delta, aggregator = parameters.sigma_star, parameters.sigma_delta, parameters.aggregator
    arrived = GopaOutcome.of(aggregator, schedule, trace).arrived
    messages = MaskedMessages(star, delta, parameters.step, schedule.pairs, arrived, aggregator, symmetric=False)
    draws = schedule.parties + (len(schedule.pairs) if delta else 0)
    return parameters.grid_loss([star, delta], draws, messages.rounding, messages.most_rounding())
