"""Rows of a page's tables: what the row above says already is left out, so that groups of rows are seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def cells_of(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split(" | ")]


def said_once(rows: Iterable[str], names: int = 1) -> Iterator[str]:
    """The rows; those of the first ``names`` cells that repeat the row above are empty."""
    before: list[str] = []
    for row in rows:
        cells = cells_of(row)
        shown = ["" if cells[: place + 1] == before[: place + 1] else cells[place] for place in range(names)]
        before = cells
        yield f"| {' | '.join([*shown, *cells[names:]])} |"


def said_again(rows: Iterable[str], names: int = 1) -> Iterator[list[str]]:
    """The cells of such rows, with those that were left out."""
    before = [""] * names
    for row in rows:
        cells = cells_of(row)
        # A name that is new makes those right of it new, too.
        before = [cell or said for cell, said in zip(cells[:names], before, strict=True)]
        yield [*before, *cells[names:]]
