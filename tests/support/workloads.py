"""Statistics of records that are written as texts, and what they are without noise and with it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Columns, Estimates, Workload, parse_statistic, read_text

Array = NDArray[np.float64]


def workload_of(columns: Columns, *texts: str) -> Workload:
    """Return the statistics of records that these texts ask for."""
    return Workload(columns, tuple(parse_statistic(read_text(text)) for text in texts), PrivacyUnit.RECORD)


def exact_of(workload: Workload, records: Array) -> Estimates:
    """Return what the first statistic of these records is without noise."""
    encoded = workload.encode(records)
    return workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)[0].estimates


def released(workload: Workload, records: Array, mu: float, rng: np.random.Generator, stated: float = 1.0) -> Estimates:
    """Return one study's result, with 1.2 times the variance of one trusted curator's noise.

    ``stated``: how much of the noise's deviation the study says that there is.
    """
    encoded = workload.encode(records)
    noise = math.sqrt(1.2) * workload.sensitivity / mu / len(records)
    mean = encoded.vector / encoded.weight + noise * rng.standard_normal(workload.dimension)
    return workload.decode(mean, noise * stated, encoded.weight)[0].estimates
