"""Plans of single protocols against their own conditions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Adversary
from quietmean.protocols.cordp_dme import CorDPDME, gaussian_variance, optimal_design, sparse_design
from quietmean.protocols.cordp_dme.design import sparse_leakage
from quietmean.protocols.cordp_dme.party import place_pairs
from quietmean.protocols.gopa import GOPA
from quietmean.randomness import Seed
from quietmean.simulation import simulate
from quietmean.testing.examples import certificate_of
from support.command_lines import fails
from support.refusals import refused, refused_rows


# -- Plans of CorDP-DME keep their target, with the complete graph and with a sparse one.
@pytest.mark.slow
def test_a_sparse_design_holds_and_says_what_it_costs() -> None:
    design = sparse_design(30, 27, 2, 1.0, 8)
    assert design.exhaustive
    assert design.disconnected == 0
    assert 1.0 < design.cost < 2.0
    pairs = place_pairs(30, 8)
    worst = max(
        sparse_leakage(design.own, design.pair, 30, pairs, frozenset({one, other})) for one in range(30) for other in range(one)
    )
    assert worst == pytest.approx(1 / 1.02**2, rel=1e-9)
    few, many = sparse_design(60, 54, 6, 1.0, 6), sparse_design(60, 54, 6, 1.0, 30)
    assert many.cost < few.cost
    # Who has fewer partners than there are colluders has only its own noise; nothing else is promised.
    assert few.own == pytest.approx(1.02**2, rel=1e-9)
    near = place_pairs(60, 30)
    surrounding = near[(near == 0).any(axis=1)].sum(axis=1)[:6].tolist()
    assert sparse_leakage(many.own, many.pair, 60, near, frozenset(surrounding)) <= 1.0
    refused("too many", sparse_design, 5000, 4000, 10, 1.0, 20)


def plan(dropouts: float = 0.0, options: dict[str, Any] | None = None, parties: int = 20) -> Plan:
    return calibrate(Target(parties, 1.0, 1e-6, 2, 1.0, 3, dropouts), CorDPDME.read(options or {}))


def test_plans_keep_the_target_and_are_the_same_everywhere() -> None:
    chosen = plan(0.2)
    assert chosen.digest == plan(0.2).digest
    assert Plan.from_json(chosen.to_json()).digest == chosen.digest
    execution = chosen.execution(Seed.public("test"), ExecutionTrace.everyone(1, 20))
    certificate = certificate_of(execution.transcript(), Adversary.collusion({1, 2, 3}), 1.0)
    assert 0.9999 < certificate.max_epsilon <= 1.0
    design = optimal_design(20, 16, 3, gaussian_variance(1.0, 1e-6, 1.0))
    assert chosen.prediction["mse_noise"] == pytest.approx(design.mse(1), rel=1e-4)
    assert chosen.prediction["mse_dropout_bias"] == pytest.approx((1 / 16 - 1 / 20) / 24)


def test_plan_with_a_sparse_graph() -> None:
    chosen = plan(0.1, {"partners": 10})
    assert "the least with noise shared in all pairs" in chosen.prediction["certificate"]
    assert chosen.schedule(Seed.public("x")).pairs.shape == (100, 2)
    assert chosen.prediction["mse_noise"] > plan(0.1).prediction["mse_noise"]


def figures(arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["plan", "--protocol", "cordp-dme", "--json", *arguments.split()])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    candidate: dict[str, Any] = document["candidates"][0]
    return candidate


TABLE_II = "--parties 10 --dimension 5 --epsilon 2 --delta 1e-5 --domain unit-ball --responding 8 --colluding 2"


def test_plan_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    table = figures(f"{TABLE_II} --convention table-ii", capsys)
    assert table["sigma2"] == pytest.approx(6.318, abs=1e-3)
    assert table["rho"] == pytest.approx(-0.089, abs=5e-4)
    assert table["mse_biased"] == pytest.approx(0.598, abs=1e-3)
    assert table["mse_unbiased"] == pytest.approx(1.488, abs=1e-3)
    assert table["epsilon_on_ball"] == pytest.approx(4.39, abs=0.005)
    ball = figures(TABLE_II, capsys)
    assert ball["sigma2"] == pytest.approx(4 * table["sigma2"], rel=1e-4)
    assert ball["epsilon_on_ball"] == pytest.approx(2.0)
    assert ball["responding"] == 8
    biased = figures(f"{TABLE_II} --with decoder=biased", capsys)
    assert biased["certificate"]["mse_noise"] * 5 == pytest.approx(biased["mse_biased"], rel=1e-5)


@refused_rows("plan_refuses")
def test_plan_refuses(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    fails(["plan", "--protocol", "cordp-dme", *arguments.split()], capsys, message)


# -- Plans of GOPA hold, and the error that they predict is the one found.
@pytest.mark.slow
def test_plans_hold_on_fresh_executions_and_searched_coalitions() -> None:
    """24 executions not seen before, dropouts as planned and fewer; the search looks for coalitions worse than the plan's."""
    plan = calibrate(Target(parties=30, epsilon=1.0, delta=1e-6, colluding=3, dropouts=0.1), GOPA(aggregator=0))
    spent = []
    for number in range(24):
        online = np.ones((4, 30), dtype=np.bool_)
        for index, party in enumerate(range(3 + number, 3 + number + (0, 2, 3)[number % 3])):
            online[1 + (index + number) % 3 :, 1 + party % 29] = False
        privacy = plan.execution(Seed.public("fresh gopa", number), ExecutionTrace(online)).privacy(1e-6)
        found = privacy.search(3, limit=40)
        assert 0 in found.worst
        spent.append(found.max_epsilon)
    print("epsilon on fresh executions:", min(spent), max(spent))
    assert max(spent) <= 1.0


@pytest.mark.slow
def test_predicted_and_simulated_error_agree_without_dropouts() -> None:
    """MSE = sigma_star^2 / n: 4000 runs, within 5 standard errors of it (wrongly rejected with probability 6e-7)."""
    target = Target(parties=12, epsilon=1.0, delta=1e-6, colluding=1, dimension=2)
    plan = Plan(target, GOPA(sigma_star=0.6, sigma_delta=5.0, partners=4))
    result = simulate(plan, runs=4000, seed=5)
    assert abs(result.mse - 0.36 / 12) < 5 * result.mse_standard_error
    assert abs(result.mse - 0.36 * 1.2 / 12) > 5 * result.mse_standard_error
