"""The cells of one record of a text: what is between them, and the quotation marks around them."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from _csv import Reader

# Means any number of blanks and tabs between columns.
BLANKS = " "
# A cell between quotation marks, which stays as it is; and blanks outside of one.
_QUOTED_OR_BLANKS = re.compile(r'("(?:[^"]|"")*")|[ \t]+')


class Record(NamedTuple):
    """One record of a text. ``cells``: None where it is too long, or leaves open a mark that goes on in further lines.

    ``line``: on which it begins. ``is_open``: does it end within quotation marks? ``has_ends``: are ends of lines in it that are
    neither the heading's nor between quotation marks? ``text``: what stands there, of a record of one line.
    """

    cells: list[str] | None
    line: int
    is_open: bool = False
    has_ends: bool = False
    text: str = ""


def fields(record: str, delimiter: str) -> tuple[list[str], bool]:
    """Return the cells of one record, and whether the quotation mark around one of them is left open.

    Without a delimiter all of it is one cell.
    """
    record = one_blank(record) if delimiter == BLANKS else record
    if '"' not in record:
        return record.split(delimiter) if delimiter else [record], False
    # A second line is asked for where the first one ends within quotation marks.
    read = reader([one_line(record), ""], delimiter)
    try:
        cells = next(read, [])
    except csv.Error:
        return [record], True
    return cells, read.line_num > 1


def reader(lines: Iterable[str], delimiter: str, *, strict: bool = False) -> Reader:
    """Return a reader of cells. ``strict``: a mark that ends a cell stands before a delimiter or the end of the record."""
    # Notes of physicians are longer than the module's default allows. Without a delimiter nothing is between cells.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    return csv.reader(lines, delimiter=delimiter or "\x1f", strict=strict)


def one_line(text: str) -> str:
    """Return the text with a blank for each end of a line, which belongs to its cell."""
    return text.replace("\n", " ").replace("\r", " ")


def one_blank(text: str) -> str:
    """Return the text with one blank for blanks and tabs outside of quotation marks, and none at its ends."""
    text = text.strip(" \t")
    return _QUOTED_OR_BLANKS.sub(lambda found: found[1] or BLANKS, text) if '"' in text else BLANKS.join(text.split())


def has_lines(record: str, delimiter: str) -> bool:
    """Return whether an end of a line stands in a record outside of quotation marks."""
    if "\n" not in record and "\r" not in record:
        return False
    try:
        return sum(1 for cells in reader(io.StringIO(record, newline=""), delimiter) if cells) > 1
    except csv.Error:
        return False


def record_of(text: str | None, delimiter: str, line: int) -> Record:
    """Return the record that is one line; None is one that is too long to be kept."""
    if text is None:
        return Record(None, line)
    cells, is_open = fields(text, delimiter)
    return Record(cells, line, is_open, has_lines(text, delimiter), text)
