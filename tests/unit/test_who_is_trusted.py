"""Who is trusted is said of a protocol as configured: nothing says "no server" where a party gathers what the others send."""

from __future__ import annotations

import pytest

from quietmean.core.schema import options_of
from quietmean.node import Identity
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Mechanism, Server, Target, configure, registry
from quietmean.studies import StudyTerms
from quietmean.studies.party.agreement import Signatory
from quietmean.studies.party.contract import Contract

GATHERED = [kind for kind in registry().values() if {"aggregator", "curator"} & set(options_of(kind))]
BY_CHOICE = [kind.name for kind in GATHERED if kind.TRAITS.server == Server.NONE]


@pytest.mark.parametrize("kind", GATHERED, ids=lambda kind: kind.name)
def test_a_party_that_gathers_is_named(kind: type[Mechanism]) -> None:
    key = "curator" if kind.TRAITS.server == Server.CURATOR else "aggregator"
    told = configure(kind.name, {key: 1}).traits.trust
    assert "no server" not in told
    assert any(word in told for word in ("collector", "aggregator", "curator"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", BY_CHOICE)
def test_plans_and_contracts_say_so(name: str) -> None:
    options = {"aggregator": 1}
    said = configure(name, options).traits.trust
    assert configure(name).traits.trust == "no server"
    plan = calibrate(Target(5, 1.0, 1e-6), configure(name, options))
    assert plan.protocol.traits.trust == said
    table = {"column": [{"name": "age", "low": 0, "high": 100}], "protocol": name, "options": options}
    study = StudyTerms.parse(table)
    parties = tuple(Signatory(one, Identity.generate().public_key, ("192.0.2.7", 7001)) for one in "abcde")
    contract = Contract(study, parties, 0, choice=study.choice(5))
    assert contract.to_json()["trust"] == said
    assert said in dict(contract.lines())["protocol"]
