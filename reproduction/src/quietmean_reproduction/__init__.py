"""The figures of the papers, made anew: every one with its numbers, a drawing, and what the paper states beside what we find."""

from __future__ import annotations

import importlib
import pkgutil

from quietmean.core.errors import InputError
from quietmean_reproduction.figure import Check, Claim, Effort, Figure

__all__ = ["Check", "Claim", "Effort", "Figure", "choose", "registry"]


def registry() -> dict[str, Figure]:
    """All figures by name: of every module of this package that has a tuple ``FIGURES``."""
    found: dict[str, Figure] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        for figure in getattr(importlib.import_module(module.name), "FIGURES", ()):
            if figure.name in found:
                raise ValueError(f"two figures are called {figure.name}")
            found[figure.name] = figure
    return found


def choose(names: list[str]) -> list[Figure]:
    """By name, in the order of the registry; a name may also be the common part before a dash, such as ``inca``."""
    known = registry()
    for name in names:
        if not any(_matches(name, figure) for figure in known):
            raise InputError(
                f"figure {name!r} is unknown. Choose from {', '.join(known)}, or all of one paper by its first word."
            )
    return [figure for name, figure in known.items() if any(_matches(chosen, name) for chosen in names)]


def _matches(chosen: str, name: str) -> bool:
    return name == chosen or name.startswith(f"{chosen}-")
