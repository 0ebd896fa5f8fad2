"""The public state of a fit by rounds: what a round releases of records, and what its mean makes of the coefficients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.learning.sites import packed, unpacked
from quietmean.sessions import RoundMean

# Eigenvalues of the information are known from so many deviations of the noise on.
LEAST_EIGENVALUE = 3.0
# And from such a part of the largest on, without noise: what is less is rounding.
ROUNDING = 1e-10
# A step moves no record's predictor by more.
LONGEST_STEP = 3.0
# Scores of a settled place are the noise of theirs and of the place, squared, and longer than by so many deviations in one of
# hundreds.
_UNSETTLED = 3.0
# How much each party counts, where all count alike.
EVERYBODY: Array = np.ones(1)
# What a round releases.
MOMENTS, LENGTHS, SCORES = "moments", "lengths", "scores"
# How much each party counts, of as many as there are.
COUNTED = "counted"
# What counts as the mean of all rounds that the answer is read of.
MEANS = ("place", "score", "information", "squares", "present", "cut", "records", COUNTED)
_COUNTS = ("round", "read")


@dataclass(frozen=True, eq=False)
class DesignRows:
    """Records of one party as rows of a design, (N, p), with outcomes and offsets, (N,); ``record``: the record of each row, in
    order, of ``records`` in all, of which those that are not complete have no row."""

    rows: Array
    outcome: Array
    offset: Array
    record: NDArray[np.intp]
    records: int


@dataclass(frozen=True)
class NoiseInRound:
    """Deviations of the noise: in each coordinate of a score, in an entry on the diagonal of a matrix, and in two parts."""

    score: float
    information: float
    squares: float
    present: float
    cut: float


class FitState(ABC):
    """The public state of a fit: ``coefficients`` that are read, the ``round`` that they are from, and the mean
    of what so many rounds released as are ``read``, at their mean ``place``; if none are, of the last round alone.

    ``constant``: the coefficients with which every row has 1, if there are any. ``rounds`` in all. ``begin``: the predictor that
    all records have to begin with.
    """

    # How coefficients are estimated.
    way: ClassVar[str]
    _FIELDS: ClassVar[tuple[str, ...]] = ("coefficients", "step", *MEANS, "curvature", "noise", *_COUNTS)
    # The mean of what is cut off scores, and the part that is cut above what is expected less that below.
    tail = side = 0.0

    def __init__(self, size: int, constant: Array | None, rounds: int, begin: float) -> None:
        self._size, self._constant, self._rounds = size, constant, rounds
        self._upper = np.triu_indices(size)
        self.round = self.read = 0
        self.coefficients = np.zeros(size) if constant is None else begin * constant
        self.step, self.place = np.zeros(size), np.zeros(size)
        self.score, self.information, self.squares = np.zeros(size), np.zeros((size, size)), np.zeros((size, size))
        self.curvature = np.zeros((size, size))
        self.present, self.cut, self.noise, self.records = 0.0, 0.0, 0.0, 0.0
        self.counted = np.zeros(1)

    @property
    def principle(self) -> str:
        """By which principle coefficients are estimated."""
        return "maximum likelihood"

    @property
    def bounded(self) -> bool:
        """Whether records beyond public bounds of predictors and means count as at these."""
        return True

    @property
    def method(self) -> str:
        """What the estimates are called."""
        return f"{self.principle} by {self.way}; robust (sandwich) variances"

    @property
    @abstractmethod
    def schedule(self) -> tuple[str, ...]:
        """What each round releases: fixed, as what it costs is."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many coordinates a vector has."""

    @property
    @abstractmethod
    def errors(self) -> NoiseInRound:
        """The deviations of the noise in the mean of the rounds that are read."""

    @property
    def dispersion(self) -> float:
        """The variance of scores over their information."""
        return 1.0

    def scaled(self, scaling: Array) -> Array:
        """Return T of the coefficients that are read, from that of the rows, (p, p)."""
        return scaling

    def direction(self, coefficients: Array) -> Array:
        """Return coefficients of the rows as ones that are read, (p,)."""
        return coefficients

    @abstractmethod
    def vectors(self, rows: DesignRows) -> Array:
        """Return the vectors of the records of one party, (records, dimension), none longer than 1."""

    def move(self, mean: RoundMean[Any]) -> None:
        """Take over what a round released, as a step of Newton's."""
        execution, released = mean.execution, np.asarray(mean.mean, dtype=np.float64)
        self.moved(mean.round, released, mean.standard_error, execution.counted_weight(), execution.parts)

    @abstractmethod
    def moved(self, number: int, mean: Array, noise: float, records: float, counted: Array = EVERYBODY) -> None:
        """Take the step by the mean of so many records in round ``number``, with so much noise in each coordinate.

        ``counted``: how much of each party counts in that mean.
        """

    def _settled(self, score: Array, error: float, place: float | None = None) -> bool:
        """Say: is a score no longer than noise of such a deviation makes it, at a ``place`` that noise moved by as much or so?"""
        size, variance = self._size, error**2 + (error if place is None else place) ** 2
        return float(score @ score) <= variance * (size + _UNSETTLED * math.sqrt(2 * size))

    def _matrix(self, entries: Array) -> Array:
        matrix = np.zeros((self._size, self._size))
        matrix[self._upper] = np.where(self._upper[0] == self._upper[1], entries, entries / math.sqrt(2))
        return matrix + np.triu(matrix, 1).T

    # -- kept --------------------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write this public model to a file, whole and durably. Raises :class:`InputError` where any other file is there."""
        content = packed(**{name: getattr(self, name) for name in self._FIELDS})
        Output(Path(path), "the model", "path", own=lambda there: self._read(there) is not None).write(content)

    def load(self, path: str | Path) -> None:
        """Continue this fit from a file of :meth:`save`. Raises :class:`InputError` for any other file or another model."""
        try:
            read = self._read(Path(path).read_bytes())
        except OSError:
            read = None
        if read is None:
            raise InputError(f"{path} is not a file of this model after a round. Give one that save wrote.")
        for name in self._FIELDS:
            value = read[name]
            setattr(self, name, value if value.ndim else int(value) if name in _COUNTS else float(value))

    def _read(self, content: bytes) -> dict[str, Array] | None:
        try:
            read = unpacked(content, self._FIELDS)
        except ValueError:
            return None
        alike = all(read[name].shape == np.shape(getattr(self, name)) for name in self._FIELDS if name != COUNTED)
        return read if alike and all(np.isfinite(array).all() for array in read.values()) else None


def least_known(values: NDArray[np.floating[Any]], noise: float) -> float:
    """From which size on eigenvalues (p,) of an information are known, with such a deviation of the noise in it."""
    return max(LEAST_EIGENVALUE * noise, ROUNDING * float(np.abs(values).max(initial=0.0)))


def toward(curvature: Array, score: Array, noise: float) -> Array:
    """A step that is shorter than Newton's in directions that the curvature is not known in; none where all is rounding."""
    values, vectors = np.linalg.eigh(curvature)
    least = least_known(values, noise)
    if not least > 0:
        return np.zeros(len(score))
    step: Array = vectors @ ((vectors.T @ score) / np.maximum(values, least))
    return step


def folded(products: Array, upper: tuple[NDArray[Any], NDArray[Any]]) -> Array:
    """The upper triangles of symmetric matrices (N, p (p + 1) / 2), as long as these."""
    return np.where(upper[0] == upper[1], products, products * math.sqrt(2))


def summed(rows: DesignRows, values: Array) -> Array:
    """Sum rows over each record, (records, k)."""
    total = np.zeros((rows.records, values.shape[1]))
    if len(rows.record):
        first = np.flatnonzero(np.diff(rows.record, prepend=-1))
        total[rows.record[first]] = np.add.reduceat(values, first, axis=0)
    return total
