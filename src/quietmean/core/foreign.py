"""Columns of a file of SPSS, Stata or SAS, read by a process of its own, as :mod:`quietmean.core.columnar`.

The library is written in C and reads what a file says of itself; a damaged one may end its process. Codes stay as they are, and
what the file declares as missing is. Of no name, all columns are read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from quietmean.core.cells import LONGEST_CELL, plain_name
from quietmean.core.columnar import ROWS, anyway, by_halves, packed, run
from quietmean.core.lazy import pyreadstat
from quietmean.core.portability import TooManyCellsError

SPSS, STATA, SAS, XPORT = "SPSS", "Stata", "SAS", "SAS transport"
# What each of them begins with; older ones of Stata with the number of their version, and how bytes are ordered.
KINDS: Final = {
    b"$FL2": SPSS,
    b"$FL3": SPSS,
    b"<stata_dta>": STATA,
    b"\x71\x01\x01\x00": STATA,
    b"\x71\x02\x01\x00": STATA,
    b"\x72\x01\x01\x00": STATA,
    b"\x72\x02\x01\x00": STATA,
    b"\x73\x01\x01\x00": STATA,
    b"\x73\x02\x01\x00": STATA,
    b"\x00" * 12 + b"\xc2\xea\x81\x60\xb3\x14\x11\xcf\xbd\x92\x08\x00\x09\xc7\x31\x8c\x18\x1f\x10\x11": SAS,
    b"HEADER RECORD*******LIB": XPORT,
}
_READERS = {SPSS: "read_sav", STATA: "read_dta", SAS: "read_sas7bdat", XPORT: "read_xport"}


def pieces(kind: str, path: str, max_cells: int, column_names: Sequence[str]) -> Iterator[bytes]:
    """Read a file of SPSS, Stata or SAS in pieces, as :func:`columnar.pieces` reads others.

    Raises :class:`TooManyCellsError`, and whatever the library raises for a file.
    """
    read = partial(getattr(pyreadstat, _READERS[kind]), Path(path), output_format="dict")
    _, about = read(metadataonly=True)
    heading = [str(name) for name in about.column_names]
    names = [plain_name(name) for name in heading]
    if not set(column_names) <= set(names):
        yield msgspec.msgpack.encode((heading, []))
        return
    places = [names.index(name) for name in column_names] or list(range(len(names)))
    yield msgspec.msgpack.encode((heading, places))
    columns: list[list[Any]] = []
    for place in places:
        columns.append(_cells(read, heading[place], about.number_rows))
        if len(columns[0]) * len(places) > max_cells:
            raise TooManyCellsError
    for start in range(0, len(columns[0]) if columns else 0, ROWS):
        yield msgspec.msgpack.encode([packed(cells[start : start + ROWS]) for cells in columns])


def _cells(read: Any, name: str, height: int | None) -> list[Any]:
    """The cells of a column; one that the library cannot hand over is strange, and none but that one: it is found by halving.

    ``height``: how many rows there are, if the file says it. Raises whatever the library raises where it has fewer: it was cut.
    """
    column = partial(read, usecols=[name])

    whole: list[Any] | None = anyway(lambda: _only(column()))
    if whole is not None:
        return whole
    if height is None:
        # Far dates are numbers there.
        height = len(_only(column(disable_datetime_conversion=True)))
    elif height:
        # The last row as numbers, and texts in which any byte is a letter: of these nothing fails but what is not there.
        read(row_offset=height - 1, row_limit=1, disable_datetime_conversion=True, encoding="ISO-8859-1")
    return by_halves(lambda first, count: _only(column(row_offset=first, row_limit=count)), 0, height) if height else []


def _only(read: tuple[dict[str, Sequence[Any]], Any]) -> list[Any]:
    """The cells of the only column."""
    return [cell[:LONGEST_CELL] if isinstance(cell, str) else cell for cell in next(iter(read[0].values()), ())]


if __name__ == "__main__":
    run(partial(pieces, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
