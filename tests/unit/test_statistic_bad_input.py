"""A wrong question gets one sentence with the remedy; what is wrong with the data gets a flag in words, never an error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.statistics import Estimates, read_text
from quietmean.studies import StudyTerms
from support.refusals import refused_rows

COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "low": 0, "high": 100, "missing": "indicator"},
    {"name": "bmi", "low": 10, "high": 60},
    {"name": "weight", "low": 20, "high": 120},
    {"name": "days", "low": 0, "high": 1000},
    {"name": "died", "boolean": True},
    {"name": "sex", "levels": ["f", "m"]},
]


def study(*texts: str) -> StudyTerms:
    return StudyTerms.parse({"column": COLUMNS, "statistic": [read_text(text) for text in texts]})


@refused_rows("a_wrong_question_gets_one_sentence")
def test_a_wrong_question_gets_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as told:
        study(text)
    assert "\n" not in str(told.value)
    assert ":" in str(told.value) or ". " in str(told.value)


def test_bounds_the_wrong_way_round() -> None:
    with pytest.raises(InputError, match=r"rising order\. Give columns="):
        StudyTerms.parse({"column": [{"name": "age", "low": 100, "high": 0}]})


def answer(text: str, change: dict[int, Any], noise: float = 1e-3) -> Estimates:
    """Of 2000 records, of which some columns are as given."""
    rng = np.random.default_rng(7)
    records = np.column_stack(
        [
            rng.uniform(20, 80, 2000),
            rng.uniform(20, 40, 2000),
            rng.uniform(50, 100, 2000),
            rng.uniform(0, 999, 2000),
            rng.integers(0, 2, 2000),
            rng.integers(0, 2, 2000),
        ]
    ).astype(np.float64)
    for place, values in change.items():
        records[:, place] = values
    workload = study(text).workload
    mean = workload.of_records(records).mean(axis=0)
    return workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, 2000.0)[0].estimates


def test_only_one_group() -> None:
    found = answer("group-means(bmi, by=sex)", {5: 0.0})
    (flag,) = [flag for flag in found.flags if flag.code == "group-left-out"]
    assert flag.terms == ("m",)
    assert flag.upper is not None
    assert 0 < flag.upper < 30
    assert math.isfinite(found.value[0])
    assert not found.tests


@pytest.mark.parametrize(
    ("noise", "sentence"),
    [
        (0.0, "a covariate is the same for all records, or a sum of others. Leave one out"),
        (1e-4, "the noise hides how the covariates differ. Leave one out, or ask for a larger epsilon"),
    ],
)
def test_covariates_that_are_the_same(noise: float, sentence: str) -> None:
    same = np.linspace(20, 40, 2000)
    found = answer("linear-regression(days ~ bmi + weight)", {1: same, 2: 2 * same}, noise)
    assert found.flags[0].code == "not-identified"
    assert found.flags[0].message == sentence


def test_no_events() -> None:
    found = answer("survival(days, died, by=sex)", {4: 0.0})
    known = np.isfinite(found.value)
    assert known.any()
    assert (np.abs(found.value[known] - 1) < 6 * found.standard_error[known]).all()
    # The noise of a count near nothing leaves the band a width, and no number overflows.
    assert np.isfinite(found.of_noise[known]).all()
    exact = answer("survival(days, died, by=sex)", {4: 0.0}, 0.0)
    assert np.nanmin(exact.value) == pytest.approx(1.0)


def test_nothing_present() -> None:
    found = answer("mean(age)", {0: np.nan})
    assert "too few values for its noise" in found.flags[0].message
    assert math.isinf(found.standard_error[0])


def test_everything_the_same() -> None:
    found = answer("correlation(bmi, weight)", {1: 30.0})
    assert found.flags
    assert all(flag.message for flag in found.flags)


@pytest.mark.parametrize("protocol", ["local-dp", "cordp-dme", "gopa"])
def test_a_grid_that_is_too_coarse_is_said_with_the_plan(protocol: str) -> None:
    """Before anybody agrees, not when values are encoded: at a smaller epsilon numbers have fewer places."""
    fields: dict[str, Any] = {"delta": 1e-6, "protocol": protocol, "colluding": 1, "accept_wide": True}
    fields |= {"column": COLUMNS}
    fields |= {"statistic": [read_text("table-1(by=sex, medians=true)")]}
    StudyTerms.parse(fields | {"epsilon": 1.0}).choice(6)
    with pytest.raises(InputError, match=r"grid of .* is too coarse for .* cells of column .*. Choose fewer bins"):
        StudyTerms.parse(fields | {"epsilon": 0.3}).choice(6)
