"""Levels of a plan whose gate goes by a bound: they pass on the parties that are watched, at no larger error than others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from quietmean.core.workers import one_thread
from quietmean.planning import levels
from quietmean.planning.accuracy import draw_estimates, draw_execution
from quietmean.planning.gate import as_recorded, worst_bound
from quietmean.planning.levels import BoundedGate, ChosenLevels, levels_at_gate
from quietmean.privacy import mu_of_budget
from quietmean.protocols import Mechanism, Target, configure
from quietmean.protocols.mechanism import template_of, with_guard
from quietmean.randomness import Seed

TARGET = Target(parties=48, colluding=5, dropouts=0.1, epsilon=1.0, delta=1e-6, sensitivity=1.0)
LIMIT = mu_of_budget(TARGET.epsilon, TARGET.delta)
HIDDEN = 1.0 / LIMIT**2
SEED = Seed.public("bounded gate")


def template() -> Mechanism:
    return template_of(configure("inca", {"rounds": 20, "noise": "insecure-float64"}), TARGET)


def errors(levels: tuple[float, float]) -> float:
    protocol = with_guard(template().with_noise(*levels), HIDDEN)
    estimates = draw_estimates(TARGET, with_guard(template(), 10.0 * HIDDEN), SEED, 8)
    guard = float(getattr(protocol, "sigma_guard", 0.0))
    return float(np.mean([estimate.noise_variance(*levels, guard) for estimate in estimates]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ratio", [0.5, 16.0])
def test_a_bad_ratio_is_left_for_one_of_less_error(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    """From either side; what comes out is above what watched parties need, by the margin."""
    monkeypatch.setattr(levels, "_WATCHED", 2)
    estimates = draw_estimates(TARGET, with_guard(template(), 10.0 * HIDDEN), SEED, 8)
    execution = draw_execution(TARGET, template(), SEED.derive("bounded"), TARGET.dropouts)
    gate = BoundedGate(TARGET, template(), HIDDEN, execution)
    with one_thread():
        first = ChosenLevels(1.0, ratio, HIDDEN, estimates, {})
        chosen = levels_at_gate(TARGET, template(), first, SEED)
        star, delta = chosen.star, chosen.delta
        needed = gate.star(delta / star, star)
        assert needed <= star <= 1.1 * needed
        least = gate.star(ratio, star)
    assert errors((star, delta)) < 0.9 * errors((least, ratio * least))


def test_where_every_coalition_is_tried_levels_stay() -> None:
    few = replace(TARGET, parties=12, colluding=1)
    first = ChosenLevels(1.0, 3.0, HIDDEN, [], {})
    assert levels_at_gate(few, template_of(configure("inca"), few), first, SEED) is first


def test_the_bound_of_some_is_the_largest_of_theirs() -> None:
    execution = draw_execution(TARGET, template().with_noise(2.0, 8.0), SEED, TARGET.dropouts)
    execution = execution.with_trace(as_recorded(execution.schedule, execution.trace))
    gone = frozenset(np.nonzero(~execution.trace.finished)[0].tolist())
    some = frozenset(np.nonzero(execution.trace.finished)[0][:2].tolist())
    with one_thread():
        each = [worst_bound(execution, TARGET, gone, frozenset({party})) for party in some]
        assert worst_bound(execution, TARGET, gone, some) == pytest.approx(max(each), rel=1e-9)
