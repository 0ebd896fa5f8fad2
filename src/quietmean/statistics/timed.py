"""Statistics of the time to an event: equal fields ask for the same table, so that several of them cost one."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.features import Axis, Table
from quietmean.statistics.fields import bins_field, boolean_column
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.supposed import Supposed
from quietmean.statistics.survival_curve import Curve

Array = NDArray[np.float64]

# The arm where no column divides the records.
ALL = "all"


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of all arms, and the covariance of the noise of all their counts, one arm after the other."""

    each: list[Curve]
    noise: Array

    @property
    def times(self) -> Array:
        """The ends of the bins."""
        return self.each[0].times


def time_axis(what: str, columns: Columns, name: str, horizon: float | None, bins: int) -> Axis:
    """Bins of a column from 0 to the horizon. Raises :class:`InputError` where its bounds do not hold both."""
    time = columns.number(name)
    last = time.high if horizon is None else horizon
    if time.low > 0 or not last <= time.high:
        raise InputError(
            f"{what} needs times from 0 to the horizon {last:g}, but column {name!r} has bounds {time.low:g} to {time.high:g}: "
            "declare bounds that hold both"
        )
    return Axis(time, tuple(np.linspace(0.0, last, bins + 1).tolist()))


def horizon_field() -> float | None:
    """The last time."""
    found: float | None = parameter(
        None, help="the last time, by default the upper bound", above=0, remedy="choose a time within the bounds"
    )
    return found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Timed(Statistic, ABC):
    """Of a column of times and a boolean one, whether the event happened then or the record was censored."""

    by_place = ("time", "event")
    expects = ("median", "hazard-ratio")

    time: str = parameter(help="the column of times, from 0 on")
    event: str = parameter(help="the boolean column: did the event happen then")
    by: str | None = parameter(None, help="the column whose levels are the arms")
    horizon: float | None = horizon_field()
    bins: int = bins_field(12)

    def suppose(self, made: Supposed) -> None:
        ratio = made.expected("hazard-ratio") or 1.0
        made.times(self.time, self.event, self.by, ratio, median=made.expected("median"))

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self.table(columns),)

    def arms(self, columns: Columns) -> list[str]:
        """The levels that divide the records."""
        return [ALL] if self.by is None else list(columns.category(self.by).categories)

    def table(self, columns: Columns) -> Table:
        """Arms, then times, then events."""
        event = boolean_column(columns, self.event, "whether the event happened")
        return timed_table(self.by, time_axis(self.name, columns, self.time, self.horizon, self.bins), event, columns)

    def curves(self, released: Released, columns: Columns) -> Curves:
        table, arms = self.table(columns), len(self.arms(columns))
        # Events and censored by bin, and who is still observed after the last.
        join = np.zeros((2 * self.bins + 1, 2 * self.bins + 2))
        join[: 2 * self.bins, : 2 * self.bins] = np.eye(2 * self.bins)
        join[-1, 2 * self.bins :] = 1.0
        # Levels of the event are no and yes.
        cells = cells_by_arm(table, arms, (1, 0))
        counts = released.mean(table) * released.weight
        every = np.kron(np.eye(arms), join)
        noise = every @ released.covariance(table)[np.ix_(cells.ravel(), cells.ravel())] @ every.T * released.weight**2
        times, size = np.array(table.axes[-2].edges[1:]), len(join)
        each = []
        for arm in range(arms):
            own, block = join @ counts[cells[arm]], slice(arm * size, (arm + 1) * size)
            each.append(Curve(times, own[: self.bins], own[self.bins : -1], float(own[-1]), noise[block, block]))
        return Curves(each, noise)


def timed_table(by: str | None, time: Axis, event: Column, columns: Columns) -> Table:
    """Arms, where there are any, then times, then what ended them."""
    return Table((*(() if by is None else (Axis(columns.category(by)),)), time, Axis(event)))


def cells_by_arm(table: Table, arms: int, causes: tuple[int, ...]) -> NDArray[np.int64]:
    """The cells of each arm, (arms, (bins + 1) len(causes)): for each cause all bins, then for each cause what is after the last.

    ``causes`` are places of levels of the last axis; what is missing is left out.
    """
    cells = np.arange(table.size).reshape(table.shape)
    by_arm = cells[:arms] if len(table.axes) == 3 else cells[None]
    bins = slice(1, table.shape[-2] - 2)
    within = [by_arm[:, bins, cause] for cause in causes]
    after = by_arm[:, table.shape[-2] - 2, :][:, list(causes)]
    return np.hstack([*within, after])
