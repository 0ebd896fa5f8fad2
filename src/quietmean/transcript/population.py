"""The algebra of population programs: one linear computation of all parties at once, read with symbols or with numbers.

A program describes once what a whole population computes. It works on :class:`Rows` (one vector for each party, link or pair),
draws noise as :class:`PopulationTerms`, and passes to a :class:`Reading` what is sent. Read with symbols it gives the transcript
of the execution, read with numbers what the party machines compute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.graphs import Flow

# Rows that are sent, and for each the party that receives it, both of shape (A,). A row may occur several times.
Receivers = tuple[NDArray[np.integer], NDArray[np.integer]]


class Rows(ABC):
    """``size`` vectors that programs only add, scale and move between rows.

    ``flow @ rows`` applies a sparse matrix. Rows of one reading cannot be combined with those of another.
    """

    __array_ufunc__ = None  # numpy scalars and arrays defer to the operators here

    size: int

    @abstractmethod
    def __add__(self, other: Rows | float) -> Rows:
        """Add rows; the number 0 means rows of zeros."""

    @abstractmethod
    def __mul__(self, factor: float | Array) -> Rows:
        """``factor``: one number for all rows, or one for each, shape (size,)."""

    @abstractmethod
    def __rmatmul__(self, flow: Flow) -> Rows: ...

    @abstractmethod
    def at(self, mask: Mask) -> Rows:
        """Return these rows where ``mask`` is true, shape (size,), and zero in the others."""

    def __radd__(self, other: Rows | float) -> Rows:
        return self + other

    def __neg__(self) -> Rows:
        return self * -1.0

    def __sub__(self, other: Rows | float) -> Rows:
        return self + other * -1.0


AnyRows = TypeVar("AnyRows", bound=Rows)


@dataclass(frozen=True, eq=False)
class InjectedRows:
    """What some parties add to what they hold: the sum of ``factor`` times their rows of each of ``terms``.

    ``members``, shape (k,): numbers of the parties, in rising order.
    """

    members: Ints
    terms: Sequence[tuple[float, Rows]]


@dataclass(frozen=True, eq=False)
class Results(Generic[AnyRows]):
    """How a program ends: each party's vector (d,) and weight (n,), and the parties ``by`` (n,) that have a result at all."""

    rows: AnyRows
    weight: Array
    by: Mask


class PopulationTerms(ABC):
    """The noise of a population: independent standard Gaussians at addresses, each times its standard deviation ``scale``."""

    @abstractmethod
    def normal(self, purpose: str, index: int, scale: float) -> Rows:
        """Normal terms, one row for each party, known to that party alone."""

    @abstractmethod
    def normal_of(self, parties: Ints, purpose: str, indices: Ints, scales: Array) -> Rows:
        """Row e is the noise of ``parties[e]`` at ``(purpose, indices[e])``, times ``scales[e]``; all three of shape (rows,).

        Every address may be drawn in one call only.
        """

    @abstractmethod
    def shared_normal(self, pairs: Ints, purpose: str, index: int, scale: float) -> Rows:
        """Row m is the noise that the two parties ``pairs[m]`` share; pairs of shape (M, 2), the smaller number first."""

    @abstractmethod
    def randomised(self, rows: Rows, function: Callable[[PartyId, Vector, NoiseSource], Vector]) -> Rows:
        """``function`` of each party's number, vector (d,) and noise: for noise that is not Gaussian. Left out of transcripts."""


class Reading(ABC):
    """How a program is read: what becomes of its rows as they are injected, sent, kept and released."""

    @abstractmethod
    def zeros(self) -> Rows:
        """What every party holds before the first injection."""

    @abstractmethod
    def divided(self, held: Rows, parts: Ints) -> tuple[Rows, Rows | float]:
        """Each row divided by its number of ``parts``, shape (size,), and what that leaves over for the holder.

        Exactly: share * parts + rest is what was held.
        """

    @abstractmethod
    def injected(self, held: Rows, injections: Sequence[InjectedRows]) -> Rows:
        """What parties hold, injections included. May reuse the memory of ``held``, which must not be used any more."""

    @abstractmethod
    def computed(self, rows: Rows, function: Callable[[Array], Array]) -> Rows:
        """``function`` of the numbers (size, d), for what is not linear. Transcripts describe what goes into it instead."""

    @abstractmethod
    def send(
        self,
        rows: Rows,
        senders: Mask,
        round_: int,
        receivers: Receivers | None = None,
        *,
        public: bool = False,
        owner: Ints | None = None,
    ) -> Rows:
        """The rows after sending: those of ``senders`` (size,) are numbers, or a new variable each; the others stay as they are.

        ``receivers``: which rows reached which parties; ``public``: all parties know them. ``owner`` (size,): the party of each
        row, if rows are not numbered by party.
        """

    def keep(self, rows: Rows, holders: Mask, round_: int, owner: Ints | None = None) -> Rows:
        """A variable of its own, known to its holder alone, for each row of ``holders`` (size,)."""
        return self.send(rows, holders, round_, owner=owner)

    def release(self, rows: Rows, by: Mask, round_: int) -> Rows:
        """The rows of ``by`` (size,) become known to all parties."""
        return self.send(rows, by, round_, public=True)

    @property
    @abstractmethod
    def symbolic(self) -> bool:
        """Does this population compute with symbols, exactly? If so, quantisers, for example, are left out."""
