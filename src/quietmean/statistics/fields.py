"""Fields that several statistics have: lists of numbers and of names, as JSON arrays or as texts with spaces between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.schema import is_kind, parameter, wrong_field
from quietmean.statistics.names import split, unquoted
from quietmean.statistics.statistic import Statistic

MOST_BINS = 1024


def numbers_field(default: tuple[float, ...] | None, help_: str, name: str) -> Any:
    """A field of numbers: ``[15, 20]`` in a study file, ``15 20`` on the command line."""

    def read(raw: Any) -> tuple[float, ...] | None:
        if raw is None:
            return None
        parts = raw.split() if isinstance(raw, str) else raw if isinstance(raw, list | tuple) else [raw]
        try:
            values = tuple(float(part) for part in parts if isinstance(part, str) or is_kind(part, float))
        except ValueError:
            raise wrong_field(name, raw, "numbers with spaces between them") from None
        if not values or len(values) < len(parts):
            raise wrong_field(name, raw, "numbers with spaces between them")
        return values

    return parameter(default, help=help_, read=read, write=lambda value: None if value is None else list(value))


def names_field(help_: str, name: str, default: tuple[str, ...] | None = ()) -> Any:
    """A field of column names: ``["age", "bmi"]`` in a study file, ``age bmi`` on the command line."""

    def read(raw: Any) -> tuple[str, ...] | None:
        if raw is None and default is None:
            return None
        parts = [unquoted(part) for part in split(raw, " ")] if isinstance(raw, str) else raw
        if not (isinstance(parts, list | tuple) and parts and all(isinstance(part, str) for part in parts)):
            raise wrong_field(name, raw, "names of columns")
        return tuple(parts)

    def write(value: tuple[str, ...] | None) -> list[str] | None:
        return None if value is None else list(value)

    return parameter(default, help=help_, read=read, write=write, written=lambda value: bool(getattr(value, name)))


def bins_field(default: int) -> Any:
    """How many bins of equal width, where no edges are given."""
    return _bins_field(default, "bins of equal width between the bounds, where no edges are given")


def usual_bins_field(usual: int) -> Any:
    """How many bins, where no edges are given; None is what the column declares, or the ``usual`` number."""
    return _bins_field(None, f"bins by the column's scale, where no edges are given; default the column's edges, or {usual} bins")


def _bins_field(default: int | None, help_: str) -> Any:
    return parameter(default, help=help_, at_least=1, at_most=MOST_BINS, remedy=f"choose 1 to {MOST_BINS} bins")


def edges_field() -> Any:
    """Rising edges of bins."""
    return numbers_field(None, "rising edges of the bins, in the column's units", "edges")


def require_names(subject: str, names: tuple[str, ...], fewest: int) -> None:
    """Raises :class:`InputError` for too few columns, or one that is named twice."""
    if len(names) < fewest or len(set(names)) < len(names):
        raise InputError(f"{subject} needs {fewest} or more different columns. Name each once.")


def sides_of(formula: str) -> tuple[str, list[str]]:
    """The outcome and the other columns of ``outcome ~ column + column``. Raises :class:`InputError` for any other text."""
    sides = split(formula, "~")
    outcome, names = unquoted(sides[0]), [unquoted(name) for name in split(sides[-1], "+")]
    if len(sides) != 2 or not outcome or not all(names):
        raise InputError(f"formula {formula!r} is not of the form outcome ~ column + column. Write for example bmi ~ age + sex.")
    if len({outcome, *names}) <= len(names):
        raise InputError(f"formula {formula!r} names a column twice. Name each once.")
    return outcome, names


def cluster_field() -> str | None:
    """The column of public sites."""
    cluster: str | None = parameter(
        None, help="the column whose levels are public sites: the answer is for all sites like these, which may differ"
    )
    return cluster


ROBUST = "robust"


def robust_field() -> bool:
    """Do intervals hold whatever the model? Absence in a document means no, for ever; a text means yes where it does not say."""
    robust: bool = parameter(
        False,
        help="intervals that hold where the model does not, of two columns; asked for by a text: true unless it says false",
        written=lambda value: bool(value.robust),
    )
    return robust


@dataclass(frozen=True)
class StatisticReader:
    """Reads statistics from texts and tables.

    ``read``: the table that a text means; ``parse``: the statistic of a table. Both raise :class:`InputError`.
    """

    read: Callable[[str], dict[str, Any]]
    parse: Callable[[Mapping[str, Any]], Statistic]


_READERS: list[StatisticReader] = []


def install(reader: StatisticReader) -> None:
    """Called once, by the registry."""
    _READERS[:] = [reader]


def statistic_reader() -> StatisticReader:
    """The reader of statistics that the registry installed."""
    return _READERS[0]
