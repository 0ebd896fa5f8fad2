"""What has no valid interval is not printed: values that chance shows, and cut points where there are no scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text

Array = NDArray[np.float64]
COLUMNS = Columns(
    [
        Column(name="cost", low=0, high=80_000, scale="log"),
        Column(name="ill", boolean=True),
        Column(name="arm", levels=("a", "b", "c")),
        Column(name="age", low=0, high=100),
    ]
)
RECORDS, SEED = 4000, 20261128


def answer(text: str, noise: float, records: Array) -> Estimates:
    workload = Workload(COLUMNS, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)
    encoded = workload.encode(records)
    mean = encoded.vector / encoded.weight + noise * np.random.default_rng(SEED).standard_normal(encoded.vector.size)
    return workload.decode(mean, noise, encoded.weight)[0].estimates


def people() -> Array:
    rng = np.random.default_rng(SEED)
    arm, age = rng.integers(0, 3, RECORDS).astype(np.float64), np.clip(rng.normal(50, 10, RECORDS), 0, 100)
    ill = (rng.random(RECORDS) < 0.3).astype(np.float64)
    return np.column_stack([np.exp(rng.normal(7 + ill, 0.8)), ill, arm, age])


@pytest.mark.parametrize("noise", [1e-5, 2e-4])
def test_cut_points_lie_where_scores_are_and_have_the_digits_of_bounds(noise: float) -> None:
    """Of 47 cut points in equal factors from a millionth of the bound; one in a million hidden wrongly by noise."""
    records = people()
    found = answer("roc(cost, ill)", noise, records)
    cuts = [(float(term.partition(":")[0]), value) for term, value in zip(found.terms[1:], found.value[1:].tolist(), strict=True)]
    first, last = np.quantile(records[:, 0], [0.003, 0.997])
    shown = {cut for cut, value in cuts if not math.isnan(value)}
    assert len(shown) >= 6
    assert all(first <= cut <= last for cut in shown)
    assert all(len(term.partition(":")[0].replace(".", "").strip("0")) <= 3 for term in found.terms[1:] if "e" not in term)
    (flag,) = [one for one in found.flags if one.code == "not-told"]
    assert {float(term.partition(":")[0]) for term in flag.terms} == {cut for cut, _ in cuts} - shown


def test_a_one_shot_regression_says_what_it_is_and_where_outcomes_are_separated() -> None:
    records = people()
    plain = answer("logistic-regression(ill ~ age + arm)", 1e-4, records)
    (flag,) = [one for one in plain.flags if one.code == "one-shot"]
    assert "glm(..., family=binomial)" in flag.message
    assert not [one for one in plain.flags if one.code == "separated"]
    records[records[:, 2] == 2, 1] = 0.0
    apart = answer("logistic-regression(ill ~ age + arm)", 1e-4, records)
    (flag,) = [one for one in apart.flags if one.code == "separated"]
    assert flag.terms == ("arm[c]",)
    place = apart.terms.index("arm[c]")
    assert np.isnan(apart.value[place])
    assert np.isinf(apart.of_noise[place]).all()


@pytest.mark.parametrize("steep", [False, True])
@pytest.mark.parametrize("kind", ["linear-regression(cost ~", "logistic-regression(ill ~"])
def test_slopes_of_what_hardly_differs_are_hidden_and_others_shown(kind: str, steep: bool) -> None:
    """Ages differ by 10 of 100 years, arms by all: from some noise on slopes of age are pulled to 0, which no interval holds.

    Just above that chance decides what is shown, which matters only where slopes are steep.
    """
    records, codes = people(), set()
    if steep:
        records[:, :2] = np.column_stack([800 * records[:, 3], records[:, 3] > 55])
    for noise in np.geomspace(1e-5, 3e-3, 16).tolist():
        found = answer(f"{kind} age + arm)", noise, records)
        hidden = {term for flag in found.flags if flag.code in ("not-identified", "near-threshold") for term in flag.terms}
        codes |= {flag.code for flag in found.flags if "age" in flag.terms}
        shown = {term for term, value in zip(found.terms, found.value.tolist(), strict=True) if not math.isnan(value)}
        assert not shown & hidden
        assert np.isinf(found.of_noise[[found.terms.index(term) for term in hidden]]).all()
        # Arms are told apart though ages are not.
        assert not hidden or hidden >= {"(Intercept)", "age"}
        assert "arm[b]" in shown
    assert codes == {"not-identified", *(["near-threshold"] if steep else [])}


@pytest.mark.parametrize(
    "text",
    [
        "group-means(age, by=ill)",
        "correlation(age, cost)",
        "table-1(age, by=ill)",
        "spearman(age, cost, bins=6)",
        "icc(age, cost)",
    ],
)
def test_values_only_just_above_the_noise_are_hidden(text: str) -> None:
    """At some noise each kind is near its threshold; what has the flag has no value, and no shorter interval than its range."""
    records, near = people(), 0
    for noise in np.geomspace(1e-6, 1e-1, 60).tolist():
        found = answer(text, noise, records)
        for flag in found.flags:
            if flag.code == "near-threshold":
                places = [found.terms.index(term) for term in flag.terms]
                near += len(places)
                assert np.isnan(found.value[places]).all()
                assert np.array_equal(found.of_noise[places], np.column_stack([found.low, found.high])[places])
    assert near
