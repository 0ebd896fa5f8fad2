"""Targets with an eavesdropper: what is drawn, what is refused, what certificates, gates and ledgers count."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of
from quietmean.graphs import ExecutionTrace, Schedule, churn
from quietmean.planning.accuracy import draw_execution, worst_mu
from quietmean.planning.calibrate import calibrate
from quietmean.planning.gate import decide
from quietmean.planning.plan import Plan
from quietmean.privacy import Adversary, information_matrix, mu_of_budget
from quietmean.privacy.diagnostics import diagnose
from quietmean.protocols import Target, configure, get_protocol, registry
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA, default_rounds
from quietmean.protocols.interception import Interception
from quietmean.protocols.mechanism import template_of
from quietmean.protocols.target import ALL_AFTER_FIRST
from quietmean.randomness import Seed
from quietmean.studies import StudyTerms
from quietmean.testing import theorem41
from support.command_lines import fails
from support.refusals import raised, refused

ANY: list[Any] = [0.5, ALL_AFTER_FIRST]
WRONG: list[Any] = [0, 0.0, -0.5, 1.5, math.nan, math.inf, 10**400, True, "sometimes", "0.5", "", [0.5]]
COLUMN = {"name": "age", "low": 20, "high": 90}
FLOAT: dict[str, Any] = {"noise": "insecure-float64"}
SLOW = pytest.mark.slow


def target(parties: int = 6, colluding: int = 1, eavesdropping: Any = 0.5, **more: Any) -> Target:
    asked = {"epsilon": 1.0, "delta": 1e-6, **more}
    return Target(parties=parties, colluding=colluding, eavesdropping=eavesdropping, **asked)


def planned(name: str = "inca", options: dict[str, Any] | None = None, **more: Any) -> Plan:
    return calibrate(target(**more), configure(name, options or {}))


@cache
def usual(eavesdropping: Any, parties: int = 6, colluding: int = 1) -> Plan:
    """That of IncA, made once."""
    return planned(eavesdropping=eavesdropping, parties=parties, colluding=colluding)


def noisy(rounds: int = 5, sigma_delta: float = 2.0, **more: Any) -> Plan:
    """IncA in real numbers at levels that nobody calibrated."""
    asked: dict[str, Any] = {"sigma_star": 0.7, "sigma_delta": sigma_delta, "rounds": rounds, "injection": "incremental"}
    return Plan(target(**more), IncA(**asked, **FLOAT, schedule="uniform"))


def executed(plan: Plan, number: int = 0, dropouts: float = 0.0) -> Execution:
    rounds, parties = plan.protocol.rounds, plan.target.parties
    seed = Seed.public("eavesdropping", number)
    trace = churn(seed.derive("churn"), rounds, parties, dropouts) if dropouts else ExecutionTrace.everyone(rounds, parties)
    return plan.execution(seed, trace)


# --- what can be asked ---


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:12])
def test_what_no_eavesdropper_is_is_refused_in_one_sentence(wrong: Any) -> None:
    refused(r"^eavesdropping is .{1,60}\. Choose the chance .* or \"all-after-first\"\.$", target, eavesdropping=wrong)


@pytest.mark.parametrize("wrong", ["0", "1.5", "nan", "sometimes", "-1"])
def test_commands_and_files_refuse_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    (tmp_path / "v.csv").write_text("age\n30\n40\n")
    column = ["mean(age in 20..90)"]
    for line in (
        ["plan", "--parties", "5"],
        ["run", "--data", str(tmp_path / "v.csv"), *column, "--parties", "2", "--out", str(tmp_path / "out")],
        ["study", "new", *column, "--out", str(tmp_path / "s.toml")],
    ):
        fails([*line, "--eavesdropping", wrong], capsys, "eavesdropping is")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "s.toml").exists()
    with pytest.raises(InputError, match="eavesdropping"):
        StudyTerms.parse({"column": [COLUMN], "eavesdropping": float(wrong) if wrong != "sometimes" else wrong})


def test_every_way_in_says_the_same_and_what_does_not_ask_has_no_new_field(tmp_path: Path) -> None:
    asked = qm.plan(parties=5, epsilon=1.0, delta=1e-6, eavesdropping=0.5, protocol="local-dp").target
    assert asked.eavesdropping == 0.5
    assert Target.parse(asked.describe()) == asked
    file = tmp_path / "s.toml"
    for eavesdropping in ANY:
        study = qm.Study({"age": (0, 100)}, epsilon=1.0, delta=1e-6, protocol="inca", eavesdropping=eavesdropping)
        assert study.terms.target(5).eavesdropping == eavesdropping
        study.save(file)
        assert StudyTerms.load(file).target(5).eavesdropping == eavesdropping
        file.unlink()
    plain = target(eavesdropping=None)
    assert "eavesdropping" not in plain.describe()
    assert "eavesdropping" not in qm.Study({"age": (0, 100)}, epsilon=1.0, delta=1e-6).terms.tables()["study"]
    assert not {"eavesdropping", "intercepted"} & set(executed(calibrate(plain, configure("local-dp"))).to_json())


# Which protocols keep which; all that publish, or count what is read.
KEPT: dict[str, list[Any]] = {
    "inca": ANY,
    "muffliato": ANY,
    "local-dp": ANY,
    "priv-unit-g": ANY,
    "cordp-dme": ANY,
    "gopa": ANY,
    "consensus": [ALL_AFTER_FIRST],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(registry()))
@pytest.mark.parametrize("eavesdropping", ANY)
def test_a_protocol_keeps_it_or_refuses_it_before_anything_is_planned(name: str, eavesdropping: Any) -> None:
    more: dict[str, Any] = {"sensitivity": 2.0} if name == "priv-unit-g" else {}
    if eavesdropping in KEPT.get(name, []):
        plan = usual(eavesdropping) if name == "inca" else planned(name, eavesdropping=eavesdropping, **more)
        assert Plan.from_json(json.loads(json.dumps(plan.to_json()))).digest == plan.digest
        if name != "priv-unit-g":
            execution = executed(plan)
            assert execution.privacy(1e-6).coalitions(1).max_mu <= mu_of_budget(1.0, 1e-6) * 1.0001
        return
    with pytest.raises(InputError, match=f"^protocol {name} promises nothing where .* read.*: .*. Name inca, or leave eaves"):
        planned(name, eavesdropping=eavesdropping, **more)
    with pytest.raises(InputError, match="promises nothing"):
        StudyTerms.parse({"column": [COLUMN], "protocol": name, "eavesdropping": eavesdropping}).plan(
            5, no_privacy=not get_protocol(name).TRAITS.private
        )


def test_a_plan_or_a_receipt_that_claims_what_is_refused_is_refused() -> None:
    plan = calibrate(target(eavesdropping=None), configure("packed-sharing")).to_json()
    plan["target"]["eavesdropping"] = 0.5
    refused("promises nothing", Plan.from_json, plan)
    plain = target(eavesdropping=None)
    execution = draw_execution(
        plain, template_of(configure("gopa", {"aggregator": 0}), plain), Seed.public("gopa"), 0.0
    ).to_json()
    refused("promises nothing", Execution.from_json, {**execution, "eavesdropping": ALL_AFTER_FIRST})
    refused(r"go to a collector", planned, "cordp-dme", {"aggregator": 1})


def test_a_receipt_with_a_wrong_field_is_refused() -> None:
    execution = executed(noisy()).to_json()
    for field in ({"intercepted": [[0, 99]]}, {"intercepted": [[-1, 0]]}, {"intercepted": 3}, {"eavesdropping": "some"}):
        refused(r"intercepted|eavesdropping", Execution.from_json, {**execution, **field})
    del execution["eavesdropping"]
    refused("stands without 'eavesdropping'", Execution.from_json, execution)


# --- what is drawn ---


def test_the_draw_knows_neither_the_graph_nor_what_happens() -> None:
    seed, plan = Seed.public("draw"), noisy()
    assert isinstance(plan.protocol, IncA)
    other = replace(plan, protocol=replace(plan.protocol, out_degree=2, schedule="ring"))
    first, second = (Interception.of(one.protocol, 0.5, one.schedule(seed), seed) for one in (plan, other))
    assert first is not None
    assert second is not None
    assert (first.read == second.read).all()
    # And the graph is that of the same study without an eavesdropper.
    assert (plan.schedule(seed).neighbours == noisy(eavesdropping=None).schedule(seed).neighbours).all()


def test_messages_are_read_with_that_chance_and_a_larger_one_reads_all_that_a_smaller_does() -> None:
    """100 000 messages: five standard errors, a chance of 6e-7 for each of three."""
    inca = noisy().protocol
    schedule = Schedule.silent(1000, 100)
    reads = [Interception.of(inca, chance, schedule, Seed.public("chance")) for chance in (0.1, 0.5, 1.0)]
    read = [one.read for one in reads if one is not None]
    assert len(read) == 3
    for chance, mask in zip((0.1, 0.5, 1.0), read, strict=True):
        assert abs(mask.mean() - chance) <= 5 * math.sqrt(chance * (1 - chance) / mask.size)
    assert all((more | ~less).all() for less, more in itertools.pairwise(read))


# --- what certificates count ---


def read_in(document: dict[str, Any]) -> set[tuple[int, int]]:
    """From the receipt alone: what a party held after a round and then sent."""
    parties, rounds, online = document["parties"], document["rounds"], document["online"]
    every = {(i, t) for i in range(parties) for t in range(rounds) if online[t + 1][i] and document["neighbours"][t][i]}
    if document["eavesdropping"] == ALL_AFTER_FIRST:
        return {(i, t) for i, t in every if t}
    return every & {(i, t) for i, t in document["intercepted"]}


@pytest.mark.parametrize("eavesdropping", [0.5, ALL_AFTER_FIRST, *(pytest.param(chance, marks=SLOW) for chance in (0.1, 1.0))])
@pytest.mark.parametrize("dropouts", [0.0, 0.4])
@pytest.mark.parametrize("colluding", [0, 1, pytest.param(2, marks=SLOW)])
def test_certificates_agree_with_theorem_4_1_written_out(eavesdropping: Any, dropouts: float, colluding: int) -> None:
    """Every coalition, by code that shares nothing with the engine and reads the receipt."""
    plan = noisy(eavesdropping=eavesdropping, colluding=colluding, dropouts=dropouts)
    for number in range(2):
        document = json.loads(json.dumps(executed(plan, number, dropouts).to_json()))
        execution = Execution.from_json(document)
        read, worst = read_in(document), np.zeros(6)
        for coalition in itertools.combinations(range(6), colluding):
            for party, square in theorem41(document, coalition, read).items():
                worst[party] = max(worst[party], math.sqrt(square))
        privacy = execution.privacy(1e-6)
        certificate = privacy.coalitions(colluding)
        assert certificate.exhaustive
        assert np.allclose(certificate.mu, worst, rtol=1e-7)
        named = privacy.against(range(colluding))
        expected = theorem41(document, range(colluding), read)
        assert np.allclose(named.mu**2, list(expected.values()), rtol=1e-7)
        # What is named stands in place of what was drawn.
        blind = theorem41(document, range(colluding))
        assert np.allclose(privacy.against(range(colluding), ()).mu ** 2, list(blind.values()), rtol=1e-7)
        if read:
            assert f"{count_of(len(execution.eavesdropper.observed), 'message')} intercepted" in certificate.describe()
            assert execution.eavesdropper.observed == read


def test_more_that_is_read_never_tells_less() -> None:
    for number, colluding in itertools.product(range(3), (0, 1, 2)):
        costs = []
        for chance in (None, 0.1, 0.4, 0.8, 1.0):
            plan = noisy(eavesdropping=chance, colluding=colluding)
            costs.append(executed(plan, number).privacy(1e-6).coalitions(colluding).mu)
        assert all((more >= less * (1 - 1e-9)).all() for less, more in itertools.pairwise(costs))
        # All of it: local differential privacy (after Definition 2.2).
        assert np.allclose(costs[-1], 1 / 0.7, rtol=1e-6)


def test_what_was_proven_for_coalitions_alone_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked(*arguments: Any, **more: Any) -> None:
        raise AssertionError("this bound is about coalitions that see only what is sent to them")

    monkeypatch.setattr("quietmean.protocols.inca.worst_case.worst_coalition", unasked)
    plan = noisy(parties=9, colluding=3, eavesdropping=ALL_AFTER_FIRST)
    execution = executed(plan)
    privacy = execution.privacy(1e-6)
    certificate = privacy.coalitions(3, limit=10)
    assert certificate.kind == "bound for every coalition"
    assert certificate.found is not None
    assert (certificate.mu >= certificate.found.mu * (1 - 1e-9)).all()
    decide(plan.target, execution)
    raised(AssertionError, "about coalitions", replace(execution, interception=None).privacy(1e-6).coalitions, 3, limit=10)


# --- what plans keep ---


def exceeding(plan: Plan, draws: int) -> list[float]:
    """By which factor executions of this plan cost more than its target."""
    size, limit = plan.target.colluding, mu_of_budget(plan.target.epsilon, plan.target.delta)
    costs = [executed(plan, number).privacy(plan.target.delta).coalitions(size).max_mu / limit for number in range(draws)]
    return [cost for cost in costs if cost > 1]


@pytest.mark.slow
@pytest.mark.parametrize("eavesdropping", [0.5, pytest.param(ALL_AFTER_FIRST, marks=SLOW)])
@pytest.mark.parametrize("colluding", [0, pytest.param(1, marks=SLOW)])
def test_plans_keep_their_target_in_fresh_draws_and_a_planner_that_is_deaf_does_not(
    monkeypatch: pytest.MonkeyPatch, eavesdropping: Any, colluding: int
) -> None:
    """Of 20 fresh draws: a plan states what it has shown of their chance, and a margin makes it smaller.

    With few rounds, so that what is read can be told from that margin.
    """
    asked: dict[str, Any] = {"options": {"rounds": 7}, "eavesdropping": eavesdropping, "colluding": colluding, "parties": 8}
    plan = planned(**asked)
    assert len(exceeding(plan, 20)) <= 1
    with monkeypatch.context() as hidden:
        hidden.setattr(Interception, "of", classmethod(lambda *arguments: None))
        levels = planned(**asked).protocol
    assert len(exceeding(replace(plan, protocol=levels, gated=False), 20)) >= 3


@pytest.mark.slow
def test_nobody_corrupt_and_half_of_all_messages_read_is_hidden_after_eight_rounds() -> None:
    """Figure 5a at k = 1: always after 8 rounds, never after 2; and then central accuracy (Theorem 4.5)."""
    plans = {rounds: noisy(rounds, 1e3, parties=100, colluding=0) for rounds in (2, 8)}
    full = {2: 0, 8: 0}
    for rounds, number in itertools.product(full, range(20)):
        execution = executed(plans[rounds], number)
        adversary = execution.eavesdropper.with_corrupt(())
        full[rounds] += diagnose(execution.transcript(), adversary).full_rank
    assert full == {2: 0, 8: 20}
    mu = executed(plans[8]).privacy(1e-6).against().mu
    assert np.allclose(mu**2, 1 / (0.7**2 * 100), rtol=0.02)


@SLOW
def test_the_planner_finds_central_accuracy_where_figure_5a_has_it() -> None:
    plan = planned("inca", {"rounds": 8}, parties=100, colluding=0)
    assert plan.prediction["mse_noise"] <= 1.25 / mu_of_budget(1.0, 1e-6) ** 2 / 100**2


def test_the_more_is_read_the_more_rounds_are_planned() -> None:
    """As many more as connect the honest by what is left; where all is read none would help."""
    rounds = {chance: default_rounds(100, chance) for chance in (None, 0.25, 0.5, 0.75, 0.9, 1.0, ALL_AFTER_FIRST)}
    assert rounds == {None: 13, 0.25: 18, 0.5: 26, 0.75: 52, 0.9: 52, 1.0: 13, ALL_AFTER_FIRST: 13}


# --- what is promised, and charged ---


@pytest.mark.slow
def test_no_gate_can_keep_what_nobody_foresees() -> None:
    plan = usual(0.5)
    assert not plan.gated
    assert plan.prediction["gate"].startswith("no gate before the release, since nobody knows which messages are read")
    # The figure a priori is that of own noise, which holds whichever are read.
    assert plan.epsilon_a_priori > 1.5
    assert plan.above_target is not None
    assert "nobody knows which messages are read" in plan.above_target
    assert executed(plan).a_priori(1, 1e-6) == plan.a_priori
    everything = replace(plan, target=replace(plan.target, eavesdropping=1.0))
    found = executed(everything).privacy(1e-6).coalitions(1)
    assert found.max_mu <= plan.a_priori.mu * (1 + 1e-9)
    assert found.max_mu >= plan.a_priori.mu * 0.95
    refused(r"^no gate can keep a target where each message is read with a chance of 0.5", replace, plan, gated=True)
    refused(r"^no gate can keep", calibrate, plan.target, configure("inca"), trials=3)


def test_what_one_draw_cost_is_not_given_back() -> None:
    for eavesdropping, back in ((None, True), (0.5, False), (ALL_AFTER_FIRST, True)):
        plan = noisy(eavesdropping=eavesdropping)
        assert plan.refunds == back
        assert executed(plan).refunds == back
    # What is published anyway is no draw.
    assert planned("local-dp", FLOAT).refunds


def test_a_plan_for_later_messages_has_a_gate_and_keeps_its_target() -> None:
    plan = usual(ALL_AFTER_FIRST)
    assert plan.gated
    assert plan.epsilon_a_priori <= 1 + 1e-6


@pytest.mark.parametrize("number", range(4))
def test_the_gate_counts_what_is_read(number: int) -> None:
    """Whoever stays: every coalition with all later messages, and where somebody left, all of them beside it."""
    plan = noisy(eavesdropping=ALL_AFTER_FIRST, dropouts=0.35)
    execution = executed(plan, number, dropouts=0.35)
    found = decide(plan.target, execution)
    assert found.exhaustive
    left = set(np.nonzero(~execution.trace.finished)[0].tolist())
    for party in range(6):
        for corrupt in ({party}, left | {party}):
            told = execution.privacy(1e-6).against(corrupt)
            assert told.max_mu <= found.mu * (1 + 1e-9)
    assert decide(plan.target, replace(execution, interception=None)).mu < found.mu


def test_before_the_release_nothing_that_is_read_costs_more_than_was_promised() -> None:
    """Of a party that publishes nothing, and of which everybody else and the eavesdropper together know everything."""
    plan = usual(ALL_AFTER_FIRST)
    for number in range(3):
        execution = executed(plan, number)
        online = execution.trace.online.copy()
        online[-1, 0] = False
        stopped = execution.with_trace(replace(execution.trace, online=online))
        everything = {(party, round_) for party in range(6) for round_ in range(plan.protocol.rounds)}
        told = stopped.privacy(1e-6).against(range(1, 6), everything)
        assert told.max_mu <= plan.a_priori.mu * (1 + 1e-9)


def test_a_large_population_counts_it_too() -> None:
    seed = Seed.public("large")
    deaf, heard, after = (
        worst_mu(plan.target, plan.protocol, seed, 0.0)
        for plan in (noisy(9, 5.0, parties=60, colluding=4, eavesdropping=one) for one in (None, 0.5, ALL_AFTER_FIRST))
    )
    assert deaf * 1.05 < heard
    assert deaf * 1.05 < after


def test_an_adversary_that_reads_more_than_the_target_says_has_no_promise() -> None:
    execution = executed(noisy())
    privacy, read = execution.privacy(1e-6), execution.eavesdropper.observed
    assert privacy.against((1,)).a_priori is not None
    assert privacy.against((1,), read).a_priori is not None
    everything = {(party, round_) for party in range(6) for round_ in range(execution.schedule.rounds)}
    assert privacy.against((1,), everything).a_priori is None


# --- the command ---


def test_certify_counts_it_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execution, file = executed(usual(0.5)), tmp_path / "e.json"
    execution.save(file)

    def certified(*more: str) -> dict[str, Any]:
        capsys.readouterr()
        main(["verify", "receipt", str(file), "--json", *more])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    everyone = certified("--colluding", "1")
    assert "messages intercepted (each message is read with a chance of 0.5, drawn from the public seed" in everyone["adversary"]
    assert any("An eavesdropper reads each message with chance 0.5" in one["text"] for one in everyone["assumptions"])
    assert everyone["epsilon_a_priori"] > everyone["max_epsilon"]
    named, silent = certified("--corrupt", "1"), certified("--corrupt", "1", "--observe-fraction", "0")
    expected = execution.privacy(1e-6).against((1,))
    assert named["max_epsilon"] == expected.max_epsilon > silent["max_epsilon"]
    main(["verify", "receipt", str(file), "--colluding", "1", "--report", str(tmp_path / "why.html")])
    assert "messages intercepted" in (tmp_path / "why.html").read_text()


def test_attacks_have_what_the_target_says_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execution, file = executed(noisy()), tmp_path / "e.json"
    execution.save(file)
    main(["verify", "attack", str(file), "--target", "3", "--corrupt", "1", "--trials", "300", "--seed", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    certificate = execution.privacy(1e-6).against((1,))
    assert math.isclose(found["mu_certified"], certificate.mu_upper[certificate.honest.index(3)], rel_tol=1e-6)
    assert not found["flagged"]


def test_an_execution_of_strangers_reads_all_or_nothing_as_it_says() -> None:
    """A mask over parties that were away reads nothing of them."""
    plan = noisy(4, eavesdropping=1.0)
    execution = executed(plan, 1, dropouts=0.5)
    read = execution.eavesdropper.observed
    assert all(execution.trace.online[round_ + 1, party] for party, round_ in read)
    transcript = execution.transcript()
    view = Adversary(frozenset(), read).view(transcript).messages
    assert view.sum() == len(read) + transcript.released.sum()
    assert information_matrix(transcript, Adversary(frozenset(), read)).honest == tuple(range(6))
