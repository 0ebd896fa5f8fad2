"""Every kind of statistic through a committee: without noise it is what the records give."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.node.rehearsal import rehearse
from quietmean.randomness.insecure import InsecureSilence
from quietmean.statistics import Answer, registry
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.committee_session import sharing_of
from support.every_kind import COLUMNS, all_statistics

Array = NDArray[np.float64]
CONTRIBUTORS, ROWS = 4, 150
COMMITTEE = {"members": 4, "contribute_by": "2027-03-01T12:00:00Z", "largest_weight": ROWS}


def records_of(contributor: int) -> Array:
    """Records of COLUMNS, in which outcomes depend on each other."""
    rng = np.random.default_rng((36, contributor))
    sex, smoker, ended = rng.integers(2, size=ROWS), rng.random(ROWS) < 0.45, rng.choice(3, ROWS, p=[0.5, 0.2, 0.3])
    age = np.clip(45 + 5 * sex + 12 * rng.standard_normal(ROWS), 1, 99)
    weight = np.clip(60 + 0.3 * age + 8 * sex + 8 * rng.standard_normal(ROWS), 41, 139)
    chance = np.clip(0.45 + 0.1 * smoker + 0.2 * rng.standard_normal(ROWS), 0.01, 0.99)
    return np.column_stack([age, weight, chance, sex, ended, smoker]).astype(np.float64)


PARTS = [records_of(contributor) for contributor in range(CONTRIBUTORS)]


STATISTICS = {one.text: one for one in all_statistics()}


@cache
def through_a_committee() -> tuple[tuple[Answer, ...], tuple[Answer, ...]]:
    """The answers to all statistics, opened by a committee without noise on a fine grid; and those of all records together."""
    columns = [column.describe() for column in COLUMNS]
    statistics = [statistic.describe() for statistic in STATISTICS.values()]
    asked = {
        "name": "all",
        "epsilon": 8.0,
        "accept_wide": True,
        "committee": COMMITTEE,
        "column": columns,
        "statistic": statistics,
    }
    study = StudyTerms.parse(asked)
    workload, plan = study.workload, study.plan(CONTRIBUTORS)
    sharing = sharing_of(plan)
    # Of as many steps as there is room for.
    step = sharing.clip / 500_000
    sharing = replace(sharing, step=step, sigma=4 * step)
    admitted = [workload.encode(part) for part in PARTS]
    values, weights = np.array([one.vector for one in admitted]), [one.weight for one in admitted]
    rehearsal = rehearse(sharing.parameters(CONTRIBUTORS), values, weights, noise=lambda seed: InsecureSilence())
    assert rehearsal.counted == tuple(range(CONTRIBUTORS))
    checked = rehearsal.checked
    opened = workload.decode(checked.total / checked.weight, 1e-12, checked.weight)
    pooled = workload.encode(np.concatenate(PARTS))
    return opened, workload.decode(pooled.vector / pooled.weight, 1e-12, pooled.weight)


@pytest.mark.parametrize("kind", registry())
def test_without_noise_a_committee_opens_what_the_records_give(kind: str) -> None:
    places = [place for place, statistic in enumerate(STATISTICS.values()) if statistic.name == kind]
    assert places
    for place in places:
        opened, records = (answers[place].estimates for answers in through_a_committee())
        assert opened.terms == records.terms
        # A part of none is not a number among the records, and next to nothing of what was rounded.
        expected = np.nan_to_num(records.value, nan=0.0)
        np.testing.assert_allclose(np.nan_to_num(opened.value, nan=0.0), expected, rtol=1e-5, atol=1e-5)
        for name, test in records.tests.items():
            np.testing.assert_allclose(opened.tests[name].statistic, test.statistic, rtol=1e-4, atol=1e-5)
