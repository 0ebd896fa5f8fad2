"""Average consensus on additive secret shares over the integers modulo p: exact, for comparison with consensus.

Li, Cascudo and Christensen 2019.
"""

from quietmean.protocols.secret_sharing.protocol import SecretSharing

__all__ = ["PROTOCOL", "SecretSharing"]

PROTOCOL = SecretSharing
