"""The ball of the biased decoder of CorDP-DME."""

from __future__ import annotations

import math
from typing import Any

import pytest

from quietmean.core.input_domain import InputDomain
from quietmean.planning.candidates import configured, rank
from quietmean.planning.plan import Plan
from quietmean.protocols import Target
from quietmean.protocols.cordp_dme import CorDPDME
from quietmean.studies.agreement.study import StudyTerms
from support.refusals import refused


def radius_of(plan: Plan) -> float:
    assert isinstance(plan.protocol, CorDPDME)
    assert plan.protocol.radius is not None
    return plan.protocol.radius


TWO = [{"name": "age", "low": 20, "high": 90}, {"name": "height", "low": 1.0, "high": 2.0}]
HISTOGRAM = [{"kind": "histogram", "column": "age", "bins": 7}]


@pytest.mark.parametrize(
    ("more", "radius"),
    [
        ({"unit": "record"}, 1.845),
        ({"unit": "party"}, 1.845),
        ({"unit": "record", "column": TWO}, None),
        ({"unit": "record", "statistic": HISTOGRAM}, None),
        ({"unit": "record", "column": TWO, "statistic": [{"kind": "covariance", "columns": ["age", "height"]}]}, None),
    ],
    ids=str,
)
def test_the_ball_of_the_biased_decoder_is_that_of_the_studys_domain(more: dict[str, Any], radius: float | None) -> None:
    """It holds the domain and is no larger; a smaller one is refused with the number, which is accepted."""
    raw = {"protocol": "cordp-dme", "epsilon": 1.0, "column": TWO[:1], **more}

    def planned(**options: float) -> Plan:
        return StudyTerms.parse({**raw, "options": {"decoder": "biased", **options}}).plan(8)

    plan = planned()
    held, needed = radius_of(plan), plan.input_domain.farthest(0.0)
    assert needed <= held * (1 + 1e-9)
    assert held <= needed * (1 + 1e-5)
    assert radius is None or held == pytest.approx(radius, abs=1e-3)
    refused(f"reaches to {held:g}. Leave out radius, choose {held:g} at least", planned, radius=0.9 * held)
    assert radius_of(planned(radius=held)) == held
    assert radius_of(planned(radius=2 * held)) == 2 * held


def test_a_domain_elsewhere_has_a_ball_around_zero() -> None:
    domain = InputDomain.box(2, 3.0, 4.0)
    for options, radius in (({}, math.sqrt(32.0)), ({"radius": 7.0}, 7.0)):
        target = Target(parties=6, epsilon=1.0, delta=1e-6, dimension=2, sensitivity=domain.diameter)
        (best,) = rank(target, configured(["cordp-dme"], {"decoder": "biased", **options}), domain=domain)
        assert radius_of(best.plan) == pytest.approx(radius, rel=1e-5)
