"""Linear maps from a mean vector to the quantities of all features, kept as blocks and a few rows that couple them.

A feature reads its own coordinates alone, and what several features know alike couples them by one row each. Memory and time
grow with the sum of the features' squared sizes, and not with the square of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from quietmean.core.arrays import Array, Ints

# Numbers of rows that are formed at a time.
_ENTRIES = 1 << 20
# A rank above this part of the rows is kept as one block.
_LOW = 4
# So many products are noted, and so many numbers of those kept that are asked for again.
_GRAMS, _KEPT = 256, 1 << 21
# What is left of this part of a number when another is taken from it is rounding.
_CANCELLED = 1e-12
# Eigenvalues of equalities below this part of the largest belong to redundant ones.
_REDUNDANT = 1e-10


@dataclass(frozen=True, eq=False)
class Block:
    """A matrix (p, c), or of a diagonal one its entries (p,); features that are read alike have one and the same."""

    matrix: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[-1]

    @cached_property
    def _gram(self) -> Array:
        return np.asarray(self.matrix**2 if self.matrix.ndim == 1 else self.matrix @ self.matrix.T)

    def times(self, right: Array, rows: Ints | slice = slice(None)) -> Array:
        """The product with (c,) or (c, n), or some ``rows`` of it."""
        if self.matrix.ndim == 1:
            return np.asarray((right[rows].T * self.matrix[rows]).T)
        return np.asarray(self.matrix[rows] @ right)

    def combined(self, weights: Array) -> Array:
        """Weighted sums of rows, (..., c), by weights (..., p)."""
        return np.asarray(weights * self.matrix if self.matrix.ndim == 1 else weights @ self.matrix)

    def gram(self, rows: Ints, others: Ints) -> Array:
        """The products of some rows with others, (rows, others)."""
        if self.matrix.ndim == 1:
            return np.asarray((rows[:, None] == others) * self._gram[rows][:, None])
        return np.asarray(self._gram[np.ix_(rows, others)])


@dataclass(frozen=True, eq=False)
class Coupling:
    """``left`` (p, r) times ``right`` (r, c), at some rows and columns of a matrix: few numbers that many rows read alike."""

    rows: Ints
    columns: Ints
    left: Array = field(repr=False)
    right: Array = field(repr=False)

    @cached_property
    def _right_gram(self) -> Array:
        return np.asarray(self.right @ self.right.T)

    def gram(self, other: Coupling) -> Array:
        """The products of the rows of both ``right`` sides, (r, other's r)."""
        if other is self:
            return self._right_gram
        _, here, there = np.intersect1d(self.columns, other.columns, assume_unique=True, return_indices=True)
        return np.asarray(self.right[:, here] @ other.right[:, there].T)


@dataclass(frozen=True, eq=False)
class _Layer:
    """Pieces of a matrix that have no row in common: of each row which piece it is in, -1 for none, and which row of that."""

    owner: Ints
    within: Ints

    @classmethod
    def of(cls, count: int, pieces: Sequence[Ints]) -> list[Self]:
        """Layers of pieces by their rows, of so many: as few as have room for all."""
        layers: list[Self] = []
        for index, rows in enumerate(pieces):
            layer = next((each for each in layers if (each.owner[rows] < 0).all()), None)
            if layer is None:
                layer = cls(np.full(count, -1), np.zeros(count, dtype=np.intp))
                layers.append(layer)
            layer.owner[rows], layer.within[rows] = index, np.arange(len(rows))
        return layers

    def at(self, places: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """The pieces in which rows at these ``places`` lie: which of the places, and which rows of the piece."""
        owner = self.owner[places]
        for index in np.unique(owner).tolist():
            if index >= 0:
                here = np.flatnonzero(owner == index)
                yield index, here, self.within[places[here]]


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A matrix of that ``shape`` (q, d): ``blocks``, each at its rows and its columns, plus ``couplings``.

    Every row lies in one block, and no column in two.
    """

    shape: tuple[int, int]
    blocks: Sequence[tuple[Ints, Ints, Block]]
    couplings: Sequence[Coupling] = ()

    @classmethod
    def of_block(cls, block: Block, columns: Ints | None = None, dimension: int = 0) -> LinearMap:
        """One block alone, at these ``columns`` of so many, by default at all."""
        rows, across = block.shape
        places = np.arange(across) if columns is None else columns
        return cls((rows, dimension or across), [(np.arange(rows), places, block)])

    @classmethod
    def of_parts(cls, maps: Sequence[tuple[Ints, LinearMap]]) -> LinearMap:
        """Square maps of coordinates at some places to quantities at the same places, which are all places together."""
        size = sum(len(places) for places, _ in maps)
        blocks = [(places[rows], places[columns], block) for places, one in maps for rows, columns, block in one.blocks]
        couplings = [
            replace(each, rows=places[each.rows], columns=places[each.columns]) for places, one in maps for each in one.couplings
        ]
        return cls((size, size), blocks, couplings)

    @cached_property
    def _grams(self) -> dict[tuple[bytes, bytes], Array | None]:
        """What was asked for, None where that was once."""
        return {}

    @cached_property
    def _layers(self) -> tuple[list[_Layer], list[_Layer]]:
        """Those of blocks, and those of couplings."""
        by_rows = ([rows for rows, _, _ in self.blocks], [each.rows for each in self.couplings])
        of_blocks, of_couplings = (_Layer.of(self.shape[0], rows) for rows in by_rows)
        return of_blocks, of_couplings

    def _parts(self, places: Ints) -> list[tuple[int, Ints, Ints]]:
        """The blocks in which rows at these ``places`` lie: which of the places, and which rows of the block."""
        return [found for layer in self._layers[0] for found in layer.at(places)]

    def _coupled(self, places: Ints) -> list[tuple[Coupling, Ints, Ints]]:
        """The couplings of rows at these ``places``: which of the places, and which rows of the coupling."""
        found = [found for layer in self._layers[1] for found in layer.at(places)]
        return [(self.couplings[index], here, within) for index, here, within in found]

    def times(self, right: Array) -> Array:
        """The product with (d,) or (d, n)."""
        product = np.zeros((self.shape[0], *right.shape[1:]))
        for each in self.couplings:
            product[each.rows] += each.left @ (each.right @ right[each.columns])
        for rows, columns, block in self.blocks:
            product[rows] += block.times(right[columns])
        return product

    def plus(self, left: Array, right: Array) -> LinearMap:
        """Add ``left`` (q, r) times ``right`` (r, d)."""
        rows, columns = np.flatnonzero(left.any(axis=1)), np.flatnonzero(right.any(axis=0))
        own = left if len(rows) == len(left) else left[rows]
        across = right if len(columns) == right.shape[1] else right[:, columns]
        added = replace(self, couplings=[*self.couplings, Coupling(rows, columns, own, across)])
        if _LOW * sum(len(each.right) for each in added.couplings) <= self.shape[0]:
            return added
        return LinearMap.of_block(Block(added.columns(np.arange(self.shape[1]))))

    def kept(self, places: Ints) -> LinearMap:
        """The rows at these places alone, in this order."""
        blocks = []
        for index, here, within in self._parts(places):
            _, columns, block = self.blocks[index]
            every = len(within) == block.shape[0] and bool((within == np.arange(len(within))).all())
            blocks.append((here, columns, block if every else Block(block.combined(np.eye(block.shape[0])[within]))))
        couplings = [replace(each, rows=here, left=each.left[within]) for each, here, within in self._coupled(places)]
        return LinearMap((len(places), self.shape[1]), blocks, couplings)

    def reached(self, weights: Array, places: Ints) -> tuple[Array, Ints]:
        """Weighted sums of the rows at these places, by weights (..., p), at the columns where they may not be 0."""
        parts = self._parts(places)
        shared = []
        reached = np.zeros(self.shape[1], dtype=np.bool_)
        for index, _, _ in parts:
            reached[self.blocks[index][1]] = True
        for each, here, within in self._coupled(places):
            weighted = weights[..., here] @ each.left[within]
            used = np.flatnonzero(weighted.any(axis=tuple(range(weighted.ndim - 1))))
            right = each.right if len(used) == len(each.right) else each.right[used]
            reached[each.columns[right.any(axis=0)]] = True
            shared.append((each.columns, weighted[..., used] @ right))
        columns, at = np.flatnonzero(reached), np.cumsum(reached) - 1
        sums = np.zeros((*weights.shape[:-1], len(columns)))
        for across, added in shared:
            inside = reached[across]
            sums[..., at[across[inside]]] += added[..., inside]
        for index, here, within in parts:
            _, own, block = self.blocks[index]
            spread = np.zeros((*weights.shape[:-1], block.shape[0]))
            spread[..., within] = weights[..., here]
            free = block.combined(spread)
            both = sums[..., at[own]] + free
            # What equalities determine has no noise: the rest of a difference of two equal numbers is rounding.
            sums[..., at[own]] = np.where(np.abs(both) > _CANCELLED * np.abs(free), both, 0.0)
        return sums, columns

    def combined(self, weights: Array, places: Ints | None = None) -> Array:
        """Weighted sums of the rows at these places, by default of all, (..., d), by weights (..., p)."""
        sums, columns = self.reached(weights, np.arange(self.shape[0]) if places is None else places)
        if len(columns) == self.shape[1]:
            return sums
        every = np.zeros((*weights.shape[:-1], self.shape[1]))
        every[..., columns] = sums
        return every

    def by_rows(self, weights: Array, places: Ints) -> Iterator[tuple[slice, Array, Ints]]:
        """:meth:`reached` of a few of many weights (n, p) at a time: which, their sums and the columns of these."""
        few = max(_ENTRIES // max(self.shape[1], 1), 1)
        for begin in range(0, len(weights), few):
            rows = slice(begin, begin + few)
            yield rows, *self.reached(weights[rows], places)

    def columns(self, places: Ints) -> Array:
        """What is at these columns, (q, columns)."""
        at = np.full(self.shape[1], -1)
        at[places] = np.arange(len(places))
        dense = np.zeros((self.shape[0], len(places)))
        for each in self.couplings:
            here = np.flatnonzero(at[each.columns] >= 0)
            if len(here):
                dense[np.ix_(each.rows, at[each.columns[here]])] += each.left @ each.right[:, here]
        for rows, own, block in self.blocks:
            here = np.flatnonzero(at[own] >= 0)
            if len(here):
                chosen = np.zeros((len(own), len(here)))
                chosen[here, np.arange(len(here))] = 1.0
                matrix = block.matrix[:, here] if block.matrix.ndim > 1 else block.times(chosen)
                dense[np.ix_(rows, at[own[here]])] += matrix
        return dense

    def gram(self, places: Ints, others: Ints) -> Array:
        """The products of rows with others, (places, others): the covariance of quantities under noise of size 1.

        Studies that are drawn ask for the same again and again: what is asked for a second time is kept, read-only.
        """
        key = places.tobytes(), others.tobytes()
        if (kept := self._grams.get(key)) is not None:
            return kept
        gram = self._gram(places, others)
        if key not in self._grams:
            if len(self._grams) < _GRAMS:
                self._grams[key] = None
        elif sum(each.size for each in self._grams.values() if each is not None) + gram.size <= _KEPT:
            gram.flags.writeable = False
            self._grams[key] = gram
        return gram

    def _gram(self, places: Ints, others: Ints) -> Array:
        gram = np.zeros((len(places), len(others)))
        coupled, other_coupled = self._coupled(places), self._coupled(others)
        for each, here, within in coupled:
            left = each.left[within]
            for other, there, other_within in other_coupled:
                gram[np.ix_(here, there)] += left @ each.gram(other) @ other.left[other_within].T
            gram[here] += left @ self._crossed(others, each).T
        for other, there, other_within in other_coupled:
            gram[:, there] += self._crossed(places, other) @ other.left[other_within].T
        by_block = {index: (here, within) for index, here, within in self._parts(others)}
        for index, here, within in self._parts(places):
            if index in by_block:
                there, other_within = by_block[index]
                gram[np.ix_(here, there)] += self.blocks[index][2].gram(within, other_within)
        return gram

    def _crossed(self, places: Ints, coupling: Coupling) -> Array:
        """The products of what blocks alone make of rows at these places with the ``right`` side: (places, r)."""
        crossed = np.zeros((len(places), len(coupling.right)))
        at = np.full(self.shape[1], -1)
        at[coupling.columns] = np.arange(len(coupling.columns))
        for index, here, within in self._parts(places):
            _, columns, block = self.blocks[index]
            own = at[columns]
            if (own >= 0).any():
                right = np.where(own >= 0, coupling.right[:, own], 0.0).T
                crossed[here] = block.times(right, within)
        return crossed


def sparser(matrix: Array, right: Array) -> tuple[Array, Array]:
    """Equalities that say the same, in place: the difference to the one before where that has fewer numbers.

    Of parts up to each edge the parts between two: these are nearly orthogonal, so that rounding does not grow with their number.
    """
    # From the last one on, so that the one before is as it was.
    for row in range(len(matrix) - 1, 0, -1):
        step = matrix[row] - matrix[row - 1]
        if np.count_nonzero(step) < np.count_nonzero(matrix[row]):
            matrix[row], right[row] = step, right[row] - right[row - 1]
    return matrix, right


def pseudo_inverse(matrix: Array) -> Array:
    """The inverse of a symmetric positive semidefinite matrix outside its null space, as far as rounding shows that."""
    if not len(matrix):
        return matrix
    size = np.sqrt(np.diag(matrix))
    values, vectors = np.linalg.eigh(matrix / np.outer(size, size))
    inverse = np.where(values > _REDUNDANT * values[-1], 1 / np.maximum(values, _REDUNDANT * values[-1]), 0.0)
    pseudo_inverse: Array = (vectors * inverse) @ vectors.T / np.outer(size, size)
    return pseudo_inverse
