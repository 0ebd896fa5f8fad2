"""Quantiles of Laplace noise: exact for one coordinate, by tables for sums, and never too short where weights are not known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from quietmean.core.domain import PrivacyUnit
from quietmean.core.noise_law import NoiseKind, NoiseLaw
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.statistics.tails import Tails, Z, decoded_with, tails

FINE = NoiseLaw(NoiseKind.LAPLACE, 1.0, 1.0, 1e-3)
NO_STEPS = NoiseLaw(NoiseKind.LAPLACE, 1.0, 1.0)
MORE = NoiseLaw(NoiseKind.LAPLACE, 1.0, 1.25, 0.01)
COARSE = NoiseLaw(NoiseKind.LAPLACE, 1.0, 1.0, 1.0)


def sizes(*weights: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(weights)


def test_noise_without_a_law_or_a_gaussian_one_is_normal() -> None:
    for normal in (Tails.of(None), Tails.of(NoiseLaw(NoiseKind.GAUSSIAN, 3.0)), tails()):
        assert (normal.quantile(), normal.quantile(2.0, 1.0), normal.deviations(4.0), normal.p_value(0.01)) == (Z, Z, 4.0, 0.01)


@pytest.mark.parametrize("law", [FINE, NO_STEPS])
def test_one_laplace_noise_has_its_own_quantile(law: NoiseLaw) -> None:
    """95 % within ln(20) b, which is sqrt(2) b per standard deviation: 2.118, and not 1.960."""
    assert Tails.of(law, sizes(-3.0)).quantile() == pytest.approx(math.log(20) / math.sqrt(2), rel=1e-3)
    # Beyond four normal deviations is 6.3e-5 of the noise: of this noise beyond 6.84 of them.
    assert Tails.of(law).deviations(4.0) == pytest.approx(-math.log(2 * stats.norm.sf(4)) / math.sqrt(2), rel=1e-3)
    assert Tails.of(law).p_value(2 * stats.norm.sf(3)) == pytest.approx(math.exp(-3 * math.sqrt(2)), rel=2e-3)


def test_one_noise_of_few_steps_is_exact() -> None:
    """P(|X| > n) = 2 a^(n + 1) / (1 + a): 0.073 beyond two steps, 0.027 beyond three."""
    reach = Tails.of(COARSE, sizes(1.0)).quantile() * math.sqrt(COARSE.variance)
    assert reach == pytest.approx(3.0, rel=1e-9)


def test_sums_are_between_one_noise_and_normal_noise() -> None:
    """Of two alike P(|X| > x b) = e^-x (1 + x / 2); of shape two it is the same law."""
    two = Tails.of(FINE, sizes(1.0, 1.0)).quantile()
    beyond = two * 2
    assert math.exp(-beyond) * (1 + beyond / 2) == pytest.approx(0.05, rel=0.01)
    assert two == pytest.approx(Tails.of(NoiseLaw(NoiseKind.LAPLACE, 1.0, 2.0, 1e-3), sizes(1.0)).quantile(), rel=3e-3)
    assert Z < Tails.of(FINE, np.ones(1000)).quantile() < 1.001 * Z + 0.003


@pytest.mark.parametrize("law", [FINE, MORE, COARSE])
@pytest.mark.parametrize("weights", [sizes(1.0, 0.5), sizes(0.9, -0.1, -0.1, -0.1), sizes(1.0)])
@pytest.mark.parametrize("sampling", [0.0, 0.4, 5.0])
def test_quantiles_hold_as_often_as_they_say(
    law: NoiseLaw, weights: np.ndarray[tuple[int], np.dtype[np.float64]], sampling: float
) -> None:
    """Of 100 000 draws from numpy's own generator, seed 5: the share beyond is within 5 standard errors, or fewer where steps
    are few."""
    rng = np.random.default_rng(5)
    draws, ratio = 100_000, math.exp(-law.step / law.scale)
    x, y = (rng.negative_binomial(law.shape, 1 - ratio, (draws, len(weights))) for _ in range(2))
    noise = (x - y) * law.step @ weights
    variance = law.variance * float(weights @ weights)
    total = noise + math.sqrt(sampling * variance) * rng.standard_normal(draws)
    reach = Tails.of(law, weights).quantile(variance, sampling * variance) * math.sqrt((1 + sampling) * variance)
    beyond, error = float((np.abs(total) > reach * (1 + 1e-9)).mean()), math.sqrt(0.05 * 0.95 / draws)
    assert beyond < 0.05 + 5 * error
    assert beyond > (0.02 if law is COARSE and not sampling else 0.05 - 5 * error - 5e-4)


@pytest.mark.parametrize("law", [FINE, MORE, COARSE])
def test_unknown_weights_reach_at_least_as_far_as_known_ones(law: NoiseLaw) -> None:
    """60 random weights and sampling errors, seed 8; what tables smooth is 0.15 %."""
    rng = np.random.default_rng(8)
    for _ in range(60):
        weights = rng.exponential(size=rng.integers(1, 8)) ** rng.uniform(0.3, 3)
        sampling = float(rng.choice([0.0, 0.1, 1.0, 10.0]))
        known = Tails.of(law, weights).quantile(1.0, sampling)
        assert Z - 1e-3 < known <= Tails.of(law).quantile(1.0, sampling) * 1.002
        assert Tails.of(law).deviations(4.0) >= Tails.of(law, weights).deviations(4.0) * 0.999


def test_what_is_decoded_has_the_tails_of_its_noise() -> None:
    with decoded_with(FINE):
        assert tails().quantile() > 2.1
    assert tails().normal


def test_a_p_value_counts_the_noise_that_is_in_its_error() -> None:
    """Of 200,000 sums of a share of Laplace noise and normal errors, seed 6, as many as it says are beyond three deviations."""
    rng, normal = np.random.default_rng(6), 2 * float(stats.norm.sf(3))
    laplace, errors = rng.laplace(scale=math.sqrt(0.5), size=200_000), rng.standard_normal(200_000)
    for share in (0.25, 0.5, 1.0):
        beyond = float((np.abs(math.sqrt(share) * laplace + math.sqrt(1 - share) * errors) > 3).mean())
        assert Tails.of(FINE).p_value(normal, share) == pytest.approx(beyond, rel=0.1)
    assert Tails.of(FINE).p_value(normal, 0.0) == normal


def test_a_p_value_of_next_to_nothing_stays_a_chance() -> None:
    law = Tails.of(FINE)
    assert all(0 < law.p_value(small) < 1e-6 for small in (0.0, 1e-300, 1e-30))
    assert law.p_value(1.0) == 1.0
    assert math.isnan(law.p_value(math.nan))


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("count(where=sex == 'm')", [1.0]),
        # All cells add up to the public number: a quarter of what three have too much is taken from each.
        ("count(race)", [0.75, 0.25, 0.25, 0.25]),
        ("count(race, level=a)", [0.75, 0.25, 0.25, 0.25]),
    ],
)
def test_a_count_has_the_tails_of_its_own_weights(text: str, weights: list[float]) -> None:
    columns = Columns([Column(name="sex", levels=("f", "m")), Column(name="race", levels=("a", "b", "c"))])
    study = Workload(columns, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)
    for law in (FINE, COARSE):
        (answer,) = study.decode(np.full(study.dimension, 0.25), 1e-3, 10_000.0, law=law)
        half = float(np.diff(answer.estimates.of_noise[0])[0]) / 2
        reach = half / float(answer.estimates.standard_error[0])
        assert reach == pytest.approx(Tails.of(law, np.array(weights)).quantile(), rel=1e-9)


@pytest.mark.parametrize(
    "texts",
    [
        ("count(where=sex == 'm')", "histogram(race, where=sex == 'm')"),
        ("proportion(race, where=sex == 'm')", "count(race, where=sex == 'm')", "crosstab(sex, race)"),
        ("mean(age)", "count(age)", "group-means(age, by=sex)"),
    ],
)
def test_weights_and_covariance_are_of_the_same_noise(texts: tuple[str, ...]) -> None:
    """However a condition or a sum changes what is read: the covariance is the variance times weights times weights."""
    age = Column(name="age", low=0, high=100, missing="indicator")
    columns = Columns([age, Column(name="sex", levels=("f", "m")), Column(name="race", levels=("a", "b", "c"))])
    study = Workload(columns, tuple(parse_statistic(read_text(text)) for text in texts), PrivacyUnit.RECORD)
    rows = np.random.default_rng(2).integers(0, 2, (500, 3)).astype(float)
    encoded = study.encode(rows)
    law = FINE.times(1e-3)
    mean = encoded.vector / encoded.weight
    released = study.decoder().released(mean, math.sqrt(law.variance), encoded.weight, law)
    for statistic in study.statistics:
        declared = study.with_columns(statistic)
        view = declared._read(released)
        (first, *_) = statistic.features(declared.seen)
        for each in (view, view.sums(first, np.ones((2, first.size)))):
            every = np.arange(len(each.quantities))
            read = each.read.combined(np.eye(len(every)))
            assert each.covariance_at(every, every) == pytest.approx(law.variance * read @ read.T, abs=1e-12)
