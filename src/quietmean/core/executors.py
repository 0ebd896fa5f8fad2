"""Computing by other processes: of this machine (joblib), and of a Dask scheduler. See :mod:`quietmean.core.workers`."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from quietmean.core.blocking import blocking
from quietmean.core.errors import InputError, StorageError
from quietmean.core.extensions import import_extra
from quietmean.core.outage import ONCE_MORE

Common = TypeVar("Common")
Job = TypeVar("Job")
Result = TypeVar("Result")

# Seconds until a scheduler that does not answer, or has nobody who computes, is given up; and between two looks at it.
_PATIENCE, _LOOK = 15, 2
_START = "Start some with dask worker {}"


def by_processes(
    count: int, function: Callable[[Common, int, Job], Result], common: Common, jobs: Sequence[Job]
) -> Generator[Result, None, None]:
    """Large arrays of what is common are in memory once: joblib maps them into each process."""
    joblib = import_extra("joblib", "workers", f"computing in {count} processes")
    # One at a time: a stop loses only what is being computed.
    options = {"batch_size": 1, "pre_dispatch": 2 * count, "return_as": "generator_unordered"}
    with _unheard():
        joblib.externals.loky.backend.resource_tracker.ensure_running()
    try:
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            pool = joblib.Parallel(n_jobs=count, **options)
            yield from pool(joblib.delayed(function)(common, place, job) for place, job in enumerate(jobs))
    except BrokenProcessPool:
        raise StorageError(
            f"a process that computed was ended from outside, which a system does for want of memory. Take fewer than {count} "
            f"workers, {ONCE_MORE}."
        ) from None


@contextmanager
def _unheard() -> Iterator[None]:
    """What starts here has no standard error: leftovers of ended processes may be deleted twice, which its end tells."""
    try:
        kept = os.dup(2)
    except OSError:
        # A shell has closed it.
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def by_dask(
    address: str, function: Callable[[Common, int, Job], Result], common: Common, jobs: Sequence[Job]
) -> Generator[Result, None, None]:
    """What a worker was doing that dies is done by another; only one of its results is ever taken.

    A result has been dealt with when the next one is asked for. Only then its thread gets another job.
    """
    distributed = import_extra("distributed", "dask", f"the scheduler at {address}")
    with _silent(), _connected(distributed, address) as client:
        waiting, running = deque(range(len(jobs))), dict[Any, int]()
        everywhere, heard = None, time.monotonic()
        while waiting or running:
            with _required(distributed, address):
                threads = sum(map(int, client.sync(client.scheduler.ncores, callback_timeout=_PATIENCE).values()))
                if everywhere is None or everywhere.cancelled():
                    everywhere = client.scatter(common, broadcast=True, hash=False)
                # Workers of a cluster come and go.
                while waiting and len(running) < max(1, threads):
                    place = waiting.popleft()
                    running[client.submit(function, everywhere, place, jobs[place], pure=False)] = place
                finished = _finished(distributed, client, list(running))
            if threads == 0 and not finished and time.monotonic() - heard > _PATIENCE:
                raise StorageError(f"the scheduler at {address} has no workers any more. {_START.format(address)}, {ONCE_MORE}.")
            for future in finished:
                place = running.pop(future)
                if future.cancelled():
                    # What it needs was at a worker that is gone.
                    waiting.append(place)
                    continue
                heard = time.monotonic()
                yield _result(distributed, future, address)


@contextmanager
def _silent() -> Iterator[None]:
    """What Dask logs of lost connections is said in one sentence."""
    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith(("distributed", "tornado"))]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _connected(distributed: Any, address: str) -> Iterator[Any]:
    """A client of the scheduler, which has at least one worker."""
    try:
        # A client that finds nobody is not let go of for a minute: it is made where somebody answers.
        blocking(asyncio.wait_for(_answers(distributed, address), _PATIENCE))
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError, ImportError):
        raise InputError(
            f"no Dask scheduler answers at {address}. Check the address and that it runs, or give a number of processes."
        ) from None
    try:
        with _required(distributed, address):
            try:
                client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError:
                raise InputError(f"the scheduler at {address} has no workers. {_START.format(address)}.") from None
        yield client
    finally:
        with suppress(OSError, distributed.CancelledError):
            client.close(timeout=_LOOK)


async def _answers(distributed: Any, address: str) -> None:
    """Check that the workers answer. Raises an error unless one that speaks Dask's language does."""
    arguments = distributed.Security().get_connection_args("client")
    connection = await distributed.core.connect(address, timeout=_PATIENCE / 2, **arguments)
    await connection.close()


@contextmanager
def _required(distributed: Any, address: str) -> Iterator[None]:
    """What needs the connection to the scheduler."""
    try:
        yield
    except (OSError, CancelledError, distributed.CancelledError):
        raise StorageError(f"the scheduler at {address} or all its workers ended. Start them again, {ONCE_MORE}.") from None


def _finished(distributed: Any, client: Any, running: Sequence[Any]) -> list[Any]:
    """The jobs that are done, if any is within a while; in the order in which they were begun."""
    with client.as_current(), suppress(TimeoutError, distributed.CancelledError):
        distributed.wait(running, timeout=_LOOK, return_when="FIRST_COMPLETED")
    return [future for future in running if future.done()]


def _result(distributed: Any, future: Any, address: str) -> Any:
    """The result of a job. Raises what the job raised."""
    if future.status != "error":
        with _required(distributed, address):
            return future.result()
    error = future.exception()
    if isinstance(error, distributed.KilledWorker):
        raise StorageError(
            f"workers of the scheduler at {address} end again and again with the same job, perhaps for want of memory. Give them "
            f"more memory, {ONCE_MORE}."
        )
    if isinstance(error, ModuleNotFoundError):
        raise InputError(
            f"the workers of the scheduler at {address} do not have {error.name}. Install there what is installed here."
        )
    raise error
