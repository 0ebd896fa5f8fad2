"""How a study's budget is divided so that intervals are as narrow as possible, from public numbers only.

Shares are part of what parties agree on: they follow from a public table of columns that are independent of each other, but for a
statistic that asks how they go together, and every version makes the same ones. What to expect of a study is in
:mod:`~quietmean.statistics.expectation`.
"""

from __future__ import annotations

import math

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.domain import PrivacyUnit
from quietmean.core.lazy import special
from quietmean.randomness.sobol import sobol
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.kinds.linear_regression import INTERCEPT
from quietmean.statistics.statistic import Statistic
from quietmean.statistics.transforms import Transform
from quietmean.statistics.workload import Workload

# The standard deviation of a column without a guess, in widths of its bounds.
USUAL_SPREAD = 0.25
_ROWS = 2048
# The correlation of each column with the one before it, where a statistic asks for relations.
_RELATION = 0.5
# Noise per record of the public table, so small that errors are linear in it.
_TINY = 1e-6


def made_up(columns: Columns, spread: float, relation: float = 0.0) -> Array:
    """A public table of the columns, (rows, columns), without missing cells; the same on every machine.

    ``spread``: the standard deviation of a column without a guess, in widths of its bounds. ``relation``: the correlation of the
    ranks of each column, about, with those of the one before it.
    """
    # Any two columns of a Sobol sequence are nearly independent: in random order they would be correlated by some 2 %.
    places = (sobol(len(columns), _ROWS.bit_length() - 1) * _ROWS).astype(np.int64)
    if relation:
        places = _related(places, relation)
    by_column: dict[str, Array] = {}
    for index, column in enumerate(columns):
        if column.origin:
            by_column[column.name] = Transform(column.origin).values(by_column)
        else:
            by_column[column.name] = _sorted(column, spread)[places[:, index]]
    return np.column_stack(list(by_column.values()))


def _related(places: Ints, relation: float) -> Ints:
    """Ranks by column, (rows, columns), from independent ones: those of a normal autoregression along the columns."""
    scores = special.ndtri((places + 0.5) / _ROWS)
    for column in range(1, scores.shape[1]):
        scores[:, column] = relation * scores[:, column - 1] + math.sqrt(1 - relation**2) * scores[:, column]
    return scores.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")


def _sorted(column: Column, spread: float) -> Array:
    """The values of one column, rising, (rows,)."""
    places = (np.arange(_ROWS) + 0.5) / _ROWS
    if not column.numeric:
        count = len(column.categories)
        parts = np.array(column.guess or (1 / count,) * count)
        return np.minimum(np.searchsorted(np.cumsum(parts), places), count - 1).astype(np.float64)
    mean, deviation = (
        ((column.guess[0] - column.low) / column.width, column.guess[1] / column.width) if column.guess else (0.5, spread)
    )
    mean = min(max(mean, 1e-3), 1 - 1e-3)
    # A beta distribution has any mean, and up to nearly any variance.
    size = mean * (1 - mean) / min(deviation**2, 0.95 * mean * (1 - mean)) - 1
    inverse = np.asarray(special.betaincinv(mean * size, (1 - mean) * size, places), dtype=np.float64)
    return column.low + column.width * inverse


def _relation(statistic: Statistic) -> float:
    return _RELATION if statistic.asks_for_relations else 0.0


def noise_over_sampling(estimates: Estimates) -> Array:
    """Noise over sampling error of each term, (terms,); infinite without a sampling error, or where noise hides the term."""
    if estimates.population is None:
        return np.full(len(estimates.terms), math.inf)
    with np.errstate(all="ignore"):
        sampling = np.sqrt(np.maximum(estimates.population**2 - estimates.standard_error**2, 0.0))
        ratio = np.where(sampling > 0, estimates.standard_error / sampling, np.where(estimates.standard_error > 0, math.inf, 0.0))
    unknown: Array = np.where(np.isfinite(estimates.value) & np.isfinite(estimates.standard_error), ratio, math.inf)
    return unknown


def principal(estimates: Estimates) -> int:
    """The place of the term with the median part of noise; an intercept is nobody's question."""
    ratio = noise_over_sampling(estimates)
    order = [index for index in np.argsort(ratio, kind="stable").tolist() if estimates.terms[index] != INTERCEPT] or [0]
    return int(order[(len(order) - 1) // 2])


def shares_by_widths(workload: Workload) -> tuple[float, ...]:
    """Shares that make the sum of squared widths, each relative to its sampling error, least; of all statistics, in their order.

    The sampling error is but the unit of a width, from how far values spread: a study about these records has the same.
    Weights sqrt(kappa / D) of features, kappa the noise of a statistic's principal estimate over its sampling error: shares
    kappa D. With three digits, so that all machines have the same; times the shares that the study declares.
    """
    noise_ratios = []
    for statistic in workload.statistics:
        alone = Workload(workload.columns, (statistic,), PrivacyUnit.RECORD if workload.of_persons else workload.unit)
        mean = alone.of_records(made_up(workload.columns, USUAL_SPREAD, _relation(statistic))).mean(axis=0)
        # Both errors are for _ROWS records, as for all other statistics.
        estimates = alone.decode(mean, _TINY * alone.sensitivity, float(_ROWS))[0].estimates
        ratio = noise_over_sampling(estimates)
        kappa = float(ratio[principal(estimates)])
        noise_ratios.append(kappa / _TINY if math.isfinite(kappa) and kappa > 0 else math.nan)
    usual = float(np.nanmedian(noise_ratios)) if np.isfinite(noise_ratios).any() else 1.0
    # A statistic without a sampling error, such as a count of all records, gets the median share.
    relative = [(usual if math.isnan(noise_ratio) else noise_ratio) / usual for noise_ratio in noise_ratios]
    return tuple(
        float(f"{statistic.total_share(workload.declared) * factor:.3g}")
        for statistic, factor in zip(workload.statistics, relative, strict=True)
    )
