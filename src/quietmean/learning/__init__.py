"""Learning together over sessions: averages of models, and estimators.

Estimators need scikit-learn, the extra ``sklearn``; they and it are imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quietmean.learning.averaging import ModelAveraging
    from quietmean.learning.trees import Tree

__all__ = ["ModelAveraging", "Tree"]

_PLACES = {"ModelAveraging": "averaging", "Tree": "trees"}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(f"quietmean.learning.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'quietmean.learning' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
