"""What a site calls the columns of a study, how it codes and measures them, and who its persons are: for its own eyes only.

It stands in the file of settings beside the data, as table [mapping], and decides about each cell from the cell alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from quietmean.core.cells import plain_name
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_class
from quietmean.core.schema import nearest

_FIELDS = ("name", "codes", "factor")
# Of one person in a study of records, as in a study that adds up a person's rows.
_MOST_ROWS = 1000


@dataclass(frozen=True)
class ColumnMapping:
    """``name``: the site's, or nothing where it is that of the study. ``codes``: the texts as which cells are read.

    ``factor``: by which numbers are multiplied, so that they have the study's unit.
    """

    name: str = ""
    codes: Mapping[str, str] = field(default_factory=dict)
    factor: float = 1.0


@dataclass(frozen=True)
class SiteMapping:
    """``columns``: by their names in the study. ``person``: the site's column that says whose a row is, if any; ``date``: the one
    by which the first or the last of a person's rows is chosen. ``rows_per_person``: how many rows of one person have values in
    a study of records, which costs the person as many times as much; public; None: not said."""

    columns: Mapping[str, ColumnMapping] = field(default_factory=dict)
    person: str = ""
    date: str = ""
    rows_per_person: int | None = None

    @classmethod
    def parse(cls, raw: object, place: str) -> Self:
        """From the table [mapping] of the file ``place``. Raises :class:`InputError` for anything else in it."""
        table = _table(raw, "mapping", place)
        _only(table, ("person", "date", "rows_per_person", "columns"), "mapping", place)
        for name, usual in (("person", "patient_id"), ("date", "visit_date")):
            if not isinstance(table.get(name, ""), str):
                raise InputError(f'[mapping] of {place} has a {name} that is not a name of a column: write {name} = "{usual}"')
        person, date = (plain_name(table.get(name, "")) for name in ("person", "date"))
        columns = _table(table.get("columns", {}), "mapping.columns", place)
        read = {plain_name(name): _column(column, name, place) for name, column in columns.items()}
        return cls(read, person, date, _rows_per_person(table.get("rows_per_person"), f"rows_per_person in [mapping] of {place}"))

    def of(self, column: str) -> ColumnMapping:
        return self.columns.get(plain_name(column), _UNCHANGED)

    def names(self, column_names: Collection[str]) -> dict[str, str]:
        """The site's names of the named columns."""
        return {plain_name(name): self.of(name).name or plain_name(name) for name in column_names}


_UNCHANGED = ColumnMapping()


@python_class
@dataclass(frozen=True, eq=False)
class FrameOfPersons:
    """A data frame with the name of its column that tells persons apart, which nobody else sees.

    ``date``: the column by which the first or the last of a person's rows is chosen, where a study asks for one of them.
    ``rows_per_person``: how many rows of one person have values in a study of records, which costs the person as many times as
    much; public.
    """

    data: Any = field(repr=False)
    person: str = field(repr=False)
    date: str = field(default="", repr=False)
    rows_per_person: int | None = None

    @property
    def mapping(self) -> SiteMapping:
        most = _rows_per_person(self.rows_per_person, "rows_per_person of the data frame")
        return SiteMapping(person=plain_name(self.person), date=plain_name(self.date), rows_per_person=most)


def _rows_per_person(raw: object, name: str) -> int | None:
    """Raises :class:`InputError` for no whole number from 1 to 1000."""
    if raw is None or (isinstance(raw, int) and not isinstance(raw, bool) and 1 <= raw <= _MOST_ROWS):
        return raw
    raise InputError(f"{name} is not a whole number from 1 to {_MOST_ROWS}. Write rows_per_person = 4")


def _column(raw: object, name: str, place: str) -> ColumnMapping:
    if isinstance(raw, str):
        return ColumnMapping(plain_name(raw))
    where = f"mapping.columns.{name}"
    table = _table(raw, where, place)
    _only(table, _FIELDS, where, place)
    codes, factor, called = table.get("codes", {}), table.get("factor", 1.0), table.get("name", "")
    if not isinstance(called, str):
        raise InputError(f'[{where}] of {place} has a name that is not a text: write name = "ALTER"')
    if not (isinstance(codes, Mapping) and all(isinstance(code, str | int | float) for code in codes.values())):
        raise InputError(f'[{where}] of {place} has codes that are none: write codes = {{ 1 = "f", 2 = "m", 9 = "" }}')
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not math.isfinite(factor) or factor == 0:
        raise InputError(f"[{where}] of {place} has a factor that is 0 or not a number: write factor = 0.4536")
    texts = {plain_name(code): str(text).lower() if isinstance(text, bool) else str(text) for code, text in codes.items()}
    return ColumnMapping(plain_name(called), texts, float(factor))


def _table(raw: object, where: str, place: str) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise InputError(f"{where} of {place} is not a table: write [{where}], and below it what is said")
    return raw


def _only(table: Mapping[str, Any], known: Collection[str], where: str, place: str) -> None:
    for name in table:
        if name not in known:
            raise InputError(f"[{where}] of {place} has {name!r}{nearest(name, known)}: there are {', '.join(known)}")
