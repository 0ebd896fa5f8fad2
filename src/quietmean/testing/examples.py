"""Executions in one line, and certificates of them, for tests and documentation."""

from __future__ import annotations

from typing import Any

import numpy as np

from quietmean.graphs import churn
from quietmean.privacy import Adversary, Certificate, PrivacyAnalysis
from quietmean.protocols import get_protocol
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import insecure_seed
from quietmean.transcript import Transcript


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
    value = get_protocol(protocol).read(parameters).resolved(parties)
    seed = insecure_seed(number, "example", protocol)
    schedule = value.draw_schedule(parties, seed)
    trace = churn(seed, schedule.rounds, parties, permanent, temporary)
    return Execution(value, schedule, trace, sensitivity, np.ones(parties))


def certificate_of(
    transcript: Transcript, adversary: Adversary, sensitivity: float, method: str = "auto", delta: float = 1e-6
) -> Certificate:
    """What the adversary learns if the noise is Gaussian, as the transcript says; ``method`` names the solver."""
    analysis = PrivacyAnalysis.of_gaussian(transcript, sensitivity, delta, method=method)
    return analysis.against(adversary.corrupt, adversary.observed)
