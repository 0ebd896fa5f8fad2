"""Arithmetic of packed sharing against Python's whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.protocols.packed_sharing import packing as field
from quietmean.protocols.packed_sharing.packing import Packing, padded
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME, SMALL_PRIME
from quietmean.randomness import BitStream, Seed
from support.effort import examples

PRIMES = st.sampled_from([LARGE_PRIME, SMALL_PRIME, 7])


def big(array: np.ndarray) -> list[list[int]]:
    return [[int(one) for one in row] for row in array]


def matrix(prime: int, rows: int, columns: int, seed: int) -> np.ndarray:
    """Half of the entries lie at the ends, where sums are largest."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, prime, (rows, columns))
    ends = rng.choice([0, 1, prime // 2, prime // 2 + 1, prime - 1], (rows, columns))
    return np.where(rng.random((rows, columns)) < 0.5, drawn, ends).astype(np.uint32)


@settings(max_examples=examples(60), deadline=None)
@given(PRIMES, st.integers(1, 9), st.integers(1, 300), st.integers(1, 20), st.integers(0, 10**6))
def test_products_are_exact(prime: int, rows: int, terms: int, columns: int, seed: int) -> None:
    left, right = matrix(prime, rows, terms, seed), matrix(prime, terms, columns, seed + 1)
    expected = [[sum(a * b for a, b in zip(row, column, strict=True)) % prime for column in big(right.T)] for row in big(left)]
    assert big(field.product(left, right, prime)) == expected


@pytest.mark.parametrize("terms", [1, 119, 120, 121, 241])
@pytest.mark.parametrize("entry", [2**31 - 2, 2**30 - 1, 2**30 - 2**15, 2**30 - 2**15 - 1, 2**30])
def test_products_are_exact_where_all_terms_are_largest(terms: int, entry: int) -> None:
    prime = LARGE_PRIME
    left, right = np.full((2, terms), entry, dtype=np.uint32), np.full((terms, 3), prime - 1, dtype=np.uint32)
    assert big(field.product(left, right, prime)) == [[terms * entry * (prime - 1) % prime] * 3] * 2


@pytest.mark.parametrize("prime", [LARGE_PRIME, SMALL_PRIME, 7])
@pytest.mark.parametrize("reach", [1, 2**30])
def test_residues_are_those_of_any_numbers(prime: int, reach: int) -> None:
    """Whatever is drawn: beyond p, too, which a party's noise is with next to no chance."""
    numbers = np.random.default_rng(prime).integers(-reach * prime + 1, reach * prime, 1000)
    numbers[:4] = [-prime + 1, prime - 1, 0, -1]
    packing = Packing(5, 3, 1, prime)
    residues = padded(packing, numbers.size, [numbers[:300], numbers[300:300], numbers[300:]])
    assert residues.reshape(-1)[: numbers.size].tolist() == [int(number) % prime for number in numbers]
    assert field.residues_of(field.centred(residues, prime), prime).tolist() == residues.tolist()


@pytest.mark.parametrize("terms", [0, 1, 2730, 2731, 5461, 5462])
def test_inner_products_are_exact_for_the_largest_residues(terms: int) -> None:
    prime, random = 2**31 - 1, np.random.default_rng(terms)
    left, right = (random.integers(0, prime, (rows, terms), dtype=np.uint32) for rows in (2, 3))
    left[0], right[0] = prime - 1, prime - 1
    expected = [[sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) % prime for column in right] for row in left]
    assert field.inner_products(left, right, prime).tolist() == expected


@pytest.mark.parametrize("prime", [LARGE_PRIME, SMALL_PRIME, 7])
@pytest.mark.parametrize("count", [0, 1, 16_384, 16_390])
def test_remainders_are_those_of_any_words(prime: int, count: int) -> None:
    words = BitStream(Seed.public("remainders", count)).words(count).copy()
    ends = [0, prime - 1, prime, 2**64 - 1, (2**64 - 1) // prime * prime, (2**64 - 1) // prime * prime - 1]
    words[: len(ends)] = ends[:count]
    left = field.remainders(words, prime)
    assert left.dtype == np.uint32
    assert left.tolist() == [word % prime for word in words.tolist()]


@pytest.mark.parametrize("prime", [LARGE_PRIME, SMALL_PRIME])
def test_products_of_the_largest_residues_are_exact_over_several_blocks(prime: int) -> None:
    # Every term has the same sign: no partial sum may leave float64's whole numbers.
    left = np.full((2, 513), prime // 2, dtype=np.uint32)
    right = np.full((513, 1100), prime // 2, dtype=np.uint32)
    assert (field.product(left, right, prime) == 513 * (prime // 2) ** 2 % prime).all()


@settings(max_examples=examples(60), deadline=None)
@given(PRIMES, st.lists(st.integers(1, 2**31), min_size=1, max_size=20))
def test_inverses(prime: int, numbers: list[int]) -> None:
    residues = [number % prime or 1 for number in numbers]
    found = field.inverses(np.array(residues, dtype=np.uint64), prime)
    assert [int(one) for one in found] == [pow(number, -1, prime) for number in residues]


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from([LARGE_PRIME, SMALL_PRIME]), st.integers(1, 40), st.integers(0, 20), st.integers(0, 10**6))
def test_interpolation(prime: int, nodes: int, points: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    places = rng.permutation(100)[: nodes + points]
    coefficients = [int(one) for one in rng.integers(0, prime, nodes)]

    def value(at: int) -> int:
        return sum(one * pow(at, power, prime) for power, one in enumerate(coefficients)) % prime

    rows = field.lagrange(places[:nodes], places[nodes:], prime)
    known = np.array([[value(int(at))] for at in places[:nodes]], dtype=np.uint32)
    assert [int(one) for one in field.product(rows, known, prime)[:, 0]] == [value(int(at)) for at in places[nodes:]]
    powers = field.powers(places[nodes:], nodes, prime)
    held = np.array(coefficients, dtype=np.uint32)[:, None]
    assert (field.product(powers, held, prime) == field.product(rows, known, prime)).all()


@settings(max_examples=examples(60), deadline=None)
@given(PRIMES, st.integers(1, 6), st.integers(1, 7), st.integers(0, 10**6))
def test_null_vectors(prime: int, rows: int, columns: int, seed: int) -> None:
    drawn = np.random.default_rng(seed).integers(0, prime, (rows, columns)).astype(np.uint32)
    found = field.null_vector(drawn, prime)
    if found is None:
        assert columns <= rows
    else:
        assert found.any()
        assert not field.product(drawn, found[:, None], prime).any()


@settings(max_examples=30, deadline=None)
@given(PRIMES, st.integers(0, 30))
def test_centred_numbers(prime: int, seed: int) -> None:
    residues = matrix(prime, 3, 5, seed)
    numbers = field.centred(residues, prime)
    assert (numbers % prime == residues).all()
    assert (2 * np.abs(numbers) < prime).all()


@pytest.mark.parametrize(("prime", "words"), [(LARGE_PRIME, 1), (SMALL_PRIME, 2), (7, 1)])
def test_uniform_residues_are_whole_words_modulo_p(prime: int, words: int) -> None:
    """Also what 31 or 32 bits a number would fail: they use up fewer bytes of the stream."""
    seed, count = Seed.public("test of uniform residues"), 1000
    key = seed.derive("bit stream").secret
    raw = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * words * count))
    expected = []
    for number in range(count):
        parts = [int.from_bytes(raw[8 * (words * number + k) : 8 * (words * number + k + 1)], "little") for k in range(words)]
        expected.append(sum(part << 64 * place for place, part in enumerate(parts)) % prime)
    assert field.uniform(BitStream(seed), count, prime).tolist() == expected


@pytest.mark.parametrize("prime", [LARGE_PRIME, SMALL_PRIME])
def test_uniform_residues_are_within_2_to_the_minus_62(prime: int) -> None:
    from fractions import Fraction

    bits = 64 * field.words_for(prime)
    high, more = divmod(1 << bits, prime)
    # ``more`` residues have one chance in 2^bits more than the others.
    exact = (
        more * abs(Fraction(high + 1, 1 << bits) - Fraction(1, prime))
        + (prime - more) * abs(Fraction(high, 1 << bits) - Fraction(1, prime))
    ) / 2
    assert float(exact) == pytest.approx(field.reduction_distance(prime, field.words_for(prime)))
    assert exact < Fraction(1, 2**62)
    # 32 bits a number would be off by 2^-31 and 2^-18 each, far beyond any delta; one word for 65521 by 2^-50.
    assert _distance_of_bits(prime, 32) > 2.0**-32
    assert field.reduction_distance(SMALL_PRIME, 1) > 2.0**-51


def _distance_of_bits(prime: int, bits: int) -> float:
    left = pow(2, bits, prime)
    return left * (prime - left) / (prime << bits)
