"""Packed secret sharing among equals: the sum with near-central noise, nobody collects, and the guarantee is known beforehand."""

from quietmean.protocols.packed_sharing.protocol import PackedSharing

PROTOCOL = PackedSharing

__all__ = ["PROTOCOL", "PackedSharing"]
