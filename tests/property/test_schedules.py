"""Schedules, labels of randomness, and who is counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quietmean.graphs import SCHEDULES, ExecutionTrace, Schedule, arrivals, churn, make_schedule, share_flow
from quietmean.graphs.schedule import NOBODY
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import insecure_seed
from quietmean.testing.strategies import IRREGULAR, schedules, traces
from support.effort import examples

# -- What every schedule of a kind promises.
NUMBERS = st.integers(0, 2**32 - 1)


def make(kind: str, number: int, parties: int, rounds: int, out_degree: int) -> Schedule:
    assume(out_degree < parties)
    assume(kind != "never-same" or rounds * out_degree < parties)
    return make_schedule(kind, insecure_seed(number), parties, rounds, out_degree)


@pytest.mark.parametrize("kind", [kind for kind in SCHEDULES if kind not in ("hypercube", "complete")])
@given(number=NUMBERS, parties=st.integers(2, 30), rounds=st.integers(1, 12), out_degree=st.integers(1, 5))
def test_neighbours_are_k_distinct_others(kind: str, number: int, parties: int, rounds: int, out_degree: int) -> None:
    schedule = make(kind, number, parties, rounds, out_degree)
    assert schedule.neighbours.shape == (rounds, parties, out_degree)
    for t in range(rounds):
        for i, row in enumerate(schedule.neighbours[t]):
            assert len(set(row.tolist()) - {i, NOBODY}) == out_degree
            assert ((row >= 0) & (row < parties)).all()


@pytest.mark.parametrize("kind", ["permutation", "circulant", "ring", "random-static"])
@given(number=NUMBERS, parties=st.integers(2, 30), rounds=st.integers(1, 12), out_degree=st.integers(1, 5))
def test_everybody_receives_exactly_k(kind: str, number: int, parties: int, rounds: int, out_degree: int) -> None:
    schedule = make(kind, number, parties, rounds, out_degree)
    for table in schedule.neighbours:
        assert (np.bincount(table.ravel(), minlength=parties) == out_degree).all()


@given(number=NUMBERS, parties=st.integers(2, 30), rounds=st.integers(1, 6))
def test_a_permutation_round_is_one_cycle(number: int, parties: int, rounds: int) -> None:
    for table in make("permutation", number, parties, rounds, 1).neighbours:
        party, visited = 0, set()
        while party not in visited:
            visited.add(party)
            party = int(table[party, 0])
        assert len(visited) == parties


@given(number=NUMBERS, parties=st.integers(2, 20), rounds=st.integers(1, 40), out_degree=st.integers(1, 5))
def test_circulant_uses_every_shift_before_any_again(number: int, parties: int, rounds: int, out_degree: int) -> None:
    schedule = make("circulant", number, parties, rounds, out_degree)
    # In a ring without repetition, party 0 meets all others before it meets anyone again; a round may straddle two passes.
    met = schedule.neighbours[:, 0, :].ravel().tolist()
    counts = np.bincount(met, minlength=parties)[1:]
    assert counts.max() - counts.min() <= 1
    for full in range(0, len(met) - parties + 2, parties - 1):
        counts = np.bincount(met[: full + parties - 1], minlength=parties)[1:]
        assert counts.max() == counts.min()
    # One shift per slot and round: relative to the ring everybody does the same.
    first = schedule.neighbours[0, :, 0]
    for table in schedule.neighbours:
        for column in table.T:
            np.testing.assert_array_equal(column[first], first[column])


@given(number=NUMBERS, parties=st.integers(2, 30), rounds=st.integers(1, 12), out_degree=st.integers(1, 4))
def test_never_same_never_repeats(number: int, parties: int, rounds: int, out_degree: int) -> None:
    schedule = make("never-same", number, parties, rounds, out_degree)
    for party in range(parties):
        met = schedule.neighbours[:, party, :].ravel().tolist()
        assert len(set(met)) == len(met)


@given(kind=st.sampled_from(SCHEDULES), number=NUMBERS)
def test_the_same_seed_gives_the_same_schedule_and_another_another(kind: str, number: int) -> None:
    seed = Seed.public("schedule", number)
    one, same = (make_schedule(kind, seed, 16, 5, 2) for _ in range(2))
    np.testing.assert_array_equal(one.neighbours, same.neighbours)
    other = make_schedule(kind, Seed.public("schedule", number + 1), 16, 5, 2)
    assert np.array_equal(one.neighbours, other.neighbours) == (kind in ("ring", "complete", "hypercube"))


@given(st.data(), st.sampled_from([*SCHEDULES, IRREGULAR]), st.integers(1, 6))
def test_mixing_conserves_mass_and_matches_deliveries(data: st.DataObject, kind: str, rounds: int) -> None:
    parties = 8
    schedule = data.draw(schedules(kind, parties, rounds))
    trace = data.draw(traces(schedule))
    delivered = trace.delivered(schedule)
    for round_ in range(1, rounds + 1):
        shares = share_flow(schedule, arrivals(schedule, delivered, round_), delivered, round_)
        mixing = shares.matrix.toarray() / (schedule.out_degree[round_ - 1] + 1)
        np.testing.assert_allclose(mixing.sum(axis=0), 1.0, rtol=1e-14)
        assert (mixing >= 0).all()
        for i in range(parties):
            slots = schedule.neighbours[round_ - 1, i]
            arrived = {int(j) for j in slots[delivered[round_ - 1, i]]}
            assert set(np.nonzero(mixing[:, i])[0].tolist()) - {i} == arrived
            assert not arrived or trace.online[round_, i]
            assert all(trace.online[round_, j] for j in arrived)


@given(NUMBERS, st.integers(1, 10), st.integers(1, 40), st.floats(0, 0.99), st.floats(0, 0.99))
def test_churn_counts(number: int, rounds: int, parties: int, permanent: float, temporary: float) -> None:
    trace = churn(insecure_seed(number), rounds, parties, permanent, temporary)
    assert trace.online.shape == (rounds + 1, parties)
    assert int((~trace.finished).sum()) == int(permanent * parties + 1e-9)
    assert isinstance(trace, ExecutionTrace)


# -- Labels and draws for all inputs.
LABELS = st.lists(st.one_of(st.text(max_size=4), st.integers(-300, 300), st.binary(max_size=4)), max_size=4).map(tuple)


@settings(max_examples=examples(500))
@given(LABELS, LABELS)
def test_different_labels_give_different_seeds(
    first: tuple[str | int | bytes, ...], second: tuple[str | int | bytes, ...]
) -> None:
    seed = Seed(bytes(32))
    assert (seed.derive(*first) == seed.derive(*second)) == (first == second)


@given(st.text("ab1", min_size=1, max_size=6), st.data())
def test_the_same_characters_cut_or_typed_differently_give_different_seeds(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text) - 1))
    seeds = [Seed.public(text), Seed.public(text[:cut], text[cut:]), Seed.public(text.encode()), Seed.public(text, "")]
    assert len({seed.secret for seed in seeds}) == len(seeds)
    assert Seed.public("1") != Seed.public(1) != Seed.public(b"1")


@given(st.integers(0, 2**20), st.integers(1, 10_000), st.integers(0, 200))
def test_draws_stay_in_their_range(number: int, below: int, count: int) -> None:
    integers = BitStream(insecure_seed(number)).integers(below, count)
    assert integers.shape == (count,)
    assert ((integers >= 0) & (integers < below)).all()
    uniform = BitStream(insecure_seed(number)).uniform(count)
    assert ((uniform >= 0) & (uniform < 1)).all()
    assert sorted(BitStream(insecure_seed(number)).permutation(count).tolist()) == list(range(count))


@given(st.lists(st.integers(0, 20), max_size=3).map(tuple))
def test_normal_values_fill_any_shape_in_order(shape: tuple[int, ...]) -> None:
    values = BitStream(insecure_seed(3)).standard_normal(shape)
    assert values.shape == shape
    np.testing.assert_array_equal(values.ravel(), BitStream(insecure_seed(3)).standard_normal(values.size))
