"""The rows of a figure as they are kept: what its drawing and its claims are made from.

``seed`` and ``size`` (quick or full) come first. An estimate ``x`` with a column ``x_standard_error`` has its 95 % interval
beside it, ``x_low`` and ``x_high``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from quietmean_reproduction.columns import NORMAL, Array, numbers
from quietmean_reproduction.figure import Effort, Figure

if TYPE_CHECKING:
    import polars as pl

_ERROR = "_standard_error"


def kept(figure: Figure, found: pl.DataFrame, seed: int, effort: Effort) -> pl.DataFrame:
    """What is written down of the rows that the tasks of ``figure`` returned."""
    import polars as pl

    rows = figure.kept(found)
    columns = [pl.lit(seed, dtype=pl.Int64).alias("seed"), pl.lit(str(effort)).alias("size")]
    for name in rows.columns:
        columns.append(pl.col(name))
        estimate = name.removesuffix(_ERROR)
        if estimate != name:
            half = NORMAL * pl.col(name)
            columns += [(pl.col(estimate) - half).alias(f"{estimate}_low"), (pl.col(estimate) + half).alias(f"{estimate}_high")]
    return rows.select(columns)


def read_rows(path: Path) -> pl.DataFrame:
    """The rows that were written as CSV, every number to the last bit."""
    import polars as pl

    return pl.read_csv(path, infer_schema_length=None)


def with_share(rows: pl.DataFrame, count: str, of: str) -> pl.DataFrame:
    """With the columns ``share``, ``share_low`` and ``share_high``: ``count`` of ``of``, and its 95 % interval."""
    import polars as pl

    counted, total = numbers(rows, count), numbers(rows, of)
    low, high = clopper_pearson(counted, total)
    columns = {"share": counted / total, "share_low": low, "share_high": high}
    return rows.with_columns(*(pl.Series(name, column) for name, column in columns.items()))


def clopper_pearson(count: ArrayLike, runs: ArrayLike) -> tuple[Array, Array]:
    """The exact 95 % interval of a share of which ``count`` of ``runs`` were seen."""
    from scipy.stats import beta

    count, runs = np.asarray(count, dtype=np.float64), np.asarray(runs, dtype=np.float64)
    low = np.where(count == 0, 0.0, beta.ppf(0.025, count, runs - count + 1))
    high = np.where(count == runs, 1.0, beta.ppf(0.975, count + 1, runs - count))
    return low, high
