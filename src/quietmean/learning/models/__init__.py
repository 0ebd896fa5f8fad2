"""Models with a formula, fitted by rounds of a session; the extra ``models``."""

from quietmean.learning.models.glm import GeneralizedLinearModel, ProportionalHazards, asked_model

__all__ = ["GeneralizedLinearModel", "ProportionalHazards", "asked_model"]
