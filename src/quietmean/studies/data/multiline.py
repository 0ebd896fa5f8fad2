"""Records of several lines, of which cells between quotation marks have more than one.

A record is closed at its first line, and is missing, where it does not end as such records do. So a mark that is left open says
nothing about the records below it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from quietmean.studies.data.fields import BLANKS, Record, one_blank, one_line, reader, record_of
from quietmean.studies.data.text import MOST_RECORD

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
