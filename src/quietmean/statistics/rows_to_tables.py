"""Rows that are changed little by little until several tables of pairs hold, which no tree has all of.

Public post-processing: of rows in cells that have too many, some become like rows in cells that have too few (the gradual update
of Zhang et al., PrivSyn, USENIX Security 2021).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.randomness.stream import BitStream, Seed

# Sweeps over all tables, and which part of what is off is moved in the first one and, times as much, in each after it.
_SWEEPS, _FIRST, _FALLING = 40, 1.0, 0.9


def brought_to(cells: Ints, tables: Mapping[tuple[int, int], Array], seed: Seed) -> Ints:
    """Rows, (rows, columns), with nearly these tables of parts, (first's cells, second's cells); the same for the same seed."""
    rows = cells.copy()
    for sweep in range(_SWEEPS):
        for pair, table in tables.items():
            stream = BitStream(seed.derive("sweep", sweep, *pair))
            _move(rows, pair, table, _FIRST * _FALLING**sweep, stream, whole=sweep % 2 == 0)
    return rows


def _move(rows: Ints, pair: tuple[int, int], table: Array, part: float, stream: BitStream, *, whole: bool) -> None:
    """Move a part of what is off: ``whole`` rows become copies of one in the cell, else they have its two values alone."""
    count = len(rows)
    at = np.ravel_multi_index((rows[:, pair[0]], rows[:, pair[1]]), table.shape)
    have = np.bincount(at, minlength=table.size)
    off = part * (table.ravel() * count - have)
    lost, gained = _in_whole(np.maximum(-off, 0.0), stream), _in_whole(np.maximum(off, 0.0), stream)
    # Rows of each cell one after the other, in random order.
    order = stream.permutation(count)
    order = order[np.argsort(at[order], kind="stable")]
    begins = np.cumsum(have) - have
    leaving = order[np.arange(count) - np.repeat(begins, have) < np.repeat(lost, have)]
    arriving = np.repeat(np.arange(table.size), gained)
    moves = min(len(leaving), len(arriving))
    leaving = leaving[stream.permutation(len(leaving))[:moves]]
    arriving = arriving[stream.permutation(len(arriving))[:moves]]
    alike = (have[arriving] > 0) & whole
    like = np.minimum((stream.uniform(moves) * have[arriving]).astype(np.int64), np.maximum(have[arriving] - 1, 0))
    copied = rows[order[(begins[arriving] + like)[alike]]]
    rows[leaving[alike]] = copied
    rows[leaving[~alike], pair[0]], rows[leaving[~alike], pair[1]] = np.unravel_index(arriving[~alike], table.shape)


def _in_whole(numbers: Array, stream: BitStream) -> Ints:
    """Whole numbers that are off by less than one, as are all their sums from the first on."""
    ends = np.floor(np.cumsum(numbers) + stream.uniform(1)[0]).astype(np.int64)
    return np.asarray(np.diff(ends, prepend=0))
