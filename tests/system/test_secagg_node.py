"""Secure aggregation between real processes, some of which die after they have shared their keys."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import Vector
from quietmean.node.local import Kill, LocalOutcome
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import get_protocol
from quietmean.protocols.secagg import SecAgg
from quietmean.protocols.secagg_plus import SecAggPlus
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from support.processes import require_agreement, run_processes


def make_values(parties: int, dimension: int) -> Vector:
    """In the unit box, as statistics encode them."""
    return BitStream(insecure_seed(21)).uniform(parties * dimension).reshape(parties, dimension)


def require_as_predicted(plan: Plan, outcome: LocalOutcome, values: Vector, survivors: Iterable[int], counted: list[int]) -> None:
    """All survivors hold the same mean of the counted parties, as far off as the plan says."""
    first = require_agreement(outcome, survivors)
    assert first.execution.contributors().nonzero()[0].tolist() == counted
    errors = first.mean - values[counted].mean(axis=0)
    assert isinstance(plan.protocol, SecAgg)
    variance = plan.protocol.sigma**2 / len(counted)
    # Chi-square, normal approximation at 5 standard errors; rounding adds less than 1 %.
    spread = 5 * math.sqrt(2 / errors.size)
    assert (errors**2).mean() < 1.01 * variance * (1 + spread)
    assert (errors**2).mean() > variance * (1 - spread)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["secagg", pytest.param("secagg-plus", marks=pytest.mark.slow)])
def test_a_party_that_dies_after_sharing_its_keys_leaves_no_trace(tmp_path: Path, name: str) -> None:
    parties, dimension = 8, 500
    target = Target(parties, 2.0, 1e-5, dimension, math.sqrt(dimension), colluding=1, dropouts=0.2)
    plan = calibrate(target, get_protocol(name)())
    values = make_values(parties, dimension)
    outcome = run_processes(plan, values, tmp_path, [Kill(3, round=5)])
    require_as_predicted(plan, outcome, values, [0, 1, 2, 4, 5, 6, 7], [0, 1, 2, 4, 5, 6, 7])


@pytest.mark.slow
def test_a_party_that_is_started_again_goes_on_where_it_was(tmp_path: Path) -> None:
    parties, dimension = 4, 200
    target = Target(parties, 2.0, 1e-5, dimension, math.sqrt(dimension), colluding=1)
    plan = calibrate(target, SecAgg())
    values = make_values(parties, dimension)
    outcome = run_processes(plan, values, tmp_path, [Kill(0, 5, 0.2), Kill(2, 3, 0.2)], round_timeout=20.0, gone_timeout=None)
    assert sorted(outcome.killed) == [0, 2]
    require_as_predicted(plan, outcome, values, range(4), [0, 1, 2, 3])


@pytest.mark.slow
def test_too_many_deaths_end_the_study_without_a_result(tmp_path: Path) -> None:
    plan = calibrate(Target(4, 2.0, 1e-5, 3), SecAgg())
    with pytest.raises(ProtocolFailure, match="no party finished the study: "):
        run_processes(plan, make_values(4, 3), tmp_path, [Kill(1, round=5)], round_timeout=1.0)


@pytest.mark.slow
def test_fifty_processes_of_which_five_die(tmp_path: Path) -> None:
    parties, dimension = 50, 10_000
    target = Target(parties, 2.0, 1e-5, dimension, math.sqrt(dimension), colluding=2, dropouts=0.1)
    plan = calibrate(target, SecAggPlus())
    values = make_values(parties, dimension)
    dying = {7: 5, 13: 5, 21: 5, 34: 7, 42: 7}
    kills = [Kill(party, round_) for party, round_ in dying.items()]
    outcome = run_processes(plan, values, tmp_path, kills, round_timeout=60.0)
    # Who dies while it unmasks has been counted.
    counted = [party for party in range(parties) if dying.get(party) != 5]
    require_as_predicted(plan, outcome, values, set(range(parties)) - set(outcome.killed), counted)
    degree = plan.protocol.describe()["degree"]
    print(
        f"\n{parties} processes, {dimension} coordinates, {degree} neighbours: {outcome.seconds:.1f} s, "
        f"{outcome.bytes_sent / len(outcome.results):.0f} bytes sent per survivor, {outcome.messages} messages"
    )
