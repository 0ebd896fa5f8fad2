"""Secret-sharing consensus: exact sums of any size, and no result rather than a wrong one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.consensus.analysis import Dynamics
from quietmean.protocols.execution import Execution
from quietmean.protocols.secret_sharing import SecretSharing
from quietmean.protocols.secret_sharing.party import SecretSharingParty, SecretSharingState, exact_sums
from quietmean.protocols.secret_sharing.protocol import iterations_needed
from quietmean.protocols.secret_sharing.spec import encode_number, signed
from quietmean.randomness.insecure import InsecureStackedNoise


def configured(parties: int, **raw: Any) -> SecretSharing:
    return SecretSharing.parse({"graph": "ring", **raw}, parties)


def execution(parties: int, **raw: Any) -> Execution:
    protocol = configured(parties, **raw)
    return Execution(
        protocol, protocol.fixed_schedule(parties), ExecutionTrace.everyone(protocol.rounds, parties), 1.0, np.ones(parties)
    )


def sums(done: Execution, values: Vector) -> list[list[int]]:
    states = done.run(values, InsecureStackedNoise(1, done.parties)).states
    return [exact_sums(state) for state in states if isinstance(state, SecretSharingState)]


def test_the_number_of_parties_may_be_known_before_the_graph_is() -> None:
    assert SecretSharing(bound=1.0, parties=5).parties == 5
    with pytest.raises(InputError, match="does not connect all 5 parties"):
        SecretSharing(bound=1.0, parties=5, edges=np.array([[0, 1]]))


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
    with pytest.raises(InputError, match=f"iterations is {needed - 1}: this graph needs {needed}"):
        execution(8, bound=1.0, iterations=needed - 1)
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
    with pytest.raises(InputError, match="a value lies outside"):
        sums(execution(3, bound=1.0), np.full((3, 1), 1.5))
    with pytest.raises(InputError, match="bound is 0"):
        execution(3, bound=0.0)
