"""The parts of secure aggregation one by one: sharing, sealing, contents, encoding."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.stats import chi2

from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.protocols.discrete import conditional_norm, round_at_random, round_conditionally, rounded_norm
from quietmean.protocols.publishing import ContentError
from quietmean.protocols.secagg import SecAgg
from quietmean.protocols.secagg import keys as wire
from quietmean.protocols.secagg.keys import (
    PRIME,
    SHARE_BYTES,
    Secrets,
    combine,
    commitment,
    is_usable,
    lagrange,
    own_mask,
    pair_mask,
    put_on,
    seal,
    share,
    unseal,
)
from quietmean.protocols.secagg.spec import (
    _hadamard,
    decode_sum,
    encode,
    rotate,
    rotate_back,
)
from quietmean.randomness import BitStream, ExchangeKey, Seed
from quietmean.randomness.insecure import InsecureStackedNoise, insecure_seed
from support.refusals import raised

SECRET = bytes(range(224, 256))


def parameters(**changes: Any) -> SecAgg:
    usual: dict[str, Any] = {"threshold": 2, "minimum": 2, "granularity": 2.0**-12, "sigma": 2.0**-8, "clip": 4.0}
    return SecAgg.read(usual | changes).resolved(2)


def interpolate_at_zero(shares: dict[int, int]) -> int:
    """Lagrange's formula in rational numbers, then modulo the prime: the long way round."""
    total = 0
    for one, value in shares.items():
        weight = Fraction(1)
        for other in shares:
            if other != one:
                weight *= Fraction(other, other - one)
        total += value * weight.numerator * pow(weight.denominator, -1, PRIME)
    return total % PRIME


@pytest.mark.parametrize("threshold", [2, 3, 5])
def test_any_shares_at_the_threshold_give_the_secret(threshold: int) -> None:
    shares = dict(zip(range(1, 7), share(SECRET, threshold, range(1, 7), insecure_seed(1)), strict=True))
    for chosen in itertools.combinations(shares, threshold):
        some = {point: shares[point] for point in chosen}
        assert combine(some, threshold) == SECRET
        assert interpolate_at_zero(some) == int.from_bytes(SECRET, "big")
    assert combine(shares, threshold) == SECRET


def test_shares_below_the_threshold_fit_every_secret() -> None:
    shares = dict(zip(range(1, 4), share(SECRET, 3, range(1, 4), insecure_seed(1)), strict=True))
    del shares[2]
    raised(ValueError, "needs 3", combine, shares, 3)
    # For any other secret there is a third share that goes with the two.
    first, third = (weight * shares[point] for weight, point in zip(lagrange((1, 2, 3))[::2], (1, 3), strict=True))
    wanted = int.from_bytes(bytes(32), "big")
    missing = (wanted - first - third) * pow(lagrange((1, 2, 3))[1], -1, PRIME) % PRIME
    assert combine(shares | {2: missing}, 3) == bytes(32)


def test_many_parties_and_false_shares() -> None:
    points = range(1, 1501)
    shares = dict(zip(points, share(SECRET, 700, points, insecure_seed(2)), strict=True))
    assert combine(dict(itertools.islice(shares.items(), 300, 1000)), 700) == SECRET
    assert combine({point: (value + 1) % PRIME for point, value in shares.items()}, 700) != SECRET
    few = dict(zip(points, share(SECRET, 2, range(1, 4), insecure_seed(2)), strict=False))
    assert combine(few | {1: few[1] * 7 % PRIME}, 2) is None


def test_what_is_sealed_opens_for_its_receiver_only() -> None:
    one, other, third = (ExchangeKey(insecure_seed(number)) for number in range(3))
    sealed = seal(one, other.public, 0, 1, "label", 11, 22)
    expected = (11).to_bytes(SHARE_BYTES, "big"), (22).to_bytes(SHARE_BYTES, "big")
    assert unseal(other, one.public, 0, 1, "label", sealed) == expected
    assert unseal(third, one.public, 0, 1, "label", sealed) is None
    assert unseal(other, one.public, 1, 0, "label", sealed) is None
    assert unseal(other, one.public, 0, 1, "other study", sealed) is None
    assert unseal(other, one.public, 0, 1, "label", sealed[:10]) is None
    for place in range(0, len(sealed), 7):
        tampered = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        assert unseal(other, one.public, 0, 1, "label", tampered) is None


def test_both_ends_have_the_same_mask_and_no_two_uses_do() -> None:
    one, other, third = (Secrets.of(InsecureStackedNoise(3, 3).party(number)) for number in range(3))
    masks = [
        pair_mask(one.masking, other.masking.public, "label").ring(32, 50),
        pair_mask(one.masking, other.masking.public, "another").ring(32, 50),
        pair_mask(one.masking, third.masking.public, "label").ring(32, 50),
        own_mask(one.self_mask).ring(32, 50),
        own_mask(other.self_mask).ring(32, 50),
    ]
    np.testing.assert_array_equal(masks[0], pair_mask(other.masking, one.masking.public, "label").ring(32, 50))
    assert len({mask.tobytes() for mask in masks}) == len(masks)
    assert commitment(one.self_mask) != commitment(other.self_mask)
    assert "secret" not in repr(one).replace("Secrets", "")
    assert one.mask_key.hex() not in repr(one)


@pytest.mark.parametrize("bits", [16, 32])
def test_masks_go_on_and_come_off_in_blocks(bits: int) -> None:
    size = 40_001
    words = np.zeros(size, dtype=np.uint16) if bits == 16 else np.zeros(size, dtype=np.uint32)
    put_on(words, own_mask(SECRET), bits)
    np.testing.assert_array_equal(words, own_mask(SECRET).ring(bits, size))
    put_on(words, own_mask(SECRET), bits, add=False)
    assert not words.any()


def test_keys_of_small_order_are_not_usable() -> None:
    own = ExchangeKey(insecure_seed(4))
    assert is_usable(ExchangeKey(insecure_seed(5)).public, own)
    assert not is_usable(bytes(32), own)
    assert not is_usable(b"\1" + bytes(31), own)


@pytest.mark.parametrize("parties", [1, 8, 9, 100])
def test_sets_of_parties(parties: int) -> None:
    members = frozenset(range(0, parties, 3))
    raw = wire.write_set(members, parties)
    assert wire.read_set(raw, parties) == members
    for wrong in (raw + b"\0", raw[:-1]):
        raised(ContentError, "", wire.read_set, wrong, parties)
    if parties % 8:
        raised(ContentError, "", wire.read_set, raw[:-1] + b"\1", parties)


def test_words_and_shares_that_are_none() -> None:
    words = BitStream(insecure_seed(6)).ring(20, 5)
    np.testing.assert_array_equal(wire.read_words(wire.write_words(words), 20, 5), words)
    for raw in (bytes(19), bytes(21), b"\xff" * 20):
        raised(ContentError, "", wire.read_words, raw, 20, 5)
    good = wire.write_shares({3: (7).to_bytes(SHARE_BYTES, "big")}, [2, 3])
    assert wire.read_shares(good, [2, 3]) == {3: 7}
    for raw in (good[:-1], b"\2" + good[1:], b"\0\1" + good[2:], b"\1" + PRIME.to_bytes(SHARE_BYTES, "big") + good[67:]):
        raised(ContentError, "", wire.read_shares, raw, [2, 3])


def test_the_aggregator_ends_a_run_in_words_that_can_be_shown() -> None:
    raised(ContentError, "ended the run: too few keys", wire.read_from_aggregator, wire.ended("too few keys"))
    caught = raised(ContentError, "", wire.read_from_aggregator, b"\0bad\x1b[31m" + b"\xff" + b"x" * 500)
    assert caught.isprintable()
    assert len(caught) < 260
    raised(ContentError, "cannot be read", wire.read_from_aggregator, b"")


@pytest.mark.parametrize("size", [1, 2, 8, 64, 128])
def test_the_transform_is_hadamards(size: int) -> None:
    vector = BitStream(insecure_seed(7)).standard_normal(size)
    np.testing.assert_allclose(_hadamard(vector), hadamard(size) @ vector / np.sqrt(size), atol=1e-12)
    np.testing.assert_allclose(_hadamard(_hadamard(vector)), vector, atol=1e-12)


def test_a_rotation_keeps_the_norm_and_spreads_the_vector() -> None:
    vector = np.zeros(100)
    vector[17] = 1.0
    rotated = rotate(vector, parameters(rotation=5))
    assert rotated.shape == (128,)
    np.testing.assert_allclose(np.abs(rotated), 1 / np.sqrt(128), rtol=1e-12)
    np.testing.assert_allclose(rotate_back(rotated, parameters(rotation=5))[:100], vector, atol=1e-14)
    assert not np.allclose(rotated, rotate(vector, parameters(rotation=6)))


@pytest.mark.parametrize("bits", [12, 16, 20, 32])
def test_a_noiseless_sum_is_exact_to_the_grid(bits: int) -> None:
    rules = parameters(noise="none", sigma=0.0, granularity=2.0**-8, bits=bits, centre=0.5, largest_weight=3.0, clip=2.5)
    values: Vector = 0.5 + BitStream(insecure_seed(8)).uniform(15).reshape(3, 5) - 0.5
    source, weights = InsecureStackedNoise(8, 3), [1.0, 2.0, 3.0]
    total = sum(
        encode(rules, value * weight, weight, source.party(party)).astype(np.int64)
        for party, (value, weight) in enumerate(zip(values, weights, strict=True))
    )
    summed = np.asarray(total % (1 << bits), dtype=np.uint32)
    decoded = decode_sum(rules, summed, sum(weights), 5)
    np.testing.assert_allclose(decoded, np.array(weights) @ values, atol=3 * 2.0**-9 + 1e-12)


def test_values_are_clipped_to_the_ball_around_the_centre() -> None:
    rules = parameters(noise="none", sigma=0.0, centre=1.0, clip=0.5)
    source = InsecureStackedNoise(8, 1).party(0)
    far = np.array([1.0 + 30.0, 1.0 - 40.0])
    decoded = decode_sum(rules, encode(rules, far, 1.0, source), 1.0, 2)
    np.testing.assert_allclose(decoded, [1.3, 0.6], atol=2.0**-12)
    within = np.array([1.2, 0.8])
    np.testing.assert_allclose(decode_sum(rules, encode(rules, within, 1.0, source), 1.0, 2), within, atol=2.0**-12)


def test_a_weight_beyond_the_plan_is_refused() -> None:
    with pytest.raises(InputError, match=r"weight is 2.5 .* room for 1\. .*largest_weight=3"):
        encode(parameters(), np.zeros(2), 2.5, InsecureStackedNoise(8, 1).party(0))


@pytest.mark.slow
def test_noise_and_rounding_are_unbiased_and_as_large_as_they_should_be() -> None:
    rules, dimension, runs = parameters(granularity=0.5, sigma=1.0, clip=50.0), 4, 4000
    value = np.array([0.3, -1.7, 2.2, 0.05])
    source = InsecureStackedNoise(9, runs)
    errors = np.array(
        [decode_sum(rules, encode(rules, value, 1.0, source.party(run)), 1.0, dimension) - value for run in range(runs)]
    )
    variance = 1.0 + float(np.mean([x * (1 - x) for x in (rotate(value, rules) / 0.5) % 1])) * 0.25
    # Chi-square with runs * 4 degrees of freedom on the rotated errors, both sides; false alarm 1e-4.
    statistic = float((errors**2).sum()) / variance
    assert chi2.ppf(5e-5, errors.size) < statistic < chi2.isf(5e-5, errors.size)
    assert np.abs(errors.mean(axis=0)).max() < 4.5 * np.sqrt(variance / runs)


def test_conditional_rounding_keeps_its_bound_and_independent_rounding_does_not() -> None:
    vector = np.full(64, 0.5)
    radius = float(np.linalg.norm(vector))
    norms = [np.linalg.norm(round_conditionally(vector, radius, insecure_seed(10, run))) for run in range(300)]
    bound = conditional_norm(radius, 64, 1.0)
    assert max(norms) <= bound
    free = np.array([np.linalg.norm(round_at_random(vector, insecure_seed(10, run))) for run in range(300)])
    assert (free > bound).any()
    # The bound with a smaller chance is kept by all; at most 39 % were to exceed the other.
    assert free.max() <= rounded_norm(radius, 64, 1.0, 1e-6)
    assert (free > bound).mean() < 0.7


def test_a_bound_that_no_rounding_keeps_ends_in_truncation() -> None:
    # A radius below the vector's own norm never comes from the encoding; the loop must end all the same.
    vector = np.full(64, 9.9)
    np.testing.assert_array_equal(round_conditionally(vector, 1.0, Seed.public("x")), np.full(64, 9))
