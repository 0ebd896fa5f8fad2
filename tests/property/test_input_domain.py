"""No vector enters a real study from outside the domain of its plan, whatever it is."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quietmean as qm
from quietmean.core.column_blocks import Blocks
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.input_domain import Ball, Box, InputDomain, Part
from quietmean.core.mixtures import Prefixes, Simplex
from quietmean.core.party import NoiseSource, Vector
from quietmean.graphs import Schedule
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry
from quietmean.planning import Plan
from quietmean.planning.calibrate import calibrate
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.statistics import Column, Columns, Workload
from quietmean.statistics.kinds.means import Mean

# Relative to the diameter: norms are computed in float64.
ROUNDING = 1e-12
POSITIVE = st.floats(1e-3, 1e3)
ANY_NUMBER = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(-10, 10), st.sampled_from([0.0, 1.0, -1.0]))


@st.composite
def parts(draw: st.DrawFn) -> Part:
    kind, size = draw(st.sampled_from(["box", "ball", "simplex", "prefixes", "blocks"])), draw(st.integers(1, 4))
    if kind == "box":
        low = draw(st.floats(-100, 100))
        return Box(size=size, low=low, high=low + draw(POSITIVE))
    if kind == "ball":
        return Ball(size=size, radius=draw(POSITIVE), centre=draw(st.sampled_from([0.0, 0.5, -3.0])))
    if kind == "blocks":
        joint = size > 1 and draw(st.booleans())
        return Blocks(groups=size, weight=draw(st.sampled_from([0.9, 1.65, 3.0])), scale=draw(POSITIVE), joint=joint)
    return (Simplex if kind == "simplex" else Prefixes)(size=size + 1, scale=draw(POSITIVE))


domains = st.lists(parts(), min_size=1, max_size=4).map(lambda found: InputDomain(tuple(found)))


def vectors(size: int) -> st.SearchStrategy[Vector]:
    return st.lists(ANY_NUMBER, min_size=size, max_size=size).map(lambda found: np.array(found, dtype=np.float64))


@given(data=st.data(), domain=domains, scale=st.sampled_from([1.0, 3.0, 250.0]))
def test_every_vector_is_moved_inside_and_no_two_are_further_apart_than_the_diameter(
    data: st.DataObject, domain: InputDomain, scale: float
) -> None:
    one, other = (data.draw(vectors(domain.size)) for _ in range(2))
    before = one.copy()
    moved = [domain.moved(vector, scale) for vector in (one, other)]
    np.testing.assert_array_equal(one, before)
    for vector in moved:
        assert np.isfinite(vector).all()
        assert domain.holds(vector, scale)
        # What is inside stays the same array: no copy of a private value is left in memory.
        assert domain.moved(vector, scale) is vector
    distance = float(np.linalg.norm(moved[0] / scale - moved[1] / scale))
    assert distance <= domain.diameter * (1 + ROUNDING)
    assert max(float(np.abs(vector).max()) for vector in moved) <= scale * domain.largest * (1 + ROUNDING)


@given(domain=domains)
def test_a_domain_reads_what_it_writes(domain: InputDomain) -> None:
    assert InputDomain.parse(json.loads(json.dumps(domain.describe()))) == domain
    assert InputDomain.product([domain, domain]).diameter == pytest.approx(domain.diameter * 2**0.5)
    assert domain.times(3.0).diameter == pytest.approx(3 * domain.diameter)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([], "must be a list"),
        ([{"kind": "bal", "size": 1, "radius": 1.0}], r"'bal' is unknown \(did you mean 'ball'\?\)"),
        ([{"kind": "ball", "size": 1, "radios": 1.0}], r"no field 'radios' \(did you mean 'radius'\?\)"),
        ([{"kind": "ball", "size": 1}], "'radius' is missing"),
        ([{"kind": "ball", "size": 1, "radius": 0.0}], "radius is 0"),
        ([{"kind": "box", "size": 1, "low": 1.0, "high": 1.0}], "is empty"),
    ],
)
def test_domains_that_are_none(raw: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        InputDomain.parse(raw)


def plan_of(protocol: str, domain: InputDomain | None = None, **target: Any) -> Plan:
    wanted = qm.Target(**({"parties": 3, "epsilon": 1.0, "delta": 1e-6, "dimension": 3, "sensitivity": 2.0} | target))
    plan = calibrate(wanted, _PROTOCOLS[protocol])
    return plan if domain is None else plan.with_domain(domain)


_PROTOCOLS = {
    "local-dp": qm.LocalDP(),
    "secagg": qm.SecAgg(),
    "priv-unit-g": qm.PrivUnitG(),
    "cordp-dme": qm.CorDPDME(radius=1.0),
}
PLANS = {
    "a cube by default": plan_of("local-dp"),
    "a stated ball": plan_of("local-dp", InputDomain.ball(3, 1.0)),
    "records": plan_of("local-dp", InputDomain.box(3, -0.5, 0.5), unit=PrivacyUnit.RECORD),
    "the ball of secure aggregation": plan_of("secagg"),
    "unit vectors": plan_of("priv-unit-g"),
    "the ball of a radius": plan_of("cordp-dme"),
}


def rounded(plan: Plan, vector: Vector) -> Vector:
    """Sums over records are of rounded ones: a plan refuses others."""
    step = plan.value_step if plan.target.unit == PrivacyUnit.RECORD else 0.0
    if not step:
        return vector
    with np.errstate(over="ignore"):
        # What is far outside of any domain is on every grid, and has no room as a number of steps.
        return np.where(np.abs(vector) < 2.0**60 * step, np.rint(vector / step) * step, vector)


@pytest.mark.parametrize("name", PLANS)
@given(data=st.data(), weight=st.sampled_from([1.0, 20.0]))
def test_what_a_plan_admits_keeps_its_sensitivity(name: str, data: st.DataObject, weight: float) -> None:
    plan = PLANS[name]
    scale = weight if plan.target.unit == PrivacyUnit.RECORD or name == "unit vectors" else 1.0
    one, other = (plan.admit(rounded(plan, data.draw(vectors(3))), weight).vector for _ in range(2))
    limit = plan.target.sensitivity * scale
    assert float(np.linalg.norm(one - other)) <= limit * (1 + ROUNDING)


def test_a_domain_wider_than_the_sensitivity_is_refused() -> None:
    with pytest.raises(InputError, match=r"diameter of 2\.2, more than the sensitivity 2"):
        plan_of("local-dp", InputDomain.ball(3, 1.1))
    with pytest.raises(InputError, match="4 coordinates, the plan 3"):
        plan_of("local-dp", InputDomain.ball(4, 1.0))
    with pytest.raises(InputError, match=r"shape \(2,\), but the plan is for 3"):
        PLANS["records"].admit(np.zeros(2))


def test_a_plan_states_its_domain() -> None:
    stated = PLANS["a stated ball"]
    assert Plan.from_json(stated.to_json()).domain == stated.domain
    assert stated.digest != PLANS["a cube by default"].digest
    assert PLANS["a cube by default"].input_domain.text == "3 coordinates, each from 0 to 1.1547"
    assert (
        qm.plan(parties=3, epsilon=1, delta=1e-6, domain=InputDomain.ball(1, 4.0), protocol="local-dp").target.sensitivity == 8.0
    )


def roster_of(count: int) -> tuple[list[Identity], Roster]:
    identities = [Identity.generate() for _ in range(count)]
    entries = [RosterEntry(f"p{n}", ("127.0.0.1", 4000 + n), one.public_key) for n, one in enumerate(identities)]
    return identities, Roster(tuple(entries))


OUTSIDE = np.array([3.0, -5.0, np.nan])


def entering(plan: Plan, value: Vector) -> Vector:
    """What a party's machine is given."""
    entered: list[Vector] = []

    class Recording(qm.LocalDP):
        def machine(self, schedule: Schedule, party: int, value: Vector, weight: float, noise: NoiseSource) -> Any:
            entered.append(value)

    schedule = plan.schedule(Seed.public("schedule"))
    replace(plan, protocol=Recording(sigma=1.0)).machine(schedule, 0, plan.admit(value), InsecurePopulationNoise(0, 3).party(0))
    return entered[0]


def test_every_door_moves_a_vector_inside(tmp_path: Path) -> None:
    plan = PLANS["a stated ball"]
    identities, roster = roster_of(3)
    given_value = OUTSIDE.copy()
    settings = NodeSettings(
        identity=identities[0],
        roster=roster,
        brought=PlannedValue(plan, plan.admit(given_value, wipe=True), wiped=True),
        store=tmp_path / "store",
    )
    assert plan.input_domain.holds(settings.brought.vector)
    # What lay outside does not stay in memory.
    assert not given_value.any()
    entered = entering(plan, OUTSIDE)
    assert plan.input_domain.holds(entered)
    simulated = plan.simulate(np.tile(np.array([1e9, 0.0, 0.0]), (3, 1)), runs=50)
    assert float(np.abs(simulated.errors).mean()) < 100


def test_the_python_node_moves_a_vector_inside_and_tells_its_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identities, roster = roster_of(3)
    entered: list[Vector] = []

    async def record(settings: NodeSettings) -> None:
        entered.append(settings.brought.vector)
        raise ProtocolFailure("nobody else is there")

    monkeypatch.setattr(sys.modules["quietmean.node"], "run_party", record)

    async def take_part(vector: Vector) -> None:
        async with qm.Node(identity=identities[0], roster=roster, plan=PLANS["a stated ball"], store=tmp_path / "store") as me:
            with pytest.raises(ProtocolFailure, match="nobody else"):
                await me.mean(vector)

    with pytest.warns(
        UserWarning, match=r"outside the plan's domain \(3 coordinates of L2 norm at most 1\) and was moved"
    ) as seen:
        asyncio.run(take_part(np.array([987654.321, 0.0, 0.0])))
    assert "987" not in str(seen[0].message)
    asyncio.run(take_part(np.array([0.5, 0.5, 0.5])))
    assert all(PLANS["a stated ball"].input_domain.holds(value) for value in entered)
    np.testing.assert_array_equal(entered[1], [0.5, 0.5, 0.5])


@pytest.mark.parametrize("rule", ["centre", "indicator"])
@given(cells=st.lists(st.one_of(ANY_NUMBER), min_size=2, max_size=8))
def test_records_of_any_values_lie_in_the_domain_of_their_study(rule: str, cells: list[float]) -> None:
    columns = Columns([Column(name="a", low=-7, high=3, missing=rule), Column(name="b", low=0, high=0.1)])
    workload = Workload(columns, (Mean(column="a", share=2.0), Mean(column="b")), PrivacyUnit.RECORD)
    assert workload.domain.diameter == pytest.approx(workload.sensitivity)
    records = np.array(cells[: len(cells) // 2 * 2]).reshape(-1, 2)
    encoded = workload.encode(records)
    moved = workload.domain.moved(encoded.vector, encoded.weight)
    np.testing.assert_allclose(moved, encoded.vector, rtol=1e-11, atol=1e-11)
