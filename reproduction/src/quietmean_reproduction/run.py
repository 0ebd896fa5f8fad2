"""From figures to files: NAME.csv, NAME.png and NAME.json each, and summary.md for all of them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.core.codec import to_plain
from quietmean.core.errors import InputError
from quietmean_reproduction.figure import Claim, Effort, Figure
from quietmean_reproduction.rows import kept, read_rows
from quietmean_reproduction.style import paper_style
from quietmean_reproduction.summary import write_summary
from quietmean_reproduction.sweeps import Workers, run_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# A figure's sweep lies here, so that a second run computes only what is missing.
SWEEPS = ".sweeps"
# Beside its table: the processor time of all its tasks.
PROCESSOR_SECONDS = "processor_seconds"
# Called at every task: which figure, how many tasks are done, of how many.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Reproduced:
    """A figure that was made. ``seconds`` of this run: next to nothing if the rows were there already.

    ``processor_seconds`` of all tasks, whenever they were run.
    """

    figure: Figure
    effort: Effort
    claims: Sequence[Claim]
    provenance: dict[str, Any]
    seconds: float
    processor_seconds: float

    def to_json(self) -> dict[str, Any]:
        """Everything but the time it took, which differs from run to run."""
        return {
            "name": self.figure.name,
            "paper": self.figure.paper,
            "title": self.figure.title,
            "caption": self.figure.caption,
            "effort": str(self.effort),
            "timed": self.figure.timed,
            "claims": [claim.to_json() for claim in self.claims],
            "provenance": self.provenance,
        }


def reproduce(
    figures: Sequence[Figure],
    directory: Path,
    *,
    effort: Effort = Effort.QUICK,
    seed: int = 0,
    workers: Workers | None = None,
    progress: Progress = lambda name, done, total: None,
    finished: Callable[[Reproduced], None] = lambda made: None,
) -> list[Reproduced]:
    """Make figures in ``directory``, one after the other; stop and continue at will, see :mod:`quietmean_reproduction.sweeps`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{directory} is no directory. Name one for the figures with --out.") from None
    made = []
    for figure in figures:
        begun = time.monotonic()
        sweep = run_sweep(
            figure.tasks(effort),
            directory / SWEEPS / f"{figure.name}-{effort}",
            seed=seed,
            workers=workers,
            progress=partial(_tell, progress, figure.name),
        )
        path = directory / f"{figure.name}.csv"
        kept(figure, sweep.rows, seed, effort).write_csv(path)
        draw(figure, path, path.with_suffix(".png"))
        claims = figure.claims(read_rows(path))
        one = Reproduced(figure, effort, claims, sweep.provenance, time.monotonic() - begun, sweep.seconds)
        (sweep.path.parent / PROCESSOR_SECONDS).write_text(f"{sweep.seconds:.0f}\n")
        text = json.dumps(to_plain(one.to_json()), indent=2) + "\n"
        (directory / f"{figure.name}.json").write_text(text)
        write_summary(directory)
        made.append(one)
        finished(one)
    return made


def _tell(progress: Progress, name: str, done: int, total: int, before: int) -> None:
    progress(name, done, total)


def draw(figure: Figure, rows: Path, path: Path) -> None:
    """The PNG of the rows in a CSV file."""
    from matplotlib.figure import Figure as Canvas

    with paper_style():
        canvas = Canvas(figsize=figure.size)
        figure.draw(read_rows(rows), canvas)
        save(canvas, rows, path)


def save(canvas: Canvas, rows: Path, path: Path) -> None:
    """Write a PNG that says which rows it shows, and what drew it: both the same give the same bytes."""
    import matplotlib as mpl

    source = f"sha256 {hashlib.sha256(rows.read_bytes()).hexdigest()}"
    canvas.savefig(path, metadata={"Software": f"matplotlib {mpl.__version__}", "Source": source})
