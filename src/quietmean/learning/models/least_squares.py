r"""Least squares at the scale of the data, not of the bounds: what each round of a Gaussian model releases, and its step.

A record has the row y in the unit ball, the residual r about public coefficients, and the score r z with z = M y. Its rounds are

1. *moments*: (a F(y y'), b r y / R), with R the largest residual: from them come a start and the matrix M, which makes z round.
2. *lengths*: which logarithmic cell the length \|r z\| is in, and F(z z') within a bound, which makes M better.
3. *scores*: one step with scores that are cut at the length C, which comes from the cells.
4. *lengths* again, about what that step gave: the C of all later rounds comes from these.
5. *scores* from here on, of which the first also has the information of scores that are not cut, and the squares of all.

The answer is the solution of the clipped equation: the mean of r z min(1, C / \|r z\|) is 0. C makes least
:math:`p (C s)^2 / k + 2 b(C)^2` for noise s in each of k later rounds and b the mean of what C cuts off the released lengths: it
is made of releases alone. Charges are equal in all rounds, whatever is released.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.learning.models.families import Family
from quietmean.learning.models.newton import (
    EVERYBODY,
    LENGTHS,
    MOMENTS,
    ROUNDING,
    SCORES,
    DesignRows,
    Newton,
    NoiseInRound,
    folded,
    summed,
    toward,
)

# The rounds before the first that is read, which leave at least one.
BEFORE = 4
# The second round of lengths.
_AGAIN = 4
# How many cells lengths have, each twice as long as the one before.
_CELLS = 16
# A cell counts from so many deviations of the noise on, and one beyond an empty one from so many.
_COUNTS, _ALONE = 2.0, 4.5
# What a squared bias weighs beside the variance of noise: noise hides a part of it.
_BIAS = 2.0
# The tail beyond the last cell that counts is exponential, of the mean excess of so many cells before.
_BACK = 2
# What is cut off is not above its estimate and so many deviations of that, but once in 700 fits.
_SURE = 3.0
# Rows z whose squared length is so many deviations of a normal one's above its mean count less for the information.
_FAR = 8.0
# Directions in which less is known of the information than so many deviations count as this much.
_KNOWN = 2.0
# What parts of vectors weigh beside each other: moments and first scores; cells and information; score and squares beside the
# information; the record itself, and on which side its score is cut, beside these.
_MOMENTS, _START = 0.7, 0.7
_CELL, _ROUND = 0.8, 0.6
_SCORE, _SQUARES = 0.6, 0.5
_PRESENT, _CUT = 0.2, 0.2


class LeastSquares(Newton):
    """The public state of a Gaussian fit. ``coefficients`` and all that is read are of z = M y, M being the ``rounding``.

    ``clip``: C. ``tail``: the most that C cuts off the mean length, by the cells, their noise and the public bounds.
    ``side``: the part of the records that are cut above what is expected of them, less that below.
    """

    method: ClassVar[str] = "least squares by rounds, scores cut in length; robust (sandwich) variances"
    _FIELDS: ClassVar[tuple[str, ...]] = (*Newton._FIELDS, "rounding", "clip", "tail", "side", "deviations", "weight")

    def __init__(self, family: Family, size: int, constant: Array | None, rounds: int) -> None:
        super().__init__(family, size, constant, rounds)
        self.rounding = np.eye(size)
        # The largest residual about the start.
        self._reach = family.residual if constant is None else (family.high - family.low) / 2
        self.clip = self.tail = self.side = self.weight = 0.0
        self.deviations = np.zeros(5)

    @property
    def schedule(self) -> tuple[str, ...]:
        return (MOMENTS, LENGTHS, SCORES, LENGTHS, *[SCORES] * (self._rounds - BEFORE))

    @property
    def dimension(self) -> int:
        many = len(self._upper[0])
        return max(self._size + 2 * many + 3, _CELLS + many)

    @property
    def errors(self) -> NoiseInRound:
        return NoiseInRound(*self.deviations.tolist())

    @property
    def _far(self) -> float:
        return self._size + _FAR * math.sqrt(2 * self._size)

    @property
    def _first(self) -> int:
        return BEFORE + 1

    @property
    def dispersion(self) -> float:
        return max(float(np.trace(self.squares)), 0.0) / max(float(np.trace(self.information)), 1e-300)

    def scaled(self, scaling: Array) -> Array:
        made: Array = self.rounding @ scaling
        return made

    @property
    def _edges(self) -> Array:
        """The upper ends of the cells: no score within the bounds is longer than the last, as rows are in the unit ball."""
        start = 0.0 if self._constant is None else self._family.begin * self._constant
        moved = float(np.linalg.norm(self.rounding.T @ self.coefficients - start))
        longest = (self._reach + moved) * float(np.linalg.norm(self.rounding, 2))
        return longest * np.exp2(np.arange(1 - _CELLS, 1, dtype=np.float64))

    def _scales(self, number: int) -> tuple[float, float, float, float, float]:
        kind = self.schedule[number - 1]
        if kind == MOMENTS:
            whole = math.hypot(_MOMENTS, _START, _PRESENT)
            return self._reach * whole / _START, whole / _MOMENTS, 0.0, whole / _PRESENT, 0.0
        if kind == LENGTHS:
            whole = math.hypot(_CELL, _ROUND)
            return (whole / _CELL, self._far * whole / _ROUND, 0.0, 0.0, 0.0) if number < _AGAIN else (1.0, 0.0, 0.0, 0.0, 0.0)
        if number != self._first:
            whole = math.hypot(1.0, _CUT, _CUT)
            return self.clip * whole, 0.0, 0.0, 0.0, whole / _CUT
        whole = math.hypot(1.0, _SCORE, _SQUARES, _PRESENT, _CUT, _CUT)
        squares = self.clip**2 * whole / _SQUARES
        return self.clip * whole / _SCORE, self._far * whole, squares, whole / _PRESENT, whole / _CUT

    def vectors(self, rows: DesignRows) -> Array:
        number, many = self.round + 1, len(self._upper[0])
        scales, kind = self._scales(number), self.schedule[number - 1]
        rounded = rows.rows @ self.rounding.T
        residual = rows.outcome - rows.offset - rounded @ self.coefficients
        scores, products = residual[:, None] * rounded, _products(rounded, self._upper)
        lengths = np.linalg.norm(scores, axis=1)
        own = np.zeros((len(rows.rows), self.dimension))
        if kind == LENGTHS:
            own[np.arange(len(own)), np.minimum(np.searchsorted(self._edges, lengths), _CELLS - 1)] = 1 / scales[0]
            start = _CELLS
        else:
            within = np.minimum(1.0, self.clip / np.maximum(lengths, 1e-300)) if kind == SCORES else np.ones(len(own))
            scores *= within[:, None]
            own[:, : self._size] = scores / scales[0]
            start = self._size
        if scales[1]:
            far = np.linalg.norm(rounded, axis=1) ** 2 / self._far if number > 1 else np.ones(len(own))
            whole = (lengths <= self.clip) if kind == SCORES else np.ones(len(own))
            own[:, start : start + many] = products * (whole / np.maximum(far, 1.0))[:, None]
            own[:, start : start + many] /= scales[1]
        if scales[2]:
            own[:, start + many : start + 2 * many] = _products(scores, self._upper) / scales[2]
        if scales[3]:
            own[:, -3] = 1 / scales[3]
        if scales[4]:
            cut = lengths > self.clip
            own[:, -2], own[:, -1] = cut / scales[4], cut * np.sign(residual) / scales[4]
        total = summed(rows, own)
        shortened: Array = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1.0)
        return shortened

    def moved(self, number: int, mean: Array, noise: float, records: float, counted: Array = EVERYBODY) -> None:
        kind, scales, many = self.schedule[number - 1], self._scales(number), len(self._upper[0])
        self.noise, self.records = noise, records
        if kind == MOMENTS:
            self.present = float(mean[-3]) * scales[3]
            self._begin(mean[: self._size], self._matrix(mean[self._size : self._size + many]), noise, scales)
        elif kind == LENGTHS:
            self.clip, self.tail = self._chosen(mean[:_CELLS] * scales[0], noise * scales[0], noise)
            if scales[1]:
                information = self._matrix(mean[_CELLS : _CELLS + many]) * scales[1]
                self._make_round(*_directions(information, _KNOWN * noise * scales[1]))
        elif number < self._first:
            # Where z is round, the information is the identity, or less.
            self.coefficients = self.coefficients + mean[: self._size] * scales[0]
        else:
            self._read_in(number, mean, noise, scales, counted)
        self.round = number

    def _begin(self, score: Array, information: Array, noise: float, scales: tuple[float, ...]) -> None:
        """The rounding and a start from moments. What noise may make alone, is not believed."""
        values, vectors = _directions(information * scales[1], noise * scales[1])
        steps, error = (vectors.T @ score) * scales[0] / np.sqrt(values), noise * scales[0] / np.sqrt(values)
        steps *= np.maximum(1 - (error / np.maximum(np.abs(steps), 1e-300)) ** 2, 0.0)
        self._make_round(values, vectors)
        self.coefficients = self.coefficients + vectors @ steps

    def _make_round(self, values: Array, vectors: Array) -> None:
        """Go on where rows of the information that has these eigenvalues have the identity."""
        self.rounding = (vectors / np.sqrt(values)) @ vectors.T @ self.rounding
        self.coefficients = (vectors * np.sqrt(values)) @ vectors.T @ self.coefficients

    def _chosen(self, shares: Array, error: float, noise: float) -> tuple[float, float]:
        """The length at which later scores are cut, and the mean of what is cut off, by released ``shares`` of the cells."""
        edges, top = self._edges, int(np.argmax(shares))
        counted = np.where(shares >= _COUNTS * error, np.maximum(shares, 0.0), 0.0)
        empty = np.flatnonzero(counted[top:] == 0)
        last = top + int(empty[0]) - 1 if len(empty) else _CELLS - 1
        if last < top:
            return float(edges[-1]), 0.0
        beyond = np.arange(_CELLS) > last
        counted[beyond & (shares < _ALONE * error)] = 0.0
        middles, begin = edges / math.sqrt(2), max(last - _BACK, 0)
        some = slice(begin + 1, last + 1)
        part = float(counted[some].sum())
        excess = float(counted[some] @ (middles[some] - edges[begin])) / max(part, 1e-300)
        if excess > 0:
            survival = part * np.exp(-(edges - edges[begin]) / excess)
            expected = np.minimum(-np.diff(survival, prepend=survival[0]), _COUNTS * error)
            counted = np.where(beyond & (counted == 0), expected, counted)
        # Half of a cell is beyond its middle, by half of what is left of it in the mean.
        inside = np.diag((edges - middles) / 4)
        bounds = np.concatenate([middles, edges])
        tails = np.concatenate([np.maximum(middles[None, :] - ends[:, None], 0.0) for ends in (middles, edges)]) @ counted
        tails[:_CELLS] += inside @ counted
        reads = self._rounds - BEFORE
        best = int(np.argmin(self._size * (bounds * noise) ** 2 / reads + _BIAS * tails**2))
        # No score within the bounds is longer than the upper end of its cell: nothing is supposed of cells that noise hides.
        most = np.maximum(edges - bounds[best], 0.0)
        return float(bounds[best]), max(float(shares @ most) + _SURE * error * float(np.linalg.norm(most)), 0.0)

    def _read_in(self, number: int, mean: Array, noise: float, scales: tuple[float, ...], counted: Array) -> None:
        """Take a round into the mean of those that are read, by its noise; one that is far from its answer begins anew."""
        size, many = self._size, len(self._upper[0])
        score, own = mean[:size] * scales[0], (self.clip / scales[0]) ** 2
        if number == self._first:
            self.information = self._matrix(mean[size : size + many]) * scales[1]
            self.squares = self._matrix(mean[size + many : size + 2 * many]) * scales[2]
            self.present = float(mean[-3]) * scales[3]
            self.deviations = noise * np.array(scales, dtype=np.float64)
        weight = self.weight if self._settled(score, noise * scales[0]) else 0.0
        part = own / (weight + own)
        for name, value in (
            ("place", self.coefficients),
            ("score", score),
            ("cut", mean[-2] * scales[4]),
            ("side", mean[-1] * scales[4]),
            ("counted", counted),
        ):
            last = getattr(self, name)
            setattr(self, name, last + part * (value - last) if weight else value)
        self.cut, self.side = float(self.cut), float(self.side)
        self.weight, self.read = weight + own, self.read + 1 if weight else 1
        self.deviations[0] = noise * self.clip / math.sqrt(self.weight)
        self.deviations[4] = noise * scales[4] / math.sqrt(self.read)
        self.step = toward(self.information, self.score, float(self.deviations[1]))
        self.coefficients = self.place + self.step


def _directions(information: Array, error: float) -> tuple[Array, Array]:
    """The eigenvalues of an information, none below the error, and its eigenvectors."""
    values, vectors = np.linalg.eigh(information)
    return np.maximum(values, max(error, ROUNDING * float(np.abs(values).max(initial=1e-300)))), vectors


def _products(rows: Array, upper: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Array:
    return folded(rows[:, upper[0]] * rows[:, upper[1]], upper)
