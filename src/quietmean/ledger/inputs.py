"""Keyed digests of input columns: whether two accounts were charged with the same data, without keeping any of them.

The key is in the ledger file. So whoever has the file can test a guess of a whole column, row by row in its order, and nothing
less.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def input_digests(key: bytes, columns: Iterable[Array]) -> tuple[bytes, ...]:
    """HMAC-SHA256 of each column, shape (records,), without its name: one that was renamed is found, one that was sorted is not.

    A column of one value only is left out: many data sets have it.
    """
    return tuple(_digest(key, column) for column in columns if len(column) and not (column == column[0]).all())


def _digest(key: bytes, column: Array) -> bytes:
    # Adding 0.0 makes the two zeros one.
    plain = np.ascontiguousarray(column + 0.0, dtype="<f8")
    return hmac.new(key, b"quietmean-input-1" + plain.tobytes(), hashlib.sha256).digest()
