"""Muffliato's own accounting: pairwise network differential privacy, in which the adversary is one party and what it receives.

It reports the mean over all observers, so that the neighbours, who receive x + noise itself, count no more than a distant party.
Against a neighbour, or any coalition with one, what protects a value is its own noise: see :func:`neighbour_epsilon`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from quietmean.core.errors import InputError


def mean_renyi_epsilon(order: float, rounds: int, degree: int, parties: int, sigma: float, sensitivity: float = 1.0) -> float:
    """alpha T d_i D^2 / (2 n sigma^2), a mean over observers, of Renyi order alpha: Muffliato, equation (7); IncA, (65)."""
    return order * rounds * degree * sensitivity**2 / (2.0 * parties * sigma**2)


def rounds_for(parties: int, gap: float) -> int:
    """ceil(ln n / sqrt(gap)): Muffliato, Theorem 2 (variance at least 1). ``gap``: spectral gap of the gossip matrix."""
    return math.ceil(math.log(parties) / math.sqrt(gap))


@dataclass(frozen=True)
class NetworkDesign:
    """Noise for a pairwise network target: ``sigma`` per coordinate, at Renyi ``order``; ``mse`` without gossip error."""

    sigma: float
    order: float
    rounds: int
    parties: int

    @property
    def mse(self) -> float:
        """Per coordinate, if every party reached the mean of the noisy values."""
        return self.sigma**2 / self.parties


def network_design(
    parties: int, degree: int, rounds: int, epsilon: float, delta: float, sensitivity: float = 1.0
) -> NetworkDesign:
    """The least noise whose mean pairwise loss, converted from Renyi, is (epsilon, delta): IncA, equations (66) to (68).

    Raises :class:`InputError` unless epsilon > 0 and 0 < delta < 1.

    sigma^2 = (ln(1/delta) / (epsilon - e) + 1) T d D^2 / (2 n e) over 0 < e < epsilon, least where its derivative vanishes.
    """
    if not (epsilon > 0 and 0 < delta < 1):
        raise InputError(f"epsilon is {epsilon:g} and delta {delta:g}: choose epsilon > 0 and 0 < delta < 1")
    from scipy.optimize import minimize_scalar

    log_delta = math.log(1.0 / delta)

    def variance(spent: float) -> float:
        order = log_delta / (epsilon - spent) + 1.0
        return order * rounds * degree * sensitivity**2 / (2.0 * parties * spent)

    bounds = (1e-9 * epsilon, (1.0 - 1e-9) * epsilon)
    spent = float(minimize_scalar(variance, bounds=bounds, method="bounded", options={"xatol": 1e-12 * epsilon}).x)
    return NetworkDesign(math.sqrt(variance(spent)), log_delta / (epsilon - spent) + 1.0, rounds, parties)


def neighbour_epsilon(sigma: float, delta: float, sensitivity: float = 1.0) -> float:
    """The exact epsilon against a neighbour, that of local DP with the same noise: its first message is x + noise."""
    from quietmean.privacy import GAUSSIAN

    return GAUSSIAN.epsilon(sensitivity / sigma, delta)
