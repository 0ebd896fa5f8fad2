"""Protocols, one folder each. Those of other distributions register by the entry point group ``quietmean.protocols``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points

from quietmean.core.errors import InputError
from quietmean.core.schema import nearest
from quietmean.protocols.protocol import Aggregated, Design, Protocol, Releases, SelfCalibrating, Server
from quietmean.protocols.target import Target

__all__ = [
    "Aggregated",
    "Design",
    "Protocol",
    "Releases",
    "SelfCalibrating",
    "Server",
    "Target",
    "get_protocol",
    "registry",
]

GROUP = "quietmean.protocols"


@cache
def registry() -> dict[str, type[Protocol]]:
    """All protocols by name: a folder of this package each, as ``PROTOCOL``, and those that other distributions bring.

    Raises :class:`InputError` for a distribution whose protocol cannot be loaded or has the name of another one.
    """
    folders = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
    found = {kind.name: kind for kind in (importlib.import_module(f"{__name__}.{folder}").PROTOCOL for folder in folders)}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            kind = entry.load()
        except Exception as error:
            raise InputError(
                f"protocol {entry.name!r} ({entry.value}) cannot be loaded ({error}): mend or uninstall it"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, Protocol)):
            raise InputError(f"protocol {entry.name!r} ({entry.value}) is no subclass of Protocol: mend or uninstall it")
        if kind.name in found:
            raise InputError(f"protocol {kind.name!r} ({entry.value}) is registered already: give it another name")
        found[kind.name] = kind
    return found


def get_protocol(name: str) -> type[Protocol]:
    if name not in registry():
        raise InputError(f"protocol {name!r} is unknown{nearest(name, registry())}: choose one of {', '.join(registry())}")
    return registry()[name]
