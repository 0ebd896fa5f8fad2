"""Plans of consensus: automatic bits, and noise that holds for every coalition."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Adversary
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.protocols import configure, get_protocol
from quietmean.protocols.consensus import Consensus
from quietmean.protocols.consensus.design import refuse_overload_of
from quietmean.protocols.mechanism import template_of
from quietmean.randomness import Seed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.testing.examples import certificate_of
from support.consensus_runs import make, normal_values, run
from support.every_option import every_option
from support.refusals import refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "theta"), [(mode, theta) for mode in ("unicast", "broadcast") for theta in (0.0, 0.1, 0.2, 0.5, 0.9)]
)
def test_automatic_bits_never_overload(mode: str, theta: float) -> None:
    """Over many seeds of values, noise and dither, on regular and irregular graphs; at theta = 0 differences over two steps."""
    graphs: list[dict[str, Any]] = [{"graph": "harary", "connectivity": 4}, {"graph": "geometric", "graph_seed": 1}]
    for graph, sigma_z, delta_min in itertools.product(graphs, (1.0, 30.0), (0.0, 0.01)):
        common = {"theta": theta, "mode": mode, "c": 0.3, "sigma_z": sigma_z, "delta_min": delta_min, "iterations": 120}
        parameters = make(12, bits="auto", **common, **graph)
        settings = parameters.quantisation
        assert settings is not None
        assert settings.two_step is (theta == 0 and mode == "unicast")
        for seed in range(4):
            tried = parameters.quantised(replace(settings, dither_seed=seed))
            done, _ = run(tried, normal_values(12, 40, seed), seed=seed)
            assert done.overloads.sum() == 0, f"{graph} {common} seed {seed}: {settings.bits} bits"


@pytest.mark.slow
def test_two_bits_over_two_steps_are_refused_in_plans() -> None:
    many = Target(parties=30, epsilon=1.0, delta=1e-5)
    options = {"graph": "geometric", "theta": 0.0, "c": 1.0, "sigma_z": 1.0, "bits": 2}
    with pytest.raises(InputError, match=r"bits is 2, but with theta 0 and differences over two steps .* for ever .* take 4"):
        refuse_overload_of(Consensus.read(options), template_of(Consensus.read(options), many))
    for step, enough in ((0.3, 3), (1.0, 4)):
        automatic = template_of(Consensus.read({**options, "c": step, "bits": "auto"}), many).quantisation
        assert automatic is not None
        assert automatic.bits == enough
    # An execution file may have them: what happened is accounted for.
    assert Consensus.read(options).resolved(30).quantisation is not None
    target = Target(parties=8, epsilon=1.0, delta=1e-5, colluding=2)
    refused("for ever", calibrate, target, Consensus(theta=0.0, c=0.5, bits=1, iterations=50))


def test_a_plan_with_local_noise_holds_for_every_coalition() -> None:
    target = Target(parties=8, epsilon=1.0, delta=1e-6, colluding=2)
    plan = calibrate(target, Consensus())
    assert isinstance(plan.protocol, Consensus)
    assert plan.protocol.deviations.min() > 0
    execution = plan.execution(Seed.public("plan"), ExecutionTrace.everyone(plan.protocol.rounds, 8))
    transcript = execution.transcript()
    worst = max(
        certificate_of(transcript, Adversary.collusion([one, other]), 1.0).max_mu for one in range(8) for other in range(one)
    )
    assert 0.98 < epsilon_of_mu(worst, 1e-6) <= 1.0
    assert plan.prediction["mse_noise"] == pytest.approx(plan.protocol.sigma_local**2 / 8, rel=1e-5)
    refused(r"dropouts of 0.1", calibrate, Target(parties=8, epsilon=1.0, delta=1e-6, dropouts=0.1), Consensus())


@pytest.mark.parametrize("name", ["adqsp", "pdmm", "admm", "consensus"])
@pytest.mark.parametrize(("parties", "colluding"), [(2, 1), (5, 0), (8, 2), (20, 19)])
def test_every_target_is_promised_by_default(name: str, parties: int, colluding: int) -> None:
    """In plans, studies and sessions alike; also where nobody else is honest."""
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, colluding=colluding)
    plan = calibrate(target, configure(name))
    assert plan.above_target is None
    assert 0.9 < plan.epsilon_a_priori <= 1.0
    plan.require_target_kept(False)
    terms = {"name": "rounds", "dimension": 2, "rounds": 2, "epsilon": 2.0, "delta": 1e-5, "colluding": colluding}
    session = SessionStudy.parse({**terms, "protocol": name}).terms(parties).plan
    assert session.above_target is None


def test_edges_can_be_used_each_by_itself() -> None:
    """The same noise, less promised."""
    target = Target(parties=8, epsilon=1.0, delta=1e-6, colluding=1)
    all_open, each = calibrate(target, configure("adqsp")), calibrate(target, configure("adqsp", {"open_edges": "each"}))
    assert each.prediction["mse_noise"] == all_open.prediction["mse_noise"]
    assert each.epsilon_a_priori > 2.8
    refused(r"patience above the .* iterations, or each as open_edges", calibrate, target, configure("adqsp", {"patience": 5}))
    assert calibrate(target, configure("adqsp", {"patience": 5, "open_edges": "each"})).above_target is not None


# Of every protocol, as it comes and with each of its options; those that promise more than their target run everywhere.
EVERY = [case for case in every_option() if get_protocol(case[0]).TRAITS.private]
MENDED: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("consensus", {"open_edges": "each"}, "open_edges = all", {"open_edges": "all"}),
    ("gopa", {"aggregator": 2}, "without aggregator", {}),
]
SIX = Target(parties=6, epsilon=1.0, delta=1e-6, colluding=1)


@pytest.mark.parametrize(("name", "options", "said", "mended"), MENDED, ids=str)
def test_a_refusal_names_the_option_that_mends_it(name: str, options: dict[str, Any], said: str, mended: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"or options of it that promise the target \({said}\), or accept it"):
        calibrate(SIX, configure(name, options)).require_target_kept(False)
    calibrate(SIX, configure(name, mended)).require_target_kept(False)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), EVERY, ids=str)
def test_no_other_option_promises_less(name: str, options: dict[str, Any]) -> None:
    try:
        plan = calibrate(SIX, configure(name, options))
    except InputError:
        return
    assert (plan.above_target is not None) == ((name, options) in [(one, given) for one, given, *_ in MENDED])
