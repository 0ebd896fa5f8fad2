"""Calibration: a plan's noise, its rounds and its gate, so that the target is kept at the least predicted error."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from quietmean.core.bounds import round_up
from quietmean.core.errors import InputError
from quietmean.core.readable import delta_shown
from quietmean.core.schema import OPEN, filled, options_of, parameters_of, require_known, saying_what_was_chosen
from quietmean.core.workers import one_thread
from quietmean.planning.accuracy import draw_execution
from quietmean.planning.choices import CalibrationMethod
from quietmean.planning.gate import tries_all, try_gate
from quietmean.planning.levels import (
    MARGIN,
    ChosenLevels,
    estimates_of,
    find_levels,
    find_levels_of_many,
    levels_at_gate,
    model_of,
    predicted_error,
    try_levels,
)
from quietmean.planning.plan import Plan, require_foreseen
from quietmean.privacy import mu_of_budget
from quietmean.privacy.coalitions import MOST_TRIED
from quietmean.protocols import Design, Mechanism, Target
from quietmean.protocols.interception import require_promise_if_read
from quietmean.protocols.mechanism import mixing_messages, template_of
from quietmean.protocols.result_broadcast import ResultBroadcast
from quietmean.protocols.target import is_random
from quietmean.randomness import Seed

# Alternatives of more parties are compared with a model of so many.
_MODEL = 200
# Among alternatives whose errors are within this part of the least the first is taken, which has the fewest messages.
_TOLERANCE = 0.02


def searched(
    target: Target, protocol: Mechanism, seed: Seed, gated: bool, max_messages: int | None, allowed: Callable[[Mechanism], bool]
) -> Mechanism:
    """The protocol with all filled in for which it states alternatives (:class:`~quietmean.protocols.traits.Planning`).

    ``allowed``: which of the complete ones may be chosen. ``max_messages``: what a party may send on average.
    """

    def fits(choice: Mechanism) -> bool:
        template = template_of(choice, target)
        return _is_affordable(target, template, max_messages) and allowed(template)

    while choices := [choice for choice in protocol.TRAITS.planning.alternatives(protocol, target) if fits(choice)]:
        protocol = _best(target, choices, seed, gated)
    return within_messages(target, protocol, max_messages)


def most_rounds(target: Target, protocol: Mechanism, max_messages: int | None) -> int:
    """The most rounds of any alternative with no more messages; 0 where there is none."""
    templates = [template_of(choice, target) for choice in protocol.TRAITS.planning.alternatives(protocol, target)]
    return max((template.rounds for template in templates if _is_affordable(target, template, max_messages)), default=0)


def _is_affordable(target: Target, template: Mechanism, max_messages: int | None) -> bool:
    return max_messages is None or mixing_messages(template, target.parties, target.dimension) <= max_messages


def within_messages(target: Target, protocol: Mechanism, max_messages: int | None) -> Mechanism:
    """The protocol with no more rounds than there are messages to send."""
    if max_messages is None or "rounds" not in options_of(type(protocol)) or protocol.rounds is not OPEN:
        return protocol
    template = template_of(protocol, target)
    sent = int(getattr(template, "out_degree", 1))
    return filled(protocol, rounds=max(1, min(template.rounds, max_messages // sent)))


def _best(target: Target, choices: list[Mechanism], seed: Seed, gated: bool) -> Mechanism:
    """The first whose predicted error is within the tolerance of the least; where the last gains nothing, the first of all."""
    model, errors = model_of(target, _MODEL), np.full(len(choices), math.inf)
    for index in (0, len(choices) - 1, *range(len(choices) - 2, 0, -1)):
        errors[index] = try_levels(model, template_of(choices[index], target), seed.derive("search"), gated=gated).error
        if index == len(choices) - 1 and errors[0] <= errors[-1] * (1 + _TOLERANCE):
            break
    return choices[int(np.argmax(errors <= errors.min() * (1 + _TOLERANCE)))]


# Broadcast costs n messages a party; beyond this many parties the releases spread by push-sum.
_BROADCAST_LIMIT = 200
# Noise is raised so often at most for the gate to let all simulated histories pass.
_ATTEMPTS = 6
# What trying a gate may cost by default: this many coalitions whatever they cost, or more, in multiplications; and on how many
# histories it is tried at most.
_GATE_COALITIONS, _GATE_EFFORT, _MOST_TRIALS = 6000, 3e11, 59
# More rounds than usual are tried with a gate up to so many messages: beyond them a certificate of all coalitions takes minutes.
_GATE_MESSAGES = 2400
_NO_GATE = (
    "no gate before the release. Only own noise is guaranteed, and the realised figure is certified "
    "afterwards. Choose --trials (in Python trials) for a gate"
)
_UNFORESEEN = (
    "no gate before the release, since nobody knows which messages are read. Only own noise is guaranteed; "
    "the realised figure covers the messages that the public seed draws"
)
_OWN_NOISE = "own noise alone keeps the target against every coalition, so no gate is needed"
# More parties than this are calibrated with a model of fewer.
_MODEL_FROM = 600
# Predictions are rounded to 6 digits.
_DIGITS_SHOWN = 1e-5
# So many plans are remembered.
_KEPT = 64
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
    max_messages: int | None = None,
    seed: Seed | None = None,
) -> Plan:
    """The plan of a configured protocol for a target: what is open in it, its noise above all, is chosen.

    Rounds, where they are open, are searched for the least predicted error, with at most ``max_messages`` that a party sends on
    average. The guarantee is worst case over some simulated ``executions`` (schedule; dropouts as planned, and fewer; coalitions
    found from each party's own receivers and random ones) plus a margin of 2 % in standard deviation; the execution that really
    happens is certified on its own. Where a protocol has a gate before its release, the parties hold it and all of
    ``trials`` fresh histories pass it: 299 of them show a chance of no result of at most 1 %, 59 one of 5 %. By default they are
    as many as take seconds, and none where not all coalitions can be tried: then it has no gate. Deterministic: the same target
    gives the same plan. Raises :class:`InputError` for what cannot be had, for a target that the arithmetic that runs would not
    keep, and for noise levels that are given.
    """
    calibration = CalibrationMethod(require_known("calibration", calibration, CalibrationMethod))
    refuse_levels(protocol)
    require_promise_if_read(protocol, target.eavesdropping)
    if trials is not None and protocol.TRAITS.gate is not None:
        require_foreseen(target)
    if target.nats is not None and not protocol.traits.keeps_nats:
        raise InputError(f"protocol {protocol.name} keeps a target in epsilon, none in nats. Name adqsp, or give epsilon.")

    def planned(goal: Target) -> Plan:
        # Equal targets may be written differently, such as 1 and 1.0, and have other seeds then.
        written = str(goal.describe())
        return _calibrated(goal, written, protocol, calibration, dissemination, executions, (trials, max_messages), seed)

    with saying_what_was_chosen(protocol):
        plan = planned(target)
        require_kept(plan, planned)
    return plan


def refuse_levels(protocol: Mechanism) -> None:
    """Raises :class:`InputError` if a field is given that calibration computes."""
    for name, parameter in parameters_of(type(protocol)).items():
        value = getattr(protocol, name)
        if not parameter.option and value is not OPEN and value != parameter.default:
            raise InputError(f"{parameter.key} is given, but calibration chooses it. Leave it out.")


def least_mse(target: Target, protocol: Mechanism) -> float | None:
    """A lower bound on the mean squared error per coordinate that an exact calibration predicts; None where none is known.

    It takes no simulation.
    """
    stated = protocol.TRAITS.planning.least_mse(protocol, target)
    # Anything but a formula keeps a margin over simulated executions.
    by_formula = type(protocol).design is not Mechanism.design
    return stated if stated is None else stated * (1.0 if by_formula else (1 + MARGIN) ** 2) * (1 - _DIGITS_SHOWN)


# A command or a page asks several times for the same plan, which may take seconds.
@lru_cache(_KEPT)
def _calibrated(
    target: Target,
    written: str,
    protocol: Mechanism,
    calibration: CalibrationMethod,
    dissemination: ResultBroadcast | None,
    executions: int | None,
    limits: tuple[int | None, int | None],
    seed: Seed | None,
) -> Plan:
    """``written``: the target as text, for the seed; ``limits``: trials and max_messages, as :func:`calibrate` has them."""
    trials, max_messages = limits
    exact = calibration == CalibrationMethod.EXACT
    if not (exact and protocol.TRAITS.planning.alternatives(protocol, target)):
        protocol = within_messages(target, protocol, max_messages)
    spread = dissemination or _default_dissemination(target.parties)
    design = protocol.design(target)
    if design is not None:
        return Plan(target, design.protocol, spread, _designed(design))
    template = template_of(protocol, target)
    seed = seed or Seed.public("calibration", written, protocol.name, str(template.describe()))
    if not protocol.traits.private:
        error = predicted_error(target, template, ChosenLevels(0.0, 0.0, 0.0, estimates_of(target, template, seed), {}))
        return Plan(target, template.TRAITS.planning.finalised(template, target), spread, {**error, "certificate": "no privacy"})
    with one_thread():
        watched = protocol.TRAITS.gate is not None and exact
        gated = watched and bool(gate_trials(target, template, seed) if trials is None else trials)
        if exact and protocol.TRAITS.planning.alternatives(protocol, target):
            usual = template.rounds

            # By a bound for all coalitions more rounds are better throughout; simulated ones would ask for fewer.
            bounded = gated and not tries_all(target, draw_execution(target, template, seed.derive("effort"), target.dropouts))
            most = most_rounds(target, protocol, max_messages) if bounded else 0

            def allowed(choice: Mechanism) -> bool:
                if choice.rounds < most:
                    return False
                by_default = gated and trials is None
                small = choice.rounds <= max(usual, _GATE_MESSAGES // target.parties)
                return not by_default or (small and gate_trials(target, choice, seed) > 0)

            template = template_of(searched(target, protocol, seed, gated, max_messages, allowed), target)
        if target.parties > _MODEL_FROM and exact and executions is None and not gated:
            levels = find_levels_of_many(target, template, seed)
        else:
            levels = find_levels(target, template, calibration, executions, seed, gated=gated)
        if gated:
            tried = gate_trials(target, template, seed) if trials is None else trials
            levels = levels_at_gate(target, template, levels, seed)
            levels, gated = _least_kept(target, template, levels, tried, seed.derive("gate"))
        elif watched:
            why = _UNFORESEEN if is_random(target.eavesdropping) else _NO_GATE
            levels = replace(levels, certified={**levels.certified, "gate": why})
    error = predicted_error(target, template, levels)
    prediction = {**error, **levels.certified, "margin": MARGIN, "calibration": str(calibration)}
    return Plan(target, protocol.TRAITS.planning.finalised(levels.apply(template), target), spread, prediction, gated=gated)


def require_kept(plan: Plan, planned: Callable[[Target], Plan]) -> None:
    """Noise is chosen in a model; what is drawn is discrete, and rare events cost some of delta.

    Raises :class:`InputError` where a plan that promises its target would guarantee less than that, with the largest
    epsilon, else the least delta, that ``planned`` keeps, to a power of two or of ten.
    """
    if _is_kept(plan):
        return
    target = plan.target

    def keeps(goal: Target) -> bool:
        try:
            return _is_kept(planned(goal))
        except InputError:
            return False

    name = plan.protocol.name
    # A smaller epsilon protects more, a larger delta less.
    halves = range(1, _MOST_HALVES + 1)
    half = bisect.bisect_left(halves, True, key=lambda times: keeps(replace(target, epsilon=target.epsilon / 2**times)))
    if half < len(halves):
        raise InputError(
            f"epsilon {target.epsilon:g} is too large for {name}, which cannot draw noise that small at delta "
            f"{delta_shown(target.delta)}. Choose an epsilon of at most {target.epsilon / 2 ** halves[half]:g}."
        )
    text = f"delta {delta_shown(target.delta)} is too small for {name}, whose noise alone costs more"
    powers = range(math.floor(math.log10(target.delta)) + 1, _LARGEST_POWER + 1)
    index = bisect.bisect_left(powers, True, key=lambda power: keeps(replace(target, delta=10.0**power)))
    if index < len(powers):
        raise InputError(f"{text}. Choose a delta of at least 1e{powers[index]}.")
    raise InputError(f"{text}. Choose a larger delta, or another protocol.")


def _is_kept(plan: Plan) -> bool:
    return not plan.promises_target or plan.epsilon_a_priori <= plan.target.epsilon * (1 + _ROUNDED)


def _least_kept(target: Target, template: Mechanism, levels: ChosenLevels, trials: int, seed: Seed) -> tuple[ChosenLevels, bool]:
    """What keeps the target in every history at the least error, and whether by a gate: else by own noise, as local privacy does.

    Where half of the parties collude and some leave, noise that is cancelled can cost more than it hides.
    """
    star = round_up(target.sensitivity / mu_of_budget(target.epsilon, target.delta))
    own = replace(levels, star=star, delta=0.0, hidden=0.0, certified={"certificate": _OWN_NOISE, "gate": _OWN_NOISE})
    try:
        passing = _passing(target, template, levels, trials, seed)
    except InputError:
        return own, False
    by_gate, by_noise = (predicted_error(target, template, kept)["mse_noise"] for kept in (passing, own))
    return (own, False) if by_noise < by_gate else (passing, True)


def _passing(target: Target, template: Mechanism, levels: ChosenLevels, trials: int, seed: Seed) -> ChosenLevels:
    """These levels, or higher ones, with which the release of every one of ``trials`` fresh histories passes the gate."""
    for attempt in range(1, _ATTEMPTS + 1):
        protocol = levels.apply(template)
        histories = (draw_execution(target, protocol, seed.derive(attempt, number), target.dropouts) for number in range(trials))
        trial = try_gate(target, histories, attempt)
        if not trial.refused:
            return replace(levels, certified={**levels.certified, **trial.describe()})
        if not math.isfinite(trial.mu):
            break
        excess = trial.mu / mu_of_budget(target.epsilon, target.delta) * (1 + MARGIN / 2)
        levels = replace(levels, star=round_up(levels.star * excess), delta=round_up(levels.delta * excess))
    raise InputError(
        f"no noise is safe against every coalition of {target.colluding} among {target.parties} parties with dropouts "
        f"{target.dropouts:g}. Take more rounds or neighbours, or fewer colluders."
    )


def gate_trials(target: Target, protocol: Mechanism, seed: Seed) -> int:
    """On how many histories a plan tries its gate by default: on none where coalitions are too many to try them all.

    There a bound for all of them asks for more noise, up to several times as much, which a user has to want.
    """
    coalitions = math.comb(target.parties, target.colluding)
    if protocol.TRAITS.gate is None or coalitions > MOST_TRIED or is_random(target.eavesdropping):
        return 0
    execution = draw_execution(target, protocol, seed.derive("effort"), target.dropouts)
    if not tries_all(target, execution):
        return 0
    affordable = math.ceil(_GATE_EFFORT / (coalitions * execution.privacy(target.delta).solver.effort(target.colluding)))
    return min(max(affordable, _GATE_COALITIONS // coalitions), _MOST_TRIALS)


def _designed(design: Design) -> dict[str, Any]:
    return {
        "mse_noise": float(f"{design.mse_noise:.6g}"),
        "mse_dropout_bias": float(f"{design.mse_dropout_bias:.6g}"),
        "certificate": design.certificate,
        "calibration": "direct",
    }


def _default_dissemination(parties: int) -> ResultBroadcast:
    if parties <= _BROADCAST_LIMIT:
        return ResultBroadcast()
    return ResultBroadcast("push-sum", rounds=2 * math.ceil(math.log2(parties)) + 20, out_degree=1)
