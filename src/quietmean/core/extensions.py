"""Extensions from other distributions: classes found by entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from quietmean.core.errors import InputError

Kind = TypeVar("Kind")


def with_extensions(built_in: Mapping[str, Kind], group: str, word: str, base: type) -> dict[str, Kind]:
    """``built_in`` and the classes of the entry points of ``group``, by their attribute ``name``.

    Each is a complete subclass of ``base``; ``word`` names one in errors. Raises :class:`InputError` for an entry point that
    cannot be loaded, is another class, or has the name of another one.
    """
    kinds = dict(built_in)
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        kind = _load(entry, word, base)
        if kind.name in kinds:
            raise InputError(f"{word} {kind.name!r} ({entry.value}) is registered already: give it another name")
        kinds[kind.name] = kind
    return kinds


def loaded(entry: EntryPoint, word: str) -> Any:
    """Return what an entry point names. Raises :class:`InputError` for one that cannot be loaded; ``word``: what it is there."""
    try:
        return entry.load()
    # A module of another distribution may raise any exception when it is imported.
    except Exception as error:
        raise InputError(f"{word} {entry.name!r} ({entry.value}) cannot be loaded ({error}): mend or uninstall it") from error


def _load(entry: EntryPoint, word: str, base: type) -> Any:
    subject, kind = f"{word} {entry.name!r} ({entry.value})", loaded(entry, word)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise InputError(f"{subject} is not a subclass of {base.__name__}: mend or uninstall it")
    stated = {"name": getattr(kind, "name", None), "summary": getattr(getattr(kind, "TRAITS", kind), "summary", None)}
    missing = [name for name, text in stated.items() if not isinstance(text, str) or not text]
    missing += sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        raise InputError(f"{subject} does not define {', '.join(missing)}: mend or uninstall it")
    return kind
