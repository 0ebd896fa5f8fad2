"""What the rounds of a fit have released so far: public, moved by each mean, and kept on disk where a party can be killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

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


class LastRound(Protocol):
    """What is asked of a session that was opened again."""

    @property
    def round(self) -> int: ...
    def last(self) -> RoundMean[Any] | None: ...


class KeptState:
    """``state`` in the file ``path`` after each round; None: nowhere. The file is public: other parties can go on with it."""

    def __init__(self, state: Moved, path: Path | None) -> None:
        self._state, self._path = state, path

    def resume(self, means: LastRound) -> None:
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
