"""How numbers are written, cell by cell: no other cell, and no other row, decides how one is read.

The decimal mark is that of the settings, else a comma where semicolons are between the columns, and a point anywhere else.
Blanks and apostrophes before three digits are groups. Of both marks in one cell the last is decimal; one mark several times,
always before three digits, is of groups. The other mark alone is decimal, too, unless exactly three digits follow up to three
others, which do not begin with 0: ``1.234`` may be 1.234 or 1234, and counts as missing. A factor of a thousand is never guessed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Self

from quietmean.studies.data.location import Location

MARKS = {"comma": ",", "point": "."}
_PLAIN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_GROUPED = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+") for mark in ",."}
# Blanks of all kinds and apostrophes between digits only separate groups.
_BLANKS = re.compile(r"(?<=\d)[\u0020\u00a0\u2009\u202f'\u2019](?=\d{3}(?!\d))")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_THREE_DIGITS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
# The longest text of a number: a longer one is not a number, and could take arbitrarily long to convert.
LONGEST = 64


@dataclass(frozen=True)
class Numerals:
    """``mark``: the decimal mark. ``groups``: the mark of thousands, "" for none, None without a setting."""

    mark: str = "."
    groups: str | None = None

    @classmethod
    def of(cls, location: Location, delimiter: str = "") -> Self:
        """By the settings of the source, else by what is between its columns."""
        decimal, thousands = location.settings.get("decimal"), location.settings.get("thousands")
        if decimal is None and thousands is None:
            return cls("," if delimiter == ";" else ".")
        if decimal is None:
            mark = "," if thousands == "point" or (thousands == "none" and delimiter == ";") else "."
        else:
            mark = MARKS[decimal]
        return cls(mark, _other(mark) if thousands is None else MARKS.get(thousands, ""))

    def value(self, text: str) -> float | None:
        """The value of a text without blanks around it; None if it is not a number, or could be one of two."""
        if _INFINITE.fullmatch(text):
            return -math.inf if text.startswith("-") else math.inf
        text = _BLANKS.sub("", text[: LONGEST + 1].replace("\u2212", "-"))
        if len(text) > LONGEST:
            return None
        plain = self.with_point(text)
        return float(plain) if plain is not None and _PLAIN.fullmatch(plain) else None

    def is_unclear(self, text: str) -> bool:
        """Has it the other mark before exactly three digits, without a setting of what that mark is?"""
        text = _BLANKS.sub("", text)
        return self.groups is None and self.mark not in text and _THREE_DIGITS.fullmatch(text) is not None

    def with_point(self, text: str) -> str | None:
        """Return a number with a decimal point and without groups; None where the marks make no number."""
        other = _other(self.mark)
        if self.groups is not None:
            integer, mark, rest = text.partition(self.mark)
            if other in integer:
                if other != self.groups or not _GROUPED[other].fullmatch(integer):
                    return None
                integer = integer.replace(other, "")
            return integer + ("." if mark else "") + rest if other not in rest else None
        points, commas = text.count("."), text.count(",")
        if points and commas:
            return _last_is_decimal(text)
        if points + commas > 1:
            mark = "." if points else ","
            return text.replace(mark, "") if _GROUPED[mark].fullmatch(text) else None
        return None if self.is_unclear(text) else text.replace(",", ".")


def _last_is_decimal(text: str) -> str | None:
    """The number, with a decimal point, of a text with both marks: the last is decimal."""
    mark = max(",.", key=text.rfind)
    integer, _, rest = text.rpartition(mark)
    other = _other(mark)
    return f"{integer.replace(other, '')}.{rest}" if _GROUPED[other].fullmatch(integer) else None


def _other(mark: str) -> str:
    return "," if mark == "." else "."
