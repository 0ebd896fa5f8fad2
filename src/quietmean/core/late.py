"""Conveniences of a value that a layer above carries out.

``IncA(rounds=20).calibrate(target)`` belongs to the planner, a layer above the protocols. The face of the package, which is above
all layers and is there before any of them, says here where the functions are; each is imported when it is called. Their
results are of types that are not known here: call the functions themselves where types are needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class FromAbove:
    """A function of a module, given from the folder quietmean on, that the face of the package provides."""

    def __init__(self) -> None:
        self._place: tuple[str, str] | None = None

    def provide(self, module: str, name: str) -> None:
        self._place = module, name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._place is None:
            raise RuntimeError("this function is provided by the package quietmean itself: import it as a whole")
        module, name = self._place
        return getattr(import_module(f"quietmean.{module}"), name)(*arguments, **keywords)


calibrate = FromAbove()
simulate = FromAbove()
