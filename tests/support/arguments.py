"""What each command takes, as its own parser says it: found once for all tests of a process, which ask hundreds of times."""

from __future__ import annotations

from functools import cache

from cyclopts import Argument

from quietmean.cli.main import app_of


@cache
def arguments_of(command: str) -> tuple[Argument, ...]:
    """All that a command such as "run" or "study seal" takes. Raises KeyError for one that is not there."""
    return tuple(app_of(command).assemble_argument_collection(parse_docstring=False))
