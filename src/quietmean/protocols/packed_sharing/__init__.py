"""Packed secret sharing between peers: the sum with near-central noise, nobody collects, and the guarantee is known beforehand.

Ben-Or, Goldwasser and Wigderson 1988; packed by Franklin and Yung 1992.
"""

from quietmean.protocols.packed_sharing.protocol import PackedSharing

PROTOCOL = PackedSharing

__all__ = ["PROTOCOL", "PackedSharing"]
