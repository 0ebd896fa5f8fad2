"""Rows of results as text, as HTML for notebooks, and as a data frame."""

from __future__ import annotations

import csv
import html
import io
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from quietmean.core.extensions import import_extra, is_installed
from quietmean.core.readable import SCREEN

Rows = Sequence[Mapping[str, Any]]


# The Python types of columns by name: of those that may be empty throughout.
Kinds = Mapping[str, type]


def frame_of(rows: Rows, kinds: Kinds | None = None) -> Any:
    """A frame of Polars, or of pandas where only that is there, one column for each key of the first row.

    ``kinds``: where it has every column, the frame has them also without rows. Raises :class:`InputError` where neither is there.
    """
    records = [dict(row) for row in rows]
    if not is_installed("polars") and is_installed("pandas"):
        pandas = import_extra("pandas", "tables", "making a data frame")
        heads = list(records[0] if records else kinds or ())
        numbers = {head: "float64" for head in heads if kinds is not None and kinds.get(head) is float}
        return pandas.DataFrame(records, columns=heads).astype(numbers)
    polars = import_extra("polars", "tables", "making a data frame")
    schema: dict[str, Any] = {"schema_overrides": kinds} if records else {"schema": kinds}
    return polars.DataFrame(records, infer_schema_length=None, **schema)


def csv_bytes(rows: Rows, heads: Sequence[str]) -> bytes:
    """Return rows as CSV (RFC 4180, UTF-8), exactly: numbers to the last digit, an empty cell for what is not known."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(heads)
    writer.writerows([_exact(row[head]) for head in heads] for row in rows)
    return text.getvalue().encode()


def _exact(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def table_text(rows: Rows) -> str:
    """Aligned columns under their names: numbers to the right, with five digits."""
    names = list(rows[0]) if rows else []
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    left = [isinstance(rows[0][name], str) for name in names]
    lines = (
        "  ".join(
            cell.ljust(width) if words else cell.rjust(width) for cell, width, words in zip(line, widths, left, strict=True)
        )
        for line in cells
    )
    return "\n".join(line.rstrip() for line in lines)


# Between the columns of a table.
_BETWEEN = "  "


def aligned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The lines of each row of a table whose first row has the heads: names to the left, numbers to the right.

    A row of one text has no columns. Where a line would be longer than the screen, heads take several lines; then long names
    stand above their numbers; then each number stands behind its head.
    """
    full = [row for row in rows if len(row) > 1]
    heads, body = full[0][1:], [row[1:] for row in full[1:]]
    names = max(len(row[0]) for row in full)
    parts = [[head] for head in heads]
    widths = _widths(parts, body)
    if names + _with_gaps(widths) > SCREEN:
        parts = [_head_in_lines(head) for head in heads]
        widths = _widths(parts, body)
    room = SCREEN - _with_gaps(widths)
    if room < _LEAST_NAME:
        return [[], *([row[0], *_behind_heads(heads, row)] if len(row) > 1 else [row[0]] for row in rows[1:])]
    column, tall = min(names, room), max(map(len, parts))
    over = [[*[""] * (tall - len(part)), *part] for part in parts]
    named = [*[""] * (tall - 1), full[0][0]]
    lines = [[_line(name, cells, widths, column) for name, cells in zip(named, zip(*over, strict=True), strict=True)]]
    for row in rows[1:]:
        name, *cells = row
        if not cells:
            lines.append([name])
        elif len(name) > room:
            lines.append([name, _line("", cells, widths, column)])
        else:
            lines.append([_line(name, cells, widths, column)])
    return lines


# A head is broken before these words; a name has so much room at least.
_BREAK, _LEAST_NAME = re.compile(r" (?=error\b|of noise\b|interval\b|the noise\b)|(?<=without) |(?<=true,) | (?=\(private\))"), 4


def _head_in_lines(head: str) -> list[str]:
    return _BREAK.split(head)


def _widths(heads: Sequence[Sequence[str]], body: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, (*head, *(row[column] for row in body)))) for column, head in enumerate(heads)]


def _with_gaps(widths: Sequence[int]) -> int:
    return sum(width + len(_BETWEEN) for width in widths)


def _line(name: str, cells: Sequence[str], widths: Sequence[int], names: int) -> str:
    numbers = _BETWEEN.join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"{name.ljust(names)}{_BETWEEN}{numbers}".rstrip()


def _behind_heads(heads: Sequence[str], row: Sequence[str]) -> list[str]:
    """Each number of a row behind the head of its column, below the name."""
    indent = " " * (len(row[0]) - len(row[0].lstrip()) + len(_BETWEEN))
    said = "; ".join(f"{head} {cell}" for head, cell in zip(heads, row[1:], strict=True) if cell)
    return textwrap.wrap(said, SCREEN, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def table_html(rows: Rows) -> str:
    """Return rows as an HTML table."""
    names = list(rows[0]) if rows else []
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(_cell(row[name]))}</td>' for name in names)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


class Tabular(ABC):
    """A result that is a table: as a frame, and in a notebook."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a row, with the same keys in each."""

    def kinds(self) -> Kinds | None:
        """The types of the columns, where some may be empty."""
        return None

    def to_frame(self) -> Any:
        """The rows as a frame of Polars, or of pandas where only that is there. Raises :class:`InputError` where neither is."""
        return frame_of(self.rows(), self.kinds())

    def _repr_html_(self) -> str:
        return table_html(self.rows())
