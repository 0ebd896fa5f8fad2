"""The centres of k means: from records to vectors, and from their noisy means to the next centres."""

from __future__ import annotations

import math
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.sessions import RoundMean

# A cluster whose count is not so many deviations of its noise stays where it is.
_LEAST_COUNT = 3.0


class Centres:
    """``places`` (k, d), within the public ``limits`` (d, 2), and what the last mean says of them: all public.

    ``counts`` (k,): noisy parts of all units; ``counts_error``, ``sum_error``: of the noise on them, and on each coordinate of
    the sums.
    """

    def __init__(self, places: Array, limits: Array) -> None:
        self.places, self._limits = places, limits
        self.round = 0
        self.counts = np.full(len(places), np.nan)
        self.counts_error = self.sum_error = math.nan
        self._middle = limits.mean(axis=1)
        # A place within the bounds has this distance from their middle at most.
        self._reach = float(np.linalg.norm(limits[:, 1] - self._middle))
        # The part of the unit length that the 1 has: about where both make the same error in a centre.
        self._one = math.sqrt(1 / (1 + 2 * math.sqrt(len(limits))))
        self._place = math.sqrt(1 - self._one * self._one)

    @property
    def errors(self) -> Array:
        """Standard errors of the noise of the last round on each coordinate of the places, (k, d); NaN where one did not move."""
        certain = self.counts > _LEAST_COUNT * self.counts_error
        counts = np.where(certain, self.counts, np.nan)[:, None]
        errors: Array = np.hypot(self.sum_error, self.counts_error * (self.places - self._middle)) / counts
        return errors

    def vectors(self, rows: Array, inside: Array) -> Array:
        """Of records (N, d), which are ``inside`` the limits; shape (N, k (1 + d)): a 1 and the place, in the nearest cluster."""
        count, columns = self.places.shape
        vectors = np.zeros((len(inside), count, 1 + columns))
        at = (np.arange(len(inside)), nearest(inside, self.places))
        vectors[*at, 0] = self._one
        vectors[*at, 1:] = self._place * (inside - self._middle) / self._reach
        # A row with a missing value is in no cluster.
        vectors[np.isnan(rows).any(axis=1)] = 0.0
        return vectors.reshape(len(inside), -1)

    def move(self, mean: RoundMean[Any]) -> None:
        """To the ratios of noisy sums and counts."""
        scale, noisy = self._reach / self._place, mean.mean.reshape(len(self.places), -1)
        self.counts = noisy[:, 0] / self._one
        self.counts_error, self.sum_error = mean.standard_error / self._one, mean.standard_error * scale
        certain = self.counts > _LEAST_COUNT * self.counts_error
        moved = self._middle + noisy[:, 1:] * scale / np.where(certain, self.counts, 1.0)[:, None]
        self.places = np.where(certain[:, None], np.clip(moved, *self._limits.T), self.places)
        self.round = mean.round

    def save(self, path: str | Path) -> None:
        """Whole and durably. Raises :class:`InputError` where something else is there."""
        written = BytesIO()
        errors = [self.counts_error, self.sum_error]
        np.savez(written, places=self.places, counts=self.counts, errors=errors, round=self.round)
        Output(Path(path), "the centres", "name", own=lambda there: self._read(there) is not None).write(written.getvalue())

    def load(self, path: str | Path) -> None:
        """Raises :class:`InputError` for a file of anything but so many centres."""
        state = self._read(Path(path).read_bytes())
        if state is None:
            raise InputError(f"{path} is no file of {len(self.places)} centres: give another, or move it away")
        self.places, self.counts, (self.counts_error, self.sum_error), self.round = state

    def _read(self, content: bytes) -> tuple[Array, Array, Array, int] | None:
        try:
            with np.load(BytesIO(content), allow_pickle=False) as file:
                places, counts, errors = (np.asarray(file[name], dtype=np.float64) for name in ("places", "counts", "errors"))
                round_ = int(file["round"])
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile):
            return None
        right = places.shape == self.places.shape and counts.shape == self.counts.shape and errors.shape == (2,)
        return (places, counts, errors, round_) if right and np.isfinite(places).all() and round_ >= 0 else None


def nearest(rows: Array, centres: Array) -> NDArray[np.intp]:
    """The place of the nearest centre of each row, shape (N,)."""
    distances = (centres**2).sum(axis=1) - 2 * rows @ centres.T
    labels: NDArray[np.intp] = distances.argmin(axis=1)
    return labels
