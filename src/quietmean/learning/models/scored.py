r"""Rounds at the scale of the data, not of the bounds: what each releases of a family with a scale of its own, and its step.

A record has the row y in the unit ball, the residual r and the information v of its family at public coefficients, and the score
r z with z = M y. Its rounds are

1. *moments*: (a F(w y y'), b r y / R), with w the expected information and R the largest residual: from them come the model
   without terms, or for least squares a start, and the matrix M, which makes \sqrt w z round.
2. *lengths*: which logarithmic cell the length \|r z\| is in, and F(w z z') within a bound, which makes M better.
3. *scores*: one step with scores that are cut at the length C, which comes from the cells.
4. *lengths* again, about what that step gave: the C of all later rounds comes from these.
5. *scores* from here on. Until one is as short as noise makes it, they also have the information v of scores that are not
   cut, and the squares of all.

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
from quietmean.learning.models.families import Scaled
from quietmean.learning.models.state import (
    EVERYBODY,
    LEAST_EIGENVALUE,
    LENGTHS,
    LONGEST_STEP,
    MOMENTS,
    ROUNDING,
    SCORES,
    DesignRows,
    FitState,
    NoiseInRound,
    folded,
    summed,
    toward,
)

# The rounds before the first that is read, which leave at least one.
BEFORE = 4
# The second round of lengths.
_AGAIN = 4
# How many cells lengths have, and how many of them an octave has: fewer where outcomes may have long tails.
_OCTAVES, _FINE = 16, 2
# A cell counts from so many deviations of the noise on, and one beyond an empty one from so many.
_COUNTS, _ALONE = 2.0, 4.5
# What a squared bias weighs beside the variance of noise: noise hides a part of it.
_BIAS = 2.0
# The tail beyond the last cell that counts is exponential, of the mean excess of so many octaves before.
_BACK = 2
# What is cut off is not above its estimate and so many deviations of that, but once in 700 fits.
_SURE = 3.0
# Rows z whose squared length is so many deviations of a normal one's above its mean count less for the information.
_FAR = 8.0
# Where these are another model's at each place: from so many to so many deviations, by what noise they add to the information.
_NEAREST, _FARTHEST, _HARDLY = 4.0, 100.0, 0.02
# How far the information of one place may be from that of the next, in each entry, where it is not the same everywhere.
_DOUBTED = 0.15
# Places that are no further apart are as one, in lengths of a step where z is round, and in deviations of a score's noise.
_NEAR, _NEAR_NOISE = 0.03, 5.0
# Noise of the squares hides the dispersion from this part of it on.
_HIDES = 0.3
# How many of the rounds that are read have the information and the squares, where these depend on the place; and more of them
# while noise in each entry of the information is above this.
_FULL, _WANTED = 2, 0.12
# Scores of a model with a spread of its own are cut where that draws an answer by less than this part of its error, if the noise
# grows by no more than that factor.
_DRAWS, _DEARER = 0.25, 1.2
# Directions in which less is known of the information than so many deviations count as this much.
_KNOWN = 2.0
# What is left of a direction at that part of the rounding before is rounding.
_HIDDEN = 1e-2
# What parts of vectors weigh beside each other: moments and first scores; cells and information; score and squares beside the
# information; the record itself, and on which side its score is cut, beside these.
_MOMENTS, _START = 0.7, 0.7
_CELL, _ROUND = 0.8, 0.6
_SCORE, _SQUARES = 0.6, 0.5
_PRESENT, _CUT = 0.2, 0.2


class ScoredRounds(FitState):
    """The public state of a fit with a scale of its own. ``coefficients`` and all that is read are of z = M y, M being the
    ``rounding``.

    ``null``: the predictor of the model without terms. ``clip``: C. ``tail``: the most that C cuts off the mean length, by the
    cells, their noise and the public bounds. ``spread``: the variance of scores by the cells. ``side``: the part of the records
    that are cut above what is expected of them, less that below.
    """

    way = "rounds, scores cut in length"
    _FIELDS: ClassVar[tuple[str, ...]] = (
        *FitState._FIELDS, "rounding", "null", "clip", "tail", "side", "spread", "deviations", "weight",
    )  # fmt: skip

    def __init__(
        self, family: Scaled, size: int, constant: Array | None, rounds: int, largest_offset: float = 0.0, most_rows: int = 1
    ) -> None:
        self.null = 0.0 if constant is None else family.begin - largest_offset
        super().__init__(size, constant, rounds, self.null)
        self._family, self._offset, self._most_rows = family, largest_offset, most_rows
        # Residuals and the information of a linear model are the same at each place.
        self._linear = not family.ratio
        self._per_octave = 1 if self._linear else _FINE
        self._cells = _OCTAVES * self._per_octave
        self.rounding = np.eye(size)
        self.clip = self.tail = self.side = self.spread = self.weight = 0.0
        self.deviations = np.zeros(5)

    @property
    def principle(self) -> str:
        return "least squares" if self._linear else super().principle

    @property
    def bounded(self) -> bool:
        return not self._linear

    @property
    def schedule(self) -> tuple[str, ...]:
        return (MOMENTS, LENGTHS, SCORES, LENGTHS, *[SCORES] * (self._rounds - BEFORE))

    @property
    def dimension(self) -> int:
        many = len(self._upper[0])
        return max(self._size + 2 * many + 3, self._cells + many)

    @property
    def errors(self) -> NoiseInRound:
        return NoiseInRound(*self.deviations.tolist())

    @property
    def _far(self) -> float:
        spread = math.sqrt(2 * self._size)
        if self._linear:
            return self._size + _FAR * spread
        return self._size + spread * min(max(_HARDLY / max(self.noise * spread, 1e-300), _NEAREST), _FARTHEST)

    @property
    def _first(self) -> int:
        return BEFORE + 1

    @property
    def dispersion(self) -> float:
        # Where noise hides the squares, what the cells say of the length of scores.
        if float(self.deviations[2]) > _HIDES * self.spread * math.sqrt(self._size):
            return max(self.spread, self._family.dispersed)
        least = max(self.errors.information, ROUNDING)
        return max(float(np.trace(self.squares)) / max(float(np.trace(self.information)), least), self._family.dispersed)

    def scaled(self, scaling: Array) -> Array:
        made: Array = self.rounding @ scaling
        return made

    def direction(self, coefficients: Array) -> Array:
        return np.asarray(np.linalg.solve(self.rounding.T, coefficients), dtype=np.float64)

    @property
    def _longest_residual(self) -> float:
        """No residual that counts is longer."""
        reach = self._family.reach(self.null + self._offset)
        if not self._linear:
            return reach
        start = 0.0 if self._constant is None else self.null * self._constant
        return reach + float(np.linalg.norm(self.rounding.T @ self.coefficients - start))

    @property
    def _edges(self) -> Array:
        """The upper ends of the cells: no score within the bounds is longer than the last, as rows are in the unit ball."""
        longest = self._longest_residual * float(np.linalg.norm(self.rounding, 2))
        return longest * np.exp2(np.arange(1 - self._cells, 1) / self._per_octave)

    @property
    def _heaviest(self) -> float:
        """The largest expected information in the first round."""
        return self._expected(self.null + self._offset)

    def _expected(self, predictor: float) -> float:
        """The expected information of a record all of whose rows have such a predictor."""
        return float(self._family.expected(np.array([predictor]))[0]) * self._most_rows

    def _is_full(self, number: int) -> bool:
        """Whether a round that may be read also has the information and the squares: until one is settled."""
        if self._linear or number <= self._first:
            return number == self._first
        return number < self._first + _FULL or not self.weight or float(self.deviations[1]) > _WANTED

    def _has_information(self, number: int) -> bool:
        """Whether a round of lengths has the information, as it is another one at each place or not yet known."""
        return number < _AGAIN or not self._linear

    def _scales(self, number: int) -> tuple[float, float, float, float, float]:
        kind = self.schedule[number - 1]
        if kind == MOMENTS:
            whole = math.hypot(_MOMENTS, _START, _PRESENT)
            return self._longest_residual * whole / _START, self._heaviest * whole / _MOMENTS, 0.0, whole / _PRESENT, 0.0
        if kind == LENGTHS:
            whole = math.hypot(_CELL, _ROUND)
            if self._has_information(number):
                return whole / _CELL, self._far * whole / _ROUND, 0.0, 0.0, 0.0
            return 1.0, 0.0, 0.0, 0.0, 0.0
        if not self._is_full(number):
            whole = math.hypot(1.0, _CUT, _CUT)
            return self.clip * whole, 0.0, 0.0, 0.0, whole / _CUT
        whole = math.hypot(1.0, _SCORE, _SQUARES, _PRESENT, _CUT, _CUT)
        squares = self.clip**2 * whole / _SQUARES
        return self.clip * whole / _SCORE, self._far * whole, squares, whole / _PRESENT, whole / _CUT

    def vectors(self, rows: DesignRows) -> Array:
        number, many = self.round + 1, len(self._upper[0])
        scales, kind, family = self._scales(number), self.schedule[number - 1], self._family
        rounded = rows.rows @ self.rounding.T
        beyond = rounded @ self.coefficients
        eta = (beyond if self._linear else np.clip(beyond, -family.farthest, family.farthest)) + rows.offset
        residual, information = family.scores(eta, rows.outcome)
        longest = self._longest_residual
        far_off = np.abs(residual) > longest
        residual = np.clip(residual, -longest, longest)
        if kind != SCORES:
            information = family.expected(eta)
        # What follows is of records, which may have several rows.
        scores = summed(rows, residual[:, None] * rounded)
        lengths, own, here = np.linalg.norm(scores, axis=1), np.zeros((rows.records, self.dimension)), np.unique(rows.record)
        if kind == LENGTHS:
            own[here, np.minimum(np.searchsorted(self._edges, lengths[here]), self._cells - 1)] = 1 / scales[0]
            start = self._cells
        else:
            if kind == SCORES:
                scores *= (self.clip / np.maximum(lengths, max(self.clip, 1e-300)))[:, None]
            own[:, : self._size] = scores / scales[0]
            start = self._size
        if scales[1]:
            products = summed(rows, information[:, None] * _products(rounded, self._upper))
            weight = information * (np.linalg.norm(rounded, axis=1) ** 2 / self._far if number > 1 else 1 / self._heaviest)
            far = summed(rows, weight[:, None])[:, 0]
            whole = (lengths <= self.clip) if kind == SCORES else np.ones(len(own))
            own[:, start : start + many] = products * (whole / np.maximum(far, 1.0))[:, None] / scales[1]
        if scales[2]:
            own[:, start + many : start + 2 * many] = _products(scores, self._upper) / scales[2]
        if scales[3]:
            own[here, -3] = 1 / scales[3]
        if scales[4]:
            at_bounds = far_off | (beyond + rows.offset != eta) | family.beyond(eta)
            sums = summed(rows, np.column_stack([at_bounds, residual]))
            cut = (lengths > self.clip) | (sums[:, 0] > 0)
            own[:, -2], own[:, -1] = cut / scales[4], cut * np.sign(sums[:, 1]) / scales[4]
        shortened: Array = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1.0)
        return shortened

    def moved(self, number: int, mean: Array, noise: float, records: float, counted: Array = EVERYBODY) -> None:
        kind, scales, many = self.schedule[number - 1], self._scales(number), len(self._upper[0])
        self.noise, self.records = noise, records
        if kind == MOMENTS:
            self.present = float(mean[-3]) * scales[3]
            self._begin(mean[: self._size], self._matrix(mean[self._size : self._size + many]), noise, scales)
        elif kind == LENGTHS:
            self.clip, self.tail = self._chosen(mean[: self._cells] * scales[0], noise * scales[0], noise)
            if scales[1]:
                information = self._matrix(mean[self._cells : self._cells + many]) * scales[1]
                self._make_round(*_directions(information, max(_KNOWN * noise * scales[1], _HIDDEN)))
                self.information = np.eye(self._size)
                self.deviations = noise * np.array(scales, dtype=np.float64)
        elif number < self._first:
            # Where z is round, the information is the identity, or less.
            self.coefficients = self.coefficients + self._short(mean[: self._size] * scales[0])
        else:
            self._read_in(number, mean, noise, scales, counted)
        self.round = number

    def _short(self, step: Array) -> Array:
        """A step that moves no usual predictor too far, unless the model is linear."""
        if self._linear:
            return step
        far = math.sqrt(self._size) * float(np.linalg.norm(step)) / max(math.sqrt(self._expected(self.null)), 1e-300)
        return step * min(1.0, LONGEST_STEP / max(far, 1e-300))

    def _begin(self, score: Array, information: Array, noise: float, scales: tuple[float, ...]) -> None:
        """The rounding and a start from moments. What noise may make alone, is not believed."""
        information = information * scales[1]
        if self._linear:
            values, vectors = _directions(information, noise * scales[1])
            steps, error = (vectors.T @ score) * scales[0] / np.sqrt(values), noise * scales[0] / np.sqrt(values)
            steps *= np.maximum(1 - (error / np.maximum(np.abs(steps), 1e-300)) ** 2, 0.0)
            self._make_round(values, vectors)
            self.coefficients = self.coefficients + vectors @ steps
            return
        before = self._heaviest
        if self._constant is not None:
            everybody = float(self._constant @ information @ self._constant)
            hidden = noise * scales[0] * float(np.linalg.norm(self._constant))
            factor = 1 + float(self._constant @ score) * scales[0] / max(everybody, 1e-300)
            least = max(_COUNTS * hidden / max(everybody, 1e-300), 1e-3)
            self.null += math.log(min(max(factor, least), 1e3)) if everybody > 0 else 0.0
            self.coefficients = self.null * self._constant
        values, vectors = _directions(information, noise * scales[1], before)
        self._make_round(values * self._heaviest / before, vectors)

    def _make_round(self, values: Array, vectors: Array) -> None:
        """Go on where rows of the information that has these eigenvalues have the identity."""
        self.rounding = (vectors / np.sqrt(values)) @ vectors.T @ self.rounding
        self.coefficients = (vectors * np.sqrt(values)) @ vectors.T @ self.coefficients

    def _chosen(self, shares: Array, error: float, noise: float) -> tuple[float, float]:
        """The length at which later scores are cut, and the mean of what is cut off, by released ``shares`` of the cells."""
        edges, top = self._edges, int(np.argmax(shares))
        counted = np.where(shares >= _COUNTS * error, np.maximum(shares, 0.0), 0.0)
        empty = np.flatnonzero(counted[top:] == 0)
        last = top + int(empty[0]) - 1 if len(empty) else self._cells - 1
        if last < top:
            return float(edges[-1]), 0.0
        beyond = np.arange(self._cells) > last
        counted[beyond & (shares < _ALONE * error)] = 0.0
        middles, begin = edges * 2 ** (-0.5 / self._per_octave), max(last - _BACK * self._per_octave, 0)
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
        tails[: self._cells] += inside @ counted
        reads = self._rounds - BEFORE
        costs = self._size * (bounds * noise) ** 2 / reads + _BIAS * tails**2
        self.spread = float(counted @ middles**2) / self._size
        best = _longest_of_least(bounds, costs)
        if not self._linear:
            errors = np.sqrt((bounds * noise) ** 2 / reads + self.spread / max(self.records, 1.0))
            cheapest = _longest_of_least(bounds, np.where(tails <= _DRAWS * errors, costs, math.inf))
            if errors[cheapest] <= _DEARER * math.hypot(errors[best], tails[best]):
                best = cheapest
            return float(bounds[best]), float(tails[best])
        # No score within the bounds is longer than the upper end of its cell: nothing is supposed of cells that noise hides.
        most = np.maximum(edges - bounds[best], 0.0)
        return float(bounds[best]), max(float(shares @ most) + _SURE * error * float(np.linalg.norm(most)), 0.0)

    def _read_in(self, number: int, mean: Array, noise: float, scales: tuple[float, ...], counted: Array) -> None:
        """Take a round into the mean of those that are read, by its noise; one that is far from its answer begins anew."""
        size, many = self._size, len(self._upper[0])
        score, own = mean[:size] * scales[0], (self.clip / scales[0]) ** 2
        if self._is_full(number):
            self._take_information(self._matrix(mean[size : size + many]) * scales[1], noise * scales[1])
            self._take_squares(self._matrix(mean[size + many : size + 2 * many]) * scales[2], noise * scales[2])
            self.present = float(mean[-3]) * scales[3]
            self.deviations[3] = noise * scales[3]
        error = noise * scales[0]
        place = error if self._linear or number == self._first else float(self.deviations[0])
        if not self._linear:
            place = max(place, min(_NEAR / math.sqrt(size), _NEAR_NOISE * error))
        settled = self._settled(score, error, place)
        weight = self.weight if settled else 0.0
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
        self.deviations[0] = noise * self.clip / math.sqrt(weight + own)
        self.read = self.read + 1 if weight else 1
        self.deviations[4] = noise * scales[4] / math.sqrt(self.read)
        self.weight = weight + own if settled or self._linear else 0.0
        self.step = toward(self.information, self.score, float(self.deviations[1]))
        if number < self._rounds:
            self.step = self._short(self.step)
        elif LEAST_EIGENVALUE * float(self.deviations[1]) > 1:
            # Where z is round no direction has more than about 1, and what exceeds that much noise is noise.
            self.information = np.zeros_like(self.information)
        self.coefficients = self.place + self.step

    def _take_information(self, information: Array, error: float) -> None:
        """Take an information with such noise into what is known of it; where it depends on the place, the last counts most."""
        before = math.inf if self._linear else math.hypot(float(self.deviations[1]), 0.0 if self.weight else _DOUBTED)
        part = _part_of(error, before)
        self.information = self.information + part * (information - self.information)
        self.deviations[1] = error * math.sqrt(part)

    def _take_squares(self, squares: Array, error: float) -> None:
        part = _part_of(error, math.inf if self._linear else float(self.deviations[2]) or math.inf)
        self.squares = self.squares + part * (squares - self.squares)
        self.deviations[2] = error * math.sqrt(part)


def _longest_of_least(bounds: Array, costs: Array) -> int:
    """The place of the longest of the bounds that cost least: without noise one that cuts nothing wherever the step leads."""
    return int(np.argmax(np.where(costs <= costs.min(), bounds, 0.0)))


def _part_of(error: float, before: float) -> float:
    """How much what is released with such noise counts beside what was known ``before`` with other noise, from 0 to 1."""
    return 1.0 if error == 0 else 1 / (1 + (error / before) ** 2)


def _directions(information: Array, error: float, usual: float = 1.0) -> tuple[Array, Array]:
    """The eigenvalues of an information, none below the error, and its eigenvectors; ``usual``: how large these are."""
    values, vectors = np.linalg.eigh(information)
    return np.maximum(values, max(error, ROUNDING * float(np.abs(values).max()), ROUNDING * usual)), vectors


def _products(rows: Array, upper: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Array:
    return folded(rows[:, upper[0]] * rows[:, upper[1]], upper)
