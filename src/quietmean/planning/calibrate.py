"""Calibration: the least noise that keeps the target on many simulated executions, by exact accounting.

Works on transcripts, so it serves every protocol. With only one kind of noise the information matrix scales with its variance.
With noise that stays (``star``) and noise that is cancelled (``delta``), one eigendecomposition per execution and coalition
gives the leakage for every pair of levels: Lambda = basis diag(1 / (sigma_star^2 + sigma_delta^2 r)) basis', where r are the
release variances at unit ``delta`` without ``star``. It needs no assumption about dropouts or injection.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.entropy import Seed
from quietmean.graphs import churn
from quietmean.planning.accuracy import LinearEstimate, linear_estimate
from quietmean.planning.plan import Plan, Target
from quietmean.privacy import mu_of_budget
from quietmean.privacy.coalitions import neighbour_coalitions, random_coalitions
from quietmean.privacy.many import CoalitionSolver, one_thread
from quietmean.protocols import Protocol
from quietmean.protocols.dissemination import Dissemination
from quietmean.protocols.execution import Execution
from quietmean.transcript import Transcript

Array = NDArray[np.float64]

# Broadcast costs n messages a party; beyond this many parties the releases spread by push-sum.
_BROADCAST_LIMIT = 200
# Noise is raised by this much over the worst simulated execution, so that the real one stays within the target.
_MARGIN = 0.02
# Fewer executions and coalitions are tried the more parties there are, to answer in seconds.
_EFFORT = 480
# sigma_delta / sigma_star is searched on this grid; among ratios within the tolerance of the best the smallest is taken, since it
# limits the damage of dropouts that nobody planned for.
_RATIOS = np.geomspace(1e-2, 1e3, 121)
_TOLERANCE = 0.01


@dataclass(frozen=True, eq=False)
class _Scenario:
    """One simulated execution: how it leaks against several coalitions, and how noise enters its estimate."""

    squares: Array  # basis ** 2, shape (coalitions, n_H, n_H)
    release: Array  # release variances at unit delta without star, or at unit star, shape (coalitions, n_H)
    estimate: LinearEstimate

    def worst_information(self, ratio: float | None) -> float:
        """max Lambda_ii over parties and coalitions at sigma_star = 1 and sigma_delta = ratio (None: there is no delta noise)."""
        release = self.release if ratio is None else 1.0 + ratio**2 * self.release
        return float(np.einsum("cij,cj->ci", self.squares, 1.0 / release).max())


def calibrate(
    target: Target,
    protocol: Protocol[Any],
    options: dict[str, Any] | None = None,
    *,
    dissemination: Dissemination | None = None,
    executions: int | None = None,
    seed: Seed | None = None,
) -> Plan:
    """The plan of a protocol for a target. ``options`` override parameters such as rounds, schedule, injection.

    The guarantee is worst case over some simulated ``executions`` (schedule, dropouts, coalitions found from each party's own
    receivers and random ones) plus a margin of 2 % in standard deviation; the execution that really happens is certified on its
    own afterwards. Deterministic: the same target gives the same plan.
    """
    unknown = set(options or {}) - protocol.options
    if unknown:
        known = ", ".join(sorted(protocol.options)) or "none"
        raise InputError(f"protocol {protocol.name} has no option {min(unknown)!r}: it has {known}")
    draft = protocol.draft(target.parties, options or {})
    if not protocol.private:
        return Plan(
            target, protocol, draft, dissemination or _default_dissemination(target.parties), {"certificate": "no privacy"}
        )
    seed = seed or Seed.public("calibration", str(target.describe()), protocol.name, str(protocol.describe(draft)))
    with one_thread():
        return _calibrate(target, protocol, draft, dissemination, executions, seed)


def _calibrate(
    target: Target, protocol: Protocol[Any], draft: Any, dissemination: Dissemination | None, executions: int | None, seed: Seed
) -> Plan:
    largest_mu = mu_of_budget(target.epsilon, target.delta) / target.sensitivity
    count = executions or int(np.clip(_EFFORT // target.parties, 4, 24))
    tried = int(np.clip(10 * _EFFORT // target.parties, 6, 240))
    scenarios = [_scenario(target, protocol, draft, seed.derive(number), tried) for number in range(count)]
    if any(scenario.estimate.delta_variance is None for scenario in scenarios):
        star, ratio = np.sqrt(max(s.worst_information(None) for s in scenarios)) / largest_mu, 0.0
    else:
        star, ratio = _best_pair(scenarios, largest_mu)
    star = _round_up(float(star) * (1 + _MARGIN))
    delta = _round_up(star * ratio)
    parameters = protocol.with_noise(draft, star, delta)
    return Plan(
        target,
        protocol,
        parameters,
        dissemination or _default_dissemination(target.parties),
        _prediction(target, scenarios, star, delta),
    )


def _best_pair(scenarios: list[_Scenario], largest_mu: float) -> tuple[float, float]:
    """(sigma_star, ratio) of the least predicted noise variance that keeps the target on every scenario."""
    information = np.array([max(s.worst_information(ratio) for s in scenarios) for ratio in _RATIOS])
    star_variance = information / largest_mu**2
    from_star = np.mean([s.estimate.star_variance for s in scenarios])
    from_delta = np.mean([s.estimate.delta_variance for s in scenarios if s.estimate.delta_variance is not None])
    predicted = star_variance * (from_star + from_delta * _RATIOS**2)
    chosen = int(np.argmax(predicted <= predicted.min() * (1 + _TOLERANCE)))
    return float(np.sqrt(star_variance[chosen])), float(_RATIOS[chosen])


def _scenario(target: Target, protocol: Protocol[Any], draft: Any, seed: Seed, tried: int) -> _Scenario:
    schedule = protocol.schedule(draft, target.parties, seed.derive("schedule"))
    trusted = protocol.trusted(draft)
    history = churn(seed.derive("churn"), schedule.rounds, target.parties, permanent=target.dropouts if schedule.rounds else 0.0)
    history.online[:, list(trusted)] = True
    execution = Execution(protocol, draft, schedule, history, target.sensitivity, np.ones(target.parties))
    transcript = execution.transcript()
    solver = CoalitionSolver(transcript)
    # The draft has unit noise: taking sigma_star^2 = 1 away leaves what the cancelled noise hides.
    own = 1.0 if "delta" in transcript.noise_group else 0.0
    squares, release = [], []
    for coalition in _coalitions(transcript, target.colluding, trusted, tried, seed):
        information = solver.information(coalition)
        squares.append(information.basis**2)
        release.append(information.release - own)
    return _Scenario(np.array(squares), np.array(release), linear_estimate(transcript, execution.weights))


def _coalitions(
    transcript: Transcript, size: int, trusted: frozenset[PartyId], tried: int, seed: Seed
) -> list[tuple[PartyId, ...]]:
    """All coalitions if they are few; else those next to each party and random ones."""
    # A party that is trusted by definition colludes with nobody; the guarantee says so.
    able = [party for party in range(transcript.parties) if party not in trusted]
    size = min(size, len(able) - (not trusted))
    if math.comb(len(able), size) <= tried:
        return list(itertools.combinations(able, size))
    near = [coalition for coalition in neighbour_coalitions(transcript, size) if not trusted & set(coalition)]
    chosen = near[: tried // 2]
    return [*chosen, *random_coalitions(able, size, tried - len(chosen), seed.derive("coalitions"))]


def _round_up(sigma: float) -> float:
    """To 6 significant digits, up: machines whose libraries differ in the last bits get the same plan."""
    if sigma == 0.0:
        return 0.0
    digit = 10.0 ** (np.floor(np.log10(sigma)) - 5)
    return float(np.format_float_positional(np.ceil(sigma / digit - 1e-6) * digit, precision=6, fractional=False))


def _default_dissemination(parties: int) -> Dissemination:
    if parties <= _BROADCAST_LIMIT:
        return Dissemination()
    return Dissemination("push-sum", rounds=2 * int(np.ceil(np.log2(parties))) + 20, out_degree=1)


def _prediction(target: Target, scenarios: list[_Scenario], star: float, delta: float) -> dict[str, Any]:
    noise = np.mean([s.estimate.noise_variance(star, delta) for s in scenarios])
    # Values spread uniformly over the domain: the assumption that turns lost values into an error.
    spread = (target.sensitivity**2 / target.dimension) / 12.0
    lost = np.mean([s.estimate.bias_square for s in scenarios]) * spread
    return {
        "mse_noise": float(f"{noise:.6g}"),
        "mse_dropout_bias": float(f"{lost:.6g}"),
        "executions": len(scenarios),
        "certificate": f"worst of {len(scenarios)} simulated executions, each against {len(scenarios[0].squares)} coalitions "
        f"of {target.colluding} (the receivers of each party, and random ones)",
        "margin": _MARGIN,
    }
