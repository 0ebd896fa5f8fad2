"""The log-rank test within strata: on real data as statsmodels computes it, and what is said of strata that tell nothing."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from lifelines.datasets import load_gbsg2, load_lung, load_rossi
from numpy.typing import NDArray
from statsmodels.duration.survfunc import survdiff

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text

Array = NDArray[np.float64]
DATA = {"lung": 34.0, "GBSG2": 30.0, "rossi": 26.0}
STRATA = ("p", "q", "r")


@cache
def records(name: str) -> Array:
    """Whole months, quarters or fortnights, whether the event happened then, arm and stratum; one of rossi has nobody."""
    if name == "lung":
        data = load_lung().dropna(subset=["ph.ecog"])
        time, event, arm = np.ceil(data["time"] / 30.4), data["status"] == data["status"].max(), data["sex"] == 2
        stratum = np.minimum(data["ph.ecog"], 2)
    elif name == "GBSG2":
        data = load_gbsg2()
        time, event, arm = np.ceil(data["time"] / 91.3), data["cens"], data["horTh"] == "yes"
        stratum = data["tgrade"].map({"I": 0, "II": 1, "III": 2})
    else:
        data = load_rossi()
        time, event, arm, stratum = np.ceil(data["week"] / 2), data["arrest"], data["fin"], data["race"]
    return np.column_stack([time, event, arm, stratum]).astype(np.float64)


def columns_of(name: str) -> Columns:
    return Columns(
        [
            Column(name="time", low=0, high=DATA[name], whole=True),
            Column(name="died", boolean=True),
            Column(name="arm", levels=("a", "b")),
            Column(name="stratum", levels=STRATA),
        ]
    )


def answer(name: str, text: str, given: Array, noise: float = 0.0) -> Estimates:
    workload = Workload(columns_of(name), (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)
    mean = workload.of_records(given).mean(axis=0)
    mean += noise * np.random.default_rng(1).standard_normal(len(mean))
    return workload.decode(mean, noise, float(len(given)))[0].estimates


@pytest.mark.parametrize("name", DATA)
def test_within_strata_it_is_the_test_of_the_records(name: str) -> None:
    given, bins = records(name), int(DATA[name])
    found = answer(name, f"survival(time, died, by=arm, strata=stratum, bins={bins})", given)
    time, died, arm, stratum = given.T
    chi, p = survdiff(time, died, arm, strata=stratum)
    test = found.tests["log-rank"]
    assert test.method == "stratified log-rank test"
    assert test.degrees == (1.0,)
    assert test.statistic == pytest.approx(chi, rel=1e-9)
    assert test.p_value == pytest.approx(p, rel=1e-9)
    # Not what there is without strata, or with time in other bins.
    assert abs(test.statistic / survdiff(time, died, arm)[0] - 1) > 0.005
    told = found.summary["log-rank"]
    # But for the few after the last of the other arm.
    assert told["events"] == {one: pytest.approx(died[arm == place].sum(), abs=3.1) for place, one in enumerate("ab")}
    assert told["resolution"] == 0.0
    # Curves are those of all strata together.
    plain = answer(name, f"survival(time, died, by=arm, bins={bins})", given)
    np.testing.assert_allclose(found.value, plain.value, rtol=1e-9)
    left_out = [flag for flag in found.flags if flag.code == "level-left-out"]
    assert len(left_out) == (name == "rossi")


def test_strata_decide_where_arms_are_of_other_risks() -> None:
    """Most of the second arm is in the stratum that dies late: arms differ, within strata they do not."""
    rng, n = np.random.default_rng(2), 4000
    stratum = rng.integers(0, 2, n)
    arm = rng.random(n) < 0.2 + 0.6 * stratum
    lived = rng.exponential(5.0 + 20.0 * stratum)
    given = np.column_stack([np.ceil(np.minimum(lived, 33)), lived < 33, arm, stratum]).astype(np.float64)
    for noise in (0.0, 2e-4):
        plain, within = (
            answer("lung", f"survival(time, died, by=arm{more}, bins=17)", given, noise).tests["log-rank"]
            for more in ("", ", strata=stratum")
        )
        assert plain.p_value < 1e-9
        assert within.p_value > 0.01


def test_a_stratum_that_noise_hides_is_left_out_and_told() -> None:
    given = records("GBSG2")
    few = given.copy()
    few[:, 3] = np.where(np.arange(len(few)) < 12, 2, np.minimum(few[:, 3], 1))
    found = answer("GBSG2", "survival(time, died, by=arm, strata=stratum, bins=15)", few, 8e-4)
    told = [flag for flag in found.flags if flag.code == "level-left-out"]
    assert len(told) == 1
    assert told[0].message.startswith("stratum r: an arm has too few at risk for the noise from the start: left out")
    assert found.tests["log-rank"].p_value < 0.2
    assert found.summary["log-rank"]["until"] > 14
