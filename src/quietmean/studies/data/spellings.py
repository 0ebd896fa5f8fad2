"""How numbers and dates are written, cell by cell: no other cell, and no other row, decides how one is read.

The decimal mark is that of the settings, else a comma where semicolons are between the columns, and a point anywhere else.
Blanks and apostrophes before three digits are groups. Of both marks in one cell the last is decimal; one mark several times,
always before three digits, is of groups. The other mark alone is decimal, too, unless exactly three digits follow up to three
others, which do not begin with 0: ``1.234`` may be 1.234 or 1234, and counts as missing. A factor of a thousand is never guessed.

A cell with anything but a time behind its date is none.
"""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple, Self

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
    """How numbers are spelt in a source.

    ``mark``: the decimal mark. ``groups``: the mark of thousands, "" for none, None without a setting.
    """

    mark: str = "."
    groups: str | None = None

    @classmethod
    def of(cls, location: Location, delimiter: str = "") -> Self:
        """Make numerals by the settings of the source, else by what is between its columns."""
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


# Names of months, and their usual short forms, of one month a line.
_NAMES = """
jan january januar januari janv janvier jän jänner ene enero gen gennaio janeiro
feb february februar februari févr fév fevr février fevrier febrero febbraio fev fevereiro
mar march mär märz mrz maerz mars marzo março marco maart mrt
apr april avr avril abr abril aprile
may mai mayo maggio mag maio mei maj
jun june juni juin junio giugno giu junho
jul july juli juil juillet julio luglio lug julho
aug august août aout ago agosto augustus augusti
sep sept september septembre septiembre setiembre settembre set setembro
oct october okt oktober octobre octubre ottobre ott outubro out
nov november novembre noviembre novembro
dec december dez dezember déc décembre decembre dic diciembre dicembre dezembro des desember
"""
_MONTHS = {name: month for month, names in enumerate(_NAMES.split("\n")[1:-1], 1) for name in names.split()}
_MONTH = r"(?P<month>[^\W\d_]{3,10})\.?"
_YEAR, _DAY, _SHORT_YEAR = r"(?P<year>[0-9]{4})", r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?", r"(?P<year>[0-9]{2})"
_BETWEEN = r"(?:[-/]|[.,]? ?| de )"
# A time, and the zone of it, which may stand behind any date.
_ZONES = "Z|UTC|GMT|BST|WES?T|CES?T|EES?T|MSK|[ECMP][SD]T|JST|AE[SD]T"
_ZONE = rf"(?: ?(?:{_ZONES}|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)(?:\[[A-Za-z_]+(?:/[A-Za-z_]+)*\])?)?"
_CLOCK = (
    r"(?:[01]?[0-9]|2[0-4])(?P<colon>[:.])[0-5][0-9](?:(?P=colon)(?:[0-5][0-9]|60)(?:[.,][0-9]{1,12})?)?(?: ?[AaPp]\.?[Mm]\.?)?"
)
_DIGITS = r"(?:[01][0-9]|2[0-4])[0-5][0-9](?:[0-5][0-9](?:[.,][0-9]{1,12})?)?"
_TIME = rf"(?:(?:T| {{1,2}}|, |:){_CLOCK}{_ZONE}|T{_DIGITS}{_ZONE})?"
_WEEKDAY = r"(?:(?:mon|tue|tues|wed|wednes|thu|thurs|fri|sat|satur|sun)(?:day)?\.?,? )?"


def _forms(*forms: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(form, re.IGNORECASE) for form in forms)


# Whose day, month and year are clear. Dates with points have the day first everywhere.
_CLEAR = _forms(
    rf"{_YEAR}(?P<mark>[-/.])(?P<month>[0-9]{{1,2}})(?P=mark)(?P<day>[0-9]{{1,2}}){_TIME}",
    # As a number it may have decimals.
    rf"{_YEAR}(?P<month>[0-9]{{2}})(?P<day>[0-9]{{2}})(?:\.0+|{_TIME}|{_DIGITS}{_ZONE})",
    rf"(?P<day>[0-9]{{1,2}})\. ?(?P<month>[0-9]{{1,2}})\. ?{_YEAR}{_TIME}",
    rf"{_WEEKDAY}{_DAY}{_BETWEEN}{_MONTH}{_BETWEEN}{_YEAR}{_TIME}",
    rf"{_WEEKDAY}{_MONTH}{_BETWEEN}{_DAY}(?:[-/]|,? ){_YEAR}{_TIME}",
    rf"{_WEEKDAY}{_MONTH} {{1,2}}{_DAY} {_CLOCK}{_ZONE} {_YEAR}",
    rf"{_YEAR}{_BETWEEN}{_MONTH}{_BETWEEN}{_DAY}{_TIME}",
)
# Where the order of day and month or the century is stated, these are clear, too.
_SHORT = _forms(
    rf"{_WEEKDAY}{_DAY}{_BETWEEN}{_MONTH}{_BETWEEN}{_SHORT_YEAR}{_TIME}",
    rf"{_WEEKDAY}{_MONTH}{_BETWEEN}{_DAY}(?:[-/]|,? ){_SHORT_YEAR}{_TIME}",
)
_TWO = r"(?P<{}>[0-9]{{1,2}})(?P<mark>[-/.])(?P<{}>[0-9]{{1,2}})(?P=mark)(?P<year>[0-9]{{4}}|[0-9]{{2}})"
_ORDERS = {
    "day-first": (*_SHORT, *_forms(_TWO.format("day", "month") + _TIME)),
    "month-first": (*_SHORT, *_forms(_TWO.format("month", "day") + _TIME)),
}
_COUNT = re.compile(r"[+-]?[0-9]{1,15}(?:[.,][0-9]{1,20})?")
# Longer than any date.
_LONGEST = 80
_EPOCH = datetime.date(1970, 1, 1)
# Of two digits, years up to this one are of this century, as POSIX has it.
_LAST_OF_THIS_CENTURY = 68


class _Numbers(NamedTuple):
    """Days since a ``start``; where a number would be no day before the year 10 000, and ``a_day`` is not 0, shorter units."""

    start: datetime.date
    a_day: int = 0


# As programs number days; for Excel 1900 was a leap year.
_NUMBERED = {
    "excel": _Numbers(datetime.date(1899, 12, 30)),
    "excel-1904": _Numbers(datetime.date(1904, 1, 1)),
    "sas": _Numbers(datetime.date(1960, 1, 1), 86_400),
    "stata": _Numbers(datetime.date(1960, 1, 1), 86_400_000),
    "spss": _Numbers(datetime.date(1582, 10, 14), 86_400),
    "unix": _Numbers(datetime.date(1970, 1, 1), 86_400),
}
_LEAP_DAY_OF_EXCEL = 60


def stated_order(location: Location) -> str:
    """The setting of how dates are meant, or nothing."""
    return location.settings.get("dates", "")


def days_of(day: datetime.date) -> float:
    """Days since 1970-01-01; times of the day are left out."""
    if isinstance(day, datetime.datetime):
        day = day.date()
    return float((day - _EPOCH).days)


def date_of(text: str, order: str) -> datetime.date | None:
    """The date in a text without blanks around it, or None.

    ``order``: day-first or month-first, a program whose numbers of days these are, or "" without a setting.
    """
    if len(text) > _LONGEST:
        return None
    if order in _NUMBERED and _COUNT.fullmatch(text) and (day := _numbered(float(text.replace(",", ".")), order)) is not None:
        return day
    for form in (*_CLEAR, *_ORDERS.get(order, ())):
        if (matched := form.fullmatch(text)) is not None and (parts := _parts(matched)) is not None:
            try:
                return datetime.date(*parts)
            except ValueError:
                return None
    return None


def is_unclear_date(text: str) -> bool:
    """Is it a date whose order of day and month, century, or first day needs a setting?"""
    return date_of(text, "") is None and any(date_of(text, order) is not None for order in (*_ORDERS, *_NUMBERED))


def _parts(matched: re.Match[str]) -> tuple[int, int, int] | None:
    """Year, month and day; None where a name is of no month."""
    said, year = matched["month"], int(matched["year"])
    month = int(said) if said.isdecimal() else _MONTHS.get(unicodedata.normalize("NFC", said).lower())
    if len(matched["year"]) == 2:
        year += 2000 if year <= _LAST_OF_THIS_CENTURY else 1900
    return None if month is None else (year, month, int(matched["day"]))


def _numbered(number: float, program: str) -> datetime.date | None:
    numbers = _NUMBERED[program]
    if program == "excel" and number < _LEAP_DAY_OF_EXCEL + 1:
        # Its 29 February 1900 was not.
        return _after(numbers.start, number + 1) if number < _LEAP_DAY_OF_EXCEL else None
    day = _after(numbers.start, number)
    return _after(numbers.start, number / numbers.a_day) if day is None and numbers.a_day else day


def _after(start: datetime.date, days: float) -> datetime.date | None:
    try:
        return start + datetime.timedelta(days=int(days // 1))
    except OverflowError:
        return None
