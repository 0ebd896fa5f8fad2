"""Noise that a party adds to its own value and that stays in the result: Gaussian, uniform or Laplace."""

from __future__ import annotations

import math

import numpy as np

from quietmean.core.noise import NoiseGroup
from quietmean.core.numbers import numbers_for
from quietmean.core.party import NoiseSource, Vector
from quietmean.protocols.consensus.spec import ConsensusParameters
from quietmean.randomness import BitStream, Seed


def local_noise(parameters: ConsensusParameters, value: Vector, noise: NoiseSource) -> Vector:
    """The value (d,) with the party's local noise of standard deviation ``sigma_local``.

    Only Gaussian noise has an (epsilon, delta) guarantee here. Uniform noise has no epsilon at all: a value further
    from the noisy one than the noise can reach is excluded with certainty.
    """
    sigma = parameters.sigma_local
    if parameters.local_noise == "none":
        return numbers_for(value, parameters.numbers()).value(value)
    if parameters.local_noise == "gaussian":
        numbers = numbers_for(value, parameters.numbers())
        return numbers.value(value) + numbers.noise(noise, NoiseGroup.INDEPENDENT, 0, sigma, value.size)
    # From the middle of a cell of 2^-53: neither end of the interval occurs.
    unit = BitStream(Seed(noise.secret("local noise", 0))).uniform(value.size) + 2.0**-54
    if parameters.local_noise == "uniform":
        return value + (unit - 0.5) * (math.sqrt(12.0) * sigma)
    centred = unit - 0.5
    return value - np.sign(centred) * np.log1p(-2.0 * np.abs(centred)) * (sigma / math.sqrt(2.0))
