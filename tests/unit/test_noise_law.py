"""The law of the noise that a decoder asks for, and the L1 change that a target may state."""

import math

import pytest

from quietmean.core.errors import InputError
from quietmean.core.noise_law import NoiseKind, NoiseLaw
from quietmean.protocols.target import Target
from quietmean.randomness.laplace_shares import variance


@pytest.mark.parametrize("scale", [0.3, 1.0, 40.0])
@pytest.mark.parametrize(("shares", "least"), [(1, 1), (16, 16), (20, 16)])
def test_the_variance_of_a_law_is_that_of_its_shares(scale: float, shares: int, least: int) -> None:
    law = NoiseLaw(NoiseKind.LAPLACE, 0.5 * scale, shares / least, 0.5)
    assert law.variance == pytest.approx(0.25 * shares * variance(scale, least), rel=1e-12)


@pytest.mark.parametrize("law", [NoiseLaw(NoiseKind.GAUSSIAN, 3.0), NoiseLaw(NoiseKind.LAPLACE, 3.0, 1.25, 0.125)])
def test_a_law_scales_with_what_it_is_added_to(law: NoiseLaw) -> None:
    assert law.times(0.25).variance == pytest.approx(law.variance / 16, rel=1e-12)


def test_laplace_noise_of_small_steps_is_continuous_laplace_noise() -> None:
    law = NoiseLaw(NoiseKind.LAPLACE, 2.0, 1.0, 1e-4)
    assert law.variance == pytest.approx(2 * 2.0**2, rel=1e-8)
    assert NoiseLaw(NoiseKind.GAUSSIAN, 2.0).variance == 4.0


def test_a_target_keeps_its_l1_change() -> None:
    target = Target(parties=5, epsilon=1.0, delta=1e-6, dimension=4, sensitivity=math.sqrt(2), l1=2.0)
    assert Target.parse(target.describe()) == target
    assert "l1" not in Target(parties=5, epsilon=1.0, delta=1e-6).describe()


@pytest.mark.parametrize("wrong", [1.0, 0.0, -2.0, math.inf, math.nan])
def test_an_l1_change_below_the_l2_change_is_refused(wrong: float) -> None:
    with pytest.raises(InputError, match="l1 is"):
        Target(parties=5, epsilon=1.0, delta=1e-6, sensitivity=math.sqrt(2), l1=wrong)
