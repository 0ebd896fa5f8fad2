"""Secret-sharing consensus: exact sums of any size, and no result rather than a wrong one."""

from __future__ import annotations

import itertools
import math
from typing import Any

import networkx
import numpy as np
import pytest

from quietmean.core.assumptions import Key
from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.consensus.analysis import Dynamics
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import fixed_schedule
from quietmean.protocols.secret_sharing import SecretSharing, iterations_needed
from quietmean.protocols.secret_sharing.party import SecretSharingParty, SecretSharingState, encode_number, signed
from quietmean.randomness.insecure import InsecureStackedNoise
from quietmean.studies.agreement.study import StudyTerms
from quietmean.transcript import run_lockstep
from support.refusals import refused


def configured(parties: int, **raw: Any) -> SecretSharing:
    return SecretSharing.read(raw if "edges" in raw else {"graph": "ring", **raw}).resolved(parties)


def execution(parties: int, **raw: Any) -> Execution:
    protocol = configured(parties, **raw)
    return Execution(
        protocol, fixed_schedule(protocol, parties), ExecutionTrace.everyone(protocol.rounds, parties), 1.0, np.ones(parties)
    )


def sums(done: Execution, values: Vector) -> list[list[int]]:
    states = done.run(values, InsecureStackedNoise(1, done.parties)).states
    totals = [state.total for state in states if isinstance(state, SecretSharingState)]
    return [[int.from_bytes(each, "big", signed=True) for each in total] for total in totals]


def test_the_number_of_parties_may_be_known_before_the_graph_is() -> None:
    assert SecretSharing(bound=1.0, parties=5).parties == 5
    refused("does not connect all 5 parties", SecretSharing, bound=1.0, parties=5, edges=np.array([[0, 1]]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("bound", "fraction_bits"), [(1.0, 0), (1e3, 20), (1e9, 40), (1e18, 200)])
def test_signed_sums_are_right_to_the_last_bit(bound: float, fraction_bits: int) -> None:
    values = bound * np.array([[-1.0, 1.0], [-0.7, 1.0], [0.11, 1.0], [-1.0, 1.0], [1 / 3, 1.0], [-0.9, 1.0]])
    done = execution(6, bound=bound, fraction_bits=fraction_bits)
    expected = [sum(encode_number(number, fraction_bits) for number in column) for column in values.T.tolist()]
    assert sums(done, values) == [expected] * 6
    releases = done.run_batch(values, InsecureStackedNoise(1, 6))
    rounding = 3.0 * 2.0**-fraction_bits
    np.testing.assert_allclose(done.estimate(releases), values.mean(axis=0), atol=rounding, rtol=1e-9)


def test_too_few_iterations_are_refused() -> None:
    parameters = configured(8, bound=1.0)
    needed = iterations_needed(parameters)
    rho = Dynamics(parameters.edges, 8, 0.0, 0.25).rho
    usual = math.log(2 * 8 * parameters.modulus / math.sqrt(12)) / -math.log(rho)
    assert usual < needed < 1.6 * usual
    refused(f"iterations is {needed - 1}. Choose {needed}", execution, 8, bound=1.0, iterations=needed - 1)
    assert configured(8, bound=1.0, iterations=needed + 3).iterations == needed + 3


@pytest.mark.parametrize("round_", [1, 2, 10])
def test_a_party_that_leaves_leaves_no_result(round_: int) -> None:
    done = execution(6, bound=1.0)
    trace = ExecutionTrace.everyone(done.schedule.rounds, 6)
    trace.online[round_:, 2] = False
    broken = done.with_trace(trace)
    assert broken.run(np.ones((6, 1)), InsecureStackedNoise(1, 6)).releases == {}
    assert not broken.contributors().any()


def test_shares_are_uniform_and_hide_the_value() -> None:
    protocol = configured(3, bound=1.0, fraction_bits=2)
    noise = InsecureStackedNoise(1, 3).party(0)
    low, high = (SecretSharingParty(protocol, 0, np.full(5000, value), 1.0, noise) for value in (-1.0, 1.0))
    assert low.start().send[0].content == high.start().send[0].content
    shares = low._share(0)
    counts = np.bincount(shares, minlength=protocol.modulus)
    # Chi-square with 31 degrees of freedom: above 80 with probability 3e-6; the seed is fixed.
    assert protocol.modulus == 32
    assert ((counts - 5000 / 32) ** 2 / (5000 / 32)).sum() < 80


def test_signed_decoding_and_values_that_do_not_fit() -> None:
    assert [signed(number, 16) for number in (0, 7, 8, 15, 16)] == [0, 7, -8, -1, 0]
    refused("a value lies outside", sums, execution(3, bound=1.0), np.full((3, 1), 1.5))
    refused("bound is 0", execution, 3, bound=0.0)


def test_a_coalition_learns_the_sum_of_each_group_that_it_leaves_connected_and_no_more() -> None:
    """A path, a ring and a star, all coalitions: as the graph says, by networkx, and it costs those groups everything."""
    for edges in (networkx.path_graph(6).edges, networkx.cycle_graph(6).edges, networkx.star_graph(5).edges):
        done = execution(6, bound=1.0, edges=[list(edge) for edge in edges])
        graph, privacy = networkx.Graph(edges), done.privacy(1e-6)
        for size in range(6):
            for corrupt in itertools.combinations(range(6), size):
                found = privacy.against(corrupt)
                groups = networkx.connected_components(graph.subgraph(set(range(6)) - set(corrupt)))
                assert sorted(found.information.disclosures()) == sorted(sentence(group) for group in groups)
                assert np.isinf(found.mu_upper).all()
                assert found.numbers == "exact"


def sentence(group: set[int]) -> str:
    if len(group) == 1:
        return f"the value of party {min(group)} is disclosed"
    return f"the sum of parties {', '.join(map(str, sorted(group)))} is disclosed"


@pytest.mark.parametrize("lost", [(0, 1), (3, 2)])
def test_who_lost_a_share_tells_nothing(lost: tuple[int, int]) -> None:
    done = execution(6, bound=1.0)
    mask = np.zeros(done.schedule.neighbours.shape, dtype=np.bool_)
    mask[0, lost[0]] = done.schedule.neighbours[0, lost[0]] == lost[1]
    broken = done.with_trace(ExecutionTrace(done.trace.online, mask))
    sent: list[tuple[int, int]] = []
    machines = [broken.machine(i, np.zeros(1), InsecureStackedNoise(1, 6).party(i)) for i in range(6)]
    run_lockstep(
        machines,
        broken.trace,
        broken.arrivals(),
        lambda message, _: sent.append((message.sender, message.content[0])) if message.round == 2 else None,
    )
    assert sorted(broken.transcript().sender.tolist()) == sorted(party for party, broken_ in sent if not broken_)
    assert sorted(party for party, broken_ in sent if broken_) == sorted(lost)
    # Two neighbours on a ring are silent: of the others no sum is whole.
    assert not np.isinf(broken.privacy(1e-6).against(()).mu_upper).any()
    assert math.isinf(broken.error_variance() or 0.0)


@pytest.mark.slow
def test_a_plan_has_room_for_the_records_of_a_party_and_refuses_dropouts() -> None:
    columns = [{"name": "age", "low": 0, "high": 100}]
    for unit, most in (("party", 1.0), ("record", 2.0**20)):
        study = StudyTerms.parse({"protocol": "secret-sharing", "epsilon": 1.0, "unit": unit, "column": columns})
        plan = study.plan(4, no_privacy=True)
        plan.require_room(most if unit == "record" else 1.0)
        assert (plan.prediction["mse_noise"], plan.epsilon_a_priori) == (0.0, math.inf)
        (bare,) = [one for one in plan.assumptions if one.key == Key.NO_NOISE]
        assert "secret-sharing has no differential privacy" in bare.text
        assert "the sum of each group of others" in bare.text
    with pytest.raises(InputError, match="secret-sharing has no result without all of its parties"):
        StudyTerms.parse({"protocol": "secret-sharing", "epsilon": 1.0, "dropouts": 0.2, "column": columns}).plan(
            5, no_privacy=True
        )
