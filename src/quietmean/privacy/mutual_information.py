"""Mutual information as a measure of what is revealed: in nats, and as the fraction of a value's variance that is explained."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError


def revealed_variance(nats: ArrayLike) -> Array:
    """R^2 = 1 - exp(-2 I): the fraction of a Gaussian value's variance that a view with ``nats`` of information I explains.

    1 if I is infinite. ``nats`` may have any shape; the result has the same.
    """
    return -np.expm1(-2.0 * np.asarray(nats, dtype=np.float64))


def summary(target: float, upper: float, prior_sd: float, coordinates: int | None, a_priori: float) -> dict[str, Any]:
    """What is said of a ``target`` in nats: ``upper`` is an upper bound for the worst party, a coordinate.

    ``coordinates``: of a value, None where that is not known. ``a_priori``: of every execution, known before the start; left
    out where there is none.
    """
    document = {"target": target, "most": upper, "revealed_variance": float(revealed_variance(upper)), "prior_sd": prior_sd}
    known = {} if coordinates is None else {"coordinates": coordinates}
    return {**document, **known, **({} if math.isinf(a_priori) else {"a_priori": a_priori})}


def of_noisy_value(prior_sd: float, noise_sd: float) -> float:
    """I(S; S + N) in nats for independent Gaussians: what one release with noise of its own reveals. Infinite without noise."""
    _check(prior_sd)
    return math.inf if noise_sd == 0 else 0.5 * math.log1p((prior_sd / noise_sd) ** 2)


def of_sum(parties: int) -> float:
    """I(S_i; S_1 + ... + S_n) in nats for equal Gaussians: 1/2 ln(n / (n - 1)), what a sum reveals of each of n terms.

    No protocol that computes the sum exactly reveals less. Raises :class:`InputError` for less than one party.
    """
    if parties < 1:
        raise InputError(f"a sum needs at least 1 value, not {parties}. Give at least 1.")
    return math.inf if parties == 1 else 0.5 * math.log(parties / (parties - 1))


def of_interval_intersection(entropy: float, widths: ArrayLike) -> float:
    """Nats that messages s + Uniform(w_k) reveal together of a value s of differential ``entropy``: an approximation.

    ``widths``: w_k in the units of s, shape (K,). Each message confines s to an interval of its width w_k; together to their
    intersection, whose expected logarithm for densities that are flat at that scale is ln of 1 / sum(1 / w_k) less Euler's
    constant, for many messages: h(S) + ln sum(1 / w_k) + gamma - 1. Exact to O(1 / K) for K equal widths; see
    :func:`of_equal_intervals`.
    """
    inverse = 1.0 / np.asarray(widths, dtype=np.float64)
    return float(entropy + np.log(inverse.sum()) + np.euler_gamma - 1.0)


def of_equal_intervals(entropy: float, width: float, messages: int) -> float:
    """Nats that K messages of one width reveal together: h(S) - ln w + H_K - 1, with the harmonic number H_K.

    Exact as long as the density of s is flat over intervals of this width. Grows by ln 2 for twice as many messages, without
    limit. Raises :class:`InputError` for less than one message.
    """
    if messages < 1:
        raise InputError(f"messages is {messages}. Give at least 1.")
    return float(entropy - math.log(width) + (1.0 / np.arange(1, messages + 1)).sum() - 1.0)


def gaussian_entropy(prior_sd: float) -> float:
    """Differential entropy of N(0, prior_sd^2), in nats."""
    _check(prior_sd)
    return 0.5 * math.log(2 * math.pi * math.e * prior_sd**2)


def _check(prior_sd: float) -> None:
    if not (math.isfinite(prior_sd) and prior_sd > 0):
        raise InputError(f"prior standard deviation is {prior_sd:g}. Choose a finite number > 0.")
