"""Texts that Polars holds: what is plainly a number is read by it at once, of any other text each is handed over once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.cells import LONGEST_CELL
from quietmean.core.columnar import distinct
from quietmean.core.lazy_modules import polars
from quietmean.studies.data.spellings import LONGEST
from quietmean.studies.data.table import Cells

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
