"""Studies whose records all lie at the edges of their bounds, under every protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.planning.accuracy import stated_variance
from quietmean.planning.influence import ReleasedSum
from quietmean.protocols import get_protocol, registry
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.statistics import Workload
from quietmean.studies.agreement.study import StudyTerms

PARTIES = 6
NAMES = sorted(name for name, one in registry().items() if one.TRAITS.domain == "any bounded set")
COLUMNS = [{"name": "age", "low": 20, "high": 90}, {"name": "score", "low": -1, "high": 3, "missing": "indicator"}]
ASKED = [{"kind": "mean", "column": "age"}, {"kind": "variance", "column": "age"}, {"kind": "variance", "column": "score"}]
# Of all records, in half widths of the bounds: at one edge, at the other, both, in the middle.
PLACES = {"low": (-1.0,), "high": (1.0,), "both": (-1.0, 1.0), "middle": (0.0,)}
WAYS: list[dict[str, Any]] = [{}, {"unit": "party"}, {"count": "private", "most_records": 40}]


def study_of(name: str, way: int, asked: Sequence[dict[str, Any]] = ASKED, **options: Any) -> tuple[StudyTerms, Plan]:
    """The study that asks this in one of the ways, and its plan; skips where there is none. ``options``: of the protocol."""
    return _study_of(name, way, json.dumps(list(asked)), json.dumps(options))


@cache
def _study_of(name: str, way: int, asked: str, options: str) -> tuple[StudyTerms, Plan]:
    raw = {
        "epsilon": 4.0,
        "delta": 1e-6,
        "protocol": name,
        "options": json.loads(options),
        "column": COLUMNS,
        "statistic": json.loads(asked),
        "accept_wide": True,
    }
    # Dropouts where the protocol plans for them.
    for dropouts in (0.2, 0.0):
        try:
            study = StudyTerms.parse({**raw, "dropouts": dropouts, **WAYS[way]})
            return study, study.choice(PARTIES, no_privacy=not get_protocol(name).TRAITS.private).plan
        except InputError as error:
            refused = error
    pytest.skip(str(refused))


def encoded(study: StudyTerms, plan: Plan, places: tuple[float, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of parties with 1, 2, 3 ... records: their vectors and their weights."""
    middle, half = np.array([55.0, 1.0]), np.array([35.0, 2.0])
    parts = []
    for party in range(PARTIES):
        where = np.array([places[row % len(places)] for row in range(party + len(places))])
        parts.append(study.workload.encode(middle + where[:, None] * half, step=plan.value_step))
    vectors = [plan.admit(part.vector, part.weight).vector for part in parts]
    return np.array(vectors), np.array([part.weight for part in parts])


def sums(execution: Execution, values: NDArray[np.float64], seed: int) -> list[ReleasedSum]:
    """What is added up: of all releases, or of each party that computes its own result."""
    releases = execution.run(values, InsecurePopulationNoise(seed, PARTIES)).releases
    if not releases:
        return []
    if not execution.protocol.traits.releases_are_public:
        return [ReleasedSum(one.vector, one.weight) for one in releases.values()]
    total = np.sum([one.vector for one in releases.values()], axis=0)
    return [ReleasedSum(total, sum(one.weight for one in releases.values()))]


def executions(plan: Plan, weights: NDArray[np.float64]) -> list[Execution]:
    """Everybody stays; and the last party leaves before the end, or in the middle, where that may be."""
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, PARTIES)
    found = [plan.execution(Seed.public("possible"), everyone, weights)]
    gone = PARTIES - 1
    if plan.target.dropouts and plan.protocol.traits.tolerates_dropouts and gone not in plan.protocol.traits.indispensable:
        for last in {0, plan.protocol.rounds // 2}:
            online = everyone.online.copy()
            online[last + 1 :, gone] = False
            found.append(found[0].with_trace(replace(everyone, online=online)))
    return found


def values_released(workload: Workload, execution: Execution, opened: ReleasedSum) -> dict[tuple[str, str], float]:
    """Each term's value by its statistic, as noise or a lie leaves it: not moved to the nearest possible one."""
    mean, step = execution.decode(opened.total, opened.weight), execution.protocol.numbers().step
    noise = float(np.sqrt(stated_variance(execution)))
    released = workload.decoder(step).released(mean, noise, execution.counted_weight())
    values: dict[tuple[str, str], float] = {}
    for statistic in workload.statistics:
        estimates = workload.with_columns(statistic).as_released(released)
        values |= {(statistic.text, term): float(value) for term, value in zip(estimates.terms, estimates.value, strict=True)}
    return values
