"""Statistics of the time to an event: equal fields ask for the same table, so that several of them cost one."""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.comparison import Curves
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.features.table import edges_of
from quietmean.statistics.fields import bins_field, edges_field
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.survival_curve import Curve, TimeBins

USUAL_BINS = 12

# The only arm, and the only stratum, of records that no column divides.
ALL = "all"


def time_axis(
    subject: str, columns: Columns, name: str, horizon: float | None, bins: int, edges: tuple[float, ...] | None
) -> tuple[Axis, int]:
    """Bins (a, b] of a column from 0 to the horizon, and how many edges they have without that of the last time's own bin.

    By the given edges, else the column's own, else ``bins`` of them. Times up to 0 count as 0, later ones than the horizon as
    observed after it. Raises :class:`InputError` where the column's bounds do not hold both.
    """
    time = columns.number(name)
    edges_in_use = edges if edges is not None else time.edges if bins == USUAL_BINS else ()
    last = horizon if horizon is not None else edges_in_use[-1] if edges_in_use else time.high
    if time.low > 0 or not last <= time.high:
        raise InputError(
            f"{subject} needs times from 0 to the horizon {last:g}, but column {name!r} has bounds {time.low:g} to "
            f"{time.high:g}. Declare bounds that hold both."
        )
    if edges is not None and not (edges[0] >= 0 and edges[-1] > 0 and all(a < b for a, b in pairwise(edges))):
        raise InputError(f"{subject} needs edges that rise from 0 on. Sort them, and leave those below 0 out.")
    cut = time.model_copy(update={"edges": edges_in_use, "whole": time.whole and not edges_in_use})
    rising = edges_of(cut, bins, low=0.0, high=float(last), closed="right")
    # Anyone who is last seen at the horizon is at risk for all events before.
    before = math.ceil(last) - 1.0 if time.whole else math.nextafter(last, 0.0)
    own = (before,) if before > rising[-2] else ()
    return Axis(time, (*rising[:-1], *own, rising[-1]), closed="right"), len(rising)


def horizon_field() -> float | None:
    """The field of the last time."""
    horizon: float | None = parameter(
        None, help="the last time, by default the upper bound", above=0, remedy="choose a time within the bounds"
    )
    return horizon


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Timed(Statistic, ABC):
    """A statistic of a column of times and a boolean one, whether the event happened then or the record was censored."""

    by_place = ("time", "event")
    expects = ("median", "hazard-ratio")

    time: str = parameter(help="the column of times, from 0 on")
    event: str = parameter(help="the boolean column: did the event happen then")
    by: str | None = parameter(None, help="the column whose levels are the arms")
    horizon: float | None = horizon_field()
    bins: int = bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("hazard-ratio") or 1.0
        scenario.times(self.time, self.event, self.by, ratio, median=scenario.expected("median"))

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self.table(columns),)

    def arms(self, columns: Columns) -> list[str]:
        """The levels that divide the records."""
        return [ALL] if self.by is None else list(columns.category(self.by).categories)

    def strata_of(self, columns: Columns) -> list[str]:
        """The levels within which arms are compared."""
        return [ALL]

    def table(self, columns: Columns) -> CellIndicators:
        """Arms, then times, then events."""
        event = columns.boolean(self.event, "must say whether the event happened")
        return timed_table(self.by, self._axis(columns)[0], event, columns)

    def _axis(self, columns: Columns) -> tuple[Axis, int]:
        return time_axis(self.text, columns, self.time, self.horizon, self.bins, self.edges)

    def curves(self, released: Released, columns: Columns) -> Curves:
        table, arms, strata = self.table(columns), len(self.arms(columns)), len(self.strata_of(columns))
        bins = TimeBins.of(*self._axis(columns))
        count = len(bins)
        # Events and censored by bin, and who is still observed after the last.
        join = np.zeros((2 * count + 1, 2 * count + 2))
        join[: 2 * count, : 2 * count] = np.eye(2 * count)
        join[-1, 2 * count :] = 1.0
        # Levels of the event are no and yes.
        cells = cells_by_arm(table, arms, (1, 0), strata)
        counts = released.mean(table) * released.weight
        every = np.kron(np.eye(strata * arms), join)
        noise = every @ released.covariance(table)[np.ix_(cells.ravel(), cells.ravel())] @ every.T * released.weight**2
        size, each = len(join), []
        for place, own_cells in enumerate(cells):
            block = slice(place * size, (place + 1) * size)
            each.append(Curve.of_counts(bins, join @ counts[own_cells], noise[block, block]))
        return Curves([each[start : start + arms] for start in range(0, strata * arms, arms)], noise)


def timed_table(by: str | None, time: Axis, event: Column, columns: Columns) -> CellIndicators:
    """Arms, where there are any, then times, then what ended them."""
    return CellIndicators((*(() if by is None else (Axis(columns.category(by)),)), time, Axis(event)))


def cells_by_arm(table: CellIndicators, arms: int, causes: tuple[int, ...], strata: int = 1) -> Ints:
    """The cells of each arm, stratum after stratum, (strata arms, (bins + 1) len(causes)): for each cause all bins, that of
    time 0 first, then for each cause what is after the last.

    ``causes`` are places of levels of the last axis; what is missing is left out.
    """
    cells = np.arange(table.size).reshape(table.shape)
    inside = (slice(0, strata), slice(0, arms))[4 - len(table.axes) :]
    by_arm = cells[inside].reshape(-1, *table.shape[-2:])
    # What is up to the first edge, 0, comes first.
    last = table.shape[-2] - 2
    return np.hstack([*(by_arm[:, :last, cause] for cause in causes), by_arm[:, last, :][:, list(causes)]])
