"""What a round of a session gives to who takes part in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, pieces
from quietmean.core.errors import InputError
from quietmean.core.grid import towards_zero
from quietmean.core.party import PartyId, Vector
from quietmean.core.readable import counted_text, epsilon_text
from quietmean.core.tables import Tabular
from quietmean.planning.accuracy import stated_variance
from quietmean.protocols.execution import Execution
from quietmean.studies.agreement.session_terms import SessionTerms

# A vector on the boundary must not be outside of it by rounding.
_INSIDE = 1.0 - 2.0**-40
# Sums of so many squares, scaled, do not overflow.
_MOST = np.finfo(np.float64).max / 2**16


def checked_clip(clip: float) -> float:
    """The bound C. Raises :class:`InputError` for one that cannot be."""
    if isinstance(clip, bool) or not isinstance(clip, int | float | np.floating) or not (math.isfinite(clip) and clip > 0):
        raise InputError(f"clip is {clip!r}. Choose a finite number > 0, the largest L2 norm of a vector.")
    return float(clip)


def numbers_of(value: Any, whose: str) -> Array:
    """An array of what a program gave. Raises :class:`InputError` for something else."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{whose} not an array of numbers. Give numbers in one shape.") from None


def clipped_vector(value: Vector, bound: float) -> Vector:
    """A vector (d,) over ``bound``, of L2 norm 1 at most. What is not a number counts as 0."""
    clipped: Vector = shortened(value[None], bound)[0]
    return clipped


def clipped_rows(records: Array, bound: float, step: float) -> Vector:
    """The sum, shape (d,), of records (N, d), each over ``bound``, of L2 norm 1 at most and rounded to ``step`` (0 for none)."""
    rows = shortened(records, bound)
    if step:
        # Each before they are added: a sum that is rounded later can change by more than one record does.
        # Entry by entry, and what lies on the grid stays: what becomes of one record depends on no other.
        rows = towards_zero(rows, step)
    total: Vector = rows.sum(axis=0)
    return total


def norms(rows: Array) -> Array:
    """L2 norms of rows (N, d), shape (N,), also where squares would overflow; what is not a number counts as 0."""
    return _norms_of_finite(_finite(rows))


def shortened(rows: Array, bound: float) -> Array:
    """Rows (N, d) over ``bound``, each of L2 norm 1 at most. What is not a number counts as 0."""
    finite = _finite(rows)
    lengths = _norms_of_finite(finite)
    # Divided by what is larger, so that nothing overflows.
    clipped: Array = finite / np.maximum(lengths, bound)[:, None]
    clipped *= np.where(lengths >= _INSIDE * bound, _INSIDE, 1.0)[:, None]
    return clipped


def _norms_of_finite(rows: Array) -> Array:
    largest = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    scale = np.where(largest > 0, largest, 1.0)[:, None]
    parts = [np.linalg.norm(rows[:, piece] / scale, axis=1) for piece in pieces(rows.shape[1])]
    lengths: Array = (parts[0] if len(parts) == 1 else np.linalg.norm(parts, axis=0)) * largest
    return lengths


def _finite(rows: Array) -> Array:
    # The rule, and no copy; both comparisons are false if anything is not a number.
    if rows.min(initial=0.0) >= -_MOST and rows.max(initial=0.0) <= _MOST:
        return rows
    return np.clip(np.nan_to_num(rows, nan=0.0, posinf=_MOST, neginf=-_MOST), -_MOST, _MOST)


# How parties are called: by their places where all are in one process, by their names between machines.
Party = TypeVar("Party", PartyId, str)


@dataclass(frozen=True, eq=False, repr=False)
class RoundMean(Tabular, Generic[Party]):
    """The result of one round of a session: the noisy mean, which parties it counts, and what it cost.

    ``mean``: shape (d,), in the units of the vectors. ``counted``: the parties whose vectors are in it: their places where all
    are in one process, their names between machines. Two parties between machines may count different ones, where one was late.

    ``not_heard``: whose releases did not arrive here, or cannot be, and are left out.
    ``missed``: how many rounds this party missed just before. ``bytes_sent``: by this party in this round.
    """

    round: int
    mean: Vector
    counted: tuple[Party, ...]
    execution: Execution
    not_heard: tuple[Party, ...] = ()
    missed: int = 0
    bytes_sent: int = 0
    # What all parties are called, the units of the vectors, and how many rounds began.
    _parties: tuple[Party, ...] = field(kw_only=True)
    _scale: float = field(kw_only=True)
    _terms: SessionTerms = field(kw_only=True)
    _begun: int = field(kw_only=True)

    @cached_property
    def epsilon(self) -> float:
        """What the session has cost up to this round, at most, at its delta; rounded up."""
        return self._terms.spent_epsilon(self._begun)

    @cached_property
    def standard_error(self) -> float:
        """The standard error of the noise in the mean, per coordinate, in the units of the vectors."""
        return math.sqrt(stated_variance(self.execution)) * self._scale

    @property
    def checked(self) -> str | None:
        """By how many sums of members it was checked, and how many wrong ones would have been noticed, in a sentence; None where
        sums of members do not determine it."""
        from quietmean.studies.outcome.influence import checked_text

        by = self.execution.protocol.traits.checks.by
        return None if by is None else checked_text(by)

    @cached_property
    def in_part(self) -> dict[Party, float]:
        """Who counts in part, and in which: the mean is of vectors so weighted, which ``standard_error`` knows nothing of."""
        return {self._parties[party]: part for party, part in self.execution.in_part.items()}

    def __repr__(self) -> str:
        missed = f", {self.missed} missed before" if self.missed else ""
        counted, by = counted_text(len(self.counted), len(self.in_part)), self.execution.protocol.traits.checks.by
        unchecked = "" if by is None or by["lies_excluded"] else ", unchecked"
        return f"RoundMean(round {self.round}{missed}, {counted}{unchecked}, epsilon so far {epsilon_text(self.epsilon)})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.mean, dtype=dtype, copy=True if copy is None else copy)

    def rows(self) -> list[dict[str, Any]]:
        """One for each coordinate."""
        error = self.standard_error
        return [{"coordinate": index, "mean": float(value), "standard_error": error} for index, value in enumerate(self.mean)]
