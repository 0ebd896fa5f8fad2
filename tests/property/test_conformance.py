"""Every registered protocol keeps its promises on random executions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.core.arrays import Mask
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import Mechanism, registry
from quietmean.protocols.cordp_dme import CorDPDME
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.traits import grid_of
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.testing import check_protocol, example_execution, mixes
from quietmean.testing.conformance import assert_same_transcript, check_contributors
from quietmean.testing.strategies import executions, values
from support.effort import examples


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "examples", [pytest.param(20, id="some examples"), pytest.param(150, id="more examples", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("protocol", registry().values(), ids=lambda protocol: protocol.name)
def test_every_registered_protocol_conforms(protocol: type[Mechanism], examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.data(), st.integers(0, 2**16))
    def conforms(data: st.DataObject, seed: int) -> None:
        execution = data.draw(executions(protocol))
        check_protocol(execution, data.draw(values(execution.parties)), seed)

    conforms()


@pytest.mark.parametrize(
    ("name", "expected"), [("inca", True), ("gossip", True), ("local-dp", True), ("central-dp", False), ("secagg", False)]
)
def test_which_protocols_are_held_to_conserve_mass(name: str, expected: bool) -> None:
    @settings(max_examples=3)
    @given(executions(name))
    def mixing_is(execution: Execution) -> None:
        assert mixes(execution) is expected

    mixing_is()


@settings(max_examples=examples(100))
@given(st.data(), st.integers(0, 2**16))
def test_inca_injects_one_portion_per_round_online(data: st.DataObject, seed: int) -> None:
    """The total is sum_i w_i (x_i + star noise), w_i the first portions of c, one per round online (IncA, equation 9)."""
    execution = data.draw(executions("inca").filter(lambda drawn: bool(drawn.trace.finished.all())))
    protocol, private = execution.protocol, data.draw(values(execution.parties))
    assert isinstance(protocol, IncA)
    noise = InsecurePopulationNoise(seed, execution.parties)
    portion = protocol.injections.portion
    injected = np.array([portion[:count].sum() for count in execution.trace.online.sum(axis=0)])
    numbers = protocol.numbers()
    star, step = numbers.draw(noise, "star", 0, protocol.sigma_star, private.shape[1])
    noisy = numbers.value(private) + star * step
    releases = execution.run_batch(private, noise)
    # Delta noise of up to 100 a term is added and taken out again, six terms of up to some ten coefficients each.
    scale = np.abs(private).max() + 1e3 * protocol.sigma_delta + protocol.sigma_star
    # On a grid every injection is rounded once.
    rounded = grid_of(protocol) / 2 * execution.trace.online.sum()
    assert np.abs(releases.vector.sum(axis=0) - injected @ noisy).max() <= 1e-12 * scale * execution.parties + rounded
    np.testing.assert_allclose(releases.weight.sum(), injected @ execution.weights, rtol=1e-12)


class OfMachines(CorDPDME):
    """Nothing but its machines says what is computed."""

    population = Mechanism.population


@given(executions("cordp-dme"), st.data(), st.integers(0, 2**16))
def test_a_protocol_without_a_program_is_traced_and_simulated_by_its_machines(
    execution: Execution, data: st.DataObject, seed: int
) -> None:
    alone = replace(execution, protocol=OfMachines.read(execution.protocol.describe()).resolved(execution.parties))
    assert_same_transcript(alone.transcript(), execution.transcript(), "machines", "program", 1e-12)
    private, noise = data.draw(values(execution.parties)), InsecurePopulationNoise(seed, execution.parties)
    found, expected = alone.run_batch(private, noise), execution.run_batch(private, noise)
    np.testing.assert_array_equal(found.by, expected.by)
    np.testing.assert_allclose(found.vector[found.by], expected.vector[found.by], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.weight[found.by], expected.weight[found.by])


class Overstated(CorDPDME):
    """Counts everybody, whatever got lost on the way to the collector."""

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        return np.ones(schedule.parties, dtype=np.bool_)


def test_who_counts_and_is_not_in_the_result_is_found() -> None:
    right = example_execution("cordp-dme", 4, sigma_own=1.0, sigma_pair=2.0, aggregator=0)
    lost = right.with_trace(ExecutionTrace(np.array([[True] * 4, [True, True, False, True]])))
    check_contributors(lost)
    wrong = replace(lost, protocol=Overstated.read(lost.protocol.describe()).resolved(4))
    with pytest.raises(AssertionError, match=r"parties \[2\] count as contributors"):
        check_contributors(wrong)
