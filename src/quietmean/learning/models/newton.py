r"""Newton's rounds: each releases the score U and the information H of all records at public coefficients, in one noisy vector.

The vector of a record in the unit ball is (a r y, b v F(y y'), c r^2 F(y y'), p, e 1{cut}) / N, y being the row of its design and
F the upper triangle of a symmetric matrix, as long as that (off-diagonal entries times :math:`\sqrt 2`); the rounds that may be
read have the squares of scores, which the variance of sampling is made of. Noise of one deviation in each coordinate makes of F a
symmetric matrix of noise E that looks the same in all directions: E d has the covariance :math:`s^2 (|d|^2 I + d d') / 2`.

Rounds whose score is not longer than noise makes it are at places that differ by noise alone: of the last ones of these, the
answer is read as of one round with the mean score and information and less noise, at their mean place. Its step d = H^{-1} U
gives the estimate; what the noise of the places does to it is of the second order (Polyak and Juditsky 1992).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.learning.models.families import Family
from quietmean.learning.sites import packed, unpacked
from quietmean.sessions import RoundMean

# Eigenvalues of the information are known from so many deviations of the noise on.
LEAST_EIGENVALUE = 3.0
# And from such a part of the largest on, without noise: what is less is rounding.
ROUNDING = 1e-10
# A step moves no record's predictor by more.
LONGEST_STEP = 3.0
# The weights of whether a record is complete, and whether it was cut, which takes little as few are.
_PRESENT, _CUT = 0.2, 0.2
# The rounds before this, if there are so many, only lead to the place that the answer is read at.
_FIRST_READ = 3
# Scores of a settled place are twice the noise, squared, and longer than by so many deviations of that in one of hundreds.
_UNSETTLED = 3.0
# How much each party counts, where all count alike.
EVERYBODY: Array = np.ones(1)
# What a round releases.
MOMENTS, LENGTHS, SCORES = "moments", "lengths", "scores"
# How much each party counts, of as many as there are.
_COUNTED = "counted"
# What counts as the mean of all rounds that the answer is read of.
_MEANS = ("place", "score", "information", "squares", "present", "cut", "records", _COUNTED)
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


class Newton:
    """The public state of a fit: ``coefficients`` of the rows, the ``round`` that they are from, and the mean
    of what so many rounds released as are ``read``, at their mean ``place``; if none are, of the last round alone.

    ``constant``: the coefficients with which every row has 1, if there are any. ``rounds`` in all.
    """

    method: ClassVar[str] = "maximum likelihood by Newton's rounds; robust (sandwich) variances"
    _FIELDS: ClassVar[tuple[str, ...]] = ("coefficients", "step", *_MEANS, "curvature", "noise", *_COUNTS)
    # The mean of what is cut off scores, and the part that is cut above what is expected less that below.
    tail = side = 0.0

    def __init__(self, family: Family, size: int, constant: Array | None, rounds: int) -> None:
        self._family, self._size, self._constant, self._rounds = family, size, constant, rounds
        self._upper = np.triu_indices(size)
        self.round = self.read = 0
        self.coefficients = np.zeros(size) if constant is None else family.begin * constant
        self.step, self.place = np.zeros(size), np.zeros(size)
        self.score, self.information, self.squares = np.zeros(size), np.zeros((size, size)), np.zeros((size, size))
        self.curvature = np.zeros((size, size))
        self.present, self.cut, self.noise, self.records = 0.0, 0.0, 0.0, 0.0
        self.counted = np.zeros(1)

    @property
    def schedule(self) -> tuple[str, ...]:
        """What each round releases: fixed, as what it costs is."""
        return (SCORES,) * self._rounds

    @property
    def dispersion(self) -> float:
        """The variance of scores over their information."""
        return 1.0

    def scaled(self, scaling: Array) -> Array:
        """Return T of the coefficients that are read, from that of the rows, (p, p)."""
        return scaling

    @property
    def dimension(self) -> int:
        """How many coordinates a vector has."""
        return self._size + 2 * len(self._upper[0]) + 2

    @property
    def errors(self) -> NoiseInRound:
        """The deviations of the noise in the mean of the rounds that are read."""
        return NoiseInRound(*(self.noise * scale for scale in self._scales(self.round)))

    def _scales(self, number: int) -> tuple[float, float, float, float, float]:
        """What a coordinate of each part of the vector of round ``number`` is to be multiplied by."""
        family = self._family
        a, b, c = family.weights if number >= self._first else (*family.weights[:2], 0.0)
        whole = math.hypot(family.length(a, b, c), _PRESENT)
        squares = family.residual**2 * whole / c if c else 0.0
        return family.residual * whole / a, family.most * whole / b, squares, whole / _PRESENT, whole / _CUT

    def vectors(self, rows: DesignRows) -> Array:
        """Return the vectors of the records of one party, (records, dimension), none longer than 1."""
        family = self._family
        beyond = rows.rows @ self.coefficients
        eta = np.clip(beyond, -family.farthest, family.farthest)
        residual, information = family.scores(eta + rows.offset, rows.outcome)
        total = np.zeros((rows.records, self.dimension))
        by_score, by_information, by_squares, by_present, by_cut = self._scales(self.round + 1)
        size, many = self._size, len(self._upper[0])
        scores = summed(rows, residual[:, None] * rows.rows)
        products = folded(rows.rows[:, self._upper[0]] * rows.rows[:, self._upper[1]], self._upper)
        matrices = summed(rows, information[:, None] * products)
        total[:, :size], total[:, size : size + many] = scores / by_score, matrices / by_information
        if by_squares:
            squares = scores[:, self._upper[0]] * scores[:, self._upper[1]]
            total[:, size + many : -2] = folded(squares, self._upper) / by_squares
        total[rows.record, -2] = 1 / by_present
        bounded = (beyond != eta) | family.beyond(eta + rows.offset)
        cut = summed(rows, bounded.astype(np.float64)[:, None])[:, 0] > 0
        length = np.linalg.norm(total, axis=1)
        total[:, -1] = (cut | (length > 1 + 1e-9)) / by_cut
        shortened: Array = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1.0)
        return shortened

    @property
    def _first(self) -> int:
        """The round from which on answers are read."""
        return min(_FIRST_READ, self._rounds)

    def move(self, mean: RoundMean[Any]) -> None:
        """Take over what a round released, as a step of Newton's."""
        execution, released = mean.execution, np.asarray(mean.mean, dtype=np.float64)
        self.moved(mean.round, released, mean.standard_error, execution.counted_weight(), execution.parts)

    def moved(self, number: int, mean: Array, noise: float, records: float, counted: Array = EVERYBODY) -> None:
        """Take the step by the mean of so many records in round ``number``, with so much noise in each coordinate.

        ``counted``: how much of each party counts in that mean.
        """
        begin = self.coefficients
        score, information = self._take(number, mean, noise, records, counted)
        if number == 1 and self._constant is not None and self._rounds > 1:
            moved, score, information = self._family.null(self._family.begin, self._constant, score, information)
            begin = moved * self._constant
        else:
            begin, score = self.place, self.score
        error = noise * self._scales(number)[1]
        values = np.linalg.eigvalsh(information)
        if number == 1 or float(values[0]) > least_known(values, error):
            self.curvature = information
        else:
            self.curvature, error = (self.curvature + information) / 2, error / math.sqrt(2)
        if number < self._rounds:
            step = toward(self.curvature, score, error)
            step *= min(1.0, LONGEST_STEP / max(float(np.linalg.norm(step)), 1e-300))
        else:
            step = _solved(self.information, score, self.errors.information)
        self.step, self.coefficients = begin + step - self.place, begin + step

    def _take(self, number: int, vector: Array, noise: float, records: float, counted: Array) -> tuple[Array, Array]:
        """Take a round into the mean since the place is settled; the score and the information of this round alone."""
        size, many, scales = self._size, len(self._upper[0]), self._scales(number)
        score, information = vector[:size] * scales[0], self._matrix(vector[size : size + many]) * scales[1]
        released: dict[str, Any] = {
            "place": self.coefficients,
            "score": score,
            "information": information,
            "squares": self._matrix(vector[size + many : -2]) * scales[2],
            "present": float(vector[-2]) * scales[3],
            "cut": float(vector[-1]) * scales[4],
            "records": records,
            _COUNTED: counted,
        }
        settled = number >= self._first and self._settled(score, noise * scales[0])
        before = self.read if settled else 0
        for name in _MEANS:
            last = getattr(self, name) if before else 0.0
            setattr(self, name, (last * before + released[name]) / (before + 1))
        self.noise = math.hypot(self.noise * before, noise) / (before + 1)
        self.round, self.read = number, before + 1 if settled else 0
        return score, information

    def _settled(self, score: Array, error: float) -> bool:
        """Say: is a score no longer than noise of such a deviation makes it?"""
        size = self._size
        return float(score @ score) <= 2 * error**2 * (size + _UNSETTLED * math.sqrt(2 * size))

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
        alike = all(read[name].shape == np.shape(getattr(self, name)) for name in self._FIELDS if name != _COUNTED)
        return read if alike and all(np.isfinite(array).all() for array in read.values()) else None


def least_known(values: NDArray[np.floating[Any]], noise: float) -> float:
    """From which size on eigenvalues (p,) of an information are known, with such a deviation of the noise in it."""
    return max(LEAST_EIGENVALUE * noise, ROUNDING * float(np.abs(values).max(initial=0.0)))


def _solved(information: Array, score: Array, noise: float) -> Array:
    """The step in the directions that the information is known in; none in the others."""
    values, vectors = np.linalg.eigh(information)
    known = values > least_known(values, noise)
    step: Array = vectors[:, known] @ ((vectors[:, known].T @ score) / values[known])
    return step


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
