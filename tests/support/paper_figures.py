"""Figures of papers from rows that tests make, and what they claim."""

from __future__ import annotations

from typing import Any

import polars as pl
from matplotlib.figure import Figure as Canvas

from quietmean_reproduction import registry
from quietmean_reproduction.figure import Claim, Effort, Figure
from quietmean_reproduction.style import paper_style


def frame(*rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return the table of all these rows."""
    return pl.DataFrame([row for part in rows for row in part], infer_schema_length=None)


def drawn_size(figure: Figure, rows: pl.DataFrame) -> int:
    """Draw a figure, and return how many axes it has."""
    with paper_style():
        canvas = Canvas(figsize=figure.size)
        figure.draw(rows, canvas)
        canvas.canvas.draw()
        return len(canvas.axes)


def by_text(claims: list[Claim]) -> dict[str, Claim]:
    """Return claims by their texts."""
    return {claim.text: claim for claim in claims}


def require_registered(figures: tuple[Figure, ...], names: list[str]) -> None:
    """Require that a paper's figures have these names, and tasks whatever the effort."""
    assert [figure.name for figure in figures] == names
    assert set(names) <= set(registry())
    for figure in figures:
        quick, full = (figure.tasks(effort) for effort in Effort)
        assert min(len(quick), len(full)) > 0
