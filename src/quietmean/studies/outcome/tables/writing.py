"""Which document tables are written to: by the end of its name, through the one safe writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra
from quietmean.core.output import FROM_PYTHON, Output, Recognises
from quietmean.studies.outcome.tables.build import tables_of
from quietmean.studies.outcome.tables.model import ResultTable
from quietmean.studies.outcome.tables.rendered import html_text, latex, latex_text
from quietmean.studies.outcome.tables.spreadsheet import csv_text
from quietmean.studies.outcome.tables.word import is_word_of, word_bytes

# The mark of every document of tables, by which it is recognised.
MADE_BY = "Tables of a study, made with quietmean"


@dataclass(frozen=True)
class Format:
    """How tables become bytes, how a file of the kind is known again, and the library that it needs."""

    bytes_of: Callable[[Sequence[ResultTable], str], bytes]
    kind: Recognises
    needs: str | None = None


def _says(mark: str) -> Recognises:
    return lambda content: mark.encode() in content


FORMATS: Mapping[str, Format] = {
    ".docx": Format(word_bytes, lambda content: is_word_of(content, MADE_BY), "docx"),
    ".tex": Format(lambda tables, by: latex_text(tables, by).encode(), _says(latex(MADE_BY)), "jinja2"),
    ".html": Format(lambda tables, by: html_text(tables, by).encode(), _says(MADE_BY), "jinja2"),
    ".csv": Format(lambda tables, by: csv_text(tables, by).encode(), _says(MADE_BY)),
}


def format_of(path: Path) -> Format:
    """The format by the end of the name. Raises :class:`InputError` for an unknown one, and without its library."""
    chosen = FORMATS.get(path.suffix.lower())
    if chosen is None:
        raise InputError(f"tables cannot be written to {path.name}: let its name end with {_any_of(FORMATS)}")
    if chosen.needs is not None:
        import_extra(chosen.needs, "documents", f"a table that ends with {path.suffix}")
    return chosen


def _any_of(names: Mapping[str, Any]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def tables_at(path: Path, force: bool = False, option: str = "--table", **more: Any) -> Output:
    """Where tables go: with ``force`` in the place of other tables; ``more``: the fields of :class:`Output`.

    Raises :class:`InputError` for a format that is not known.
    """
    return Output(path, "the table", option, kind=format_of(path).kind, force=force, **more)


def tables_bytes(result: Mapping[str, Any], path: Path) -> bytes:
    """The document of a kind that ``path`` ends with, of a result, the JSON of which is in a receipt too.

    Raises :class:`InputError` as :func:`format_of` and :func:`tables_of`.
    """
    return format_of(path).bytes_of(tables_of(result), MADE_BY)


def write_tables(result: Mapping[str, Any], path: Path, force: bool = False) -> None:
    """From Python. Raises :class:`InputError` as :func:`tables_bytes`, and for another file that is there."""
    tables_at(path, force, option="", saying_so=FROM_PYTHON).write(tables_bytes(result, path))
