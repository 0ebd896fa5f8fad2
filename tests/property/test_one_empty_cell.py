"""Emptying any one cell changes nothing that is published beyond the mechanism.

For every kind of statistic the vector moves by no more than the sensitivity, and it alone moves: who is counted, with what
weight, what is sent to whom and how large it is, and the record of the execution are the same to the last bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.core.codec import canonical_json
from quietmean.core.party import Message, PartyId
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.statistics import Column, Columns, Encoded, Workload
from quietmean.studies.agreement.study import StudyTerms
from quietmean.transcript import run_lockstep
from support.effort import examples
from support.every_kind import with_every_kind
from support.workloads import workload_of

Array = NDArray[np.float64]
COLUMNS = Columns(
    [
        Column(name="age", low=0, high=100),
        Column(name="bmi", low=10, high=60, missing="centre"),
        Column(name="sex", levels=("f", "m")),
        Column(name="race", levels=("a", "b", "c")),
        Column(name="smoker", boolean=True),
        Column(name="chance", low=0, high=1),
    ]
)
# Some of every kind, and what these do not have: arms, strata, edges; categories and truth values are numbers from 0.
MORE = [
    "crosstab(race, sex)",
    "cumulative-incidence(age, race, by=sex, bins=3)",
    "group-means(bmi, by=race)",
    "histogram(age, edges=20 40 60)",
    "linear-regression(bmi ~ age + sex)",
    "mean(bmi)",
    "meta-analysis(crosstab(sex, smoker), by=race)",
    "quantiles(bmi, 0.5, bins=7)",
    "rates(smoker, age, by=sex)",
    "roc(bmi, smoker, bins=4)",
    "survival(age, smoker, by=sex, bins=3, strata=race)",
    "table-1(age, race, by=sex)",
    "variance(bmi)",
]
TEXTS = list(dict.fromkeys([*MORE, *with_every_kind([], COLUMNS)]))
PLACES = len(COLUMNS)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Array, Array]:
    """Records, and the same with one cell emptied that was not empty."""
    rows = draw(st.integers(2, 6))
    kinds = [st.floats(-20, 120), st.floats(0, 70), st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0, 2.0])]
    cells = [[draw(kind) for kind in [*kinds, st.sampled_from([0.0, 1.0]), st.floats(-0.5, 1.5)]] for _ in range(rows)]
    full = np.array(cells)
    for _ in range(draw(st.integers(0, 3))):
        full[draw(st.integers(0, rows - 1)), draw(st.integers(0, PLACES - 1))] = np.nan
    place = draw(st.integers(0, rows - 1)), draw(st.integers(0, PLACES - 1))
    full[place] = 1.0 if np.isnan(full[place]) else full[place]
    holed = full.copy()
    holed[place] = np.nan
    return full, holed


@settings(max_examples=examples(60))
@given(texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4, unique=True), pair=tables())
def test_only_the_vector_moves_and_no_farther_than_the_sensitivity(texts: list[str], pair: tuple[Array, Array]) -> None:
    workload = workload_of(COLUMNS, *texts)
    for step in (0.0, 2.0**-12):
        before, after = (workload.encode(table, step=step) for table in pair)
        assert before.weight == after.weight == len(pair[0])
        assert before.vector.shape == after.vector.shape
        assert np.linalg.norm(before.vector - after.vector) <= workload.sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("text", TEXTS)
def test_each_statistic_with_every_cell_emptied_in_turn(text: str) -> None:
    workload = workload_of(COLUMNS, *[text])
    full = np.array([[20.0, 15.0, 0.0, 0.0, 1.0, 0.2], [100.0, 60.0, 1.0, 2.0, 0.0, 1.0], [55.0, 30.0, 1.0, 1.0, 1.0, 0.7]])
    before = workload.encode(full)
    for place in np.ndindex(full.shape):
        holed = full.copy()
        holed[place] = np.nan
        after = workload.encode(holed)
        assert after.weight == before.weight
        assert np.linalg.norm(before.vector - after.vector) <= workload.sensitivity * (1 + 1e-9)


# --- what a study publishes ---------------------------------------------------------------------------------------------------


def published(plan: Plan, workload: Workload, parts: list[Array]) -> tuple[Any, ...]:
    """All that is seen of a study but the numbers in its vectors, with the same noise for the same plan."""
    encoded = [workload.encode(part, step=plan.value_step) for part in parts]
    weights = np.array([one.weight for one in encoded])
    values = np.array([plan.admit(one.vector, one.weight) for one in encoded])
    trace = ExecutionTrace.everyone(plan.protocol.rounds, len(parts))
    execution = plan.execution(Seed.public("one empty cell"), trace, weights)
    noise, sent = InsecurePopulationNoise(5, len(parts)), []

    def on_send(message: Message, reached: frozenset[PartyId]) -> None:
        seen = message.sender, message.recipients, message.round, message.weight, message.vector.size, len(message.content)
        sent.append((*seen, sorted(reached)))

    machines = [execution.machine(party, values[party], noise.party(party)) for party in range(len(parts))]
    result = run_lockstep(machines, trace, execution.arrivals(), on_send, refusing=execution.protocol.traits.refuses_messages)
    releases = [(party, release.weight, release.vector.size) for party, release in sorted(result.releases.items())]
    return canonical_json(execution.to_json()), sent, releases


PROTOCOLS = ["local-dp", "central-dp", "gopa", "cordp-dme", "inca", "consensus", "muffliato", "secagg", "packed-sharing"]


def study_of(protocol: str) -> tuple[Plan, Workload]:
    """Four parties of three records each."""
    columns = [{"name": "age", "low": 0, "high": 100, "missing": "indicator"}, {"name": "bmi", "low": 10, "high": 60}]
    study = StudyTerms.parse({"column": columns, "protocol": protocol, "epsilon": 1.0, "unit": "record"})
    return study.plan(4), study.workload


@pytest.mark.sampled(3)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_study_publishes_the_same_but_for_its_vectors(protocol: str) -> None:
    plan, workload = study_of(protocol)
    parts = [np.array([[20.0, 15.0], [40.0 + party, 30.0], [95.0, 59.0]]) for party in range(4)]
    before = published(plan, workload, parts)
    for column in range(2):
        holed = [part.copy() for part in parts]
        holed[1][2, column] = np.nan
        assert published(plan, workload, holed) == before


def test_a_rule_that_leaves_incomplete_records_out_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Workload.encode

    def dropping(workload: Workload, records: Array, *, step: float = 0.0) -> Encoded:
        kept = records[~np.isnan(records).any(axis=1)]
        return replace(encode(workload, kept, step=step), weight=float(len(kept)))

    monkeypatch.setattr(Workload, "encode", dropping)
    plan, workload = study_of("local-dp")
    parts = [np.array([[20.0, 15.0], [40.0, 30.0], [95.0, 59.0]]) for _ in range(4)]
    holed = [part.copy() for part in parts]
    holed[1][2, 0] = np.nan
    assert published(plan, workload, holed) != published(plan, workload, parts)
