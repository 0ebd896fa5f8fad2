"""Bytes of a file as text: compression, byte order marks, encodings."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.studies.data.location import Location

_GZIP = b"\x1f\x8b"
_MARKS = [
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
]
# A small file may unpack to any size: no more than so many bytes are made of it.
MOST_UNPACKED = 2**30
Tell = Callable[[str], None]


def unpacked(path: Path) -> bytes:
    """What is in a file that may be compressed by gzip. Raises :class:`InputError` if it is damaged or unpacks to too much."""
    with path.open("rb") as file:
        if file.read(len(_GZIP)) != _GZIP:
            file.seek(0)
            return file.read()
        file.seek(0)
        try:
            with gzip.open(file) as packed:
                raw = packed.read(MOST_UNPACKED + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise InputError(f"{path.name} is compressed by gzip and damaged or cut off: copy it again") from None
    if len(raw) > MOST_UNPACKED:
        raise InputError(
            f"{path.name} unpacks to more than {MOST_UNPACKED >> 30} GiB, the most that is read of a compressed file: unpack it "
            "yourself, or give a Parquet file"
        )
    return raw


def text_of(raw: bytes, location: Location) -> str:
    """The text of a file, by what was said, else by its mark, else by its first two bytes: UTF-16 has a zero in one of them.

    In any other text a cell is UTF-8, or if it is not, Windows-1252: see :func:`cell_text`. What is no text has replacement
    characters. Raises :class:`InputError` for an encoding that is none.
    """
    named = location.said.get("encoding")
    if named is not None:
        return _as_named(raw, named, location.name)
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            raw = raw[len(mark) :]
            return raw.decode(encoding, errors="surrogateescape" if encoding == "utf-8" else "replace")
    if len(raw) > 1 and (raw[0] == 0) != (raw[1] == 0):
        return raw.decode("utf-16-be" if raw[0] == 0 else "utf-16-le", errors="replace")
    return raw.decode("utf-8", errors="surrogateescape")


def cell_text(cell: str) -> str:
    """A cell of a text; one that is not UTF-8 is Windows-1252, of which Latin-1 is a part."""
    try:
        if not cell.isascii():
            cell.encode("utf-8")
    except UnicodeEncodeError:
        return cell.encode("utf-8", errors="surrogateescape").decode("cp1252", errors="replace")
    return cell


def _as_named(raw: bytes, encoding: str, name: str) -> str:
    try:
        return raw.decode(encoding, errors="replace").removeprefix("\ufeff")
    except LookupError:
        raise InputError(
            f"#encoding={encoding} of {name} is not known: use for example utf-8, utf-16, latin-1 or cp1252"
        ) from None
