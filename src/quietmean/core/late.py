"""Conveniences of a value that a layer above carries out.

``IncA(rounds=20).calibrate(target)`` belongs to the planner, a layer above the protocols. The face of the package, which is above
all layers and is there before any of them, puts the functions in here; each imports what it needs when it is called. Their
results are of types that are not known here: call the functions themselves where types are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class FromAbove:
    """A function that the face of the package provides."""

    def __init__(self) -> None:
        self._function: Callable[..., Any] | None = None

    def provide(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._function is None:
            raise RuntimeError("this function is provided by the package quietmean itself: import it as a whole")
        return self._function(*arguments, **keywords)


calibrate = FromAbove()
influence = FromAbove()
simulate = FromAbove()
