"""How noise and lost values enter an estimate: exact, from the transcript."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.lazy_scipy import sparse, sparse_linalg
from quietmean.core.noise import NoiseGroup
from quietmean.protocols.execution import Execution
from quietmean.transcript import Transcript


@dataclass(frozen=True, eq=False)
class LinearEstimate:
    """The estimate is sum_i weight_i x_i + Gaussian noise; for unit noise levels its variance per coordinate has two parts.

    ``weights``: shape (n,). ``star_variance`` is per unit of sigma_star^2, ``delta_variance`` per unit of sigma_delta^2 (None
    where no noise is cancelled), ``guard_variance`` per unit of the square of a guard's deviation.
    """

    weights: Array
    star_variance: float
    delta_variance: float | None
    guard_variance: float = 0.0

    @property
    def bias_square(self) -> float:
        """sum_i (weight_i - 1/n)^2: the squared error from lost values, per unit of their variance."""
        return float(((self.weights - 1.0 / self.weights.size) ** 2).sum())

    def noise_variance(self, sigma_star: float, sigma_delta: float, sigma_guard: float = 0.0) -> float:
        """Variance of the noise in the estimate, per coordinate."""
        cancelled = sigma_delta**2 * (self.delta_variance or 0.0) + sigma_guard**2 * self.guard_variance
        return sigma_star**2 * self.star_variance + cancelled


@dataclass(frozen=True)
class ReleasedNoise:
    """Noise per coordinate of what was released over its weight, before anything is decoded.

    ``variance``; ``most``: it, should no noise be cancelled; ``weight``: of all that is in the sum. None where not known.
    """

    variance: float
    most: float | None
    weight: float | None


def released_noise(execution: Execution) -> ReleasedNoise:
    """The variance of an execution that says exactly what is in the sum; exact, from its protocol or its transcript."""
    protocol, weights = execution.protocol, execution.weights
    stated = protocol.traits.checks.released_variance(protocol, execution.schedule, execution.trace, weights)
    if stated is not None:
        return ReleasedNoise(stated, None, execution.counted_weight() if protocol.traits.weight_is_known else None)
    transcript = execution.transcript()
    variance, total = _noise_and_weight(transcript, weights)
    return ReleasedNoise(variance, 4 * float((transcript.noise_scale**2).sum()) / total**2, total)


def noise_variance(transcript: Transcript, weights: Array) -> float:
    """Variance of the noise in the estimate per coordinate, at the transcript's own noise levels.

    ``weights``: the parties' public weights, shape (n,).
    """
    variance, _ = _noise_and_weight(transcript, weights)
    return variance


def _noise_and_weight(transcript: Transcript, weights: Array) -> tuple[float, float]:
    """Return of the estimate the variance of its noise, and all weight that is in it."""
    values, noise = _influence(transcript)
    total = float(values @ weights)
    return float(((noise * transcript.noise_scale) ** 2).sum()) / total**2, total


def stated_variance(execution: Execution) -> float:
    """The noise variance of each coordinate of a released mean: as the protocol states it, or by the transcript."""
    used = execution.in_result
    stated = used.error_variance()
    return noise_variance(used.transcript(), used.weights) if stated is None else stated


def linear_estimate(transcript: Transcript, weights: Array) -> LinearEstimate:
    """For the sum of all released messages over their total weight. ``weights``: the parties' public weights, shape (n,)."""
    values, noise = _influence(transcript)
    noise = noise**2
    total = float(values @ weights)
    is_delta, is_guard = (transcript.noise_group == group for group in (NoiseGroup.CANCELLING, NoiseGroup.GUARD))
    return LinearEstimate(
        values * weights / total,
        float(noise[~(is_delta | is_guard)].sum()) / total**2,
        float(noise[is_delta].sum()) / total**2 if is_delta.any() else None,
        float(noise[is_guard].sum()) / total**2,
    )


def _influence(transcript: Transcript) -> tuple[Array, Array]:
    """How much of each value and of each noise term ends up in the sum of all releases."""
    unit = sparse.csr_array(sparse.eye_array(transcript.messages) - transcript.dependence)
    # One backward sweep through the messages.
    influence = sparse_linalg.spsolve_triangular(
        sparse.csr_array(unit.T), transcript.released.astype(np.float64), lower=False, unit_diagonal=True
    )
    return np.asarray(transcript.values.T @ influence), np.asarray(transcript.noise.T @ influence)
