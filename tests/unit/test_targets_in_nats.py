"""The exact mean for so many nats: plans keep the target; policy, ledger and every wrong option say so in one sentence."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.cli.console import print_nats
from quietmean.cli.main import main
from quietmean.core.domain import PrivacyUnit
from quietmean.core.site_options import PaymentOptions
from quietmean.graphs import ExecutionTrace, harary, is_connected, survives
from quietmean.node import Identity
from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.privacy.certificate import nats_json
from quietmean.privacy.mutual_information import of_sum
from quietmean.protocols import Mechanism, Target, configure, registry
from quietmean.protocols.consensus import Consensus
from quietmean.protocols.execution import Execution
from quietmean.protocols.target import budget_warnings
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.report import released
from quietmean.studies import StudyTerms
from quietmean.studies.party import Policy
from quietmean.studies.party.agreement import Signatory
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.payment import StudyCost, payer_for
from support.command_lines import fails
from support.refusals import refused, refused_rows
from support.site_policy import write_policy

TABLES: dict[str, Any] = {
    "column": [{"name": "age", "low": 0, "high": 100}],
    "unit": "party",
    "nats": 0.4,
    "protocol": "adqsp",
    "colluding": 2,
}
AUTOMATIC = "a protocol that is chosen automatically"
PARTIES = tuple(Signatory(name, Identity.generate().public_key, ("192.0.2.7", 7001)) for name in "abcde")


def target(parties: int, colluding: int, nats: float, **more: Any) -> Target:
    asked = {"delta": 1e-6, "sensitivity": 2.0, **more}
    return Target(parties=parties, epsilon=math.inf, nats=nats, colluding=colluding, **asked)


def planned(parties: int, colluding: int, nats: float) -> Plan:
    return calibrate(target(parties, colluding, nats), configure("adqsp"))


def executed(plan: Plan) -> Execution:
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties)
    return plan.execution(Seed.public("nats"), everyone)


@pytest.mark.parametrize(
    ("parties", "colluding", "nats"), [(5, 2, 0.4), (5, 2, 0.21), (5, 3, 0.36), (20, 2, 0.03), (40, 4, 0.02)]
)
def test_a_plan_keeps_its_target_and_the_mean_is_exact(parties: int, colluding: int, nats: float) -> None:
    plan = planned(parties, colluding, nats)
    execution = executed(plan)
    conversion = execution.terms(1e-6).conversion
    most = conversion.nats_against_any(colluding, plan.target.prior_sd)
    assert most is not None
    assert 0.5 * nats < most <= nats
    # So does every coalition that is tried by itself, up to what the solver's rounding may be off.
    for corrupt in itertools.islice(itertools.combinations(range(parties), colluding), 5):
        assert execution.privacy(1e-6).against(corrupt).nats(plan.target.prior_sd).max() <= most * (1 + 1e-9)
    assert most >= of_sum(parties - colluding)
    values = BitStream(Seed.public("values")).uniform(parties)[:, None]
    step = plan.value_step
    values = np.floor(values / step) * step
    releases = execution.run_batch(values, InsecurePopulationNoise(1, parties))
    assert np.abs(releases.vector / releases.weight[:, None] - values.mean()).max() < step


@pytest.mark.parametrize("last", [6, 12, 20])
def test_who_leaves_after_the_first_round_is_hidden_as_planned_and_counts_in_part(last: int) -> None:
    """400 equal coordinates, noise from a fixed seed: by chance the mean of what counts is off in 1 of 1e6 runs."""
    plan = calibrate(target(5, 2, 0.4, dimension=400), configure("adqsp"))
    online = np.ones((plan.protocol.rounds + 1, 5), dtype=np.bool_)
    online[last + 1 :, 2] = False
    execution = plan.execution(Seed.public("nats"), ExecutionTrace(online))
    most = execution.terms(1e-6).conversion.nats_against_any(2, plan.target.prior_sd)
    assert most is not None
    assert most <= 0.4
    assert execution.contributors().all()
    parts = execution.parts
    assert 0 < parts[2] <= 1
    values = np.repeat(np.array([[0.0], [0.01], [0.09], [0.03], [0.02]]), 400, axis=1)
    releases = execution.run_batch(values, InsecurePopulationNoise(2, 5))
    found = (releases.vector / releases.weight[:, None])[[0, 1, 3, 4]]
    error = execution.error_variance()
    assert error is not None
    expected = float(parts @ values[:, 0] / parts.sum())
    assert abs(found.mean() - expected) < 5 * math.sqrt(error / 400)


def test_a_plan_and_its_file_are_one_and_the_same() -> None:
    plan = planned(5, 2, 0.4)
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again.digest == plan.digest
    assert again.target == plan.target
    assert "epsilon" not in plan.to_json()["target"]
    with pytest.warns(UserWarning, match="no differential privacy"):
        named = qm.plan(parties=5, nats=0.4, delta=1e-6, colluding=2, sensitivity=2.0, protocol="adqsp")
    assert named.digest == plan.digest
    study = StudyTerms.parse(TABLES)
    assert StudyTerms.from_tables(study.tables(), "the study") == study
    assert study.plan(5).target.nats == 0.4


def test_less_noise_than_planned_is_seen_in_the_figure() -> None:
    plan = planned(5, 2, 0.3)
    protocol = plan.protocol
    assert isinstance(protocol, Consensus)
    weaker = replace(plan, protocol=replace(protocol, sigma_z=0.5 * float(protocol.deviations[0, 0])))
    most = executed(weaker).terms(1e-6).conversion.nats_against_any(2, plan.target.prior_sd)
    assert most is not None
    assert most > 0.3


@refused_rows("what_cannot_be_had_is_one_sentence")
def test_what_cannot_be_had_is_one_sentence(changed: dict[str, Any], said: str) -> None:
    assert said in refused("", lambda: StudyTerms.parse({**TABLES, **changed}).plan(5))


@pytest.mark.parametrize("kind", [kind for kind in registry().values() if kind is not Consensus], ids=lambda kind: kind.name)
def test_every_other_protocol_refuses_a_target_in_nats(kind: type[Mechanism]) -> None:
    refused("none in nats", calibrate, target(5, 2, 0.4), kind())


@pytest.mark.parametrize("bits", [None, 3])
def test_iterations_that_are_asked_for_reach_the_exact_mean_or_are_refused(bits: int | None) -> None:
    free = calibrate(target(5, 2, 0.4), configure("adqsp", {"bits": bits})).protocol
    assert isinstance(free, Consensus)
    values = np.array([[1.0], [-1.0], [1.0], [1.0], [-1.0]])
    for iterations, enough in ((4, False), (10, False), (20, True)) if bits is None else ((10, False), (156, True)):
        protocol = replace(free, iterations=iterations, patience=iterations + 1)
        plan = Plan(target(5, 2, 0.4), protocol)
        linear = replace(plan, protocol=replace(protocol, step=0.0, dimension=None))
        releases = executed(linear).run_batch(np.repeat(values, 40, axis=1), InsecurePopulationNoise(1, 5))
        off = np.abs(releases.vector / releases.weight[:, None] - values.mean()).max()
        wanted = configure("adqsp", {"bits": bits, "iterations": iterations})
        if enough:
            # Six standard deviations.
            assert off <= 6 * plan.value_step
            assert calibrate(target(5, 2, 0.4), wanted).protocol.rounds == iterations + 1
            continue
        assert off > 6 * plan.value_step
        refused(f"do not have the mean yet. Choose {free.iterations}, or leave it out", calibrate, target(5, 2, 0.4), wanted)


def contract_of(**changes: Any) -> Contract:
    study = StudyTerms.parse({**TABLES, **changes})
    return Contract(study, PARTIES, 0, choice=study.choice(5))


@pytest.fixture(name="contract", scope="module")
def _contract() -> Contract:
    return contract_of()


PLAN = ["plan", "--parties", "5", "--nats", "0.4", "--protocol", "adqsp", "--colluding", "2"]


def test_what_is_promised_is_said_by_contract_and_plan(contract: Contract, capsys: pytest.CaptureFixture[str]) -> None:
    cost = dict(contract.lines())["costs at most"]
    assert cost.startswith("0.4 nats a coordinate")
    assert "not differential privacy" in cost
    assert "guaranteed before the start, enforced by each party's edges" in cost
    promised = contract.plan.a_priori.nats
    assert contract.to_json()["nats_a_priori"] == promised
    assert 0.3 < promised <= 0.4
    main(PLAN)
    assert capsys.readouterr().out.startswith("! guaranteed before the start: at most 0.36")


def told_of(plan: Plan, contract: Contract, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Every text that a person reads of a target in nats, by where it stands."""
    privacy = executed(plan).privacy(1e-6)
    nats = privacy.nats_of_target(2, 0.4)
    assert nats["coordinates"] == plan.target.dimension
    assert nats_json(np.array([nats["most"]]), nats["prior_sd"], privacy.terms.conversion.coordinates)["coordinates"]
    document = {
        "nats": nats,
        "certificate": {"adversary": "two parties", "unit": "record"},
        "enforced_by": plan.a_priori.enforced_by,
    }
    print_nats(document)
    answer = [line for line in " ".join(capsys.readouterr().out.split()).split("realised") if line]
    cards = {card["label"]: card["note"] for card in released.nats_cards(nats, "two parties")}
    return {
        "plan": str(plan.nats_kept),
        "contract": dict(contract.lines())["costs at most"],
        "warning": next(sentence for sentence in budget_warnings(plan.target) if "nats" in sentence),
        "answer, guaranteed": answer[0],
        "answer, realised": answer[1],
        "page, guaranteed": cards["guaranteed nats"],
        "page, realised": cards["nats learnt"],
    }


@pytest.mark.parametrize("statistics", [["mean"], ["variance"], ["mean", "variance"]])
def test_every_figure_is_of_a_coordinate_and_says_how_many_there_are(
    statistics: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    contract = contract_of(statistic=[{"kind": kind, "column": "age"} for kind in statistics])
    coordinates = contract.plan.target.dimension
    lacking = {
        place: text
        for place, text in told_of(contract.plan, contract, capsys).items()
        if f"a coordinate (a party's value has {coordinates})" not in text
    }
    assert not lacking


def test_what_is_left_of_a_target_would_not_lower_the_error() -> None:
    """Less noise on the edges, of which none is in the mean: the plan's error is that of its grid."""
    plan = planned(5, 2, 0.4)
    assert plan.a_priori.nats < 0.4
    assert "less noise would not lower the error: the mean is exact" in str(plan.nats_kept)
    protocol = plan.protocol
    assert isinstance(protocol, Consensus)
    weaker = replace(plan, protocol=replace(protocol, sigma_z=0.5 * float(protocol.deviations[0, 0])))
    # Of rounding to whole numbers alone.
    assert max(executed(one).error_variance() or 0.0 for one in (plan, weaker)) < plan.value_step**2


def test_what_is_not_promised_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a party goes on without the edges that did not open."""
    contract = contract_of(options={"open_edges": "each"})
    names = [name for name, _ in contract.lines()]
    assert names[:2] == ["study", "costs at most"]
    cost = dict(contract.lines())["costs at most"]
    assert "nothing is guaranteed before the start" in cost
    assert "0.4 nats a coordinate" in cost
    assert "not differential privacy" in cost
    assert "nats_a_priori" not in contract.to_json()
    main([*PLAN, "--with", "open-edges=each"])
    assert capsys.readouterr().out.startswith("! guaranteed before the start: no bound in nats")
    # The same holds of an epsilon that is not kept beforehand, and not of one that is.
    main(["plan", "--parties", "8", "--epsilon", "1", "--protocol", "adqsp", "--with", "open-edges=each"])
    assert capsys.readouterr().out.startswith("! guaranteed before the start: epsilon 2.8")
    main(["plan", "--parties", "8", "--epsilon", "1", "--protocol", "adqsp"])
    assert "more than the target" not in capsys.readouterr().out
    main(["plan", "--parties", "8", "--epsilon", "1", "--protocol", "cordp-dme"])
    assert "more than the target" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({}, "largest_nats: the study asks for 0.4 nats, which are not differential privacy: allowed only where a policy says"),
        ({"largest_nats": 0.3}, "largest_nats: the study asks for 0.4 nats, at most 0.3 are allowed"),
        ({"largest_nats": 0.4}, None),
    ],
)
def test_a_policy_allows_nats_only_by_name(contract: Contract, tmp_path: Path, rules: dict[str, Any], said: str | None) -> None:
    policy = Policy.load(write_policy(tmp_path / "policy.toml", **rules))
    broken = policy.broken(contract)
    assert (broken == []) if said is None else any(said in one for one in broken)
    without = Policy()
    assert any("largest_nats" in one for one in without.broken(contract))


def test_no_ledger_counts_nats_and_nothing_is_made(contract: Contract, tmp_path: Path) -> None:
    policy = Policy.load(write_policy(tmp_path / "policy.toml", largest_nats=0.4))
    payer = payer_for(policy, PrivacyUnit.PARTY, "ages", PaymentOptions(ledger=tmp_path / "ledger"))
    assert payer is not None
    payer = replace(payer, opening=payer.opening)
    said = "0.4 nats, which are not differential privacy, and no budget counts it. Give --no-ledger"
    refused(said, payer.new_account, StudyCost("ages", contract.plan))
    refused(said, payer.reserve, StudyCost("ages", contract.plan), lambda: "study", content=b"")
    assert not (tmp_path / "ledger").exists()
    assert payer_for(policy, PrivacyUnit.PARTY, "ages", PaymentOptions(no_ledger=True)) is None


def test_paths_say_whether_a_graph_survives_as_trying_all_does() -> None:
    """20 public random graphs of 7 parties, and Harary's."""
    graphs = [harary(7, degree) for degree in (2, 3, 4)]
    stream = BitStream(Seed.public("graphs"))
    every = np.array(list(itertools.combinations(range(7), 2)))
    graphs += [every[stream.uniform(len(every)) < 0.55] for _ in range(20)]
    found = set()
    for edges, removed in itertools.product(graphs, (1, 2, 3)):
        expected = all(connected_without(edges, set(gone)) for gone in itertools.combinations(range(7), removed))
        assert survives(edges, 7, removed) == (expected and is_connected(edges, 7))
        found.add(expected)
    assert found == {True, False}


def connected_without(edges: np.ndarray[Any, Any], gone: set[int]) -> bool:
    left = [party for party in range(7) if party not in gone]
    place = {party: row for row, party in enumerate(left)}
    kept = [[place[one], place[other]] for one, other in edges.tolist() if one in place and other in place]
    return is_connected(np.array(kept, dtype=np.int64).reshape(-1, 2), len(left))


def test_a_plan_without_a_name_is_not_refused_in_the_name_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    fails("plan --parties 6 --nats 0.3", capsys, f"quietmean: {AUTOMATIC} keeps a target in epsilon")
