"""Before a study: is everybody there, with the same study, plan and roster, and data that pass?"""

from quietmean.node.preflight.check import CheckSession
from quietmean.node.preflight.readiness import Agreed, Reply, Standing, package_version

__all__ = [
    "Agreed",
    "CheckSession",
    "Reply",
    "Standing",
    "package_version",
]
