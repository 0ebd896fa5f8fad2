"""Every kind of statistic through a committee: without noise it is what the records give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quietmean.node.committee import rehearse
from quietmean.randomness.insecure import InsecureSilence
from quietmean.statistics import Answer, registry
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.contribution import sharing_of
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


# A first look is two histograms of a thousand cells, which the others are held to here with fewer.
STATISTICS = {one.text: one for one in all_statistics() if one.name != "first-look"}
REHEARSED_ROUNDINGS = 40
# Of an error that is measured over 40 roundings (known to within a third, but for one in 100,000 terms): beyond 4.5 true
# standard deviations, which the sum of four roundings reaches in none of the 1,000 terms that are compared here.
DEVIATIONS = 7.0


@dataclass(frozen=True, eq=False)
class Opened:
    """The answers to all statistics of what a committee ``opened`` without noise, of all ``records`` together, and of these
    rounded as contributors round, with fixed seeds."""

    opened: tuple[Answer, ...]
    records: tuple[Answer, ...]
    rounded: tuple[tuple[Answer, ...], ...]


def through_a_committee() -> Opened:
    """On the finest grid that there is room for."""
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
    step = sharing.clip / 500_000
    sharing = replace(sharing, step=step, sigma=4 * step)
    admitted = [workload.encode(part) for part in PARTS]
    values, weights = np.array([one.vector for one in admitted]), [one.weight for one in admitted]
    rehearsal = rehearse(sharing.parameters(CONTRIBUTORS), values, weights, noise=lambda seed: InsecureSilence())
    assert rehearsal.counted == tuple(range(CONTRIBUTORS))
    checked = rehearsal.checked
    pooled = workload.encode(np.concatenate(PARTS))
    # Each rounds each coordinate to one of the two steps beside it, whatever chance decides.
    np.testing.assert_allclose(checked.total, pooled.vector, rtol=0, atol=CONTRIBUTORS * step)

    def answers(total: Array) -> tuple[Answer, ...]:
        return workload.decode(total / pooled.weight, 1e-12, pooled.weight)

    assert checked.weight == pooled.weight
    rng = np.random.default_rng(REHEARSED_ROUNDINGS)
    roundings = [np.sum([round_as_they_do(value, step, rng) for value in values], axis=0) for _ in range(REHEARSED_ROUNDINGS)]
    return Opened(answers(checked.total), answers(pooled.vector), tuple(map(answers, roundings)))


def round_as_they_do(value: Array, step: float, rng: np.random.Generator) -> Array:
    """A value (d,) on the grid: each coordinate up or down at random, right in the mean."""
    return np.asarray(np.floor(value / step + rng.random(value.size)) * step)


def assert_within_roundings(what: str, opened: Array, records: Array, rounded: Sequence[Array]) -> None:
    """The opened terms are those of the records but for what rounding to steps does to them."""
    # A part of none is not a number among the records, and next to nothing of what was rounded.
    expected = np.nan_to_num(records, nan=0.0)
    errors = np.nan_to_num(np.array(rounded), nan=0.0) - expected
    tolerance = DEVIATIONS * np.sqrt(np.mean(errors**2, axis=0)) + 1e-9 * (1 + np.abs(expected))
    assert np.all(tolerance < 1e-3 * (1 + np.abs(expected))), f"{what}: the grid is too coarse for this to say anything"
    difference = np.abs(np.nan_to_num(opened, nan=0.0) - expected)
    assert np.all(difference <= tolerance), f"{what}: {difference} beyond {tolerance}"


def test_without_noise_a_committee_opens_what_the_records_give() -> None:
    answers = through_a_committee()
    assert {statistic.name for statistic in STATISTICS.values()} == set(registry()) - {"first-look"}
    for place, text in enumerate(STATISTICS):
        opened, records = answers.opened[place].estimates, answers.records[place].estimates
        rounded = [rounding[place].estimates for rounding in answers.rounded]
        assert opened.terms == records.terms, text
        assert_within_roundings(text, opened.value, records.value, [estimates.value for estimates in rounded])
        for name, test in records.tests.items():
            assert_within_roundings(
                f"{name} of {text}",
                np.asarray(opened.tests[name].statistic),
                np.asarray(test.statistic),
                [np.asarray(estimates.tests[name].statistic) for estimates in rounded],
            )
