"""Limits on the number of threads that linear algebra uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

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
