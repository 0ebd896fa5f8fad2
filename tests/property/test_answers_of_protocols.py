"""Every protocol answers every kind of statistic as if all records were on one machine, but for its noise.

Protocols and kinds are those that are registered. Noise is silenced, so that what is left is rounding: it is compared with the
noise that the plan predicts, at an epsilon so large that a value moved by a hundredth of the sensitivity is seen.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.party import Units, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.protocols import Mechanism, get_protocol, registry
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import decoded
from quietmean.protocols.secagg import spec
from quietmean.protocols.traits import ANY_DOMAIN
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.statistics import Statistic, Workload
from quietmean.statistics import registry as statistics
from quietmean.studies.agreement.study import StudyTerms
from support.every_kind import COLUMNS, all_statistics, statistics_of

Array = NDArray[np.float64]

PARTIES = 5
EQUAL, UNEQUAL, SOME_EMPTY = (2, 2, 2, 2, 2), (1, 1, 2, 3, 200), (0, 0, 2, 0, 200)
EPSILON = 12.0
# Of the noise that is predicted: what rounding at random to a step of a quarter of it comes to, and what no coordinate exceeds.
# A coordinate exceeds it with a chance below 1e-12.
USUAL, MOST = 0.15, 1.0
NAMES = sorted(registry())
Protects = Literal["records", "parties", "records and their number"]
STUDIES: dict[Protects, dict[str, Any]] = {
    "records": {"unit": "record"},
    "parties": {"unit": "party"},
    "records and their number": {"unit": "record", "count": "private", "most_records": max(UNEQUAL)},
}
UNITS = {protects: PrivacyUnit(one["unit"]) for protects, one in STUDIES.items()}
# Ways of protocols to hold values, of which a plan takes the study's domain, or says that it does not.
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("packed-sharing", {"domain": "ball"}),
    ("packed-sharing", {"domain": "any"}),
    ("packed-sharing", {"largest_weight": 200.0}),
    ("secagg", {"domain": "ball"}),
    ("secagg", {"bits": 16, "largest_weight": 2.0}),
    ("secagg", {"bits": 24, "largest_weight": 200.0}),
    ("secagg", {"clip": 0.5}),
    ("secagg", {"clip": 50.0}),
    ("secagg", {"centre": 0.25}),
    ("secagg-plus", {"degree": 2}),
    ("inca", {"value_bits": 32}),
    ("inca", {"value_bits": 32, "largest_value": 3000.0}),
    ("inca", {"value_bits": 32, "largest_value": 0.01}),
    ("gossip", {"value_bits": 32, "largest_value": 3000.0}),
    ("cordp-dme", {"partners": 2}),
    ("cordp-dme", {"aggregator": 1}),
    ("cordp-dme", {"radius": 0.1}),
    ("cordp-dme", {"radius": 100.0}),
    ("consensus", {"bits": 8}),
    ("consensus", {"bits": "auto"}),
    ("gopa", {"aggregator": 0}),
    ("central-dp", {"curator": 2}),
    ("local-dp", {"noise": "insecure-float64"}),
]
# Sums of protocols without noise are exact to so many times the numbers that take part.
EXACT = 1e-7


class Silenced(InsecurePopulationNoise):
    """Secrets as always, and no noise."""

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return np.zeros((self._parties, dimension))

    def shared_normal(self, pairs: NDArray[np.int64], purpose: str, index: int, dimension: int) -> Vector:
        return np.zeros((len(pairs), dimension))

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        return np.zeros((self._parties, dimension), dtype=np.int64)

    def shared_discrete(self, pairs: NDArray[np.int64], purpose: str, index: int, scale: float, dimension: int) -> Units:
        return np.zeros((len(pairs), dimension), dtype=np.int64)


@pytest.fixture(autouse=True)
def silent_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of secure aggregation, which draws its noise from a secret."""
    monkeypatch.setattr(spec, "discrete_gaussian", lambda seed, scale, size: np.zeros(size, dtype=np.int64))


def study(protocol: str, asked: list[Statistic], protects: Protects, options: dict[str, Any]) -> StudyTerms:
    return StudyTerms.parse(
        {
            "column": [column.describe() for column in COLUMNS],
            "statistic": [one.describe() for one in asked],
            **STUDIES[protects],
            "epsilon": EPSILON,
            "protocol": protocol,
            "options": options,
        }
    )


def planned(
    protocol: str, asked: list[Statistic], protects: Protects, options: dict[str, Any] | None = None
) -> tuple[Plan, Workload] | None:
    """The plan of a study; None for a protocol that takes no vectors of statistics, or cannot be planned: its plan says so."""
    one, kind = study(protocol, asked, protects, options or {}), get_protocol(protocol)
    can_be_planned = kind.TRAITS.has_transcript or kind.design is not Mechanism.design
    hidden = protects == "records and their number"
    if can_be_planned and kind.TRAITS.domain == ANY_DOMAIN and (kind.TRAITS.hides_counts or not hidden):
        return one.plan(PARTIES, no_privacy=not kind.TRAITS.private), one.workload
    with pytest.raises(InputError):
        one.plan(PARTIES, no_privacy=not kind.TRAITS.private)
    return None


@cache
def of_all_kinds(protocol: str, protects: Protects) -> tuple[Plan, Workload] | None:
    return planned(protocol, all_statistics(UNITS[protects]), protects)


def corners() -> Array:
    """Records at every corner of the bounds, with the first or the last level, and with each cell missing in turn."""
    ends = [(one.low, one.high) if one.numeric else (0.0, len(one.categories) - 1.0) for one in COLUMNS]
    whole = np.array(list(itertools.product(*ends)))
    holed = [np.where(np.arange(len(ends)) == place, np.nan, whole[place]) for place in range(len(ends))]
    return np.vstack([whole, holed, np.full((1, len(ends)), np.nan)])


CORNERS = corners()


def at_corners(first: int, sizes: tuple[int, ...]) -> list[Array]:
    """Every party has the same record many times, from corner ``first`` on: its sum is as far out as sums of records are."""
    return [np.tile(CORNERS[(first + 13 * party) % len(CORNERS)], (size, 1)) for party, size in enumerate(sizes)]


def random_tables(seed: int, sizes: tuple[int, ...]) -> list[Array]:
    """Records within, at and beyond the bounds, a sixth of the cells missing."""
    rng = np.random.default_rng(seed)

    def table(size: int) -> Array:
        found = [
            rng.uniform(one.low - 5, one.high + 5, size) if one.numeric else rng.integers(0, len(one.categories), size)
            for one in COLUMNS
        ]
        cells: Array = np.column_stack(found).astype(np.float64)
        cells[rng.random(cells.shape) < 1 / 6] = np.nan
        return cells

    return [table(size) for size in sizes]


def require_the_answer_of_pooled_records(plan: Plan, workload: Workload, tables: list[Array], *, machines: bool) -> None:
    """The mean vector that parties end with is that of all records, but for rounding."""
    encoded = [workload.encode(table, step=plan.value_step) for table in tables]
    weights = np.array([one.weight for one in encoded])
    values = np.array([plan.admit(one.vector, one.weight) for one in encoded])
    pooled = np.array([one.vector for one in encoded]).sum(axis=0) / weights.sum()
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, PARTIES)
    execution = plan.execution(Seed.public("conformance"), everyone, weights)
    noise = Silenced(1, PARTIES)
    means = _means_of_machines(execution, values, noise) if machines else _means_of_program(execution, values, noise)
    deviation = np.sqrt(plan.prediction["mse_noise"]) * PARTIES / weights.sum()
    exact = EXACT * float(np.abs(values).max())
    for mean in means:
        error = mean - pooled
        assert np.sqrt((error**2).mean()) <= USUAL * deviation + exact
        assert np.abs(error).max() <= MOST * deviation + exact


def _means_of_program(execution: Execution, values: Vector, noise: Silenced) -> list[Vector]:
    releases = execution.run_batch(values, noise)
    if execution.protocol.traits.releases_are_public:
        return [execution.estimate(releases)]
    parts = zip(releases.vector[releases.by], releases.weight[releases.by], strict=True)
    return [decoded(execution.protocol, PARTIES, vector, float(weight)) for vector, weight in parts]


def _means_of_machines(execution: Execution, values: Vector, noise: Silenced) -> list[Vector]:
    released = execution.run(values, noise).releases.values()
    assert released
    if not execution.protocol.traits.releases_are_public:
        return [decoded(execution.protocol, PARTIES, one.vector, one.weight) for one in released]
    total, weight = np.sum([one.vector for one in released], axis=0), float(sum(one.weight for one in released))
    return [decoded(execution.protocol, PARTIES, total, weight)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("machines", [False, True], ids=["program", "machines"])
@pytest.mark.parametrize("sizes", [EQUAL, UNEQUAL, SOME_EMPTY], ids=["equal", "unequal", "some empty"])
@pytest.mark.parametrize("protects", STUDIES)
@pytest.mark.parametrize("protocol", NAMES)
def test_all_kinds_at_once(protocol: str, protects: Protects, sizes: tuple[int, ...], machines: bool) -> None:
    found = of_all_kinds(protocol, protects)
    if found is None:
        return
    firsts = [37] if machines else range(0, len(CORNERS), 11)
    tables = [*(at_corners(first, sizes) for first in firsts), random_tables(1, sizes)]
    for one in tables:
        require_the_answer_of_pooled_records(*found, one, machines=machines)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("protocol", "options"), OPTIONS, ids=str)
def test_options_hold_the_domain_or_are_refused(protocol: str, options: dict[str, Any]) -> None:
    try:
        found = planned(protocol, all_statistics(), "records", options)
        assert found is not None
        found[0].require_room(max(UNEQUAL))
    except InputError:
        return
    for tables in (at_corners(3, UNEQUAL), random_tables(2, UNEQUAL)):
        require_the_answer_of_pooled_records(*found, tables, machines=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(statistics()))
@pytest.mark.parametrize("protocol", NAMES)
def test_each_kind_alone(protocol: str, kind: str) -> None:
    for protects, unit in UNITS.items():
        for asked in statistics_of(statistics()[kind], unit):
            found = planned(protocol, [asked], protects)
            if found is None:
                continue
            for first, sizes in itertools.product(range(len(CORNERS)), (EQUAL, UNEQUAL, SOME_EMPTY)):
                require_the_answer_of_pooled_records(*found, at_corners(first, sizes), machines=first == 0)
