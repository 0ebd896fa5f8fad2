"""CorDP-DME: one message a party, hidden by its own noise and by noise that it shares with others and that cancels in the sum.

Vithana, Cadambe, Calmon and Jeong 2025.
"""

from quietmean.protocols.cordp_dme.decoder import LateDecoder
from quietmean.protocols.cordp_dme.design import (
    SensitivityConvention,
    ball_sensitivity,
    gaussian_variance,
    least_error,
    optimal_design,
    responder_curve,
    sparse_design,
)
from quietmean.protocols.cordp_dme.protocol import CorDPDME

__all__ = [
    "PROTOCOL",
    "CorDPDME",
    "LateDecoder",
    "SensitivityConvention",
    "ball_sensitivity",
    "gaussian_variance",
    "least_error",
    "optimal_design",
    "responder_curve",
    "sparse_design",
]

PROTOCOL = CorDPDME
