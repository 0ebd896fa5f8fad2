"""Who computes what has many independent parts: processes of this machine (joblib), or those of a Dask scheduler, by its address.

A part is a function of what all have in common and of its own job, and depends on nothing else: results are the same to the bit,
by any worker, and come in the order of the jobs where their order matters. Linear algebra is on one thread everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from quietmean.core.errors import InputError

# Up to this many rows a second thread costs more time than it saves, on a busy machine much more.
_SMALL = 2500


@cache
def _controller() -> ThreadpoolController:
    # What is loaded later would not be limited: scipy brings a library of its own.
    import scipy.linalg  # noqa: F401

    # Looking up the loaded libraries costs more than a small factorisation: once is enough.
    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for linear algebra: on many small problems several threads only wait for each other."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


@contextmanager
def few_threads(rows: int) -> Iterator[None]:
    """One thread if the matrices have few rows, as many as the caller allows otherwise."""
    if rows > _SMALL:
        yield
        return
    with one_thread():
        yield


Common = TypeVar("Common")
Job = TypeVar("Job")
Result = TypeVar("Result")

_EXAMPLE = "Give a number of processes, such as 4, or an address, such as tcp://host:8786."
# More processes than any machine has processors.
_MOST = 512


@dataclass(frozen=True)
class Workers:
    """A number of processes of this machine, 1 being this very process, or the address of a Dask scheduler.

    Raises :class:`InputError` for anything else.
    """

    where: int | str = 1

    def __post_init__(self) -> None:
        text = str(self.where).strip()
        by_address = text.startswith(("tcp://", "tls://"))
        if isinstance(self.where, bool) or not (by_address or text.removeprefix("-").isdecimal()):
            raise InputError(f"workers {text!r} are neither processes nor the address of a scheduler. {_EXAMPLE}")
        if by_address:
            object.__setattr__(self, "where", text)
            return
        object.__setattr__(self, "where", int(text))
        if not 1 <= int(text) <= _MOST:
            raise InputError(f"workers are {text}. Choose 1 to {_MOST} processes, at best one for each processor.")

    def each(
        self, function: Callable[[Common, Job], Result], common: Common, jobs: Sequence[Job]
    ) -> Generator[tuple[int, Result], None, None]:
        """``function(common, job)`` of every job, with its place, as they finish; as many at a time as there are workers.

        ``function`` is of the top level of a module. Errors of it are raised here. Raises :class:`InputError` where a library is
        not installed or no scheduler answers, :class:`StorageError` where one that computes is ended from outside, and stays so.
        """
        if isinstance(self.where, str):
            from quietmean.core.executors import by_dask

            yield from by_dask(self.where, partial(_done, function), common, jobs)
        elif min(self.where, len(jobs)) <= 1:
            for place, job in enumerate(jobs):
                yield _done(function, common, place, job)
        else:
            from quietmean.core.executors import by_processes

            yield from by_processes(min(self.where, len(jobs)), partial(_done, function), common, jobs)

    def in_order(self, function: Callable[[Common, Job], Result], common: Common, jobs: Sequence[Job]) -> Iterator[Result]:
        """Results in the order of the jobs."""
        early: dict[int, Result] = {}
        due = 0
        with closing(self.each(function, common, jobs)) as finished:
            for place, result in finished:
                early[place] = result
                while due in early:
                    yield early.pop(due)
                    due += 1


def _done(function: Callable[[Common, Job], Result], common: Common, place: int, job: Job) -> tuple[int, Result]:
    """What a worker does."""
    with one_thread():
        return place, function(common, job)
