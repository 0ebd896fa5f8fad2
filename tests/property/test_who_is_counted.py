"""Whoever a result says is counted has a value in it, and nobody else: for every protocol, whenever somebody leaves.

One party's records are changed and all noise and secrets are kept: the result changes if and only if that party is counted, and
by as much as the part of its records that counts.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Vector
from quietmean.planning import Plan
from quietmean.protocols import get_protocol, registry
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import decoded
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.statistics import Workload
from quietmean.studies.agreement.study import StudyTerms
from support.leaving import leaving

PARTIES, RECORDS = 5, (3, 1, 2, 4, 2)
NAMES = sorted(registry())
# Of what changes: rounding to grids, and what is left of differences where parties had little time to mix what came last.
ROUNDED = 0.02


@cache
def planned(protocol: str) -> tuple[Plan, Workload] | None:
    """The plan of a mean, of which one party may leave; None where no study is planned, or nobody may leave."""
    kind = get_protocol(protocol)
    study = {"epsilon": 4.0, "protocol": protocol, "dropouts": 1 / PARTIES, "column": [{"name": "age", "low": 0, "high": 100}]}
    try:
        one = StudyTerms.parse(study)
        return one.plan(PARTIES, no_privacy=not kind.TRAITS.private), one.workload
    except InputError:
        assert not kind.TRAITS.tolerates_dropouts or not kind.TRAITS.has_transcript
        return None


def means(execution: Execution, values: Vector, seed: int) -> Vector:
    """Of each party that has a result of its own, or the one of all: shape (results, d)."""
    releases = execution.run_batch(values, InsecurePopulationNoise(seed, PARTIES))
    if execution.protocol.traits.releases_are_public:
        return execution.estimate(releases)[None, :]
    parts = zip(releases.vector[releases.by], releases.weight[releases.by], strict=True)
    return np.array([decoded(execution.protocol, PARTIES, vector, float(weight)) for vector, weight in parts])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("protocol", NAMES)
def test_who_is_counted_is_in_the_result(protocol: str) -> None:
    found = planned(protocol)
    if found is None:
        return
    plan, workload = found
    weights = np.array(RECORDS, dtype=np.float64)

    def encoded(age: float, other: int) -> Vector:
        tables = [np.full((size, 1), age if party == other else 40.0) for party, size in enumerate(RECORDS)]
        return np.array([plan.admit(workload.encode(one, step=plan.value_step).vector, float(len(one))) for one in tables])

    in_part = 0
    for leaver in sorted(set(range(PARTIES)) - plan.protocol.traits.indispensable)[:2]:
        for last in range(plan.protocol.rounds):
            execution = plan.execution(Seed.public("counted", leaver), leaving(plan, leaver, last), weights)
            counted = execution.contributors()
            weight = execution.counted_weight()
            for other in (leaver, (leaver + 1) % PARTIES):
                first, second = encoded(40.0, other), encoded(90.0, other)
                try:
                    change = (means(execution, second, last) - means(execution, first, last)) * weight
                except ProtocolFailure:
                    continue
                expected = np.broadcast_to(execution.parts[other] * (second - first)[other], change.shape)
                where = f"party {other}, where {leaver} leaves after round {last}"
                assert bool((np.abs(change) > 1e-9).any()) == counted[other], where
                np.testing.assert_allclose(change, expected, atol=ROUNDED * np.abs(second - first).max(), err_msg=where)
            in_part += 0.001 < execution.parts[leaver] < 0.999
    assert bool(in_part) == (protocol in ("gossip", "inca", "muffliato"))
