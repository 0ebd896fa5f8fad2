"""Calibration: the least noise that keeps the target on many simulated executions, by exact accounting.

Works on transcripts, so it serves every protocol. With only one kind of noise the information matrix scales with its variance.
With noise that stays (``star``) and noise that is cancelled (``delta``), one eigendecomposition per execution and coalition
gives the leakage for every pair of levels: Lambda = basis diag(1 / (sigma_star^2 + sigma_delta^2 r)) basis', where r are the
release variances at unit ``delta`` without ``star``. It needs no assumption about dropouts or injection.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import numpy as np
from scipy.optimize import brentq

from quietmean.core.errors import InputError
from quietmean.core.rounding import round_up
from quietmean.entropy import Seed
from quietmean.planning.accuracy import LinearEstimate
from quietmean.planning.plan import Plan, Target
from quietmean.planning.scenarios import Scenario, draw_estimates, draw_scenario
from quietmean.privacy import mu_of_budget
from quietmean.privacy.coalitions import exceed_bound
from quietmean.privacy.gaussian import classical_mu
from quietmean.privacy.many import one_thread
from quietmean.protocols import Demand, Design, Protocol
from quietmean.protocols.dissemination import Dissemination


class Calibration(StrEnum):
    """``exact``: information matrix and analytic Gaussian, both levels optimised. The others are for comparison with the paper.

    ``exact-view``: information matrix, classical constant, sigma_star^2 = 1.3 * 2 ln(1.25 / delta) / (n_O epsilon^2).
    ``paper``: the same sigma_star; sigma_delta from IncA, Theorem 4.7 with xi as in its proof.
    """

    EXACT = "exact"
    EXACT_VIEW = "exact-view"
    PAPER = "paper"


# Broadcast costs n messages a party; beyond this many parties the releases spread by push-sum.
_BROADCAST_LIMIT = 200
# Noise is raised by this much over the worst simulated execution, so that the real one stays within the target.
_MARGIN = 0.02
# The papers' choice of sigma_star^2 over its lower bound (IncA, section 5.2).
_PAPER_EXCESS = 1.3
# Fewer executions and coalitions are tried the more parties there are, to answer in seconds.
_EFFORT = 480
# The error is predicted from more executions: they need no accounting.
_PREDICTIONS = 40_000
# sigma_delta / sigma_star is searched on this grid; among ratios within the tolerance of the best the smallest is taken, since it
# limits the damage of dropouts that nobody planned for.
_RATIOS = np.geomspace(1e-2, 1e3, 121)
_TOLERANCE = 0.01


def calibrate(
    target: Target,
    protocol: Protocol[Any],
    options: dict[str, Any] | None = None,
    *,
    calibration: Calibration = Calibration.EXACT,
    dissemination: Dissemination | None = None,
    executions: int | None = None,
    seed: Seed | None = None,
) -> Plan:
    """The plan of a protocol for a target. ``options`` override parameters such as rounds, schedule, injection.

    The guarantee is worst case over some simulated ``executions`` (schedule; dropouts as planned, and fewer; coalitions found
    from each party's own receivers and random ones) plus a margin of 2 % in standard deviation; the execution that really
    happens is certified on its own afterwards. Deterministic: the same target gives the same plan.
    """
    unknown = set(options or {}) - protocol.options
    if unknown:
        known = ", ".join(sorted(protocol.options)) or "none"
        raise InputError(f"protocol {protocol.name} has no option {min(unknown)!r}: it has {known}")
    demand = demand_of(target)
    if (design := protocol.design(demand, options or {})) is not None:
        return _designed(target, protocol, design, dissemination)
    draft = protocol.draft(target.parties, {**protocol.defaults(demand), **(options or {})})
    if not protocol.private:
        return Plan(
            target, protocol, draft, dissemination or _default_dissemination(target.parties), {"certificate": "no privacy"}
        )
    seed = seed or Seed.public("calibration", str(target.describe()), protocol.name, str(protocol.describe(draft)))
    count = executions or int(np.clip(_EFFORT // target.parties, 4, 16))
    tried = int(np.clip(10 * _EFFORT // target.parties, 6, 240))
    with one_thread():
        scenarios = [draw_scenario(target, protocol, draft, seed.derive(number), tried) for number in range(count)]
        if calibration == Calibration.EXACT:
            scenarios += draw_guards(target, protocol, draft, seed, tried, count // 2)
        planned = int(np.clip(_PREDICTIONS // target.parties, 16, 256))
        estimates = draw_estimates(target, protocol, draft, seed.derive("prediction"), planned)
        star, delta = choose_levels(target, scenarios, calibration, estimates)
    return Plan(
        target,
        protocol,
        protocol.with_noise(draft, star, delta),
        dissemination or _default_dissemination(target.parties),
        _prediction(target, scenarios, estimates, star, delta) | {"calibration": str(calibration)},
    )


def demand_of(target: Target) -> Demand:
    """What a protocol that designs itself is asked for."""
    return Demand(
        target.parties,
        target.dimension,
        target.epsilon,
        target.delta,
        target.sensitivity,
        target.colluding,
        target.dropouts,
    )


def _designed(target: Target, protocol: Protocol[Any], design: Design[Any], dissemination: Dissemination | None) -> Plan:
    prediction = {
        "mse_noise": float(f"{design.mse_noise:.6g}"),
        "mse_dropout_bias": float(f"{design.mse_dropout_bias:.6g}"),
        "certificate": design.certificate,
        "calibration": "direct",
    }
    return Plan(target, protocol, design.parameters, dissemination or _default_dissemination(target.parties), prediction)


def draw_guards(target: Target, protocol: Protocol[Any], draft: Any, seed: Seed, tried: int, count: int) -> list[Scenario]:
    """Executions in which fewer parties drop out than planned, from none upwards.

    The noise that dropouts leave behind hides the sum as well; a plan must not count on it.
    """
    fractions = np.linspace(0.0, target.dropouts, count if target.dropouts else 0, endpoint=False)
    return [
        draw_scenario(target, protocol, draft, seed.derive("guard", number), tried, float(fraction))
        for number, fraction in enumerate(fractions)
    ]


def choose_levels(
    target: Target, scenarios: list[Scenario], calibration: Calibration, estimates: list[LinearEstimate] | None = None
) -> tuple[float, float]:
    """(sigma_star, sigma_delta) that keep the target on all scenarios, rounded up; with a margin if ``exact``.

    ``estimates`` say what noise costs in executions with dropouts as planned; by default those of the scenarios.
    """
    estimates = estimates or [scenario.estimate for scenario in scenarios if scenario.dropouts == target.dropouts]
    exact = calibration == Calibration.EXACT
    if not exact and target.epsilon >= 1:
        raise InputError(
            f"calibration {calibration} uses a constant that is void for epsilon >= 1 ({target.epsilon:g}): use exact"
        )
    budget = mu_of_budget if exact else classical_mu
    largest_mu = budget(target.epsilon, target.delta) / target.sensitivity
    # The papers keep the worst simulated execution as it is.
    margin = 1 + _MARGIN if exact else 1.0
    if any(scenario.estimate.delta_variance is None for scenario in scenarios):
        return round_up(float(np.sqrt(max(s.worst_information(None) for s in scenarios))) / largest_mu * margin), 0.0
    if exact:
        star, ratio = _best_pair(scenarios, estimates, largest_mu)
        star = round_up(star * margin)
        return star, round_up(star * ratio)
    remaining = target.parties - target.colluding - int(target.dropouts * target.parties + 1e-9)
    star = float(np.sqrt(_PAPER_EXCESS / max(remaining, 1))) / largest_mu
    needed = max(required_delta(scenario, star, largest_mu, calibration) for scenario in scenarios)
    if not np.isfinite(needed):
        raise InputError(
            f"with {target.parties} parties, {target.colluding} colluding and dropouts {target.dropouts:g} some execution "
            "cannot be hidden at the papers' sigma_star: take more rounds or calibration exact"
        )
    return round_up(star), round_up(needed)


def required_delta(scenario: Scenario, star: float, largest_mu: float, calibration: Calibration) -> float:
    """The least sigma_delta that keeps mu <= ``largest_mu`` (unit sensitivity) at a given sigma_star; infinite if none does."""
    if calibration == Calibration.PAPER:
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
    return star * math.exp(float(brentq(excess, low, high, xtol=1e-12)))


def _best_pair(scenarios: list[Scenario], estimates: list[LinearEstimate], largest_mu: float) -> tuple[float, float]:
    """(sigma_star, ratio) of the least predicted noise variance that keeps the target on every scenario."""
    information = np.array([max(s.worst_information(ratio) for s in scenarios) for ratio in _RATIOS])
    star_variance = information / largest_mu**2
    from_star = np.mean([estimate.star_variance for estimate in estimates])
    from_delta = np.mean([estimate.delta_variance or 0.0 for estimate in estimates])
    predicted = star_variance * (from_star + from_delta * _RATIOS**2)
    chosen = int(np.argmax(predicted <= predicted.min() * (1 + _TOLERANCE)))
    return float(np.sqrt(star_variance[chosen])), float(_RATIOS[chosen])


def _default_dissemination(parties: int) -> Dissemination:
    if parties <= _BROADCAST_LIMIT:
        return Dissemination()
    return Dissemination("push-sum", rounds=2 * int(np.ceil(np.log2(parties))) + 20, out_degree=1)


def _prediction(
    target: Target, scenarios: list[Scenario], estimates: list[LinearEstimate], star: float, delta: float
) -> dict[str, Any]:
    """``exceed_probability``: that a fresh execution against as many coalitions spends more; 95 % confidence, Clopper-Pearson.

    The margin makes it far smaller in practice, but no more than this is proven.
    """
    planned = sum(scenario.dropouts == target.dropouts for scenario in scenarios)
    noise = np.mean([estimate.noise_variance(star, delta) for estimate in estimates])
    # Values spread uniformly over the domain: the assumption that turns lost values into an error.
    spread = (target.sensitivity**2 / target.dimension) / 12.0
    lost = np.mean([estimate.bias_square for estimate in estimates]) * spread
    return {
        "mse_noise": float(f"{noise:.6g}"),
        "mse_dropout_bias": float(f"{lost:.6g}"),
        "executions": len(scenarios),
        "certificate": f"worst of {len(scenarios)} simulated executions, each against {len(scenarios[0].release)} coalitions "
        f"of {target.colluding} (the receivers of each party, and random ones)",
        "exceed_probability": float(f"{exceed_bound(planned, 0):.3g}"),
        "margin": _MARGIN,
    }
