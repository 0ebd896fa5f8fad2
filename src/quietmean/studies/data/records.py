"""The records of a site, to be gone over more than once: for the vector, for the ledger, for plans of fewer parties."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.statistics import Columns
from quietmean.studies.data.formats import state_of
from quietmean.studies.data.reading import Source, location_of, read_records
from quietmean.studies.data.text import Tell

# So many values are kept, 64 MiB; of more, the source is read again each time.
MOST_KEPT = 2**23


class Records:
    """Pieces of shape (rows, columns), in the order of the source; as many records as its length says.

    Raises :class:`InputError` as :func:`read_columns` does, and where a large source is another one when it is read again.
    """

    def __init__(self, source: Source, columns: Columns, tell: Tell) -> None:
        self._source, self._columns = source, columns
        self._state = self._state_now()
        self._kept: list[NDArray[np.float64]] | None = []
        self._rows = values = 0
        for piece in read_records(source, columns, tell):
            self._rows += len(piece)
            values += piece.size
            if values > MOST_KEPT:
                self._kept = None
            elif self._kept is not None:
                self._kept.append(piece)

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        if self._kept is not None:
            yield from self._kept
            return
        rows = 0
        if self._state_now() == self._state:
            for piece in read_records(self._source, self._columns):
                rows += len(piece)
                yield piece
        if rows != self._rows:
            raise InputError(
                f"{location_of(self._source).name} was changed while it was read: wait until its program has written all of it"
            )

    def _state_now(self) -> tuple[int, int, int] | None:
        location = location_of(self._source)
        return state_of(location.path) if location.path.is_file() and not location.database else None

    def wipe(self) -> None:
        """Nothing reads the values any more."""
        for piece in self._kept or ():
            piece.fill(0.0)
