"""Tables that a query may name, as the reader of their source reads them: types follow from declarations, never from cells."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from quietmean.core.errors import InputError
from quietmean.studies.data.table import Pieces

# What a declared type is read as, by how it begins; any other is a text.
_TYPES: Final = (
    (re.compile(r"(TINY|SMALL|MEDIUM|BIG)?INT(EGER)?\b|INT[248]\b|U(TINYINT|SMALLINT|INTEGER)\b|(SMALL|BIG)?SERIAL\b"), "BIGINT"),
    (re.compile(r"FLOAT|REAL|DOUBLE|NUMERIC|DECIMAL|NUMBER|MONEY|U?HUGEINT|UBIGINT"), "DOUBLE"),
    (re.compile(r"DATE\b"), "DATE"),
    (re.compile(r"TIMESTAMP|DATETIME"), "TIMESTAMP"),
)
_NAME = r'(?:"(?:[^"]|"")+"|[\w$]+)'
_VIEW: Final = re.compile(
    rf"\s*CREATE\s+(?:TEMP\s+|TEMPORARY\s+)?VIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}(?:\s*\.\s*{_NAME})*\s+AS\b(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)


def type_declared(declaration: str) -> str:
    """VARCHAR, BIGINT, DOUBLE, DATE or TIMESTAMP."""
    word = declaration.strip().upper()
    return next((kind for begins, kind in _TYPES if begins.match(word) and not word.endswith("[]")), "VARCHAR")


@dataclass(frozen=True)
class Listed:
    """A table or view of a source. ``definition``: the SELECT of a view; ``reason``: what it is that is not read row by row."""

    schema: str
    name: str
    definition: str = field(default="", repr=False)
    reason: str = ""
    # Whether its name alone means it.
    visible: bool = True

    @property
    def called(self) -> str:
        """As statements of its source call it."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def is_table(self) -> bool:
        return not (self.definition or self.reason)


class Tables(ABC):
    """The tables of one source."""

    # What messages call the source.
    place: str

    @abstractmethod
    def all(self) -> Collection[Listed]:
        """All tables and views."""

    @abstractmethod
    def chosen(self, column_names: Collection[str]) -> Listed:
        """Return the table that was named, or the only one with these columns. Raises :class:`InputError` if there is none."""

    @abstractmethod
    def selected(self, query: str, column_names: Collection[str]) -> Pieces:
        """Yield what the source itself makes of a query, whose owner declares that it lets rows decide about others."""

    @abstractmethod
    def columns(self, table: Listed) -> list[tuple[str, str]] | None:
        """Names and types (:func:`type_declared`); None where a table has whatever column is asked for."""

    @abstractmethod
    def pieces(self, table: Listed, column_names: Collection[str]) -> Pieces:
        """The rows in these columns."""

    def find(self, schema: str, name: str) -> Listed | None:
        """The one that a query means. Raises :class:`InputError` where it may be one of several."""
        same = [
            one
            for one in self.all()
            if one.name.casefold() == name.casefold() and (one.schema.casefold() == schema.casefold() if schema else one.visible)
        ]
        if len(same) > 1:
            raise InputError(f"{self.place} has {len(same)} tables {name!r}. Name one with its schema")
        return same[0] if same else None


def definition_of_view(statement: str) -> str | None:
    """The SELECT of CREATE VIEW; None where it names its columns or is none."""
    matched = _VIEW.fullmatch(statement)
    return matched["query"].strip().rstrip(";") if matched else None


def quoted(name: str) -> str:
    """A name as statements have it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as statements have it."""
    return "'" + text.replace("'", "''") + "'"


def not_row_by_row(what: str, place: str) -> InputError:
    """That it is not known how rows of a relation come about."""
    return InputError(f"{what} of {place} is not read row by row. Name a table, or declare query_mixes_rows = true")
