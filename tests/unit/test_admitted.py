"""A private vector is admitted once, by the plan of its study, and nobody else makes what machines and nodes take."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quietmean
from quietmean.core.domain import PrivacyUnit
from quietmean.core.grid import on_grid
from quietmean.planning import Plan
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target, get_protocol
from support.refusals import refused

SOURCE = Path(quietmean.__file__).parent


def plan_of(dimension: int = 3, unit: PrivacyUnit = PrivacyUnit.RECORD) -> Plan:
    target = Target(parties=3, epsilon=1.0, delta=1e-6, dimension=dimension, unit=unit)
    return calibrate(target, get_protocol("local-dp")())


def test_only_a_plan_makes_one() -> None:
    makers = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "Admitted(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Admitted"
    }
    assert makers == {"planning/plan.py"}


@given(data=st.data(), weight=st.sampled_from([1.0, 20.0]))
def test_what_was_admitted_is_admitted_as_it_is(data: st.DataObject, weight: float) -> None:
    plan = plan_of()
    steps = data.draw(st.lists(st.integers(-(2**60), 2**60), min_size=3, max_size=3))
    admitted = plan.admit(np.array(steps, dtype=np.float64) * plan.value_step, weight)
    assert plan.admit(admitted.vector, weight).vector is admitted.vector
    assert on_grid(admitted.vector, plan.value_step)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e300])
def test_no_value_is_refused_for_what_it_is(odd: float) -> None:
    plan = plan_of()
    assert np.isfinite(plan.admit(np.array([odd, 0.0, 0.0]), 5.0).vector).all()


def test_sums_that_were_not_rounded_are_refused_beside_odd_values_too() -> None:
    plan = plan_of()
    for beside in (0.0, np.nan, 1e300):
        refused("Round each record", plan.admit, np.array([plan.value_step / 3, beside, 0.0]), 5.0)
    plan_of(unit=PrivacyUnit.PARTY).admit(np.full(3, plan.value_step / 3))


def test_the_given_array_is_wiped_where_another_enters() -> None:
    plan = plan_of(unit=PrivacyUnit.PARTY)
    outside, inside = np.full(3, 1e6), np.zeros(3)
    kept = outside.copy()
    plan.admit(kept)
    assert (kept == outside).all()
    plan.admit(outside, wipe=True)
    assert not outside.any()
    inside[0] = plan.value_step
    assert plan.admit(inside, wipe=True).vector is inside
    assert inside.any()


def test_what_is_wiped_is_gone_from_memory_and_keeps_its_shape() -> None:
    given = np.full(3, plan_of().value_step)
    admitted = plan_of(unit=PrivacyUnit.PARTY).admit(given)
    assert admitted.vector is given
    for _ in range(2):
        admitted.wipe()
        assert not given.any()
        assert admitted.vector.tolist() == [0.0] * 3
        # Of a number, not of a vector.
        assert admitted.vector is not given
        assert admitted.vector.strides == (0,)


def test_the_vector_of_another_plan_is_refused() -> None:
    admitted = plan_of().admit(np.zeros(3))
    admitted.require_of(plan_of())
    refused("another plan has admitted", admitted.require_of, plan_of(unit=PrivacyUnit.PARTY))


def test_its_vector_is_not_shown() -> None:
    admitted = plan_of(unit=PrivacyUnit.PARTY).admit(np.full(3, 0.123456789))
    assert "0.12" not in repr(admitted)
    np.testing.assert_array_equal(np.array(admitted), admitted.vector)
