"""The error of a committee's result is the predicted one, simulated and in real sessions."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.errors import ProtocolFailure
from quietmean.node.committee import rehearse
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.design import design, predicted_error
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.simulation import simulate
from quietmean.studies.agreement.contribution import sharing_of


def parameters(contributors: int, dimension: int, committee: Committee) -> CommitteeParameters:
    return design(Target(contributors, 1.0, 1e-6, dimension, float(np.sqrt(dimension))), committee)


@pytest.mark.parametrize("dropouts", [0.0, 0.5, 0.9])
def test_simulated_error_is_the_predicted_one_whoever_comes(dropouts: float) -> None:
    target = Target(60, 1.0, 1e-6, 2000, 2000**0.5, colluding=2, committee=Committee(9, 2, 2))
    plan = calibrate(target, CommitteeSharing())
    value = np.linspace(0, 1, 2000)
    scaled = []
    for seed in range(8):
        run = simulate(plan, np.tile(value, (60, 1)), runs=1, seed=seed, dropouts=dropouts)
        came = int(run.first.contributors().sum())
        assert (came < 60) == (dropouts > 0)
        scaled.append(run.errors / np.sqrt(predicted_error(sharing_of(plan).parameters(60), came)))
    squares = np.array(scaled) ** 2
    ratio, error = squares.mean(), squares.std() / np.sqrt(squares.size)
    assert abs(ratio - 1) <= max(0.03, 3 * error)
    # With 16,000 numbers a wrong k shows: 6 or 8 dealings for 7.
    assert abs(ratio - 1) < 0.06


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


def test_fewer_contributions_than_the_minimum_give_no_result() -> None:
    plan = calibrate(Target(4, 1.0, 1e-6, 2, 1.0, committee=Committee(5, minimum=4)), CommitteeSharing())
    with pytest.raises(ProtocolFailure, match="none of the 20 runs finished"):
        simulate(plan, runs=20, dropouts=0.95)
    assert simulate(plan, runs=2, dropouts=0.0).failed == 0
