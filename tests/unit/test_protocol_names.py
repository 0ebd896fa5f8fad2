"""Other names of a protocol stand for it, and for the options that they imply, wherever the name of a protocol is given."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.node import Identity
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import configured
from quietmean.protocols import Mechanism, configure, get_protocol, registry, resolve
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.session_terms import SessionTerms
from quietmean.studies.party import Policy
from quietmean.studies.party.agreement import Signatory
from quietmean.studies.party.contract import Contract
from support.refusals import refused
from support.site_policy import write_policy

ALIASES = [(alias, kind, implied) for kind in registry().values() for alias, implied in kind.TRAITS.aliases.items()]
TABLES: dict[str, Any] = {"column": [{"name": "age", "low": 0, "high": 100}]}


def test_the_names_of_the_papers_are_known() -> None:
    assert {alias: dict(implied) for alias, _, implied in ALIASES if alias in ("adqsp", "pdmm", "admm")} == {
        "adqsp": {},
        "pdmm": {"theta": 0.0},
        "admm": {"theta": 0.5},
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("alias", "kind", "implied"), ALIASES, ids=[alias for alias, *_ in ALIASES])
def test_another_name_stands_for_the_protocol_wherever_one_is_given(
    alias: str, kind: type[Mechanism], implied: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert get_protocol(alias) is kind
    assert resolve(alias, {}) == (kind.name, implied)
    own = configure(kind.name, implied)
    assert configure(alias).describe() == own.describe()
    assert [one.describe() for one in configured([alias], {})] == [own.describe()]
    planned = qm.plan(parties=4, epsilon=1.0, delta=1e-6, protocol=alias)
    assert planned.digest == calibrate(planned.target, own).digest
    # Who writes one name and who writes the other agree on the same study, plan and session.
    written, owns = (StudyTerms.parse({**TABLES, **named}) for named in _both(alias, kind, implied))
    assert written == owns
    assert written.plan(4).digest == owns.plan(4).digest
    first, second = (
        SessionTerms(parties=4, dimension=2, epsilon=1.0, delta=1e-6, rounds=2, **named) for named in _both(alias, kind, implied)
    )
    assert (first.protocol, first.options) == (second.protocol, second.options) == (kind.name, implied)
    # On the command line, and in a plan of a study that names another protocol.
    main(["plan", "--parties", "4", "--protocol", alias, "--epsilon", "1", "--delta", "1e-6", "--json"])
    (answer,) = json.loads(capsys.readouterr().out)["candidates"]
    assert answer["protocol"] == kind.name
    study = tmp_path / "study.toml"
    study.write_text('[study]\nprotocol = "inca"\nrecords = 4000\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n')
    main(["plan", "--study", str(study), "--parties", "4", "--protocol", alias, "--json"])
    assert json.loads(capsys.readouterr().out)["digest"] == owns.plan(4).digest


def _both(alias: str, kind: type[Mechanism], implied: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"protocol": alias}, {"protocol": kind.name, "options": dict(implied)}]


def test_an_option_that_contradicts_the_name_is_refused_in_one_sentence() -> None:
    told = re.escape("pdmm is consensus with theta 0, and theta is 0.3. Leave it out, or name consensus")
    named: dict[str, Any] = {"protocol": "pdmm", "options": {"theta": 0.3}}
    refused(told, configure, "pdmm", {"theta": 0.3})
    refused(told, StudyTerms.parse, {**TABLES, **named})
    assert configure("admm", {"theta": 0.5}).describe() == configure("admm").describe()


def test_a_site_that_allows_a_protocol_by_one_name_allows_it_by_all(tmp_path: Path) -> None:
    policy = Policy.load(write_policy(tmp_path / "policy.toml", protocols=["adqsp"]))
    parties = tuple(Signatory(name, Identity.generate().public_key, ("192.0.2.7", 7001)) for name in "abc")
    for named, allowed in (("consensus", True), ("pdmm", True), ("local-dp", False)):
        study = StudyTerms.parse({**TABLES, "protocol": named, "records": 4000})
        broken = policy.broken(Contract(study, parties, 0, choice=study.choice(3)))
        assert any("protocols:" in sentence for sentence in broken) != allowed


def test_a_name_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import quietmean.protocols as module

    gossip = get_protocol("gossip")
    monkeypatch.setattr(gossip, "TRAITS", replace(gossip.TRAITS, aliases={"pdmm": {}}))
    module._aliases.cache_clear()
    try:
        refused("the other name 'pdmm', which is taken", resolve, "gossip", {})
    finally:
        monkeypatch.undo()
        module._aliases.cache_clear()
