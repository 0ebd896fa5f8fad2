"""The data that a report shows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quietmean.privacy import CoalitionCertificate, PrivacyAnalysis
from quietmean.protocols.execution import Execution
from quietmean.statistics import Answer

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StudyReport:
    """One study. Arrays over what was estimated have shape (terms,), in the units of the data.

    ``only_means``: every term is a column, and its estimate the column's mean. ``bounds``: what a term can be at the least and
    at the most. ``privacy`` gives all epsilons, ``certificate`` is that of the study. ``truth`` only in local
    mode.
    ``party_epsilon``: epsilon for replacing a whole party's data, where the unit is one record.
    """

    title: str
    terms: list[str]
    bounds: list[tuple[float, float]]
    estimate: Array
    standard_error: Array
    execution: Execution
    privacy: PrivacyAnalysis
    certificate: CoalitionCertificate
    target_epsilon: float
    unit: str
    party_names: list[str]
    records: int
    parties_counted: int
    messages: int
    bytes: int
    seconds: float
    truth: Array | None = None
    party_epsilon: float | None = None
    only_means: bool = True
    # What each statistic says, and the same without noise where it is known; none for a page about means alone.
    answers: tuple[Answer, ...] = ()
    true_answers: tuple[Answer, ...] | None = None
    killed: list[str] = field(default_factory=list)

    @property
    def delta(self) -> float:
        """The delta at which all epsilons hold."""
        return self.privacy.delta
