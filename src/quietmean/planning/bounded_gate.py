"""Noise levels of a plan whose gate cannot try every coalition: those of least error with which the bound for all passes.

Simulated coalitions say little about the ratio that serves such a gate: the bound asks for more noise that is cancelled. So the
bound itself chooses the ratio, for some parties of one simulated history. Whether histories pass is tried afterwards, and there
all parties count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from quietmean.core.bounds import round_up
from quietmean.planning.accuracy import draw_execution
from quietmean.planning.gate import as_recorded, tries_all, worst_bound
from quietmean.planning.levels import ChosenLevels, predicted_error
from quietmean.privacy import mu_of_budget
from quietmean.protocols import Mechanism, Target
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import with_guard
from quietmean.randomness import Seed

# Of so many parties that stay the bound is computed. The worst of all parties is a little worse off, over several histories too.
_WATCHED, _MARGIN = 8, 0.04
# Steps towards the level at a ratio, whose guard depends on it, and what may be missing of it.
_STEPS, _NEAR = 3, 0.01
# The ratio is searched by these factors, each until the error falls no more.
_FACTORS = (2.0, math.sqrt(2.0))


def levels_at_gate(target: Target, template: Mechanism, levels: ChosenLevels, seed: Seed) -> ChosenLevels:
    """Levels to try a gate with: those of least error by the bound, or ``levels`` where it tries every coalition."""
    execution = draw_execution(target, template, seed.derive("bounded"), target.dropouts)
    if not levels.star * levels.delta or execution.interception is not None or tries_all(target, execution):
        return levels

    def error(star: float, delta: float) -> float:
        return predicted_error(target, template, replace(levels, star=star, delta=delta))["mse_noise"]

    star, delta = BoundedGate(target, template, levels.hidden, execution).levels(levels.star, levels.delta, error)
    return replace(levels, star=star, delta=delta)


class BoundedGate:
    """A gate on one simulated history of a protocol whose ``template`` lacks noise alone."""

    def __init__(self, target: Target, template: Mechanism, hidden: float, execution: Execution) -> None:
        self._target, self._template, self._hidden = target, template, hidden
        stay = np.nonzero(execution.trace.finished)[0]
        self._gone = frozenset(np.nonzero(~execution.trace.finished)[0].tolist())
        # Evenly spread, so that nobody's number matters.
        self._watched = frozenset(stay[:: max(1, math.ceil(len(stay) / _WATCHED))].tolist())
        self._execution = execution.with_trace(as_recorded(execution.schedule, execution.trace))
        self._limit = mu_of_budget(target.epsilon, target.delta)

    def star(self, ratio: float, first: float) -> float:
        """sigma_star for which the bound passes if sigma_delta is ``ratio`` times as large; infinite if nothing hides values."""
        star, factor = first, 0.0
        for _ in range(_STEPS):
            if abs(factor - 1.0) < _NEAR:
                break
            protocol = with_guard(self._template.with_noise(star, ratio * star), self._hidden)
            mu = worst_bound(replace(self._execution, protocol=protocol), self._target, self._gone, self._watched)
            factor = mu / self._limit
            star *= factor
            if not 0 < star < math.inf:
                return math.inf
        return star

    def levels(self, star: float, delta: float, error: Callable[[float, float], float]) -> tuple[float, float]:
        """The (sigma_star, sigma_delta) of the least ``error`` of both, from a first guess; the guess where no ratio is
        better."""
        found: dict[float, tuple[float, float]] = {}

        def at(ratio: float, first: float) -> float:
            needed = self.star(ratio, first) * (1 + _MARGIN)
            found[ratio] = (error(needed, ratio * needed) if needed < math.inf else math.inf), needed
            return found[ratio][0]

        best = delta / star
        if not math.isfinite(at(best, star)):
            return star, delta
        for factor in _FACTORS:
            for step in (factor, 1 / factor):
                while best * step not in found and at(best * step, found[best][1]) < found[best][0]:
                    best *= step
        return round_up(found[best][1]), round_up(best * found[best][1])
