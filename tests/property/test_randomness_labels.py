"""Labels and draws for all inputs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import insecure_seed
from support.effort import examples

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
