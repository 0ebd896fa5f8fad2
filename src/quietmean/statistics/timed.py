"""Statistics of the time to an event: equal fields ask for the same table, so that several of them cost one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.comparison import Curves
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.features.table import edges_of
from quietmean.statistics.fields import bins_field, edges_field
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Records, Released, Statistic, raw
from quietmean.statistics.survival_curve import Curve, TimeBins

USUAL_BINS = 12

# The only arm, and the only stratum, of records that no column divides.
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Observed(Axis):
    """Bins of one of the times ``entry`` and ``end`` of a record that is under observation between them, from the first edge on.

    Missing are also records that were never at risk, as they enter at their end or later, or end before the first edge; and those
    that lack a level of ``ended``. An entry up to 0 is before all times. Edges may go beyond the bounds of the entry.
    """

    entry: Column
    end: Column
    ended: Column

    def __post_init__(self) -> None:
        if self.column == self.end:
            super().__post_init__()

    @property
    def demanded(self) -> tuple[str, ...]:
        names = [column.name for column in (self.entry, self.end, self.ended)]
        return (*names, f"\0observed {' '.join(names)} from {self.edges[0]:g}")

    @property
    def cuts(self) -> tuple[float, ...]:
        """None: the bins of two times do not say which is earlier."""
        return ()

    def events(self) -> dict[Hashable, Array]:
        return {}

    def place(self, records: Records) -> Ints:
        entered, ended = (_rounded(column, records[raw(column.name)]) for column in (self.entry, self.end))
        first = self.edges[0]
        observed = np.maximum(entered, first) < ended
        if first == 0:
            observed |= (entered <= 0) & ~np.isnan(ended)
        observed &= ~np.isnan(records[self.ended.name])
        return np.where(observed, super().place(records), len(self.labels) - 1).astype(np.int64)


def _rounded(column: Column, values: Array) -> Array:
    return np.rint(values) if column.whole else values


def time_axis(
    subject: str,
    columns: Columns,
    name: str,
    start: float,
    horizon: float | None,
    bins: int,
    edges: tuple[float, ...] | None,
) -> tuple[Axis, int]:
    """Bins (a, b] of a column from the start to the horizon, and how many edges they have without that of the last time's own
    bin.

    By the given edges, else the column's own, else ``bins`` of them. Times up to a start of 0 count as 0, later ones than the
    horizon as observed after it. Raises :class:`InputError` where the column's bounds do not hold both.
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
    if not start < last:
        raise InputError(f"{subject} starts at {start:g}, but its horizon is {last:g}. Choose an earlier start.")
    cut = time.model_copy(update={"edges": edges_in_use, "whole": time.whole and not edges_in_use})
    rising = edges_of(cut, bins, low=start, high=float(last), closed="right")
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


def start_field() -> float:
    """The field of time zero."""
    start: float = parameter(
        0.0, help="the time from which on events count, of those without one until then", at_least=0, remedy="choose a time >= 0"
    )
    return start


def entry_field() -> str | None:
    """The field of delayed entry."""
    entry: str | None = parameter(
        None, help="the column of times from which on each record was observed: before it was not at risk"
    )
    return entry


class OfTimes(Statistic, ABC):
    """A statistic of a column of times to what ended them, in bins (a, b], for each arm.

    With ``entry``, a record is at risk from its time of entry on, (entry, time], and one that enters at its time or later is left
    out. With ``start``, the answer is about those who had no event until then.
    """

    time: str
    by: str | None
    entry: str | None
    start: float
    horizon: float | None
    bins: int
    edges: tuple[float, ...] | None

    @abstractmethod
    def ended(self, columns: Columns) -> Column:
        """The column that says what happened at the time. Raises :class:`InputError` for one that does not."""

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return self.tables(columns)

    def arms(self, columns: Columns) -> list[str]:
        """The levels that divide the records."""
        return [ALL] if self.by is None else list(columns.category(self.by).categories)

    def groups(self, columns: Columns) -> tuple[Axis, ...]:
        """What divides the records: an axis of arms, where there are any."""
        return () if self.by is None else (Axis(columns.category(self.by)),)

    def tables(self, columns: Columns) -> tuple[CellIndicators, ...]:
        """Arms, then times, then what ended them; and with late entries arms, then times of entry."""
        groups, ended, axis = self.groups(columns), self.ended(columns), self.axis(columns)[0]
        if self.entry is None:
            return (CellIndicators((*groups, axis, Axis(ended))),)
        entry, end = self._entry(columns), axis.column
        exits, entries = (Observed(column, axis.edges, axis.closed, entry=entry, end=end, ended=ended) for column in (end, entry))
        return CellIndicators((*groups, exits, Axis(ended))), CellIndicators((*groups, entries))

    def _entry(self, columns: Columns) -> Column:
        """The column of entries. Raises :class:`InputError` for one that is on no common scale with the times."""
        entry, time = columns.number(self.entry or ""), columns.number(self.time)
        if entry.name == time.name:
            raise InputError(f"{self.text} has the column {entry.name!r} twice. Name another one for the entry.")
        if entry.whole != time.whole or entry.since != time.since:
            kind = "dates since one day" if entry.since != time.since else "whole numbers"
            raise InputError(f"columns {entry.name!r} and {time.name!r} are not both {kind}. Declare both alike.")
        if entry.low >= time.high:
            raise InputError(
                f"column {entry.name!r} begins at {entry.low:g}, where {time.name!r} ends. Declare lower bounds of the entry."
            )
        return entry

    def axis(self, columns: Columns) -> tuple[Axis, int]:
        """The bins of times, as :func:`time_axis` has them."""
        return time_axis(self.text, columns, self.time, self.start, self.horizon, self.bins, self.edges)

    def by_arm(self, released: Released, columns: Columns, causes: tuple[int, ...]) -> tuple[TimeBins, Array, Array]:
        """The bins, counts of each arm in the order of :func:`risk_join`, stratum after stratum, (strata arms, cells), and the
        covariance of the noise of them all.

        ``causes``: places of the levels of what ended times, that of being censored last.
        """
        tables, bins = self.tables(columns), TimeBins.of(*self.axis(columns))
        places = released.places[tables[0]][cells_by_arm(tables[0], causes)]
        if self.entry is not None:
            places = np.hstack([places, released.places[tables[1]][_inside(tables[1], 1)[:, :-1]]])
        kept = np.ones(places.shape)
        if self.start > 0:
            # Who left until then is not among those that the answer is about.
            kept[:, [cause * len(bins) for cause in range(len(causes))]] = 0.0
        flat, kept = places.ravel(), kept.ravel() * released.weight
        noise = released.covariance_at(flat, flat) * np.outer(kept, kept)
        return bins, (released.quantities[flat] * kept).reshape(places.shape), noise


def risk_join(bins: int, events: int, *, late: bool) -> Array:
    """The matrix that makes events and censored by bin, and who is observed after the last, (2 bins + 1, cells).

    Cells: each event by bin, censored by bin, for each what is after the last bin; with ``late`` entries, these by bin and after.
    Who enters in a bin is one censored less: at risk later. Who entered up to the first time was there from the beginning.
    """
    left = (events + 1) * (bins + 1)
    join = np.zeros((2 * bins + 1, left + (bins + 1 if late else 0)))
    join[:bins, : events * bins] = np.tile(np.eye(bins), events)
    join[bins:-1, events * bins : (events + 1) * bins] = np.eye(bins)
    join[-1, (events + 1) * bins : left] = 1.0
    if late:
        join[bins + 1 : -1, left + 1 : -1] = -np.eye(bins)[1:, 1:]
        join[-1, -1] = -1.0
    return join


def entered_in(counts: Array, bins: int, events: int) -> Array | None:
    """How many of these counts, (cells,) as :func:`risk_join` has them, entered late by bin; None where nobody can."""
    left = (events + 1) * (bins + 1)
    if len(counts) == left:
        return None
    entered = counts[left:-1].copy()
    entered[0] = 0.0
    return entered


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Timed(OfTimes, ABC):
    """A statistic of a column of times and a boolean one, whether the event happened then or the record was censored."""

    by_place = ("time", "event")
    expects = ("median", "hazard-ratio")

    time: str = parameter(help="the column of times, from 0 on")
    event: str = parameter(help="the boolean column: did the event happen then")
    by: str | None = parameter(None, help="the column whose levels are the arms")
    entry: str | None = entry_field()
    start: float = start_field()
    horizon: float | None = horizon_field()
    bins: int = bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        ratio = scenario.expected("hazard-ratio") or 1.0
        scenario.times(self.time, self.event, self.by, ratio, median=scenario.expected("median"))

    def ended(self, columns: Columns) -> Column:
        return columns.boolean(self.event, "must say whether the event happened")

    def strata_of(self, columns: Columns) -> list[str]:
        """The levels within which arms are compared."""
        return [ALL]

    def curves(self, released: Released, columns: Columns) -> Curves:
        # Levels of the event are no and yes.
        bins, counts, noise = self.by_arm(released, columns, (1, 0))
        arms, join = len(self.arms(columns)), risk_join(len(bins), 1, late=self.entry is not None)
        every = np.kron(np.eye(len(counts)), join)
        noise, size = every @ noise @ every.T, len(join)
        blocks = [slice(place * size, (place + 1) * size) for place in range(len(counts))]
        each = [
            Curve.of_counts(bins, join @ own, noise[block, block], entered_in(own, len(bins), 1))
            for own, block in zip(counts, blocks, strict=True)
        ]
        return Curves([each[start : start + arms] for start in range(0, len(each), arms)], noise)


def _inside(table: CellIndicators, own: int) -> Ints:
    """The cells of the last ``own`` axes in each group that is not missing, (groups, cells along them...)."""
    cells = np.arange(table.size).reshape(table.shape)
    groups = tuple(slice(0, size - 1) for size in table.shape[: len(table.shape) - own])
    by_arm: Ints = cells[groups].reshape(-1, *table.shape[-own:])
    return by_arm


def cells_by_arm(table: CellIndicators, causes: tuple[int, ...]) -> Ints:
    """The cells of each arm, stratum after stratum, (strata arms, (bins + 1) len(causes)): for each cause all bins, that of
    the first time first, then for each cause what is after the last.

    ``causes`` are places of levels of the last axis; what is missing is left out.
    """
    by_arm = _inside(table, 2)
    # What is up to the first edge comes first.
    last = table.shape[-2] - 2
    return np.hstack([*(by_arm[:, :last, cause] for cause in causes), by_arm[:, last, :][:, list(causes)]])
