"""Tables as texts, and the documents that they are written to: Word, LaTeX, HTML and CSV, by the end of a name."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra
from quietmean.core.output import FROM_PYTHON, Output, Recognises
from quietmean.studies.outcome.tables.build import Line, ResultTable, tables_of

if TYPE_CHECKING:
    from docx.document import Document


_PACKAGE = "quietmean.studies.outcome.tables"
# Characters that LaTeX reads as commands, or that pdfLaTeX has by commands only. Letters are up to its engine.
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "`": r"\textasciigrave{}",
        # In brackets at the begin of a cell it would be an option of the line break before it.
        "[": "{[}",
        "]": "{]}",
        "\u2212": "$-$",
        "\u2013": r"\textendash{}",
        "\u00b1": r"$\pm$",
        "\u221e": r"$\infty$",
        "\u2264": r"$\leq$",
        "\u2265": r"$\geq$",
        "\u00b2": r"\textsuperscript{2}",
        "\u03b5": r"$\varepsilon$",
        "\u03b4": r"$\delta$",
        "\u03c4": r"$\tau$",
        "\u00a0": "~",
    }
)


def latex(text: str) -> str:
    """The text as LaTeX prints it."""
    # Two in a row would be a dash.
    return re.sub("-(?=-)", "-{}", text.translate(_LATEX))


def html_text(tables: Sequence[ResultTable], made_by: str) -> str:
    """A page that needs nothing else. Raises :class:`InputError` without the extra."""
    return _rendered("tables.html", tables, made_by, autoescape=True)


def latex_text(tables: Sequence[ResultTable], made_by: str) -> str:
    """Tables for \\input, with booktabs and longtable. Raises :class:`InputError` without the extra."""
    syntax = {"block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "<<", "variable_end_string": ">>"}
    syntax |= {"comment_start_string": "<#", "comment_end_string": "#>"}
    return _rendered("tables.tex", tables, made_by, finalize=_finished, **syntax)


class _Ready(str):
    """A text that is LaTeX already."""


def _finished(value: Any) -> str:
    return value if isinstance(value, _Ready) else latex(str(value))


def _rendered(name: str, tables: Sequence[ResultTable], made_by: str, **syntax: Any) -> str:
    jinja2 = import_extra("jinja2", "documents", "a table in this format")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **syntax,
    )
    columns = {table: _Ready("l" + "r" * (len(table.heads) - 1)) for table in tables}
    text: str = environment.get_template(name).render(tables=tables, made_by=made_by, columns=columns)
    return text


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
        raise InputError(f"tables cannot be written to {path.name}. Let its name end with {_any_of(FORMATS)}.")
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
    chosen = format_of(path)
    return Output(path, "the table", option, kind=chosen.kind, force=force, ends=(path.suffix.lower(),), **more)


def tables_bytes(result: Mapping[str, Any], path: Path) -> bytes:
    """The document of a kind that ``path`` ends with, of a result, the JSON of which is in a receipt too.

    Raises :class:`InputError` as :func:`format_of` and :func:`tables_of`.
    """
    return format_of(path).bytes_of(tables_of(result), MADE_BY)


def write_tables(result: Mapping[str, Any], path: Path, force: bool = False) -> None:
    """Write tables from Python. Raises :class:`InputError` as :func:`tables_bytes`, and for another file that is there."""
    tables_at(path, force, option="", saying_so=FROM_PYTHON).write(tables_bytes(result, path))
