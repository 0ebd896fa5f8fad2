"""The only source of randomness. Everything is drawn from 32-byte seeds by labelled derivation."""

from quietmean.entropy.exchange import ExchangeKey
from quietmean.entropy.seed import Seed
from quietmean.entropy.stream import BitStream, SecureNoise

__all__ = ["BitStream", "ExchangeKey", "SecureNoise", "Seed"]
