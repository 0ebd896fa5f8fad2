"""Keyed digests of input columns: whether two accounts were charged with the same data, without keeping any of them.

The key is in the ledger file. So anyone who has the file can test a guess of a whole column, row by row in its order, and nothing
less.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import numpy as np

from quietmean.core.arrays import Array


class Inputs:
    """The columns that a study uses, as pieces of shape (records, columns), one below the other; gone over once for each key."""

    def __init__(self, pieces: Iterable[Array] = ()) -> None:
        self._pieces = pieces
        self._digests: dict[bytes, tuple[bytes, ...]] = {}

    def digests(self, key: bytes) -> tuple[bytes, ...]:
        """HMAC-SHA256 of each column, without its name: one that was renamed is found, one that was sorted is not.

        A column of one value only is left out: many data sets have it.
        """
        if key not in self._digests:
            self._digests[key] = self._computed(key)
        return self._digests[key]

    def _computed(self, key: bytes) -> tuple[bytes, ...]:
        codes: list[hmac.HMAC] = []
        first, same = np.empty(0), np.empty(0, dtype=bool)
        for piece in self._pieces:
            if not len(piece):
                continue
            if not codes:
                codes = [hmac.new(key, b"quietmean-input-1", hashlib.sha256) for _ in piece.T]
                first, same = piece[0].copy(), np.ones(piece.shape[1], dtype=bool)
            same &= (piece == first).all(axis=0)
            for code, column in zip(codes, piece.T, strict=True):
                # Adding 0.0 makes the two zeros one.
                code.update(np.ascontiguousarray(column + 0.0, dtype="<f8").tobytes())
        return tuple(code.digest() for code, is_same in zip(codes, same, strict=True) if not is_same)


NO_INPUTS = Inputs()
