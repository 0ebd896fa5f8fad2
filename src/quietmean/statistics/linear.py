"""Linear maps from a mean vector to the quantities of all features, kept as blocks and a few rows that couple them.

A feature reads its own coordinates alone, and what several features know alike couples them by one row each. Memory and time
grow with the sum of the features' squared sizes, and not with the square of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array, Ints

# Numbers of rows that are formed at a time.
_ENTRIES = 1 << 20
# A rank above this part of the rows is kept as one block.
_LOW = 4
# What is left of this part of a number when another is taken from it is rounding.
_CANCELLED = 1e-12


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

    def times(self, right: Array) -> Array:
        """The product with (c,) or (c, n)."""
        if self.matrix.ndim == 1:
            return np.asarray((right.T * self.matrix).T)
        return np.asarray(self.matrix @ right)

    def combined(self, weights: Array) -> Array:
        """Weighted sums of rows, (..., c), by weights (..., p)."""
        return np.asarray(weights * self.matrix if self.matrix.ndim == 1 else weights @ self.matrix)

    def gram(self, rows: Ints, others: Ints) -> Array:
        """The products of some rows with others, (rows, others)."""
        if self.matrix.ndim == 1:
            return np.asarray((rows[:, None] == others) * self._gram[rows][:, None])
        return np.asarray(self._gram[np.ix_(rows, others)])


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A matrix (q, d): ``blocks``, each at its rows and its columns, plus ``left`` (q, r) times ``right`` (r, d).

    Every row lies in one block.
    """

    blocks: Sequence[tuple[Ints, Ints, Block]]
    left: Array = field(repr=False)
    right: Array = field(repr=False)

    @classmethod
    def of_block(cls, block: Block, columns: Ints | None = None, dimension: int = 0) -> LinearMap:
        """One block alone, at these ``columns`` of so many, by default at all."""
        rows, across = block.shape
        places = np.arange(across) if columns is None else columns
        return cls([(np.arange(rows), places, block)], np.zeros((rows, 0)), np.zeros((0, dimension or across)))

    @classmethod
    def of_parts(cls, maps: Sequence[tuple[Ints, LinearMap]]) -> LinearMap:
        """Square maps of coordinates at some places to quantities at the same places, which are all places together."""
        size = sum(len(places) for places, _ in maps)
        ends = np.cumsum([0, *(one.left.shape[1] for _, one in maps)])
        left, right = np.zeros((size, ends[-1])), np.zeros((ends[-1], size))
        blocks = []
        for (places, one), begin, end in zip(maps, ends.tolist(), ends[1:].tolist(), strict=False):
            blocks += [(places[rows], places[columns], block) for rows, columns, block in one.blocks]
            left[places, begin:end], right[begin:end, places] = one.left, one.right
        return cls(blocks, left, right)

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[1]

    @cached_property
    def _where(self) -> tuple[Ints, Ints]:
        """The block of each row, and which of its rows that is, (q,) each."""
        owner, within = np.zeros(len(self.left), dtype=np.intp), np.zeros(len(self.left), dtype=np.intp)
        for index, (rows, _, _) in enumerate(self.blocks):
            owner[rows], within[rows] = index, np.arange(len(rows))
        return owner, within

    def _parts(self, places: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """The blocks in which rows at these ``places`` lie: which of the places, and which rows of the block."""
        owner, within = (every[places] for every in self._where)
        for index in np.unique(owner).tolist():
            here = np.flatnonzero(owner == index)
            yield index, here, within[here]

    def times(self, right: Array) -> Array:
        """The product with (d,) or (d, n)."""
        product: Array = self.left @ (self.right @ right)
        for rows, columns, block in self.blocks:
            product[rows] += block.times(right[columns])
        return product

    def plus(self, left: Array, right: Array) -> LinearMap:
        """Add ``left`` (q, r) times ``right`` (r, d)."""
        added = LinearMap(self.blocks, np.hstack([self.left, left]), np.vstack([self.right, right]))
        if _LOW * added.left.shape[1] <= len(self.left):
            return added
        return LinearMap.of_block(Block(added.columns(np.arange(self.shape[1]))))

    def kept(self, places: Ints) -> LinearMap:
        """The rows at these places alone, in this order."""
        blocks = []
        for index, here, within in self._parts(places):
            _, columns, block = self.blocks[index]
            every = len(within) == block.shape[0] and bool((within == np.arange(len(within))).all())
            blocks.append((here, columns, block if every else Block(block.combined(np.eye(block.shape[0])[within]))))
        return LinearMap(blocks, self.left[places], self.right)

    def reached(self, weights: Array, places: Ints) -> tuple[Array, Ints]:
        """Weighted sums of the rows at these places, by weights (..., p), at the columns where they may not be 0."""
        shared = weights @ self.left[places]
        used = np.flatnonzero(shared.any(axis=tuple(range(shared.ndim - 1))))
        parts = list(self._parts(places))
        reached = np.asarray(self.right[used].any(axis=0))
        for index, _, _ in parts:
            reached[self.blocks[index][1]] = True
        columns = np.flatnonzero(reached)
        at = np.cumsum(reached) - 1
        sums: Array = shared[..., used] @ self.right[np.ix_(used, columns)]
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
        sums, columns = self.reached(weights, np.arange(len(self.left)) if places is None else places)
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
        dense: Array = self.left @ self.right[:, places]
        for rows, own, block in self.blocks:
            here = np.flatnonzero(at[own] >= 0)
            if len(here):
                chosen = np.zeros((len(own), len(here)))
                chosen[here, np.arange(len(here))] = 1.0
                matrix = block.matrix[:, here] if block.matrix.ndim > 1 else block.times(chosen)
                dense[np.ix_(rows, at[own[here]])] += matrix
        return dense

    def gram(self, places: Ints, others: Ints) -> Array:
        """The products of rows with others, (places, others): the covariance of quantities under noise of size 1."""
        left, other_left = self.left[places], self.left[others]
        used, other_used = (np.flatnonzero(one.any(axis=0)) for one in (left, other_left))
        every = len(used) == len(other_used) == len(self.right)
        right = other_right = self.right
        if not every:
            left, other_left = left[:, used], other_left[:, other_used]
            right, other_right = self.right[used], self.right[other_used]
        gram: Array = left @ (self._right_gram if every else right @ other_right.T) @ other_left.T
        gram += self._crossed(places, other_right) @ other_left.T
        gram += left @ self._crossed(others, right).T
        by_block = {index: (here, within) for index, here, within in self._parts(others)}
        for index, here, within in self._parts(places):
            if index in by_block:
                there, other_within = by_block[index]
                gram[np.ix_(here, there)] += self.blocks[index][2].gram(within, other_within)
        return gram

    @cached_property
    def _right_gram(self) -> Array:
        return np.asarray(self.right @ self.right.T)

    def _crossed(self, places: Ints, right: Array) -> Array:
        """What blocks alone make of rows (r, d), at these places: (places, r)."""
        crossed = np.zeros((len(places), len(right)))
        for index, here, within in self._parts(places):
            _, columns, block = self.blocks[index]
            crossed[here] = block.times(right[:, columns].T)[within]
        return crossed
