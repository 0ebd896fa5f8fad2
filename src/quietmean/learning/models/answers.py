r"""Estimates of a model from the rounds that are read, with their noise and the variance of sampling, whatever the model.

With H, U and J the mean information, score and squares of n records and :math:`d = H^{-1} U` the step from there, coefficients
have the variances :math:`H^{-1} (s_U^2 I + s_H^2 (|d|^2 I + d d') / 2) H^{-1}` of the noise and :math:`H^{-1} J H^{-1} / n` of
sampling (Huber 1967; White 1982), which holds where the model does not; J is drawn to H as far as noise may be why they differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.readable import some_of
from quietmean.learning.models.formulas import Level
from quietmean.learning.models.state import FitState, least_known
from quietmean.statistics.complete_records import whole_number
from quietmean.statistics.estimate import Estimate, Flag, HypothesisTest, chi_squared_test
from quietmean.statistics.estimates import Completeness, Estimates
from quietmean.statistics.paired_columns import Sampling

# How far coefficients may be from where they are in a direction that nothing is known of, as a standard deviation; that may be
# so much of a term's standard error, and turns of a direction by noise are up to so many deviations.
_PLAUSIBLE, _LEAK, _TURNED = 2.0, 0.7, 3.0
# A step of more standard errors, and of more deviations of noise, is not a last step.
_SETTLED, _BY_NOISE = 1.0, 3.0
# A part that is as near to none or all is that.
_WHOLE = 1e-3
# Outcomes differ at a level where that is more than so many deviations of the noise.
_APART = 2.0
# The part of records that were cut from which on the answer is another one; and what scores that are cut may do to a term, over
# its error: an interval of 95 % that is off by so much holds in 93 %.
_CUT, _DRAWN = 0.01, 0.4


# On which side of what is expected most scores are cut.
_SIDES = {0: "", 1: " (most of them above what is expected)", -1: " (most of them below what is expected)"}


def ratios_of(ratio: str) -> str:
    """Name several of a kind of ratio: odds ratios, ratios of means."""
    return ratio.replace("ratio", "ratios")


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit after its last round: ``scaling`` T of the rows' coefficients, ``names`` of the terms, and the columns that belong to
    the same term, ``groups``, by its name; ``levels`` that terms tell apart; ``parties``: their names, where these are known.
    ``some``: is it of the records that meet a condition?"""

    state: FitState
    scaling: Array
    names: tuple[str, ...]
    groups: Mapping[str, Sequence[int]]
    ratio: str
    headline: tuple[str, ...]
    levels: tuple[Level, ...] = ()
    parties: Sequence[str] = ()
    some: bool = False

    @cached_property
    def _directions(self) -> tuple[Array, Array]:
        """The inverse of the information in the directions in which it is known, (p, p), and the others, (p, k)."""
        values, vectors = np.linalg.eigh(self.state.information)
        known = values > least_known(values, self.state.errors.information)
        inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
        return inverse, vectors[:, ~known]

    @property
    def _plausible(self) -> float:
        return _PLAUSIBLE * math.sqrt(self.state.dispersion)

    @cached_property
    def _gradients(self) -> Array:
        """The gradients of the coefficients of each term by the score, (terms, p)."""
        return self.scaling.T @ self._directions[0]

    @cached_property
    def noise(self) -> Array:
        """The covariance of the terms' coefficients by noise, (terms, terms)."""
        step, errors = self.state.step, self.state.errors
        size = len(step)
        inner = errors.score**2 * np.eye(size)
        # How far a step would go in directions that nothing is known of.
        hidden = self._plausible**2 * self._directions[1].shape[1]
        inner += errors.information**2 / 2 * ((float(step @ step) + hidden) * np.eye(size) + np.outer(step, step))
        hidden_parts = self._plausible * self.scaling.T @ self._directions[1]
        noise: Array = self._gradients @ inner @ self._gradients.T + hidden_parts @ hidden_parts.T
        return noise

    @cached_property
    def sampling(self) -> Sampling:
        """The variance of each term, and what noise does to it."""
        state, errors, gradients = self.state, self.state.errors, self._gradients
        present = max(self._present, len(gradients) + 1.0)
        more = present / max(present - len(gradients), 1.0) / max(state.records, 1.0)
        squares = state.squares - np.outer(state.score, state.score)
        lengths = np.sum(gradients**2, axis=1)
        own = np.einsum("ij,jk,ik->i", gradients, squares, gradients)
        # What the model says, of the information itself.
        model = state.dispersion * np.einsum("ij,jk,ik->i", gradients, state.information, gradients)
        uncertainty = (errors.squares**2 + 4 * (state.dispersion * errors.information) ** 2) * lengths**2
        return Sampling(own * more, uncertainty * more**2).shrink_towards(model * more)

    @cached_property
    def unknown(self) -> Mask:
        """Say of each term: does it depend on a direction in which the noise hides the information?

        The noise turns such a direction a little towards the others, which the last step undoes to the first order.
        """
        weak = self._directions[1]
        # So few records fit any coefficients.
        if self._present < len(self.state.step) + 0.5:
            return np.ones(len(self.names), dtype=bool)
        if not weak.shape[1]:
            return np.zeros(len(self.names), dtype=bool)
        leaks = np.linalg.norm(self.scaling.T @ weak, axis=1)
        turned = self.state.errors.information * math.sqrt(weak.shape[1] / 2) * np.linalg.norm(self._gradients, axis=1)
        errors = np.sqrt(np.diag(self.noise) + np.maximum(self.sampling.variances, 0.0))
        return np.asarray((self._plausible * leaks > _LEAK * errors) & (leaks > _TURNED * turned))

    @cached_property
    def _without_interval(self) -> frozenset[str]:
        """The terms of which no interval holds: those that separate outcomes, and those that the last step still moved."""
        return frozenset(term for flag in (*self._separated, *self._unsettled) for term in flag.terms)

    @cached_property
    def _separated(self) -> list[Flag]:
        """About levels at which one step would go as far as where outcomes are none, or all that can be.

        Of such outcomes the score is as long as the information, or longer, wherever the coefficients are: of counts both are the
        mean m, and of log odds p and p (1 - p).
        """
        state, errors = self.state, self.state.errors
        names, terms = list[str](), set[str]()
        for level in self.levels:
            own = state.direction(level.coefficients)
            length = float(own @ own)
            noise = math.hypot(errors.score * math.sqrt(length), errors.information * length)
            if own @ state.information @ own - abs(own @ state.score) <= _APART * noise:
                names.append(level.name)
                terms.update(level.terms)
        estimated = tuple(name for name, hidden in zip(self.names, self.unknown, strict=True) if name in terms and not hidden)
        text = (
            "no record has the outcome, or all have it, as far as the noise shows. What depends on them may be any "
            "distance away. No interval holds for it, and nothing is printed"
        )
        return [Flag("separated", f"{some_of(names, 3)}: {text}", estimated)] if estimated else []

    @cached_property
    def _unsettled(self) -> list[Flag]:
        """About terms that the last step moved by more than it may."""
        noise = np.maximum(np.diag(self.noise), 0.0)
        errors = np.sqrt(noise + np.maximum(self.sampling.variances, 0.0))
        steps = np.abs(self.scaling.T @ self.state.step)
        moving = ~self.unknown & (steps > _SETTLED * errors) & (steps > _BY_NOISE * math.sqrt(2) * np.sqrt(noise))
        terms = tuple(name for name, moves in zip(self.names, moving, strict=True) if moves)
        text = (
            "the last step was longer than the standard error, so no interval holds for it, and nothing is printed. "
            "This happens where levels or columns tell the outcome without error (separation), or rounds are too few"
        )
        return [Flag("not-settled", f"{some_of(list(terms), 3)}: {text}", terms)] if terms else []

    @property
    def _changing(self) -> list[Flag]:
        """About parties that are in some of the rounds that the answer is read from, and not in others."""
        parts = self.state.counted
        places = np.flatnonzero((parts > _WHOLE) & (parts < 1 - _WHOLE)).tolist()
        if not places:
            return []
        named = self.parties or [f"party {place}" for place in range(len(parts))]
        names = some_of([f"{named[place]} (weight {parts[place]:.2f})" for place in places], 3)
        text = "in a part of the averaged rounds. The answer is about sites that changed, and no sum corrects for how they differ"
        return [Flag("changing-sites", f"{names}: {text}")]

    @cached_property
    def _drawn(self) -> frozenset[str]:
        """The terms that scores which are cut may have drawn away by more than an interval bears."""
        errors = np.sqrt(np.maximum(np.diag(self.noise), 0.0) + np.maximum(self.sampling.variances, 0.0))
        most = self.state.tail * np.linalg.norm(self._gradients, axis=1)
        return frozenset(name for name, far in zip(self.names, most > _DRAWN * errors, strict=True) if far)

    @cached_property
    def coefficients(self) -> Estimates:
        """The estimates of all terms."""
        return self._estimates(ratios=False)

    @cached_property
    def ratios(self) -> Estimates:
        """The exponentials of the coefficients."""
        return self._estimates(ratios=True)

    def _estimates(self, *, ratios: bool) -> Estimates:
        state, sampling = self.state, self.sampling
        values, noise = self.scaling.T @ state.coefficients, np.maximum(np.diag(self.noise), 0.0)
        degrees = sampling.degrees(noise, max(self._present - len(values), 1.0))
        rows = []
        for place, name in enumerate(self.names):
            if self.unknown[place] or name in self._without_interval:
                rows.append(Estimate.unknown(name, (0.0, math.inf) if ratios else (-math.inf, math.inf)))
                continue
            parts = (float(values[place]), float(noise[place]), float(sampling.variances[place]))
            df = float(degrees[place])
            if ratios:
                rows.append(Estimate.ratio(name, *parts, df))
                continue
            row = Estimate.normal(name, *parts, degrees=df)
            rows.append(row if name in self._drawn else row.tested(df))
        method = f"{ratios_of(self.ratio)}: exponentials of the coefficients of {state.method}" if ratios else state.method
        answer = Estimates.of(rows, flags=self._flags, headline=self.headline, method=method, tests=self._tests(values))
        return replace(answer, completeness=self._completeness, n=self._n)

    @property
    def _present(self) -> float:
        """How many records are complete."""
        return self.state.present * self.state.records

    @property
    def _completeness(self) -> Completeness:
        state = self.state
        # The number of records is public.
        here, error = whole_number(self._present, state.records), state.errors.present * state.records
        if self.some:
            return Completeness(here, math.nan, error, math.nan, math.nan, math.nan)
        return Completeness(here, state.records - here, error, error)

    @property
    def _n(self) -> Array:
        return np.tile([self._completeness.present, self._completeness.present_error], (len(self.names), 1))

    def _tests(self, values: Array) -> dict[str, HypothesisTest]:
        """Wald's, of terms of several coefficients, all 0 together."""
        state, gradients, tests = self.state, self._gradients, dict[str, HypothesisTest]()
        covariance = self.noise + state.dispersion * gradients @ state.information @ gradients.T / max(state.records, 1.0)
        # Of the diagonal, what holds whatever the model.
        model = np.maximum(np.diag(covariance), 1e-300)
        widened = np.sqrt(np.maximum((np.diag(self.noise) + self.sampling.variances) / model, 0.0))
        covariance *= np.outer(widened, widened)
        for name, places in self.groups.items():
            untested = self._without_interval | self._drawn
            hidden = self.unknown[list(places)].any() or any(self.names[place] in untested for place in places)
            if len(places) < 2 or hidden:
                continue
            own = np.ix_(places, places)
            eigenvalues = np.linalg.eigvalsh(covariance[own])
            if eigenvalues[0] <= 1e-12 * eigenvalues[-1]:
                continue
            wald = float(values[list(places)] @ np.linalg.solve(covariance[own], values[list(places)]))
            tests[name] = replace(chi_squared_test(wald, float(len(places)), "Wald's test"), about=name)
        return tests

    @property
    def _flags(self) -> tuple[Flag, ...]:
        state, flags = self.state, list[Flag]()
        if self.unknown.any():
            terms = tuple(name for name, hidden in zip(self.names, self.unknown, strict=True) if hidden)
            flags.append(
                Flag(
                    "not-identified",
                    f"{some_of(list(terms), 3)}: the noise hides their information, so nothing is known. Records "
                    "with a level may be too few, columns may nearly follow from each other, or terms may tell "
                    "outcomes without error",
                    terms,
                )
            )
        flags += self._unsettled
        flags += self._separated
        flags += self._changing
        error = state.errors.cut
        terms = tuple(name for name in self.names if name in self._drawn and name not in self._without_interval)
        if terms:
            text = (
                f"up to {100 * (max(state.cut, 0.0) + 2 * error):.2g} % of the records lie far off"
                f"{_SIDES[(state.side > 2 * error) - (state.side < -2 * error)]} and count with less weight, as in a robust "
                "regression. The estimate and its interval are those of that robust regression. Quote them as such, "
                f"not as those of {state.principle}. No p-value is printed"
            )
            flags.append(Flag("cut", f"{some_of(list(terms), 3)}: {text}", terms))
        elif state.bounded and state.cut > _CUT + 2 * error:
            flags.append(
                Flag(
                    "cut",
                    f"about {100 * state.cut:.0f} % of the records are beyond the public bounds of scores, "
                    "predictors or means. They count as if they were at the bounds. The answer is drawn towards no effect. "
                    "Choose wider bounds, or more rounds",
                )
            )
        return tuple(flags)
