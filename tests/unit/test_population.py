"""Population programs: symbols and numbers tell the same, and long vectors are worked on in pieces."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.core import arrays
from quietmean.core.errors import ProtocolFailure
from quietmean.core.grid import LARGEST_SHARE, RoundedNumbers
from quietmean.core.input_domain import Ball, Box, InputDomain
from quietmean.core.mixtures import Simplex
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace, Flow, Schedule, churn
from quietmean.planning.release_bounds import ROUNDING, within_bounds
from quietmean.privacy.information.round_recursion import find_rounds
from quietmean.protocols import Target, configure, get_protocol
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import template_of
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.spec import ANY, BALL, LARGE_PRIME, SMALL_PRIME
from quietmean.randomness import BitStream, SecureNoise, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean.randomness.layered_gaussian import LayeredStream, layered_gaussian
from quietmean.sessions.round_mean import shortened
from quietmean.testing import example_execution
from quietmean.transcript import run_lockstep
from quietmean.transcript.numbers import NoTerms, NumericReading, NumericRows, NumericTerms, WholeRows
from quietmean.transcript.population import InjectedRows, PopulationTerms, Reading, Rows
from quietmean.transcript.symbols import SymbolicReading

# -- The algebra of population programs: symbols and numbers tell the same, what cancels is not drawn, divisions lose nothing.
PARTIES, DIMENSION = 6, 3


def random_flow(numbers: BitStream, rows: int, columns: int, entries: int) -> Flow:
    to, source = numbers.integers(rows, entries), numbers.integers(columns, entries)
    return Flow.of((rows, columns), to, source, np.round(numbers.standard_normal(entries), 1))


def random_program(seed: int, values: Rows, noise: PopulationTerms, out: Reading) -> Rows:
    """Mixes values, own and shared noise at random; some of it is sent on the way."""
    numbers = BitStream(insecure_seed(seed, "program"))
    pairs = np.array([[0, 1], [0, 4], [2, 3], [3, 5]])
    shared = noise.shared_normal(pairs, "delta", 0, 2.0)
    some = noise.normal_of(np.array([1, 1, 4]), "delta", np.array([1, 2, 1]), np.array([0.5, 2.0, 3.0]))
    held = values + noise.normal("star", 0, 0.7) + random_flow(numbers, PARTIES, len(pairs), 5) @ shared
    held = held - random_flow(numbers, PARTIES, 3, 4) @ some
    for round_ in range(3):
        mask = numbers.uniform(PARTIES) < 0.6
        held = out.send(held, mask, round_)
        mixed = random_flow(numbers, PARTIES, PARTIES, 8) @ held
        share, rest = out.divided(mixed, np.arange(PARTIES) + 1)
        held = held.at(~mask) + share * numbers.standard_normal(PARTIES) - rest
        injected = InjectedRows(np.nonzero(mask)[0], [(0.5, values), (2.0, noise.normal("star", 0, 0.7))])
        held = out.injected(held + 0.0, [injected])
        held = held + random_flow(numbers, PARTIES, len(pairs), 3) @ shared
    return out.release(held, np.ones(PARTIES, dtype=np.bool_), 4)


@given(st.integers(0, 2**32 - 1))
def test_both_readings_of_a_program_tell_the_same(seed: int) -> None:
    values: Vector = BitStream(insecure_seed(seed, "values")).standard_normal((PARTIES, DIMENSION))
    source = InsecurePopulationNoise(seed, PARTIES)
    numeric = NumericReading(values)
    released = numeric.vectors(random_program(seed, numeric.values, NumericTerms(source, PARTIES, DIMENSION), numeric))
    symbolic = SymbolicReading(PARTIES)
    random_program(seed, symbolic.values, symbolic.noise, symbolic)
    transcript = symbolic.transcript()
    by_values, by_noise = transcript.eliminated()
    drawn = standard_noise(source, transcript.noise_known.toarray())
    expected = (by_values @ values + by_noise @ drawn)[transcript.released]
    np.testing.assert_allclose(released, expected, rtol=1e-10, atol=1e-10)


def standard_noise(source: InsecurePopulationNoise, known: NDArray[np.bool_]) -> Vector:
    """The program's noise terms in the order in which it names them: shared, some single ones, then one of every party."""
    assert known.sum(axis=1).tolist() == [2] * 4 + [1] * 3 + [1] * PARTIES
    shared = source.shared_normal(np.array([[0, 1], [0, 4], [2, 3], [3, 5]]), "delta", 0, DIMENSION)
    once, again = source.normal("delta", 1, DIMENSION), source.normal("delta", 2, DIMENSION)
    return np.vstack([shared, once[1], again[1], once[4], source.normal("star", 0, DIMENSION)])


class CountingNoise(InsecurePopulationNoise):
    drawn = 0

    def shared_normal(self, pairs: NDArray[np.int64], purpose: str, index: int, dimension: int) -> Vector:
        self.drawn += len(pairs)
        return super().shared_normal(pairs, purpose, index, dimension)


def test_gopa_draws_only_what_does_not_cancel() -> None:
    execution = example_execution("gopa", 12, 1, sigma_star=1.0, sigma_delta=5.0, partners=11, aggregator=0)
    values = np.ones((12, 2))
    noise = CountingNoise(0, 12)
    execution.run_batch(values, noise)
    assert noise.drawn == 0
    online = execution.trace.online.copy()
    online[2:, 7] = False
    late = execution.with_trace(ExecutionTrace(online))
    assert late.transcript().noise.nnz > 0
    late.run_batch(values, noise)
    assert noise.drawn == 0
    online[1:, 8] = False
    execution.with_trace(ExecutionTrace(online)).run_batch(values, noise)
    # Party 7 published and was not there to take out what it shares with 8.
    assert noise.drawn == 1


def test_cancellation_is_noticed_however_many_rows_it_has() -> None:
    noise = CountingNoise(0, 40)
    pairs = np.array([(one, other) for one in range(40) for other in range(one + 1, 40)])
    terms = NumericTerms(noise, 40, 1).shared_normal(pairs, "delta", 0, 1.0)
    signs = Flow.of((40, len(pairs)), pairs.ravel(), np.repeat(np.arange(len(pairs)), 2), np.tile([-1.0, 1.0], len(pairs)))
    masks = signs @ terms
    everything = Flow.of((40, 40), np.zeros(40, dtype=np.int64), np.arange(40))
    total = everything @ masks
    np.testing.assert_array_equal(total.numbers(1), np.zeros((40, 1)))
    assert noise.drawn == 0
    np.testing.assert_array_equal((masks - masks).numbers(1), np.zeros((40, 1)))
    assert noise.drawn == 0
    np.testing.assert_allclose(masks.numbers(1).sum(), 0.0, atol=1e-12)
    assert noise.drawn == len(pairs)


def test_whole_numbers_leave_over_what_a_division_rounds() -> None:
    reading = NumericReading(np.zeros((4, 1)), WholeRows(RoundedNumbers(0.25)))
    members = np.arange(4)
    held = reading.injected(
        reading.zeros(), [InjectedRows(members, [(1.0, NumericRows(np.array([[1.7], [-1.6], [2.0**40], [0.0]])))])]
    )
    units = reading.vectors(held) / 0.25
    np.testing.assert_array_equal(units[:, 0], [7.0, -6.0, 2.0**42, 0.0])
    share, rest = reading.divided(held, np.array([2, 4, 2, 3]))
    assert isinstance(rest, NumericRows)
    assert isinstance(share, NumericRows)
    # Halves go up, and what does not fit into a share stays with its holder.
    np.testing.assert_array_equal(share.numbers()[:, 0], [4, -1, LARGEST_SHARE, 0])
    back = Flow.of((4, 4), members, members, np.array([2.0, 4.0, 2.0, 3.0])) @ share + rest
    np.testing.assert_array_equal(reading.vectors(back), reading.vectors(held))
    with pytest.raises(TypeError, match="whole numbers"):
        _ = Flow.of((4, 4), members, members, 0.5) @ share
    with pytest.raises(ProtocolFailure, match="beyond 2\\^53"):
        reading.injected(held, [InjectedRows(members, [(1.0, NumericRows(np.full((4, 1), 2.0**60)))])])


def test_readings_do_not_mix() -> None:
    symbolic, numeric = SymbolicReading(2), NumericReading(np.zeros((2, 1)))
    for one, other in ((symbolic.values, numeric.values), (numeric.values, symbolic.values)):
        with pytest.raises(TypeError, match="may add only"):
            _ = one + other
        with pytest.raises(TypeError, match="may add only"):
            _ = one + 1.0
    for reading, rows in ((symbolic, numeric.values), (numeric, symbolic.values)):
        with pytest.raises(TypeError, match="may tell only"):
            reading.injected(rows, [])
    np.testing.assert_array_equal(numeric.vectors(numeric.values + NoTerms(2, 1).normal("star", 0, 3.0)), np.zeros((2, 1)))


@pytest.mark.parametrize(("name", "options"), [("inca", {"injection": "incremental"}), ("gossip", {})])
def test_the_accountant_finds_the_rounds_of_a_program(name: str, options: dict[str, str]) -> None:
    """What makes accounts fast: rows of values come first, and each message is made of one round's messages."""
    protocol, seed = template_of(configure(name, options), Target(20, 1.0, 1e-6)), Seed.public("rounds")
    schedule = protocol.draw_schedule(20, seed)
    trace = churn(seed, schedule.rounds, 20, permanent=0.2, temporary=0.1)
    assert find_rounds(protocol.transcript(schedule, trace)) is not None


def test_a_protocol_without_a_program_says_so() -> None:
    protocol = get_protocol("priv-unit-g").read({"epsilon": 1.0}).resolved(2)
    reading = SymbolicReading(2)
    parts = Schedule.silent(1, 2), ExecutionTrace.everyone(1, 2)
    with pytest.raises(TypeError, match="priv-unit-g has no population program"):
        protocol.population(*parts, reading.values, np.ones(2), reading.noise, reading)


def test_noise_levels_of_zero_are_still_terms() -> None:
    """Calibration sets levels in a transcript that was declared without noise."""
    execution = example_execution("inca", 5, 1, rounds=3, sigma_star=1.0, sigma_delta=2.0)
    silent = replace(execution, protocol=execution.protocol.with_noise(0.0, 0.0))
    told = silent.transcript().with_noise_scales({"star": 1.0, "delta": 2.0})
    first, second = execution.transcript().eliminated(), told.eliminated()
    np.testing.assert_array_equal(first[1], second[1])
    assert isinstance(silent, Execution)


# -- Long vectors are dealt, added, opened and looked at in pieces: to the bit the same as at once, and in less memory.
PIECE_PARTIES = 5


def protocol(dimension: int, prime: int = LARGE_PRIME, region: str = ANY, secrets: int = 3) -> PackedSharing:
    document: dict[str, Any] = {
        "members": PIECE_PARTIES,
        "colluding": 1,
        "colluding_members": 1,
        "secrets": secrets,
        "minimum": 3,
        "lies": 0,
        "gone": 0,
    }
    document |= {"ballots": 3, "prime": prime, "step": 2.0**-6, "sigma": 0.5, "domain": region, "clip": 1.0}
    return PackedSharing.read(document | {"dimension": dimension}).resolved(PIECE_PARTIES)


def machines(its: PackedSharing, *, secure: bool = True) -> list[Any]:
    schedule, insecure = (
        its.draw_schedule(PIECE_PARTIES, Seed.public("pieces")),
        InsecurePopulationNoise(4, PIECE_PARTIES),
    )
    values = np.random.default_rng(3).uniform(-0.2, 0.2, (PIECE_PARTIES, its.dimension))
    sources = [SecureNoise(Seed.public("noise", party)) if secure else insecure.party(party) for party in range(PIECE_PARTIES)]
    return [its.machine(schedule, party, values[party], 1.0, sources[party]) for party in range(PIECE_PARTIES)]


def everything_said(its: PackedSharing, *, secure: bool = True) -> list[bytes]:
    """All contents of messages, and the releases."""
    said: list[bytes] = []
    trace = ExecutionTrace.everyone(its.rounds, PIECE_PARTIES)
    ended = run_lockstep(
        machines(its, secure=secure),
        trace,
        lambda *given: True,
        lambda message, _: said.append(bytes(message.content)),
        refusing=True,
    )
    assert len(ended.releases) == PIECE_PARTIES
    return said + [release.vector.tobytes() for _, release in sorted(ended.releases.items())]


# Of T = 4 sums of 5 one more checks them, which are all combined; of T = 5 none.
@pytest.mark.parametrize(("prime", "region", "secrets", "secure"), [
    (LARGE_PRIME, ANY, 3, True), (SMALL_PRIME, ANY, 3, True), (LARGE_PRIME, BALL, 3, True), (SMALL_PRIME, ANY, 4, False),
])  # fmt: skip
def test_a_study_says_the_same_in_pieces(
    prime: int, region: str, secrets: int, secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last polynomial is not full, and no piece ends with a row of numbers.
    its = protocol(31, prime, region, secrets)
    whole = everything_said(its, secure=secure)
    monkeypatch.setattr(arrays, "PIECE", 4)
    assert everything_said(its, secure=secure) == whole


def test_dealing_takes_the_memory_of_residues_and_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "PIECE", 2**12)
    # What is computed at once, half a megabyte, hardly counts.
    size = 480_000
    (machine, *_) = machines(protocol(size, secrets=4))
    machine.start()
    tracemalloc.start()
    step = machine.start()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Four of five shares, of a byte a coordinate each; and four of residues while they are made.
    assert kept < 4.5 * size
    assert peak < 10 * size, peak / size
    machine.forget_value()
    assert step.state.round == 1


def test_noise_is_drawn_on_where_it_stopped() -> None:
    for scale in (2.0, 5e5):
        stream = LayeredStream(Seed.public("stream"), scale)
        drawn = np.concatenate([stream.next(size) for size in (9000, 1, 0, 5999)])
        assert drawn.tolist() == layered_gaussian(Seed.public("stream"), scale, 15_000).tolist()


def test_each_coordinate_is_held_against_its_own_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "PIECE", 3)
    domain = InputDomain((Box(size=7, low=-1.0, high=2.0), Simplex(size=4, scale=0.5), Ball(size=5, radius=3.0, centre=1.0)))
    low, high = domain.coordinate_bounds
    units, room = 10.0, 0.25
    # As far as it may be, and a little further, one coordinate after the other.
    far = units * (high - low) / 2 * (1 + ROUNDING) + room
    edge = units * (low + high) / 2 + far * (1 - 1e-12)
    assert within_bounds(domain, units, edge, 1.0, room)
    for place in range(domain.size):
        beyond = edge.copy()
        beyond[place] += 1e-6
        assert not within_bounds(domain, units, beyond, 1.0, room)
        beyond[place] = np.nan
        assert not within_bounds(domain, units, beyond, 1.0, room)
        assert not arrays.all_finite(beyond)
    assert arrays.all_finite(edge)


def test_a_long_vector_is_as_long_as_its_pieces_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(1).normal(size=(3, 50)) * np.array([[1e-3], [1e200], [1.0]])
    whole = shortened(rows, 2.0)
    monkeypatch.setattr(arrays, "PIECE", 7)
    np.testing.assert_allclose(shortened(rows, 2.0), whole, rtol=1e-14)
    assert np.linalg.norm(shortened(rows, 2.0), axis=1).max() <= 1.0
