"""The error tree. Every error that a person can meet carries the exit code of the command line.

Pages and pictures show a result that is there already: whatever fails in them, the result is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

# Around the name of a field in the text of an error, and between its values.
_BEGIN, _BETWEEN, _END = "\x02", "\x1f", "\x03"
_FIELD = re.compile(f"{_BEGIN}([^{_END}]*){_END}")
# What is given as the value of an option that takes none.
_YES = "True"
# How a question says what a column has.
OF_COLUMNS = {
    "bounds": "NAME in LOW..HIGH",
    "levels": "NAME in {A, B}",
    "boolean": "NAME in yes/no",
    "dates": "NAME in FIRST..LAST",
    # Where a domain stands alone.
    "alone": "an argument of its own",
}
# Whether a command calls: its errors name its options.
BY_COMMAND: ContextVar[bool] = ContextVar("by command", default=False)
# How a front end calls a field: its name with hyphens, what its values are called, and what a study file has in its place.
Words = Callable[[str, Sequence[str], str], str]


def named(field: str, *values: str, file: str = "") -> str:
    """A field that a sentence is about, which the front end names: as an option, a keyword or an argument.

    ``values``: what its values are called, such as LOW and HIGH, or "True" of what is only said. ``file``: what a study file
    has in its place.
    """
    return f"{_BEGIN}{_BETWEEN.join([field, file, *values])}{_END}"


def as_option(field: str, values: Sequence[str], file: str) -> str:
    """A field as an option of the command, or as a part of a question."""
    option = " ".join([f"--{field}", *(value for value in values if value != _YES)])
    return OF_COLUMNS.get(field, option) + (f" (in a study file {file})" if file else "")


def in_sentences(*texts: object) -> str:
    """Texts one behind the other, each of which is a sentence and ends with a full stop."""
    said = [str(text) for text in texts if str(text)]
    return " ".join(text if text.endswith((".", "?", "!")) else f"{text}." for text in said)


def as_sentence(clause: str) -> str:
    """A clause as a sentence of its own."""
    return in_sentences(clause[:1].upper() + clause[1:])


class QuietmeanError(Exception):
    """Base of all errors that quietmean raises on purpose."""

    exit_code = 3
    # How fields are called in the sentence; a front end sets its own.
    words: Words = staticmethod(as_option)

    @property
    def text(self) -> str:
        """The sentence with its fields as :func:`named` gave them, for another error that has it inside."""
        return super().__str__()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the sentence names, in their order."""
        return tuple(field[1].split(_BETWEEN)[0] for field in _FIELD.finditer(self.text))

    def __str__(self) -> str:
        """A sentence may quote what a stranger wrote: nothing of it changes a screen."""
        said = _FIELD.sub(self._called, self.text)
        return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in said)

    def _called(self, field: re.Match[str]) -> str:
        name, file, *values = [*field[1].split(_BETWEEN), ""][: max(2, field[1].count(_BETWEEN) + 1)]
        return self.words(name, values, file)


class InputError(QuietmeanError):
    """The user's mistake: one sentence that names the value and the remedy. Exit code 2."""

    exit_code = 2


class ProtocolFailure(QuietmeanError):
    """A protocol could not finish (too few parties, a peer that never connected). Exit code 3.

    ``charged``: what stays charged, in words; ``receipt``: the file that says so, and why there is no answer. Empty and None
    where nothing is known to be paid for.
    """

    charged: str = ""
    receipt: Path | None = None

    def paid(self, charged: str, receipt: Path | None = None) -> Self:
        """Return this error with what stays charged, which its sentence says where there is a ``receipt``."""
        self.charged, self.receipt = charged, receipt
        if receipt is not None:
            self.args = (f"{self.text}; charged: {charged}; receipt {receipt}",)
        return self


class NothingPublished(ProtocolFailure):
    """A protocol ended without a result, and it is certain that nobody can have one: what was charged may be given back."""


class OutOfReach(ProtocolFailure):
    """Too few others can be reached for a round, and nothing of it was begun: they are away, or have ended the session."""


class NotStarted(ProtocolFailure):
    """A study did not start, or started without this party: nothing of its data has left.

    ``for_good``: it never will in this study; else the same command may try again. ``refunded``: whether what was reserved for it
    was given back.
    """

    def __init__(self, sentence: str, *, for_good: bool = True, refunded: bool = False) -> None:
        super().__init__(sentence)
        self.for_good, self.refunded = for_good, refunded


class NotYet(QuietmeanError):
    """A study goes on, and this process has done all that it could: start it again later. Exit code 4."""

    exit_code = 4


class StorageError(QuietmeanError):
    """A disk or the memory of this machine refuses for now: the same command goes on later. Exit code 75, EX_TEMPFAIL."""

    exit_code = 75


class PeerError(QuietmeanError):
    """A peer sent something that this protocol does not allow: an error of the peer, not of the local user."""


class NumericalError(QuietmeanError):
    """A solver could not certify its answer to the stated accuracy; no number is returned instead."""


def unfit_field(name: str, reason: str) -> InputError:
    """A field of a document holds something else than it should."""
    return InputError(f"field {name!r} is not as it should be: {reason}")


def reason_of(error: BaseException) -> str:
    """Why, in the system's words, without its number and without the path, which the sentence around it has."""
    if isinstance(error, IsADirectoryError):
        return "it is a folder"
    return str(getattr(error, "strerror", None) or error)


_LONGEST = 200


@contextmanager
def only_shown(subject: str, tell: Callable[[str], None]) -> Iterator[None]:
    """What is done inside only shows a result: if it fails, for any reason, ``tell`` gets one sentence, and nothing is raised.

    ``what``: such as "report out/report.html". For what is done after the result is printed and stored.
    """
    try:
        yield
    except Exception as error:
        tell(in_sentences(f"{subject} was not made ({_reason(error)})", "The result is complete, and so is its receipt"))


def _reason(error: Exception) -> str:
    """A mistake of the user in its own words; of any other error its kind, for who mends it."""
    if isinstance(error, QuietmeanError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())[:_LONGEST]
    return f"a defect of quietmean, {type(error).__name__}{f': {text}' if text else ''}"
