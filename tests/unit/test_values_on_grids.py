"""Values on a plan's grid: what they are rounded to, that sensitivities hold to the last bit, and that every path does it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from quietmean.core.domain import UNITS_OF_VECTORS, PrivacyUnit
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.grid import WholeNumbers, on_grid, towards_zero
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace
from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.protocols import Target, configure, get_protocol
from quietmean.protocols.discrete import DiscreteNoise, NoiseNumbers, choose_step
from quietmean.protocols.execution import Execution
from quietmean.protocols.traits import Traits
from quietmean.randomness import Seed
from quietmean.statistics import Column, Columns, Workload
from quietmean.statistics.kinds.means import Mean
from support.refusals import raised, refused

STEP = 2.0**-6
# As fine as plans choose for the powers of a column.
FINE = 2.0**-16
DISCRETE = ["local-dp", "central-dp", "cordp-dme", "gopa", "muffliato"]


def planned(name: str, unit: PrivacyUnit = PrivacyUnit.PARTY, noise: str | None = None) -> Plan:
    target = Target(parties=6, epsilon=1.0, delta=1e-6, dimension=2, colluding=1, unit=unit)
    return calibrate(target, configure(name, {} if noise is None else {"noise": noise}))


@given(arrays.arrays(np.float64, 7, elements=st.floats(-1e6, 1e6)))
def test_rounding_towards_zero_never_grows(vector: Vector) -> None:
    rounded = towards_zero(vector, STEP)
    assert on_grid(rounded, STEP)
    assert (np.abs(rounded) <= np.abs(vector)).all()
    assert (np.abs(rounded - vector) < STEP).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**53 * STEP])
def test_rounding_refuses_what_has_no_place(bad: float) -> None:
    refused("no room on the plan's grid", towards_zero, np.array([0.0, bad]), STEP)


def test_records_are_rounded_before_they_are_added_up() -> None:
    workload = Workload(Columns([Column(name="x", low=0.0, high=1.0)]), (Mean(column="x"),), PrivacyUnit.RECORD)
    records = np.random.default_rng(1).random((1000, 1))
    encoded = workload.encode(records, step=FINE)
    each = np.array([workload.encode(record[None], step=FINE).vector for record in records])
    assert on_grid(each, FINE)
    np.testing.assert_array_equal(encoded.vector, each.sum(axis=0))
    # Halves of steps on average, in both directions: no bias that grows with the records. A step is two of the column, whose
    # half width has the factor one half.
    (answer,) = workload.decode(encoded.vector / 1000, 0.0, 1000.0, step=FINE)
    assert abs(answer.estimates.value[0] - records.mean()) < 6 * 1.1 * FINE * math.sqrt(1 / 12 / 1000)


@given(arrays.arrays(np.float64, (2, 3), elements=st.floats(-5.0, 7.0)), st.sampled_from(UNITS_OF_VECTORS))
def test_the_sensitivity_holds_to_the_last_bit(values: Vector, unit: PrivacyUnit) -> None:
    columns = Columns([Column(name=name, low=-5.0, high=7.0) for name in "abc"])
    workload = Workload(
        columns, tuple(Mean(column=name, share=share) for name, share in zip("abc", (1.0, 2.0, 0.3), strict=True)), unit
    )
    one, other = (workload.encode(record[None], step=FINE).vector for record in values)
    squared = sum(Fraction(float(each)) ** 2 for each in one - other)
    assert squared <= Fraction(workload.sensitivity) ** 2 * (1 + Fraction(1, 2**50))
    for vector in (one, other):
        assert workload.domain.holds(vector)
        assert on_grid(vector, FINE)


@pytest.mark.parametrize("name", DISCRETE)
def test_plans_are_on_a_grid_that_stands_in_them(name: str) -> None:
    plan = planned(name)
    assert isinstance(plan.protocol, DiscreteNoise)
    step = plan.value_step
    smallest = min(value for key, value in plan.to_json()["parameters"].items() if key.startswith("sigma"))
    assert 2.0**20 <= smallest / step <= 2.0**21 * 1.001
    assert plan.to_json()["parameters"]["grid"] == step
    assert Plan.from_json(plan.to_json()).digest == plan.digest
    floats = planned(name, noise="insecure-float64")
    assert floats.value_step == 0.0
    assert floats.to_json()["parameters"]["noise"] == NoiseNumbers.INSECURE_FLOAT64
    assert "grid" not in floats.to_json()["parameters"]


@pytest.mark.parametrize("name", DISCRETE)
def test_certificates_say_what_numbers_they_are_about(name: str) -> None:
    for noise, words in ((None, "rounded to multiples of"), ("insecure-float64", "rounding to float64 is not counted")):
        plan = planned(name, noise=noise)
        execution = _execution(plan)
        assumptions = [one.text for one in execution.privacy(1e-6).against().assumptions]
        assert any(words in one for one in assumptions)
        exposed = any("no delta below 0.06 per column" in one for one in assumptions)
        assert exposed == (noise is not None and name in ("local-dp", "central-dp", "muffliato"))


@pytest.mark.parametrize("name", ["local-dp", "central-dp", "muffliato", "cordp-dme"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_plans_by_formula_meet_their_target(name: str, epsilon: float) -> None:
    target = Target(parties=6, epsilon=epsilon, delta=1e-6, dimension=1000, colluding=2)
    plan = calibrate(target, get_protocol(name)())
    execution = _execution(plan)
    found = execution.privacy(1e-6).against({2, 4}).max_epsilon
    assert epsilon * (1 - 1e-4) < found <= epsilon * (1 + 1e-9)


def _execution(plan: Plan) -> Execution:
    return plan.execution(Seed.public("here"), ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties))


def test_a_sum_of_records_off_the_grid_is_refused() -> None:
    plan = planned("local-dp", PrivacyUnit.RECORD)
    on, off = np.array([3 * plan.value_step, 0.0]), np.array([0.1, 0.2])
    plan.require_rounded(on)
    assert "0.1" not in refused("Round each record to it", plan.require_rounded, off)
    planned("local-dp").require_rounded(off)


def test_values_without_room_and_too_many_coordinates_are_refused() -> None:
    protocol = planned("local-dp").protocol
    refused("room on the plan's grid", protocol.TRAITS.inputs.check, protocol, np.array([1e12, 0.0]))
    refused("3 coordinates", protocol.TRAITS.inputs.check, protocol, np.zeros(3))


def test_grids_that_cannot_be() -> None:
    with pytest.raises(InputError, match="Leave one of the two out"):
        get_protocol("local-dp").read({"sigma": 1.0, "grid": 0.5, "dimension": 1, "noise": "insecure-float64"})
    refused("dimension is missing", get_protocol("local-dp").read, {"sigma": 1.0, "grid": 0.5})
    refused("power of two", get_protocol("local-dp").read, {"sigma": 1.0, "grid": 0.3, "dimension": 1})


def test_steps() -> None:
    assert choose_step(1.0, 1.0, 10) == 2.0**-20
    assert choose_step(1.999, 3.0, 10) == 2.0**-20
    assert choose_step(2.0, 3.0, 10) == 2.0**-19
    # Coarser where sums of many parties need the room, and refused at 2^-12.
    assert choose_step(1.0, 100.0, 20_000) > 2.0**-20
    refused("no room on one grid", choose_step, 1.0, 1e8, 20_000)


def test_sums_beyond_the_grid_end_the_protocol() -> None:
    raised(ProtocolFailure, "beyond", WholeNumbers(2.0**-40).total, [np.array([2.0**12 * 1.0 - 2.0**-40])] * 4)


def test_a_protocol_with_discrete_noise_says_what_checks_its_values() -> None:
    with pytest.raises(TypeError, match=r"checks its values. Add inputs=ON_GRID to its TRAITS$"):

        class _Unchecked(DiscreteNoise):
            TRAITS = Traits(summary="its values would leave as float64 that nobody rounded")
