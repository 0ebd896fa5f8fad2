"""Protocols, one folder each. A folder registers itself by a module-level ``PROTOCOL``; nothing else needs to change."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from quietmean.core.errors import InputError
from quietmean.protocols.protocol import Demand, Design, Protocol, Releases, Server

__all__ = ["Demand", "Design", "Protocol", "Releases", "Server", "get_protocol", "registry"]


@cache
def registry() -> dict[str, Protocol[Any]]:
    """All protocols by name."""
    folders = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
    protocols = [importlib.import_module(f"{__name__}.{folder}").PROTOCOL for folder in folders]
    return {protocol.name: protocol for protocol in protocols}


def get_protocol(name: str) -> Protocol[Any]:
    if name not in registry():
        raise InputError(f"protocol {name!r} is unknown: choose one of {', '.join(registry())}")
    return registry()[name]
