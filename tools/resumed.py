"""Lines of pages that take long to measure: each is kept in a folder, so that a run that was ended goes on where it was."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path


def add_options(parser: ArgumentParser) -> None:
    """How lines are measured: so many at a time, and where they are kept."""
    parser.add_argument("--processes", type=int, default=1, help="how many lines are measured at a time")
    add_resume(parser)


def add_resume(parser: ArgumentParser) -> None:
    """Where lines are kept."""
    parser.add_argument("--resume", type=Path, help="a folder of lines that the same code has measured before, where others go")


def resumed(folder: Path | None, name: str, measure: Callable[[], str], *, quiet: bool = False) -> str:
    """The text of that name, which is measured where the folder does not have it, and then shown unless ``quiet``."""
    kept = None if folder is None else folder / f"{name}.txt"
    if kept is not None and kept.exists():
        return kept.read_text(encoding="utf-8")
    text = measure()
    if not quiet:
        print(text, end="", file=sys.stderr, flush=True)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(text, encoding="utf-8")
    return text


def all_lines(
    measure: Callable[[int, int, Path | None], str], count: int, size: int, processes: int, folder: Path | None
) -> list[str]:
    """The texts of ``measure(place, size, folder)`` for all places, so many at a time."""
    # Not forked: the libraries for arrays have threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(measure, range(count), [size] * count, [folder] * count))
