"""Where a sweep keeps what is done: one small file per finished task, written in one step, and at the end one Parquet file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from quietmean.core.errors import InputError
from quietmean_reproduction.sweeps.task import Row, Task

_METADATA = "quietmean"


class SweepStore:
    """A directory. When a process dies at any moment, a task's file is there in full or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"{directory} is no directory. Name one to keep the sweep in.") from None

    def done(self, keys: Sequence[str]) -> set[str]:
        """Which of these tasks are finished."""
        return {key for key in keys if self.load(key) is not None}

    def load(self, key: str) -> list[Row] | None:
        """The rows of a task; None if it is not finished. A file that cannot be read counts as none."""
        try:
            document = json.loads(self._path(key).read_bytes())
            return list(document["rows"]) if document["key"] == key and "seconds" in document else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, key: str, task: Task, rows: Sequence[Row], seconds: float) -> None:
        """Infinite numbers and NaN as Python's JSON has them: numbers come back bit for bit. ``seconds`` of processor time."""
        document = {"key": key, "task": task.describe(), "seconds": seconds, "rows": list(rows)}
        with _replacing(self._path(key)) as scratch:
            scratch.write_text(json.dumps(document) + "\n")

    def seconds(self, key: str) -> float:
        """How much processor time a finished task took."""
        return float(json.loads(self._path(key).read_bytes())["seconds"])

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"


def write_table(path: Path, rows: Sequence[Row], provenance: Mapping[str, Any]) -> pl.DataFrame:
    """One Parquet file: the same rows and provenance give the same bytes (with one version of polars)."""
    frame = table(rows)
    with _replacing(path) as scratch:
        frame.write_parquet(scratch, metadata={_METADATA: json.dumps(dict(provenance), sort_keys=True)})
    return frame


def table(rows: Sequence[Row]) -> pl.DataFrame:
    """Columns in the order in which they first appear; what a row lacks is null."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        return pl.DataFrame()
    columns = {name: [row.get(name) for row in rows] for name in names}
    # A column of whole numbers and others is one of floats.
    return pl.DataFrame({name: pl.Series(name, column, strict=False) for name, column in columns.items()})


def read_provenance(path: Path) -> dict[str, Any]:
    """What :func:`write_table` was given."""
    found: dict[str, Any] = json.loads(pl.read_parquet_metadata(path)[_METADATA])
    return found


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside ``path`` that takes its place at the end, at once; if something fails, nothing is left of it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    scratch = Path(name)
    try:
        yield scratch
        with scratch.open("rb") as written:
            os.fsync(written.fileno())
        scratch.chmod(0o644)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
