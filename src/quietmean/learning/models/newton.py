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
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.learning.models.families import Binomial
from quietmean.learning.models.state import (
    COUNTED,
    EVERYBODY,
    LONGEST_STEP,
    MEANS,
    SCORES,
    DesignRows,
    FitState,
    NoiseInRound,
    folded,
    least_known,
    summed,
    toward,
)

# The weights of whether a record is complete, and whether it was cut, which takes little as few are.
_PRESENT, _CUT = 0.2, 0.2
# The rounds before this, if there are so many, only lead to the place that the answer is read at.
_FIRST_READ = 3


class Newton(FitState):
    """The public state of a fit of log odds: see :class:`FitState`."""

    way = "Newton's rounds"

    def __init__(self, family: Binomial, size: int, constant: Array | None, rounds: int) -> None:
        super().__init__(size, constant, rounds, family.begin)
        self._family = family

    @property
    def schedule(self) -> tuple[str, ...]:
        return (SCORES,) * self._rounds

    @property
    def dimension(self) -> int:
        return self._size + 2 * len(self._upper[0]) + 2

    @property
    def errors(self) -> NoiseInRound:
        return NoiseInRound(*(self.noise * scale for scale in self._scales(self.round)))

    def _scales(self, number: int) -> tuple[float, float, float, float, float]:
        """What a coordinate of each part of the vector of round ``number`` is to be multiplied by."""
        family = self._family
        a, b, c = family.weights if number >= self._first else (*family.weights[:2], 0.0)
        whole = math.hypot(family.length(a, b, c), _PRESENT)
        squares = whole / c if c else 0.0
        return whole / a, family.most * whole / b, squares, whole / _PRESENT, whole / _CUT

    def vectors(self, rows: DesignRows) -> Array:
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

    def moved(self, number: int, mean: Array, noise: float, records: float, counted: Array = EVERYBODY) -> None:
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
            COUNTED: counted,
        }
        settled = number >= self._first and self._settled(score, noise * scales[0])
        before = self.read if settled else 0
        for name in MEANS:
            last = getattr(self, name) if before else 0.0
            setattr(self, name, (last * before + released[name]) / (before + 1))
        self.noise = math.hypot(self.noise * before, noise) / (before + 1)
        self.round, self.read = number, before + 1 if settled else 0
        return score, information


def _solved(information: Array, score: Array, noise: float) -> Array:
    """The step in the directions that the information is known in; none in the others."""
    values, vectors = np.linalg.eigh(information)
    known = values > least_known(values, noise)
    step: Array = vectors[:, known] @ ((vectors[:, known].T @ score) / values[known])
    return step
