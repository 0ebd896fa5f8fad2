"""A joint distribution of many columns from noisy tables of pairs: a tree of pairs, fitted and drawn from.

Public post-processing of released tables, without a charge: each number here follows from them. Tables are parts of 1. The tree
is a maximum spanning tree over the mutual information of released pairs (Chow and Liu, IEEE Trans. Inf. Theory 14, 1968).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.randomness.stream import BitStream, Seed
from quietmean.statistics.rows_to_tables import brought_to

Pair = tuple[int, int]

# Rounds of the fit of a table, and the distance of its margins that is rounding.
_ROUNDS, _NEAR = 2000, 1e-9
# What a cell without records has, of the product of its margins: so little is never drawn, and every row has a sum.
_FLOOR = 1e-12


@dataclass(frozen=True)
class NoisyTable:
    """A released table of parts, of one or two columns, and the standard deviation of the noise in a cell."""

    parts: Array
    error: float = 0.0


@dataclass(frozen=True, eq=False)
class PairTree:
    """A distribution of columns: those in ``order``, each after its parent, which is None where it depends on no other.

    ``alone``: the parts of the cells of each column. ``joint``: of each column and its parent, (parent's cells, own cells).
    ``others``: tables of pairs that are no edges and tell more than noise, to which drawn rows are brought.
    """

    order: tuple[int, ...]
    parents: Mapping[int, int | None]
    alone: tuple[Array, ...]
    joint: Mapping[int, Array]
    others: Mapping[Pair, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, alone: Sequence[NoisyTable], pairs: Mapping[Pair, NoisyTable]) -> PairTree:
        """The nearest tree to released tables of all columns and of some pairs, each (first's cells, second's cells)."""
        singles = tuple(nearest_parts(table.parts) for table in alone)
        fitted = {pair: with_margins(table.parts, singles[pair[0]], singles[pair[1]]) for pair, table in pairs.items()}
        weights = {pair: _information(fitted[pair], table) for pair, table in pairs.items()}
        order, parents = _spanning(len(singles), weights)
        joint = {}
        for child, parent in parents.items():
            if parent is not None:
                joint[child] = fitted[parent, child] if (parent, child) in fitted else fitted[child, parent].T
        tree = cls(order, parents, singles, joint)
        others = {pair: table for pair, table in fitted.items() if weights[pair] > 0 and pair not in tree.edges}
        return replace(tree, others=others)

    @property
    def edges(self) -> set[Pair]:
        """The pairs of the tree, the first column first."""
        return {(min(child, parent), max(child, parent)) for child, parent in self.parents.items() if parent is not None}

    @property
    def kept(self) -> set[Pair]:
        """The pairs that drawn rows have: of the tree, and the others."""
        return self.edges | set(self.others)

    def draw(self, rows: int, seed: Seed) -> Ints:
        """The cells of so many rows, (rows, columns); each row has exactly the tree's distribution, where it has no others.

        Rows are stratified: of those with one cell of the parent, each cell of the child gets its part, but for less than one
        row. Which of them get it is independent of all other columns.
        """
        cells = np.zeros((rows, len(self.alone)), dtype=np.int64)
        for column in self.order:
            stream, parent = BitStream(seed.derive("column", column)), self.parents[column]
            if parent is None:
                cells[:, column] = _stratified(self.alone[column], rows, stream)
                continue
            for level, parts in enumerate(self.joint[column]):
                here = np.flatnonzero(cells[:, parent] == level)
                cells[here, column] = _stratified(parts, len(here), stream)
        joint = {(parent, child): self.joint[child] for child, parent in self.parents.items() if parent is not None}
        return brought_to(cells, joint | dict(self.others), seed) if self.others else cells


def _stratified(parts: Array, rows: int, stream: BitStream) -> Ints:
    """Cells of so many rows, in random order, each with the chance of its part: no cell is off by a row or more."""
    if not rows:
        return np.zeros(0, dtype=np.int64)
    ends = np.cumsum(parts)
    places = (np.arange(rows) + stream.uniform(1)[0]) / rows * ends[-1]
    drawn = np.minimum(np.searchsorted(ends, places, side="right"), np.flatnonzero(parts)[-1])
    return np.asarray(drawn[stream.permutation(rows)], dtype=np.int64)


def nearest_parts(parts: Array) -> Array:
    """The nearest parts that are not negative and add up to 1, by least squares."""
    falling = np.sort(parts, axis=None)[::-1]
    over = (np.cumsum(falling) - 1) / np.arange(1, falling.size + 1)
    return np.asarray(np.maximum(parts - over[np.flatnonzero(falling > over)[-1]], 0.0))


def with_margins(table: Array, rows: Array, columns: Array) -> Array:
    """The nearest table that is not negative and has these margins: Dykstra's projections, then proportional fitting.

    Margins hold but for rounding. Where no record is, next to nothing is left.
    """
    fitted, taken = np.asarray(table, dtype=np.float64), np.zeros_like(table)
    for _ in range(_ROUNDS):
        off_rows, off_columns = rows - fitted.sum(axis=1), columns - fitted.sum(axis=0)
        if max(np.abs(off_rows).max(), np.abs(off_columns).max()) < _NEAR and fitted.min() >= 0:
            break
        right = fitted + off_rows[:, None] / len(columns) + off_columns / len(rows) - off_rows.sum() / table.size
        fitted = np.maximum(right + taken, 0.0)
        taken = right + taken - fitted
    fitted = np.maximum(fitted, _FLOOR * np.outer(rows, columns))
    for _ in range(_ROUNDS):
        fitted = fitted * _ratio(rows, fitted.sum(axis=1))[:, None]
        fitted = fitted * _ratio(columns, fitted.sum(axis=0))
        if np.abs(fitted.sum(axis=1) - rows).max() < _NEAR:
            break
    return np.asarray(fitted)


def _ratio(wanted: Array, sums: Array) -> Array:
    return np.divide(wanted, sums, out=np.zeros_like(sums), where=sums > 0)


def _information(fitted: Array, released: NoisyTable) -> float:
    """The mutual information of a fitted table in nats, without about what noise adds; 0 or less where it may be noise alone."""
    expected = np.outer(fitted.sum(axis=1), fitted.sum(axis=0))
    own = fitted > 0
    information = float((fitted[own] * np.log(fitted[own] / expected[own])).sum())
    variance = released.error**2
    return information - float((variance / np.maximum(expected, released.error)).sum() / 2) if variance else information


def _spanning(columns: int, weights: Mapping[Pair, float]) -> tuple[tuple[int, ...], dict[int, int | None]]:
    """The maximum spanning forest of edges with a weight above 0: columns, each after its parent, and the parents."""
    together = list(range(columns))
    beside: dict[int, list[int]] = {column: [] for column in range(columns)}
    # Equal weights in the order of their columns: everybody has the same tree.
    for first, second in sorted(weights, key=lambda pair: (-weights[pair], pair)):
        if weights[first, second] > 0 and together[first] != together[second]:
            beside[first].append(second)
            beside[second].append(first)
            old, new = together[second], together[first]
            together = [new if each == old else each for each in together]
    parents: dict[int, int | None] = {}
    for root in range(columns):
        if root not in parents:
            parents.update(_below(root, beside))
    return tuple(parents), parents


def _below(root: int, beside: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, int | None]]:
    """The columns of one tree, each after its parent, with that."""
    waiting: list[tuple[int, int | None]] = [(root, None)]
    while waiting:
        column, parent = waiting.pop(0)
        yield column, parent
        waiting += [(other, column) for other in sorted(beside[column]) if other != parent]
