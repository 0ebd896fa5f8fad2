"""How the tasks of a sweep are spread over processes. Every backend yields (key, rows) as tasks finish, in any order.

All of them run the very same function with linear algebra on one thread, so that the numbers do not depend on the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.threads import one_thread
from quietmean_reproduction.sweeps.task import Row, Task

Finished = Generator[tuple[str, list[Row]], None, None]
Jobs = Sequence[tuple[str, Task]]


@dataclass(frozen=True)
class Workers:
    """``count`` processes (None: as many as the machine has processors); ``address`` of a scheduler that runs already."""

    count: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise InputError(f"{self.count} workers do nothing: choose at least 1")

    @property
    def number(self) -> int:
        import joblib

        return self.count or int(joblib.cpu_count())


def run_task(key: str, task: Task, root: int) -> tuple[str, list[Row]]:
    """What a worker does."""
    try:
        with one_thread():
            return key, task.rows(root)
    except QuietmeanError as error:
        error.add_note(f"in {task.name} with {dict(task.parameters)}")
        raise


def joblib_backend(jobs: Jobs, root: int, workers: Workers) -> Finished:
    """Processes of this machine (loky); with one worker, this very process."""
    import joblib

    if workers.address is not None:
        raise InputError(f"backend joblib has no scheduler ({workers.address}): leave the address out, or choose backend dask")
    count = min(workers.number, len(jobs))
    # One at a time: whoever stops the sweep loses only what is being computed.
    options = {"batch_size": 1, "pre_dispatch": 2 * count, "return_as": "generator_unordered"}
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        pool = joblib.Parallel(n_jobs=count, **options)
        yield from pool(joblib.delayed(run_task)(key, task, root) for key, task in jobs)


def dask_backend(jobs: Jobs, root: int, workers: Workers) -> Finished:
    """Dask distributed: a cluster of processes of this machine, or the scheduler at ``address``.

    A task whose worker dies is run again by another; only one of its results is ever taken.
    """
    try:
        import distributed
    except ImportError:
        raise InputError("backend dask needs the package distributed: pip install 'quietmean-reproduction[dask]'") from None
    # Untyped, as far as this module is concerned.
    connect: Any = distributed.Client
    start: Any = distributed.LocalCluster
    if workers.address is not None:
        with connect(workers.address) as client:
            yield from _through_dask(client, jobs, root)
        return
    count = min(workers.number, len(jobs))
    # Also without a dashboard a scheduler has an HTTP server, by default on a port that only one of them can have.
    anywhere = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with (
        start(n_workers=count, threads_per_worker=1, processes=True, memory_limit=None, scheduler_kwargs=anywhere) as cluster,
        connect(cluster) as client,
    ):
        yield from _through_dask(client, jobs, root)


def _through_dask(client: Any, jobs: Jobs, root: int) -> Finished:
    """As many tasks at a time as there are threads: whoever stops the sweep loses only what is being computed.

    A result has been dealt with when the next one is asked for. Only then its thread gets another task.
    """
    import distributed

    as_completed: Any = distributed.as_completed
    waiting = (client.submit(run_task, key, task, root, key=f"quietmean-{key}", pure=True) for key, task in jobs)
    running = list(islice(waiting, _threads(client)))
    finished = as_completed(running)
    try:
        for future in finished:
            yield future.result()
            running.remove(future)
            # Workers of a cluster come and go.
            for another in islice(waiting, max(0, _threads(client) - len(running))):
                running.append(another)
                finished.add(another)
    finally:
        client.cancel(running)


def _threads(client: Any) -> int:
    return max(1, sum(map(int, client.nthreads().values())))


BACKENDS: dict[str, Callable[[Jobs, int, Workers], Finished]] = {
    "joblib": joblib_backend,
    "dask": dask_backend,
}


def find_backend(name: str) -> Callable[[Jobs, int, Workers], Finished]:
    if name not in BACKENDS:
        raise InputError(f"backend {name!r} is unknown: choose one of {', '.join(BACKENDS)}")
    return BACKENDS[name]
