"""Protocols, one folder each. Those of other distributions register by the entry point group ``quietmean.protocols``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from quietmean.core.errors import InputError
from quietmean.core.extensions import with_extensions
from quietmean.core.schema import nearest, options_of, require_known
from quietmean.protocols.mechanism import Design, Mechanism, Releases
from quietmean.protocols.target import Target
from quietmean.protocols.traits import Server, Traits

__all__ = [
    "Design",
    "Mechanism",
    "Releases",
    "Server",
    "Target",
    "Traits",
    "configure",
    "get_protocol",
    "registry",
    "resolve",
]

GROUP = "quietmean.protocols"

# Folders that are not a peer-to-peer protocol: what several are made of, and a committee for others.
_SHARED = ("committee", "push_sum")


# Protocols that a study has by what else it says, never by name: only documents name them.
_NOT_CHOSEN = {
    "packed-sharing-committee": ("committee.mechanism", "CommitteeSharing"),
    "committee-opening": ("committee.opening", "CommitteeOpening"),
}


@cache
def registry() -> dict[str, type[Mechanism]]:
    """All protocols by name: a folder each but what several share, as ``PROTOCOL``, and those of other distributions.

    Raises :class:`InputError` for a distribution whose protocol cannot be loaded or has the name of another one.
    """
    folders = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg and module.name not in _SHARED)
    kinds: list[type[Mechanism]] = [importlib.import_module(f"{__name__}.{folder}").PROTOCOL for folder in folders]
    return with_extensions({kind.name: kind for kind in kinds}, GROUP, "protocol", Mechanism)


@cache
def _aliases() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Other names of protocols: the name that each means, and the options."""
    aliases: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for kind in registry().values():
        for alias, options in kind.TRAITS.aliases.items():
            if alias in registry() or alias in aliases:
                raise InputError(f"protocol {kind.name!r} has the other name {alias!r}, which is taken. Leave it out.")
            aliases[alias] = kind.name, options
    return aliases


def resolve(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A protocol's own name, and all options, where another of its names is given; any other name as it is.

    This is the one place where names are resolved. Raises :class:`InputError` for an option that contradicts the name.
    """
    own, implied = _aliases().get(name, (name, {}))
    for key, value in implied.items():
        if options.get(key, value) != value:
            raise InputError(f"{name} is {own} with {key} {value:g}, and {key} is {options[key]!r}. Leave it out, or name {own}.")
    return own, {**options, **implied}


def get_protocol(name: str) -> type[Mechanism]:
    """The protocol of that name, or of that other name. Raises :class:`InputError` for an unknown one."""
    if name in _NOT_CHOSEN:
        module, kind_name = _NOT_CHOSEN[name]
        return cast(type[Mechanism], getattr(importlib.import_module(f"{__name__}.{module}"), kind_name))
    aliases = _aliases()
    return registry()[aliases[name][0] if name in aliases else require_known("protocol", name, [*registry(), *aliases])]


def configure(name: str, options: Mapping[str, Any] | None = None) -> Mechanism:
    """The protocol of that name with these options and those that the name implies; all other fields are open.

    Raises :class:`InputError` for an unknown name, and for options that it has not or that contradict it.
    """
    kind, (_, chosen) = get_protocol(name), resolve(name, options or {})
    known = options_of(kind)
    for unknown in chosen.keys() - known.keys():
        way = f"Choose one of {', '.join(sorted(known))}" if known else "Leave it out"
        raise InputError(f"protocol {kind.name} has no option {unknown!r}{nearest(unknown, known)}. {way}.")
    return kind.read(chosen)
