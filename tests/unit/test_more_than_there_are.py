"""Options that ask for more others than there are: every plan refuses them, in the same words; documents of before mean all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quietmean.core.schema import parameters_of
from quietmean.planning import Plan
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target, configure, registry
from support.refusals import refused

PARTIES = 8
TARGET = Target(parties=PARTIES, epsilon=1.0, delta=1e-6)
# Every option of every protocol that says with how many others a party has to do, by what it says of itself.
OF_OTHERS = [
    (name, parameter.key)
    for name, kind in registry().items()
    for parameter in parameters_of(kind).values()
    if parameter.option and "how" in parameter.help and "others" in parameter.help
]


def test_they_are_recognised() -> None:
    expected = {("gopa", "partners"), ("gopa", "least_partners"), ("cordp-dme", "partners"), ("muffliato", "out_degree")}
    assert expected | {("inca", "out_degree"), ("gossip", "out_degree"), ("secagg-plus", "degree")} <= set(OF_OTHERS)


@pytest.mark.parametrize(("name", "option"), OF_OTHERS)
def test_a_plan_refuses_them(name: str, option: str) -> None:
    for number in (PARTIES, 99):
        refused(rf"is {number}\b.*\. Choose ", calibrate, TARGET, configure(name, {option: number}))


@pytest.mark.parametrize(("name", "fields"), [("gopa", {"partners": 7}), ("muffliato", {"out_degree": 7})])
def test_all_others_are_no_more_than_there_are_and_documents_of_before_are_read(name: str, fields: dict[str, Any]) -> None:
    document = calibrate(TARGET, configure(name, fields)).to_json()
    (option,) = fields
    document["parameters"][option] = 99
    before = Plan.from_json(json.loads(json.dumps(document)))
    assert before.to_json() == document
