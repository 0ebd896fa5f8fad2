"""No lie moves an answer that is shown by more than is stated: under every protocol, in the worst directions.

A liar knows all bounds. It lies in the direction that moves one answer most, as far as receivers still accept; the bound must
not be far above the worst that is found either, else it would say nothing. It holds for what is shown, and before that is
moved to the nearest possible value, which hides lies that go beyond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.readable import bound_text
from quietmean.planning import Plan
from quietmean.planning import influence as planned
from quietmean.planning.influence import Checked, influence_of
from quietmean.planning.possible import ImpossibleResult, ReleasedSum
from quietmean.planning.release_bounds import PossibleReleases
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.statistics.influence_bounds import Shift
from quietmean.statistics.moves import moves
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.influence import StudyInfluence
from quietmean.studies.outcome.outcome import StudyOutcome, conclude_possible, require_possible_result
from support.at_the_edges import NAMES, PARTIES, PLACES, WAYS, encoded, executions, study_of, sums, values_released

Array = NDArray[np.float64]

LIAR = 2
QUICK = (("cordp-dme", 1), ("secagg", 1))
EVERY = [(name, way) for name in NAMES for way in range(len(WAYS))]
CASES = [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in EVERY]
# Beside mean and variance of at_the_edges.
MORE: list[dict[str, Any]] = [
    {"kind": "mean", "column": "age"},
    {"kind": "mean", "column": "score"},
    {"kind": "histogram", "column": "age", "bins": 3},
    {"kind": "cdf", "column": "age", "bins": 4},
    {"kind": "count", "column": "score"},
    {"kind": "sum", "column": "age"},
]
_STEPS = 24


def case_of(name: str, way: int) -> tuple[StudyTerms, Plan]:
    only_means = "unit" in WAYS[way]
    return study_of(name, way, tuple(MORE[:2] + MORE[3:4]) if only_means else tuple(MORE))


def shown(study: StudyTerms, plan: Plan, execution: Execution, opened: ReleasedSum) -> StudyOutcome | None:
    """What is shown of a sum; None if it is refused."""
    try:
        return conclude_possible(plan, study.workload, execution, opened)
    except ImpossibleResult:
        return None


def directions(study: StudyTerms, plan: Plan) -> Iterator[Array]:
    """In which the first and the last term of each statistic rises or falls most."""
    decoder = study.workload.decoder(plan.protocol.numbers().step)
    for statistic in study.workload.statistics:
        readings = statistic.readings(study.workload.declared)
        for reading in {readings[0], readings[-1]}:
            slope = reading.top @ decoder.read[decoder.places[reading.feature]]
            sign = np.sign(np.where(np.abs(slope) > 1e-12, slope, 0.0))
            yield from (sign, -sign)


def values_of(outcome: StudyOutcome) -> dict[tuple[str, str], float]:
    return {
        (one.statistic.text, term): float(value)
        for one in outcome.answers
        for term, value in zip(one.estimates.terms, one.estimates.value, strict=True)
    }


def farthest(plan: Plan, accepted: object, honest: Array, direction: Array) -> Array:
    """The lie in that direction that is farthest from what is honest, of those that are accepted."""
    assert callable(accepted)
    low, high = 0.0, 1e3 * (1 + float(np.abs(honest).max())) * max(1.0, plan.target.sensitivity)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if accepted(honest + middle * direction) else (low, middle)
    return honest + low * direction


def lies(
    study: StudyTerms, plan: Plan, execution: Execution, places: tuple[float, ...]
) -> Iterator[tuple[ReleasedSum, ReleasedSum]]:
    """What was added up in truth, and with a lie."""
    values, weights = encoded(study, plan, places)
    possible = PossibleReleases.of(plan, execution.schedule, weights)
    honest = sums(execution, values, 1)[0]
    ways = list(directions(study, plan))
    if possible is None:
        for direction in ways:

            def accepted(total: Array) -> bool:
                try:
                    require_possible_result(plan, study.workload, execution, replace(honest, total=total))
                except ImpossibleResult:
                    return False
                return True

            yield honest, replace(honest, total=farthest(plan, accepted, honest.total, direction))
        return
    releases = execution.run(values, InsecurePopulationNoise(1, PARTIES)).releases
    own = releases[LIAR]
    for direction in ways:

        def passes(vector: Array) -> bool:
            return not possible.cannot_be(LIAR, replace(own, vector=vector))

        lie = farthest(plan, passes, own.vector, direction)
        yield honest, replace(honest, total=honest.total - own.vector + lie)
    # Left out, whatever it was.
    yield honest, ReleasedSum(honest.total - own.vector, honest.weight - own.weight)


def without(execution: Execution, lie: ReleasedSum, honest: ReleasedSum) -> Execution:
    return execution if lie.weight == honest.weight else execution.without(frozenset({LIAR}))


def worst(study: StudyTerms, plan: Plan) -> tuple[float, float]:
    """The largest part of a stated bound that any lie reached, of the liar's honest and of its shown result."""
    reached, stated = 0.0, 0.0
    for places in (PLACES["low"], PLACES["both"], PLACES["high"]):
        _, weights = encoded(study, plan, places)
        execution = executions(plan, weights)[0]
        for honest, lie in lies(study, plan, execution, places):
            truth = shown(study, plan, execution, honest)
            found = shown(study, plan, without(execution, lie, honest), lie)
            assert truth is not None
            assert truth.influence is not None
            if found is None:
                continue
            assert found.influence is not None
            left = without(execution, lie, honest)
            pairs = (
                (values_of(truth), values_of(found)),
                (values_released(study.workload, execution, honest), values_released(study.workload, left, lie)),
            )
            for own in (truth.influence, found.influence) if lie.weight == honest.weight else (truth.influence,):
                for move in own.moves:
                    term = move.statistic, move.term
                    moved = float(np.fmax.reduce([abs(after[term] - before[term]) for before, after in pairs]))
                    if move.most is None or np.isnan(moved):
                        continue
                    stated = max(stated, move.most if np.isfinite(move.most) else 0.0)
                    reached = max(reached, moved / move.most)
    return reached, stated


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "way"), CASES)
def test_no_lie_moves_an_answer_by_more_than_is_stated(name: str, way: int) -> None:
    study, plan = case_of(name, way)
    reached, _ = worst(study, plan)
    assert reached <= 1 + 1e-9
    # Half of the bound is room for honest noise on the other side.
    assert reached > (0.25 if plan.protocol.traits.gaussian_noise else 1e-9)


@pytest.mark.parametrize("name", [pytest.param("cordp-dme", marks=pytest.mark.slow), "secagg"])
def test_a_bound_that_is_half_as_large_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = case_of(name, 1)

    def halved(workload: object, shift: Shift, *given: object) -> object:
        return moves(workload, Shift(shift.mean / 2.5, shift.total / 2.5, 0.0), *given)  # type: ignore[arg-type]

    monkeypatch.setattr("quietmean.studies.outcome.influence.moves", halved)
    reached, _ = worst(study, plan)
    assert reached > 1


@pytest.mark.slow
def test_a_bound_that_forgets_what_pairs_share_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = case_of("cordp-dme", 0)
    own = PossibleReleases.of

    def alone(plan: Plan, *given: object) -> PossibleReleases | None:
        possible = own(plan, *given)  # type: ignore[arg-type]
        assert possible is not None
        return replace(possible, deviations=np.full(PARTIES, 1e-9))

    class _Forgets:
        of = staticmethod(alone)

    monkeypatch.setattr(planned, "PossibleReleases", _Forgets)
    reached, _ = worst(study, plan)
    assert reached > 1


def test_what_is_checked_of_each_protocol() -> None:
    for name, expected in (("cordp-dme", Checked.EACH_RELEASE), ("local-dp", Checked.EACH_RELEASE), ("secagg", Checked.RESULT)):
        study, plan = case_of(name, 0)
        found = StudyInfluence.planned(study.workload, plan, 600.0)
        assert found is not None
        assert found.checked == expected
        most = found.most("mean(age)")
        assert most is not None
        # One party of six, or anything within the bounds of 70 years, and noise.
        assert most > (70 / 6 if expected == Checked.EACH_RELEASE else 70)
        assert any(f"mean(age) by at most {bound_text(most)}" in sentence for sentence in found.sentences())
        assert found.sentences()[-1].endswith("as if no cell were missing")
        # Of a column whose missing cells do not count, too.
        assert found.most("mean(score)") is not None


def test_more_records_bound_it_closer_and_a_larger_share_less() -> None:
    study, plan = case_of("cordp-dme", 0)
    few, many, one_sided = (
        StudyInfluence.planned(study.workload, plan, records, share)
        for records, share in ((600.0, None), (60_000.0, None), (60_000.0, 0.9))
    )
    assert few is not None
    assert many is not None
    assert one_sided is not None
    bounds = [one.most("mean(age)") for one in (few, many, one_sided)]
    assert None not in bounds
    assert bounds[1] < bounds[0]  # type: ignore[operator]
    assert many.most("mean(age)") == pytest.approx(70 / 6, rel=0.5)
    assert one_sided.share == pytest.approx(0.9)
    assert one_sided.most("mean(age)") > 0.9 * 70  # type: ignore[operator]


def test_where_nothing_bounds_it_that_is_said() -> None:
    study, plan = case_of("cordp-dme", 0)
    _, weights = encoded(study, plan, PLACES["middle"])
    found = influence_of(plan, executions(plan, weights)[0].without(frozenset(range(PARTIES))))
    assert not found.is_bounded
    told = StudyInfluence.of(study.workload, found, 0.0)
    assert told.checked == Checked.NOTHING
    assert any("mean(age) by any amount" in sentence for sentence in told.sentences())
    assert StudyInfluence.from_json(told.to_json()) == told
