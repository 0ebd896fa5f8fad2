"""Libraries that not everybody needs: extras of the distribution, named in one sentence where one is missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from shlex import quote
from typing import Any

from quietmean.core.errors import InputError


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
    """Instead of a page: how to get it."""
    then = f"quietmean certify {quote(receipt)} --report PAGE.html"
    return f"no page was written, pages need an extra: {command_for('report')}, then {then}"


def command_for(extra: str) -> str:
    """What installs an extra."""
    return f'pip install "quietmean[{extra}]"'


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """The module. Raises :class:`InputError` that says which ``extra`` ``what`` needs, if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        raise InputError(f"{purpose} needs the extra {extra!r}, which is not installed: {command_for(extra)}") from None
