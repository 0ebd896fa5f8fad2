"""Records of a text: their cells, plain ones all at once, and records of several lines.

A plain record has as many cells as the header names, no bytes but those of UTF-8, and quotation marks at most around whole cells
without a mark in them: any reader splits it into the same cells. All plain records of a block are split at once, and only the
others one by one. A record of several lines is closed at its first line, and is missing, where it does not end as such records
do: so a mark that is left open says nothing about the records below it.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Mask
from quietmean.core.cells import LONGEST_CELL
from quietmean.core.columnar import distinct
from quietmean.core.lazy import polars
from quietmean.studies.data.spellings import LONGEST
from quietmean.studies.data.table import MOST_RECORD, Cells

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


_LF, _CR, _QUOTE, _ASCII = ord("\n"), ord("\r"), ord('"'), 128


@dataclass(frozen=True)
class PlainRecords:
    """A block of records without quotation marks.

    ``block``: of the plain ones, each with LF behind it and without quotation marks. ``plain``: which records these are.

    ``others``: all others, as they stand. Records are those of the block in their order, also empty ones, which are not plain.
    """

    block: bytes = field(repr=False)
    plain: Mask = field(repr=False)
    others: list[bytes] = field(repr=False)

    @classmethod
    def of(cls, block: bytes, delimiter: str, cells: int, closed: bool, end: str) -> Self | None:
        """Return the plain records of a block of UTF-8 that end so.

        ``cells``: how many each has, of which the last is empty if ``closed``.

        None where it is not known where lines end.
        """
        if end == "\r\n":
            # A lone one of both belongs to its cell.
            if not block.count(b"\r") == block.count(b"\n") == block.count(b"\r\n"):
                return None
            block = block.replace(b"\r\n", b"\n")
        block += b"\n"
        raw = np.frombuffer(block, dtype=np.uint8)
        marks = np.flatnonzero((raw == _LF) | (raw == ord(delimiter)))
        last = np.flatnonzero(raw[marks] == _LF)
        ends = marks[last]
        starts = np.concatenate([[0], ends[:-1] + 1])
        plain = (np.diff(np.concatenate([[-1], last])) == cells) & (ends > starts)
        if closed:
            plain &= marks[np.maximum(last - 1, 0)] == ends - 1
        if not block.isascii() and not _is_utf_8(block):
            plain[np.searchsorted(ends, np.flatnonzero(raw >= _ASCII))] = False
        for byte in (_CR, 0):
            if bytes([byte]) in block:
                plain[np.searchsorted(ends, np.flatnonzero(raw == byte))] = False
        around = np.flatnonzero(raw == _QUOTE) if b'"' in block else np.array([], dtype=np.intp)
        if len(around):
            _strike_out(plain, around, raw, marks, ends)
        if plain.all():
            return cls(block.translate(None, b'"'), plain, [])
        keep = np.repeat(plain, ends - starts + 1)
        keep[around] = False
        others = [block[start:stop] for start, stop in zip(starts[~plain], ends[~plain], strict=True)]
        return cls(raw[keep].tobytes(), plain, others)


def _is_utf_8(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _strike_out(
    plain: Mask, around: NDArray[np.intp], raw: NDArray[np.uint8], marks: NDArray[np.intp], ends: NDArray[np.intp]
) -> None:
    """Records with quotation marks that are not in pairs around whole cells are not plain."""
    counts = np.diff(np.searchsorted(around, ends), prepend=0)
    odd = counts % 2 == 1
    if odd.any():
        # Where one record has an odd number, pairs of the next ones would be wrong.
        plain[odd] = False
        around = around[~np.repeat(odd, counts)]
    opens, closes = around[::2], around[1::2]
    # Which one each mark is: a cell stands between two that follow each other. Before the first byte stands the end before it.
    number = np.full(len(raw), -2, dtype=np.int32)
    number[marks] = np.arange(len(marks))
    left = np.where(opens == 0, -1, number[opens - 1])
    plain[np.searchsorted(ends, opens[(left == -2) | (number[closes + 1] != left + 1)])] = False


# How often it is asked whether a line that a record would take begins a record of its own, and a line of that one again.
_DEPTH = 3


@dataclass
class MultilineRecords:
    """The records in ``lines``, of which None is one that is too long: iterate over it.

    A line with as many cells as the heading (``widths``), and with quotation marks in pairs around whole cells, is a record. A
    line that leaves a mark open goes on up to the line that closes it, if these are at most ``most`` lines, if they have as many
    cells as the heading together, and if none of them is or begins such a record itself. Any other line is a record by itself.
    """

    lines: Iterator[str | None]
    delimiter: str
    widths: range
    most: int
    first_line: int
    _kept: dict[int, str | None] = field(default_factory=dict, repr=False)
    _found: dict[tuple[int, int], tuple[list[str] | None, int]] = field(default_factory=dict, repr=False)
    _read: int = 0

    def __iter__(self) -> Iterator[Record]:
        index = 0
        while self._is_there(index):
            cells, count = self._from(index, _DEPTH)
            if count > 1 or cells is not None:
                yield Record(cells, self.first_line + index, is_open=cells is None)
            else:
                yield from self._alone(index)
            for before in range(index, index + count):
                del self._kept[before]
            index += count
            self._found = {key: found for key, found in self._found.items() if key[0] >= index} if self._found else {}

    def _alone(self, index: int) -> Iterator[Record]:
        """A line by itself; of a file of several columns an empty one is none."""
        text = self._kept[index]
        if text != "" or 1 in self.widths:
            record = record_of(text, self.delimiter, self.first_line + index)
            if record.is_open:
                record = record._replace(cells=None, has_ends=record.has_ends or self._ends_otherwise(index))
            yield record

    def _from(self, start: int, depth: int) -> tuple[list[str] | None, int]:
        """The cells of the record of several lines that begins at ``start``, None if none does, and how many lines it has.

        A record that would take lines of another one is closed before that one.
        """
        if (text := self._kept[start]) is None or '"' not in text:
            return None, 1
        if (start, depth) not in self._found:
            self._found[start, depth] = self._looked_for(start, depth)
        return self._found[start, depth]

    def _looked_for(self, start: int, depth: int) -> tuple[list[str] | None, int]:
        read = reader(self._lines_of_one(start), self.delimiter, strict=True)
        try:
            cells = next(read, [])
        # A mark is not closed, or something stands behind it.
        except csv.Error:
            return None, 1
        count = read.line_num
        if count == 1 or len(cells) not in self.widths:
            return None, 1
        others = (more for more in range(1, count) if depth and self._from(start + more, depth - 1)[0] is not None)
        before = next(others, None)
        return (cells, count) if before is None else (None, before)

    def _ends_otherwise(self, start: int) -> bool:
        """Would a record begin in this line, if any end of a line were the end of one?"""
        read = reader(io.StringIO("".join(self._lines_of_one(start, str)), newline=""), self.delimiter, strict=True)
        try:
            return len(next(read, [])) in self.widths
        except csv.Error:
            return False

    def _lines_of_one(self, start: int, shown: Callable[[str], str] = one_line) -> Iterable[str]:
        size = 0
        for index in range(start, start + self.most):
            if not self._is_there(index) or (text := self._kept[index]) is None:
                return
            # Where the heading ends with LF, the CR of a line that ends with both is a blank behind its last cell.
            text = text.removesuffix("\r")
            size += len(text) + 1
            if size > MOST_RECORD or (index > start and is_whole(text, self.delimiter, self.widths)):
                return
            text = shown(text)
            yield f"{one_blank(text) if self.delimiter == BLANKS else text}\n"

    def _is_there(self, index: int) -> bool:
        while self._read <= index:
            try:
                self._kept[self._read] = next(self.lines)
            except StopIteration:
                return False
            self._read += 1
        return True


def is_whole(line: str, delimiter: str, widths: range) -> bool:
    """Return whether a line has so many cells, and quotation marks around whole cells alone."""
    line = one_blank(line) if delimiter == BLANKS else line
    if '"' in line:
        between = re.escape(delimiter) or "$"
        line = re.sub(rf'(?:^|(?<={between}))"(?:[^"]|"")*"(?={between}|$)', "", line)
    return '"' not in line and (line.count(delimiter) if delimiter else 0) + 1 in widths


# As Polars calls columns without names.
_NAME = "column_{}"


class PolarsTexts(Cells):
    """Cells of one column as Polars holds their texts; an empty text is none."""

    def __init__(self, series: polars.Series) -> None:
        super().__init__([])
        self._series = series

    def __len__(self) -> int:
        return len(self._series)

    def __getitem__(self, row: int) -> str | None:
        cell: str | None = self._series[int(row)]
        return None if cell is None else cell[:LONGEST_CELL]

    def joined(self, others: Sequence[Cells]) -> Cells:
        series = [other._series for other in others if isinstance(other, PolarsTexts)]
        return PolarsTexts(polars.concat([self._series, *series])) if len(series) == len(others) else super().joined(others)

    def numbers(self, mark: str) -> Array:
        texts = self._series
        if mark == ",":
            # With a point in it, it may be something else.
            pointed = texts.str.contains(".", literal=True)
            texts = texts.set(pointed.fill_null(False), None).str.replace(",", ".", literal=True)
        values = texts.cast(polars.Float64, strict=False)
        numbers = np.array(values.fill_null(np.nan).to_numpy(), dtype=np.float64)
        # Not words for infinity, nor a text that is too long to be a number.
        long = (texts.str.len_bytes() > LONGEST).fill_null(False).to_numpy()
        numbers[~np.isfinite(numbers) | long] = np.nan
        return numbers

    def distinct(self, rows: NDArray[np.intp] | None = None) -> Cells:
        series = self._series if rows is None else self._series.gather(rows)
        once = distinct(series)
        assert once is not None  # noqa: S101 - it is of texts
        values, codes = once
        return Cells([None if cell is None else cell[:LONGEST_CELL] for cell in values], codes)


def cells_of_plain(block: bytes, delimiter: str, width: int, places: Sequence[int]) -> dict[int, polars.Series]:
    """The named columns of plain records (:mod:`quietmean.studies.data.text_records`) that have ``width`` cells each."""
    # What a library does with the beginning of a file, such as to leave out a mark, it does to this record.
    guard = delimiter.join("0" * width).encode() + b"\n"
    frame = polars.read_csv(
        guard + block,
        has_header=False,
        schema={_NAME.format(place): polars.String for place in range(width)},
        columns=[_NAME.format(place) for place in places],
        separator=delimiter,
        quote_char=None,
        infer_schema=False,
        eol_char="\n",
    )
    return {place: frame[_NAME.format(place)][1:] for place in places}


def in_order(first: polars.Series, second: Sequence[str | None], order: NDArray[np.intp]) -> PolarsTexts:
    """The cells of both, one behind the other, in this order."""
    if not second:
        return PolarsTexts(first)
    return PolarsTexts(polars.concat([first, polars.Series(second, dtype=polars.String)]).gather(order))
