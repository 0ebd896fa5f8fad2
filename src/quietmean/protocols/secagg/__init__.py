"""SecAgg: secure aggregation by double masking, with distributed discrete Gaussian noise.

Bonawitz et al. 2017; the noise is that of Kairouz, Liu and Steinke 2021.
"""

from quietmean.protocols.secagg.protocol import SecAgg
from quietmean.protocols.secagg.spec import SecAggParameters

__all__ = ["PROTOCOL", "SecAgg", "SecAggParameters"]

PROTOCOL = SecAgg
