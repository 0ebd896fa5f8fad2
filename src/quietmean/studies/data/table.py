"""What every reader makes of its source: named columns of cells, where each row stands, and the records of text that it reads.

A text may be compressed, begin with a byte order mark and be in one of several encodings. The end of a record is found in the
bytes, and each record is then decoded by itself: one that is not valid in the encoding of its file, or is cut within a
character, does not affect the next.
"""

from __future__ import annotations

import codecs
import gzip
import itertools
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.cells import plain_name
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of
from quietmean.core.schema import nearest
from quietmean.studies.data.location import FRAME, Location

# The most cells of a source that are kept at a time: 128 million, some ten gigabytes as objects.
MOST_CELLS = 2**27
# The rows of a piece of a source that is read row by row.
ROWS = 2**16
# The most rows that a message names.
MOST_NAMED = 3


class Cells:
    """The cells of one column: plain objects, or float64 of shape (rows,) with NaN for missing where all are numbers.

    ``codes``: where ``values`` are the distinct ones, which of them stands in each row, (rows,).
    """

    def __init__(self, values: Sequence[Any] | Array, codes: NDArray[np.integer[Any]] | None = None) -> None:
        self.values, self.codes = values, codes

    def __len__(self) -> int:
        return len(self.values) if self.codes is None else len(self.codes)

    def __getitem__(self, row: int) -> Any:
        return self.values[row if self.codes is None else self.codes[row]]

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def spread(self, of_values: NDArray[Any]) -> NDArray[Any]:
        """Return what is known of each of ``values``, for each row."""
        return of_values if self.codes is None else of_values[self.codes]

    def numbers(self, mark: str) -> Array | None:
        """Return the values of cells that are plainly numbers, (rows,), with no ``mark`` but the decimal one; NaN for any other.

        None where that is not quickly known of texts.
        """
        return None

    def distinct(self, rows: NDArray[np.intp] | None = None) -> Cells:
        """Return the cells of these ``rows``, by default of all: each once where that is quickly known."""
        if rows is not None:
            return Cells([self[int(row)] for row in rows])
        if self.codes is not None or not isinstance(self.values, np.ndarray):
            return self
        values, codes = np.unique(self.values, return_inverse=True)
        return Cells(values, codes)

    def joined(self, others: Sequence[Cells]) -> Cells:
        """Return these cells and those of ``others`` behind them."""
        parts = [self, *others]
        if all(isinstance(part.values, np.ndarray) and part.codes is None for part in parts):
            return Cells(np.concatenate([part.values for part in parts]))
        parts = [part.distinct() for part in parts]
        starts = itertools.accumulate((len(part.values) for part in parts), initial=0)
        codes = [
            start + (np.arange(len(part)) if part.codes is None else part.codes)
            for start, part in zip(starts, parts, strict=False)
        ]
        return Cells(list(itertools.chain.from_iterable(part.values for part in parts)), np.concatenate(codes))


@dataclass(frozen=True)
class Table:
    """A piece of a source: named columns of cells, and where each row stands.

    ``place``: its name in messages. ``take``: the cells of a column by its place. ``lines``: where each row begins.

    ``word``: what a place in it is called: ``line`` of a text as editors count, or ``row``. ``delimiter``: what is between the
    columns of a text. ``called``: what the study's columns are called here, where that differs.
    """

    place: str
    names: tuple[str, ...]
    lines: Sequence[int]
    take: Callable[[int], Cells] = field(repr=False)
    word: str = "row"
    delimiter: str = ""
    called: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises :class:`InputError` if two columns have the same name."""
        require_distinct(self.place, self.names)

    @property
    def height(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> Cells:
        """The cells of a column of the study. Raises :class:`InputError` if the study's column of that name is not there."""
        return self.headed(self.name_of(name))

    def headed(self, name: str) -> Cells:
        """The cells of the column that is called so here. Raises :class:`InputError` if there is none."""
        require_heading(self, name)
        return self.take(self.names.index(plain_name(name)))

    def name_of(self, column: str) -> str:
        """What a column of the study is called here."""
        return self.called.get(plain_name(column), plain_name(column))


# The table of a source, one piece after the other, with the same columns: one at least, with no rows perhaps.
Pieces: TypeAlias = Iterator[Table]


@dataclass
class NoticedRows:
    """Rows of which something is said to their owner: how many these are, and where the first ones stand."""

    count: int = 0
    _lines: list[int] = field(default_factory=list)

    def add(self, lines: Sequence[int], rows: Sequence[int] | NDArray[np.intp] = (0,)) -> None:
        """Notice these ``rows`` of a piece whose rows stand on these ``lines``."""
        self.count += len(rows)
        self._lines += [lines[int(row)] for row in rows[: MOST_NAMED - len(self._lines)]]

    def where(self, word: str) -> str:
        """Return where they stand: ``line 4``, ``lines 4, 9, 12 and 7 more``."""
        more = f" and {self.count - MOST_NAMED} more" if self.count > MOST_NAMED else ""
        return f"{word}{'s' if self.count > 1 else ''} {', '.join(map(str, self._lines))}{more}"


def joined(pieces: Pieces, width: int) -> Table:
    """All pieces as one table. Raises :class:`InputError` where its ``width`` columns have more cells than are kept."""
    all_pieces: list[Table] = []
    cells = 0
    for piece in pieces:
        all_pieces.append(piece)
        cells += piece.height * max(width, 1)
        if cells > MOST_CELLS:
            raise too_many_cells(piece.place)
    first = all_pieces[0]
    if len(all_pieces) == 1:
        return first
    lines = list(itertools.chain.from_iterable(piece.lines for piece in all_pieces))
    return replace(
        first, lines=lines, take=lambda index: first.take(index).joined([piece.take(index) for piece in all_pieces[1:]])
    )


def wanted_places(source: str, heading: Iterable[str], column_names: Collection[str]) -> tuple[tuple[str, ...], list[int]]:
    """The plain names of all columns, and where the named ones are, in the order of the source.

    Raises :class:`InputError` where two have one name, and for a column that is absent.
    """
    names, needed = tuple(map(plain_name, heading)), {plain_name(name) for name in column_names}
    require_distinct(source, names)
    if not needed <= set(names):
        raise heading_absent(source, needed, names)
    return names, [place for place, name in enumerate(names) if name in needed]


def require_distinct(source: str, names: Sequence[str]) -> None:
    """Raises :class:`InputError` if two columns of a source have the same name."""
    seen: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name and seen.setdefault(name, number) != number:
            raise InputError(
                f"columns {seen[name]} and {number} of {source} have the same name. Give each column a name of its own in the "
                "first row, or in the query."
            )


def require_column(table: Table, column: str) -> None:
    """Raises :class:`InputError` if the table has no such column."""
    require_heading(table, table.name_of(column))


def require_heading(table: Table, name: str) -> None:
    """Raises :class:`InputError` if the table has no column that is called so here."""
    if plain_name(name) not in table.names:
        raise heading_absent(table.place, {plain_name(name)}, table.names)


def heading_absent(source: str, column_names: Collection[str], names: Sequence[str]) -> InputError:
    """The first of the named columns is not there. Of the headings only one is shown that is nearly the same."""
    column = next(name for name in sorted(column_names) if name not in names)
    heading = "" if source == str(FRAME) else ", and that the first row of the file holds the names of its columns"
    return InputError(
        f"column {column!r} is not one of the {count_of(len(names), 'column')} of {source}{nearest(column, names)}. "
        f"Check its name{heading}."
    )


def too_many_cells(source: str) -> InputError:
    """The error for a source with more cells than are read."""
    return InputError(
        f"{source} has more than {MOST_CELLS >> 20} million cells, the most that is read of it. Give a Parquet file, or a query "
        "that chooses columns and rows."
    )


def of_rows(source: str, heading: Iterable[object], rows: Sequence[Sequence[Any]], lines: Sequence[int], **more: Any) -> Table:
    """The table of rows that have as many cells as the heading: each is a record, whatever is in it."""
    return Table(
        source,
        tuple(plain_name(name) for name in heading),
        lines,
        lambda column: Cells([row[column] for row in rows]),
        **more,
    )


# How files that are compressed by gzip begin.
_GZIP = b"\x1f\x8b"
UTF_8 = "utf-8"
_MARKS = [
    (codecs.BOM_UTF8, UTF_8),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
]
# The bytes of a character in encodings where an end of line has several.
_WIDE = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
# The most bytes that are unpacked from a compressed file, which may be small and unpack to any size.
MOST_UNPACKED = 2**30
# A record of more bytes counts as missing and is not kept in memory; and the bytes that are read at once.
MOST_RECORD = 2**24
_CHUNK = 2**21
Notify = Callable[[str], None]


@dataclass(frozen=True)
class Encoding:
    """How bytes are text. ``errors``: what becomes of those that are none."""

    name: str
    errors: str = "replace"

    @classmethod
    def of(cls, start: bytes, location: Location) -> tuple[Encoding, int]:
        """The encoding of a file, and how many bytes at its ``start`` are a byte order mark.

        By its setting, else by the mark, else by the first two bytes: UTF-16 has a zero in one of them. Any other text is
        UTF-8, and a cell of it that is not is Windows-1252 (:func:`cell_text`). Raises :class:`InputError` for an encoding
        that is none.
        """
        stated = location.settings.get("encoding")
        marked = next(((encoding, len(mark)) for mark, encoding in _MARKS if start.startswith(mark)), None)
        if stated is not None:
            name = _known(stated, location)
            # The name leaves the order of bytes open; the byte order mark decides it.
            if marked is not None and marked[0].startswith(name.removesuffix("-sig")):
                return cls(marked[0]), marked[1]
            return cls(f"{name}-le" if name in ("utf-16", "utf-32") else name), 0
        if marked is not None:
            return cls(marked[0], "surrogateescape" if marked[0] == UTF_8 else "replace"), marked[1]
        if len(start) > 1 and (start[0] == 0) != (start[1] == 0):
            return cls("utf-16-be" if start[0] == 0 else "utf-16-le"), 0
        return cls(UTF_8, "surrogateescape"), 0

    def decode(self, raw: bytes) -> str:
        """Never an empty text for bytes: in some encodings, bytes may only change the meaning of others."""
        return raw.decode(self.name, self.errors) or ("\N{REPLACEMENT CHARACTER}" if raw else "")

    def encode(self, end: str) -> bytes:
        """The bytes of an end of line."""
        return end.encode(self.name)

    def lines(self, head: bytes, complete: bool) -> Iterator[tuple[str, str, int]]:
        """What each line at the beginning of a text, or of a ``complete`` one, holds, how it ends, where the next one begins."""
        width = _WIDE.get(self.name, 1)
        ends = {self.encode(end): end for end in ("\r\n", "\n", "\r")}
        start = 0
        for matched in re.finditer(b"|".join(map(re.escape, ends)), head):
            if matched.start() % width == 0 and matched.start() >= start:
                yield self.decode(head[start : matched.start()]), ends[matched[0]], matched.end()
                start = matched.end()
        if complete and start < len(head):
            yield self.decode(head[start:]), "\n", len(head)

    def records(self, chunks: Iterable[bytes], end: str) -> Iterator[str | None]:
        """The texts between such ends; None for one of more than MOST_RECORD bytes."""
        between = self.encode(end)
        for block in blocks(chunks, between):
            if block is None:
                yield None
            elif len(block) > MOST_RECORD:
                for raw in block.split(between):
                    yield None if len(raw) > MOST_RECORD else self.decode(raw)
            elif self.name == UTF_8:
                # No character of UTF-8 has an end of line in it: all records of a block are decoded at once.
                yield from self.decode(block).split(end)
            else:
                yield from map(self.decode, block.split(between))


def unpacked(path: Path, *, by_name: bool = False) -> Iterator[bytes]:
    """Yield the bytes of a file that may be compressed by gzip, a bounded piece at a time.

    How it begins says so, or ``by_name`` how its name ends: where its first bytes are a record they decide nothing. Raises
    :class:`InputError` if it is damaged or unpacks to too much.
    """
    with path.open("rb") as file:
        compressed = path.suffix.lower() == ".gz" if by_name else file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        if not compressed:
            yield from iter(lambda: file.read(_CHUNK), b"")
            return
        size = 0
        with gzip.GzipFile(fileobj=file) as inner:
            while piece := _next_of(inner, path.name):
                size += len(piece)
                if size > MOST_UNPACKED:
                    raise InputError(
                        f"{path.name} unpacks to more than {MOST_UNPACKED >> 30} GiB, the most that is read of such a file. "
                        "Unpack it yourself, or give a Parquet file."
                    )
                yield piece


def _next_of(file: gzip.GzipFile, name: str) -> bytes:
    try:
        return file.read(_CHUNK)
    except (EOFError, zlib.error, OSError) as error:
        # One with a number is of the disk.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{name} is compressed by gzip and damaged or cut off. Copy it again.") from None


def blocks(chunks: Iterable[bytes], between: bytes) -> Iterator[bytes | None]:
    """Some whole records at a time, as they stand between ends; None for one that is too long."""
    rest, long = b"", False
    for chunk in chunks:
        complete, separator, after = (rest + chunk).rpartition(between)
        if not separator:
            long = long or len(after) > MOST_RECORD + len(between)
            # Of a record that is too long only the bytes are kept that may begin its end.
            rest = after[-len(between) :] if long else after
            continue
        if long:
            yield None
            _, separator, complete = complete.partition(between)
            long = False
            if not separator:
                rest = after
                continue
        yield complete
        rest = after
    yield None if long else rest


def _known(encoding: str, location: Location) -> str:
    """The name of an encoding that was given. Raises :class:`InputError` for one that is none, or has no ends of lines."""
    try:
        name = codecs.lookup(encoding).name
        if name in ("utf-16", "utf-32") or "\n".encode(name) == "\n".encode((_WIDE.get(name) and name) or "ascii"):
            return name
    except (LookupError, UnicodeError):
        pass
    raise InputError(f"#encoding={encoding} of {location.name} is not known. Use for example utf-8, utf-16, latin-1 or cp1252.")
