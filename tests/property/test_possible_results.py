"""What honest parties release is never called impossible, whatever their values; what cannot be is, however little it is off.

Values are at the edges of their bounds. An honest sum is refused with a chance of 2e-12, so of all that is tried here none is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.core.party import Release
from quietmean.planning import Plan
from quietmean.planning.accuracy import released_noise
from quietmean.planning.calibrate import calibrate
from quietmean.planning.influence import ImpossibleResult, ReleasedSum, require_possible
from quietmean.planning.release_bounds import PossibleReleases, deviations_allowed
from quietmean.protocols import configure
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.outcome import require_possible_result
from support.at_the_edges import COLUMNS, NAMES, PARTIES, PLACES, WAYS, encoded, executions, study_of, sums

QUICK = (("cordp-dme", 0), ("local-dp", 2), ("packed-sharing", 1), ("secagg", 0))
EVERY = [(name, way) for name in NAMES for way in range(len(WAYS))]
# Each party releases its own value, and everybody sees that.
SEEN_ALONE = ("cordp-dme", "gopa", "local-dp")
ALONE = [(name, way) for name in SEEN_ALONE for way in range(len(WAYS))]
CASES = [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in EVERY]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "way"), ALONE)
def test_honest_releases_at_the_edges_are_possible_alone_and_wrong_ones_are_not(name: str, way: int) -> None:
    """Whatever the records: whether a release is left out does not depend on them, but for a chance of 1e-12."""
    study, plan = study_of(name, way)
    for seed, places in enumerate(PLACES.values()):
        values, weights = encoded(study, plan, places)
        for execution in executions(plan, weights):
            possible = PossibleReleases.of(plan, execution.schedule, weights)
            assert possible is not None
            releases = execution.run(values, InsecurePopulationNoise(seed, PARTIES)).releases
            assert releases
            for party, release in releases.items():
                assert not possible.cannot_be(party, release)
                assert all(possible.cannot_be(party, wrong) for wrong in _wrong_releases(plan, possible, party, release))


def _wrong_releases(plan: Plan, possible: PossibleReleases, party: int, release: Release) -> list[Release]:
    """Each coordinate by itself a deviation of the noise beyond what is possible; no numbers; other weights."""
    domain, units = plan.input_domain, release.weight if plan.target.unit == PrivacyUnit.RECORD else 1.0
    low, high = (units * bound for bound in domain.coordinate_bounds)
    far = (deviations_allowed(release.vector.size) + 1) * possible.deviations[party]
    places = np.arange(release.vector.size)
    edges = [np.where(places == place, end, release.vector) for place in places for end in (low - far, high + far)]
    edges += [np.full_like(release.vector, one) for one in (np.nan, np.inf, 1e300, -1e300)]
    weights = [one * release.weight for one in (0.0, -1.0, 0.5, 1.01, 2.0, np.nan, 1e300)]
    return [replace(release, vector=edge) for edge in edges] + [replace(release, weight=weight) for weight in weights]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SEEN_ALONE)
def test_what_pairs_share_counts_in_a_release_by_itself(name: str) -> None:
    """Over 200 draws of 10 numbers the deviation is within 10 % of what is stated: six of its own errors, 2e-9 a party."""
    study, plan = study_of(name, 0)
    values, weights = encoded(study, plan, PLACES["middle"])
    execution = executions(plan, weights)[0]
    possible = PossibleReleases.of(plan, execution.schedule, weights)
    assert possible is not None
    runs = [execution.run(values, InsecurePopulationNoise(seed, PARTIES)).releases for seed in range(200)]
    for party in range(PARTIES):
        drawn = np.array([releases[party].vector - values[party] for releases in runs])
        assert drawn.size >= 10 * 200
        assert abs(np.sqrt((drawn**2).mean()) / possible.deviations[party] - 1) < 0.1


@pytest.mark.slow
def test_where_no_release_is_seen_alone_none_is_left_out() -> None:
    for name in set(NAMES) - set(SEEN_ALONE):
        _, plan = study_of(name, 1)
        assert PossibleReleases.of(plan, plan.schedule(Seed.public("possible"))) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "way"), CASES)
def test_honest_sums_at_the_edges_are_possible_and_wrong_ones_are_not(name: str, way: int) -> None:
    study, plan = study_of(name, way)
    for seed, places in enumerate(PLACES.values()):
        values, weights = encoded(study, plan, places)
        for execution in executions(plan, weights):
            for opened in sums(execution, values, seed):
                require_possible_result(plan, study.workload, execution, opened)
                for wrong in _wrong(plan, execution, opened):
                    with pytest.raises(ImpossibleResult):
                        require_possible_result(plan, study.workload, execution, wrong)


def _wrong(plan: Plan, execution: Execution, opened: ReleasedSum) -> list[ReleasedSum]:
    """Beyond what is allowed by as much as the whole range; no numbers; other weights."""
    noise = released_noise(execution)
    checks = plan.protocol.traits.checks
    reach = checks.reach(plan.protocol, execution.schedule, execution.trace, execution.weights)
    far = deviations_allowed(opened.total.size, checks.tails(plan.protocol, opened.total.size)) * np.sqrt(noise.variance) + reach
    width = 4 * opened.weight * (far + plan.input_domain.largest * (1 + reach))
    total = opened.total
    found = [replace(opened, total=total + one) for one in (width, -width, np.nan, np.inf, 1e300, -1e300)]
    found += [replace(opened, weight=one) for one in (0.0, -opened.weight, np.nan, np.inf, 1e300)]
    # Nor is so little weight that rounding is divided by next to nothing, though shares may be in doubt.
    found += [ReleasedSum(total * one, opened.weight * one, settled=False) for one in (1e-300, 1e-9)]
    if plan.protocol.traits.weight_is_known:
        found += [replace(opened, weight=one * opened.weight) for one in (0.5, 1.01, 1.5)]
    return found


def test_squares_that_are_too_small_are_seen_though_each_coordinate_is_possible() -> None:
    study, plan = study_of("central-dp", 0)
    values, weights = encoded(study, plan, PLACES["high"])
    # Of many records, so that noise is small.
    values, weights = values * 4096, weights * 4096
    (execution, *_) = executions(plan, weights)
    (opened,) = sums(execution, values, 1)
    require_possible_result(plan, study.workload, execution, opened)
    # The mean of ages at their bound, with the squares of ages in the middle.
    middle, _ = encoded(study, plan, PLACES["middle"])
    one = middle.sum(axis=0) * 4096
    mixed = [np.where(np.arange(len(one)) == place, one, opened.total) for place in range(len(one))]
    refused = 0
    for total in mixed:
        require_possible(plan, execution, replace(opened, total=total))
        try:
            require_possible_result(plan, study.workload, execution, replace(opened, total=total))
        except ImpossibleResult:
            refused += 1
    assert refused


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("local-dp", "inca", "packed-sharing", "gopa")]


@pytest.mark.parametrize("name", ["cordp-dme", *SLOW])
def test_a_hundred_thousand_honest_coordinates(name: str) -> None:
    """Each of 100 sums is of 1000 coordinates at their upper bound: refused with a chance of 1e-12 each, 1e-10 in all."""
    study = StudyTerms.parse({"epsilon": 1.0, "delta": 1e-6, "protocol": name, "column": [COLUMNS[0]], "accept_wide": True})
    plan = study.choice(PARTIES).plan
    target = replace(plan.target, dimension=1000, sensitivity=plan.target.sensitivity * np.sqrt(1000), l1=None, rounded=None)
    plan = calibrate(target, configure(type(plan.protocol).name, {}))
    weights = np.ones(PARTIES)
    (execution,) = executions(plan, weights)[:1]
    largest = max(part.high for part in plan.input_domain.parts)
    value = plan.admit(np.full(1000, largest), 1.0).vector
    values, beyond = np.tile(value, (PARTIES, 1)), 0
    for seed in range(100):
        releases = execution.run_batch(values, InsecurePopulationNoise(seed, PARTIES))
        by = releases.by if plan.protocol.traits.releases_are_public else releases.by & (releases.by.cumsum() == 1)
        opened = ReleasedSum(releases.vector[by].sum(axis=0), float(releases.weight[by].sum()))
        require_possible(plan, execution, opened)
        beyond += int((opened.total > opened.weight * largest).sum())
    # It is the noise that makes these possible: about half of all lie outside of the bounds.
    assert beyond > 20_000
