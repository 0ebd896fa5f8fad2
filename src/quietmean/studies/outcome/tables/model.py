"""A table as texts, whatever document it will stand in."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

# Marks of footnotes, in their order; beyond z they are doubled.
_MARKS = "abcdefghijklmnopqrstuvwxyz"
# Categories of characters that are invisible: controls; and those that change the direction of a text.
_UNSEEN = ("Cc", "Cs", "Co", "Cn")
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """On one line, without characters that are invisible or change the direction: names come from study files."""
    seen = (
        " " if character.isspace() else "\ufffd" if unicodedata.category(character) in _UNSEEN else character
        for character in text
        if character not in _TURNING
    )
    return " ".join("".join(seen).split(" ")).strip()


def mark(number: int) -> str:
    """The mark of a footnote: a, b ... z, aa, bb ..."""
    return _MARKS[number % len(_MARKS)] * (number // len(_MARKS) + 1)


@dataclass(frozen=True)
class Line:
    """A row: the first cell names it. ``marks``: of the footnotes that are about it."""

    cells: tuple[str, ...]
    marks: tuple[str, ...] = ()

    @property
    def marked(self) -> str:
        """All marks, with commas."""
        return ",".join(self.marks)


@dataclass(frozen=True)
class ResultTable:
    """``title``, ``heads``, as many as each line has cells, and what stands below: ``footnotes`` with marks, and ``notes``."""

    title: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    footnotes: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        title: str,
        heads: Iterable[str],
        lines: Iterable[Line],
        footnotes: Iterable[tuple[str, str]] = (),
        notes: Iterable[str] = (),
    ) -> Self:
        """A table with all texts cleaned by :func:`clean`."""
        return cls(
            clean(title),
            tuple(map(clean, heads)),
            tuple(Line(tuple(map(clean, line.cells)), line.marks) for line in lines),
            tuple((note_mark, clean(text)) for note_mark, text in footnotes),
            tuple(map(clean, notes)),
        )
