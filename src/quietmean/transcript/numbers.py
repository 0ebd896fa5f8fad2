"""A population program read with numbers, float64 or whole steps of a public grid: what the party machines compute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Ints, Mask
from quietmean.core.grid import LARGEST_UNITS, REAL, Numbers, WholeNumbers, from_units, to_units, too_large, whole_steps
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Vector
from quietmean.graphs import Flow
from quietmean.transcript.population import InjectedRows, PopulationTerms, Reading, Receivers, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Values as float64, or as int64 steps of a grid.
Array = NDArray[Any]
# Numbers of shared noise in memory at once.
_BLOCK = 4_000_000


class Arithmetic(ABC):
    """The rows of numbers that parties hold: how they are injected, divided and converted. Sums are those of the array type.

    ``numbers``: what values and noise are, the same as for the party machines.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    @abstractmethod
    def zeros(self, shape: tuple[int, int]) -> Array:
        """What parties hold before the first injection: zeros of this shape."""

    @abstractmethod
    def inject(self, held: Array, rows: slice | Ints, terms: Sequence[tuple[float, Array]]) -> None:
        """Add to ``held[rows]`` the sum of ``factor * array[rows]``, in this order; all arrays (n, d)."""

    @abstractmethod
    def divided(self, held: NumericRows, parts: Ints) -> tuple[NumericRows, NumericRows | float]:
        """Divide a reading: see :meth:`~quietmean.transcript.population.Reading.divided`."""

    @abstractmethod
    def vectors(self, held: Array) -> Vector:
        """What is held, (size, d), in the units of the values."""


class RealRows(Arithmetic):
    """float64: every division is exact up to rounding and leaves nothing over.

    Whole multiples of the step of a grid are added up exactly, too; they cannot be divided.
    """

    def zeros(self, shape: tuple[int, int]) -> Array:
        return np.zeros(shape)

    def inject(self, held: Array, rows: slice | Ints, terms: Sequence[tuple[float, Array]]) -> None:
        scratch = np.empty_like(held) if isinstance(rows, slice) else None
        for factor, array in terms:
            if not factor:
                continue
            if scratch is None:
                held[rows] += factor * array[rows]
            else:
                # One array for all terms: the page faults of fresh ones cost more than the sum.
                held += np.multiply(array, factor, out=scratch)

    def divided(self, held: NumericRows, parts: Ints) -> tuple[NumericRows, float]:
        return NumericRows(held.numbers(), 1.0 / parts), 0.0

    def vectors(self, held: Array) -> Vector:
        step = self.numbers.step
        if step and np.abs(held).max(initial=0.0) >= LARGEST_UNITS * step:
            raise too_large(step)
        vectors: Vector = held
        return vectors


class WholeRows(Arithmetic):
    """Multiples of the step of ``numbers`` as int64: divisions leave over what shares are rounded by.

    Injections are rounded once, if they are not whole. Raises :class:`~quietmean.core.errors.ProtocolFailure` for numbers that
    the grid cannot hold.
    """

    def __init__(self, numbers: WholeNumbers) -> None:
        super().__init__(numbers)
        self.step, self._divided = numbers.step, numbers.divided

    def zeros(self, shape: tuple[int, int]) -> Array:
        return np.zeros(shape, dtype=np.int64)

    def inject(self, held: Array, rows: slice | Ints, terms: Sequence[tuple[float, Array]]) -> None:
        # The machines' operations in the machines' order, for the same rounding.
        (factor, array), *others = terms
        total = array[rows] * factor
        for factor, array in others:
            total = total + array[rows] * factor
        held[rows] += to_units(whole_steps(total, self.step), self.step)

    def divided(self, held: NumericRows, parts: Ints) -> tuple[NumericRows, NumericRows]:
        units = held.numbers()
        self._check(units)
        share = self._divided(units, parts[:, None])
        return NumericRows(share), NumericRows(units - parts[:, None] * share)

    def vectors(self, held: Array) -> Vector:
        self._check(held)
        return from_units(held, self.step)

    def _check(self, held: Array) -> None:
        if np.abs(held).max(initial=0) >= LARGEST_UNITS:
            raise too_large(self.step)


REAL_ROWS = RealRows(REAL)


def divisible_rows(numbers: Numbers) -> Arithmetic:
    """The arithmetic of a protocol that divides what parties hold."""
    return WholeRows(numbers) if isinstance(numbers, WholeNumbers) else RealRows(numbers)


@dataclass(frozen=True, eq=False)
class SharedTerms:
    """Noise of pairs (M, 2), drawn only once it is known which of it does not cancel: row m is that of ``pairs[m]``."""

    noise: PopulationNoise
    pairs: Ints
    purpose: str
    index: int
    sigma: float
    numbers: Numbers = REAL

    @cached_property
    def each(self) -> Flow:
        """Every term in a row of its own."""
        every = np.arange(len(self.pairs))
        return Flow.of((every.size, every.size), every, every)

    def add_to(self, total: Array, weights: Flow) -> None:
        """Add ``weights @ terms``, weights of shape (rows, M), to ``total`` (rows, d). What has cancelled is never drawn."""
        used = np.zeros(len(total), dtype=np.bool_)
        used[weights.to] = True
        count, height = len(self.pairs), int(used.sum())
        rows: slice | Ints = slice(None)
        few: Any
        if height * count <= weights.to.size:
            # Few rows of many terms: added up in place of sorted.
            rows, index_of = np.nonzero(used)[0], np.cumsum(used)[weights.to] - 1
            few = np.bincount(index_of * count + weights.source, weights.weight, height * count).reshape(height, count)
            left = np.nonzero(few.any(axis=0))[0]
            few = few[:, left]
        else:
            matrix = weights.matrix
            matrix.eliminate_zeros()
            left = np.unique(matrix.indices)
            few = matrix.tocsc()[:, left]
        together = max(1, _BLOCK // total.shape[1])
        for first in range(0, left.size, together):
            block = slice(first, first + together)
            pairs = self.pairs[left[block]]
            drawn, factor = self.numbers.draw(self.noise, self.purpose, self.index, self.sigma, total.shape[1], shared_with=pairs)
            total[rows] += np.asarray((few[:, block] * factor) @ drawn)


class NumericRows(Rows):
    """``factor`` times an array (size, d), and linear combinations of shared noise that is not drawn yet.

    ``factor``: a number, or one for each row, shape (size,). It is multiplied only where the numbers are needed: shares go from
    one party to another without a copy.
    """

    def __init__(
        self, array: Array | None, factor: float | Array = 1.0, later: Sequence[tuple[Flow, SharedTerms]] = (), size: int = 0
    ) -> None:
        self.size = size if array is None else len(array)
        self._array, self._factor, self._later = array, factor, tuple(later)

    def numbers(self, dimension: int = 0) -> Array:
        """All of it, shape (size, d): read only. ``dimension``: d, needed where there is shared noise and nothing else."""
        array = self._scaled()
        if not self._later:
            return np.zeros((self.size, dimension)) if array is None else array
        total = np.zeros((self.size, dimension)) if array is None else array.astype(np.float64)
        for terms in {id(terms): terms for _, terms in self._later}.values():
            parts = [flow for flow, its in self._later if its is terms]
            to, source, weight = (np.concatenate([getattr(flow, name) for flow in parts]) for name in ("to", "source", "weight"))
            terms.add_to(total, Flow(parts[0].shape, to, source, weight))
        return total

    def scaled(self) -> tuple[Array, float]:
        """An array and a factor with these rows as their product, read only."""
        if self._later or self._array is None or isinstance(self._factor, np.ndarray):
            return self.numbers(), 1.0
        return self._array, self._factor

    def _scaled(self) -> Array | None:
        if self._array is None or (isinstance(self._factor, float) and self._factor == 1.0):
            return self._array
        product: Array = self._array * (self._factor[:, None] if isinstance(self._factor, np.ndarray) else self._factor)
        return product

    def __add__(self, other: Rows | float) -> NumericRows:
        if not isinstance(other, NumericRows):
            if isinstance(other, Rows) or other != 0:
                raise TypeError("a population program may add only vectors to vectors")
            return self
        left, right = self._scaled(), other._scaled()
        total = right if left is None else left if right is None else left + right
        return NumericRows(total, later=(*self._later, *other._later), size=self.size)

    def __sub__(self, other: Rows | float) -> NumericRows:
        if isinstance(other, NumericRows) and not self._later and not other._later:
            return NumericRows(self.numbers() - other.numbers())
        return self + other * -1.0

    def __mul__(self, factor: float | Array) -> NumericRows:
        later = [(_scaled(flow, factor), terms) for flow, terms in self._later]
        if not isinstance(factor, np.ndarray):
            return NumericRows(self._array, self._factor * factor, later, self.size)
        array = self._scaled()
        return NumericRows(None if array is None else array * factor[:, None], later=later, size=self.size)

    def __rmatmul__(self, flow: Flow) -> NumericRows:
        rows, _ = flow.shape
        later = [(flow if its is terms.each else _product(flow, its), terms) for its, terms in self._later]
        if self._array is None:
            return NumericRows(None, later=later, size=rows)
        factor = self._factor
        if isinstance(factor, np.ndarray):
            flow, factor = Flow(flow.shape, flow.to, flow.source, flow.weight * factor[flow.source]), 1.0
        return NumericRows(np.asarray(_alike(flow.matrix, self._array) @ self._array), factor, later)

    def at(self, mask: Mask) -> NumericRows:
        if mask.all():
            return self
        later = [(_at(flow, mask), terms) for flow, terms in self._later]
        if self._array is None:
            return NumericRows(None, later=later, size=self.size)
        array = np.zeros_like(self._array)
        array[mask] = self._array[mask]
        return NumericRows(array, self._factor, later)


def _alike(matrix: csr_array[np.float64], array: Array) -> csr_array[Any]:
    """The matrix in the type of the array. Whole numbers are not mixed by fractions."""
    if array.dtype == np.float64:
        return matrix
    integers = matrix.astype(np.int64)
    if (integers.data != matrix.data).any():
        raise TypeError("a population program may only add and subtract shares that are whole numbers")
    return integers


def _product(left: Flow, right: Flow) -> Flow:
    rows, middle = left.shape
    if np.bincount(left.source, minlength=middle).max(initial=0) <= 1:
        # Every row of the other goes to one place at most.
        to, weight = np.full(middle, -1), np.zeros(middle)
        to[left.source], weight[left.source] = left.to, left.weight
        moved = to[right.to]
        here = moved >= 0
        weights = weight[right.to[here]] * right.weight[here]
        return Flow((rows, right.shape[1]), moved[here], right.source[here], weights)
    matrix = (left.matrix @ right.matrix).tocoo()
    to, source = matrix.coords
    return Flow.of(matrix.shape, to, source, matrix.data)


def _scaled(flow: Flow, factor: float | Array) -> Flow:
    return Flow(flow.shape, flow.to, flow.source, flow.weight * (factor[flow.to] if isinstance(factor, np.ndarray) else factor))


def _at(flow: Flow, mask: Mask) -> Flow:
    here = mask[flow.to]
    return Flow(flow.shape, flow.to[here], flow.source[here], flow.weight[here])


class NumericTerms(PopulationTerms):
    """Noise as ``numbers``, for values of shape (n, d), d = ``dimension``."""

    def __init__(self, noise: PopulationNoise, parties: int, dimension: int, numbers: Numbers = REAL) -> None:
        self._noise, self._parties, self._dimension, self._numbers = noise, parties, dimension, numbers

    def normal(self, purpose: str, index: int, scale: float) -> NumericRows:
        if not scale:
            return NumericRows(np.broadcast_to(0.0, (self._parties, self._dimension)))
        return NumericRows(*self._numbers.draw(self._noise, purpose, index, scale, self._dimension))

    def normal_of(self, parties: Ints, purpose: str, indices: Ints, scales: Array) -> NumericRows:
        rows = np.zeros((parties.size, self._dimension))
        # Discrete noise is drawn at its scale; normal noise of all scales at once.
        drawn_at = scales if self._numbers.step else np.ones(scales.size)
        for index, scale in np.unique(np.stack([indices, drawn_at], axis=1), axis=0).tolist():
            if not scale:
                continue
            here = np.nonzero((indices == index) & (drawn_at == scale))[0]
            array, factor = self._numbers.draw(self._noise, purpose, int(index), scale, self._dimension)
            rows[here] = array[parties[here]] * factor
        if not self._numbers.step:
            rows *= scales[:, None]
        return NumericRows(rows)

    def shared_normal(self, pairs: Ints, purpose: str, index: int, scale: float) -> NumericRows:
        if not scale:
            return NumericRows(np.broadcast_to(0.0, (len(pairs), self._dimension)))
        terms = SharedTerms(self._noise, pairs, purpose, index, scale, self._numbers)
        return NumericRows(None, later=[(terms.each, terms)], size=len(pairs))

    def randomised(self, rows: Rows, function: Callable[[PartyId, Vector, NoiseSource], Vector]) -> NumericRows:
        vectors = _numeric(rows).numbers(self._dimension)
        return NumericRows(np.array([function(i, vector, self._noise.party(i)) for i, vector in enumerate(vectors)]))


class NoTerms(PopulationTerms):
    """No noise at all, for n parties with values of shape (n, d), d = ``dimension``."""

    def __init__(self, parties: int, dimension: int) -> None:
        self._parties, self._dimension = parties, dimension

    def normal(self, purpose: str, index: int, scale: float) -> NumericRows:
        return self._nothing(self._parties)

    def normal_of(self, parties: Ints, purpose: str, indices: Ints, scales: Array) -> NumericRows:
        return self._nothing(parties.size)

    def shared_normal(self, pairs: Ints, purpose: str, index: int, scale: float) -> NumericRows:
        return self._nothing(len(pairs))

    def randomised(self, rows: Rows, function: Callable[[PartyId, Vector, NoiseSource], Vector]) -> Rows:
        return rows

    def _nothing(self, size: int) -> NumericRows:
        return NumericRows(np.broadcast_to(0.0, (size, self._dimension)))


class NumericReading(Reading):
    """The result does not depend on which parties receive a message, so nothing is recorded."""

    symbolic = False

    def __init__(self, values: Vector, arithmetic: Arithmetic = REAL_ROWS) -> None:
        """``values`` (n, d): the parties' values."""
        self._arithmetic = arithmetic
        self._shape = values.shape
        self.values = NumericRows(arithmetic.numbers.value(values))

    def zeros(self) -> NumericRows:
        parties, dimension = self._shape
        return NumericRows(self._arithmetic.zeros((parties, dimension)))

    def divided(self, held: Rows, parts: Ints) -> tuple[Rows, Rows | float]:
        return self._arithmetic.divided(_numeric(held), parts)

    def injected(self, held: Rows, injections: Sequence[InjectedRows]) -> NumericRows:
        array = _numeric(held).numbers()
        for injection in injections:
            # A slice of all parties avoids the copies that a list of them needs.
            members = slice(None) if injection.members.size == len(array) else injection.members
            terms = []
            for factor, rows in injection.terms:
                its_array, its_factor = _numeric(rows).scaled()
                terms.append((factor * its_factor, its_array))
            self._arithmetic.inject(array, members, terms)
        return NumericRows(array)

    def computed(self, rows: Rows, function: Callable[[Array], Array]) -> NumericRows:
        return NumericRows(function(_numeric(rows).numbers(self._shape[1])))

    def send(
        self,
        rows: Rows,
        senders: Mask,
        round_: int,
        receivers: Receivers | None = None,
        *,
        public: bool = False,
        owner: Ints | None = None,
    ) -> NumericRows:
        return _numeric(rows)

    def vectors(self, rows: Rows) -> Vector:
        """The numbers (size, d) in the units of the values."""
        return self._arithmetic.vectors(_numeric(rows).numbers(self._shape[1]))


def _numeric(rows: Rows) -> NumericRows:
    if not isinstance(rows, NumericRows):
        raise TypeError("a population program that is read with numbers may tell only what it made of them")
    return rows
