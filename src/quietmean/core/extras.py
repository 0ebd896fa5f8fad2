"""Libraries that not everybody needs: extras of the distribution, named in one sentence where one is missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from quietmean.core.errors import InputError


def is_installed(*modules: str) -> bool:
    """Are all of these there? None of them is imported."""
    return all(find_spec(module) is not None for module in modules)


def command_for(extra: str) -> str:
    """What installs an extra."""
    return f'pip install "quietmean[{extra}]"'


def import_extra(module: str, extra: str, what: str) -> Any:
    """The module. Raises :class:`InputError` that says which ``extra`` ``what`` needs, if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        raise InputError(f"{what} needs the extra {extra!r}, which is not installed: {command_for(extra)}") from None
