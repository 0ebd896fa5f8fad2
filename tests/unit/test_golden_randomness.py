"""Where noise comes from: the addresses under a seed, to the last bit. Parties of two versions must draw the same.

Streams and plain normal noise are pinned in ``test_randomness.py``; this is the rest.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from golden.interfaces import (
    BitStream,
    ExchangeKey,
    InsecurePopulationNoise,
    InsecureStackedNoise,
    SecureNoise,
    Seed,
    discrete_gaussian,
)

SEED, OTHER = Seed(bytes(range(32))), Seed(bytes(range(32, 64)))


def short(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]


def bits(values: NDArray[np.float64]) -> str:
    return short(np.ascontiguousarray(values, dtype="<f8").tobytes())


def test_secrets_of_a_party() -> None:
    assert SecureNoise(SEED).secret("share", 3).hex() == "f43c162201cf5d8e13b8abc7e0e72abde7524fbef0a20c7a37e15d91a892330d"
    assert SecureNoise(SEED).secret("share", 3) == SEED.derive("secret", "share", 3).secret
    assert (
        InsecureStackedNoise(5, 4).party(2).secret("report", 0).hex()
        == "0b6993c7c01eb2e5a454f7beb34040804b7b9ed6ae9b00bc502aa9b25b5ee9ca"
    )
    assert (
        InsecurePopulationNoise(5, 4).party(2).secret("report", 0).hex()
        == "72f0ce5a8710cf7573cfe53ffc2020c7ff5484eda23f8f0c23963414b21d3cdb"
    )


def test_noise_of_a_party() -> None:
    assert bits(SecureNoise(SEED).normal("delta", 7, 1001)) == "14e58c82be979744e6eadf390b82eb1a"
    assert (
        SecureNoise(SEED).normal("delta", 7, 5).tobytes()
        == BitStream(SEED.derive("noise", "delta", 7)).standard_normal(5).tobytes()
    )
    assert bits(InsecurePopulationNoise(5, 4).normal("star", 0, 3)) == "8bb3219597a6a8b5240f91f072d7a26e"
    assert bits(InsecureStackedNoise(5, 4).normal("star", 0, 3)) == "efadcfd32310c606d2d9831b4a48e1f1"


def test_noise_of_two_parties() -> None:
    pairs = np.array([[0, 1], [0, 3], [2, 3]])
    assert bits(InsecurePopulationNoise(5, 4).shared_normal(pairs, "delta", 1, 3)) == "834c3f11c423ffd8323381b6188692bf"
    assert bits(InsecureStackedNoise(5, 4).shared_normal(pairs, "delta", 1, 3)) == "0b56d29494a15d3160c31ed82fe55b82"
    shared = SecureNoise(SEED, OTHER.derive).shared_normal(6, "delta", 1, 5)
    stream = BitStream(OTHER.derive(6).derive("shared noise", "delta", 1))
    assert shared.tobytes() == stream.standard_normal(5).tobytes()


def test_keys_and_what_two_of_them_agree_on() -> None:
    one, two = ExchangeKey(SEED), ExchangeKey(OTHER)
    assert one.public.hex() == "20185adda72fbc886c7a1480d0532fa95bdca34892f25ef2680b983a2df97a49"
    assert one.shared_seed(two.public, "study").secret.hex() == "13ab81dacd2b9075e81271efed72d25cd6ea91310b4fd3faed3f4d2a1a0d191f"


def test_a_stream_from_a_later_block() -> None:
    assert BitStream(SEED, 5).words(3).tolist() == BitStream(SEED).words(13)[10:].tolist()


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (2, "d35d54229a9bf61f32ad69b46523c620"),
        (9, "9b16dd672508dd84283821412d62b707"),
        (16, "0036a669d851991ef8b7231e432ae6a3"),
        (20, "e9ea9d28446ee8fb1155cdfddd1274c7"),
        (32, "2ecd827f0fa388d14985f20a55733a77"),
    ],
)
def test_ring_elements(width: int, expected: str) -> None:
    elements = BitStream(SEED).ring(width, 101)
    assert short(elements.astype(elements.dtype.newbyteorder("<")).tobytes()) == expected


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (0.4, "029fd58e442f4772eb01d6cacf75df81"),
        (5.0, "8da0407c22048449f210d4a55dd7002a"),
        (1000.0, "768c3edff4eaccc2acef993e2e87259b"),
    ],
)
def test_discrete_gaussian(scale: float, expected: str) -> None:
    assert short(discrete_gaussian(SEED, scale, 5000).astype("<i8").tobytes()) == expected
