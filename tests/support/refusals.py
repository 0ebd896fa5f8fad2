"""What is refused: a call, or a table of calls, and words of the one sentence that says why."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quietmean.core.errors import InputError

Errors = type[BaseException] | tuple[type[BaseException], ...]


def stops_twice(said: str) -> bool:
    """Whether a sentence ends with a full stop behind that of another text inside."""
    return re.search(r"[\w)'\"]\.\.(?:\s|$)|\.[;:]\s", said) is not None


def raised(error: Errors, words: str, call: Callable[..., object], /, *given: object, **named: object) -> str:
    """Return what the error says that ``call`` ends with, in which a search for ``words`` finds something."""
    with pytest.raises(error, match=words or None) as found:
        call(*given, **named)
    return str(found.value)


def refused(words: str, call: Callable[..., object], /, *given: object, **named: object) -> str:
    """Return the sentence by which ``call`` is refused: one line, in which no part of the machinery is named."""
    said = raised(InputError, words, call, *given, **named)
    assert said.strip() == said != ""
    assert not stops_twice(said), said
    assert not [part for part in ("\n", "Traceback", "pydantic", "msgspec", "<class", " at 0x") if part in said], said
    return said


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parents[1] / "data" / "refusals.toml").read_text("utf-8"))


def refused_table(name: str) -> list[dict[str, Any]]:
    """Return the rows of the table of this name in tests/data/refusals.toml."""
    found: list[dict[str, Any]] = _tables()[name]["rows"]
    return found


def refused_rows(name: str) -> pytest.MarkDecorator:
    """Return the rows of a table as cases of a test: their fields are its parameters."""
    cases = refused_table(name)
    return pytest.mark.parametrize(list(cases[0]), [list(case.values()) for case in cases])
