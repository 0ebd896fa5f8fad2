"""The quantiser's error is uniform on a cell and independent of its input, without overload and only with the dither.

Kolmogorov-Smirnov tests at significance 1e-6 each; seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from quietmean.core.party import Vector
from quietmean.protocols.consensus.quantiser import dither, most_bytes, pack, packed_size, quantise, reconstruct, unpack
from quietmean.protocols.consensus.spec import Quantisation
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed

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
