"""Executions in one line, for tests and documentation."""

from __future__ import annotations

from typing import Any

import numpy as np

from quietmean.graphs import churn
from quietmean.protocols import get_protocol
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import insecure_seed


def example_execution(
    protocol: str,
    parties: int,
    number: int = 0,
    *,
    permanent: float = 0.0,
    temporary: float = 0.0,
    sensitivity: float = 1.0,
    **parameters: Any,
) -> Execution:
    """An execution whose schedule and churn follow from a small ``number``; ``parameters`` are the protocol's, as in JSON."""
    value = get_protocol(protocol).parse(parameters, parties)
    seed = insecure_seed(number, "example", protocol)
    schedule = value.draw_schedule(parties, seed)
    trace = churn(seed, schedule.rounds, parties, permanent, temporary)
    return Execution(value, schedule, trace, sensitivity, np.ones(parties))
