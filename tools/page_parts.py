"""What tools that make pages share: tables and their rows, parts between marks, verdicts, and lines that were measured before."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


# -- tables and parts of pages ---------------------------------------------------------------------------------------------------


def row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def table(heads: Sequence[str], rows: Iterable[Iterable[object]], left: int = 1) -> str:
    """A table of which the first ``left`` columns are words and the others numbers; it ends with its last line."""
    align = "|" + "---|" * left + "---:|" * (len(heads) - left)
    return "\n".join([row(heads), align, *map(row, rows), ""])


def between(text: str, begin: str, end: str, part: str) -> str:
    """The page with ``part`` between its two marks."""
    before, _, rest = text.partition(begin)
    return before + begin + part + end + rest.partition(end)[2]


@dataclass(frozen=True)
class Line:
    """One bar. ``kept``: is what was measured within it; ``reason``: why not; ``seeds``: of pages that show how many."""

    what: str
    bar: str
    measured: str
    kept: bool
    reason: str = ""
    seeds: int | None = None

    def __str__(self) -> str:
        verdict = "kept" if self.kept else f"**falls short**: {self.reason}"
        return row([self.what, self.bar, self.measured, *([] if self.seeds is None else [self.seeds or "-"]), verdict])


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" | ")]


def said_once(rows: Iterable[str], names: int = 1) -> Iterator[str]:
    """The rows; those of the first ``names`` cells that repeat the row above are empty, so that groups of rows are seen."""
    before: list[str] = []
    for line in rows:
        cells = cells_of(line)
        shown = ["" if cells[: place + 1] == before[: place + 1] else cells[place] for place in range(names)]
        before = cells
        yield row([*shown, *cells[names:]])


def said_again(rows: Iterable[str], names: int = 1) -> Iterator[list[str]]:
    """The cells of such rows, with those that were left out."""
    before = [""] * names
    for line in rows:
        cells = cells_of(line)
        # A name that is new makes those right of it new, too.
        before = [cell or said for cell, said in zip(cells[:names], before, strict=True)]
        yield [*before, *cells[names:]]


# -- lines that take long to measure ---------------------------------------------------------------------------------------------


def add_options(parser: ArgumentParser) -> None:
    """How lines are measured: how many at a time, and where they are kept."""
    parser.add_argument("--processes", type=int, default=1, help="how many lines are measured at a time")
    add_resume(parser)


def add_resume(parser: ArgumentParser) -> None:
    """Where lines are kept, so that a run that was ended goes on where it was."""
    parser.add_argument("--resume", type=Path, help="a folder of lines that the same code has measured before, where others go")


def resume_folder(purpose: str | None) -> Path | None:
    """The folder that the command line of a tool without other options names."""
    parser = ArgumentParser(description=purpose)
    add_resume(parser)
    folder: Path | None = parser.parse_args().resume
    return folder


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
    """The texts of ``measure(place, size, folder)`` for all places, ``processes`` at a time."""
    # Not forked: the libraries for arrays have threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(measure, range(count), [size] * count, [folder] * count))
