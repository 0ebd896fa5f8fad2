"""Conveniences on values: methods that a layer above carries out.

``IncA(rounds=20).calibrate(target)`` reads as people think, but how to calibrate is known to the planner, which stands on the
protocols. Such a method looks its function up when it is called, and cannot name the type of what it returns: who wants types
calls the function itself. Nothing else may reach upwards.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def from_above(module: str, name: str) -> Any:
    """The function of that name in a module of a layer above."""
    return getattr(import_module(module), name)
