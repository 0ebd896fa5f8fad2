"""Distributions of noise, quantisers and schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import kstest

from quietmean.core.party import Vector
from quietmean.graphs import churn, make_schedule
from quietmean.protocols.consensus.quantiser import dither, most_bytes, pack, packed_size, quantise, reconstruct, unpack
from quietmean.protocols.consensus.spec import Quantisation
from quietmean.randomness import BitStream, SecureNoise
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean.testing import (
    assert_mean,
    assert_rate,
    assert_standard_normal,
    assert_uncorrelated,
    assert_uniform_counts,
    assert_variance,
)

# -- The sampler's distribution. Each assertion fails on a correct sampler with probability 1e-6; seeds are fixed.
SIZE = 1_000_000
Samples = NDArray[np.float64]


def sample(number: int, size: int = SIZE) -> Samples:
    return BitStream(insecure_seed(number, "distribution")).standard_normal(size)


def assert_standard_normal_moments(values: Samples) -> None:
    assert_standard_normal(values)
    assert_mean(values, 0.0, 1.0)
    assert_variance(values, 1.0)


def test_values_are_standard_normal() -> None:
    """Kolmogorov-Smirnov, mean and variance, a million values: error rate 3e-6."""
    assert_standard_normal_moments(sample(1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "wrong",
    [lambda z: z * 1.01, lambda z: z + 0.01, lambda z: np.clip(z, -2.5, 2.5), lambda z: np.round(z, 1), np.abs],
    ids=["scaled", "shifted", "clipped", "rounded", "folded"],
)
def test_wrong_samplers_are_rejected(wrong: Callable[[Samples], Samples]) -> None:
    with pytest.raises(AssertionError):
        assert_standard_normal_moments(wrong(sample(1)))


@pytest.mark.parametrize("threshold", [2.0, 3.0, 4.0, 4.5])
def test_tails_have_their_counts(threshold: float) -> None:
    """Exact binomial tests of both tails, four million values: error rate 2e-6."""
    values = sample(2, 4 * SIZE)
    tail = float(ndtr(-threshold))
    for side in (values, -values):
        assert_rate(int((side > threshold).sum()), values.size, tail)
        with pytest.raises(AssertionError):
            assert_rate(int((side * 1.05 > threshold).sum()), values.size, tail)


@pytest.mark.parametrize(
    ("first", "second"),
    [(("star", 0), ("star", 1)), (("star", 0), ("delta", 0)), (("delta", 1), ("delta", 2)), (("a", 11), ("a1", 1))],
)
def test_differently_labelled_streams_are_uncorrelated(first: tuple[str, int], second: tuple[str, int]) -> None:
    """Pearson's test, 100 000 values: error rate 2e-6."""
    noise, other = SecureNoise(insecure_seed(3)), SecureNoise(insecure_seed(4))
    values = noise.normal(*first, 100_000)
    assert_uncorrelated(values, noise.normal(*second, 100_000))
    assert_uncorrelated(values, other.normal(*first, 100_000))
    with pytest.raises(AssertionError):
        assert_uncorrelated(values, noise.normal(*second, 100_000) + 0.03 * values)


def test_parties_of_a_population_are_uncorrelated() -> None:
    """Pearson's test of neighbouring rows: error rate 3e-6."""
    block = InsecurePopulationNoise(6, 4).normal("star", 0, 100_000)
    for row in range(3):
        assert_uncorrelated(block[row], block[row + 1])


def test_integers_are_uniform() -> None:
    """Chi-square over 97 values: error rate 1e-6; leaving one value out is rejected."""
    drawn = BitStream(insecure_seed(5)).integers(97, 100_000)
    assert_uniform_counts(np.bincount(drawn, minlength=97))
    with pytest.raises(AssertionError):
        assert_uniform_counts(np.bincount(drawn[drawn != 13], minlength=97))
    with pytest.raises(AssertionError, match="too few draws"):
        assert_uniform_counts(np.array([1, 2]))


def test_first_and_last_places_of_permutations_are_uniform() -> None:
    """Chi-square over (first, last) pairs of 20 000 permutations of 6: error rate 1e-6."""
    stream = BitStream(insecure_seed(7))
    ends = np.array([(drawn[0], drawn[-1]) for drawn in (stream.permutation(6) for _ in range(20_000))])
    counts = np.bincount(6 * ends[:, 0] + ends[:, 1], minlength=36).reshape(6, 6)
    assert (np.diag(counts) == 0).all()
    assert_uniform_counts(counts[~np.eye(6, dtype=bool)])


# -- The quantiser's error is uniform on a cell and independent of its input, without overload and only with the dither.
SAMPLES = 100_000
SIGNIFICANCE = 1e-6


def inputs(settings: Quantisation, share: float = 1.0) -> Vector:
    """All over what the quantiser takes, on a lattice of a third of a cell: without dither errors would be far from uniform."""
    largest = share * settings.largest_input
    drawn = BitStream(insecure_seed(1, "inputs")).uniform(SAMPLES) * 2 * largest - largest
    return np.clip(np.round(drawn * 3) / 3, -largest, largest) * settings.width(1)


def errors(settings: Quantisation, values: Vector, shift: Vector) -> Vector:
    indices, _ = quantise(settings, 1, values, shift)
    relative: Vector = (reconstruct(settings, 1, indices, shift) - values) / settings.width(1)
    return relative


@pytest.mark.parametrize("bits", [1, 2, 3, 8])
def test_the_error_is_uniform_and_uncorrelated(bits: int) -> None:
    settings = Quantisation(bits, 1.0, 0.37)
    values, shift = inputs(settings), dither(settings, 1, 5, 1, SAMPLES)[0]
    made = errors(settings, values, shift)
    assert kstest(made + 0.5, "uniform").pvalue > SIGNIFICANCE
    # 5 standard errors.
    assert abs(np.corrcoef(made, values)[0, 1]) < 5 / np.sqrt(SAMPLES)
    assert abs(np.corrcoef(made**2, values)[0, 1]) < 5 / np.sqrt(SAMPLES)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_all_levels_occur_and_no_others(bits: int) -> None:
    settings = Quantisation(bits, 1.0, 1.0)
    indices, overloads = quantise(settings, 1, inputs(settings), dither(settings, 1, 0, 1, SAMPLES)[0])
    assert np.unique(indices).tolist() == list(range(2**bits))
    assert not overloads.any()
    beyond = np.full(3, settings.largest_input * 1.001)
    assert quantise(settings, 1, beyond, np.zeros(3))[1].all()


def test_without_dither_or_with_overload_it_is_not() -> None:
    settings = Quantisation(3, 1.0, 0.37)
    assert kstest(errors(settings, inputs(settings), np.zeros(SAMPLES)) + 0.5, "uniform").pvalue < SIGNIFICANCE
    shift = dither(settings, 1, 5, 1, SAMPLES)[0]
    assert kstest(errors(settings, inputs(settings, 1.3), shift) + 0.5, "uniform").pvalue < SIGNIFICANCE


def test_every_link_and_iteration_has_dither_of_its_own() -> None:
    settings = Quantisation(2, 0.9, 1.0)
    block = dither(settings, 3, 0, 4, 101)
    np.testing.assert_array_equal(block[2], dither(settings, 3, 2, 1, 101)[0])
    others = [dither(settings, 4, 2, 1, 101)[0], block[1], dither(Quantisation(2, 0.9, 1.0, dither_seed=1), 3, 2, 1, 101)[0]]
    assert all(abs(np.corrcoef(block[2], other)[0, 1]) < 0.5 for other in others)
    assert -0.5 <= block.min() < -0.45
    assert 0.45 < block.max() < 0.5


@given(st.integers(1, 16), st.integers(1, 40), st.integers(0, 2**32))
def test_indices_are_packed_without_waste(bits: int, dimension: int, seed: int) -> None:
    indices = BitStream(insecure_seed(seed, "indices")).integers(2**bits, dimension)
    settings = Quantisation(bits, 1.0, 1.0)
    content = pack(settings, indices)
    assert len(content) == packed_size(settings, dimension) == most_bytes(settings, dimension) == -(-bits * dimension // 8)
    unpacked = unpack(settings, content, dimension)
    assert unpacked is not None
    np.testing.assert_array_equal(unpacked, indices)
    for other in (content + b"\0", content + bytes(12), content[:-1]):
        assert unpack(settings, other, dimension) is None


@given(st.integers(1, 16), st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_what_does_not_fit_follows_in_one_form(bits: int, drawn: list[int], random: Random) -> None:
    """What it says is read again, and what says nothing, or the same in another way, is not read."""
    settings, indices = Quantisation(bits, 1.0, 1.0, send_overloads=True), np.array(drawn)
    content, beyond = pack(settings, indices), sum(not 0 <= index < 2**bits for index in drawn)
    # Its size says nothing of a few.
    assert len(content) == packed_size(settings, len(drawn)) + 12 * max(0, beyond - 4) <= most_bytes(settings, len(drawn))
    unpacked = unpack(settings, content, len(drawn))
    assert unpacked is not None
    np.testing.assert_array_equal(unpacked, indices)
    assert beyond == 0 or unpack(replace(settings, send_overloads=False), content, len(drawn)) is None
    other = bytearray(content)
    other[random.randrange(len(other))] ^= 1 << random.randrange(8)
    again = unpack(settings, bytes(other), len(drawn))
    assert again is None or pack(settings, again) == bytes(other)
    for longer in (content + bytes(12), content + content[-12:], content + bytes(5)):
        assert unpack(settings, longer, len(drawn)) is None


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_where_overloads_are_sent_the_error_is_uniform_whatever_the_input(bits: int) -> None:
    settings = Quantisation(bits, 1.0, 0.37, send_overloads=True)
    for share in (1.3, 1e3, 1e7):
        values, shift = inputs(settings, share), dither(settings, 1, 5, 1, SAMPLES)[0]
        assert not quantise(settings, 1, values, shift)[1].any()
        assert kstest(errors(settings, values, shift) + 0.5, "uniform").pvalue > SIGNIFICANCE


# -- Schedules and churn are as random as they say. Each assertion fails on a correct implementation with probability 1e-6.
PARTIES = 7


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["uniform", "permutation"])
@pytest.mark.parametrize("out_degree", [1, 3])
def test_neighbours_are_uniform(kind: str, out_degree: int) -> None:
    """Chi-square over the others of each party, for each slot, 10 000 rounds: error rate 2.1e-5."""
    schedule = make_schedule(kind, insecure_seed(1), PARTIES, 10_000, out_degree)
    for party in range(PARTIES):
        for slot in range(out_degree):
            counts = np.bincount(schedule.neighbours[:, party, slot], minlength=PARTIES)
            assert_uniform_counts(np.delete(counts, party))


def test_neighbour_sets_are_uniform() -> None:
    """Chi-square over the 15 pairs of others, 10 000 rounds: error rate 1e-6; a biased choice of pairs is rejected."""
    table = np.sort(make_schedule("uniform", insecure_seed(2), PARTIES, 10_000, 2).neighbours[:, 0, :], axis=1)
    counts = np.unique(table, axis=0, return_counts=True)[1]
    assert counts.size == 15
    assert_uniform_counts(counts)
    biased = table[(table[:, 0] != 1) | (np.arange(len(table)) % 4 > 0)]
    with pytest.raises(AssertionError):
        assert_uniform_counts(np.unique(biased, axis=0, return_counts=True)[1])


@pytest.mark.parametrize("kind", ["circulant", "never-same"])
def test_first_neighbours_over_seeds_are_uniform(kind: str) -> None:
    """Chi-square over the others of party 2, 3000 seeds, first and last round: error rate 2e-6."""
    drawn = [make_schedule(kind, insecure_seed(number), PARTIES, 3, 1).neighbours[[0, 2], 2, 0] for number in range(3000)]
    for column in np.array(drawn).T:
        assert_uniform_counts(np.delete(np.bincount(column, minlength=PARTIES), 2))


def test_churn_rates() -> None:
    """Binomial test of temporary absence, chi-square of the round of leaving: error rate 2e-6; a rate 5 % off is rejected."""
    rounds, parties = 11, 10_000
    away = int((~churn(insecure_seed(3), rounds, parties, temporary=0.3).online[1:-1]).sum())
    assert_rate(away, (rounds - 1) * parties, 0.3)
    with pytest.raises(AssertionError):
        assert_rate(away, (rounds - 1) * parties, 0.3 * 0.95)
    gone = churn(insecure_seed(4), rounds, parties, permanent=0.5).online
    last = gone.sum(axis=0)[~gone[-1]]
    assert_uniform_counts(np.bincount(last, minlength=rounds + 1)[1:])
