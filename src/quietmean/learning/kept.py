"""What the rounds of a fit have released so far: public, moved by each mean, and kept on disk where a party can be killed."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.sessions import RoundMean

# How the name of the file ends.
KEPT = ".model.npz"


class Moved(Protocol):
    """What all parties have alike after a round."""

    @property
    def round(self) -> int: ...
    def move(self, mean: RoundMean[Any]) -> Any: ...
    def save(self, path: str | Path) -> None: ...
    def load(self, path: str | Path) -> Any: ...


class RoundsLeft(Protocol):
    """The rounds of a session that was opened, perhaps again."""

    @property
    def over(self) -> bool: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def round(self) -> int:
        """The number of the last round that began here; 0 before the first."""
        ...

    def last(self) -> RoundMean[Any] | None:
        """Return the mean of the last round, also after a restart; None where there is none."""
        ...


class KeptState:
    """``state`` in the file ``path`` after each round; None: nowhere. The file is public: other parties can go on with it."""

    def __init__(self, state: Moved, path: Path | None) -> None:
        self._state, self._path = state, path

    def resume(self, means: RoundsLeft) -> None:
        """Go on where this party was, in a session that was opened again.

        Raises :class:`InputError` where it was away in rounds whose means it does not have: another party's file has them.
        """
        if self._path is None:
            return
        if self._path.exists():
            self._state.load(self._path)
        last = means.last()
        if last is not None and last.round == self._state.round + 1:
            self.move(last)
        if means.round > self._state.round + 1:
            raise self._behind(means.round - 1)

    def move(self, mean: RoundMean[Any]) -> None:
        """By the mean of a round. Raises :class:`InputError` as :meth:`resume` does."""
        if self._path is not None and mean.round > self._state.round + 1:
            raise self._behind(mean.round)
        self._state.move(mean)
        if self._path is not None:
            self._state.save(self._path)

    def _behind(self, needed: int) -> InputError:
        return InputError(
            f"this party has what was released up to round {self._state.round}, and goes on after round {needed}: copy the file "
            f"of a party that has taken part since, *{KEPT}, to {self._path}, and fit again"
        )


def packed(**arrays: ArrayLike) -> bytes:
    """Arrays by name as the content of a file, which :func:`unpacked` reads."""
    written = BytesIO()
    np.savez(written, allow_pickle=False, **{name: np.asarray(array) for name, array in arrays.items()})
    return written.getvalue()


def unpacked(content: bytes, names: Iterable[str]) -> dict[str, Array]:
    """The arrays of these names. Raises :class:`ValueError` for a file that does not hold them."""
    try:
        with np.load(BytesIO(content), allow_pickle=False) as file:
            return {name: np.asarray(file[name], dtype=np.float64) for name in names}
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise ValueError(type(error).__name__) from None
