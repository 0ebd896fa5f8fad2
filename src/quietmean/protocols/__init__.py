"""Protocols, one folder each. Those of other distributions register by the entry point group ``quietmean.protocols``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from quietmean.core.extensions import with_extensions
from quietmean.core.schema import require_known
from quietmean.protocols.kinds import Aggregated, Design, SelfCalibrating
from quietmean.protocols.protocol import Protocol, Releases, Server
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
    kinds: list[type[Protocol]] = [importlib.import_module(f"{__name__}.{folder}").PROTOCOL for folder in folders]
    return with_extensions({kind.name: kind for kind in kinds}, GROUP, "protocol", Protocol)


def get_protocol(name: str) -> type[Protocol]:
    """The protocol of that name. Raises :class:`InputError` for an unknown one."""
    return registry()[require_known("protocol", name, registry())]
