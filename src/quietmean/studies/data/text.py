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
# How much of a file is looked at to tell UTF-16 without a mark from binary data.
_LOOK = 4096
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


def text_of(raw: bytes, location: Location, tell: Tell) -> str:
    """The text of a file, by its mark, else UTF-8, else Windows-1252 (of which Latin-1 is a part), which the owner is told.

    Raises :class:`InputError` if it holds no text.
    """
    named = location.said.get("encoding")
    if named is not None:
        return _as_named(raw, named, location.name)
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(encoding, errors="replace")
    if b"\0" in raw[:_LOOK]:
        return _without_mark(raw, location.name)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        pass
    lossy = raw.decode("utf-8", errors="replace")
    broken = lossy.count("\N{REPLACEMENT CHARACTER}")
    if sum(sign > "\x7f" for sign in lossy) > 2 * broken:
        # Text in UTF-8 in which a few characters are damaged.
        return lossy
    tell(f"{location.name} is not in UTF-8 and was read as Windows-1252 (Latin-1); {location.name}#encoding=NAME says otherwise")
    return raw.decode("cp1252", errors="replace")


def _as_named(raw: bytes, encoding: str, name: str) -> str:
    try:
        return raw.decode(encoding).removeprefix("\ufeff")
    except LookupError:
        raise InputError(
            f"#encoding={encoding} of {name} is not known: use for example utf-8, utf-16, latin-1 or cp1252"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{name} is not in {encoding}: leave #encoding= out, or name another, such as latin-1") from None


def _without_mark(raw: bytes, name: str) -> str:
    """UTF-16 has a zero in every second byte of Western text."""
    look = raw[: min(_LOOK, len(raw) // 2 * 2)]
    zeros = [look[start::2].count(0) for start in (0, 1)]
    half = len(look) / 2
    if max(zeros) > 0.5 * half and min(zeros) < 0.05 * half:
        return raw.decode("utf-16-be" if zeros[0] > zeros[1] else "utf-16-le", errors="replace")
    raise InputError(f"{name} cannot be read as a table, it holds binary data: give a CSV file, or a format that quietmean knows")
