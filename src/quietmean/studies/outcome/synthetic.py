"""Made-up rows that are like the records of a study: from the tables that it released, and from nothing else.

It costs no privacy: all here follows from a receipt, and everybody makes the same rows of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.codec import canonical_json
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of, fixed, indented, printable
from quietmean.randomness.stream import BitStream, Seed
from quietmean.statistics.features import Axis
from quietmean.statistics.features.table import ABOVE, BELOW
from quietmean.statistics.kinds.synthetic_table import SyntheticTable, axis_of
from quietmean.statistics.tails import Z
from quietmean.statistics.trees import NoisyTable, Pair, PairTree
from quietmean.studies.outcome.mock import MOST_ROWS, MadeUpRows, cell_of, require_rows

NOTE = (
    "Synthetic: drawn from tables with noise, of the records of a study. No row is of a person, though a row may equal a real "
    "person's by chance."
)
NOT_KNOWN = "Means, slopes, three columns together, and what no table counts. No interval of these rows is right."
NOT_FOR = "Findings, rare groups, or anything about one person. Write programs with it, then ask in a study."
# A number has so many digits that its bin holds a hundred.
_DIGITS = 2
_LABEL = 10


@dataclass(frozen=True)
class TableMade:
    """How well the rows have a released table: ``kept``, the rows were made to have it.

    ``distance``: total variation between rows and released table, from 0 to 1; ``noise``: about what noise alone gives, in the
    mean. ``inside``: the part of the cells that the rows have within the 95 % interval of the noise. ``worst``: the cell that is
    farthest off, in records, as the rows have it, and as it was released, 0 at least, with half of its interval.
    """

    columns: tuple[str, ...]
    kept: bool
    distance: float
    noise: float
    cells: int
    inside: float
    worst: tuple[str, float, float, float]

    @property
    def name(self) -> str:
        return " with ".join(self.columns)

    @property
    def off(self) -> float:
        """How far the worst cell is off, in records."""
        return abs(self.worst[1] - self.worst[2])

    @property
    def worst_text(self) -> str:
        cell, made, released, half = self.worst
        ends = (max(released - half, 0.0), released + half)
        low, high = (fixed(end, 0) for end in ends)
        return f"{cell}: {fixed(made, 0)}, where {low if low == high else f'{low} to {high}'} were released"


@dataclass(frozen=True, eq=False)
class Source:
    """The tables of a ``synthetic-table`` in a receipt: counts by columns and ``pairs``, noise in a cell, and all ``records``."""

    name: str
    axes: tuple[Axis, ...]
    pairs: tuple[Pair, ...]
    counts: tuple[Array, ...]
    noise: tuple[float, ...]
    quantile: float
    seed: Seed

    @classmethod
    def of(cls, receipt: Mapping[str, Any]) -> Self:
        """The first one of a receipt. Raises :class:`InputError` where it has none, or nobody had a record."""
        asked = [each for each in receipt.get("result", {}).get("statistics", ()) if each.get("kind") == SyntheticTable.name]
        if not asked:
            raise InputError(
                f"the receipt has no {SyntheticTable.name}, of which rows are made. Ask for {SyntheticTable.name}(COLUMNS) first."
            )
        summary = asked[0].get("summary", {})
        if "released" not in summary:
            raise InputError("no party had a record of the synthetic table. Nothing can be made of it.")
        axes, pairs = tuple(map(axis_of, summary["columns"])), tuple((first, second) for first, second in summary["pairs"])
        shapes = [(len(axis.labels),) for axis in axes] + [(len(axes[i].labels), len(axes[j].labels)) for i, j in pairs]
        counts = [
            np.array(cells, dtype=np.float64).reshape(shape) for cells, shape in zip(summary["released"], shapes, strict=True)
        ]
        quantile = float(asked[0].get("noise_law", {}).get("quantile", Z))
        seed = Seed.public("synthetic rows", canonical_json(summary))
        return cls(str(asked[0]["name"]), axes, pairs, tuple(counts), tuple(map(float, summary["noise"])), quantile, seed)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(axis.column.name for axis in self.axes)

    @cached_property
    def records(self) -> float:
        """How many records there are: public, or with noise, and then 1 at least."""
        return max(float(self.counts[0].sum()), 1.0)

    @cached_property
    def released(self) -> tuple[NoisyTable, ...]:
        """All tables, as parts of the records."""
        return tuple(
            NoisyTable(counts / self.records, noise / self.records) for counts, noise in zip(self.counts, self.noise, strict=True)
        )

    @cached_property
    def tree(self) -> PairTree:
        count = len(self.axes)
        return PairTree.of(self.released[:count], dict(zip(self.pairs, self.released[count:], strict=True)))

    def cells_of(self, places: tuple[int, ...]) -> list[str]:
        """The names of the cells of a table."""
        labels = [[f"{self.axes[place].column.name} {label}" for label in self.axes[place].labels] for place in places]
        return labels[0] if len(labels) == 1 else [f"{first}, {second}" for first in labels[0] for second in labels[1]]


class SyntheticRows(MadeUpRows):
    """Made-up rows that have what a study's tables have; ``tables``: how well. Print it to see what it is good for."""

    def __init__(self, source: Source, rows: int, cells: Ints) -> None:
        streams = (BitStream(source.seed.derive("values", place)) for place in range(len(source.axes)))
        drawn = zip(source.axes, cells.T, streams, strict=True)
        super().__init__({axis.column.name: _values(axis, own, stream) for axis, own, stream in drawn}, NOTE)
        self.made, self._source = rows, source
        self.tables = tuple(_compared(source, cells))

    def lines(self) -> list[str]:
        """What these rows are good for, in lines of 80 columns."""
        kept = [table for table in self.tables if table.kept]
        pairs = sum(len(table.columns) > 1 for table in kept)
        cells = sum(table.cells for table in kept)
        inside = sum(table.cells * table.inside for table in kept) / cells
        what = f"{count_of(len(self.heads), 'column')} and {count_of(pairs, 'pair')}"
        good = f"{what}: {math.floor(100 * inside)} % of {cells:,} cells are within the 95 % interval of the noise"
        others = [table for table in self.tables if not table.kept]
        return [
            *indented("Good for", f"{good}.", _LABEL),
            *indented("Worst", f"{max(kept, key=lambda table: table.off).worst_text}.", _LABEL),
            *(indented("Checked", _held_out(others), _LABEL)),
            *indented("Not known", NOT_KNOWN, _LABEL),
            *indented("Not for", NOT_FOR, _LABEL),
            *indented("Note", NOTE, _LABEL),
        ]

    def __repr__(self) -> str:
        return "\n".join([f"{count_of(self.made, 'synthetic row')} of {', '.join(map(printable, self.heads))}", *self.lines()])

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.made, "columns": list(self.heads), "about": self.lines(), "note": NOTE}


def _held_out(others: Sequence[TableMade]) -> str:
    """What pairs say that were released, and that the rows were not made to have."""
    if not others:
        return "No pair beside these was released. How columns go together otherwise is not known."
    worst = max(others, key=lambda table: table.distance - table.noise)
    distance, noise = (sum(getattr(table, name) for table in others) / len(others) for name in ("distance", "noise"))
    return (
        f"{count_of(len(others), 'other pair')}: {_percent(distance)} of the rows are in a wrong cell, by the noise alone "
        f"{_percent(noise)}. The worst is {worst.name}: {_percent(worst.distance)} ({_percent(worst.noise)})."
    )


def _percent(part: float) -> str:
    return f"{fixed(100 * part, 1)} %"


def synthetic_rows(receipt: Mapping[str, Any], rows: int | None = None) -> SyntheticRows:
    """Make up rows of a receipt, by default as many as were counted, or as the released count says. The same for everybody.

    Raises :class:`InputError` for a receipt without such a table, and for an impossible number of rows.
    """
    source = Source.of(receipt)
    count = min(round(source.records), MOST_ROWS) if rows is None else rows
    require_rows(count)
    return SyntheticRows(source, count, source.tree.draw(count, source.seed))


def _values(axis: Axis, cells: Ints, stream: BitStream) -> list[Any]:
    """What a file has for cells: a level, a number drawn evenly in its bin, the nearest bound for what is beyond the bins."""
    column, missing = axis.column, len(axis.labels) - 1
    if not column.numeric:
        return [None if cell == missing else column.categories[cell] for cell in cells.tolist()]
    exact = column.whole or bool(column.since)
    narrowest = min(b - a for a, b in zip(axis.edges, axis.edges[1:], strict=False))
    digits = 0 if exact else max(_DIGITS - math.floor(math.log10(narrowest)), 0)
    ends = {BELOW: column.low, ABOVE: column.high}
    values: list[Any] = []
    for cell, chance in zip(cells.tolist(), stream.uniform(len(cells)).tolist(), strict=True):
        label = axis.labels[cell]
        if cell == missing:
            values.append(None)
            continue
        value = ends[label] if cell in (0, missing - 1) else _in_bin(axis, cell, digits, chance)
        values.append(cell_of(column, value) if exact else value)
    return values


def _in_bin(axis: Axis, cell: int, digits: int, chance: float) -> float:
    numbers = axis.numbers_in(cell, digits)
    if not numbers:
        low, high = axis.edges[cell - 1], axis.edges[cell]
        return low + chance * (high - low)
    return round(numbers[math.floor(chance * len(numbers))] / 10.0**digits, digits)


def _compared(source: Source, cells: Ints) -> Iterator[TableMade]:
    """How well rows, as cells (rows, columns), have each released table."""
    places = [*((place,) for place in range(len(source.axes))), *source.pairs]
    for own, released, noise in zip(places, source.released, source.noise, strict=True):
        at = np.ravel_multi_index(tuple(cells[:, place] for place in own), released.parts.shape)
        made = np.bincount(at, minlength=released.parts.size) / len(cells)
        off, counts = made - released.parts.ravel(), np.maximum(released.parts.ravel(), 0.0) * source.records
        # What was released may be below 0, and rows cannot. Numbers of rows are whole: half a row is rounding.
        half = source.quantile * noise + 0.5 * source.records / len(cells)
        apart = np.abs(made * source.records - counts)
        worst = int(apart.argmax())
        yield TableMade(
            tuple(source.columns[place] for place in own),
            len(own) == 1 or own in source.tree.kept,
            float(np.abs(off).sum() / 2),
            released.error * math.sqrt(2 / math.pi) * off.size / 2,
            off.size,
            float((apart <= half).mean()),
            (source.cells_of(own)[worst], float(made[worst] * source.records), float(counts[worst]), source.quantile * noise),
        )
