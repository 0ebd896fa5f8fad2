"""All statistics by name: the modules of ``kinds``, and the entry points ``quietmean.statistics`` of other distributions."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.extensions import with_extensions
from quietmean.core.schema import parameters_of, require_known
from quietmean.statistics import kinds
from quietmean.statistics.aliases import own_name, said_by, values_of
from quietmean.statistics.names import READ_LATER, split, unquoted
from quietmean.statistics.nested import StatisticReader, install
from quietmean.statistics.statistic import Statistic

GROUP = "quietmean.statistics"
_NAME = re.compile(r"[\w-]+")
_TEXT = re.compile(r"\s*([^()`]+?)\s*\((.*)\)\s*", re.DOTALL)


@cache
def registry() -> dict[str, type[Statistic]]:
    """All statistics by name.

    Raises :class:`InputError` for a distribution whose statistic cannot be loaded or has the name of another one.
    """
    modules = sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))
    classes: list[type[Statistic]] = [importlib.import_module(f"{kinds.__name__}.{module}").STATISTIC for module in modules]
    return with_extensions({kind.name: kind for kind in classes}, GROUP, "statistic", Statistic)


def get_statistic(name: str, given: Sequence[str] = ()) -> type[Statistic]:
    """The kind of this name, or of a name that the field has for it; ``given``: the values behind it, for sentences.

    Raises :class:`InputError` for an unknown name, with the nearest one that is known.
    """
    known = registry()
    return known[require_known("statistic", own_name(name, known, given), known)]


def parse_statistic(raw: Mapping[str, Any]) -> Statistic:
    """From a table ``[[statistic]]`` of a study file. Raises :class:`InputError`."""
    kind = raw.get("kind")
    if not isinstance(kind, str):
        raise InputError(f'a [[statistic]] has no kind: add kind = "mean" or another of {", ".join(registry())}')
    own = with_own_name(raw)
    return get_statistic(own["kind"]).parse({name: value for name, value in own.items() if name != "kind"})


def with_own_name(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A table ``[[statistic]]`` with the kind's own name, and what another name says besides."""
    kind, known = raw.get("kind"), registry()
    return dict(raw) if not isinstance(kind, str) or kind in known else {**said_by(kind), **raw, "kind": own_name(kind, known)}


def read_text(text: str) -> dict[str, Any]:
    """The table that ``kind(value, ..., name=value, ...)`` means. Raises :class:`InputError`."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InputError(f"statistic {text!r} is not of the form kind(column, name=value): write for example mean(age)")
    parts = [part.strip() for part in split(match[2], ",") if part.strip()]
    kind = get_statistic(match[1], [part.partition("=")[2].strip() if _field_of(part) else part for part in parts])
    raw: dict[str, Any] = {"kind": kind.name, **said_by(match[1])}
    places = [name for name in kind.by_place if name not in raw]
    if "formula" not in kind.by_place:
        parts = [value for part in parts for value in values_of(part)]
    for part in parts:
        name = _field_of(part)
        value = part.partition("=")[2].strip() if name is not None else part
        if name is None:
            if kind.takes_all and len(places) <= 1:
                raw.setdefault(kind.by_place[-1], []).append(unquoted(part))
                places = []
                continue
            if not places:
                raise _too_many(text, kind, parts)
            name = places.pop(0)
        if name in raw:
            raise InputError(f"statistic {text!r} gives {name} twice: give it once")
        raw[name] = _data(kind, name, value)
    return kind.meant_in_words(raw) | raw


def _field_of(part: str) -> str | None:
    """The name before =; a statistic within another one has names of its own, and a name between backquotes is a value."""
    name, equals, _ = (word.strip() for word in part.partition("="))
    return name if equals and _NAME.fullmatch(name) else None


def _too_many(text: str, kind: type[Statistic], parts: Sequence[str]) -> InputError:
    if kind.by_place == ("formula",):
        outcome, *others = [part for part in parts if _field_of(part) is None]
        formula = f"{outcome} ~ {' + '.join(others)}"
        return InputError(f"statistic {text!r} has no formula. Write {kind.name}({formula}), the outcome first.")
    listed = ", ".join(kind.by_place) or "none"
    return InputError(f"statistic {text!r} has too many values without a name: {kind.name} takes {listed}")


def _data(kind: type[Statistic], key: str, text: str) -> Any:
    """JSON data for a field. An unknown field is kept as text and reported later, together with the known fields."""
    declared = next((parameter for parameter in parameters_of(kind).values() if parameter.key == key), None)
    if declared is None:
        return text
    is_name = declared.read is None and key not in READ_LATER
    return unquoted(text) if is_name and unquoted(text) != text else declared.data(text)


install(StatisticReader(read_text, parse_statistic))
