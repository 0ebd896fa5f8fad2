"""Names of a package that are imported when they are asked for, so that nobody waits for what is not used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def importer(package: str, names: Mapping[str, str], modules: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """The function ``__getattr__`` of a ``package``: each of the ``names`` is in a module, and each of ``modules`` is one.

    Both are given from the folder quietmean on, as ``protocols.gopa``.
    """
    of_modules = modules or {}

    def imported(name: str) -> Any:
        if name in names:
            return getattr(import_module(f"quietmean.{names[name]}"), name)
        if name in of_modules:
            return import_module(f"quietmean.{of_modules[name]}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return imported


class Provided:
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


calibrate = Provided()
simulate = Provided()
