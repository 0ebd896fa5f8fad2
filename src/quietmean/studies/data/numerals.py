"""How numbers are written: decimal point or decimal comma, and marks between groups of three digits.

Between commas, numbers have a decimal point; where most numbers of a column have a comma instead, the file is refused. In any
other text the cells decide, and one cell never does against many: ``61,5`` and ``1.234,5`` are written with a decimal comma,
``61.5`` and ``0.123`` with a point; ``1.234`` alone may be either, and a file that has nothing but such numbers is refused until
its owner says which.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from quietmean.core.errors import InputError
from quietmean.studies.data.location import Location

# The part of the cells that decide which must agree.
_AGREE = 0.9
_PLAIN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_WITH_POINT = re.compile(r"[+-]?(\d*\.\d+|\d+\.)([eE][+-]?\d+)?")
_WITH_COMMA = re.compile(r"[+-]?(\d*,\d+|\d+,)([eE][+-]?\d+)?")
# Of groups of three digits: with points (and perhaps a comma), with commas (and perhaps a point).
_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?")
_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
# Blanks of all kinds and apostrophes between groups mean nothing else.
_BLANKS = re.compile(r"(?<=\d)[\u0020\u00a0\u2009\u202f'\u2019](?=\d{3}(?!\d))")
_SPECIAL = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "infinity": math.inf, "-infinity": -math.inf}


@dataclass(frozen=True)
class Numerals:
    """``mark``: the decimal mark. ``grouped``: is it known well enough that the other one stands between groups of digits?"""

    mark: str = "."
    grouped: bool = False

    @classmethod
    def found(cls, columns: Sequence[Sequence[str]], location: Location, *, point: bool) -> Self:
        """From what was said of the file, or from the cells of its ``columns`` of numbers; ``point``: commas are between them.

        Raises :class:`InputError` if they may be read in two ways.
        """
        said = location.said.get("decimal")
        if said is not None:
            return cls("," if said == "comma" else ".", True)
        points, commas, either = _evidence(itertools.chain.from_iterable(columns))
        if point:
            if not points and any(map(_mostly_with_comma, columns)):
                # Not one cell but most: the file as a whole is written so.
                raise InputError(
                    f"commas are between the columns of {location.name}, and in most of its numbers: say what they are there, "
                    f"{location.name}#decimal=comma or {location.name}#decimal=point"
                )
            return cls(".", points > 0)
        if points + commas == 0:
            if either:
                raise InputError(
                    f"numbers in {location.name} have one mark before three digits, for thousands or for decimals: say "
                    f"which mark is decimal, {location.name}#decimal=comma or {location.name}#decimal=point"
                )
            return cls()
        if max(points, commas) < _AGREE * (points + commas):
            raise InputError(
                f"some numbers in {location.name} have a decimal point and some a decimal comma: say which is right, "
                f"{location.name}#decimal=comma or {location.name}#decimal=point; others count as missing then"
            )
        return cls("." if points > commas else ",", True)

    def value(self, text: str) -> float | None:
        """Of a text without blanks around it; None if it is no number."""
        if _PLAIN.fullmatch(text) and (self.mark == "." or "." not in text):
            return float(text)
        if text.lower() in _SPECIAL:
            return _SPECIAL[text.lower()]
        text = _BLANKS.sub("", text.replace("\u2212", "-"))
        other = "," if self.mark == "." else "."
        if self.grouped and (_COMMAS if self.mark == "." else _POINTS).fullmatch(text):
            text = text.replace(other, "")
        if other in text:
            return None
        text = text.replace(self.mark, ".")
        return float(text) if _PLAIN.fullmatch(text) else None


def _mostly_with_comma(texts: Sequence[str]) -> bool:
    """Are most of the cells that hold something numbers with a comma? One alone decides nothing."""
    _, commas, either = _evidence(text for text in texts if "," in text)
    return commas + either > max(1, sum(map(bool, texts)) / 2)


def _evidence(texts: Iterable[str]) -> tuple[int, int, int]:
    """How many texts have a decimal point, how many a decimal comma, and how many may have either."""
    points = commas = either = 0
    for text in texts:
        if "." not in text and "," not in text:
            continue
        text = _BLANKS.sub("", text)
        grouped_points, grouped_commas = _POINTS.fullmatch(text), _COMMAS.fullmatch(text)
        if grouped_points:
            # A second point, or a comma behind, can only be a group.
            sure = "," in text or text.count(".") > 1
            commas, either = commas + sure, either + (not sure)
        elif grouped_commas:
            sure = "." in text or text.count(",") > 1
            points, either = points + sure, either + (not sure)
        elif _WITH_POINT.fullmatch(text):
            points += 1
        elif _WITH_COMMA.fullmatch(text):
            commas += 1
    return points, commas, either
