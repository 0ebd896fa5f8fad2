"""Learning together over sessions: averages of models, estimators, and models with a formula.

Estimators need scikit-learn, the extra ``sklearn``, and models with a formula the extra ``models``; they and their libraries are
imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean.learning.averaging import ModelAveraging
    from quietmean.learning.estimators import PCA, FitCertificate, KMeans, LinearRegression, LogisticRegression, StandardScaler
    from quietmean.learning.models import GeneralizedLinearModel, ProportionalHazards, asked_model
    from quietmean.learning.shared import SharedModel, Tree

__all__ = [
    "PCA",
    "FitCertificate",
    "GeneralizedLinearModel",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "ModelAveraging",
    "ProportionalHazards",
    "SharedModel",
    "StandardScaler",
    "Tree",
    "asked_model",
]

_PLACES = {
    "GeneralizedLinearModel": "learning.models",
    "ModelAveraging": "learning.averaging",
    "ProportionalHazards": "learning.models",
    "SharedModel": "learning.shared",
    "Tree": "learning.shared",
    "asked_model": "learning.models",
    "model_of": "learning.models.glm",
    "KEPT": "learning.sites",
}
_imported = importer(__name__, _PLACES)
_ESTIMATORS = ("PCA", "FitCertificate", "KMeans", "LinearRegression", "LogisticRegression", "StandardScaler")


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        from quietmean.core.extensions import import_extra

        import_extra("sklearn", "sklearn", f"the estimator {name}")
        from quietmean.learning import estimators

        return getattr(estimators, name)
    return _imported(name)


def __dir__() -> list[str]:
    return sorted(__all__)
