"""How a study's budget is divided so that intervals are as narrow as possible, from public numbers only.

Shares are part of what parties agree on: they follow from a public table of columns that are independent of each other, but for a
statistic that asks how they go together, and every version makes the same ones. What to expect of a study is in
:mod:`~quietmean.statistics.expectation`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Self

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.codec import canonical_json
from quietmean.core.domain import MEAN_OF_ROWS, PrivacyUnit
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
# A statistic has this part of its equal share at least, so that others do not have to tell all that it asks for.
_LEAST_SHARE = 1e-4
_ROUNDS = 10


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


def knows_widths(workload: Workload) -> bool:
    """Are there several statistics whose widths public guesses tell, and none that declares a share of its own?"""
    alike = all(statistic.share == 1.0 for statistic in workload.statistics)
    guessed = all(column.guess or column.origin or not column.numeric for column in workload.columns)
    return len(workload.statistics) > 1 and alike and guessed


def shares_by_widths(workload: Workload) -> tuple[float, ...]:
    """Shares that make the sum of squared widths, each relative to its sampling error, least; of all statistics, in their order.

    The sampling error is but the unit of a width, from how far values spread: a study about these records has the same. What
    several statistics know is read from all of them (:class:`~quietmean.statistics.coding.Decoder`): a margin that a table
    tells as well gets what it still needs, and ``_LEAST_SHARE`` of the budget at least. With three digits, so that all machines
    have the same; a share that the study declares multiplies the width.
    """
    return _found(_Asked.of(workload))


@dataclass(frozen=True)
class _Asked:
    """All that shares follow from, and a workload of it: a study is read anew by each party and each command."""

    key: tuple[Hashable, ...]
    workload: Workload = field(compare=False)

    @classmethod
    def of(cls, workload: Workload) -> Self:
        asked = tuple(canonical_json(statistic.describe()) for statistic in workload.statistics)
        rest = (getattr(workload, each.name) for each in fields(workload) if each.name not in ("columns", "statistics"))
        return cls((tuple(workload.columns), asked, *rest), workload)


@lru_cache(maxsize=64)
def _found(asked: _Asked) -> tuple[float, ...]:
    workload = asked.workload
    alone = [_alone(workload, statistic) for statistic in workload.statistics]
    ratios = np.array([_noise_ratio(each) for each in alone])
    usual = float(np.nanmedian(ratios)) if np.isfinite(ratios).any() else 1.0
    # A statistic without a sampling error, such as a count of all records, gets the median share.
    wanted = np.where(np.isnan(ratios), usual, ratios) / usual
    wanted *= [statistic.total_share(workload.declared) for statistic in workload.statistics]
    # Of statistics that know nothing of each other's features this is the optimum already.
    shares, weights = wanted, wanted**2 / [_noise_by_coordinate(each, *each.statistics).sum() for each in alone]
    for _ in range(_ROUNDS if len(shares) > 1 else 0):
        # All fall alike at the optimum, to which this goes (Silvey, Titterington and Torsney 1978).
        shares = shares * np.sqrt(_gains(replace(workload, allocated=tuple(shares.tolist())), weights))
        shares = np.maximum(shares / shares.sum(), _LEAST_SHARE / len(shares)) * wanted.sum()
    return tuple(float(f"{share:.3g}") for share in shares)


def _gains(workload: Workload, weights: Array) -> Array:
    """By how much the weighted sum of noise falls where the share of each statistic grows, (statistics,)."""
    noise = np.zeros(workload.dimension)
    for statistic, weight in zip(workload.statistics, weights, strict=True):
        noise += weight * _noise_by_coordinate(workload, statistic)
    ends = np.cumsum([feature.size for feature in workload.scales])
    shares = dict.fromkeys(workload.scales, 0.0)
    for feature, share in workload.shares.items():
        shares[workload.whole(feature)] += share
    parts = np.split(noise, ends[:-1])
    gain = {feature: float(part.sum()) / shares[feature] for feature, part in zip(workload.scales, parts, strict=True)}
    asked = [workload.with_columns(statistic).parts for statistic in workload.statistics]
    return np.array([sum(gain[workload.whole(feature)] * part for feature, part in own.items()) for own in asked])


def _noise_by_coordinate(workload: Workload, statistic: Statistic) -> Array:
    """What each coordinate of the vector adds to the noise variance of all numbers that a statistic reads, (d,), as encoded.

    In units of the noise that a sensitivity of 1 has.
    """
    decoder, noise = workload.decoder(), np.zeros(workload.dimension)
    for feature in dict.fromkeys(workload.with_columns(statistic).features):
        # Sums of cells are encoded where these are wanted.
        weights = feature.response(workload.scales[feature], 0.0) if feature in workload.scales else np.eye(feature.size)
        for _, encoded, columns in decoder.read.by_rows(weights, decoder.places[feature]):
            noise[columns] += (encoded**2).sum(axis=0)
    return noise * workload.sensitivity_of_record**2


def _alone(workload: Workload, statistic: Statistic) -> Workload:
    """One statistic of a study, asked alone; a person's rows count as records, for how far values spread is guessed of these."""
    unit = PrivacyUnit.RECORD if workload.of_persons else workload.unit
    return replace(workload, statistics=(statistic,), allocated=None, unit=unit, rows=MEAN_OF_ROWS)


def _noise_ratio(alone: Workload) -> float:
    """Noise over sampling error of the principal term of a statistic that is asked alone; NaN without a sampling error."""
    (statistic,) = alone.statistics
    mean = alone.sums(made_up(alone.columns, USUAL_SPREAD, _relation(statistic)), np.full(_ROWS, 1 / _ROWS))
    # Both errors are for _ROWS records, as for all other statistics.
    estimates = alone.decode(mean, _TINY * alone.sensitivity, float(_ROWS))[0].estimates
    ratio = float(noise_over_sampling(estimates)[principal(estimates)])
    return ratio / _TINY if math.isfinite(ratio) and ratio > 0 else math.nan
