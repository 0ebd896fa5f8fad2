"""Pages and pictures show a result that is there already: whatever fails in them, the result is not lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quietmean.core.errors import QuietmeanError

_LONGEST = 200


@contextmanager
def only_shown(subject: str, tell: Callable[[str], None]) -> Iterator[None]:
    """What is done inside only shows a result: if it fails, for any reason, ``tell`` gets one sentence, and nothing is raised.

    ``what``: such as "report out/report.html". For what is done after the result is printed and stored.
    """
    try:
        yield
    except Exception as error:
        tell(f"{subject} was not made ({_reason(error)}); the result is complete, and so is its receipt")


def _reason(error: Exception) -> str:
    """A mistake of the user in its own words; of any other error its kind, for who mends it."""
    if isinstance(error, QuietmeanError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())[:_LONGEST]
    return f"a defect of quietmean, {type(error).__name__}{f': {text}' if text else ''}"
