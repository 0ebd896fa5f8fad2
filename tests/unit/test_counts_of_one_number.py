"""A count of values is one number, or the first of a block that is released anyway; both give the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.statistics import Answer, Column, Columns, Workload, parse_statistic, read_text

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=100, missing="indicator"),
        Column(name="bmi", low=10, high=60, missing="centre"),
        Column(name="sex", levels=("f", "m")),
    ]
)
RNG = np.random.default_rng(4)
ROWS = np.column_stack([RNG.uniform(0, 100, 300), RNG.uniform(10, 60, 300), RNG.integers(0, 2, 300)])
ROWS[::3, 0] = np.nan
ROWS[::7, 1] = np.nan
NOISE = 1e-3


def study(*texts: str, count: CountVisibility = CountVisibility.PUBLIC) -> Workload:
    return Workload(COLUMNS, tuple(parse_statistic(read_text(text)) for text in texts), PrivacyUnit.RECORD, None, count, 500)


def answers(workload: Workload, noise: float = 0.0, step: float = 0.0) -> tuple[Answer, ...]:
    encoded = workload.encode(ROWS, step=step)
    return workload.decode(encoded.vector / encoded.weight, noise * workload.sensitivity, encoded.weight, step=step)


@pytest.mark.parametrize("count", CountVisibility)
@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("count(age)", "variance(age)"),
        ("count(age, where=sex == 'f')", "variance(age, where=sex == 'f')"),
        ("count(where=age >= 50)", "mean(age, where=age >= 50)"),
        ("count(bmi)", "sum(bmi)"),
    ],
)
def test_a_count_is_one_number_and_agrees_with_a_block(text: str, beside: str, count: CountVisibility) -> None:
    alone, both = study(text, count=count), study(text, beside, count=count)
    assert alone.dimension == 1
    assert both.dimension == study(beside, count=count).dimension == 5
    for step in (0.0, 2.0**-14):
        one, other = answers(alone, step=step)[0].estimates, answers(both, step=step)[0].estimates
        assert one.value[0] == pytest.approx(other.value[0], abs=1e-6)
        assert one.n is not None
        assert other.n is not None
        assert one.n[0, 0] == pytest.approx(other.n[0, 0], abs=1e-6)


def test_rounding_to_a_grid_moves_no_count() -> None:
    """A factor that is no multiple of the step is rounded down for each record, and counted so."""
    present = float((~np.isnan(ROWS[:, 0])).sum())
    for text, value in (("count(age)", present), ("count(where=sex == 'm')", float(ROWS[:, 2].sum()))):
        assert answers(study(text, "proportion(sex)"), step=2.0**-6)[0].estimates.value[0] == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("count", "better"), [(CountVisibility.PUBLIC, 2 / 1.65), (CountVisibility.PRIVATE, 1.771)])
def test_a_count_by_itself_has_less_noise_than_in_a_block(count: CountVisibility, better: float) -> None:
    """A block says it with the weight 1.65 of 2, or with private counts with 0.73 of the root of 0.73^2 + 1.139."""
    alone = answers(study("count(age)", count=count), NOISE)[0].estimates.standard_error[0]
    block = answers(study("mean(age)", count=count), NOISE)[0].estimates.n
    assert block is not None
    assert block[0, 1] / alone == pytest.approx(better, rel=2e-3)


def test_a_count_of_filled_in_cells_is_that_of_all_records() -> None:
    """As where a block is released, and said: they count as the middle."""
    answer = answers(study("count(bmi)"), NOISE)[0].estimates
    assert (answer.value[0], answer.standard_error[0]) == (300.0, 0.0)
    assert [flag.code for flag in answer.flags if flag.terms or flag.code == "filled-in"] == ["filled-in"]
