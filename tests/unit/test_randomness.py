"""Streams and samplers: golden values that must hold on any machine, and independent computations."""

from __future__ import annotations

import hashlib
import hmac
import runpy
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy.special import ndtri

from quietmean.randomness import BitStream, ExchangeKey, SecureNoise, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureStackedNoise, insecure_seed
from quietmean.randomness.stream import fill_standard_normal
from support.refusals import raised

SEED = Seed(bytes(range(32)))
ACCURACY = 5e-12


def hexadecimal(values: NDArray[np.float64]) -> list[str]:
    return [float(value).hex() for value in values]


def exact_normal(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The inverse of the tail probability that a word stands for, by scipy."""
    tail = ((words & np.uint64(2**63 - 1)) | np.uint64(1)).astype(np.float64) * 2.0**-64
    return np.where(words >> np.uint64(63), ndtri(tail), -ndtri(tail))


def test_derivation_is_pinned() -> None:
    assert SEED.derive("study", 1, b"\x00").secret.hex() == "82b7863c0698e0e552396a8d12182339cd4767383f071f21e3b2f0d5e3ee1a85"
    assert SEED.derive().secret.hex() == "d38b42096d80f45f826b44a9d5607de72496a415d3f4a1a8c88e3bb9da8dc1cb"
    assert Seed.public("schedule", 7).secret.hex() == "f492991eefc8a50ea67bd25a20ccb91ff96210da399248ec257a41dac26514fd"


def test_derivation_is_hmac_of_length_prefixed_labels() -> None:
    labels = (
        b"s" + (5).to_bytes(8, "big") + b"study" + b"i" + (1).to_bytes(8, "big") + b"1" + b"b" + (1).to_bytes(8, "big") + b"\0"
    )
    assert SEED.derive("study", 1, b"\0").secret == hmac.digest(SEED.secret, labels, hashlib.sha256)


def test_words_are_pinned() -> None:
    expected = [0xEDDFC9BA2F36FD61, 0xD603D2AE5D43AA9, 0xC0DD67C61462C41A, 0xBCC2E3746E8C5726]
    assert BitStream(SEED).words(4).tolist() == expected


def test_words_are_aes_256_in_counter_mode() -> None:
    cipher = Cipher(algorithms.AES(SEED.derive("bit stream").secret), modes.ECB()).encryptor()  # noqa: S305
    blocks = b"".join(cipher.update(counter.to_bytes(16, "big")) for counter in range(50))
    assert BitStream(SEED).words(100).tobytes() == blocks


def test_a_stream_goes_on_where_it_stopped() -> None:
    pieces, whole = BitStream(SEED), BitStream(SEED).words(12)
    np.testing.assert_array_equal(np.concatenate([pieces.words(5), pieces.words(0), pieces.words(7)]), whole)


def test_standard_normal_is_pinned() -> None:
    assert hexadecimal(BitStream(SEED).standard_normal(6)) == [
        "-0x1.6d684001ba8b6p-3",
        "0x1.9f9881948bf00p+0",
        "-0x1.53ea3387c5b1bp-1",
        "-0x1.6e01b6576a614p-1",
        "0x1.ddd845203fc24p-2",
        "0x1.c8aa5702d23d9p-1",
    ]


def test_noise_is_pinned() -> None:
    assert hexadecimal(SecureNoise(SEED).normal("star", 0, 3)) == [
        "0x1.511a0da1ee002p+0",
        "-0x1.626249c26c8fep-1",
        "-0x1.0ec2db19635bdp-3",
    ]
    population, stacked = InsecurePopulationNoise(1, 3), InsecureStackedNoise(1, 3)
    assert hexadecimal(population.normal("delta", 2, 1)[:, 0]) == [
        "-0x1.b6dcb27a79833p-3",
        "0x1.e74d596f5fd67p+0",
        "0x1.176632f183a39p-1",
    ]
    assert hexadecimal(stacked.normal("delta", 2, 1)[:, 0]) == [
        "0x1.eb853f020a2adp+0",
        "-0x1.04f131907ecf7p+1",
        "-0x1.624196ad93a51p-1",
    ]


def test_other_draws_are_pinned() -> None:
    assert BitStream(SEED).integers(10, 8).tolist() == [9, 0, 7, 7, 3, 1, 8, 2]
    assert BitStream(SEED).permutation(8).tolist() == [1, 5, 7, 4, 3, 2, 6, 0]
    assert hexadecimal(BitStream(SEED).uniform(2)) == ["0x1.dbbf93745e6dfp-1", "0x1.ac07a55cba870p-5"]


def standard_normal(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """What the sampler makes of these words."""
    values, place = np.empty(words.size), 0

    def following(count: int) -> NDArray[np.uint64]:
        nonlocal place
        place += count
        return words[place - count : place]

    fill_standard_normal(following, values)
    return values


def test_sampler_at_edge_words() -> None:
    edges = [0, 1, 2, 3, 2**52 - 1, 2**52, 2**52 + 1, 2**53 - 1, 2**53, 2**62 - 1, 2**62, 2**63 - 2**10, 2**63 - 2, 2**63 - 1]
    edges += [edge + 2**63 for edge in edges] + [1 << bit for bit in range(64)] + [(1 << bit) - 1 for bit in range(1, 64)]
    words = np.array(edges, dtype=np.uint64)
    values = standard_normal(words)
    assert np.abs(values - exact_normal(words)).max() < ACCURACY
    assert np.isfinite(values).all()
    assert values[0] == -values[len(edges[:14])] == pytest.approx(9.0801551, abs=1e-7)


@pytest.mark.parametrize("shift", range(0, 63, 7))
def test_sampler_equals_the_exact_inverse(shift: int) -> None:
    words = np.random.default_rng(shift).integers(0, 2**64, 200_000, dtype=np.uint64)
    # Shifted right, the words are deep in the upper tail; the sign bit is put back.
    words = (words >> np.uint64(shift)) | (words & np.uint64(1 << 63))
    assert np.abs(standard_normal(words) - exact_normal(words)).max() < ACCURACY


def test_sampler_does_not_depend_on_its_blocks() -> None:
    words = BitStream(SEED).words(20_001)
    parts = [standard_normal(words[begin : begin + 777]) for begin in range(0, words.size, 777)]
    assert np.concatenate(parts).tobytes() == standard_normal(words).tobytes()


def test_stored_table_is_what_the_tool_makes() -> None:
    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "make_inverse_normal_table.py"))
    with resources.as_file(resources.files("quietmean.randomness") / "inverse_normal.npy") as path:
        stored = np.load(path, allow_pickle=False)
    made = tool["make_table"]()
    assert stored.shape == made.shape
    assert np.abs(stored - made).max() <= 1e-13


def test_population_and_party_views_agree() -> None:
    for noise in (InsecurePopulationNoise(5, 4), InsecureStackedNoise(5, 4)):
        block = noise.normal("star", 3, 6)
        assert block.shape == (4, 6)
        for party in range(4):
            np.testing.assert_array_equal(noise.party(party).normal("star", 3, 6), block[party])
        np.testing.assert_array_equal(noise.normal("star", 3, 6), block)


def test_population_noise_is_drawn_again_after_eviction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quietmean.randomness.insecure._CACHE_BYTES", 100)
    noise = InsecurePopulationNoise(5, 4)
    first = noise.normal("star", 0, 6).copy()
    for index in range(5):
        noise.normal("delta", index, 6)
    np.testing.assert_array_equal(noise.normal("star", 0, 6), first)


def test_population_noise_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        InsecurePopulationNoise(5, 4).normal("star", 0, 2)[0, 0] = 0.0


def test_repr_hides_the_secret() -> None:
    for text in (repr(SEED), str(SEED), repr(SecureNoise(SEED)), repr(BitStream(SEED))):
        assert SEED.secret.hex() not in text
        assert str(SEED.secret) not in text


def test_seeds_have_32_bytes_and_os_seeds_differ() -> None:
    raised(ValueError, "32 bytes, not 31", Seed, bytes(31))
    assert Seed.from_os() != Seed.from_os()
    assert insecure_seed(1) != insecure_seed(2)
    assert insecure_seed(1, "a").secret == Seed.public("insecure", 1, "a").secret


ALICE, BOB = Seed(bytes(range(32))), Seed(bytes(range(32, 64)))
GOLDEN_SHARED = [
    "0x1.edef342c11742p-1",
    "-0x1.3ba4f9410670fp+0",
    "0x1.b004538573a4fp+0",
    "-0x1.acdf7d5a592c4p-4",
    "0x1.13e79f6ef5588p-1",
]


def test_both_ends_derive_the_same_seed() -> None:
    alice, bob = ExchangeKey(ALICE), ExchangeKey(BOB)
    common = alice.shared_seed(bob.public, "study")
    assert common.secret == bob.shared_seed(alice.public, "study").secret
    assert common.secret != alice.shared_seed(bob.public, "another study").secret
    assert common.secret != ExchangeKey(Seed(bytes(32))).shared_seed(bob.public, "study").secret


def test_shared_seed_by_another_computation() -> None:
    """X25519 as in RFC 7748 with Python integers, HKDF as in RFC 5869 with hmac."""
    alice, bob = ExchangeKey(ALICE), ExchangeKey(BOB)
    private = ALICE.derive("exchange key").secret
    assert x25519(private, (9).to_bytes(32, "little")) == alice.public
    agreed = x25519(private, bob.public)
    extracted = hmac.digest(bytes(32), agreed, "sha256")
    information = b"quietmean pair\0" + b"".join(sorted([alice.public, bob.public])) + b"study"
    assert alice.shared_seed(bob.public, "study").secret == hmac.digest(extracted, information + b"\x01", "sha256")


def x25519(scalar: bytes, point: bytes) -> bytes:
    """Montgomery ladder, RFC 7748 section 5."""
    prime = 2**255 - 19
    k = (int.from_bytes(scalar, "little") & ~7 & ~(128 << 8 * 31)) | (64 << 8 * 31)
    x1 = int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3, swapped = 1, 0, x1, 1, 0
    for place in reversed(range(255)):
        bit = (k >> place) & 1
        if swapped ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swapped = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        difference = (a * a - b * b) % prime
        x3, z3 = pow(d * a + c * b, 2, prime), x1 * pow(d * a - c * b, 2, prime) % prime
        x2, z2 = a * a * b * b % prime, difference * (a * a + 121665 * difference) % prime
    x2, z2 = (x3, z3) if swapped else (x2, z2)
    return (x2 * pow(z2, prime - 2, prime) % prime).to_bytes(32, "little")


def test_keys_without_a_secret_are_refused() -> None:
    raised(ValueError, r".*", ExchangeKey(ALICE).shared_seed, bytes(32), "study")


def test_shared_noise_is_the_same_at_both_ends_and_new_for_each_address() -> None:
    alice, bob = ExchangeKey(ALICE), ExchangeKey(BOB)
    one = SecureNoise(ALICE, lambda other: alice.shared_seed(bob.public, "study"))
    two = SecureNoise(BOB, lambda other: bob.shared_seed(alice.public, "study"))
    shared = one.shared_normal(1, "delta", 0, 5)
    np.testing.assert_array_equal(shared, two.shared_normal(0, "delta", 0, 5))
    others = [one.shared_normal(1, "delta", 1, 5), one.shared_normal(1, "star", 0, 5), one.normal("delta", 0, 5)]
    assert all((shared != other).all() for other in others)
    # Golden: two machines, or two versions, that differ in the last bit would not cancel.
    assert hexadecimal(shared) == GOLDEN_SHARED


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_population_noise_shared_by_pairs(dimension: int) -> None:
    pairs = np.array([[0, 1], [0, 2], [0, 3], [1, 3], [2, 3], [4, 6]])
    for noise in (InsecurePopulationNoise(3, 7), InsecureStackedNoise(3, 7)):
        block = noise.shared_normal(pairs, "delta", 2, dimension)
        for row, (one, other) in zip(block, pairs.tolist(), strict=True):
            np.testing.assert_array_equal(row, noise.party(one).shared_normal(other, "delta", 2, dimension))
            np.testing.assert_array_equal(row, noise.party(other).shared_normal(one, "delta", 2, dimension))
        assert len(np.unique(block)) == block.size
        np.testing.assert_array_equal(noise.shared_normal(pairs[[4, 1]], "delta", 2, dimension), block[[4, 1]])
        assert noise.shared_normal(pairs[:0], "delta", 2, dimension).shape == (0, dimension)
