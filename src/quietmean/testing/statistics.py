"""Assertions about random samples. Each says how often it fails on a correct implementation: ``error_rate``, 1e-6 by default.

A seed that passes keeps passing, so the rate matters only when seeds or streams change; it is small enough to be read as "never".
Who uses them should also show, on a deliberately wrong sample, that the sample is large enough to detect it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from quietmean.core.arrays import Array, Ints

Samples = Array

ERROR_RATE = 1e-6


def assert_mean(samples: Samples, expected: float, sd: float, error_rate: float = ERROR_RATE) -> None:
    """The mean of independent samples of known standard deviation ``sd`` is ``expected``: two-sided z-test."""
    z = (float(np.mean(samples)) - expected) * math.sqrt(samples.size) / sd
    limit = float(stats.norm.isf(error_rate / 2))
    assert abs(z) <= limit, f"mean {np.mean(samples):.6g} is {z:.2f} standard errors from {expected:.6g}, limit {limit:.2f}"


def assert_variance(samples: Samples, expected: float, error_rate: float = ERROR_RATE) -> None:
    """The variance of independent Gaussian samples is ``expected``: two-sided chi-square test."""
    freedom = samples.size - 1
    ratio = float(np.var(samples, ddof=1)) / expected
    low = float(stats.chi2.ppf(error_rate / 2, freedom)) / freedom
    high = float(stats.chi2.isf(error_rate / 2, freedom)) / freedom
    assert low <= ratio <= high, f"variance is {ratio:.5f} times the expected {expected:.6g}, outside [{low:.5f}, {high:.5f}]"


def assert_standard_normal(samples: Samples, error_rate: float = ERROR_RATE) -> None:
    """Independent samples are N(0, 1): two-sided Kolmogorov-Smirnov test."""
    p_value = float(stats.kstest(samples, "norm").pvalue)
    assert p_value >= error_rate, f"Kolmogorov-Smirnov p-value {p_value:.3g} is below {error_rate:g}: not N(0, 1)"


def assert_uniform_counts(counts: Ints, error_rate: float = ERROR_RATE) -> None:
    """Counts of independent draws, shape (cells,), are uniform: chi-square test (expect at least 5 in every cell)."""
    assert counts.mean() >= 5, "too few draws a cell for a chi-square test"
    p_value = float(stats.chisquare(counts).pvalue)
    assert p_value >= error_rate, f"chi-square p-value {p_value:.3g} is below {error_rate:g}: not uniform"


def assert_rate(successes: int, trials: int, probability: float, error_rate: float = ERROR_RATE) -> None:
    """Independent trials succeed with ``probability``: exact two-sided binomial test."""
    p_value = float(stats.binomtest(successes, trials, probability).pvalue)
    assert p_value >= error_rate, f"{successes} of {trials} has p-value {p_value:.3g} under probability {probability:.6g}"


def assert_uncorrelated(first: Samples, second: Samples, error_rate: float = ERROR_RATE) -> None:
    """Two streams of independent Gaussian samples are uncorrelated: Pearson's test."""
    p_value = float(stats.pearsonr(first, second).pvalue)
    assert p_value >= error_rate, f"correlation {np.corrcoef(first, second)[0, 1]:.4g} has p-value {p_value:.3g}"
