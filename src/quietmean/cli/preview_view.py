"""How a look at the data is shown to their owner: on a screen, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from quietmean.cli.console import err, out, output_options, printable, whole_words
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of

if TYPE_CHECKING:
    from quietmean.statistics import Columns
    from quietmean.studies.data import Preview


def show_before_yes(data: str | Path, columns: Columns) -> None:
    """What a study finds in the data, where a person sits before the screen: what goes to a file or a log has no cell in it."""
    from quietmean.studies.data import Location, Preview

    if not (out.is_terminal and err.is_terminal) or output_options.quiet or output_options.json:
        return
    try:
        preview = Preview.of(data, columns)
    except InputError:
        # The command that reads the data afterwards reports the error.
        return
    show(preview)
    if preview.proposed:
        out.print(f"{proposal(preview)}: see quietmean data {quote(printable(Location.of(data).path.name))} STUDY")


def proposal(preview: Preview) -> str:
    """How the file may be read so that more cells are understood."""
    settings = ", ".join(f"{name} = {value}" for name, value in preview.proposed.items())
    return (
        f"{count_of(preview.gained, 'more cell')} would be understood with {settings}"
        if preview.gained
        else f"it may be written with {settings}"
    )


def show(preview: Preview) -> None:
    """Counts by column, what needs attention, and the first and last rows."""
    from rich.table import Table

    out.print(
        f"{printable(preview.place)}: {count_of(preview.records, 'record')} (for you only: the next lines have "
        "cells of your data)",
    )
    for sentence in preview.sentences:
        err.print(f"quietmean: {printable(sentence)} (for you only)")
    table = Table(box=None, pad_edge=False)
    for title in ("column", "holds", "missing", "outside", "not understood", "least", "most"):
        table.add_column(title, justify="left" if title in ("column", "holds") else "right")
    for column in preview.columns:
        counts = [f"{count:,}" for count in (column.missing, column.outside, column.strange)]
        table.add_row(printable(column.name), column.kind, *counts, *column.ends)
    out.print(whole_words(table))
    rows = Table(box=None, pad_edge=False, title="first and last rows", title_justify="left")
    rows.add_column("")
    for column in preview.columns:
        rows.add_column(printable(column.name))
    for row in (*preview.first, *preview.last):
        rows.add_row(*map(printable, row))
    out.print(whole_words(rows))
