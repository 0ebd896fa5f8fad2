"""Finished studies without a network: what a party would know if this execution had been its study."""

from __future__ import annotations

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.protocols import Target
from quietmean.protocols.execution import Execution
from quietmean.statistics import Column, Columns, Workload
from quietmean.statistics.kinds.mean import Mean
from quietmean.studies import StudyOutcome, conclude

DELTA = 1e-6


def studied(execution: Execution, colluding: int) -> StudyOutcome:
    """A study of the mean of one column, of whole parties, against so many colluders."""
    workload = Workload(Columns([Column(name="age", low=0, high=1)]), (Mean(column="age"),), PrivacyUnit.PARTY)
    target = Target(execution.parties, 1.0, DELTA, 1, execution.sensitivity, colluding=colluding, unit=PrivacyUnit.PARTY)
    return conclude(workload, target, execution, np.full(workload.dimension, 0.5))
