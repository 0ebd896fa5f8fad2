"""Tables as CSV for people: one below the other, with their titles and footnotes, as they are printed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from quietmean.studies.outcome.tables.model import ResultTable

# A spreadsheet takes cells that begin so for formulas. Numbers have a true minus sign.
_FORMULAS = ("=", "+", "-", "@")


def csv_text(tables: Sequence[ResultTable], made_by: str) -> str:
    """The tables as CSV, with the mark for UTF-8 that spreadsheets need; no cell is a formula."""
    file = io.StringIO()
    writer = csv.writer(file)
    for table in tables:
        writer.writerow([_inert(table.title)])
        writer.writerow(map(_inert, table.heads))
        for line in table.lines:
            name, *cells = line.cells
            writer.writerow(map(_inert, (f"{name} [{line.marked}]" if line.marks else name, *cells)))
        writer.writerows([_inert(f"[{mark}] {text}" if mark else text)] for mark, text in table.footnotes)
        writer.writerows([_inert(note)] for note in table.notes)
        writer.writerow([])
    writer.writerow([made_by])
    return f"\ufeff{file.getvalue()}"


def _inert(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULAS) else text
