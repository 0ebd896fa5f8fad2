"""Values on a grid: no unit is lost or made, the batch kernel has the machines' integers, and rounding costs what is proven."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from quietmean.core.errors import ProtocolFailure
from quietmean.core.grid import (
    LARGEST_SHARE,
    Numbers,
    RoundedNumbers,
    divide,
    from_units,
    numbers_for,
    on_grid,
    rounded_numbers,
    to_units,
    whole_steps,
)
from quietmean.core.party import Message, NoiseGroup, PartyId, PopulationNoise, Units, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.protocols.discrete import NoiseNumbers
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.push_sum import PushSumParty, next_online
from quietmean.protocols.push_sum import parameters as parameters_module
from quietmean.protocols.push_sum.fixed_point import inverse_product, rounding_information, whole_shift, widened
from quietmean.protocols.push_sum.parameters import Terms
from quietmean.protocols.traits import grid_of
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureStackedNoise, insecure_seed
from quietmean.testing.strategies import PARAMETERS, executions
from quietmean.transcript import run_lockstep
from support.effort import examples
from support.faults import Crash, FaultPlan, check_run, run_with_faults
from support.network import NetworkConditions, Partition

# Shares of numbers around 1 fit into 32 bits on the first grid; on the second nearly all are cut.
ROOMY, CRAMPED = 2.0**-20, 2.0**-40
# For what must fail: one failure is enough, of whatever size.
WRONG = settings(deadline=None, database=None, report_multiple_bugs=False, phases=[Phase.generate])


def on_a_grid(draw: st.DrawFn, protocol: str, step: float, max_parties: int = 7) -> Execution:
    """Any execution with any schedule, dropouts, lost and settled messages."""

    def parameters(parties: int) -> st.SearchStrategy[dict[str, object]]:
        fields = {"noise": None, "value_bits": 32, "grid": step, "largest_value": 1e6}
        levels = {"sigma_star": 0.5, "sigma_delta": 2.0} if protocol == "inca" else {}
        return PARAMETERS[protocol](parties).map(lambda raw: {**raw, **fields, **levels})

    return draw(executions(protocol, parameters, max_parties))


@st.composite
def grid_executions(draw: st.DrawFn, protocol: str = "inca", step: float | None = None, max_parties: int = 7) -> Execution:
    return on_a_grid(draw, protocol, step or draw(st.sampled_from([ROOMY, CRAMPED])), max_parties)


def arrivals(execution: Execution) -> Callable[[int, PartyId, PartyId], bool]:
    delivered, neighbours = execution.trace.delivered(execution.schedule), execution.schedule.neighbours
    return lambda t, sender, to: bool((delivered[t - 1, sender] & (neighbours[t - 1, sender] == to)).any())


def values_for(execution: Execution, dimension: int = 2) -> Vector:
    values: Vector = np.cos(np.arange(float(execution.parties * dimension))).reshape(execution.parties, dimension)
    return values


def held_units(execution: Execution, noise: PopulationNoise, record: Callable[[Message], None] = lambda message: None) -> Units:
    """What each party holds at the end, in steps, shape (n, d); those that left included."""
    values, step = values_for(execution), grid_of(execution.protocol)
    machines = [execution.machine(party, values[party], noise.party(party)) for party in range(execution.parties)]
    result = run_lockstep(machines, execution.trace, arrivals(execution), lambda message, reached: record(message))
    for party, release in result.releases.items():
        np.testing.assert_array_equal(release.vector, getattr(result.states[party], "held"))  # noqa: B009
    held = np.array([getattr(state, "held") for state in result.states])  # noqa: B009
    assert on_grid(held, step)
    return to_units(held, step)


def check_mass(execution: Execution, seed: int, largest: int = LARGEST_SHARE) -> None:
    """All that is held at the end is all that was injected, to the unit, plus shares that were never settled."""
    sent: dict[tuple[int, PartyId], Units] = {}

    def record(message: Message) -> None:
        sent[message.round, message.sender] = to_units(message.vector, grid_of(execution.protocol))

    held = held_units(execution, InsecurePopulationNoise(seed, execution.parties), record)
    nothing_arrives = ExecutionTrace(execution.trace.online, np.ones(execution.schedule.neighbours.shape, dtype=np.bool_))
    injected = held_units(execution.with_trace(nothing_arrives), InsecurePopulationNoise(seed, execution.parties))
    twice = [sent[t, sender] for t, sender, _, later in execution.trace.settled.tolist() if not later]
    np.testing.assert_array_equal(held.sum(axis=0), injected.sum(axis=0) + np.array(twice, dtype=np.int64).sum(axis=0))
    assert all(np.abs(units).max() <= largest for units in sent.values())


@settings(max_examples=examples(150), deadline=None)
@given(grid_executions(), st.integers(0, 2**16))
def test_no_unit_is_lost_or_made(execution: Execution, seed: int) -> None:
    check_mass(execution, seed)


@st.composite
def whole_executions(draw: st.DrawFn, step: float = ROOMY, max_parties: int = 7) -> Execution:
    """With discrete noise, on a grid where no share is cut however many bits it takes."""
    execution = on_a_grid(draw, "inca", step, max_parties)
    inca = inca_of(execution)
    injection = inca.injection if isinstance(inca.injection, str) else "early"
    whole = replace(inca, noise=NoiseNumbers.DISCRETE, value_bits=64, largest_value=0.0, dimension=2, injection=injection)
    return replace(execution, protocol=whole)


@settings(max_examples=examples(80), deadline=None)
@given(whole_executions(), st.integers(0, 2**16), st.booleans())
def test_whole_numbers_lose_no_unit_and_the_batch_kernel_has_them(execution: Execution, seed: int, stacked: bool) -> None:
    check_mass(execution, seed, largest=2**53)
    noise = (InsecureStackedNoise if stacked else InsecurePopulationNoise)(seed, execution.parties)
    values = values_for(execution)
    machines, batch = execution.run(values, noise), execution.run_batch(values, noise)
    for party, release in machines.releases.items():
        np.testing.assert_array_equal(release.vector, batch.vector[party])


@settings(max_examples=examples(40), deadline=None)
@given(whole_executions(), st.integers(0, 2**16))
def test_without_losses_the_total_is_that_of_values_and_noise(execution: Execution, seed: int) -> None:
    """All that is cancelled is cancelled to the unit: what stays is the value and eta_star, each once."""
    trace = ExecutionTrace.everyone(execution.schedule.rounds, execution.parties)
    inca, values = inca_of(execution), values_for(execution)
    noise = InsecurePopulationNoise(seed, execution.parties)
    total = execution.with_trace(trace).run_batch(values, noise).vector.sum(axis=0)
    numbers = inca.numbers()
    star = [
        numbers.noise(noise.party(party), NoiseGroup.INDEPENDENT, 0, inca.sigma_star, 2) for party in range(execution.parties)
    ]
    np.testing.assert_array_equal(total, (numbers.value(values) + np.array(star)).sum(axis=0))


@settings(max_examples=examples(40), deadline=None)
@given(grid_executions("gossip"), st.integers(0, 2**16))
def test_gossip_loses_no_unit(execution: Execution, seed: int) -> None:
    check_mass(execution, seed)


class _KeptInFloats(RoundedNumbers):
    """Wrong: what is kept does not follow from what was sent."""

    def kept(self, held: Vector, parts: int, delivered: int) -> Vector:
        return whole_steps(held * (1.0 - delivered / parts), ROOMY)


def test_a_split_that_keeps_a_rounded_fraction_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters_module, "rounded_numbers", _KeptInFloats)

    @settings(WRONG, max_examples=150)
    @given(grid_executions(step=ROOMY), st.integers(0, 2**16))
    def conserves(execution: Execution, seed: int) -> None:
        check_mass(execution, seed)

    with pytest.raises(AssertionError):
        conserves()


UNITS = arrays.arrays(np.int64, 3, elements=st.integers(-(2**52), 2**52))


@settings(max_examples=examples(500))
@given(UNITS, st.integers(1, 9), st.integers(0, 8), st.sampled_from([ROOMY, 1.0, 2.0**30]))
def test_a_split_is_exact(units: Units, parts: int, delivered: int, step: float) -> None:
    """Also where shares are cut: sent and kept are all that was held."""
    numbers: Numbers = RoundedNumbers(step)
    delivered = min(delivered, parts - 1)
    held = from_units(units, step)
    share, kept = to_units(numbers.share(held, parts), step), to_units(numbers.kept(held, parts, delivered), step)
    np.testing.assert_array_equal(delivered * share + kept, units)
    small = np.abs(units) <= LARGEST_SHARE
    assert (np.abs(share * parts - units)[small] <= parts / 2).all()
    assert (np.abs(share) <= LARGEST_SHARE).all()


@given(st.integers(-(2**31), 2**31), st.integers(1, 9), st.integers(-1000, 1000))
def test_division_commutes_with_shifts_by_the_divisor(units: int, parts: int, shift: int) -> None:
    """What the privacy bound rests on. Rounding halves to even does not have it."""
    divided = [int(divide(np.array([number]), parts)[0]) for number in (units, units + shift * parts)]
    if max(map(abs, divided)) < LARGEST_SHARE:
        assert divided[1] - divided[0] == shift
    assert np.rint(1 / 2) + 1 != np.rint((1 + 2) / 2)


@settings(max_examples=examples(150), deadline=None)
@given(grid_executions(), st.integers(0, 2**16), st.booleans())
def test_the_batch_kernel_has_the_machines_integers(execution: Execution, seed: int, stacked: bool) -> None:
    noise = (InsecureStackedNoise if stacked else InsecurePopulationNoise)(seed, execution.parties)
    values = values_for(execution)
    machines, batch = execution.run(values, noise), execution.run_batch(values, noise)
    assert sorted(machines.releases) == np.nonzero(batch.by)[0].tolist()
    for party, release in machines.releases.items():
        np.testing.assert_array_equal(release.vector, batch.vector[party])


# --- against float64 ------------------------------------------------------------------------------------------------------------


def inca_of(execution: Execution) -> IncA:
    """The protocol, which has the grid and the noise levels."""
    assert isinstance(execution.protocol, IncA)
    return execution.protocol


def plain(rounds: int, out_degree: int, step: float, parties: int = 8, schedule: str = "permutation") -> Execution:
    """Without faults, on a grid, or with a step of 0 in float64."""
    raw = {"rounds": rounds, "sigma_star": 1.0, "sigma_delta": 3.0, "out_degree": out_degree, "schedule": schedule}
    fields = {"value_bits": 32, "grid": step, "largest_value": 100.0} if step else {}
    protocol = IncA.read(raw | fields).resolved(parties)
    drawn = protocol.draw_schedule(parties, insecure_seed(rounds))
    return Execution(protocol, drawn, ExecutionTrace.everyone(rounds, parties), 1.0, np.ones(parties))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**16), st.sampled_from([2.0**-26, 2.0**-20, 2.0**-8, 1.0]))
def test_all_numbers_stay_within_the_stated_bound_of_float64(rounds: int, out_degree: int, seed: int, step: float) -> None:
    """(T + 1) / 2 + k T steps where everybody receives as much as it sends; the mean within (T + 1) / 2."""
    exact, rounding = plain(rounds, out_degree, 0.0), plain(rounds, out_degree, step)
    noise, values = InsecurePopulationNoise(seed, 8), values_for(exact)
    one, other = exact.run_batch(values, noise), rounding.run_batch(values, noise)
    slack = 1e-12 * 100
    assert np.abs(one.vector - other.vector).max() <= ((rounds + 1) / 2 + out_degree * rounds) * step + slack
    assert np.abs(one.estimate() - other.estimate()).max() <= (rounds + 1) / 2 * step + slack


def test_rounding_adds_the_stated_variance() -> None:
    """(T + 1) g^2 / 12 for each party in the total. 4000 independent totals: 6 standard errors, wrong in 1 of 5e8 runs."""
    rounds, step, parties, dimension = 9, 2.0**-3, 8, 4000
    values, noise = np.zeros((parties, dimension)), InsecurePopulationNoise(5, parties)
    totals = [plain(rounds, 1, grid).run_batch(values, noise).vector.sum(axis=0) for grid in (0.0, step)]
    found = np.mean((totals[1] - totals[0]) ** 2)
    wanted = parties * (rounds + 1) * step**2 / 12
    tolerance = 6 * np.sqrt(2 / dimension)
    assert abs(found / wanted - 1) < tolerance
    # What rounding once a party instead of once an injection would give is told apart.
    assert abs(found / (parties * step**2 / 12) - 1) > tolerance


def test_numbers_that_a_grid_cannot_hold_are_a_failure() -> None:
    numbers = RoundedNumbers(1.0)
    for bad in (np.nan, np.inf, 0.5, 2.0**53, -(2.0**53)):
        with pytest.raises(ProtocolFailure, match="off the grid of 1 or beyond"):
            numbers.total([np.zeros(1), np.array([bad])])
    with pytest.raises(ProtocolFailure, match="off the grid"):
        numbers.total([np.array([2.0**52]), np.array([2.0**52])])
    with pytest.raises(ProtocolFailure, match="off the grid"):
        numbers.injected(np.array([1e300]))
    assert numbers_for(np.zeros(1), rounded_numbers(1.0)).step == 1.0
    assert numbers_for(np.zeros(1), rounded_numbers(0.0)).step == 0.0
    assert numbers_for(object(), rounded_numbers(1.0)).step == 0.0


# --- between sessions of the node -----------------------------------------------------------------------------------------------


def test_sessions_agree_to_the_step_through_faults(tmp_path: Path) -> None:
    """Losses, doubled and late messages, a partition, a crash: the total of all that is held is that of the machines, exactly."""
    target = Target(parties=4, epsilon=1.0, delta=1e-6, dimension=2, colluding=1)
    asked = IncA(rounds=4, sigma_star=1.0, sigma_delta=3.0, value_bits=32)
    plan = Plan(target, asked.TRAITS.planning.finalised(asked, target))
    # Inside the plan's domain, from 0 to 0.7.
    values = 0.35 + 0.3 * np.cos(np.arange(8.0)).reshape(4, 2)
    split = [Partition(frozenset({1}), 0.5, 6.0)]
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        outcome = run_with_faults(
            plan, values, FaultPlan(NetworkConditions(seed, 0.3, 0.1, 0.1, 0.1, split), {2: [Crash(8)]}), folder
        )
        check_run(plan, values, outcome)
        assert outcome.results
        assert all(on_grid(result.total_vector, plan.grid) for result in outcome.results.values())


# --- privacy --------------------------------------------------------------------------------------------------------------------


class _Injecting(PushSumParty):
    """A party that injects given numbers of steps, turn by turn."""

    steps: Iterator[Vector]

    def _injection(self, portion: float, terms: Terms) -> Vector:
        return next(self.steps)


def sent_units(
    execution: Execution, injected: dict[tuple[int, PartyId], int]
) -> tuple[dict[tuple[int, PartyId], int], list[int]]:
    """All shares that were sent, by (round, sender), and what was released, in steps, under given injections (round, party)."""
    step, noise = grid_of(execution.protocol), InsecurePopulationNoise(0, execution.parties)
    machines = []
    for party in range(execution.parties):
        machine = _Injecting(inca_of(execution), execution.schedule, party, np.zeros(1), 1.0, noise.party(party))
        turns = [injected[t, party] for t in range(execution.schedule.rounds + 1) if execution.trace.online[t, party]]
        machine.steps = iter([from_units(np.array([turn]), step) for turn in turns])
        machines.append(machine)
    sent: dict[tuple[int, PartyId], int] = {}

    def record(message: Message, reached: frozenset[PartyId]) -> None:
        sent[message.round, message.sender] = int(to_units(message.vector, step)[0])

    result = run_lockstep(machines, execution.trace, arrivals(execution), record)
    return sent, [int(to_units(release.vector, step)[0]) for _, release in sorted(result.releases.items())]


def injections_for(execution: Execution, held: dict[tuple[int, PartyId], int]) -> dict[tuple[int, PartyId], int]:
    """By how many steps injections must change for what is held after each round to change by ``held``, exactly."""
    trace, schedule = execution.trace, execution.schedule
    delivered, acknowledged = trace.deliveries(schedule)
    slots = trace.settled_slots(schedule)
    current, changed = [0] * execution.parties, {}
    shares: dict[tuple[int, PartyId], int] = {}
    for t in range(schedule.rounds + 1):
        before = list(current)
        for party in np.nonzero(trace.online[t])[0].tolist():
            came = 0
            if t:
                shares[t, party] = before[party] // (int(schedule.out_degree[t - 1, party]) + 1)
                came = before[party] - int(acknowledged[t - 1, party].sum()) * shares[t, party]
            came -= sum(shares[early, holder] for early, holder, _, later in slots if (holder, later) == (party, t))
            for sender, _ in np.argwhere(delivered[t - 1] & (schedule.neighbours[t - 1] == party)).tolist() if t else ():
                came += before[sender] // (int(schedule.out_degree[t - 1, sender]) + 1)
            changed[t, party], current[party] = held[t, party] - came, held[t, party]
    return changed


def splittable(execution: Execution, stream: BitStream) -> dict[tuple[int, PartyId], int]:
    """Random changes of what is held that can be split without rounding; none of what is released."""
    upcoming, rounds = next_online(execution.trace), execution.schedule.rounds
    held = {}
    for t, party in np.argwhere(execution.trace.online).tolist():
        later = int(upcoming[t, party])
        parts = 1 if later > rounds else int(execution.schedule.out_degree[later - 1, party]) + 1
        held[t, party] = 0 if t == rounds else parts * int(stream.integers(2001, 1)[0] - 1000)
    return held


def check_shift(execution: Execution, seed: int) -> None:
    """Injections can be changed so that every share changes by just what was wanted, and releases do not change at all."""
    stream = BitStream(insecure_seed(seed, "shift"))
    held = splittable(execution, stream)
    changed = injections_for(execution, held)
    injected = {key: int(stream.integers(2**20, 1)[0]) - 2**19 for key in changed}
    before, released = sent_units(execution, injected)
    after, still = sent_units(execution, {key: injected[key] + changed[key] for key in changed})
    assert still == released
    for t, sender in before:
        last = max(early for early in range(t) if execution.trace.online[early, sender])
        parts = int(execution.schedule.out_degree[t - 1, sender]) + 1
        assert after[t, sender] - before[t, sender] == held[last, sender] // parts


@settings(max_examples=examples(60), deadline=None)
@given(whole_executions(), st.integers(0, 2**16))
def test_changes_that_split_evenly_pass_through_exactly_where_nothing_is_cut(execution: Execution, seed: int) -> None:
    check_shift(execution, seed)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 9), st.booleans(), st.booleans(), st.booleans(), st.data())
def test_whole_changes_of_noise_make_the_changes_of_injections(
    rounds: int, finishes: bool, early: bool, guard: bool, data: st.DataObject
) -> None:
    """Against the rows (c, Z) and the guard of the protocol itself: kernel and lift, by their norms."""
    count = data.draw(st.integers(1, rounds + 1 if finishes else rounds))
    kind = "early" if early else "incremental"
    fields: dict[str, Any] = {"sigma_star": 0.7, "sigma_delta": 1.9, "sigma_guard": 1.3 if guard else 0.0}
    inca = IncA(rounds=rounds, injection=kind, noise=NoiseNumbers.DISCRETE, grid=2.0**-20, dimension=1, **fields)
    shift = whole_shift(inca, count, finishes=finishes)
    assert shift.factor == (count if finishes and not early else 1)
    least = inverse_product(replace(inca, noise=None, grid=0.0), count, finishes=finishes)
    # No whole change is smaller than the least one.
    assert (np.linalg.eigvalsh(shift.product - least) >= -1e-9 * np.trace(shift.product)).all()
    star, delta, hidden = (1.0 / level**2 if level else 0.0 for level in fields.values())
    portions = inca.portions**2
    guarded = hidden * portions
    if not finishes:
        made = delta * (1.0 if early else sum(t * t for t in range(1, count + 1)))
        left = portions * star + made + (2.0 * delta * (rounds - count) if early else 0.0)
        assert shift.kernel == pytest.approx(left + (guarded + made if guard else 0.0))
        if early and delta < star:
            # Never more than (1 on eta_star, -1 on Delta_j) for each term that was not taken out.
            assert left <= (rounds - count + 1) * (star + delta) * (1 + 1e-12)
    elif count == rounds + 1 and not guard:
        assert shift.kernel == 0.0


@settings(max_examples=examples(100), deadline=None)
@given(grid_executions(step=ROOMY), st.integers(0, 2**16))
def test_changes_that_split_evenly_pass_through_exactly(execution: Execution, seed: int) -> None:
    """The step of the proof in quietmean.protocols.push_sum.fixed_point that is about this code."""
    check_shift(execution, seed)


def test_rounding_halves_to_even_would_void_the_privacy_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from quietmean.core import grid

    def to_even(units: Units, parts: int, largest: int | None = None) -> Units:
        return np.rint(units / parts).astype(np.int64)

    monkeypatch.setattr(grid, "divide", to_even)

    @settings(WRONG, max_examples=100)
    @given(grid_executions(step=ROOMY), st.integers(0, 2**16))
    def passes_through(execution: Execution, seed: int) -> None:
        check_shift(execution, seed)

    with pytest.raises(AssertionError):
        passes_through()


def information_by_transcript(execution: Execution) -> float:
    """b^2 from the declared transcript: the least noise for a change of each unseen share by a random half step either way."""
    transcript = execution.transcript()
    parties = execution.parties
    defining = np.eye(transcript.dependence.shape[0]) - transcript.dependence.toarray()
    noise = transcript.noise.toarray() * transcript.noise_scale
    # The first rows say what the noisy values are: put them in.
    noise = noise[parties:] - defining[parties:, :parties] @ noise[:parties]
    free = [row for row in range(parties, len(defining)) if not transcript.released[row]]
    wanted = defining[parties:, free]
    change = np.linalg.pinv(noise) @ wanted
    np.testing.assert_allclose(noise @ change, wanted, atol=1e-6)
    return float((change**2).sum() * grid_of(execution.protocol) ** 2 / 4)


@settings(max_examples=examples(80), deadline=None)
@given(grid_executions(step=ROOMY, max_parties=5))
def test_what_rounding_costs_equals_the_transcript_s_answer(execution: Execution) -> None:
    found = rounding_information(inca_of(execution), execution.schedule, execution.trace)
    np.testing.assert_allclose(found, information_by_transcript(execution), rtol=1e-6)


def test_what_rounding_costs_is_little_and_grows_as_the_square_of_the_step() -> None:
    fine, coarse = plain(14, 1, 2.0**-20, 20), plain(14, 1, 2.0**-10, 20)
    information = [rounding_information(inca_of(e), e.schedule, e.trace) for e in (fine, coarse)]
    assert information[1] / information[0] == pytest.approx(2.0**20)
    mu: NDArray[np.float64] = np.array([0.25])
    assert mu[0] < widened(mu, information[0], 1000)[0] < mu[0] * (1 + 1e-5)
    assert rounding_information(inca_of(plain(14, 1, 0.0, 20)), fine.schedule, fine.trace) == 0.0
    silent = replace(inca_of(fine), sigma_star=0.0)
    assert rounding_information(silent, fine.schedule, fine.trace) == np.inf
