"""What a figure of a paper is to us: tasks that compute its rows, a drawing of the rows, and what the rows say of the paper.

To add figures: write a module (or a package) of ``quietmean_reproduction``, named after the paper, with a tuple ``FIGURES``.
Nothing else has to be touched: :func:`quietmean_reproduction.registry` finds it. A figure has three parts, all of them plain
functions:

- ``tasks(effort)`` lists independent pieces of work (see :class:`quietmean_reproduction.sweeps.Task`): a function at the top
  level of a module, JSON parameters. They run in other processes, in any order, each at most once and only if they are
  missing. The function takes ``seed: int`` and the parameters by name, and returns rows (flat dicts). ``Effort.QUICK`` is
  smaller: fewer runs, fewer points; what is smaller belongs into the rows (a column "runs") and into the text of the claims.
- ``draw(rows, canvas)`` draws them: ``rows`` is a polars frame in the order of the tasks, as :mod:`quietmean_reproduction.rows`
  keeps them, ``canvas`` an empty matplotlib figure
  of ``size`` inches in the style of :mod:`quietmean_reproduction.style`, which has the colours, markers and helpers to use.
- ``claims(rows)`` says what the paper states, what the rows show, and whether they agree.

:mod:`quietmean_reproduction.inca.accuracy` is a finished example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from quietmean_reproduction.sweeps.task import Task

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Canvas

# The width of one column of a two-column page and of both, in inches.
COLUMN, PAGE = 3.5, 7.2


def _everything(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


class Effort(StrEnum):
    """``quick``: minutes on two cores for all figures together. ``full``: the papers' own sizes."""

    QUICK = "quick"
    FULL = "full"


def within(interval: tuple[float, float], accepted: tuple[float, float]) -> bool | None:
    """Does a number lie between two others? True or False where all of its interval says so, else None."""
    (low, high), (least, most) = interval, accepted
    if least <= low and high <= most:
        return True
    return False if high < least or low > most else None


@dataclass(frozen=True)
class Claim:
    """A statement of the paper beside what we find.

    ``agrees`` is None where the paper states nothing that could be compared (``paper`` may then be None, too) or where it cannot
    be decided here; ``why`` says why numbers differ, or how they were found. ``paper`` and ``ours`` are in ``unit``.

    ``interval``: the 95 % interval of ``ours`` where it is an estimate. With ``accepted``, the numbers with which the statement
    holds, it decides: the statement holds if all of the interval is within them, and fails if none of it is.
    """

    text: str
    paper: float | None = None
    ours: float | None = None
    agrees: bool | None = None
    why: str = ""
    unit: str = ""
    interval: tuple[float, float] | None = None
    accepted: tuple[float, float] | None = None
    # Whether the paper says nothing of it: see Check.
    own: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.interval is not None and self.accepted is not None and self.agrees is not False:
            object.__setattr__(self, "agrees", within(self.interval, self.accepted))

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's."""
        if self.paper is None or self.ours is None or self.paper == 0:
            return None
        return self.ours / self.paper

    @property
    def verdict(self) -> str:
        return {True: "agrees", False: "differs", None: "no verdict"}[self.agrees]

    def to_json(self) -> dict[str, Any]:
        return {
            "claim": self.text,
            "paper": self.paper,
            "ours": self.ours,
            "ratio": self.ratio,
            "unit": self.unit,
            "agrees": self.agrees,
            "why": self.why,
            **({"interval": list(self.interval)} if self.interval is not None else {}),
            **({"own": True} if self.own else {}),
        }


@dataclass(frozen=True)
class Check(Claim):
    """A check of our own, of a formula or of what runs, of which the paper says nothing. Counted apart."""

    own: ClassVar[bool] = True


@dataclass(frozen=True)
class Figure:
    """``name`` is what a person types, such as ``inca-1``; ``caption`` says in a sentence or two what is shown and with what."""

    name: str
    paper: str
    title: str
    tasks: Callable[[Effort], Sequence[Task]]
    draw: Callable[[pl.DataFrame, Canvas], None]
    claims: Callable[[pl.DataFrame], Sequence[Claim]]
    caption: str = ""
    size: tuple[float, float] = (COLUMN, 2.6)
    # Wall-clock or processor time is part of the rows: they differ from run to run.
    timed: bool = False
    # What of the rows is kept: of very many, sums; of counts, shares and their intervals.
    kept: Callable[[pl.DataFrame], pl.DataFrame] = _everything
