"""Calibration: the least noise that keeps the target on many simulated executions, by exact accounting.

Works on transcripts, so it serves every protocol. With only one kind of noise the information matrix scales with its variance.
With noise that stays (``star``) and noise that is cancelled (``delta``), one eigendecomposition per execution and coalition
gives the leakage for every pair of levels: Lambda = basis diag(1 / (sigma_star^2 + sigma_delta^2 r)) basis', where r are the
release variances at unit ``delta`` without ``star``. It needs no assumption about dropouts or injection.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.lazy_scipy import optimize
from quietmean.core.rounding import round_up
from quietmean.core.schema import require_known
from quietmean.core.threads import one_thread
from quietmean.planning.accuracy import LinearEstimate
from quietmean.planning.choices import CalibrationMethod
from quietmean.planning.gate import try_gate
from quietmean.planning.large import WATCHED, worst_mu
from quietmean.planning.plan import Plan, require_foreseen
from quietmean.planning.scenarios import Scenario, draw_estimates, draw_execution, draw_scenario
from quietmean.privacy import mu_of_budget
from quietmean.privacy.coalitions import MOST_TRIED, exceed_bound, most_tried
from quietmean.privacy.gaussian import classical_mu
from quietmean.protocols import Design, Mechanism, SelfCalibrating, Target
from quietmean.protocols.eavesdropping import eavesdropping_text, is_random
from quietmean.protocols.result_broadcast import ResultBroadcast
from quietmean.randomness import Seed

# Broadcast costs n messages a party; beyond this many parties the releases spread by push-sum.
_BROADCAST_LIMIT = 200
# Noise is raised by this much over the worst simulated execution, so that the real one stays within the target.
_MARGIN = 0.02
# The papers' choice of sigma_star^2 over its lower bound (IncA, section 5.2).
_PAPER_EXCESS = 1.3
# Fewer executions and coalitions are tried the more parties there are, to answer in seconds. In units of one pair of parties for
# one coalition: what all executions may cost, and what drawing one costs. How many there are at least and at most.
_EFFORT, _BUDGET, _DRAWING = 480, 600_000, 1500
_FEWEST, _MOST = 4, 100
# The error is predicted from more executions: they need no accounting.
_PREDICTIONS = 20_000
# Noise is raised so often at most for the gate to let all simulated histories pass.
_ATTEMPTS = 6
# What trying a gate may cost by default: this many coalitions whatever they cost, or more, in multiplications; and on how many
# histories it is tried at most.
_GATE_COALITIONS, _GATE_EFFORT, _MOST_TRIALS = 6000, 3e11, 59
# At the gate a mu that equals the target's to 6 digits does not pass. Of a party that left all may be known that a guard leaves.
_BELOW_TARGET = 1.0 + 1e-4
_NO_GATE = (
    "no gate before the release: what happened is certified after it, and a priori only own noise counts; --trials (in Python "
    "trials) asks for one"
)
_UNFORESEEN = (
    "no gate before the release: nobody knows which messages are read; what happened is certified after it for those that the "
    "public seed draws, and a priori only own noise counts"
)
_OWN_NOISE = "own noise alone keeps the target, whoever colludes and whatever happens: no gate is needed"
# More parties than this are calibrated with a model of fewer.
_MODEL_FROM, _MODEL = 600, 300
# sigma_delta / sigma_star is searched on this grid; among ratios within the tolerance of the best the smallest is taken, since it
# limits the damage of more dropouts than planned.
_RATIOS = np.geomspace(1e-2, 1e3, 121)
_TOLERANCE = 0.01
# Of an epsilon, what rounding up may add. Deltas beyond a thousandth are nobody's; halves of epsilon that are tried.
_ROUNDED, _LARGEST_POWER, _MOST_HALVES = 1e-9, -3, 8


def calibrate(
    target: Target,
    protocol: Mechanism,
    *,
    calibration: CalibrationMethod | str = CalibrationMethod.EXACT,
    dissemination: ResultBroadcast | None = None,
    executions: int | None = None,
    trials: int | None = None,
    seed: Seed | None = None,
) -> Plan:
    """The plan of a configured protocol for a target: what is open in it, its noise above all, is chosen.

    The guarantee is worst case over some simulated ``executions`` (schedule; dropouts as planned, and fewer; coalitions found
    from each party's own receivers and random ones) plus a margin of 2 % in standard deviation; the execution that really
    happens is certified on its own. Where a protocol has a gate before its release, the parties hold it and all of
    ``trials`` fresh histories pass it: 299 of them show a chance of no result of at most 1 %, 59 one of 5 %. By default they are
    as many as take seconds, and none where not all coalitions can be tried: then there is no gate. Deterministic: the same target
    gives the same plan. Raises :class:`InputError` for what cannot be had, for a target that the arithmetic that runs would not
    keep, and for noise levels that are given.
    """
    calibration = CalibrationMethod(require_known("calibration", calibration, CalibrationMethod))
    protocol.refuse_levels()
    protocol.require_promise_if_read(target.eavesdropping)
    if trials is not None and protocol.gated:
        require_foreseen(target)
    if target.nats is not None and not (isinstance(protocol, SelfCalibrating) and protocol.keeps_nats):
        raise InputError(f"protocol {protocol.name} keeps a target in epsilon, none in nats: name adqsp, or give epsilon")

    def planned(goal: Target) -> Plan:
        return _calibrated(goal, protocol, calibration, dissemination, executions, trials, seed)

    with protocol.saying_what_was_chosen():
        protocol.require_enough(target.parties)
        plan = planned(target)
        require_kept(plan, planned)
    return plan


def _calibrated(
    target: Target,
    protocol: Mechanism,
    calibration: CalibrationMethod,
    dissemination: ResultBroadcast | None,
    executions: int | None,
    trials: int | None,
    seed: Seed | None,
) -> Plan:
    spread = dissemination or _default_dissemination(target.parties)
    if isinstance(protocol, SelfCalibrating) and protocol.designed:
        design = protocol.design(target)
        return Plan(target, design.protocol, spread, _designed(design))
    template = protocol.template(target)
    seed = seed or Seed.public("calibration", str(target.describe()), protocol.name, str(template.describe()))
    if not protocol.private:
        error = _predicted_error(target, template, _Levels(0.0, 0.0, 0.0, _estimates(target, template, seed), {}))
        return Plan(target, template.finalize(target), spread, {**error, "certificate": "no privacy"})
    with one_thread():
        if target.parties > _MODEL_FROM and calibration == CalibrationMethod.EXACT and executions is None:
            levels = _levels_of_many(target, protocol, template, seed)
        else:
            levels = _levels(target, template, calibration, executions, seed)
        tried = gate_trials(target, levels.apply(template), seed) if trials is None else trials
        gated = protocol.gated and calibration == CalibrationMethod.EXACT and tried > 0
        if gated:
            levels, gated = _least_kept(target, template, levels, tried, seed.derive("gate"))
        elif protocol.gated and calibration == CalibrationMethod.EXACT:
            why = _UNFORESEEN if is_random(target.eavesdropping) else _NO_GATE
            levels = replace(levels, certified={**levels.certified, "gate": why})
    error = _predicted_error(target, template, levels)
    prediction = {**error, **levels.certified, "margin": _MARGIN, "calibration": str(calibration)}
    return Plan(target, levels.apply(template).finalize(target), spread, prediction, gated=gated)


def require_kept(plan: Plan, planned: Callable[[Target], Plan]) -> None:
    """Noise is chosen in a model; what is drawn is discrete, and rare events cost some of delta.

    Raises :class:`InputError` where a plan that promises its target would cost more than that a priori, with the least delta or
    the largest epsilon that ``planned`` keeps, to a power of ten or of two.
    """
    if _is_kept(plan):
        return
    target = plan.target

    def keeps(goal: Target) -> bool:
        try:
            return _is_kept(planned(goal))
        except InputError:
            return False

    text = f"protocol {plan.protocol.name} cannot keep epsilon {target.epsilon:g} at delta {target.delta:g} with what it draws"
    powers = range(math.floor(math.log10(target.delta)) + 1, _LARGEST_POWER + 1)
    index = bisect.bisect_left(powers, True, key=lambda power: keeps(replace(target, delta=10.0**power)))
    if index < len(powers):
        raise InputError(f"{text}: choose a delta of at least 1e{powers[index]}")
    halves = range(1, _MOST_HALVES + 1)
    half = bisect.bisect_left(halves, True, key=lambda times: keeps(replace(target, epsilon=target.epsilon / 2**times)))
    if half < len(halves):
        raise InputError(f"{text}: choose an epsilon of at most {target.epsilon / 2 ** halves[half]:g}, or a larger delta")
    raise InputError(f"{text}: choose a larger delta, or another protocol")


def _is_kept(plan: Plan) -> bool:
    return not plan.promises_target or plan.epsilon_a_priori <= plan.target.epsilon * (1 + _ROUNDED)


@dataclass(frozen=True)
class _Levels:
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
        return template.with_noise(self.star, self.delta).guarded(self.hidden)


def _levels(target: Target, template: Mechanism, calibration: CalibrationMethod, executions: int | None, seed: Seed) -> _Levels:
    tried = int(np.clip(10 * _EFFORT // target.parties, 6, 240))
    count = executions or _trials(target, tried)
    scenarios = [draw_scenario(target, template, seed.derive(number), tried) for number in range(count)]
    if calibration == CalibrationMethod.EXACT:
        scenarios += draw_guards(target, template, seed, tried, count // 2)
    estimates = _estimates(target, template, seed)
    # The papers have no guard: their levels, for comparison, are chosen without one.
    guards = Guards(template, target) if calibration == CalibrationMethod.EXACT else None
    star, delta = choose_levels(target, scenarios, calibration, estimates, guards)
    # The paper's ways choose one level only, and so do protocols that have one; else the best ratio of two is looked for.
    choices = len(_RATIOS) if delta and calibration == CalibrationMethod.EXACT else 1
    return _Levels(star, delta, guards.variance if guards else 0.0, estimates, _certified(target, scenarios, choices))


def _least_kept(target: Target, template: Mechanism, levels: _Levels, trials: int, seed: Seed) -> tuple[_Levels, bool]:
    """What keeps the target whatever happens at the least error, and whether by a gate: else by own noise, as local privacy does.

    Where half of the parties collude and some leave, noise that is cancelled can cost more than it hides.
    """
    star = round_up(target.sensitivity / mu_of_budget(target.epsilon, target.delta))
    own = replace(levels, star=star, delta=0.0, hidden=0.0, certified={"certificate": _OWN_NOISE, "gate": _OWN_NOISE})
    try:
        passing = _passing(target, template, levels, trials, seed)
    except InputError:
        return own, False
    by_gate, by_noise = (_predicted_error(target, template, kept)["mse_noise"] for kept in (passing, own))
    return (own, False) if by_noise < by_gate else (passing, True)


def _passing(target: Target, template: Mechanism, levels: _Levels, trials: int, seed: Seed) -> _Levels:
    """These levels, or higher ones, with which the release of every one of ``trials`` fresh histories passes the gate."""
    for attempt in range(1, _ATTEMPTS + 1):
        protocol = levels.apply(template)
        histories = (draw_execution(target, protocol, seed.derive(attempt, number), target.dropouts) for number in range(trials))
        trial = try_gate(target, histories, attempt)
        if not trial.refused:
            return replace(levels, certified={**levels.certified, **trial.describe()})
        if not math.isfinite(trial.mu):
            break
        excess = trial.mu / mu_of_budget(target.epsilon, target.delta) * (1 + _MARGIN / 2)
        levels = replace(levels, star=round_up(levels.star * excess), delta=round_up(levels.delta * excess))
    raise InputError(
        f"with {target.parties} parties, {target.colluding} colluding and dropouts {target.dropouts:g} no noise was found with "
        "which the release is safe against every coalition: take more rounds or neighbours, or fewer colluders"
    )


def gate_trials(target: Target, protocol: Mechanism, seed: Seed) -> int:
    """On how many histories a plan tries its gate by default: on none where coalitions are too many to try them all.

    There a bound for all of them asks for more noise, up to several times as much, which a user has to want.
    """
    coalitions = math.comb(target.parties, target.colluding)
    if not protocol.gated or coalitions > MOST_TRIED or is_random(target.eavesdropping):
        return 0
    solver = draw_execution(target, protocol, seed.derive("effort"), target.dropouts).privacy(target.delta).solver
    if coalitions > most_tried(solver, target.colluding):
        return 0
    affordable = math.ceil(_GATE_EFFORT / (coalitions * solver.effort(target.colluding)))
    return min(max(affordable, _GATE_COALITIONS // coalitions), _MOST_TRIALS)


def _trials(target: Target, coalitions: int) -> int:
    """How many executions to simulate, each against so many coalitions at most."""
    cost = _DRAWING + target.parties**2 * min(math.comb(target.parties, target.colluding), coalitions)
    return int(np.clip(max(_BUDGET // cost, min(_EFFORT // target.parties, 16)), _FEWEST, _MOST))


def _levels_of_many(target: Target, protocol: Mechanism, template: Mechanism, seed: Seed) -> _Levels:
    """See :mod:`quietmean.planning.large`."""
    estimates = _estimates(target, template, seed)
    ratio = 0.0
    if any(estimate.delta_variance is not None for estimate in estimates):
        colluding = min(max(round(target.colluding * _MODEL / target.parties), 1), _MODEL - 1)
        model = replace(target, parties=_MODEL, colluding=colluding)
        # As many rounds as with all parties, where rounds can be chosen.
        smaller = protocol.filled(rounds=template.rounds) if "rounds" in protocol.options() else protocol
        exact = _levels(model, smaller.template(model), CalibrationMethod.EXACT, None, seed.derive("model"))
        ratio = exact.delta / exact.star
    unit = template.with_noise(1.0, ratio)
    fractions = sorted({0.0, target.dropouts})
    worst = max(worst_mu(target, unit, seed.derive("large", number), fraction) for number, fraction in enumerate(fractions))
    star = round_up(worst * target.sensitivity / mu_of_budget(target.epsilon, target.delta) * (1 + _MARGIN))
    delta = round_up(star * ratio)
    read = _where_read(target)
    certified = {
        "executions": len(fractions),
        "certificate": f"upper bounds for {WATCHED} parties in each of {len(fractions)} simulated executions, against "
        f"{target.colluding} colluders, among them all to whom those parties send{read}; "
        f"ratio of noise levels from {_MODEL} parties",
    }
    return _Levels(star, delta, Guards(template, target).variance, estimates, certified)


class Guards:
    """How much noise has to hide values before the release, and how large a guard that needs.

    A guard is further independent noise: what was calibrated without it holds all the more.
    """

    def __init__(self, template: Mechanism, target: Target) -> None:
        self._template = template
        self.variance = _BELOW_TARGET * (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2

    def deviation(self, star: float, delta: float) -> float:
        """The standard deviation of the guard at these noise levels; 0 where a protocol has none."""
        guarded = self._template.with_noise(star, delta).guarded(self.variance)
        return float(getattr(guarded, "sigma_guard", 0.0))


def _estimates(target: Target, template: Mechanism, seed: Seed) -> list[LinearEstimate]:
    count = int(np.clip(_PREDICTIONS // target.parties, 16, 256))
    # With a guard wherever there can be one, to see what it does to the result.
    observed = template.guarded(2.0 * template.variance_before_release())
    return draw_estimates(target, observed, seed.derive("prediction"), count)


def _designed(design: Design) -> dict[str, Any]:
    return {
        "mse_noise": float(f"{design.mse_noise:.6g}"),
        "mse_dropout_bias": float(f"{design.mse_dropout_bias:.6g}"),
        "certificate": design.certificate,
        "calibration": "direct",
    }


def draw_guards(target: Target, template: Mechanism, seed: Seed, tried: int, count: int) -> list[Scenario]:
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
    """(sigma_star, sigma_delta) that keep the target on all scenarios, rounded up; with a margin if ``exact``.

    ``estimates`` give the error from noise in executions with dropouts as planned; by default those of the scenarios. ``guards``
    add what hides values before the release. Raises :class:`InputError` if ``calibration`` is not exact and epsilon >= 1 or some
    execution cannot be hidden at the papers' sigma_star.
    """
    estimates = estimates or [scenario.estimate for scenario in scenarios if scenario.dropouts == target.dropouts]
    exact = calibration == CalibrationMethod.EXACT
    if not exact and target.epsilon >= 1:
        raise InputError(
            f"calibration {calibration} uses a constant that is void for epsilon >= 1 ({target.epsilon:g}): use exact"
        )
    budget = mu_of_budget if exact else classical_mu
    largest_mu = budget(target.epsilon, target.delta) / target.sensitivity
    # The papers add no margin to the worst simulated execution.
    margin = 1 + _MARGIN if exact else 1.0
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
            "cannot be hidden at the papers' sigma_star: take more rounds or calibration exact"
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
    return star * math.exp(float(optimize.brentq(excess, low, high, xtol=1e-12)))


def _best_pair(
    scenarios: list[Scenario], estimates: list[LinearEstimate], largest_mu: float, guards: Guards | None
) -> tuple[float, float]:
    """(sigma_star, ratio) of the least predicted noise variance that keeps the target on every scenario."""
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


def _default_dissemination(parties: int) -> ResultBroadcast:
    if parties <= _BROADCAST_LIMIT:
        return ResultBroadcast()
    return ResultBroadcast("push-sum", rounds=2 * int(np.ceil(np.log2(parties))) + 20, out_degree=1)


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


def _predicted_error(target: Target, template: Mechanism, levels: _Levels) -> dict[str, float]:
    """Per coordinate: noise, and lost values that are spread uniformly over the domain. Means over executions."""
    guard = float(getattr(levels.apply(template), "sigma_guard", 0.0))
    noise = np.mean([estimate.noise_variance(levels.star, levels.delta, guard) for estimate in levels.estimates])
    lost = np.mean([estimate.bias_square for estimate in levels.estimates]) * target.value_variance
    return {"mse_noise": float(f"{noise:.6g}"), "mse_dropout_bias": float(f"{lost:.6g}")}
