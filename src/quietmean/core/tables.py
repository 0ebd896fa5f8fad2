"""Rows of results as text, as HTML for notebooks, and as a data frame."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quietmean.core.extras import import_extra

if TYPE_CHECKING:
    from polars import DataFrame

Rows = Sequence[Mapping[str, Any]]


def frame_of(rows: Rows) -> DataFrame:
    """A Polars frame, one column for each key of the first row. Raises :class:`InputError` if Polars is not installed."""
    frame: DataFrame = import_extra("polars", "tables", "making a data frame").DataFrame([dict(row) for row in rows])
    return frame


def table_text(rows: Rows) -> str:
    """Aligned columns under their names: numbers to the right, with five digits."""
    names = list(rows[0]) if rows else []
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(names))]
    left = [isinstance(rows[0][name], str) for name in names]
    lines = (
        "  ".join(
            cell.ljust(width) if words else cell.rjust(width) for cell, width, words in zip(line, widths, left, strict=True)
        )
        for line in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def table_html(rows: Rows) -> str:
    """The same as an HTML table."""
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

    def to_frame(self) -> DataFrame:
        """The rows as a Polars frame."""
        return frame_of(self.rows())

    def _repr_html_(self) -> str:
        return table_html(self.rows())
