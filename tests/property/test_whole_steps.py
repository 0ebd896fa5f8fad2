"""Laplace noise on whole steps: studies that differ by one unit are never further apart than what is charged, exhaustively."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.planning.accuracy import stated_variance
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.protocols.central_dp import CentralDP
from quietmean.protocols.committee.design import design, promised
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.committee_size import Committee
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.encoding import rounded, rounded_l1, rounded_sensitivity
from quietmean.protocols.packed_sharing.spec import ANY, BOX
from quietmean.protocols.secagg import SecAgg
from quietmean.protocols.secagg.design import rounded_sensitivity as rounded_by_secagg
from quietmean.protocols.secagg.spec import INDEPENDENT
from quietmean.protocols.secagg.spec import encode as encoded_by_secagg
from quietmean.protocols.target import Target
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.studies.agreement.study import StudyTerms
from support.refusals import refused

COLUMNS = [
    {"name": "a", "levels": ["x", "y", "z"]},
    {"name": "b", "levels": ["k", "l"]},
    {"name": "age", "low": 0, "high": 100},
]
CROSS = {"kind": "crosstab", "row": "a", "column": "b"}
# Each with how many units there are of which nothing is rounded.
WHOLE: dict[str, dict[str, Any]] = {
    "table": {"statistic": [CROSS]},
    "levels": {"statistic": [{"kind": "proportion", "column": "a"}]},
    "bins": {"statistic": [{"kind": "histogram", "column": "age", "bins": 3}]},
    "within": {"statistic": [{**CROSS, "where": "age >= 50"}]},
    "two tables": {"statistic": [CROSS, {"kind": "histogram", "column": "age", "bins": 2, "share": 3.0}]},
    "private count": {"statistic": [CROSS], "count": "private", "most_records": 50},
    "first row": {"statistic": [CROSS], "unit": "person", "rows": "first"},
    "count": {"statistic": [{"kind": "count", "where": "age >= 50"}]},
    "two counts": {"statistic": [{"kind": "count", "where": "age >= 50"}, {"kind": "count", "where": "b == 'k'", "share": 3.0}]},
    "private counts of a part": {"statistic": [{"kind": "count", "where": "b == 'k'"}], "count": "private", "most_records": 50},
    "small epsilon": {"statistic": [CROSS], "epsilon": 0.03},
    "large epsilon": {"statistic": [CROSS], "epsilon": 4.0},
}
# Where a party's whole vector is rounded once.
ROUNDED: dict[str, dict[str, Any]] = {
    "mean": {"statistic": [{"kind": "mean", "column": "age"}]},
    "mean beside a table": {"statistic": [CROSS, {"kind": "mean", "column": "age"}]},
    "mean of rows": {"statistic": [CROSS], "unit": "person", "rows": "mean"},
    "party": {"statistic": [{"kind": "proportion", "column": "a"}], "unit": "party"},
}


def planned(changed: dict[str, Any]) -> tuple[StudyTerms, Plan]:
    fields = {"name": "s", "epsilon": 1.0, "delta": 1e-6, "protocol": "packed-sharing", "options": {"noise": "laplace"}}
    terms = StudyTerms.parse({**fields, "colluding": 2, "dropouts": 0.1, "column": COLUMNS, **changed})
    return terms, terms.plan(20)


def study(changed: dict[str, Any]) -> tuple[StudyTerms, Plan, PackedSharing]:
    terms, plan = planned(changed)
    assert isinstance(plan.protocol, PackedSharing)
    return terms, plan, plan.protocol


# Of each column every level or some numbers, what is outside of them, and none.
RECORDS = np.array(list(itertools.product([0, 1, 2, 7, np.nan], [0, 1, np.nan], [-5, 0, 33.3, 50, 66.7, 100, 1e9, np.nan])))


def in_steps(terms: StudyTerms, plan: Plan, protocol: PackedSharing, records: np.ndarray, weight: float, seed: int) -> np.ndarray:
    """What a party deals, without noise: encoded, admitted and rounded as in a study."""
    vector = terms.workload.of_records(records, step=plan.value_step).sum(axis=0)
    return rounded(protocol, plan.admit(vector, weight).vector, weight, Seed.public("whole", seed))


def farthest(terms: StudyTerms, plan: Plan, protocol: PackedSharing) -> int:
    """In whole steps, L1: of all pairs of records, beside eight others; of one record and none where counts are private."""
    others, hidden = np.random.default_rng(5).permutation(RECORDS)[:8], terms.workload.hides_count
    weight = terms.workload.weight_of(9)
    dealt = [in_steps(terms, plan, protocol, np.vstack([others, record]), weight, 1) for record in RECORDS]
    if hidden:
        without = in_steps(terms, plan, protocol, others, weight, 1)
        return max(int(np.abs(one - without).sum()) for one in dealt)
    return max(int(np.abs(one - other).sum()) for one, other in itertools.combinations(dealt, 2))


@pytest.mark.parametrize("name", WHOLE)
def test_no_pair_of_units_is_further_apart_than_what_is_charged(name: str) -> None:
    terms, plan, protocol = study(WHOLE[name])
    assert plan.target.rounded == protocol.rounded == 0
    assert plan.value_step == protocol.step
    charged = rounded_l1(protocol, plan.target.l1_change)
    most = terms.workload.changes * farthest(terms, plan, protocol)
    # Less only by the steps that a factor is no multiple of, one for each cell that changes.
    assert charged - (4 if len(terms.workload.scales) > 1 else 2) <= most <= charged
    assert plan.a_priori.pure <= plan.target.epsilon
    assert protocol.scale >= charged / plan.target.epsilon


@pytest.mark.parametrize("name", ROUNDED)
def test_where_vectors_are_rounded_that_is_charged(name: str) -> None:
    terms, plan, protocol = study(ROUNDED[name])
    assert plan.value_step == 0
    assert protocol.rounded is None
    assert rounded_l1(protocol, 10 * protocol.step) == 10 + terms.workload.dimension


@pytest.mark.parametrize("name", ["packed-sharing", "secagg", "central-dp"])
@pytest.mark.parametrize("statistic", [CROSS, {"kind": "mean", "column": "age"}])
def test_persons_at_several_parties_have_several_roundings(name: str, statistic: dict[str, Any]) -> None:
    person = {"unit": "person", "rows": "first", "sites_per_person": 3, "statistic": [statistic]}
    terms, plan = planned({**person, "protocol": name})
    found: Any = plan.protocol
    step = found.granularity if name == "secagg" else found.step
    assert plan.target.rounded == found.rounded == 3 * terms.workload.dimension
    steps = math.floor(terms.workload.l1 / step * (1 + 1e-10)) + 3 * terms.workload.dimension
    assert plan.a_priori.pure == Charge.of_laplace(steps, found.scale if name != "central-dp" else found.sigma / step).pure <= 1.0


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "private count"])
def test_a_curator_rounds_nothing_more_either(name: str) -> None:
    """Of values as they are admitted, on its grid; all pairs of records."""
    terms, plan = planned({**WHOLE[name], "protocol": "central-dp"})
    protocol = plan.protocol
    assert isinstance(protocol, CentralDP)
    assert plan.value_step == protocol.step
    vectors = terms.workload.of_records(RECORDS, step=plan.value_step)
    dealt = [protocol.numbers().value(plan.admit(vector, 1.0).vector) / protocol.step for vector in vectors]
    most = max(float(np.abs(one - other).sum()) for one, other in itertools.combinations(dealt, 2))
    charged = math.floor(plan.target.l1_change / protocol.step * (1 + 1e-10))
    assert most <= charged
    assert plan.a_priori.pure == Charge.of_laplace(charged, protocol.sigma / protocol.step).pure <= plan.target.epsilon


def by_secagg(terms: StudyTerms, plan: Plan, protocol: SecAgg, records: np.ndarray, weight: float) -> np.ndarray:
    """What a party adds, with the same noise for all: encoded, admitted and rounded as in a study, modulo the ring."""
    vector = terms.workload.of_records(records, step=plan.value_step).sum(axis=0)
    noise = InsecurePopulationNoise(3, 20).party(0)
    return encoded_by_secagg(protocol, plan.admit(vector, weight).vector, weight, noise).astype(np.int64)


@pytest.mark.parametrize("name", [name for name in WHOLE if not name.startswith("private count")])
def test_secure_aggregation_rounds_nothing_more_either(name: str) -> None:
    """All pairs of records beside eight others, in whole steps modulo the ring."""
    terms, plan = planned({**WHOLE[name], "protocol": "secagg"})
    protocol = plan.protocol
    assert isinstance(protocol, SecAgg)
    assert plan.target.rounded == protocol.rounded == 0
    assert plan.value_step == protocol.granularity
    others, weight = np.random.default_rng(5).permutation(RECORDS)[:8], terms.workload.weight_of(9)
    sent = [by_secagg(terms, plan, protocol, np.vstack([others, record]), weight) for record in RECORDS]
    half = 1 << (protocol.bits - 1)
    pairs = itertools.combinations(sent, 2)
    most = max(int(np.abs((one - other + half) % (2 * half) - half).sum()) for one, other in pairs)
    charged = math.floor(plan.target.l1_change / protocol.granularity * (1 + 1e-10))
    assert charged - (4 if len(terms.workload.scales) > 1 else 2) <= terms.workload.changes * most <= charged
    assert plan.a_priori.pure == Charge.of_laplace(charged, protocol.scale).pure <= plan.target.epsilon
    # A few steps are less where the grid is a power of two; with a step a cell 400 cells had 1.7 times the noise.
    assert protocol.deviation <= 1.04 * study(WHOLE[name])[2].deviation


def test_secure_aggregation_that_rounds_whole_steps_anew_is_found() -> None:
    """A mutant: units on no grid, of which the sum is rounded, are further apart than what is charged. Seeds 0 to 19."""
    terms, plan = planned({**WHOLE["two tables"], "protocol": "secagg"})
    protocol = plan.protocol
    assert isinstance(protocol, SecAgg)
    vectors = [terms.workload.of_records(RECORDS[[place] * 2]).sum(axis=0) for place in (0, -30)]
    mutant, half, most = replace(protocol, rounded=None), 1 << (protocol.bits - 1), 0
    for number in range(20):
        noise = InsecurePopulationNoise(number, 20)
        one, other = (encoded_by_secagg(mutant, vector, 2.0, noise.party(0)).astype(np.int64) for vector in vectors)
        most = max(most, int(np.abs((one - other + half) % (2 * half) - half).sum()))
    assert most > 2 * math.floor(plan.target.l1_change / protocol.granularity)


def test_secure_aggregation_on_whole_steps_has_a_centre_of_0() -> None:
    _, plan = planned({**WHOLE["table"], "protocol": "secagg"})
    assert Plan.from_json(plan.to_json()).digest == plan.digest
    assert isinstance(plan.protocol, SecAgg)
    with pytest.raises(InputError, match="needs noise laplace and centre 0"):
        replace(plan.protocol, centre=0.1)


def test_vectors_that_are_rounded_as_a_whole_are_further_apart() -> None:
    """A mutant: units on no grid, and their sum rounded at random. Seeds 0 to 19."""
    terms, plan, protocol = study(WHOLE["two tables"])
    mutant = replace(protocol, rounded=1)
    (one, other) = (terms.workload.of_records(RECORDS[[place] * 2]).sum(axis=0) for place in (0, -30))
    apart = [rounded(mutant, one, 2.0, Seed.public(n)) - rounded(mutant, other, 2.0, Seed.public(n)) for n in range(20)]
    assert max(np.abs(each).sum() for each in apart) > 2 * rounded_l1(protocol, plan.target.l1_change)


@pytest.mark.parametrize(("epsilon", "levels"), [(1.0, 9), (1.0, 3), (0.05, 9), (4.0, 30)])
def test_one_table_is_within_the_bar_of_one_curators_laplace(epsilon: float, levels: int) -> None:
    """20 parties, 2 collude, 2 leave: 1.118 times a curator's, whatever the number of cells, for counts of whole records."""
    cells = [{"name": name, "levels": [f"{name}{number}" for number in range(levels)]} for name in "ab"]
    terms, plan, protocol = study({"statistic": [CROSS], "column": cells, "epsilon": epsilon})
    ((_, scale),) = terms.workload.scales.items()
    # Of a record, as it is on the grid.
    factor = float(terms.workload.of_records(np.zeros((1, 2)), step=plan.value_step).max())
    assert 0.999 * scale <= factor <= scale
    assert math.sqrt(20 * protocol.party_variance) / factor <= 1.12 * math.sqrt(2) * 2 / epsilon


def test_what_is_opened_is_what_was_counted() -> None:
    """Seeds 0 to 199, six parties: the variance of 16 cells within 12 % of what is stated (standard error 4 %), and no bias."""
    terms, plan, protocol = study({"statistic": [{"kind": "crosstab", "row": "a", "column": "b"}], "epsilon": 2.0})
    execution = plan.execution(Seed.public("law"), ExecutionTrace.everyone(protocol.rounds, 20), np.full(20, 7.0))
    rows = [np.random.default_rng(party).permutation(RECORDS)[:7] for party in range(20)]
    values = np.array([terms.workload.of_records(each, step=plan.value_step).sum(axis=0) for each in rows])
    truth = values.sum(axis=0) / 140
    means = np.array([execution.estimate(execution.run_batch(values, InsecurePopulationNoise(s, 20))) for s in range(200)])
    errors = means - truth
    assert np.var(errors) == pytest.approx(stated_variance(execution), rel=0.12)
    assert np.abs(errors.mean(axis=0)).max() < 5 * math.sqrt(stated_variance(execution) / 200)
    noise = InsecurePopulationNoise(0, 20)
    np.testing.assert_array_equal(execution.run(values, noise).releases[0].vector, execution.run_batch(values, noise).vector[0])


def test_a_plan_on_whole_steps_is_read_as_it_was_written_and_takes_no_other_vectors() -> None:
    terms, plan, protocol = study(WHOLE["table"])
    assert Plan.from_json(plan.to_json()).digest == plan.digest
    assert plan.to_json()["parameters"]["rounded"] == 0
    off = np.full(terms.workload.dimension, 0.3 * protocol.step)
    refused("is not a multiple of", plan.admit, off, 1.0)
    assert protocol.region == ANY
    with pytest.raises(InputError, match="Leave domain and rounded out"):
        study({**WHOLE["table"], "options": {"noise": "laplace", "domain": BOX}})


@pytest.mark.parametrize("largest_weight", [1.0, None])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("statistic", [{"kind": "mean", "column": "age"}, {"kind": "proportion", "column": "a"}])
def test_a_person_at_three_parties_moves_three_rounded_vectors(
    largest_weight: float | None, noise: str, statistic: dict[str, Any]
) -> None:
    """Pairs of every third record, at each party in place of one another: with the same bits no further apart than charged."""
    options = {"noise": noise, **({"largest_weight": largest_weight} if largest_weight else {})}
    person = {"unit": "person", "rows": "first", "sites_per_person": 3, "statistic": [statistic], "options": options}
    terms, plan, protocol = study(person)
    vectors = terms.workload.of_records(RECORDS, step=plan.value_step)
    most = np.zeros(2)
    for seeds in range(10):
        dealt = [
            np.concatenate(
                [rounded(protocol, plan.admit(vector, 1.0).vector, 1.0, Seed.public(seeds, site)) for site in range(3)]
            )
            for vector in vectors[::3]
        ]
        moved = [sum(np.split(one - other, 3)) for one, other in itertools.combinations(dealt, 2)]
        most = np.maximum(most, np.max([(np.abs(each).sum(), np.linalg.norm(each)) for each in moved], axis=0))
    charged = (rounded_l1(protocol, plan.target.l1_change), rounded_sensitivity(protocol, plan.target.sensitivity))
    which = int(noise == "gaussian")
    assert most[which] <= charged[which]


MANY = [
    {"kind": "mean", "column": "age"},
    {"kind": "proportion", "column": "a"},
    {"kind": "proportion", "column": "b"},
    {"kind": "mean", "column": "age", "where": "a == 'x'"},
]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("unit", [{"unit": "party"}, {"largest_weight": 1.0}])
def test_a_party_of_one_unit_moves_no_further_than_is_charged(count: int, noise: str, unit: dict[str, Any]) -> None:
    """All pairs of records as a party's only one, in any domain: its largest coordinate says nothing of the norm of a change."""
    options = {"noise": noise, **{name: value for name, value in unit.items() if name != "unit"}}
    terms, plan, protocol = study({"statistic": MANY[:count], "options": options, "unit": unit.get("unit", "record")})
    assert protocol.one_unit
    vectors = [terms.workload.encode(record[None], step=plan.value_step).vector for record in RECORDS]
    dealt = [rounded(protocol, plan.admit(vector, 1.0).vector, 1.0, Seed.public("one")) for vector in vectors]
    order = 1 if noise == "laplace" else 2
    most = max(float(np.linalg.norm(one - other, ord=order)) for one, other in itertools.combinations(dealt, 2))
    target = plan.target
    charged = rounded_l1(protocol, target.l1_change) if noise == "laplace" else rounded_sensitivity(protocol, target.sensitivity)
    assert most <= charged


@pytest.mark.parametrize("options", [{}, {"largest_weight": 1.0}, {"largest_weight": 2.0}])
@pytest.mark.parametrize("statistics", [MANY[:1], MANY[1:2], MANY])
def test_secure_aggregation_charges_a_person_at_every_party(options: dict[str, Any], statistics: list[dict[str, Any]]) -> None:
    """The largest distance of two records at each of three parties, and what rounding adds; not what one party's may move."""
    person = {"unit": "person", "rows": "first", "sites_per_person": 3, "statistic": statistics, "options": options}
    terms, plan = planned({**person, "protocol": "secagg"})
    protocol = plan.protocol
    assert isinstance(protocol, SecAgg)
    assert protocol.vectors == 3
    vectors = terms.workload.of_records(RECORDS) / protocol.granularity
    farthest_apart = max(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(vectors, 2))
    words, target = protocol.words(terms.workload.dimension), plan.target
    moved = 3 * (farthest_apart + math.sqrt(words)) * (1 - 1e-6)
    charged, short = (
        rounded_by_secagg(replace(protocol, rounded=rounded), target.sensitivity, words, target.delta)[0]
        for rounded in (protocol.rounded, None)
    )
    assert protocol.rounding == INDEPENDENT
    assert moved <= charged
    # As of a person at one party, as a mutant has it.
    assert short < (moved if len(statistics) == 1 else charged)


@pytest.mark.parametrize("largest_weight", [1.0, 64.0])
@pytest.mark.parametrize("dimension", [1, 5])
def test_a_committee_charges_a_person_at_every_contributor(dimension: int, largest_weight: float) -> None:
    """Of each of three contributions every number may be rounded up where it was down, beside the largest change of all."""
    target = Target(parties=40, epsilon=1.0, delta=1e-6, dimension=dimension, sensitivity=3.0, rounded=3 * dimension)
    parameters = design(target, Committee(members=7, colluding=1, gone=1), clip=1.0, largest_weight=largest_weight)
    assert CommitteeSharing.of(parameters).parameters(40) == parameters
    # One more step in each coordinate, of all three.
    moved = min(3.0 / parameters.step, 3 * 2 * parameters.clip * math.sqrt(dimension) / parameters.step) + 3 * math.sqrt(
        dimension
    )
    charged, short = (
        rounded_sensitivity(replace(parameters, rounded=rounded).numbers, target.sensitivity) for rounded in (3 * dimension, None)
    )
    assert moved * (1 - 1e-9) <= charged
    # As of a person at one contributor, as a mutant has it.
    assert short < moved
    assert promised(parameters, target.sensitivity).mu >= promised(replace(parameters, rounded=None), target.sensitivity).mu
