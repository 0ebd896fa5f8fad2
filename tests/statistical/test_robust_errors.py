"""Errors that hold whatever the model: exact without noise, true with it, and only where a study asks for them."""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as statsmodels
from numpy.typing import NDArray

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Estimates, Statistic, Workload, parse_statistic, read_text
from quietmean.statistics.features import Moments, Vertex
from quietmean.statistics.paired_columns import PairMoments, Sampling, of_correlation, of_line
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.agreement.study import StudyTerms

Array = NDArray[np.float64]

COLUMNS = Columns(
    [
        Column(name="x", low=-5, high=20, missing="indicator"),
        Column(name="y", low=0, high=50, missing="indicator"),
        Column(name="arm", levels=("a", "b")),
        Column(name="z", low=0, high=1, missing="indicator"),
    ]
)
ROWS = 900


def records(seed: int = 3) -> Array:
    """Errors that grow with x and differ between arms, skewed, some cells missing; all within bounds."""
    rng = np.random.default_rng(seed)
    x, arm = np.clip(rng.gamma(2, 2, ROWS) - 2, -5, 20), rng.integers(0, 2, ROWS)
    y = np.clip(20 + 0.8 * x + rng.gumbel(0, 1, ROWS) * (0.5 + np.abs(x) / 2) * (1 + arm), 0, 50)
    found = np.column_stack([x, y, arm, rng.random(ROWS)]).astype(np.float64)
    found[rng.random(ROWS) < 0.1, 0] = np.nan
    found[rng.random(ROWS) < 0.1, 1] = np.nan
    return found


def workload_of(text: str, count: CountVisibility = CountVisibility.PUBLIC) -> Workload:
    return Workload(COLUMNS, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD, count=count, most_records=2 * ROWS)


def answered(
    text: str, rows: Array, noise: float = 0.0, seed: int = 0, count: CountVisibility = CountVisibility.PUBLIC
) -> Estimates:
    workload = workload_of(text, count)
    weight = float(len(rows)) if count == CountVisibility.PUBLIC else 2.0 * ROWS
    mean = workload.of_records(rows).sum(axis=0) / weight
    drawn = noise * np.random.default_rng(seed).standard_normal(len(mean))
    return workload.decode(mean + drawn, noise, weight)[0].estimates


def complete(rows: Array, *places: int) -> Array:
    kept = rows[:, list(places)]
    return np.asarray(kept[~np.isnan(kept).any(axis=1)])


@pytest.mark.parametrize("count", CountVisibility)
@pytest.mark.parametrize(("text", "place"), [("linear-regression(y ~ x)", 0), ("linear-regression(y ~ arm)", 2)])
def test_slopes_without_noise_have_the_errors_of_statsmodels(text: str, place: int, count: CountVisibility) -> None:
    found, (x, y) = answered(text, records(), count=count), complete(records(), place, 1).T
    oracle = statsmodels.OLS(y, statsmodels.add_constant(x)).fit(cov_type="HC1", use_t=True)
    np.testing.assert_allclose(found.value, oracle.params, rtol=1e-7)
    assert found.population is not None
    np.testing.assert_allclose(found.population, oracle.bse, rtol=1e-6)
    assert found.of_population is not None
    np.testing.assert_allclose(found.of_population, oracle.conf_int(), rtol=1e-6)
    assert found.p_value is not None
    np.testing.assert_allclose(found.p_value, oracle.pvalues, rtol=1e-4, atol=1e-12)
    assert found.tests["F"].p_value == pytest.approx(float(oracle.f_pvalue), rel=1e-4, abs=1e-12)
    # It matters here: the model's are others.
    plain = statsmodels.OLS(y, statsmodels.add_constant(x)).fit()
    assert np.abs(np.asarray(oracle.bse) / np.asarray(plain.bse) - 1).max() > 0.1


def test_a_correlation_without_noise_has_the_error_of_its_influence() -> None:
    found, (x, y) = answered("correlation(x, y)", records()), complete(records(), 0, 1).T
    a, b = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    value = float((a * b).mean())
    influence = a * b - value / 2 * (a**2 + b**2)
    assert found.value[0] == pytest.approx(value, rel=1e-9)
    assert found.population is not None
    assert found.population[0] == pytest.approx(math.sqrt(float((influence**2).mean()) / (len(x) - 3)), rel=1e-6)
    assert abs(found.population[0] / ((1 - value**2) / math.sqrt(len(x) - 3)) - 1) > 0.1


def released(text: str, rows: Array, records_: int) -> tuple[Callable[[np.random.Generator | None], PairMoments], Any]:
    """How the moments of a pair are drawn with the noise of epsilon 4 and so many records, and what is asked of them."""
    workload = workload_of(text)
    mean, noise = workload.of_records(rows).mean(axis=0), 1.2 * workload.sensitivity / records_
    (feature,) = workload.statistics[0].features(workload.declared)
    assert isinstance(feature, Moments)
    pair = Vertex(COLUMNS["x"]), Vertex(COLUMNS["y"])

    def drawn(rng: np.random.Generator | None) -> PairMoments:
        own = 1e-12 if rng is None else noise
        moved = mean if rng is None else mean + noise * rng.standard_normal(len(mean))
        return PairMoments.of(workload.decoder().released(moved, own, float(records_)), feature, *pair)

    return drawn, of_correlation if "correlation" in text else of_line(0.0)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["linear-regression(y ~ x)", "correlation(x, y)"])
def test_the_noise_in_a_variance_is_counted(text: str) -> None:
    """1000 draws of the noise, seed 8: the mean is the truth within 4 of its errors (1 in 16,000) and a hundredth, what moves in
    proportion with the noise left out; the stated error that of the draws within a tenth. A variance that forgets the noise's own
    part is further away."""
    drawn, asked = released(text, records(), 6000)
    exact, rng = drawn(None), np.random.default_rng(8)
    truth = exact.sampling(asked).variances[-1]
    slope = exact.of_quantities(asked)(exact.quantities + 1e-30j * np.eye(len(exact.quantities)))[:, -1].imag / 1e-30
    pairs = [drawn(rng) for _ in range(1000)]
    found = [one.sampling(asked) for one in pairs]
    values, stated = (np.array([getattr(one, name)[-1] for one in found]) for name in ("variances", "uncertainty"))
    forgetful = np.array([one.of_quantities(asked)(one.quantities[None])[0, -1].real for one in pairs])
    proportional = np.array([slope @ (one.quantities - exact.quantities) for one in pairs])

    def is_right(each: Array) -> bool:
        rest = each - proportional
        return bool(abs(rest.mean() - truth) < 4 * rest.std() / math.sqrt(len(rest)) + 0.01 * truth)

    assert is_right(values)
    assert not is_right(forgetful)
    assert math.sqrt(stated.mean()) == pytest.approx(values.std(), rel=0.1)


def test_what_noise_hides_is_drawn_to_the_model() -> None:
    model = np.array([1.0, 1.0, 1.0, 1.0])
    found = Sampling(np.array([4.0, 4.0, 4.0, -9.0]), np.array([0.0, 9.0, 900.0, 900.0])).shrink_towards(model)
    np.testing.assert_allclose(found.variances, [4.0, 3.7, 1.0, 1.0])
    assert found.uncertainty.tolist() == [0.0, 8.1, 0.0, 0.0]
    # Known without noise: as many as the records leave; with it fewer, never below four.
    np.testing.assert_allclose(found.degrees(np.zeros(4), 50.0)[[0, 2]], 50.0)
    assert found.degrees(np.zeros(4), 50.0)[1] == 4.0


def test_answers_say_what_their_intervals_assume() -> None:
    assert "model-based" not in answered("linear-regression(y ~ x)", records(), 1e-6).method
    assert "model-based" not in answered("correlation(x, y)", records(), 1e-6).method
    others = ("linear-regression(y ~ x + z)", "correlation(x, y, z)", "linear-regression(y ~ x, robust=false)")
    for text in others:
        assert "model-based" in answered(text, records(), 1e-6).method


def test_noise_that_hides_the_covariate_leaves_the_model() -> None:
    found = answered("linear-regression(y ~ x)", records(), 0.05)
    assert "model-based" in found.method
    assert [flag.code for flag in found.flags] == ["not-identified"]


OLD = """
[study]
name = "pairs, sealed before"
epsilon = 2.0
delta = 1e-6

[[column]]
name = "age"
low = 20
high = 95
missing = "indicator"

[[column]]
name = "bmi"
low = 10
high = 60
missing = "indicator"

[[column]]
name = "ill"
boolean = true

[[statistic]]
kind = "linear-regression"
formula = "bmi ~ age"

[[statistic]]
kind = "linear-regression"
formula = "age ~ ill"

[[statistic]]
kind = "correlation"
columns = ["age", "bmi"]
"""


def test_a_study_without_robust_errors_keeps_its_coordinates() -> None:
    """Computed by the version that knew no robust errors."""
    study = StudyTerms.from_tables(tomllib.loads(OLD), "study.toml")
    nothing = np.nan
    rows = np.array([[30, 25, 0], [nothing, 40, 1], [60, nothing, nothing], [120, 5, 1], [nothing] * 3], dtype=np.float64)
    vectors = study.workload.of_records(rows)
    found = hashlib.sha256((np.round(vectors, 9) + 0.0).astype("<f8").tobytes()).hexdigest()
    assert vectors.shape == (5, 11)
    assert found == "46272f13d983ae8b3e71f9ba00121350aa6da70c6e551704ae971bfd65216476"
    # Their names say what they are, in words that mean the same.
    assert [one.text for one in study.workload.statistics] == [
        "linear-regression(bmi ~ age, robust=false)",
        "linear-regression(age ~ ill, robust=false)",
        "correlation(age, bmi, robust=false)",
    ]


def robust(statistic: Statistic) -> bool:
    return bool(statistic.describe().get("robust", False))


def test_whoever_asks_in_words_gets_them_where_there_are_any(tmp_path: Path) -> None:
    asked = ["correlation(age, bmi)", "linear-regression(bmi ~ age)", "linear-regression(bmi ~ age + ill)"]
    columns: dict[str, Any] = {"age": (20, 95), "bmi": (10, 60), "ill": bool}
    from_python = qm.Study(columns, asked, epsilon=1.0, delta=1e-6).terms.workload.statistics
    main(["study", "new", "age in 20..95", "bmi in 10..60", "ill in yes/no", *asked, "--out", str(tmp_path / "study.toml")])
    by_command = StudyTerms.load(tmp_path / "study.toml").workload.statistics
    for statistics in (from_python, by_command):
        assert [robust(one) for one in statistics] == [True, True, False]
        # The usual needs no word.
        assert [one.text for one in statistics] == asked
    assert study_text(StudyTerms.load(tmp_path / "study.toml")).count("robust = true") == 2


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "linear-regression", "formula": "y ~ x + z", "robust": True},
        {"kind": "correlation", "columns": ["x", "y", "z"], "robust": True},
    ],
)
def test_where_there_are_none_they_are_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="robust is true, but"):
        parse_statistic(raw).features(COLUMNS)
