"""What a report shows: plain data, filled in by whoever ran or certified a study."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quietmean.privacy import CoalitionCertificate
from quietmean.protocols.execution import Execution

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StudyReport:
    """One study. Arrays over columns have shape (columns,), in each column's own units unless said otherwise.

    ``everyone_else_mu``, shape (parties,): mu of each party if all others collude. ``true_mean`` only in local mode.
    ``party_epsilon``: epsilon for replacing a whole party's data, where the unit is one record.
    """

    title: str
    columns: list[str]
    bounds: list[tuple[float, float]]
    estimate: Array
    standard_error: Array
    execution: Execution
    certificate: CoalitionCertificate
    everyone_else_mu: Array
    delta: float
    target_epsilon: float
    unit: str
    party_names: list[str]
    records: int
    parties_counted: int
    messages: int
    bytes: int
    seconds: float
    true_mean: Array | None = None
    party_epsilon: float | None = None
    killed: list[str] = field(default_factory=list)
