"""What is refused: a call, and words of the one sentence that says why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quietmean.core.errors import InputError

Errors = type[BaseException] | tuple[type[BaseException], ...]


def raised(error: Errors, words: str, call: Callable[..., object], /, *given: object, **named: object) -> str:
    """Return what the error says that ``call`` ends with, in which a search for ``words`` finds something."""
    with pytest.raises(error, match=words or None) as found:
        call(*given, **named)
    return str(found.value)


def refused(words: str, call: Callable[..., object], /, *given: object, **named: object) -> str:
    """Return the sentence by which ``call`` is refused: one line, in which no part of the machinery is named."""
    said = raised(InputError, words, call, *given, **named)
    assert said.strip() == said != ""
    assert not [part for part in ("\n", "Traceback", "pydantic", "msgspec", "<class", " at 0x") if part in said], said
    return said
