"""Where the values of a column lie, when nobody knows its bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.lazy import special
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimate import ASK_FOR_MORE, NOT_IDENTIFIED, Estimate, Flag, least_count
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators
from quietmean.statistics.features.block import LEAST_PRESENT
from quietmean.statistics.long_tails import FittedTails, cut_points
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records
from quietmean.statistics.tails import Z

# Between which powers of two a column is cut of which nothing is known.
_LEAST_POWER, _MOST_POWER = -40, 60
# Cells between two bounds that are known to be too wide, coarse and fine.
_COARSE, _FINE = 32, 1024
# Before tails are fitted, bounds leave out this part of the records on either side, or a deviation of the noise if that is more.
# Further out cells together stand out from so many on.
_PART, _DEVIATIONS = 0.005, 3.0
# Bounds are for a mean in a study with nine times the look's mu^2: its noise per width, in deviations of one cell here.
_OF_MEAN = 1 / 6
# This part of the values is a tail, where it has so many deviations. Bounds may go so many coarse cells beyond it.
_TAIL, _DEVIATIONS_OF_TAIL, _BEYOND = 0.4, 4.0, 2
# Bounds of the least error are those for the median of the losses that may be. The noise may have this part of its square more,
# until no more than this part of a deviation is lost with nine of ten tails.
_MIDDLE, _NEARLY_ALL, _ROOM, _ENOUGH = 0.5, 0.9, 0.2, 0.15
# Where more may be lost still, and makes the error of the mean so many times as large, it is said.
_WORSE = 1.1
# The part of the values that is a deviation above the middle, and how much of one lies between that and the tail.
_ONE_DEVIATION, _OF_DEVIATION = 0.16, 0.75
# So many edges of a side are tried.
_TRIED = 80
# The chance that any empty cell of a look stands out: so small that one in a hundred of a hundred columns has none. And how many
# cells are looked at together beyond those that do.
_BY_CHANCE, _TOGETHER = 1e-4, (1, 2, 4, 8)
_DIGITS = 3
LOW, HIGH, OUTSIDE, MISSING_PART = "lower-bound", "upper-bound", "part-outside", "missing"
# The flag of bounds beyond which values may lie that move a mean.
CUT = "cut"
# Above this part that may lie outside it is said; and a bound so near to 0, in widths, is 0.
_CUT, _NEAR_ZERO = 0.05, 0.05


def _cells_of(power: int) -> int:
    """Into how many cells of equal width the numbers from this power of two to the next are cut: finest where years are."""
    return 64 if 8 <= power < 12 else 32 if -8 <= power < 20 else 8 if power >= 20 else 2


def _edges(column: Column) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Coarse and fine edges; every coarse one is among the fine ones."""
    low, high = column.low, column.high
    if not column.may_be_any:
        fine = np.linspace(low, high, _FINE + 1)
        return tuple(fine[:: _FINE // _COARSE].tolist()), tuple(fine.tolist())
    coarse = [2.0**power for power in range(_LEAST_POWER, _MOST_POWER)]
    fine = np.concatenate([2.0**power * (1 + np.arange(n := _cells_of(power)) / n) for power in range(_LEAST_POWER, _MOST_POWER)])
    return _both_signs(coarse, high), _both_signs(fine.tolist(), high)


def _both_signs(positive: Sequence[float], most: float) -> tuple[float, ...]:
    inside = [edge for edge in positive if edge < most]
    return (-most, *(-edge for edge in reversed(inside)), *inside, most)


@cache
def _tables_of(column: Column) -> tuple[CellIndicators, CellIndicators]:
    """The two tables that are released, coarse and fine."""
    coarse, fine = (CellIndicators((Axis(column, edges),)) for edges in _edges(column))
    return coarse, fine


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FirstLook(Statistic):
    """Bounds for a column that has none: between them lie all values but a small part, as far as the noise shows.

    A column that no question gives a domain may be any number. Two tables are released: of signed powers of two, and of finer
    cells in each; of a column between bounds that are known to be too wide, of 32 and 1,024 cells. One record is in one cell of
    each, so that cells cost no noise. The bounds are edges. First those beyond which 0.5 % of the records lie at most on either
    side, or what a deviation of the noise cannot tell from that. Then they move outwards to where noise and what is lost beyond
    them make the least error of a mean, with the tails that the cells allow (:mod:`~quietmean.statistics.long_tails`). Where
    sampling hides it they go further: until hardly anything is lost with nine of ten tails, and of what noise hides. They go two
    coarse cells beyond values that stand out at most, or to 0 where no value is seen beyond. Where no cell stands out nothing is
    known.
    """

    name = "first-look"
    summary = "bounds for a column that has none yet"
    by_place = ("column",)

    column: str = parameter(help="the column")

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return self._tables(columns)

    def _tables(self, columns: Columns) -> tuple[CellIndicators, CellIndicators]:
        return _tables_of(columns.number(self.column))

    def days_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return (LOW, HIGH) if column.name == self.column else ()

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column = columns.number(self.column)
        look = _Look(released, *self._tables(columns))
        span = look.span()
        if span is None:
            text = f"noise hides where the values of {column.name} lie. {ASK_FOR_MORE}"
            terms = (LOW, HIGH, OUTSIDE)
            limits = ((column.low, column.high), (column.low, column.high), (0.0, 1.0))
            unknown = [Estimate.unknown(term, ends) for term, ends in zip(terms, limits, strict=True)]
            flag = Flag(NOT_IDENTIFIED, text, terms)
            return Estimates.of([*unknown, look.missing()], flags=[flag], noise_only=True, headline=(OUTSIDE,))
        lows, highs, reached, worse = span
        outside = look.outside(lows[0], highs[0])
        left_out = Estimate.normal(OUTSIDE, *look.part(look.fine, outside), 0.0, (0.0, 1.0))
        flags = []
        most = Estimate.normal(OUTSIDE, *look.part(look.fine, outside & reached), 0.0, (0.0, 1.0)).of_noise[1]
        if worse or most > _CUT:
            text = f"up to {most:.0%} of the values may lie outside of what is proposed"
            if most <= _CUT:
                text = (
                    f"values that noise hides may lie outside, and make the error of a mean more than {_WORSE:g} times as large"
                )
            flags.append(Flag(CUT, f"{text}. {ASK_FOR_MORE}", (LOW, HIGH)))
        # What costs next to nothing is more useful as a bound: 0.
        near = _NEAR_ZERO * (highs[0] - lows[0])
        lows, highs = [0.0 if 0 < low <= near else low for low in lows], [0.0 if -near <= high < 0 else high for high in highs]
        ends = [_proposed(LOW, lows, column), _proposed(HIGH, highs, column)]
        estimates = Estimates.of([*ends, left_out, look.missing()], flags=flags, noise_only=True, headline=(OUTSIDE,))
        return replace(estimates, reason="what is proposed is of these records, not of a population")

    def within(self, proposed: Estimates) -> FirstLook:
        """The look that says which part lies outside of bounds that were ``proposed``, and proposes none."""
        low, high = (float(proposed.value[proposed.terms.index(term)]) for term in (LOW, HIGH))
        return _PartOutside(**{field.name: getattr(self, field.name) for field in fields(self)}, bounds=(low, high))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _PartOutside(FirstLook):
    bounds: tuple[float, float]

    def decode(self, released: Released, columns: Columns) -> Estimates:
        """The part outside, to the cell in which each bound is."""
        look, unknown = _Look(released, *self._tables(columns)), [Estimate.unknown(term) for term in (LOW, HIGH)]
        outside = Estimate.unknown(OUTSIDE, (0.0, 1.0))
        if not any(map(math.isnan, self.bounds)):
            outside = Estimate.normal(OUTSIDE, *look.part(look.fine, look.outside(*self.bounds)), 0.0, (0.0, 1.0))
        return Estimates.of([*unknown, outside, look.missing()], noise_only=True, headline=(OUTSIDE,))


def _proposed(term: str, edges: Sequence[float], column: Column) -> Estimate:
    """An edge as a bound that people write, with three digits, outwards; and between which noise may have moved it."""
    value, *ends = (_outwards(edge, column, up=term == HIGH) for edge in edges)
    range_ = min(value, *ends), max(value, *ends)
    error = (range_[1] - range_[0]) / (2 * Z)
    return Estimate(term, value, error, math.nan, column.low, column.high, range_, (math.nan, math.nan))


def _outwards(edge: float, column: Column, *, up: bool) -> float:
    if abs(edge) <= 2.0**_LEAST_POWER:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(edge))) + 1 - _DIGITS)
    if column.since or column.whole:
        unit = 1.0
    steps = edge / unit
    rounded = (math.ceil(steps - 1e-9) if up else math.floor(steps + 1e-9)) * unit
    return float(min(max(float(f"{rounded:.12g}"), column.low), column.high))


def stands_out(cells: int) -> float:
    """How many deviations of the noise a cell has at least that stands out of so many: one in 10,000 looks has an empty one."""
    return float(special.ndtri(1 - _BY_CHANCE / cells))


@dataclass(frozen=True, eq=False)
class _Side:
    """Fine ``edges`` outwards, negated where they fall, the ``tails``, their begin ``near`` the middle, and a deviation's reach.

    ``end``: no value lies beyond it.
    """

    edges: Array
    tails: FittedTails | None
    near: float
    deviation: float
    end: float

    def candidates(self, edge: float) -> Array:
        """This edge, some farther out, and the end where there is one."""
        farther = self.edges[(self.edges > edge) & (self.edges < self.end)]
        if len(farther) > _TRIED:
            farther = farther[np.unique(np.linspace(0, len(farther) - 1, _TRIED).astype(int))]
        return np.concatenate([[edge], farther, [self.end] if edge < self.end < math.inf else []])

    def lost(self, edges: Array, hidden: float) -> tuple[Array, Array]:
        """By how much a mean is moved by each edge as a bound: as often less as more, and at most, as nine of ten tails tell.

        To the latter the part ``hidden`` is added: it may lie beyond the first edge, as far out as that is from the middle.
        """
        middle, most = np.zeros((2, len(edges))) if self.tails is None else self.tails.lost(edges, (_MIDDLE, _NEARLY_ALL))
        reach = max(float(edges[0]) - self.near, math.ulp(1.0) * max(abs(float(edges[0])), 2.0**_LEAST_POWER))
        most = most + hidden * reach * np.exp((edges[0] - edges) / reach)
        # One side that cannot move leaves the other as wide as before: its tails are known as badly.
        middle = np.where((edges < self.end) | (edges == edges[0]), middle, 0.0)
        return middle, np.where(edges < self.end, most, 0.0)


class _Look:
    """What is known of the cells of one column."""

    def __init__(self, released: Released, coarse: CellIndicators, fine: CellIndicators) -> None:
        self._released, self.coarse, self.fine = released, coarse, fine
        self._coarse_edges, self._fine_edges = (np.array(table.axes[0].edges) for table in (coarse, fine))
        # The part of all that has a value, of which all others are parts.
        self._present = released.weighted(coarse, coarse.complete)
        self._records = max(released.weight * self._present[0], 1.0)
        self._both_signs, self._smallest = coarse.axes[0].column.may_be_any, 2.0**_LEAST_POWER

    def missing(self) -> Estimate:
        """The part of the records without a value; not known where nobody knows how many there are."""
        part = self._released.part
        if math.isnan(part):
            return Estimate.unknown(MISSING_PART, (0.0, 1.0))
        value, error = self._released.weighted(self.coarse, 1.0 - self.coarse.complete)
        return Estimate.normal(MISSING_PART, value / part, (error / part) ** 2, 0.0, (0.0, 1.0))

    def parts(self, table: CellIndicators, cells: Array) -> tuple[Array, Array]:
        """The parts of the values in sums of ``cells``, (sums, size), and the deviations of their noise, (sums,)."""
        used = np.flatnonzero(cells.any(axis=0))
        weights, released, whole = cells[:, used], self._released, self._present[0]
        noise, _ = released.read.reached(weights, released.places[table][used])
        return weights @ released.mean(table)[used] / whole, released.noise * np.linalg.norm(noise, axis=1) / whole

    def part(self, table: CellIndicators, cells: Mask) -> tuple[float, float]:
        """The part of the values in these cells, and the variance of its noise."""
        value, error = self._released.weighted(table, cells.astype(np.float64))
        whole = self._present[0]
        return value / whole, (error / whole) ** 2

    def span(self) -> tuple[list[float], list[float], Mask, bool] | None:
        """The two edges that are proposed, each with where noise may have moved it, and which fine cells values may reach.

        Noise in all others together would say of any bounds that many values lie outside. Then whether tails may lie outside
        that make the error of a mean more than 1.1 times as large. None where no cell stands out.
        """
        # The last cell is of what is missing. Cell k is before edge k; the first and the last of these have no end.
        (present, error), weight = self._present, self._released.weight
        if present * weight <= least_count(LEAST_PRESENT, error * weight, self._released.least):
            return None
        parts, errors = self.parts(self.coarse, np.eye(self.coarse.size)[:-1])
        weight *= present
        least = least_count(stands_out(len(parts)), 1.0, 0.0)
        found = np.flatnonzero(parts * weight > np.maximum(least * errors * weight, self._released.least))
        if not len(found):
            return None
        first, last = self._farther(int(found[0]), int(found[-1]))
        edges = self._coarse_edges
        if first >= len(edges) or last == 0:
            # All are beyond bounds that were thought to be too wide.
            return None
        low = [float(edges[0])] * 3 if first == 0 else self._refined(first, below=True)
        high = [float(edges[-1])] * 3 if last >= len(edges) else self._refined(last, below=False)
        worse = False
        if low[0] >= high[0]:
            # Noise hides where in their cells all are.
            low, high = [float(edges[max(first - 1, 0)])] * 3, [float(edges[min(last, len(edges) - 1)])] * 3
        else:
            sides = (
                self._side(first, last, float(np.median(errors)), below=True),
                self._side(first, last, float(np.median(errors))),
            )
            low[0], high[0], worse = self._with_tails(low[0], high[0], sides, float(np.median(errors)))
        reached = edges[[max(first - 1 - _BEYOND, 0), min(last + _BEYOND, len(edges) - 1)]]
        near = ~self.outside(*reached.tolist())
        # Beyond the last edges are two more cells.
        near[0], near[-2] = first - 1 <= _BEYOND, last + _BEYOND >= len(edges) - 1
        return low, high, near, worse

    def outside(self, low: float, high: float) -> Mask:
        """Which fine cells lie outside of these bounds; of one in which a bound is, none."""
        outside = np.zeros(self.fine.size, dtype=np.bool_)
        outside[: int(np.searchsorted(self._fine_edges, low, side="right"))] = True
        outside[int(np.searchsorted(self._fine_edges, high)) + 1 : -1] = True
        return outside

    def _side(self, first: int, last: int, error: float, *, below: bool = False) -> _Side:
        """The values of one tail, upwards, or downwards and then negated."""
        fine, ends = self._fine_edges, np.searchsorted(self._fine_edges, self._coarse_edges)
        least, most, beyond = max(first - 1, 0), min(last, len(ends) - 1), _BEYOND
        if below:
            places = np.arange(ends[max(least - beyond, 0)], ends[most] + 1)[::-1]
            # Where no value below 0 is seen, there are none.
            negative = self._both_signs and self._coarse_edges[least] >= -self._smallest
            places = places[fine[places] >= -self._smallest] if negative else places
            edges, end = -fine[places], 0.0 if negative else math.inf if self._both_signs else -float(fine[0])
        else:
            places = np.arange(ends[least], ends[min(most + beyond, len(ends) - 1)] + 1)
            positive = self._both_signs and self._coarse_edges[most] <= self._smallest
            places = places[fine[places] <= self._smallest] if positive else places
            edges, end = fine[places], 0.0 if positive else math.inf if self._both_signs else float(fine[-1])
        inside = int(np.flatnonzero(places == ends[least if below else most])[0])
        cells = np.maximum(places[:-1], places[1:])
        parts = self._released.mean(self.fine)[cells] / self._present[0]
        outer = np.append(np.cumsum(parts[:inside][::-1])[::-1], 0.0)
        start = int(np.flatnonzero(outer <= _TAIL * max(outer[0], 0.0))[0])
        # Within cells values lie evenly, as far as is known.
        falling = np.minimum.accumulate(outer)[::-1] / max(outer[0], 1 / self._records)
        near, far = np.interp((_TAIL, _ONE_DEVIATION), falling, edges[: inside + 1][::-1])
        side = _Side(edges, None, float(near), float(far - near) / _OF_DEVIATION, end)
        if outer[start] < _DEVIATIONS_OF_TAIL * error or start > len(edges) - 2:
            return side
        middle = int(np.flatnonzero(outer <= outer[start] / 2)[0])
        half = float(max(edges[middle], edges[start + 1]) - edges[start])
        cuts = start + np.array(cut_points(edges[start:], half))
        sums = np.zeros((len(cuts) - 1, self.fine.size))
        for own, (begin, end) in zip(sums, pairwise(cuts.tolist()), strict=True):
            own[cells[begin:end]] = 1.0
        tails = FittedTails.fitted(edges[cuts], *self.parts(self.fine, sums), float(outer[start]), half, self._records)
        return replace(side, tails=tails)

    def _with_tails(self, low: float, high: float, sides: tuple[_Side, _Side], error: float) -> tuple[float, float, bool]:
        """The edges at or beyond these for a mean that little is lost of, and whether more may lie beyond them."""
        below, above = (side.candidates(edge) for side, edge in zip(sides, (-low, high), strict=True))
        # Nobody knows which side loses more: both count together, although they cancel in part.
        middle, most = (
            first[:, None] + last for first, last in zip(sides[0].lost(below, error), sides[1].lost(above, error), strict=True)
        )
        noise = (_OF_MEAN * error * (below[:, None] + above)) ** 2
        least, sampling = noise.ravel()[np.argmin(middle**2 + noise)], self._variance(low, high, sides) / self._records
        lost = most / np.sqrt(noise + sampling)
        room = noise <= least + _ROOM * (least + sampling)
        enough = room & (lost <= _ENOUGH)
        place = np.argmin(np.where(enough, noise, np.inf) if enough.any() else np.where(room, most, np.inf))
        at, to = np.unravel_index(int(place), noise.shape)
        return -float(below[at]), float(above[to]), bool(1 + lost[at, to] ** 2 > _WORSE**2)

    def _variance(self, low: float, high: float, sides: tuple[_Side, _Side]) -> float:
        """That of the values between two edges, from fine cells, but for where tails are too short for what noise makes of it."""
        inside = np.flatnonzero((self._fine_edges[:-1] >= low) & (self._fine_edges[1:] <= high))
        parts = self._released.mean(self.fine)[inside + 1] / self._present[0]
        middles = (self._fine_edges[inside] + self._fine_edges[inside + 1]) / 2 - (low + high) / 2
        mean = float(parts @ middles)
        told = float(parts @ (middles - mean) ** 2)
        return min(max(told, sum(side.deviation**2 for side in sides) / 2), (high - low) ** 2 / 4)

    def _farther(self, first: int, last: int) -> tuple[int, int]:
        """Cells further out that stand out only together with those between."""
        cells, places = self.coarse.size - 1, np.arange(self.coarse.size)
        for _ in range(cells):
            before = np.array([(places < first) & (places >= first - width) for width in _TOGETHER])
            after = np.array([(places > last) & (places <= min(last + width, cells - 1)) for width in _TOGETHER])
            moved = []
            for sums in (before, after):
                parts, errors = self.parts(self.coarse, sums.astype(np.float64))
                moved.append(bool((parts > np.maximum(_PART, _DEVIATIONS * errors)).any()))
            first, last = max(first - moved[0], 0), min(last + moved[1], cells - 1)
            if not any(moved):
                break
        return first, last

    def _refined(self, cell: int, *, below: bool) -> list[float]:
        """The innermost fine edge in a coarse cell beyond which hardly anybody is; and if there were more, or fewer."""
        fine = self._fine_edges
        first, last = (int(place) for place in np.searchsorted(fine, self._coarse_edges[[cell - 1, cell]]))
        inner = np.arange(first + 1, last)
        if not len(inner):
            return [float(fine[first if below else last])] * 3
        places = np.arange(self.fine.size)
        # From the coarse edge to each: cell k + 1 begins at edge k.
        sums = [(places > first) & (places <= edge) if below else (places > edge) & (places <= last) for edge in inner]
        parts, errors = self.parts(self.fine, np.array(sums, dtype=np.float64))
        # Where noise may hide more than is cut, the coarse edge is all that is known.
        told, found = errors <= _CUT, []
        for moved in (0.0, Z, -Z):
            empty = inner[told & (parts + moved * errors <= np.maximum(_PART, errors))]
            found.append(float(fine[(empty.max() if below else empty.min()) if len(empty) else (first if below else last)]))
        return found
