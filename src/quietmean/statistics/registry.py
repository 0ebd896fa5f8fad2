"""All statistics by name: the modules of ``kinds``, and the entry points ``quietmean.statistics`` of other distributions."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.extensions import with_extensions
from quietmean.core.schema import parameters_of, require_known
from quietmean.statistics import kinds
from quietmean.statistics.names import READ_LATER, split, unquoted
from quietmean.statistics.nested import StatisticReader, install
from quietmean.statistics.statistic import Statistic

GROUP = "quietmean.statistics"
_NAME = re.compile(r"[\w-]+")
_TEXT = re.compile(r"\s*([a-z0-9-]+)\s*\((.*)\)\s*", re.DOTALL)


@cache
def registry() -> dict[str, type[Statistic]]:
    """All statistics by name.

    Raises :class:`InputError` for a distribution whose statistic cannot be loaded or has the name of another one.
    """
    modules = sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))
    classes: list[type[Statistic]] = [importlib.import_module(f"{kinds.__name__}.{module}").STATISTIC for module in modules]
    return with_extensions({kind.name: kind for kind in classes}, GROUP, "statistic", Statistic)


def get_statistic(name: str) -> type[Statistic]:
    """Raises :class:`InputError` for an unknown name, with the nearest one that is known."""
    return registry()[require_known("statistic", name, registry())]


def parse_statistic(raw: Mapping[str, Any]) -> Statistic:
    """From a table ``[[statistic]]`` of a study file. Raises :class:`InputError`."""
    kind = raw.get("kind")
    if not isinstance(kind, str):
        raise InputError(f'a [[statistic]] has no kind: add kind = "mean" or another of {", ".join(registry())}')
    return get_statistic(kind).parse({name: value for name, value in raw.items() if name != "kind"})


def read_text(text: str) -> dict[str, Any]:
    """The table that ``kind(value, ..., name=value, ...)`` stands for. Raises :class:`InputError`."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InputError(f"statistic {text!r} is not of the form kind(column, name=value): write for example mean(age)")
    kind = get_statistic(match[1])
    raw: dict[str, Any] = {"kind": kind.name}
    places = list(kind.by_place)
    for part in filter(None, (part.strip() for part in split(match[2], ","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        # A statistic within another one has names of its own.
        if not equals or not _NAME.fullmatch(name):
            if kind.takes_all and len(places) <= 1:
                raw.setdefault(kind.by_place[-1], []).append(unquoted(part))
                places = []
                continue
            if not places:
                listed = ", ".join(kind.by_place) or "none"
                raise InputError(f"statistic {text!r} has too many values without a name: {kind.name} takes {listed}")
            name, value = places.pop(0), part
        if name in raw:
            raise InputError(f"statistic {text!r} gives {name} twice: give it once")
        raw[name] = _data(kind, name, value)
    return kind.meant_in_words(raw) | raw


def _data(kind: type[Statistic], key: str, text: str) -> Any:
    """JSON data for a field. An unknown field is kept as text and reported later, together with the known fields."""
    declared = next((parameter for parameter in parameters_of(kind).values() if parameter.key == key), None)
    if declared is None:
        return text
    is_name = declared.read is None and key not in READ_LATER
    return unquoted(text) if is_name and unquoted(text) != text else declared.data(text)


install(StatisticReader(read_text, parse_statistic))
