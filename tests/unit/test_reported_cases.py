"""Cases that users of other software reported in public, made small with invented data: the right values, here without noise.

Those that need real processes are in tests/system/test_reported_cases.py.
"""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.domain import PrivacyUnit
from quietmean.protocols import Mechanism, registry
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text
from quietmean.studies.data import read_columns
from support.command_lines import fails

Array = np.ndarray[Any, np.dtype[np.float64]]


def answer(columns: Columns, text: str, records: Array, noise: float = 0.0, seed: int = 0) -> Estimates:
    """``noise``: the standard deviation on each coordinate of the total."""
    workload = Workload(columns, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)
    encoded = workload.encode(records)
    mean = (encoded.vector + noise * np.random.default_rng(seed).standard_normal(workload.dimension)) / encoded.weight
    return workload.decode(mean, noise / encoded.weight, encoded.weight)[0].estimates


def followed(times: np.ndarray[Any, Any], events: np.ndarray[Any, Any], most: int) -> Estimates:
    columns = Columns([Column(name="years", low=0, high=most, whole=True), Column(name="event", boolean=True)])
    return answer(columns, f"survival(years, event, bins={most})", np.column_stack([times, events]).astype(float))


def test_whole_years_of_follow_up_are_kaplan_and_meiers_own_curve() -> None:
    # It takes longer to import than all tests of this file together.
    from lifelines import KaplanMeierFitter

    rng = np.random.default_rng(5)
    times, events = rng.integers(1, 11, 600), rng.random(600) < 0.6
    estimates = followed(times, events, 10)
    reference = KaplanMeierFitter().fit(times, events)
    right = reference.survival_function_at_times(range(1, 11)).to_numpy()
    by_term = dict(zip(estimates.terms, estimates.value.tolist(), strict=True))
    shown = [by_term[next(term for term in by_term if term.split()[-1] == str(year))] for year in range(1, 11)]
    assert shown == pytest.approx(right, abs=1e-9)
    (summary,) = estimates.summary.values()
    assert summary["median"] == reference.median_survival_time_ == 7


def test_a_hundred_deaths_at_five_are_half_of_two_hundred() -> None:
    times, events = np.repeat([5, 10], 100), np.repeat([1, 0], 100)
    estimates = followed(times, events, 10)
    at_five = next(place for place, term in enumerate(estimates.terms) if term.split()[-1] == "5")
    assert estimates.value[at_five] == pytest.approx(0.5)
    (summary,) = estimates.summary.values()
    assert summary["restricted_mean"] == pytest.approx(7.5)


def test_an_empty_cell_is_no_value_by_default() -> None:
    rng = np.random.default_rng(9)
    age = rng.normal(72, 8, 900).clip(30, 105)
    gone = rng.random(900) < 0.3
    frame = pd.DataFrame({"age": np.where(gone, np.nan, age)})
    study = qm.Study({"age": (0, 110)}, ["mean(age)"], epsilon=4.0, delta=1e-6)
    records = read_columns(frame, study.columns)
    estimates = answer(study.columns, "mean(age)", records)
    assert estimates.value[0] == pytest.approx(age[~gone].mean(), abs=1e-9)


def test_a_level_that_nobody_has_costs_the_other_coefficients_nothing() -> None:
    rng = np.random.default_rng(5)
    group, age = rng.integers(0, 2, 2000), rng.normal(50, 10, 2000).clip(20, 90)
    y = 0.1 * age + 2 * group + rng.normal(size=2000)
    found = {}
    for levels in (("a", "b"), ("a", "b", "c")):
        columns = Columns(
            [
                Column(name="y", low=-5, high=20, missing="indicator"),
                Column(name="age", low=20, high=90, missing="indicator"),
                Column(name="grp", levels=levels),
            ]
        )
        found[levels] = answer(columns, "linear-regression(y ~ age + grp)", np.column_stack([y, age, group]), noise=1.0, seed=4)
    two, three = found.values()
    assert math.isnan(three.value[three.terms.index("grp[c]")])
    assert any("grp[c]" in flag.terms for flag in three.flags)
    for term in ("age", "grp[b]"):
        assert three.standard_error[three.terms.index(term)] < 2 * two.standard_error[two.terms.index(term)]


def test_one_declared_level_too_many_in_a_crosstab_costs_no_degree_of_freedom() -> None:
    rng = np.random.default_rng(7)
    row, column = rng.integers(0, 2, 2000), rng.integers(0, 2, 2000)
    columns = Columns([Column(name="r", levels=("a", "b", "nobody")), Column(name="c", boolean=True)])
    estimates = answer(columns, "crosstab(r, c)", np.column_stack([row, column]).astype(float), noise=3.0, seed=1)
    assert estimates.tests["chi-squared"].degrees == (1.0,)


@pytest.mark.slow
def test_a_study_runs_in_a_notebook() -> None:
    async def cell() -> float:
        frame = pd.DataFrame({"site": list("abc") * 40, "age": [30, 40, 50] * 40})
        study = qm.Study({"age": (20, 90)}, ["mean(age)"], epsilon=8.0, delta=1e-6)
        return float(study.run(frame, party_column="site")["mean(age)"].value[0])

    assert asyncio.run(cell()) == pytest.approx(40, abs=10)


MISSING_TEXTS = (
    pd.DataFrame({"g": ["1", "2", None]}).convert_dtypes(),
    pd.DataFrame({"g": pd.array(["1", "2", None], dtype="string[pyarrow]")}),
    pd.DataFrame({"g": pd.array(["1", "2", None], dtype=pd.ArrowDtype(pa.string()))}),
    pd.DataFrame({"g": pd.Series(["1", "2", pd.NA], dtype=object)}),
)


@pytest.mark.parametrize("frame", MISSING_TEXTS, ids=("convert_dtypes", "string[pyarrow]", "ArrowDtype", "object"))
def test_a_missing_text_of_a_frame_is_missing(frame: pd.DataFrame) -> None:
    records = read_columns(frame, Columns([Column(name="g", levels=("1", "2"))]))
    assert records[:, 0].tolist() == pytest.approx([0, 1, math.nan], nan_ok=True)


@pytest.mark.parametrize("odd", [math.inf, -math.inf, Decimal("Infinity"), 2**62, True], ids=str)
def test_an_odd_number_is_none_of_the_levels(odd: object) -> None:
    frame = pd.DataFrame({"g": pd.Series([1.0, 2.0, odd], dtype=object)})
    records = read_columns(frame, Columns([Column(name="g", levels=("2", "3"))]))
    assert records[1, 0] == 0
    assert not records[2, 0] >= 0


def test_codes_and_levels_compare_by_meaning(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("v\n0.0\n1.0\n-1.0\n01\n0.50\n")
    columns = Columns([Column(name="v", levels=("0", "1", "0.5"), missing_codes=("-1",))])
    records = read_columns(tmp_path / "v.csv", columns)
    assert records[:, 0].tolist() == pytest.approx([0, 1, math.nan, 1, 2], nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--parties", "2", "--epsilon", "1", "--delta", "1e-6"], ["--parties", "2", "--json"]])
def test_two_parties_can_plan(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", *options])
    assert "packed-sharing" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--epsilon", "--delta", "--dropouts"])
def test_a_number_that_is_none_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    fails(["plan", "--parties", "4", option, "nan"], capsys, option.strip("-"))


def test_which_protocols_keep_their_target_beforehand() -> None:
    """Of those that protect, all that bring a promise beforehand, but those that need everybody, whose figure may be higher."""
    ours = {name: kind for name, kind in registry().items() if kind.TRAITS.private and kind.a_priori is not Mechanism.a_priori}
    assert {name for name, kind in ours.items() if not kind.TRAITS.keeps_target} == {"consensus"}
