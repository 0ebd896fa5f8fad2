"""What everybody's result is if one party's program lies, under every protocol: the table of the page about it.

The liar's machine is real, and given what no admission lets in. What is shown then is never further off than is stated.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.errors import QuietmeanError
from quietmean.core.party import Release
from quietmean.planning import Plan
from quietmean.planning.influence import ImpossibleResult, ReleasedSum, planned_influence
from quietmean.planning.release_bounds import PossibleReleases
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.outcome import StudyOutcome, conclude_possible
from quietmean.transcript import run_lockstep
from support.at_the_edges import NAMES, PARTIES, PLACES, encoded, executions, study_of
from support.liars import HEADS, lie_of

Array = NDArray[np.float64]
PAGE = Path(__file__).parents[2] / "docs" / "trust" / "liars.md"
LIAR = 2
LEFT_OUT, NO_RESULT, CANNOT, BOUNDED = "left out, named", "no result", "cannot be sent", "within the bound"
ASKED = ({"kind": "mean", "column": "age"},)
SLOW = ("inca", "muffliato")


def outcome(name: str, head: str) -> str:
    study, plan = study_of(name, 0, ASKED)
    values, weights = encoded(study, plan, PLACES["middle"])
    execution = executions(plan, weights)[0]
    try:
        releases = released(execution, values, head)
    except (QuietmeanError, ArithmeticError, ValueError):
        return CANNOT
    truth = conclude_possible(plan, study.workload, execution, added(plan, released(execution, values, ""), LIAR))
    if not all(np.isfinite(one.vector).all() for one in releases.values()):
        # What is no number no receiver takes: the others' result is without it, and without what they passed on to it.
        lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
        lost[:, LIAR] = True
        alone = execution.with_trace(replace(execution.trace, lost=lost)).without(frozenset({LIAR}))
        kept = {party: one for party, one in released(alone, values, head).items() if party != LIAR}
        found = conclude_possible(plan, study.workload, alone, added(plan, kept, LIAR))
        assert found.execution.in_part
        require_within(study, truth, found)
        return CANNOT
    possible = PossibleReleases.of(plan, execution.schedule, weights)
    named = {party for party, one in releases.items() if possible is not None and possible.cannot_be(party, one)}
    assert named <= {LIAR}
    kept = {party: one for party, one in releases.items() if party not in named}
    used = execution.without(frozenset(named)) if named else execution
    try:
        found = conclude_possible(plan, study.workload, used, added(plan, kept, LIAR))
    except ImpossibleResult:
        return NO_RESULT
    require_within(study, truth, found)
    return LEFT_OUT if named else BOUNDED


def released(execution: Execution, values: Array, head: str) -> dict[int, Release]:
    noise, machines = InsecurePopulationNoise(5, PARTIES), []
    for party in range(PARTIES):
        value, weight = values[party], float(execution.weights[party])
        if party == LIAR:
            value, weight = lie_of(head, value, weight)
        machines.append(execution.protocol.machine(execution.schedule, party, value, weight, noise.party(party)))
    protocol = execution.protocol
    with np.errstate(all="ignore"):
        run = run_lockstep(machines, execution.trace, execution.arrivals(), refusing=protocol.traits.refuses_messages)
    return run.releases


def added(plan: Plan, releases: dict[int, Release], liar: int) -> ReleasedSum:
    """The sum of what is public; else what an honest party has."""
    if not plan.protocol.traits.releases_are_public:
        one = next(release for party, release in releases.items() if party != liar)
        return ReleasedSum(one.vector, one.weight)
    return ReleasedSum(np.sum([one.vector for one in releases.values()], axis=0), sum(one.weight for one in releases.values()))


def require_within(study: StudyTerms, truth: StudyOutcome, found: StudyOutcome) -> None:
    assert truth.influence is not None
    most = truth.influence.most("mean(age)")
    assert most is not None
    moved = abs(float(found.answers[0].estimates.value[0]) - float(truth.answers[0].estimates.value[0]))
    assert moved <= most, study.protocol


def test_a_wrong_bound_would_be_found() -> None:
    """What is within the bound is near enough to it: a twentieth of it would not hold."""
    study, plan = study_of("secagg", 0, ASKED)
    values, weights = encoded(study, plan, PLACES["middle"])
    execution = executions(plan, weights)[0]
    truth, found = (
        conclude_possible(plan, study.workload, execution, added(plan, released(execution, values, head), LIAR))
        for head in ("", "too large")
    )
    assert truth.influence is not None
    most = truth.influence.most("mean(age)")
    assert most is not None
    assert abs(float(found.answers[0].estimates.value[0]) - float(truth.answers[0].estimates.value[0])) > most / 20


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if one == "inca" else one for one in NAMES])
def test_a_stated_bound_is_near_what_values_and_noise_span(name: str) -> None:
    """Else what nobody can have sent is within the bound: that of one protocol was a million times as wide."""
    _, plan = study_of(name, 0, ASKED)
    stated = planned_influence(plan)
    assert stated is not None
    low, high = plan.input_domain.coordinate_bounds
    assert stated.largest <= 10 * (float((high - low).max()) + float(plan.prediction.get("mse_noise", 0.0)) ** 0.5)


def row(name: str) -> str:
    return f"| `{name}` | {' | '.join(outcome(name, head) for head in HEADS)} |"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in NAMES])
def test_the_page_says_what_happens(name: str) -> None:
    assert row(name) in PAGE.read_text().splitlines()


def test_the_page_has_a_row_for_every_protocol_that_takes_any_values() -> None:
    table = PAGE.read_text().split("\n\n")[3]
    rows = [line.split("`")[1] for line in table.splitlines()[2:]]
    assert rows == NAMES
