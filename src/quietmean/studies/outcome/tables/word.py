"""Tables as a Word document, by python-docx."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quietmean.core.extras import import_extra
from quietmean.studies.outcome.tables.model import Line, ResultTable

if TYPE_CHECKING:
    from docx.document import Document

_SMALL = 8
# A row of heads is repeated on each page.
_HEAD = "tblHeader"
# Two documents of the same tables are the same bytes: the day that zip files begin with.
_NO_DAY = (1980, 1, 1, 0, 0, 0)
PART = "docProps/core.xml"


def word_bytes(tables: Sequence[ResultTable], made_by: str) -> bytes:
    """A document with all tables, each with its footnotes below. Raises :class:`InputError` without the extra."""
    document: Document = import_extra("docx", "documents", "a Word document").Document()
    properties = document.core_properties
    properties.author, properties.title, properties.comments = "quietmean", tables[0].title[:255] if tables else "", made_by
    for table in tables:
        _add(document, table)
    document.add_paragraph().add_run(made_by).italic = True
    file = io.BytesIO()
    document.save(file)
    return _undated(file.getvalue())


def _add(document: Document, table: ResultTable) -> None:
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.oxml import OxmlElement
    from docx.shared import Pt

    document.add_paragraph().add_run(table.title).bold = True
    grid: Any = document.add_table(rows=1 + len(table.lines), cols=len(table.heads), style="Table Grid")
    grid.rows[0]._tr.get_or_add_trPr().append(OxmlElement(f"w:{_HEAD}"))
    for row, line in zip(grid.rows, (Line(table.heads), *table.lines), strict=True):
        # The library searches a row's cells on each access: once a row.
        for index, (cell, text) in enumerate(zip(row.cells, line.cells, strict=True)):
            paragraph = cell.paragraphs[0]
            paragraph.add_run(text).bold = row is grid.rows[0] or line.cells is table.heads
            if index == 0 and line.marks:
                paragraph.add_run(line.marked).font.superscript = True
            if index:
                paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT
    for mark, text in (*table.footnotes, *(("", note) for note in table.notes)):
        paragraph = document.add_paragraph()
        paragraph.paragraph_format.space_after = Pt(0)
        if mark:
            paragraph.add_run(mark).font.superscript = True
        paragraph.add_run(f" {text}" if mark else text).font.size = Pt(_SMALL)
    document.add_paragraph()


def _undated(content: bytes) -> bytes:
    """Return the archive without the time at which it was packed."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.infolist():
            fresh = zipfile.ZipInfo(part.filename, _NO_DAY)
            fresh.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(fresh, old.read(part.filename))
    return packed.getvalue()


def is_word_of(content: bytes, made_by: str) -> bool:
    """Is it a document that says so?"""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return made_by.encode() in archive.read(PART)
    except (zipfile.BadZipFile, KeyError, OSError, NotImplementedError, RuntimeError):
        return False
