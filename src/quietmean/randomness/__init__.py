"""The only source of randomness. Everything is drawn from 32-byte seeds by labelled derivation."""

from quietmean.randomness.noise import Encapsulated, ExchangeKey, SecureNoise, discrete_pieces
from quietmean.randomness.stream import BitStream, Seed, fresh_bytes

__all__ = [
    "BitStream",
    "Encapsulated",
    "ExchangeKey",
    "SecureNoise",
    "Seed",
    "discrete_pieces",
    "fresh_bytes",
]
