"""SecAgg: secure aggregation by double masking, with distributed discrete Gaussian noise (Bonawitz 2017; Kairouz 2021)."""

from quietmean.protocols.secagg.protocol import SecAgg
from quietmean.protocols.secagg.spec import SecAggParameters

__all__ = ["PROTOCOL", "SecAgg", "SecAggParameters"]

PROTOCOL = SecAgg
