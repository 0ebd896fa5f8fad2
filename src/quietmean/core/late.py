"""Convenience methods that are implemented in a layer above.

``IncA(rounds=20).calibrate(target)`` is convenient, but calibration belongs to the planner, a layer above the protocols. Such a
method imports its function when it is called, and so its return type is Any. Call the function itself where types are needed.
Nothing else may import from a layer above.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def from_above(module: str, name: str) -> Any:
    """The function of that name in a module of a layer above."""
    return getattr(import_module(module), name)
