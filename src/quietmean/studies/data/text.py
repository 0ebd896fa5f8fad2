"""Files of text as records: compression, byte order marks, encodings.

The end of a record is found in the bytes, and each record is then decoded by itself: one that is not valid in the
encoding of its file, or is cut within a character, does not affect the next.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.studies.data.location import Location

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
                        f"{path.name} unpacks to more than {MOST_UNPACKED >> 30} GiB, the most that is read of such a file: "
                        "unpack it yourself, or give a Parquet file"
                    )
                yield piece


def _next_of(file: gzip.GzipFile, name: str) -> bytes:
    try:
        return file.read(_CHUNK)
    except (EOFError, zlib.error, OSError) as error:
        # One with a number is of the disk.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{name} is compressed by gzip and damaged or cut off: copy it again") from None


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
    raise InputError(f"#encoding={encoding} of {location.name} is not known: use for example utf-8, utf-16, latin-1 or cp1252")
