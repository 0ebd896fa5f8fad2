"""Models with a formula, fitted by rounds of a session; the extra ``models``."""

from quietmean.learning.models.glm import GeneralizedLinearModel
from quietmean.learning.models.hazards import ProportionalHazards

__all__ = ["GeneralizedLinearModel", "ProportionalHazards"]
