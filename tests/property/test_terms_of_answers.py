"""What an answer has terms for follows from the question and its columns, never from what the records or the noise are.

Else nobody could read answers by name, compare studies, or take the middle of simulated ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import UNITS_OF_VECTORS, PrivacyUnit
from quietmean.statistics import Estimates, Statistic, Workload
from support.every_kind import COLUMNS, all_statistics, random_rows

Array = NDArray[np.float64]
RECORDS = 300
NOISES = (0.0, 1e-3, 0.02, 0.3, 10.0)
SEED = 20261125


def answers_of(statistic: Statistic, unit: PrivacyUnit) -> list[Estimates]:
    workload, rng = Workload(COLUMNS, (statistic,), unit), np.random.default_rng(SEED)
    decoder, answers = workload.decoder(0.0), []
    for missing in (0.0, 0.3, 1.0):
        mean = workload.encode(random_rows(rng, RECORDS, missing)).vector
        for noise in NOISES:
            with np.errstate(all="ignore"):
                noisy = mean + noise * rng.standard_normal(mean.size)
                answers.append(statistic.decode(decoder.released(noisy, noise, float(RECORDS)), workload.declared))
    return answers


@pytest.mark.parametrize(
    ("statistic", "unit"),
    [
        pytest.param(statistic, unit, id=f"{unit.value}-{statistic.text}")
        for unit in UNITS_OF_VECTORS
        for statistic in all_statistics(unit)
    ],
)
def test_terms_do_not_depend_on_what_was_released(statistic: Statistic, unit: PrivacyUnit) -> None:
    first, *others = answers_of(statistic, unit)
    for answer in others:
        assert answer.terms == first.terms
        assert answer.groups == first.groups
        assert answer.headline == first.headline
        # Where something of it is not known, the answer says why.
        assert (answer.population is not None) == (first.population is not None) or answer.reason
        assert set(answer.tests) == set(first.tests) or answer.reason or answer.flags
