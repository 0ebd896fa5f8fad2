"""Sweeps: many independent tasks, spread over processes, stopped and continued at will, collected in one table.

A finished task is written down at once. Anyone who stops a sweep loses at most the tasks in flight, and the next run does only
what is missing. What the table holds depends on the tasks and the seed alone: not on the workers, or interruptions.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy
import polars as pl
import scipy

from quietmean.core.codec import digest
from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.workers import Workers
from quietmean_reproduction.sweeps.store import SweepStore, write_table
from quietmean_reproduction.sweeps.task import VERSION, Row, Task

__all__ = ["Sweep", "Task", "Workers", "run_sweep"]

# Called after every task: how many are done, of how many, how many of them had been done before.
Progress = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Sweep:
    """``rows`` in the order of the tasks. ``computed``: how many tasks were run now; the others had been done before.

    ``seconds``: the processor time of all tasks, whenever they were run.
    """

    rows: pl.DataFrame
    provenance: dict[str, Any]
    computed: int
    path: Path
    seconds: float


def run_sweep(
    tasks: Sequence[Task],
    directory: Path,
    *,
    seed: int = 0,
    workers: Workers | None = None,
    progress: Progress = lambda done, total, before: None,
) -> Sweep:
    """Run what is missing, then write ``directory/sweep.parquet``.

    Finished tasks lie in ``directory/tasks``; delete it to begin anew. ``workers``: by default a process for each processor; all
    give the same table, bit for bit. An error of a task ends the sweep, and what is finished stays.
    """
    keys = [task.key(seed) for task in tasks]
    if not tasks:
        raise InputError("a sweep of no tasks computes nothing. Give at least one task.")
    store = SweepStore(directory / "tasks")
    by_key = dict(zip(keys, tasks, strict=True))
    before = store.done(list(by_key))
    missing = [(key, task) for key, task in by_key.items() if key not in before]
    done = len(before)
    progress(done, len(by_key), len(before))
    if missing:
        workers = workers or Workers(joblib.cpu_count())
        with closing(workers.each(_rows, seed, [task for _, task in missing])) as finished:
            for place, (rows, seconds) in finished:
                key = missing[place][0]
                store.save(key, by_key[key], rows, seconds)
                done += 1
                progress(done, len(by_key), len(before))
    path = directory / "sweep.parquet"
    provenance = describe(tasks, seed)
    rows, seconds = collect(store, keys), sum(store.seconds(key) for key in by_key)
    return Sweep(write_table(path, rows, provenance), provenance, len(missing), path, seconds)


def _rows(seed: int, task: Task) -> tuple[list[Row], float]:
    begun = time.process_time()
    try:
        return task.rows(seed), time.process_time() - begun
    except QuietmeanError as error:
        error.add_note(f"in {task.name} with {dict(task.parameters)}")
        raise


def collect(store: SweepStore, keys: Sequence[str]) -> list[Row]:
    """All rows, in the order of the tasks."""
    rows: list[Row] = []
    for key in keys:
        found = store.load(key)
        if found is None:
            raise InputError(f"task {key[:12]} of the sweep is gone from its directory. Run the sweep again.")
        rows += found
    return rows


def describe(tasks: Sequence[Task], seed: int) -> dict[str, Any]:
    """Where the numbers come from: nothing in it depends on the machine or the hour."""
    return {
        "quietmean": VERSION,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "polars": pl.__version__,
        "seed": seed,
        "tasks": len(tasks),
        "functions": sorted({f"{task.name} version {task.version}" for task in tasks}),
        "digest": digest([task.key(seed) for task in tasks]),
    }
