"""Noise levels: the least noise that keeps the target on simulated executions, by exact accounting.

Works on transcripts, so it serves every protocol. With only one kind of noise the information matrix scales with its variance.
With noise that stays (``star``) and noise that is cancelled (``delta``), one eigendecomposition per execution and coalition
gives the leakage for every pair of levels: Lambda = basis diag(1 / (sigma_star^2 + sigma_delta^2 r)) basis', where r are the
release variances at unit ``delta`` without ``star``. It needs no assumption about dropouts or injection.

Noise levels of a plan whose gate cannot try every coalition: those of least error with which the bound for all passes.

Simulated coalitions say little about the ratio that serves such a gate: the bound asks for more noise that is cancelled. So the
bound itself chooses the ratio, for some parties of one simulated history. Whether histories pass is tried afterwards, and there
all parties count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from quietmean.core.bounds import round_up
from quietmean.core.errors import InputError
from quietmean.core.roots import root_between
from quietmean.planning.accuracy import WATCHED, LinearEstimate, Scenario, draw_estimates, draw_execution, draw_scenario, worst_mu
from quietmean.planning.choices import CalibrationMethod
from quietmean.planning.gate import as_recorded, tries_all, worst_bound
from quietmean.privacy import mu_of_budget
from quietmean.privacy.coalitions import exceed_bound
from quietmean.privacy.composition import classical_mu
from quietmean.protocols import Mechanism, Target
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import hidden_variance, with_guard
from quietmean.protocols.target import eavesdropping_text
from quietmean.randomness import Seed

# Noise is raised by this much over the worst simulated execution, so that the real one stays within the target.
MARGIN = 0.02
# The papers' choice of sigma_star^2 over its lower bound (IncA, section 5.2).
_PAPER_EXCESS = 1.3
# Fewer executions and coalitions are tried the more parties there are, to answer in seconds. In units of one pair of parties for
# one coalition: what all executions may cost, and what drawing one costs. How many there are at least and at most.
_EFFORT, _BUDGET, _DRAWING = 480, 600_000, 1500
_FEWEST, _MOST = 4, 100
# At least so many coalitions are tried. Up to so many rounds they are not fewer the more rounds there are.
_LEAST_TRIED, _USUAL_ROUNDS = 6, 14
# The error is predicted from more executions: they need no accounting.
_PREDICTIONS = 20_000
# At the gate a mu that equals the target's to 6 digits does not pass. Of a party that left all may be known that a guard leaves.
_BELOW_TARGET = 1.0 + 1e-4
# Many parties are calibrated with a model of so many.
MODEL = 300
# So many templates that were tried are remembered.
_KEPT = 64
# sigma_delta / sigma_star is searched on this grid; of ratios within the tolerance of the best the smallest is taken, since it
# limits the damage of more dropouts than planned.
_RATIOS = np.geomspace(1e-2, 1e3, 121)
_TOLERANCE = 0.01


@dataclass(frozen=True)
class ChosenLevels:
    """Noise levels, how they enter the result (``estimates``), and what is certified.

    ``hidden``: the variance that hides a value before its owner's release, at least; 0 where nothing is asked.
    """

    star: float
    delta: float
    hidden: float
    estimates: Sequence[LinearEstimate]
    certified: Mapping[str, Any]

    def apply(self, template: Mechanism) -> Mechanism:
        """The template with these levels."""
        return with_guard(template.with_noise(self.star, self.delta), self.hidden)


def find_levels(
    target: Target, template: Mechanism, calibration: CalibrationMethod, executions: int | None, seed: Seed, *, gated: bool
) -> ChosenLevels:
    """The levels of least predicted error for one template. ``gated``: a gate will ask what is known before the release."""
    tried = _coalitions_tried(target, template)
    count = executions or _trials(target, tried)
    scenarios = [draw_scenario(target, template, seed.derive(number), tried) for number in range(count)]
    if calibration == CalibrationMethod.EXACT:
        scenarios += draw_fewer_gone(target, template, seed, tried, count // 2)
    estimates = estimates_of(target, template, seed)
    # Without a gate nobody asks what is known before the release: what hides that would cost error, and promise nothing.
    guards = Guards(template, target) if gated else None
    star, delta = choose_levels(target, scenarios, calibration, estimates, guards)
    # The paper's ways choose one level only, and so do protocols that have one; else the best ratio of two is looked for.
    choices = len(_RATIOS) if delta and calibration == CalibrationMethod.EXACT else 1
    return ChosenLevels(star, delta, guards.variance if guards else 0.0, estimates, _certified(target, scenarios, choices))


def _coalitions_tried(target: Target, template: Mechanism) -> int:
    """All where they are few; else fewer the more parties and rounds there are."""
    most = int(np.clip(10 * _EFFORT // target.parties, _LEAST_TRIED, 240))
    if math.comb(target.parties, target.colluding) <= most or template.rounds <= _USUAL_ROUNDS:
        return most
    return max(_LEAST_TRIED, most * _USUAL_ROUNDS // template.rounds)


def _trials(target: Target, coalitions: int) -> int:
    """How many executions to simulate, each against so many coalitions at most."""
    cost = _DRAWING + target.parties**2 * min(math.comb(target.parties, target.colluding), coalitions)
    return int(np.clip(max(_BUDGET // cost, min(_EFFORT // target.parties, 16)), _FEWEST, _MOST))


def find_levels_of_many(target: Target, template: Mechanism, seed: Seed) -> ChosenLevels:
    """Levels for many parties, without a gate; see :mod:`quietmean.planning.accuracy`."""
    estimates = estimates_of(target, template, seed)
    ratio = 0.0
    if any(estimate.delta_variance is not None for estimate in estimates):
        ratio = try_levels(model_of(target, MODEL), template, seed.derive("model"), gated=False).ratio
    unit = template.with_noise(1.0, ratio)
    fractions = sorted({0.0, target.dropouts})
    worst = max(worst_mu(target, unit, seed.derive("large", number), fraction) for number, fraction in enumerate(fractions))
    star = round_up(worst * target.sensitivity / mu_of_budget(target.epsilon, target.delta) * (1 + MARGIN))
    delta = round_up(star * ratio)
    read = _where_read(target)
    certified = {
        "executions": len(fractions),
        "certificate": f"upper bounds for {WATCHED} parties in each of {len(fractions)} simulated executions, against "
        f"{target.colluding} colluders, with all to whom those parties send{read}. "
        f"The ratio of noise levels is from {MODEL} parties",
    }
    return ChosenLevels(star, delta, 0.0, estimates, certified)


def model_of(target: Target, parties: int) -> Target:
    """The target for no more than so many parties, of whom as large a part colludes."""
    if target.parties <= parties:
        return target
    colluding = min(max(round(target.colluding * parties / target.parties), 1), parties - 1)
    return replace(target, parties=parties, colluding=colluding)


@dataclass(frozen=True)
class TriedNoise:
    """What a few simulated executions say of a template: ``error``, the variance of the noise per coordinate, and the levels."""

    star: float
    delta: float
    error: float

    @property
    def ratio(self) -> float:
        return self.delta / self.star


# A search asks again for what it has tried, once it comes to the next thing that is open.
@lru_cache(_KEPT)
def try_levels(target: Target, template: Mechanism, seed: Seed, *, gated: bool) -> TriedNoise:
    """About what :func:`find_levels` would find, from fewer executions: to compare templates under the same seed."""
    tried, count = int(np.clip(960 // target.parties, 4, 24)), int(np.clip(160 // target.parties, 1, 12))
    scenarios = [draw_scenario(target, template, seed.derive(number), tried) for number in range(count)]
    scenarios += draw_fewer_gone(target, template, seed, tried, max(1, count // 2))
    estimates = estimates_of(target, template, seed, int(np.clip(4000 // target.parties, 16, 64)))
    guards = Guards(template, target) if gated else None
    star, delta = choose_levels(target, scenarios, CalibrationMethod.EXACT, estimates, guards)
    levels = ChosenLevels(star, delta, guards.variance if guards else 0.0, estimates, {})
    return TriedNoise(star, delta, predicted_error(target, template, levels)["mse_noise"])


class Guards:
    """How much noise has to hide values before the release, and how large a guard that needs.

    A guard is further independent noise: what was calibrated without it holds all the more.
    """

    def __init__(self, template: Mechanism, target: Target) -> None:
        self._template = template
        self.variance = _BELOW_TARGET * (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2

    def deviation(self, star: float, delta: float) -> float:
        """The standard deviation of the guard at these noise levels; 0 where a protocol has none."""
        guarded = with_guard(self._template.with_noise(star, delta), self.variance)
        return float(getattr(guarded, "sigma_guard", 0.0))


def estimates_of(target: Target, template: Mechanism, seed: Seed, count: int | None = None) -> list[LinearEstimate]:
    """How noise and values enter the result, in ``count`` executions with dropouts as planned."""
    count = count or int(np.clip(_PREDICTIONS // target.parties, 16, 256))
    # With a guard wherever there can be one, to see what it does to the result.
    observed = with_guard(template, 2.0 * hidden_variance(template))
    return draw_estimates(target, observed, seed.derive("prediction"), count)


def draw_fewer_gone(target: Target, template: Mechanism, seed: Seed, tried: int, count: int) -> list[Scenario]:
    """Executions in which fewer parties drop out than planned, from none upwards.

    The noise that dropouts leave behind hides the sum as well; a plan must not count on it.
    """
    fractions = np.linspace(0.0, target.dropouts, count if target.dropouts else 0, endpoint=False)
    return [
        draw_scenario(target, template, seed.derive("guard", number), tried, float(fraction))
        for number, fraction in enumerate(fractions)
    ]


def choose_levels(
    target: Target,
    scenarios: list[Scenario],
    calibration: CalibrationMethod,
    estimates: list[LinearEstimate] | None = None,
    guards: Guards | None = None,
) -> tuple[float, float]:
    """The (sigma_star, sigma_delta) that keep the target on all scenarios, rounded up; with a margin if ``exact``.

    ``estimates`` give the error from noise in executions with dropouts as planned; by default those of the scenarios. ``guards``
    add what hides values before the release. Raises :class:`InputError` if ``calibration`` is not exact and epsilon >= 1 or some
    execution cannot be hidden at the papers' sigma_star.
    """
    estimates = estimates or [scenario.estimate for scenario in scenarios if scenario.dropouts == target.dropouts]
    exact = calibration == CalibrationMethod.EXACT
    if not exact and target.epsilon >= 1:
        raise InputError(
            f"calibration {calibration} uses a constant that is void for epsilon >= 1 ({target.epsilon:g}). Use exact."
        )
    budget = mu_of_budget if exact else classical_mu
    largest_mu = budget(target.epsilon, target.delta) / target.sensitivity
    # The papers add no margin to the worst simulated execution.
    margin = 1 + MARGIN if exact else 1.0
    if any(scenario.estimate.delta_variance is None for scenario in scenarios):
        return round_up(float(np.sqrt(max(s.worst_information(None) for s in scenarios))) / largest_mu * margin), 0.0
    if exact:
        star, ratio = _best_pair(scenarios, estimates, largest_mu, guards)
        star = round_up(star * margin)
        return star, round_up(star * ratio)
    remaining = target.responding - target.colluding
    star = float(np.sqrt(_PAPER_EXCESS / max(remaining, 1))) / largest_mu
    needed = max(required_delta(scenario, star, largest_mu, calibration) for scenario in scenarios)
    if not np.isfinite(needed):
        raise InputError(
            f"with {target.parties} parties, {target.colluding} colluding and dropouts {target.dropouts:g} some execution "
            "cannot be hidden at the papers' sigma_star. Take more rounds or calibration exact."
        )
    return round_up(star), round_up(needed)


def required_delta(scenario: Scenario, star: float, largest_mu: float, calibration: CalibrationMethod) -> float:
    """The least sigma_delta that keeps mu <= ``largest_mu`` (unit sensitivity) at a given sigma_star; infinite if none does."""
    if calibration == CalibrationMethod.PAPER:
        slack = largest_mu**2 - scenario.paper_star / star**2
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.sqrt(np.where(slack > 0, scenario.paper_delta / slack, np.inf).max()))

    def excess(log_ratio: float) -> float:
        return scenario.worst_information(math.exp(log_ratio)) - (star * largest_mu) ** 2

    low, high = math.log(_RATIOS[0]), math.log(_RATIOS[-1])
    if excess(high) > 0:
        return math.inf
    if excess(low) <= 0:
        return star * float(_RATIOS[0])
    return star * math.exp(root_between(excess, low, high, 1e-12))


def _best_pair(
    scenarios: list[Scenario], estimates: list[LinearEstimate], largest_mu: float, guards: Guards | None
) -> tuple[float, float]:
    """The (sigma_star, ratio) of the least predicted noise variance that keeps the target on every scenario."""
    information = np.array([max(s.worst_information(ratio) for s in scenarios) for ratio in _RATIOS])
    star_variance = information / largest_mu**2
    from_star = np.mean([estimate.star_variance for estimate in estimates])
    from_delta = np.mean([estimate.delta_variance or 0.0 for estimate in estimates])
    from_guard = np.mean([estimate.guard_variance for estimate in estimates])
    predicted = star_variance * (from_star + from_delta * _RATIOS**2)
    if guards and from_guard:
        levels = zip(np.sqrt(star_variance).tolist(), _RATIOS.tolist(), strict=True)
        predicted += from_guard * np.array([guards.deviation(star, star * ratio) ** 2 for star, ratio in levels])
    chosen = int(np.argmax(predicted <= predicted.min() * (1 + _TOLERANCE)))
    return float(np.sqrt(star_variance[chosen])), float(_RATIOS[chosen])


def _certified(target: Target, scenarios: list[Scenario], choices: int) -> dict[str, Any]:
    """``exceed_probability``: a bound on that of a fresh execution, against as many coalitions, to spend more; 95 % confidence.

    Clopper-Pearson for the levels of noise that were chosen on these very executions, out of ``choices`` ratios of the two. The
    margin makes it far smaller in practice, but no more than this is proven.
    """
    planned = sum(scenario.dropouts == target.dropouts for scenario in scenarios)
    read = _where_read(target)
    return {
        "executions": len(scenarios),
        "certificate": f"worst of {len(scenarios)} simulated executions, each against {len(scenarios[0].release)} coalitions "
        f"of {target.colluding} (the receivers of each party, and random ones){read}",
        "exceed_probability": float(f"{exceed_bound(planned, 0, choices=choices):.3g}"),
    }


def _where_read(target: Target) -> str:
    """What a certificate says of an eavesdropper; nothing without one."""
    return "" if target.eavesdropping is None else f", where {eavesdropping_text(target.eavesdropping)}"


def predicted_error(target: Target, template: Mechanism, levels: ChosenLevels) -> dict[str, float]:
    """Per coordinate: noise, and lost values that are spread uniformly over the domain. Means over executions."""
    guard = float(getattr(levels.apply(template), "sigma_guard", 0.0))
    noise = np.mean([estimate.noise_variance(levels.star, levels.delta, guard) for estimate in levels.estimates])
    lost = np.mean([estimate.bias_square for estimate in levels.estimates]) * target.value_variance
    return {"mse_noise": float(f"{noise:.6g}"), "mse_dropout_bias": float(f"{lost:.6g}")}


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
