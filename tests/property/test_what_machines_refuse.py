"""Whatever a party's machine refuses, the plan has refused: nobody says yes, and no ledger reserves, for what cannot begin.

Every protocol x what is protected x each of its own options. What is left to a party's data is its public weight, and that is
looked at where its vector is admitted, before anything is charged: see the steps of ``quietmean.studies.party.admission``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.core.grid import towards_zero
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.planning.automatic import Choice
from quietmean.protocols import get_protocol
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecureStackedNoise
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.party.agreement import Signatory
from quietmean.studies.party.contract import Contract
from support.every_option import every_option, options_without_values

PARTIES = 4
COLUMN = {"name": "age", "low": 20, "high": 90}
PROTECTS: dict[str, dict[str, Any]] = {
    "parties": {"unit": "party"},
    "records": {"unit": "record"},
    "records and their number": {"unit": "record", "count": "private", "most_records": 200},
}
# Of records, where their numbers are public.
WEIGHTS = {"equal": (50.0, 50.0, 50.0, 50.0), "unequal": (1.0, 2.0, 7.0, 200.0), "beyond any plan": (1.0, 1.0, 1.0, 2.0**40)}
# Planned by formula.
QUICK = {"cordp-dme"}
CASES = [
    pytest.param(name, options, protects, marks=() if name in QUICK else pytest.mark.slow)
    for name, options in every_option()
    for protects in PROTECTS
]


def asked(name: str, options: dict[str, Any], protects: str) -> StudyTerms:
    study = {"epsilon": 4.0, "protocol": name, "options": options, "column": [COLUMN], **PROTECTS[protects]}
    return StudyTerms.parse(study)


def corner(plan: Plan, place: int, weight: float, units: float) -> Any:
    """As sums over rounded records: what was not rounded before is refused."""
    domain, step = plan.input_domain, plan.value_step
    vector = np.full(plan.target.dimension, units * (domain.low if place % 2 else domain.high))
    return plan.admit(towards_zero(vector, step) if step else vector, weight)


def test_every_option_is_tried() -> None:
    assert options_without_values() == set()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "options", "protects"), CASES, ids=str)
def test_a_plan_that_is_made_can_be_carried_out(name: str, options: dict[str, Any], protects: str) -> None:
    study = asked(name, options, protects)
    try:
        plan = study.plan(PARTIES, no_privacy=not get_protocol(name).TRAITS.private)
    except InputError:
        return
    contract = Contract(study, tuple(Signatory(str(party), "key") for party in range(PARTIES)), 0, choice=Choice(plan))
    assert contract.to_json()["protocol"] == name
    schedule = plan.schedule(Seed.public("machines"))
    trace = ExecutionTrace.everyone(plan.protocol.rounds, PARTIES)
    public = WEIGHTS if protects == "records" else {"one each": (1.0,) * PARTIES}
    for weights in public.values():
        units = weights if protects != "records and their number" else (1.0, 2.0, 7.0, 200.0)
        try:
            values = np.array([corner(plan, party, weights[party], units[party]) for party in range(PARTIES)])
        except InputError:
            # For a party's own public weight, when its vector is made; never for where its values lie.
            with pytest.raises(InputError):
                plan.require_room(max(units))
            continue
        execution = plan.execution(Seed.public("machines"), trace, np.array(weights))
        noise = InsecureStackedNoise(1, PARTIES)
        for party in range(PARTIES):
            machine = plan.protocol.machine(schedule, party, values[party], weights[party], noise.party(party))
            machine.start()
        assert execution.estimate(execution.run_batch(values, noise)).shape == (plan.target.dimension,)
