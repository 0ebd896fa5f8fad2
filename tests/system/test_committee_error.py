"""The error of a committee's result is the predicted one, simulated and in real sessions."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.node.rehearsal import rehearse
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.design import design
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.simulation.committee import simulate_committee


def parameters(contributors: int, dimension: int, committee: Committee) -> CommitteeParameters:
    return design(Target(contributors, 1.0, 1e-6, dimension, float(np.sqrt(dimension))), committee)


@pytest.mark.parametrize("dropouts", [0.0, 0.5, 0.9])
def test_simulated_error_is_the_predicted_one_whoever_comes(dropouts: float) -> None:
    simulated = simulate_committee(parameters(60, 2000, Committee(9, 2, 2)), 8, dropouts=dropouts)
    assert abs(simulated.ratio - 1) <= max(0.03, 3 * simulated.ratio_standard_error)
    # With 16,000 numbers a wrong k shows: 6 or 8 dealings for 7.
    assert abs(simulated.ratio - 1) < 0.06


@pytest.mark.parametrize("absent", [frozenset[int](), frozenset({3})])
def test_errors_of_real_sessions_are_as_large_as_they_say(absent: frozenset[int]) -> None:
    plan = parameters(6, 600, Committee(5))
    values = np.linspace(0, 1, 6 * 600).reshape(6, 600)
    rehearsal = rehearse(plan, values, [1.0] * 6, absent)
    scaled = (rehearsal.checked.estimate - values.mean(axis=0)) / rehearsal.checked.standard_error
    assert 0.8 < np.sqrt((scaled**2).mean()) < 1.2
    assert len(rehearsal.checked.counted) == 6
    assert rehearsal.left_out == ()


def test_who_does_not_come_is_not_missed_in_the_noise() -> None:
    plan = parameters(20, 600, Committee(5))
    values = np.full((4, 600), 0.25)
    rehearsal = rehearse(plan, values, [1.0] * 4)
    assert rehearsal.checked.weight == 4
    scaled = (rehearsal.checked.estimate - 0.25) / rehearsal.checked.standard_error
    assert 0.8 < np.sqrt((scaled**2).mean()) < 1.2


def test_without_enough_members_there_is_no_result() -> None:
    with pytest.raises(ProtocolFailure, match="no member has a result"):
        rehearse(parameters(4, 2, Committee(5)), np.zeros((4, 2)), [1.0] * 4, frozenset({0, 1}))


def test_simulations_refuse_what_is_none() -> None:
    plan = parameters(4, 2, Committee(5))
    with pytest.raises(InputError, match="0 runs"):
        simulate_committee(plan, 0)
    with pytest.raises(InputError, match="values have shape"):
        simulate_committee(plan, 1, values=np.zeros((3, 2)))
    with pytest.raises(ProtocolFailure, match="contributions came"):
        simulate_committee(plan, 1, dropouts=0.999)
