"""Average consensus by PDMM, ADMM or anything between, with subspace perturbation and adaptive differential quantisation.

ADQSP, by Li, Gundersen, Lopuhaä-Zwakenberg and Heusdens; exact means, hidden by Li, Heusdens and Christensen 2020.
"""

from quietmean.protocols.consensus.protocol import Consensus
from quietmean.protocols.consensus.spec import Quantisation

__all__ = ["PROTOCOL", "Consensus", "Quantisation"]

PROTOCOL = Consensus
