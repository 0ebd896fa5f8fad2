"""PrivUnitG is planned for unit vectors only, and only when named."""

from __future__ import annotations

import json

import pytest

from quietmean.core.errors import InputError
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import rank
from quietmean.protocols.priv_unit import PrivUnitG
from quietmean.protocols.priv_unit.spec import best_probability

TARGET = Target(parties=100, epsilon=2.0, delta=1e-5, dimension=20, colluding=10, sensitivity=2.0)


def best(epsilon: float, dimension: int) -> PrivUnitG:
    return PrivUnitG(epsilon=epsilon, probability=best_probability(epsilon, dimension))


def test_the_anchor() -> None:
    assert best(2.0, 20).error(20) / 100 == pytest.approx(0.3232, abs=5e-5)
    plan = calibrate(TARGET, PrivUnitG())
    assert plan.prediction["mse_noise"] * 20 == pytest.approx(0.3232, abs=5e-5)
    assert "delta = 0" in plan.prediction["certificate"]
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))).digest == plan.digest


@pytest.mark.slow
def test_planned_only_when_named_and_only_for_unit_vectors() -> None:
    names = [candidate.plan.protocol.name for candidate in rank(Target(parties=6, epsilon=1.0, delta=1e-6, sensitivity=2.0))]
    assert "priv-unit-g" not in names
    assert "muffliato" in names
    assert rank(TARGET, ["priv-unit-g"])[0].plan.protocol.name == "priv-unit-g"
    with pytest.raises(InputError, match="unit vectors only"):
        rank(Target(parties=6, epsilon=1.0, delta=1e-6, sensitivity=1.0), ["priv-unit-g"])
