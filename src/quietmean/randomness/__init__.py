"""The only source of randomness. Everything is drawn from 32-byte seeds by labelled derivation."""

from quietmean.randomness.exchange import Encapsulated, ExchangeKey
from quietmean.randomness.noise import SecureNoise, discrete_pieces
from quietmean.randomness.seed import Seed, fresh_bytes
from quietmean.randomness.stream import BitStream

__all__ = [
    "BitStream",
    "Encapsulated",
    "ExchangeKey",
    "SecureNoise",
    "Seed",
    "discrete_pieces",
    "fresh_bytes",
]
