"""Columns of a Parquet or Arrow file, read by a process of its own: ``python -P -m quietmean.core.columnar KIND PATH MOST NAME``.

Libraries for these files make room for whatever a file says it has, and some end their process where it is damaged, or never come
to an end. This module imports nothing of quietmean but what reads cells and limits memory, for a process that begins quickly.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.cells import LONGEST_CELL, STRANGE, is_empty, plain, plain_name
from quietmean.core.lazy import feather, ipc, narwhals, parquet, polars, pyarrow
from quietmean.core.portability import TooManyCellsError, limit_process

PARQUET: Final = "parquet"
ARROW: Final = "arrow"
# The exit code of a process whose file has too many cells; the most memory that it gets, in bytes, and seconds of processor time.
TOO_LARGE = 4
MOST_MEMORY = 8 * 2**30
MOST_PROCESSOR = 3600
# Whole numbers below this one are floats, exactly.
_EXACT = 2**53
# Days since 1970 that Python's dates hold, and its spans of time.
_EPOCH = datetime.date(1970, 1, 1)
_FIRST, _LAST = (datetime.date.min - _EPOCH).days, (datetime.date.max - _EPOCH).days
_MOST_DAYS = datetime.timedelta.max.days - 1
_A_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
# The most characters of all texts of a column.
MOST_TEXT = 2**31
# The type of extension for numbers that MessagePack lacks, packed as texts.
_NUMBER = 1
_MOST_BITS = 63

# Rows of a piece; and bytes of the length of what is written.
ROWS, LENGTH = 2**16, 8

# Cells of a column: objects, or float64 of shape (rows,) with NaN for missing where all are numbers.
Cells: TypeAlias = Sequence[Any] | Array
# The cells of a piece of a column as they are packed, and the bytes of the index of each row's cell, where each is there once.
Packed: TypeAlias = tuple[bytes | list[Any], bytes | None]


def pieces(kind: str, path: str, max_cells: int, column_names: Collection[str]) -> Iterator[bytes]:
    """The names of all columns with the places of those that follow, then these piece by piece (:data:`Packed`), all packed.

    Those that are ``wanted``, or all where none is. Nothing follows where one of these is not there, or two have one name.
    Raises :class:`TooManyCellsError`, and whatever a library raises for a file.
    """
    # Each is imported when the one before it cannot: two take longer to begin than most files to be read.
    heading = _first_that_can([partial(library.names, Path(path), kind) for library in _LIBRARIES.values()])
    names = [plain_name(name) for name in heading]
    if not set(column_names) <= set(names) or len(set(filter(None, names))) != len([name for name in names if name]):
        yield msgspec.msgpack.encode((heading, []))
        return
    # In the order of the file: in another one, Polars reads ahead more than twice as much.
    places = sorted(map(names.index, column_names)) or list(range(len(names)))
    yield msgspec.msgpack.encode((heading, places))
    for piece in _pieces(Path(path), kind, [heading[place] for place in places], max_cells):
        yield msgspec.msgpack.encode(piece)


def packed(cells: Cells) -> Packed:
    return cells.tobytes() if isinstance(cells, np.ndarray) else [packable(cell) for cell in cells], None


def unpacked(columns: Sequence[Packed]) -> list[tuple[Cells, NDArray[np.int32] | None]]:
    """The columns of a piece: cells, and which of them each row has, where each is there once."""
    return [
        (
            np.frombuffer(cells, dtype=np.float64) if isinstance(cells, bytes) else [_number(cell) for cell in cells],
            None if codes is None else np.frombuffer(codes, dtype=np.int32),
        )
        for cells, codes in columns
    ]


def _pieces(path: Path, kind: str, names: list[str], max_cells: int) -> Iterator[list[Packed]]:
    """All columns at once where a library can; from the row on where it cannot, each column by itself.

    A library that cannot read one of them says nothing about the next then.
    """
    done = 0
    for library in _LIBRARIES.values():
        if library.batches is not None and (batches := anyway(partial(library.batches, path, kind, names))) is not None:
            while (piece := anyway(partial(_next_of, batches))) is not None:
                if not piece:
                    return
                height, columns = piece
                yield columns
                done += height
    reads = [library.read for library in _LIBRARIES.values()]
    columns = [_first_that_can([partial(_column, read, path, kind, name) for read in reads]) for name in names]
    height = len(columns[0]) if columns else 0
    if height * len(columns) > max_cells:
        raise TooManyCellsError
    for start in range(done, height, ROWS):
        yield [packed(cells[start : start + ROWS]) for cells in columns]


def _next_of(batches: Iterator[Any]) -> tuple[()] | tuple[int, list[Packed]]:
    """How many rows the next batch has, and its columns; nothing after the last one."""
    batch = next(batches, None)
    return () if batch is None else (batch.height, [_of_series(series) for series in batch.get_columns()])


def _of_series(series: Any) -> Packed:
    """A column of Polars: each text, day or truth value once."""
    if series.dtype == polars.String and (series.str.len_bytes().max() or 0) > LONGEST_CELL:
        series = series.str.slice(0, LONGEST_CELL)
    once = distinct(series)
    if once is None:
        # For numbers both have the same names, and narwhals takes as long to import as many a file to be read.
        plain_numbers = series.dtype.is_float() or series.dtype.is_integer()
        return packed(cells_of(series, polars) if plain_numbers else cells_of(_wrapped(series)))
    values, codes = once
    if sum(len(value) for value in values if isinstance(value, str)) > MOST_TEXT:
        raise TooManyCellsError
    return packed(values)[0], codes.tobytes()


def distinct(series: Any) -> tuple[list[Any], NDArray[np.int32]] | None:
    """Each text, day or truth value of a series of Polars once, and which one a row has. None for other types."""
    if isinstance(series.dtype, polars.Categorical | polars.Enum):
        series = series.cast(polars.String)
    if series.dtype not in (polars.String, polars.Date, polars.Boolean):
        return None
    if series.dtype == polars.String:
        # Of this series alone: a pool of all would grow without an end.
        coded = series.cast(polars.Categorical(polars.Categories.random()))
        once = coded.drop_nulls().unique()
        place = np.zeros(len(once) + 1, dtype=np.int32)
        place[once.to_physical().to_numpy()] = np.arange(len(once))
        place[-1] = len(once)
        return [*once.cast(polars.String).to_list(), None], place[coded.to_physical().fill_null(len(once)).to_numpy()]
    values = series.unique()
    codes = series.replace_strict(values, polars.int_range(len(values), eager=True), return_dtype=polars.Int32)
    return list(cells_of(_wrapped(values))), codes.to_numpy()


def packable(cell: Any) -> Any:
    """Dates and times as texts such as 2024-01-31, which are read as the same day."""
    cell = plain(cell)
    if isinstance(cell, str):
        return cell[:LONGEST_CELL]
    if isinstance(cell, datetime.date):
        return anyway(cell.isoformat) or STRANGE
    if isinstance(cell, Decimal) or (type(cell) is int and cell.bit_length() > _MOST_BITS):
        return msgspec.msgpack.Ext(_NUMBER, str(cell).encode())
    return cell


def _number(cell: Any) -> Any:
    return Decimal(bytes(cell.data).decode()) if isinstance(cell, msgspec.msgpack.Ext) else cell


def _first_that_can(calls: Sequence[Callable[[], Any]]) -> Any:
    """The result of the first call that does not fail; if all fail, the error of the last one."""
    for call in calls[:-1]:
        returned = anyway(call)
        if returned is not None:
            return returned
    return calls[-1]()


def _wrapped(series: Any) -> Any:
    return narwhals.from_native(series, series_only=True)


def _column(read: Callable[[Path, str, str], Any], path: Path, kind: str, name: str) -> Cells:
    series = narwhals.from_native(read(path, kind, name), eager_only=True)[name]
    if isinstance(series.dtype, narwhals.String):
        # Where a text is not UTF-8, none can be cut before they are handed over.
        cut = anyway(lambda: series.str.slice(0, LONGEST_CELL))
        series = series if cut is None else cut
    if (anyway(lambda: _text_length(series)) or 0) > MOST_TEXT:
        raise TooManyCellsError
    return cells_of(series)


def _text_length(series: Any) -> int:
    """Characters of all texts of a column: a few bytes of a file may repeat a long text any number of times."""
    if isinstance(series.dtype, narwhals.Categorical | narwhals.Enum):
        return len(series) * int(series.unique().cast(narwhals.String).str.len_chars().max() or 0)
    return int(series.str.len_chars().sum()) if isinstance(series.dtype, narwhals.String) else 0


def cells_of(series: Any, library: Any = narwhals) -> Cells:
    """The cells of a column of any library that narwhals knows; of numbers also of Polars, by itself."""
    kind = series.dtype
    if kind.is_float():
        return _floats(series, library)
    if kind.is_integer():
        # A library may refuse a number that float64 cannot hold exactly.
        numbers: Array | None = anyway(lambda: _floats(series, library))
        if numbers is not None and np.all(np.isnan(numbers) | (np.abs(numbers) < _EXACT)):
            return numbers
    if isinstance(kind, library.Date | library.Datetime | library.Duration):
        return _of_what_python_holds(series, kind)
    return _objects(series)


def _floats(series: Any, library: Any) -> Array:
    """A column as float64, (rows,), rounded to the nearest; NaN where a number is missing."""
    return np.asarray(series.cast(library.Float64).fill_null(float("nan")).to_numpy(), dtype=np.float64)


def _of_what_python_holds(series: Any, kind: Any) -> list[Any]:
    """Dates, times or spans of time; what stands in a file may be too far away for Python, and no library says so in one way."""
    dates = isinstance(kind, narwhals.Date)
    unit = 1 if dates else _A_DAY[kind.time_unit]
    first, last = (-_MOST_DAYS, _MOST_DAYS) if isinstance(kind, narwhals.Duration) else (_FIRST, _LAST)
    counts = anyway(lambda: series.cast(narwhals.Int32 if dates else narwhals.Int64).to_list())
    if counts is None or all(is_empty(count) or first <= count // unit <= last for count in counts):
        return _objects(series)
    # Where nothing is, some have a number for it.
    empty = series.is_null().to_list()
    there = [index for index, count in enumerate(counts) if not empty[index] and first <= count // unit <= last]
    cells = [None if nothing else STRANGE for nothing in empty]
    for index, cell in zip(there, _objects(series[there]), strict=True):
        cells[index] = cell
    return cells


def _objects(series: Any) -> list[Any]:
    """Return what each cell is."""
    cells = by_halves(lambda start, count: series[start : start + count].to_list(), 0, len(series))
    return [None if is_empty(cell) else cell for cell in cells]


def by_halves(read: Callable[[int, int], list[Any]], start: int, count: int) -> list[Any]:
    """Return so many cells from ``start`` on. One that its library cannot hand over is strange, and none but that one."""
    cells: list[Any] | None = anyway(lambda: read(start, count))
    if cells is not None and len(cells) == count:
        return cells
    if count == 1:
        return [STRANGE]
    half = count // 2
    return by_halves(read, start, half) + by_halves(read, start + half, count - half)


def anyway(call: Callable[[], Any]) -> Any:
    """The result of a call, or None if it fails: a panic of a library is a BaseException alone."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, TooManyCellsError):
        raise
    except BaseException:
        return None


# --- libraries ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Library:
    """How a library reads a file of columns.

    ``names`` of all columns; ``read`` makes a frame of one of them, ``batches`` frames of some rows of several.
    """

    names: Callable[[Path, str], list[str]]
    read: Callable[[Path, str, str], Any]
    batches: Callable[[Path, str, list[str]], Iterator[Any]] | None = None


# A path would be a pattern for Polars: an open file is one file, whatever its name.
def _names_by_polars(path: Path, kind: str) -> list[str]:
    with path.open("rb") as file:
        return list(polars.read_parquet_schema(file) if kind == PARQUET else polars.read_ipc_schema(file))


def _by_polars(path: Path, kind: str, name: str) -> Any:
    with path.open("rb") as file:
        if kind == PARQUET:
            return polars.read_parquet(file, columns=[name])
        return polars.read_ipc(file, columns=[name])


def _batches_by_polars(path: Path, kind: str, names: list[str]) -> Iterator[Any]:
    scan = polars.scan_parquet if kind == PARQUET else polars.scan_ipc
    return iter(scan(path, glob=False, hive_partitioning=False).select(names).collect_batches(chunk_size=ROWS))


def _names_by_pyarrow(path: Path, kind: str) -> list[str]:
    if kind == PARQUET:
        return cast("list[str]", parquet.read_schema(path).names)
    with ipc.open_file(path) as file:
        return cast("list[str]", file.schema.names)


def _by_pyarrow(path: Path, kind: str, name: str) -> Any:
    if kind == PARQUET:
        # Else a text in a dictionary that is not UTF-8 ends all of it.
        kept = [name] if pyarrow.types.is_dictionary(parquet.read_schema(path).field(name).type) else []
        return parquet.read_table(path, columns=[name], partitioning=None, read_dictionary=kept)
    return feather.read_table(path, columns=[name])


_LIBRARIES: Mapping[str, Library] = {
    "polars": Library(_names_by_polars, _by_polars, _batches_by_polars),
    "pyarrow": Library(_names_by_pyarrow, _by_pyarrow),
}


def write(contents: Iterator[bytes]) -> None:
    """Each behind its length, and an empty one at the end: who reads them knows whether all are there."""
    for content in contents:
        sys.stdout.buffer.write(len(content).to_bytes(LENGTH, "big"))
        sys.stdout.buffer.write(content)
    sys.stdout.buffer.write(bytes(LENGTH))


def run(contents: Callable[[], Iterator[bytes]]) -> None:
    """What the process does, with bounded memory and processor time."""
    # Each thread of a library takes room for itself, beforehand.
    os.environ |= {"POLARS_MAX_THREADS": "4", "OMP_NUM_THREADS": "4", "ARROW_IO_THREADS": "4", "MALLOC_ARENA_MAX": "4"}
    # Nor is more of a file read ahead than is needed next.
    os.environ |= {"POLARS_ROW_GROUP_PREFETCH_SIZE": "2"}
    limit_process(MOST_MEMORY, MOST_PROCESSOR)
    try:
        write(contents())
    except (MemoryError, TooManyCellsError):
        sys.exit(TOO_LARGE)
    # The library's message is dropped: it may quote a cell.
    except BaseException:
        sys.exit(1)


if __name__ == "__main__":
    run(partial(pieces, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
