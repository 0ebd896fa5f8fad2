"""Extensions from other distributions, found by entry points, and the extras of this one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires
from importlib.util import find_spec
from shlex import quote
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
            raise InputError(f"{word} {kind.name!r} ({entry.value}) is registered already. Give it another name.")
        kinds[kind.name] = kind
    return kinds


def loaded(entry: EntryPoint, word: str) -> Any:
    """Return what an entry point names. Raises :class:`InputError` for one that cannot be loaded; ``word``: what it is there."""
    try:
        return entry.load()
    # A module of another distribution may raise any exception when it is imported.
    except Exception as error:
        raise InputError(f"{word} {entry.name!r} ({entry.value}) cannot be loaded ({error}). Repair or uninstall it.") from error


def _load(entry: EntryPoint, word: str, base: type) -> Any:
    subject, kind = f"{word} {entry.name!r} ({entry.value})", loaded(entry, word)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise InputError(f"{subject} is not a subclass of {base.__name__}. Repair or uninstall it.")
    stated = {"name": getattr(kind, "name", None), "summary": getattr(getattr(kind, "TRAITS", kind), "summary", None)}
    missing = [name for name, text in stated.items() if not isinstance(text, str) or not text]
    missing += sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        raise InputError(f"{subject} does not define {', '.join(missing)}. Repair or uninstall it.")
    return kind


def is_installed(*modules: str) -> bool:
    """Are all of these there? None of them is imported."""
    return all(find_spec(module) is not None for module in modules)


# The libraries that pages need.
_REPORT = ("matplotlib", "jinja2")


def can_report() -> bool:
    """Can pages be written here?"""
    return is_installed(*_REPORT)


def require_report(purpose: str) -> None:
    """Raises :class:`InputError` if ``what`` cannot be written, for want of the extra."""
    for module in _REPORT:
        import_extra(module, "report", purpose)


def no_report_sentence(receipt: str) -> str:
    """The sentence that stands instead of a report: how to get it."""
    then = f"quietmean verify receipt {quote(receipt)} --report PAGE.html"
    return f"no report was written, reports need an extra: {command_for('report')}, then {then}"


def command_for(extra: str) -> str:
    """What installs an extra: its packages by their names, which works however quietmean itself was installed."""
    try:
        stated = requires("quietmean") or []
    except PackageNotFoundError:
        stated = []
    split = (line.partition(";") for line in stated)
    packages = [f'"{package.strip()}"' for package, _, of in split if re.search(rf"extra == ['\"]{extra}['\"]", of)]
    return f"pip install {' '.join(packages) or f'quietmean[{extra}]'}"


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """The module. Raises :class:`InputError` that says which ``extra`` ``what`` needs, if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        raise InputError(f"{purpose} needs the extra {extra!r}, which is not installed. Run {command_for(extra)}.") from None
