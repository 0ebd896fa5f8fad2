"""Average consensus: exact traces, convergence rates, steady states, quantisers that follow or do not, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.graphs import NEVER, ExecutionTrace, diameter, harary, is_bipartite, is_connected, make_graph, neighbour_table
from quietmean.privacy import Adversary
from quietmean.protocols.consensus import Consensus, Quantisation, error
from quietmean.protocols.consensus.analysis import (
    Dynamics,
    best_step,
    default_gamma,
    measured_rate,
    regular_rate,
    searched_rate,
    slowest_difference,
)
from quietmean.protocols.consensus.population import run_consensus
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import fixed_schedule
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilentPopulation
from quietmean.testing import check_protocol
from quietmean.testing.examples import certificate_of
from support.consensus_runs import make, normal_values, run

GEOMETRIC = make_graph("geometric", 30, Seed.public("consensus test", 1))


@pytest.mark.parametrize("mode", ["unicast", "broadcast"])
@pytest.mark.parametrize(
    ("theta", "trace"),
    [
        (0.0, [[0, 7 / 3, 5], [4 / 3, 3, 13 / 3], [3, 3, 3]]),
        (0.5, [[0, 7 / 3, 5], [2 / 3, 8 / 3, 14 / 3], [17 / 12, 17 / 6, 25 / 6]]),
    ],
)
def test_a_path_of_three_by_hand(mode: str, theta: float, trace: list[list[float]]) -> None:
    parameters = make(3, edges=[[0, 1], [1, 2]], theta=theta, iterations=2, mode=mode)
    seen: list[Vector] = []
    # z_{0|1}, z_{1|0}, z_{1|2}, z_{2|1}
    initial = np.array([[1.0], [3.0], [-2.0], [4.0]])
    run_consensus(
        parameters,
        fixed_schedule(parameters, 3),
        ExecutionTrace.everyone(3, 3),
        np.array([[1.0], [2.0], [6.0]]),
        np.ones(3),
        InsecureSilentPopulation(3),
        lambda t, x: seen.append(x.ravel().copy()),
        initial,
    )
    np.testing.assert_allclose(seen, trace, atol=1e-14)


@pytest.mark.parametrize(("kind", "bipartite"), [("path", True), ("ring", False), ("complete", False), ("star", True)])
def test_the_dimension_of_psi_and_the_rate(kind: str, bipartite: bool) -> None:
    dynamics = Dynamics(make_graph(kind, 7, Seed.public("any")), 7, 0.2, 0.6)
    assert dynamics.bipartite is bipartite
    assert dynamics.psi.shape[1] == (12 if bipartite else 13)
    assert dynamics.rho == pytest.approx(float(np.abs(np.linalg.eigvals(dynamics.transition)).max()), rel=1e-9)


def test_the_step_matters_much() -> None:
    slow, fast = (Dynamics(GEOMETRIC, 30, 0.2, c).rho for c in (1.0, best_step(GEOMETRIC, 30, 0.2)))
    assert slow > 0.85
    assert fast < 0.72


@pytest.mark.parametrize(("kind", "parties"), [("ring", 30), ("ring", 31), ("harary", 24), ("complete", 20)])
@pytest.mark.parametrize("theta", [0.0, 0.2, 0.5, 0.9])
def test_the_rate_of_regular_graphs_is_exact(kind: str, parties: int, theta: float) -> None:
    edges = make_graph(kind, parties, Seed.public("any"), connectivity=6)
    for c in (0.02, 0.3, 1.0, 3.0):
        dynamics = Dynamics(edges, parties, theta, c)
        rate = regular_rate(edges, parties, theta, c, dynamics.bipartite)
        assert rate == pytest.approx(dynamics.rho, abs=1e-9)


def test_the_rate_of_many_parties() -> None:
    """On a ring in closed form: a = 2 cos(2 pi k / n)."""
    ring = Dynamics(make_graph("ring", 2001, Seed.public("any")), 2001, 0.2, 0.3)
    assert ring.rho_is_exact
    a = 2 * np.cos(2 * np.pi * np.arange(1, 1001) / 2001)
    roots = np.concatenate([np.roots([1.6, -0.6 * each, -0.4]) for each in a])
    assert ring.rho == pytest.approx(np.abs(0.2 + 0.8 * roots).max(), abs=1e-9)


@pytest.mark.slow
def test_the_rate_of_many_parties_on_an_irregular_graph() -> None:
    geometric = Dynamics(make_graph("geometric", 400, Seed.public("rates")), 400, 0.2, 0.3)
    assert not geometric.rho_is_exact
    assert geometric.rho == pytest.approx(geometric._dense_rho(), abs=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("theta", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("c", [0.05, 1.0])
def test_the_estimated_rate_is_near_the_exact_one(theta: float, c: float) -> None:
    dynamics = Dynamics(make_graph("geometric", 60, Seed.public("rates")), 60, theta, c)
    found = searched_rate(dynamics.links.degree, dynamics.edges, 60, theta, c, dynamics.bipartite)
    assert found == pytest.approx(dynamics.rho, rel=5e-3)
    measured = measured_rate(dynamics.links.degree, dynamics.edges, 60, theta, c)
    assert measured == pytest.approx(dynamics.rho, rel=2e-2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("theta", "mse"), [(0.0, 0.0382), (0.2, 0.0231), (0.5, 0.0223)])
def test_what_quantisation_leaves_on_six_parties(theta: float, mse: float) -> None:
    parameters = make(6, graph="complete", theta=theta, bits=3, delta_min=0.01, iterations=150)
    assert parameters.quantisation is not None
    assert parameters.quantisation.two_step is (theta == 0)
    assert Dynamics.of(parameters).steady_state_mse(1.0) == pytest.approx(mse, abs=5e-5)
    done, seen = run(parameters, normal_values(6, 4000))
    # 40 iterations of 4000 coordinates, correlated in time: relative standard error below 1 %.
    truth = normal_values(6, 4000).mean(axis=0)
    measured = np.mean([((x - truth) ** 2).mean() for x in seen[-40:]])
    assert measured / 0.01**2 == pytest.approx(mse, rel=0.05)
    assert done.overloads[-100:].sum() == 0


@pytest.mark.parametrize("mode", ["unicast", "broadcast"])
@pytest.mark.parametrize("theta", [0.0, 0.2, 0.5])
def test_without_quantisation_the_mean_is_exact(mode: str, theta: float) -> None:
    values = normal_values(30, 2)
    parameters = make(30, edges=GEOMETRIC.tolist(), theta=theta, mode=mode, c=0.3, iterations=300, sigma_z=100.0)
    done, _ = run(parameters, values)
    assert ((done.releases.vector - values.mean(axis=0)) ** 2).mean() < 1e-20
    np.testing.assert_allclose(done.releases.weight, 1.0, atol=1e-10)


@pytest.mark.parametrize("sigma_z", [1.0, 100.0])
def test_errors_shrink_as_fast_as_the_cells(sigma_z: float) -> None:
    parameters = make(30, edges=GEOMETRIC.tolist(), theta=0.5, bits=2, c=0.3, sigma_z=sigma_z, iterations=160)
    assert parameters.quantisation is not None
    values = normal_values(30, 50)
    done, seen = run(parameters, values)
    errors = np.log10([((x - values.mean(axis=0)) ** 2).mean() for x in seen[40:140]])
    slope = np.polyfit(np.arange(len(errors)), errors, 1)[0]
    assert slope == pytest.approx(2 * np.log10(parameters.quantisation.gamma), rel=0.05)
    assert done.overloads.sum() == 0


@pytest.mark.slow
@pytest.mark.parametrize("theta", [0.2, 0.5])
def test_the_error_is_quadratic_in_the_smallest_cell(theta: float) -> None:
    values = normal_values(30, 100)
    for delta_min in (1e-1, 1e-2, 1e-3):
        parameters = make(
            30, edges=GEOMETRIC.tolist(), theta=theta, bits=3, c=0.3, delta_min=delta_min, iterations=220, sigma_z=1.0
        )
        _, seen = run(parameters, values)
        measured = np.mean([((x - values.mean(axis=0)) ** 2).mean() for x in seen[-100:]])
        assert measured == pytest.approx(Dynamics.of(parameters).steady_state_mse(delta_min), rel=0.07)


def test_the_error_of_quantised_broadcasts() -> None:
    values = normal_values(30, 100)
    parameters = make(30, edges=GEOMETRIC.tolist(), mode="broadcast", theta=0.0, bits=4, c=0.3, delta_min=1e-3, iterations=300)
    done, seen = run(parameters, values)
    measured = np.mean([((x - values.mean(axis=0)) ** 2).mean() for x in seen[-100:]])
    assert measured == pytest.approx(Dynamics.of(parameters).steady_state_mse(1e-3, broadcast=True), rel=0.07)
    assert done.overloads[-100:].sum() == 0


def test_a_quantiser_that_cannot_follow_is_refused_and_freezes() -> None:
    rate = slowest_difference(Dynamics(GEOMETRIC, 30, 0.2, 0.3))
    with pytest.raises(InputError, match=r"gamma is 0.4 but differences shrink only like .* Take gamma >="):
        make(30, edges=GEOMETRIC.tolist(), c=0.3, bits=2, gamma=0.4)
    honest = make(30, edges=GEOMETRIC.tolist(), c=0.3, bits=2, gamma=default_gamma(rate), iterations=120)
    assert honest.quantisation is not None
    values = normal_values(30, 5)
    done, _ = run(honest.quantised(replace(honest.quantisation, gamma=0.4)), values)
    assert done.overloads[-1] > 0
    assert np.abs(done.releases.vector - values.mean(axis=0)).max() > 1e-3


def test_theta_zero_with_one_step_overloads_for_ever() -> None:
    with pytest.raises(InputError, match=r"Take two_step, broadcast or theta >= 0\.2"):
        make(30, edges=GEOMETRIC.tolist(), theta=0.0, c=0.3, bits=2, two_step=False, gamma=0.95)
    sound = make(30, edges=GEOMETRIC.tolist(), theta=0.0, c=0.3, bits=3, iterations=200)
    assert sound.quantisation is not None
    assert run(sound, normal_values(30, 5))[0].overloads[-50:].sum() == 0
    wrong = sound.quantised(replace(sound.quantisation, two_step=False))
    overloads = run(wrong, normal_values(30, 5))[0].overloads
    assert (overloads[-50:] > 0).all()


def test_leakage_never_ends_so_the_number_of_messages_must_be_named() -> None:
    with pytest.raises(InputError, match=r"delta_min is 0.1 > 0 and iterations is missing"):
        Consensus.read({"graph": "ring", "sigma_z": 1.0, "theta": 0.2, "bits": 2, "delta_min": 0.1}).resolved(5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"theta": 1.0}, "theta is 1. Choose 0 <= theta < 1"),
        ({"c": 0.0}, "c is 0. Choose a finite number > 0"),
        ({"iterations": 0}, "iterations is 0"),
        ({"edges": [[0, 1], [2, 3]]}, "does not connect all 4 parties"),
        ({"edges": [[0, 4]]}, "edge .0, 4. is not valid"),
        ({"sigma_z": [[1.0, 2.0]]}, "sigma_z lists 1 pairs for 4 edges"),
        ({"mode": "anycast"}, "mode 'anycast' is unknown"),
        ({"local_noise": "gaussian"}, "Give both or none"),
        ({"local_noise": "pink", "sigma_local": 1.0}, "'pink' is unknown"),
        ({"bits": 0}, "bits is 0. Choose 1..16"),
        ({"graph": "grid", "edges": None}, "graph 'grid' is unknown"),
        ({"patience": 0}, "patience is 0"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    raw = {"edges": [[0, 1], [1, 2], [2, 3], [0, 3]], **change}
    with pytest.raises(InputError, match=message):
        make(4, **{name: value for name, value in raw.items() if value is not None})


def test_an_execution_file_names_edges_instead_of_neighbours() -> None:
    document = {"protocol": "consensus", "parties": 5, "edges": [[0, 1], [1, 2], [2, 3], [3, 4]], "theta": 0, "c": 1}
    execution = Execution.from_json({**document, "sigma_z": 10, "iterations": 200})
    assert "neighbours" not in execution.to_json()
    certificate = certificate_of(execution.transcript(), Adversary.collusion([2]), 1.0)
    nats = certificate.information.mutual_information(1.0)
    np.testing.assert_allclose(nats, [0.3515] * 4, atol=5e-5)
    assert certificate.information.disclosures() == [
        "the sum of parties 0, 1 is disclosed",
        "the sum of parties 3, 4 is disclosed",
    ]


@pytest.mark.parametrize(("sigma_z", "nats"), [(0.1, 2.6541), (1.0, 0.6931), (10.0, 0.3515)])
def test_two_connected_honest_parties(sigma_z: float, nats: float) -> None:
    edges = [[0, 1], [1, 2], [0, 2]]
    raw = {"protocol": "consensus", "parties": 3, "edges": edges, "sigma_z": sigma_z, "iterations": 200}
    information = certificate_of(Execution.from_json(raw).transcript(), Adversary.collusion([2]), 1.0).information
    np.testing.assert_allclose(information.mutual_information(1.0), [nats] * 2, atol=5e-5)
    alone = certificate_of(Execution.from_json(raw).transcript(), Adversary.collusion([0, 2]), 1.0).information
    assert alone.mutual_information(1.0) == [np.inf]


def test_the_remaining_parties_find_their_own_mean() -> None:
    parameters = make(6, graph="complete", iterations=80, c=0.3, patience=2)
    values = normal_values(6, 2)
    trace = ExecutionTrace.everyone(parameters.rounds, 6)
    trace.online[20:, 1] = False
    execution = Execution(parameters, fixed_schedule(parameters, 6), trace, 1.0, np.ones(6))
    releases = execution.run_batch(values, InsecurePopulationNoise(3, 6))
    stayed = execution.contributors()
    np.testing.assert_array_equal(stayed, [True, False, True, True, True, True])
    np.testing.assert_allclose(
        releases.vector[stayed] / releases.weight[stayed][:, None], [values[stayed].mean(axis=0)] * 5, atol=1e-9
    )


def test_graphs() -> None:
    for kind in ("geometric", "geometric-cube", "path", "ring", "star", "complete"):
        edges = make_graph(kind, 12, Seed.public("graphs"))
        assert is_connected(edges, 12)
        assert (edges[:, 0] < edges[:, 1]).all()
    assert diameter(make_graph("path", 12, Seed.public("graphs")), 12) == 11
    assert is_bipartite(make_graph("ring", 12, Seed.public("graphs")), 12)
    assert neighbour_table(make_graph("path", 3, Seed.public("graphs")), 3).tolist() == [[1, -1], [0, 2], [1, -1]]
    with pytest.raises(InputError, match=r"none of 10000 graphs with radius 0.01 is connected"):
        make_graph("geometric", 12, Seed.public("graphs"), radius=0.01)


@pytest.mark.parametrize(("parties", "connectivity"), [(8, 3), (9, 4), (9, 3), (7, 5), (10, 1)])
def test_harary_graphs_survive_one_loss_less(parties: int, connectivity: int) -> None:
    import networkx

    graph = networkx.Graph(harary(parties, connectivity).tolist())
    assert networkx.node_connectivity(graph) >= connectivity
    if connectivity > 1:
        assert graph.number_of_edges() == -(-parties * connectivity // 2)


def test_quantisation_widths() -> None:
    settings = Quantisation(2, 0.5, 8.0, 1.0)
    assert [settings.width(t) for t in (1, 2, 3, 4)] == [4.0, 2.0, 1.0, 1.0]
    assert settings.largest_input == 1.5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["unicast", "broadcast"])
def test_the_stated_error_is_that_of_this_execution(mode: str) -> None:
    """Against the spread of simulated results: somebody leaves, and one message arrives that its sender takes for lost."""
    noise = {"sigma_z": 3.0, "local_noise": "gaussian", "sigma_local": 0.5}
    parameters = make(8, graph="harary", connectivity=3, mode=mode, c=0.3, iterations=60, **noise)
    trace = ExecutionTrace.everyone(parameters.rounds, 8)
    execution = Execution(parameters, fixed_schedule(parameters, 8), trace, 1.0, np.arange(1.0, 9.0))
    assert execution.error_variance() == pytest.approx(8 * 0.25 / 36**2, rel=1e-6)
    online = trace.online.copy()
    online[6:, 2] = False
    unnoticed = np.array([[5, 0, int(execution.schedule.neighbours[4, 0, 0]), NEVER]])
    execution = execution.with_trace(ExecutionTrace(online, settled=unnoticed))
    stated = execution.error_variance()
    assert stated is not None
    assert stated > 1.05 * 8 * 0.25 / 36**2
    releases = execution.run_batch(np.zeros((8, 20_000)), InsecurePopulationNoise(4, 8))
    ends = releases.vector[releases.by] / releases.weight[releases.by][:, None]
    # The largest of 7 variances of 20 000 numbers each, 1 % off: 5 standard deviations.
    assert ends.var(axis=1).max() == pytest.approx(stated, rel=0.05)


@pytest.mark.parametrize("mode", ["unicast", "broadcast"])
def test_the_drawn_estimate_of_the_error_is_near_the_exact_one(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = {"sigma_z": 3.0, "local_noise": "gaussian", "sigma_local": 0.5}
    parameters = make(30, edges=GEOMETRIC.tolist(), mode=mode, c=0.3, iterations=40, **noise)
    parts = parameters, fixed_schedule(parameters, 30), ExecutionTrace.everyone(41, 30), np.ones(30)
    exact = error.error_variance(*parts)
    monkeypatch.setattr(error, "_MOST_STEPS", 0.0)
    # The largest of 30 estimates, each 18 % off at most.
    assert error.error_variance(*parts) == pytest.approx(exact, rel=0.5)


def test_an_arrival_that_nobody_noticed_is_in_the_account() -> None:
    """Party 0 takes its first message for lost and does not use the edge; party 1 has seen it and does."""
    parameters = make(3, edges=[[0, 1], [1, 2]], iterations=4, patience=2)
    schedule = fixed_schedule(parameters, 3)
    weights = np.ones(3)
    lost = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
    lost[0, 0, 0] = True
    everyone = ExecutionTrace.everyone(5, 3)
    unnoticed = Execution(parameters, schedule, replace(everyone, settled=np.array([[1, 0, 1, NEVER]])), 1.0, weights)
    really_lost = unnoticed.with_trace(replace(everyone, lost=lost))
    for execution in (unnoticed, really_lost):
        check_protocol(execution, np.array([[1.0], [2.0], [3.0]]))
    # Party 1 talks about an x that contains the noise of party 0, for as long as it uses the edge.
    seen = [len(execution.full_transcript().sender) for execution in (unnoticed, really_lost)]
    assert seen[0] > seen[1]
    # Who uses an edge alone still knows what it was sent: a corrupt party 1 knows the noise.
    known = unnoticed.full_transcript().message_known.toarray()
    first = (unnoticed.full_transcript().sender == 0) & (unnoticed.full_transcript().message_round == 1)
    assert known[first][:, 1].any()
